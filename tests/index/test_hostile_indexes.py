"""Damaged and hostile indexes: one clear error, without much memory."""

import json
import os
import pickle
import random
import shutil
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aggarray as aa
from aggarray.index import end_of_hdf5
from aggarray.index.store import SCHEMA
from aggarray.storage.access import Access
from tests.support.examples import examples
from tests.support.index_files import changed, document, group, put, same_values, save_and_open
from tests.support.netcdf import cube, field, write

#: Memory that a damaged index may take in addition to a valid one.
MEGABYTES = 8 << 20


def seen(path: Path) -> None:
    """Open an index and read everything in it that is not an error."""
    agg = aa.open(path)
    repr(agg)
    for array in agg:
        repr(array)
        for partition in array.partitions:
            repr(partition.data)
        if array.nbytes < MEGABYTES:
            array.read(masked=True)
        else:
            array[(0,) * array.ndim]
        for coordinate in array.coords.values():
            if coordinate.nbytes < MEGABYTES:
                coordinate.read()
    agg._provenance.structures()
    agg._provenance.others()


def refused(path: Path, match: str | None = None) -> None:
    """Assert that an index is an IndexFileError with its path, without much memory."""
    tracemalloc.start()
    try:
        with pytest.raises(aa.IndexFileError, match=match) as caught:
            seen(path)
        assert tracemalloc.get_traced_memory()[1] < MEGABYTES
    finally:
        tracemalloc.stop()
    assert "\n" not in str(caught.value) and str(path) in str(caught.value)


def endured(path: Path) -> None:
    """Assert that an index is valid, or an error of aggarray, without much memory."""
    tracemalloc.start()
    try:
        seen(path)
    except aa.AggarrayError as error:
        assert "\n" not in str(error)
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 2 * MEGABYTES


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an index of small files, arrays in memory, parts, holes, texts and large coordinates; read-only."""
    folder = tmp_path_factory.mktemp("made")
    for t in range(30):
        for y in range(2):
            if (t, y) != (7, 1):
                content = cube([t * 1.0 + (t > 12)], lats=[y * 10.0, y * 10.0 + 5.0], lons=np.arange(3.0))
                content["station"] = (("lon",), np.array(["a", "ü", ""]), {"long_name": "station"})
                content["tas"] = (*content["tas"][:2], {**content["tas"][2], "coordinates": "station"})
                write(folder / f"{t}_{y}.nc", content, {"number": np.int32(t)})
    tas = aa.open(folder)["tas"]
    piece = aa.SubArray.from_array(np.arange(6.0).reshape(2, 3), dimensions=("y", "x"))
    words = aa.SubArray.from_array([f"w{n}" for n in range(40)], dimensions=("n",))
    arrays = (
        tas,
        tas.lazy[::2, [3, 0, 1], ::-1],
        aa.MasterArray.from_subarrays([([(1, 3), (0, 3)], piece)], dimensions=("y", "x"), shape=(4, 3), name="mine"),
        aa.MasterArray.from_subarrays([([(0, 40)], words)], dimensions=("n",), name="words"),
        aa.open(folder / "0_0.nc")["tas"].to_units("degC"),
    )
    whole = aa.open(folder)
    aa.Aggregation(arrays, whole.refusals, whole.skipped, whole.duplicates, whole._provenance).save(folder / "index.idx")
    return folder / "index.idx"


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an index of few files; read-only."""
    folder = tmp_path_factory.mktemp("small")
    for t in range(2):
        write(folder / f"{t}.nc", cube([t], lats=(1.0, 2.0)), {"number": np.int32(t)})
    tas = aa.open(folder)["tas"]
    piece = aa.SubArray.from_array(["a", ""], dimensions=("n",))
    arrays = (
        tas,
        tas.lazy[[1, 0], ::-1],
        aa.MasterArray.from_subarrays([([(1, 3)], piece)], dimensions=("n",), shape=(4,), name="words"),
    )
    replace(aa.open(folder), arrays=arrays).save(folder / "index.idx")
    return folder / "index.idx"


@pytest.fixture
def index(made: Path) -> Iterator[Path]:
    """Return a copy of the index next to the data."""
    copy = made.with_name(f"copy{os.getpid()}.idx")
    shutil.copy(made, copy)
    yield copy
    copy.unlink(missing_ok=True)


def test_the_index_is_valid(index: Path) -> None:
    seen(index)
    endured(index)


# Roots


