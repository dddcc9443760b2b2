"""Reader of the aggregation variables of CFA-0.6.2 and of earlier files."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aggarray as aa
from aggarray.formats import scan
from aggarray.index.conventions.foreign import convention_of
from tests.support.foreign_indexes import fragment, opened
from tests.support.messages import says
from tests.support.netcdf import TIME, write

pytestmark = pytest.mark.quick

VALUES = np.arange(20, dtype="f4").reshape(5, 4)
DATA = "location: loc file: fil format: fmt address: adr"
MISSING = {"_FillValue": np.int32(-1)}


def index(folder: Path, files: Any, addresses: Any = "tas", **changes: Any) -> str:
    """Write an aggregation file over (time: 5, x: 4).

    ``changes``: ``data`` (the terms), ``fil`` (attributes), ``more``.
    """
    attrs = {"units": "K", "aggregated_dimensions": "time x", "aggregated_data": changes.get("data", DATA)}
    files, addresses = np.array(files), np.array(addresses)
    names = ("ft", "fx", "copies")
    variables = {
        "time": (("time",), np.arange(5.0), TIME),
        "xx": (("x",), np.arange(4.0)),
        "tas": ((), np.float32(0), {**attrs, **changes.get("attrs", {})}),
        "loc": (("i", "j"), np.array([[2, 3], [4, -1]], "i4"), MISSING),
        "fil": (names[: files.ndim], files, changes.get("fil", {})),
        "fmt": ((), np.array("nc")),
        "adr": (names[: addresses.ndim], addresses),
        **changes.get("more", {}),
    }
    return write(folder / "index.nc", variables, {"Conventions": "CF-1.10 CFA-0.6.2"})


@pytest.fixture
def pair(tmp_path: Path) -> Path:
    """Write two fragments of VALUES, three rows below two, into one folder."""
    fragment(tmp_path / "a.nc", VALUES[:2])
    fragment(tmp_path / "b.nc", VALUES[2:])
    return tmp_path


def test_fragments_make_one_array(pair: Path) -> None:
    path = index(pair, [["a.nc"], ["b.nc"]])
    result = convention_of(scan(path))
    assert result is not None and result.name == "CFA-0.6.2"
    arrays = opened(path)
    np.testing.assert_array_equal(arrays["tas"][...], VALUES)
    assert set(arrays) == {"tas", "xx"} and arrays["tas"].units == "K"


@pytest.mark.parametrize(
    "data",
    [
        "LOCATION: loc File: fil FORMAT: fmt Address: adr",
        "location: loc file: fil format: fmt address: adr tracking_id: loc2",
        "address: adr file: fil location: loc",
        "shape: loc location: fil address: adr",
        "shape: loc location: fil format: fmt address: adr",
    ],
)
def test_terms_in_any_case_order_and_age(pair: Path, data: str) -> None:
    more = {"loc2": (("ft",), np.array([1, 2], "i4"))}
    arrays = opened(index(pair, [["a.nc"], ["b.nc"]], data=data, more=more))
    np.testing.assert_array_equal(arrays["tas"][...], VALUES)
    assert ("loc2" in arrays) == ("tracking_id" not in data)


def test_addresses_of_each_fragment(pair: Path) -> None:
    write(pair / "c.nc", {"pr": (("t", "x"), VALUES[2:], {"units": "K"})})
    np.testing.assert_array_equal(opened(index(pair, [["a.nc"], ["c.nc"]], [["tas"], ["pr"]]))["tas"][...], VALUES)


def test_fragments_without_a_file_are_in_the_index(pair: Path) -> None:
    more = {"own": (("three", "x"), VALUES[2:], {"units": "K"})}
    path = index(pair, [["a.nc"], [""]], [["tas"], ["own"]], more=more)
    np.testing.assert_array_equal(opened(path)["tas"][...], VALUES)
    more["one"] = (("two", "x"), VALUES[:2], {"units": "K"})
    path = index(pair, [["a.nc"], [""]], [["one"], ["own"]], more=more, data="location: loc address: adr")
    np.testing.assert_array_equal(opened(path)["tas"][...], VALUES)


def test_neither_file_nor_address_is_a_missing_fragment(pair: Path) -> None:
    tas = opened(index(pair, [["a.nc"], [""]], [["tas"], [""]]))["tas"]
    np.testing.assert_array_equal(tas[...], np.concatenate([VALUES[:2], np.full((3, 4), np.nan)]))
    assert tas.partitions[1].data is None
    np.testing.assert_array_equal(opened(index(pair, [["a.nc"], [""]], [["tas"], [""]], data="location: loc"))["tas"], np.nan)


def test_a_file_without_an_address(pair: Path) -> None:
    with pytest.raises(aa.IndexFileError, match=r"fragment \(1, 0\) in 'b.nc' has no variable"):
        opened(index(pair, [["a.nc"], ["b.nc"]], [["tas"], [""]]))


@pytest.mark.parametrize(
    ("files", "chosen"),
    [
        ([[["a.nc", "gone.nc"]], [["gone.nc", "b.nc"]]], ("a.nc", "b.nc")),
        ([[["gone.nc", "lost.nc"]], [["b.nc", ""]]], ("gone.nc", "b.nc")),
        ([[["s3://x/a.nc", "a.nc"]], [["b.nc", "a.nc"]]], ("a.nc", "b.nc")),
        ([[["", "a.nc"]], [["", "lost.nc"]]], ("a.nc", "lost.nc")),
    ],
)
def test_copies(pair: Path, files: Any, chosen: tuple[str, str]) -> None:
    tas = opened(index(pair, files))["tas"]
    assert tuple(Path(p.data.uri).name for p in tas.partitions) == chosen
    if chosen == ("a.nc", "b.nc"):
        np.testing.assert_array_equal(tas[...], VALUES)


@pytest.mark.parametrize("base", ["{}/", "file://{}/"])
def test_substitutions(pair: Path, base: str) -> None:
    (pair / "deep").mkdir()
    given = {"substitutions": f"${{BASE}}: {base.format(pair)} ${{B}}: b.nc"}
    path = index(pair / "deep", [["${BASE}a.nc"], ["${BASE}${B}"]], fil=given)
    np.testing.assert_array_equal(opened(path)["tas"][...], VALUES)
    with pytest.raises(aa.IndexFileError, match=r"write '\${NAME}: text' pairs"):
        opened(index(pair, [["${BASE}a.nc"], ["b.nc"]], fil={"substitutions": "BASE /x"}))


def test_bare_absolute_paths(pair: Path) -> None:
    (pair / "deep").mkdir()
    path = index(pair / "deep", [[str(pair / "a.nc")], ["../b.nc"]])
    np.testing.assert_array_equal(opened(path)["tas"][...], VALUES)


@pytest.mark.parametrize("data", ["location: loc value: val", "shape: loc value: val"])
def test_values(pair: Path, data: str) -> None:
    more = {"val": (("ft", "fv"), np.array([[1.5], [2.5]], "f4"))}
    tas = opened(index(pair, [["a.nc"], ["b.nc"]], data=data, more=more))["tas"]
    np.testing.assert_array_equal(tas[...], np.repeat([[1.5], [2.5]], [2, 3], 0).repeat(4, 1))


@pytest.mark.parametrize("size", [(), (1,), (1, 1)])
def test_scalar_data(tmp_path: Path, size: tuple[int, ...]) -> None:
    write(tmp_path / "a.nc", {"tas": ((), np.float32(7), {"units": "K"})})
    more = {"one": (("r", "c")[: len(size)], np.ones(size, "i4"))}
    data, attrs = "location: one file: fil address: adr", {"aggregated_dimensions": ""}
    assert opened(index(tmp_path, "a.nc", data=data, attrs=attrs, more=more))["tas"][...] == 7
    assert opened(index(tmp_path, ["a.nc"], data=data, attrs=attrs, more=more))["tas"][...] == 7


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ("file: fil address: adr", "has the terms"),
        ("location: loc Location: loc file: fil address: adr", "has the terms"),
        ("location: loc file: fil address: loc", "give texts of shape"),
        ("location: loc file: lost address: adr", "which does not exist"),
    ],
)
def test_invalid_terms(pair: Path, data: str, words: str) -> None:
    with pytest.raises(aa.IndexFileError, match=says(words, "variable 'tas'")):
        opened(index(pair, [["a.nc"], ["b.nc"]], data=data))
