"""Every invalid argument raises a one-line error of aggarray."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pytest

import aggarray as aa
from aggarray import MasterArray, SubArray
from aggarray.storage.files import local_path
from tests.support.netcdf import cube, write

pytestmark = pytest.mark.quick

PIECE = SubArray.from_array([1.0, 2.0], dimensions=("x",))


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write(tmp_path_factory.mktemp("data") / "a.nc", cube([0, 1]))


@pytest.fixture
def array(path: str) -> MasterArray:
    return aa.open(path)["tas"]


def refused(kind: type[Exception], call: Callable[[], Any], *words: str) -> None:
    """Expect a one-line error of aggarray that contains all words."""
    with pytest.raises(aa.AggarrayError) as caught:
        call()
    text = str(caught.value)
    assert isinstance(caught.value, kind) and "\n" not in text
    assert all(word in text for word in words), text


# Sources


@pytest.mark.parametrize("source", [5, None, 2.5, [None], [["a.nc"]], np.zeros(2), object()])
def test_sources_that_are_not_paths(source: Any) -> None:
    refused(aa.AggregationError, lambda: aa.open(source), "not a path", "give a path")


def test_sources_that_are_open_already(path: str, array: MasterArray) -> None:
    refused(aa.AggregationError, lambda: aa.open(aa.open(path)), "MasterArray", "not a path")
    refused(aa.AggregationError, lambda: aa.open(array), "not a path")
    with netCDF4.Dataset(path) as dataset:
        refused(aa.AggregationError, lambda: aa.open(dataset), "Dataset", "not a path")


@pytest.mark.parametrize("source", ["", b"", [""]])
def test_empty_path_is_not_the_working_directory(source: Any) -> None:
    refused(aa.MissingFileError, lambda: aa.open(source), "empty", "'.'")


@pytest.mark.parametrize("url", ["file://elsewhere/a.nc", "nobody://h/a.nc"])
def test_unsupported_urls(url: str) -> None:
    for call in (lambda: aa.open(url), lambda: aa.open([url]), lambda: SubArray.from_file(url, "tas")):
        refused(aa.FormatError, call, url, "cannot be opened")


def test_null_characters() -> None:
    refused(aa.FormatError, lambda: aa.open("a\0b"), r"a\x00b")
    refused(aa.FormatError, lambda: SubArray.from_file(b"a\0b", "tas"), r"a\x00b")


@pytest.fixture
def spellings(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Yield ways to name one file."""
    shutil.copy(path, tmp_path / "a b.nc")
    monkeypatch.setenv("HOME", str(tmp_path))
    result = str(tmp_path / "a b.nc")
    urls = (f"file://{result}", f"file://localhost{result}", f"file://{result.replace(' ', '%20')}")
    return iter((result, os.fsencode(result), Path(result), "~/a b.nc", b"~/a b.nc", *urls))


def test_every_way_to_name_a_file(spellings: Any, tmp_path: Path) -> None:
    result = str(tmp_path / "a b.nc")
    for spelling in spellings:
        assert aa.open(spelling)["tas"].shape == aa.open([spelling])["tas"].shape == (2, 3, 2)
        piece = SubArray.from_file(spelling, "tas")
        assert piece.uri == result and piece.read().shape == (2, 3, 2)


@pytest.mark.parametrize("given", ["a:b", "http:/x", "C:\\a", "-://x", "./a://b"])
def test_paths_that_resemble_urls(given: str) -> None:
    assert local_path(given) == given


# Options


def test_options_of_opening_and_reading(path: str, array: MasterArray) -> None:
    refused(aa.AggregationError, lambda: aa.open(path, progress="yes"), "progress='yes'")
    for threads in ("x", 0, 1.5, True):
        refused(aa.SelectionError, lambda t=threads: array.read(0, threads=t), f"threads={threads!r}")
    refused(aa.SelectionError, lambda: array.coords["lat"].read(threads="x"), "threads='x'")
    for copy in ("x", 0, 1):
        refused(aa.AggregationError, lambda c=copy: array.read(copy=c), f"copy={copy!r}")
        refused(aa.AggregationError, lambda c=copy: PIECE.read(copy=c), f"copy={copy!r}")
    assert array.read(0, threads=np.int64(2)).shape == (3, 2)


@pytest.mark.parametrize("given", [{"threads": 1.5}, {"threads": 0}, {"open_files": "x"}, {"cache_bytes": True}])
def test_set_options(given: dict[str, Any]) -> None:
    refused(aa.AggregationError, lambda: aa.set_options(**given), *(f"{k}={v!r}" for k, v in given.items()))