def test_roots(tmp_path: Path) -> None:
    allowed, other = tmp_path / "allowed", tmp_path / "allowed2"
    write(allowed / "a.nc", cube([0]))
    write(other / "b.nc", cube([1]))
    (allowed / "index.nc").parent.mkdir(exist_ok=True)
    aa.open([allowed / "a.nc"]).save(allowed / "inside.nc")
    aa.open([allowed / "a.nc", other / "b.nc"]).save(allowed / "both.nc")
    for roots in ([allowed], [str(allowed)], [f"{allowed}/"], [tmp_path], [f"{allowed}/../allowed"], ["/"], [other, allowed]):
        assert aa.open(allowed / "inside.nc", roots=roots)["tas"][...].size
    for roots in ([allowed], [other], [f"{tmp_path}/all"], [f"{tmp_path}/nothing"]):
        with pytest.raises(aa.IndexFileError, match=r"refers to .*[ab]\.nc, which is outside the roots.*both\.nc"):
            aa.open(allowed / "both.nc", roots=roots)
    assert aa.open(allowed / "both.nc", roots=[allowed, other])["tas"].shape[0] == 2
    with pytest.raises(aa.IndexFileError, match="outside the roots"):
        aa.open(allowed / "inside.nc", roots=[])
    # Roots apply to the files that the caller names too.
    with pytest.raises(aa.IndexFileError, match=r"outside the roots .*: .*b\.nc"):
        aa.open([allowed / "a.nc", other / "b.nc"], roots=[allowed])
    with pytest.raises(aa.IndexFileError, match=r"outside the roots .*: .*b\.nc"):
        aa.open(allowed / "inside.nc", roots=[allowed]).append(other / "b.nc")
    with pytest.raises(aa.IndexFileError, match="outside the roots"):
        aa.open([allowed / "both.nc", allowed / "a.nc"], roots=[allowed])


@pytest.mark.parametrize("roots", ["", 5, [5], [""], [b"/"], {"a": 5}])
def test_invalid_roots(tmp_path: Path, roots: Any) -> None:
    write(tmp_path / "a.nc", cube([0]))
    aa.open(tmp_path / "a.nc").save(tmp_path / "index.nc")
    with pytest.raises(aa.AggarrayError, match="roots"):
        aa.open(tmp_path / "index.nc", roots=roots)


@pytest.mark.parametrize("how", ["file", "folder", "later", "dots", "encoded", "absolute"])
def test_links_out_of_the_roots(tmp_path: Path, how: str) -> None:
    allowed, secret = tmp_path / "allowed", tmp_path / "secret"
    write(allowed / "deep" / "a.nc", cube([0]))
    write(secret / "a.nc", cube([0]))
    index = allowed / "index.nc"
    aa.open(allowed / "deep" / "a.nc").save(index)
    names = {"dots": "deep/../../secret/a.nc", "encoded": "%2e%2e/secret/a.nc", "absolute": f"file://{secret}/a.nc"}
    if how in names:
        changed(index, lambda d: d.update(files={"is": [names[how]]}))
    elif how == "file":
        (allowed / "deep" / "a.nc").unlink()
        (allowed / "deep" / "a.nc").symlink_to(secret / "a.nc")
    elif how == "folder":
        shutil.rmtree(allowed / "deep")
        (allowed / "deep").symlink_to(secret)
    if how != "later":
        with pytest.raises(aa.IndexFileError, match="outside"):
            aa.open(index, roots=[allowed])["tas"][...]
        return
    # Replaced by a link after the index was opened, and read through derived arrays.
    agg = aa.open(index, roots=[allowed])
    tas = agg["tas"]
    sent = pickle.dumps(tas.lazy[0])
    grown = agg.append(allowed / "deep")
    shutil.rmtree(allowed / "deep")
    (allowed / "deep").symlink_to(secret)
    for array in (tas, tas.lazy[0], tas.to_units("degC"), grown["tas"]):
        with pytest.raises(aa.IndexFileError, match=r"outside the folders.*a\.nc"):
            array[...]
        with pytest.raises(aa.IndexFileError):
            array.read(copy=None)
    with pytest.raises(aa.IndexFileError, match=r"a\.nc"):
        pickle.loads(sent)[...]


def test_a_remote_file_is_never_opened(tmp_path: Path) -> None:
    write(tmp_path / "a.nc", cube([0]))
    index = tmp_path / "index.nc"
    aa.open(tmp_path / "a.nc").save(index)
    changed(index, lambda d: d.update(files={"is": ["https://example.invalid/data/a.nc"]}))
    with pytest.raises(aa.AggarrayError, match=r"https://example\.invalid/data/a\.nc.*relocate"):
        aa.open(index)["tas"][...]
    with pytest.raises(aa.IndexFileError, match="outside the roots"):
        aa.open(index, roots=[tmp_path])
    assert aa.open(index, relocate={"https://example.invalid/data": str(tmp_path)})["tas"].shape == (1, 3, 2)
    assert aa.open(index, roots=["https://example.invalid/data"])["tas"].shape == (1, 3, 2)
    for way in (
        "https://example.invalid/data/../a.nc",
        "https://example.invalid/data/%2e%2e/a.nc",
        "https://example.invalid/data2/a.nc",
    ):
        changed(index, lambda d, way=way: d.update(files={"is": [way]}))
        with pytest.raises(aa.IndexFileError, match="outside the roots"):
            aa.open(index, roots=["https://example.invalid/data"])


# Relocation


@pytest.mark.parametrize(
    ("written", "moves", "found"),
    [
        ("a.nc", {}, "{f}/a.nc"),
        ("a.nc", {"": "b"}, "{f}/b/a.nc"),
        ("a.nc", {"a": "b"}, "{f}/a.nc"),
        ("a.nc", {"a.nc": "b.nc"}, "{f}/b.nc"),
        ("old/a.nc", {"old": "new"}, "{f}/new/a.nc"),
        ("old/a.nc", {"old/": "new/"}, "{f}/new/a.nc"),
        ("old/a.nc", {"old": "/x y/100%"}, "/x y/100%/a.nc"),
        ("older/a.nc", {"old": "new"}, "{f}/older/a.nc"),
        ("old/deep/a.nc", {"old": "short", "old/deep": "long"}, "{f}/long/a.nc"),
        ("old/deep/a.nc", {"old/deep": "long", "old": "short"}, "{f}/long/a.nc"),
        ("file:///old/a.nc", {"/old": "/new"}, "/new/a.nc"),
        ("file:///old/a.nc", {"file:///old": "/new"}, "/new/a.nc"),
        ("file:///old/a.nc", {"file:///old": "file:///new"}, "/new/a.nc"),
        ("file:///a%20b/c%20d.nc", {"/a b": "/new"}, "/new/c d.nc"),
        ("file:///a%20b/c%20d.nc", {"file:///a%20b": "/n w"}, "/n w/c d.nc"),
        ("../old/a.nc", {"..": "/new"}, "/new/old/a.nc"),
        ("../old/a.nc", {"../old": "here"}, "{f}/here/a.nc"),
        ("https://x.org/d/a.nc", {"https://x.org": "/mirror"}, "/mirror/d/a.nc"),
        ("https://x.org/d/a.nc", {"https://x.org/d": "https://y.org/e"}, "https://y.org/e/a.nc"),
        ("s3://bucket/a.nc", {"s3://bucket": "there"}, "{f}/there/a.nc"),
        ("a/b.nc", {"a": "b", "b": "c"}, "{f}/b/b.nc"),
    ],
)
def test_relocation(tmp_path: Path, written: str, moves: dict[str, str], found: str) -> None:
    write(tmp_path / "a.nc", cube([0]))
    index = tmp_path / "index.nc"
    aa.open(tmp_path / "a.nc").save(index)
    changed(index, lambda d: d.update(files={"is": [written]}))
    [partition] = aa.open(index, relocate=moves)["tas"].partitions
    assert partition.data is not None and partition.data.uri == found.format(f=tmp_path)
    assert aa.open(index, relocate=moves)._provenance.structures()[0].uri == found.format(f=tmp_path)