def test_names_of_dimensions(array: MasterArray) -> None:
    for call in (lambda: array.transpose("lat", ...), lambda: array.transpose(0, 1, 2), lambda: array.transpose(None)):
        refused(aa.SelectionError, call, "give names of dimensions")
    for call in (lambda: array.flip(0), lambda: array.flip(["lat", 1])):
        refused(aa.SelectionError, call, "give names of dimensions")
    assert array.transpose(["lon", "time", "lat"]).shape == (2, 2, 3)


def test_concat(array: MasterArray) -> None:
    refused(aa.AggregationError, lambda: aa.concat(None, "x"), "NoneType", "list")
    refused(aa.AggregationError, lambda: aa.concat(array, "x"), "list")
    refused(aa.AggregationError, lambda: aa.concat([array], 0), "dimension 0")
    assert aa.concat(iter([array]), "member").shape == (1, 2, 3, 2)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"units": ["K"]}, "{name: units}"),
        ({"units": {"tas": 5}}, "{name: units}"),
        ({"order": "name"}, "{dimension:"),
        ({"along": 5}, "list of names"),
        ({"along": [5]}, "list of names"),
        ({"separate_by": None}, "list of names"),
        ({"directions": {"lev": "down"}}, "True for increasing"),
        ({"directions": {"lev": 1}}, "True for increasing"),
    ],
)
def test_rules(given: dict[str, Any], words: str) -> None:
    refused(aa.AggregationError, lambda: aa.Rules(**given), f"{next(iter(given))}=", words)


# Sub-arrays


@pytest.mark.parametrize(
    ("values", "given", "words"),
    [
        ([[1], [1, 2]], {}, "equal length"),
        ([1.0], {"directions": ("x",)}, "True or False"),
        ([1.0], {"directions": True}, "lists"),
        ([1.0], {"dimensions": (1,)}, "names as text"),
        ([1.0], {"dimensions": 1}, "lists"),
        (np.array([1], "i1"), {"fill_value": 1000}, "fill_value 1000 is not a value of dtype int8"),
        (np.array([1], "u2"), {"fill_value": np.nan}, "uint16"),
        (np.array([1], "f4"), {"fill_value": 1e300}, "float32"),
        (np.array([1.0]), {"fill_value": "x"}, "float64"),
        (["a"], {"fill_value": 1}, "StringDType"),
        (np.array(["2000-01-01"], "M8[D]"), {"fill_value": "x"}, "datetime64"),
    ],
)
def test_arrays_in_memory(values: Any, given: dict[str, Any], words: str) -> None:
    refused(aa.AggregationError, lambda: SubArray.from_array(values, **given), words)


def test_calendars() -> None:
    since = "days since 2000-01-01"
    refused(aa.UnitsError, lambda: SubArray.from_array([1.0], units=since, calendar="foo"), "'foo'", "noleap")
    assert SubArray.from_array([1.0], units=since, calendar="365_day").calendar == "365_day"
    assert SubArray.from_array([1.0], units="K", calendar="foo").calendar is None


@pytest.mark.parametrize("given", [np.array([True]), np.array([np.bool(False)])])
def test_valid_arguments(given: np.ndarray) -> None:
    assert SubArray.from_array([1.0], directions=given).directions == (bool(given[0]),)
    assert SubArray.from_array(np.array([1], "i1"), fill_value=np.float64(1)).read(masked=True).mask.all()


def test_files() -> None:
    refused(aa.AggregationError, lambda: SubArray.from_file(None, "tas"), "not a path")


# Matrices from sub-arrays


@pytest.mark.parametrize("location", [(0.0, 2.0), (0, 2.0), ("0", "2"), (False, 2.0), 5])
def test_locations_are_integers(location: Any) -> None:
    refused(
        aa.AggregationError, lambda: MasterArray.from_subarrays([([location], PIECE)], dimensions="x"), "piece 0", "integers"
    )


@pytest.mark.parametrize("shape", [(10**30,), (2.5,), ("2",), (-1,), (2, 2), None, 5])
def test_shapes(shape: Any) -> None:
    def made() -> MasterArray:
        return MasterArray.from_subarrays([([(0, np.uint64(2))], PIECE)], dimensions="x", shape=shape)

    if shape in (None, 5):
        assert made().shape == (shape or 2,)
    else:
        refused(aa.AggregationError, made, f"shape {shape!r}")