def test_relocated_data_are_read_and_pickled(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    write(old / "run 1" / "a.nc", cube([0]))
    write(old / "run 2" / "b.nc", cube([1]))
    aa.open(old).save(tmp_path / "index.nc", relative=False)
    os.rename(old, new)
    agg = aa.open(tmp_path / "index.nc", relocate={str(old): str(new)}, roots=[new])
    np.testing.assert_array_equal(agg["tas"][...], field([0, 1], (10, 20, 30), (0, 5)))
    same_values(pickle.loads(pickle.dumps(agg["tas"])), agg["tas"])
    # After a save, the index refers to the new paths.
    same_values(save_and_open(agg, tmp_path / "index.nc", relative=False)["tas"], agg["tas"])
    with pytest.raises(aa.IndexFileError, match="outside the roots"):
        aa.open(tmp_path / "index.nc", relocate={str(new): "/etc"}, roots=[new])


@pytest.mark.parametrize("relocate", [5, "a", [("a", "b")], {5: "a"}, {"a": None}])
def test_invalid_relocations(tmp_path: Path, relocate: Any) -> None:
    write(tmp_path / "a.nc", cube([0]))
    aa.open(tmp_path / "a.nc").save(tmp_path / "index.nc")
    with pytest.raises(aa.AggregationError, match="relocate"):
        aa.open(tmp_path / "index.nc", relocate=relocate)


# Contradictions


def array(position: int) -> Callable[[Any], Any]:
    return lambda d: d["arrays"][position]["matrix"]


def at(d: Any, *keys: Any) -> Any:
    for key in keys:
        d = d[key]
    return d


LIES: dict[str, Callable[[Any], Any]] = {
    "huge edges": lambda d: at(d, "arrays", 0, "matrix", "edges").__setitem__(0, {"start": 0, "step": 1, "count": 1 << 40}),
    "endless edges": lambda d: at(d, "arrays", 0, "matrix", "edges").__setitem__(0, {"start": 0, "step": 1, "count": 1 << 90}),
    "huge refs": lambda d: at(d, "arrays", 0, "matrix").update(refs={"start": 0, "step": 0, "count": 1 << 33}),
    "huge sizes": lambda d: at(d, "arrays", 2, "matrix").update(edges=[{"is": [0, 1 << 62]}, {"is": [0, 1 << 62]}]),
    "negative count": lambda d: at(d, "arrays", 0, "matrix").update(refs={"at": 0, "count": -1}),
    "negative place": lambda d: at(d, "arrays", 0, "matrix").update(refs={"at": -5, "count": 60}),
    "place beyond": lambda d: at(d, "arrays", 0, "matrix").update(refs={"at": 1 << 60, "count": 60}),
    "no count": lambda d: at(d, "arrays", 0, "matrix").update(refs={"at": 0, "count": 1.5}),
    "a count that is true": lambda d: at(d, "arrays", 0, "matrix").update(refs={"at": 0, "count": True}),
    "text in a column": lambda d: at(d, "arrays", 0, "matrix").update(refs={"is": ["a"] * 60}),
    "floats in a column": lambda d: at(d, "arrays", 2, "matrix").update(refs={"is": [0.5, 0, 0]}),
    "large numbers in a column": lambda d: at(d, "arrays", 2, "matrix").update(refs={"is": [1 << 80]}),
    "numbers that wrap": lambda d: at(d, "arrays", 2, "matrix").update(refs={"is": [1 << 32, 1 << 32, 1 << 32]}),
    "lists in a column": lambda d: at(d, "arrays", 2, "matrix").update(refs={"is": [[0]]}),
    "no column": lambda d: at(d, "arrays", 2, "matrix").update(refs=5),
    "no edges": lambda d: at(d, "arrays", 2, "matrix").update(edges=[]),
    "edges of nothing": lambda d: at(d, "arrays", 2, "matrix").update(edges=[{"is": []}, {"is": []}]),
    "edges that fall": lambda d: at(d, "arrays", 2, "matrix").update(edges=[{"is": [0, 3, 1, 4]}, {"is": [0, 3]}]),
    "edges from one": lambda d: at(d, "arrays", 2, "matrix").update(edges=[{"is": [1, 2, 3, 4]}, {"is": [0, 3]}]),
    "edges below zero": lambda d: at(d, "arrays", 2, "matrix").update(edges=[{"is": [0, -1]}, {"is": [0, 3]}]),
    "more than a piece": lambda d: at(d, "arrays", 2, "matrix").update(edges=[{"is": [0, 1, 30, 31]}, {"is": [0, 3]}]),
    "too few refs": lambda d: at(d, "arrays", 2, "matrix").update(refs={"is": [0]}),
    "refs beyond": lambda d: at(d, "arrays", 2, "matrix").update(refs={"is": [5, 5, 5]}),
    "refs below": lambda d: at(d, "arrays", 2, "matrix").update(refs={"is": [-2, 0, -1]}),
    "template beyond": lambda d: at(d, "arrays", 2, "matrix").update(template={"is": [99]}),
    "template below": lambda d: at(d, "arrays", 2, "matrix").update(template={"is": [-1]}),
    "file beyond": lambda d: at(d, "arrays", 0, "matrix").update(file={"start": 10**6, "step": 0, "count": 59}),
    "file below": lambda d: at(d, "arrays", 0, "matrix").update(file={"start": -2, "step": 0, "count": 59}),
    "variable beyond": lambda d: at(d, "arrays", 0, "matrix").update(variable={"start": 7, "step": 0, "count": 59}),
    "memory beyond": lambda d: at(d, "arrays", 2, "matrix").update(variable={"is": [7]}),
    "memory missing": lambda d: at(d, "arrays", 2, "matrix").pop("memory"),
    "steps without picks": lambda d: at(d, "arrays", 2, "matrix").update(steps={"y": {"is": [-1, -1, -1]}}),
    "starts below": lambda d: at(d, "arrays", 2, "matrix").update(starts={"y": {"is": [-1, -1, -1]}}),
    "starts beyond": lambda d: at(d, "arrays", 2, "matrix").update(starts={"y": {"is": [0, 9, 0]}}),
    "starts of nothing": lambda d: at(d, "arrays", 2, "matrix").update(starts={"y": {"is": [0]}}),
    "starts that overflow": lambda d: at(d, "arrays", 2, "matrix").update(starts={"y": {"is": [(1 << 63) - 1] * 3}}),
    "steps that overflow": lambda d: at(d, "arrays", 2, "matrix").update(steps={"y": {"is": [(1 << 63) - 1] * 3}}),
    "picks beyond": lambda d: at(d, "arrays", 2, "matrix").update(steps={"y": {"is": [0] * 3}}, picks=[{"is": [0, 50]}]),
    "picks below": lambda d: at(d, "arrays", 2, "matrix").update(steps={"y": {"is": [0] * 3}}, picks=[{"is": [-3, 0]}]),
    "too few picks": lambda d: at(d, "arrays", 2, "matrix").update(steps={"y": {"is": [0] * 3}}, picks=[{"is": [0]}]),
    "dimensions twice": lambda d: at(d, "arrays", 2, "matrix").update(dimensions=["y", "y"]),
    "too few dimensions": lambda d: at(d, "arrays", 2, "matrix").update(dimensions=["y"]),
    "no dimensions": lambda d: at(d, "arrays", 2, "matrix").update(dimensions=None),
    "directions missing": lambda d: at(d, "arrays", 2, "matrix").update(directions=[]),
    "objects": lambda d: at(d, "arrays", 2).update(dtype="O"),
    "records": lambda d: at(d, "arrays", 2).update(dtype="i4,O"),
    "without a dtype": lambda d: at(d, "arrays", 2).update(dtype="nonsense"),
    "dtype of a list": lambda d: at(d, "arrays", 2).update(dtype=[["a", "O"]]),
    "a long dtype": lambda d: at(d, "arrays", 2).update(dtype="V2000000000"),
    "name of a number": lambda d: at(d, "arrays", 2).update(name=5),
    "units of a number": lambda d: at(d, "arrays", 2).update(units=5),
    "calendar of a number": lambda d: at(d, "arrays", 2).update(calendar=[]),
    "a fill that is none": lambda d: at(d, "arrays", 2).update(fill={"O": [1]}),
    "a fill of text": lambda d: at(d, "arrays", 2).update(fill="text"),
    "a fill that is large": lambda d: at(d, "arrays", 2).update(fill={"<f8": [[1.0] * 5] * 5}),
    "attributes beyond": lambda d: at(d, "arrays", 2).update(attrs=1000),
    "attributes that are none": lambda d: d.update(attributes=[5] * 50),
    "coords that are none": lambda d: at(d, "arrays", 2).update(coords=[1]),
    "memory of another shape": lambda d: at(d, "arrays", 2, "matrix", "memory", 0).update(shape=[3, 2]),
    "memory that is huge": lambda d: at(d, "arrays", 2, "matrix", "memory", 0).update(shape=[1 << 20, 1 << 20]),
    "memory that overflows": lambda d: at(d, "arrays", 2, "matrix", "memory", 0).update(shape=[1 << 40, 1 << 40, 1 << 40]),
    "memory below": lambda d: at(d, "arrays", 2, "matrix", "memory", 0).update(shape=[-2, -3]),
    "memory of objects": lambda d: at(d, "arrays", 2, "matrix", "memory", 0).update(dtype="O"),
    "memory of pointers": lambda d: at(d, "arrays", 2, "matrix", "memory", 0).update(dtype="O8"),
    "memory of text": lambda d: at(d, "arrays", 2, "matrix", "memory", 0).update(dtype="T"),
    "memory of another dtype": lambda d: at(d, "arrays", 2, "matrix", "memory", 0).update(dtype="<i8"),
    "memory of dates": lambda d: at(d, "arrays", 2, "matrix", "memory", 0).update(dtype="<M8[ns]"),
    "texts below": lambda d: at(d, "arrays", 3, "matrix", "memory", 0).update(texts={"at": 0, "lengths": {"is": [-1] * 40}}),
    "texts beyond": lambda d: at(d, "arrays", 3, "matrix", "memory", 0).update(
        texts={"at": 0, "lengths": {"is": [1 << 50] * 40}}
    ),
    "texts that overflow": lambda d: at(d, "arrays", 3, "matrix", "memory", 0).update(
        texts={"at": 0, "lengths": {"is": [1 << 62] * 40}}
    ),
    "texts of numbers": lambda d: at(d, "arrays", 3, "matrix", "memory", 0).update(texts={"is": [5] * 40}),
    "known of another shape": lambda d: at(d, "arrays", 0, "coords", "time", "known", 0).update(shape=[2]),
    "known of another dtype": lambda d: at(d, "arrays", 0, "coords", "time", "known", 0).update(dtype="<i8"),
    "known that is none": lambda d: at(d, "arrays", 0, "coords", "time").update(known=[None, None]),
    "known mask too short": lambda d: at(d, "arrays", 0, "coords", "time", "known").__setitem__(
        1, {"dtype": "|u1", "shape": [1], "at": 0}
    ),
    "coordinate of another size": lambda d: at(d, "arrays", 0, "coords").update(lat=at(d, "arrays", 4, "coords", "lat")),
    "files that are none": lambda d: d.update(files={"is": [5] * 59}),
    "too few files": lambda d: d.update(files={"is": ["a.nc"]}),
    "too few stamps": lambda d: d.update(stamps=[{"is": [1]}] * 3),
    "stamps of one": lambda d: d.update(stamps=[{"is": [1] * 59}]),
    "named beyond": lambda d: d.update(named={"is": [10**6]}),
    "no details": lambda d: d.update(details=5),
    "rules that are none": lambda d: d["details"].update(rules={"overlap": "nobody"}),
    "rules nobody knows": lambda d: d["details"].update(rules={"evil": 1}),
    "a pattern that hangs": lambda d: d["details"].update(rules={"new_dimension": "a=(("}),
    "refusals that are none": lambda d: d["details"].update(refusals=[1]),
    "skipped beyond": lambda d: d["details"].update(skipped=[[10**6, "a", "b"]]),
    "duplicates that are none": lambda d: d["details"].update(duplicates=[["a", -(10**6), "c"]]),
    "variables of numbers": lambda d: d["details"].update(variables=5),
    "a list": lambda d: [1, 2],
    "nothing": lambda d: {},
    "a number": lambda d: 5,
    "no arrays": lambda d: d.pop("arrays") and None,
    "an array that is none": lambda d: d.update(arrays=[5]),
    "a template that is none": lambda d: d.update(templates=[5] * 9),
    "a template of objects": lambda d: [t["encoding"]["mapping"].append(["stored", "O"]) for t in d["templates"]] and None,
    "a template with more": lambda d: [t.update(evil=1) for t in d["templates"]] and None,
    "a template below": lambda d: [t.update(shape={"tuple": [-1, -1]}) for t in d["templates"]] and None,
    "a template of text": lambda d: [t.update(shape={"tuple": ["a", "b"]}) for t in d["templates"]] and None,
    "a template of fewer": lambda d: [t.update(dimensions={"tuple": ["a"]}) for t in d["templates"]] and None,
    "a template without": lambda d: [t.pop("encoding") for t in d["templates"]] and None,
    "steps that are none": lambda d: [t.update(steps=[[1]]) for t in d["templates"]] and None,
    "steps of units": lambda d: [t.update(steps=[["nonsense units", None, "<f8"]]) for t in d["templates"]] and None,
    "units of templates": lambda d: [t.update(units=["a"]) for t in d["templates"]] and None,
}

#: Unusual content that is valid.
ENDURED = {
    "steps of units",
}


@pytest.mark.parametrize("lie", LIES)
def test_contradictions(index: Path, lie: str) -> None:
    changed(index, LIES[lie])
    (endured if lie in ENDURED else refused)(index)


@pytest.mark.parametrize("lie", ["too large", "too small", "dtype", "rank", "itself"])
def test_a_file_differs_from_the_index(tmp_path: Path, lie: str) -> None:
    """A hostile index, or a file that changed without another size or time."""
    write(tmp_path / "a.nc", cube([0]))
    index = tmp_path / "index.nc"
    aa.open(tmp_path / "a.nc").save(index)

    def change(d: Any) -> None:
        template = d["templates"][d["arrays"][0]["matrix"].get("template", {"is": [0]})["is"][0]]
        matrix = d["arrays"][0]["matrix"]
        if lie == "too large":
            template["shape"] = {"tuple": [1, 5, 2]}
            matrix["edges"][1] = {"is": [0, 5]}
            d["arrays"][0]["coords"] = {}
        elif lie == "too small":
            template["shape"] = {"tuple": [1, 3, 1]}
            matrix["edges"][2] = {"is": [0, 1]}
            d["arrays"][0]["coords"] = {}
        elif lie == "dtype":
            mapping = dict(template["encoding"]["mapping"])
            mapping.update(stored="<i4", viewed="<i4", dtype="<i4")
            template["encoding"] = {"mapping": [[k, v] for k, v in mapping.items()]}
        elif lie == "rank":
            template.update(shape={"tuple": [1, 3]}, dimensions={"tuple": ["time", "lat"]}, directions={"tuple": [True, True]})
            matrix["edges"][2] = {"is": [0, 1]}
            d["arrays"][0]["coords"] = {}
        else:
            d.update(files={"is": ["index.nc"]}, stamps=[{"is": [-1]}] * 3)

    changed(index, change)
    array = aa.open(index)["tas"]
    if lie == "too small":
        # A part of a file is read as that part.
        assert array.shape == (1, 3, 1)
    else:
        with pytest.raises(aa.AggarrayError, match=r"(a|index)\.nc"):
            array[...]
    seen_or_told(index)


def seen_or_told(path: Path) -> None:
    with suppress(aa.AggarrayError):
        seen(path)


@pytest.mark.parametrize("depth", [500, 900, 5_000, 200_000])
@pytest.mark.parametrize("where", ["document", "attribute", "coords", "records"])
def test_deep_nesting(index: Path, depth: int, where: str) -> None:
    if where == "document":
        put(index, "document", "[" * depth + "]" * depth)
    elif where == "records":
        put(index, "records", '{"pairs":' + "[" * depth + "]" * depth + "}")
    else:
        text = json.dumps(document(index))
        if where == "attribute":
            deep = '{"list":[' * depth + "]}" * depth
            text = text.replace('"attributes": [', '"attributes": [[["deep", ' + deep + "]], ", 1)
        else:
            first = json.dumps(document(index)["arrays"][2])
            deep = first.replace('"coords": {}', '"coords": {"a": ' * 1 + "@" + "}")
            head, tail = deep.split("@")
            text = text.replace(first, head * depth + first + tail * depth, 1) if depth < 1000 else "[" * depth
        put(index, "document", text)
    endured(index)


@pytest.mark.parametrize("name", ["document", "records", "integers", "texts", "values"])
@pytest.mark.parametrize("how", ["gone", "huge", "dtype", "two", "scalar", "group", "external", "virtual", "link", "empty"])
def test_variables_of_the_group(index: Path, tmp_path: Path, name: str, how: str) -> None:
    (tmp_path / "secret").write_bytes(b"secret" * 1000)
    secret = [(str(tmp_path / "secret"), 0, h5py.h5f.UNLIMITED)]
    with group(index) as own:
        old = own[name][...]
        del own[name]
        if how == "huge":
            own.create_dataset(name, shape=(1 << 40,), dtype=old.dtype, chunks=(1 << 20,), compression="gzip")
        elif how == "dtype":
            own.create_dataset(name, data=old.astype("f8"))
        elif how == "two":
            own.create_dataset(name, data=old[:, np.newaxis])
        elif how == "scalar":
            own.create_dataset(name, data=old[0])
        elif how == "group":
            own.create_group(name)
        elif how == "external":
            own.create_dataset(name, shape=(len(old),), dtype=old.dtype, external=secret)
        elif how == "virtual":
            layout = h5py.VirtualLayout(shape=(len(old),), dtype=old.dtype)
            own.create_virtual_dataset(name, layout)
        elif how == "link":
            shutil.copy(index.with_name("index.idx"), tmp_path / "other.idx")
            own[name] = h5py.ExternalLink(str(tmp_path / "other.idx"), f"/aggarray/{name}")
        elif how == "empty":
            own.create_dataset(name, data=old[:0])
    # Only the requested range of a huge variable is read.
    (endured if how == "huge" else refused)(index)


def test_the_group_in_another_file(index: Path, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "link.idx", "w") as file:
        file["aggarray"] = h5py.ExternalLink(str(index), "/aggarray")
    with pytest.raises(aa.AggarrayError):
        aa.open(tmp_path / "link.idx")


@pytest.mark.parametrize("attribute", ["schema", "generation"])
@pytest.mark.parametrize("value", [99, -1, "text", 1.5, np.arange(3), None, np.nan], ids=str)
def test_versions(index: Path, attribute: str, value: Any) -> None:
    with group(index) as own:
        del own.attrs[attribute]
        if value is not None:
            own.attrs[attribute] = value
    if attribute == "schema" and isinstance(value, int) and value > 1:
        refused(index, f"schema 99; this aggarray reads schemas up to {SCHEMA}.*; install a newer one")
    endured(index)


@pytest.mark.parametrize("rest", [0, 1, 8, 100, 1000, 5000, 0.5, 0.9, -1])
def test_truncated(index: Path, rest: float) -> None:
    data = index.read_bytes()
    data = data[: end_of_hdf5(data)]  # an index is complete without its directory
    cut = int(len(data) * rest) if isinstance(rest, float) else rest
    index.write_bytes(data[:cut])
    with pytest.raises(aa.AggarrayError):
        seen(index)


def _own_bytes(path: Path) -> list[int]:
    """Return the byte ranges of the variables of the group.

    HDF5 itself may crash on damage elsewhere.
    """
    result: list[int] = []
    with h5py.File(path) as file:
        for dataset in file["aggarray"].values():
            for number in range(dataset.id.get_num_chunks()):
                chunk = dataset.id.get_chunk_info(number)
                result += range(chunk.byte_offset, chunk.byte_offset + chunk.size)
    return result


@given(st.integers(0, 2**32), st.integers(1, 40))
@settings(max_examples=examples(60))
def test_any_bits_flipped(made: Path, seed: int, count: int) -> None:
    """Flipped bits of stored items: they read, or raise an error of aggarray."""
    chance = random.Random(seed)
    places = _own_bytes(made)
    data = bytearray(made.read_bytes())
    for _ in range(count):
        data[chance.choice(places)] ^= 1 << chance.randrange(8)
    copy = made.with_name("flipped.idx")
    copy.write_bytes(data)
    with suppress(aa.AggarrayError):
        aa.open(copy)._provenance.structures()


@given(st.integers(0, 2**32), st.sampled_from(["document", "records"]))
@settings(max_examples=examples(50))
def test_any_part_of_a_document_replaced(small: Path, seed: int, name: str) -> None:
    """The replacement is any JSON value."""
    chance = random.Random(seed)
    copy = small.with_name("replaced.idx")
    shutil.copy(small, copy)
    result = document(copy, name)
    odd: list[Any] = [None, True, -1, 0, 1, 7, 1 << 31, 1 << 40, 1 << 70, 0.5, "", "x y", "<i4", "O"]
    odd += [[], [0], [-1], {}, {"is": [3]}, [[]], {"a": 1}]
    for _ in range(chance.randint(1, 3)):
        place = result
        while True:
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))
            if not keys:
                break
            key = chance.choice(keys)
            if isinstance(place[key], dict | list) and place[key] and chance.random() < 0.9:
                place = place[key]
                continue
            if chance.random() < 0.2:
                del place[key]
            else:
                place[key] = deepcopy(chance.choice(odd))
            break
    put(copy, name, result)
    endured(copy)


@pytest.mark.parametrize(
    ("field_", "value", "match"),
    [
        ("scale_factor", 2, "without a dtype"),
        ("scale_factor", {"<f8": 0.5}, "dtype of the values"),
        ("add_offset", {"<f8": 1.0}, "dtype of the values"),
        ("valid", None, "not a pair"),
        ("valid_unpacked", None, "not a pair"),
    ],
)
def test_inconsistent_packing(tmp_path: Path, field_: str, value: Any, match: str) -> None:
    values = np.arange(4, dtype="i2")
    for number in range(2):
        packed = {"scale_factor": np.float32(0.5), "units": "K"}
        write(tmp_path / f"{number}.nc", {"time": (("time",), [float(number)]), "v": (("time", "x"), values[None], packed)})
    agg = save_and_open(aa.open(tmp_path / "*.nc"), tmp_path / "i.nca")
    assert agg["v"].dtype == np.dtype("f4")

    def change(found: Any) -> None:
        for template in found["templates"]:
            for pair in template["encoding"]["mapping"]:
                if pair[0] == field_ and ["scale_factor", {"<f4": 0.5}] in template["encoding"]["mapping"]:
                    pair[1] = value

    changed(tmp_path / "i.nca", change)
    refused(tmp_path / "i.nca", match)


@pytest.mark.parametrize("fill", [None, "0", {"list": [1]}, {"<f8": [0.0, 1.0]}])
def test_invalid_fill_values(tmp_path: Path, fill: Any) -> None:
    write(tmp_path / "a.nc", cube([0]))
    agg = save_and_open(aa.open(tmp_path / "a.nc"), tmp_path / "i.nca")
    assert np.isnan(agg["tas"].fill_value)

    def change(found: Any) -> None:
        found["arrays"][0]["fill"] = fill

    changed(tmp_path / "i.nca", change)
    refused(tmp_path / "i.nca")


@pytest.mark.parametrize("name", ["a\0b.nc", "\ud800.nc"])
def test_file_names_of_folders_are_outside_roots(tmp_path: Path, name: str) -> None:
    with pytest.raises(aa.IndexFileError, match="outside"):
        Access(roots=(str(tmp_path),)).check(str(tmp_path / name))
