"""Fixes change what they say and nothing else.

Each kind is tested on pairs of archives: one is right, in the other its files have a fault. With the fix, the faulty archive
gives what the right one gives: values, coordinates, attributes, names.
"""

import hashlib
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import aggarray as aa
from tests.support.netcdf import cube, write

Variables = dict[str, tuple[Any, ...]]
Files = Sequence[tuple[Variables, Mapping[str, Any]]]


def grid(first: int, **changes: Any) -> Variables:
    """Return variables of a file of four days, with bounds and references of every kind."""
    times = np.arange(first, first + 4, dtype="f8")
    made = cube(times)
    made["time"] = made["time"][0], times, {**made["time"][2], "bounds": "time_bnds", "calendar": "noleap"}
    made["time_bnds"] = ("time", "bnds"), np.stack([times - 0.5, times + 0.5], -1)
    made["lat"] = ("lat",), made["lat"][1][::-1].copy(), made["lat"][2]
    made["area"] = ("lat", "lon"), np.full((3, 2), 4.0), {"units": "m2", "standard_name": "cell_area"}
    made["flag"] = ("time",), np.arange(4, dtype="i4") + first, {"units": "1", "long_name": "a flag"}
    attrs = {
        **made["tas"][2],
        "coordinates": "height",
        "cell_measures": "area: area",
        "cell_methods": "time: mean (of time: 6)",
    }
    made["tas"] = *made["tas"][:2], {**attrs, "ancillary_variables": "flag", "long_name": "temperature"}
    made["height"] = (), np.float64(2), {"units": "m", "standard_name": "height"}
    return {name: item for name, item in {**made, **changes}.items() if item is not None}


def with_attrs(variables: Variables, name: str, **attrs: Any) -> Variables:
    """Return variables with attributes of one changed, or deleted (None)."""
    dimensions, values, *rest = variables[name]
    changed = {**(rest[0] if rest else {}), **attrs}
    return {**variables, name: (dimensions, values, {n: v for n, v in changed.items() if v is not None})}


def renamed(variables: Variables, names: Mapping[str, str]) -> Variables:
    """Return variables under other names of variables and dimensions, references included."""
    made: Variables = {}
    for name, (dimensions, values, *rest) in variables.items():
        attrs = dict(rest[0]) if rest else {}
        for key in ("bounds", "coordinates", "ancillary_variables"):
            if key in attrs:
                attrs[key] = " ".join(names.get(word, word) for word in attrs[key].split())
        if "cell_measures" in attrs and "area" in names:
            attrs["cell_measures"] = f"area: {names['area']}"
        if "cell_methods" in attrs and "time" in names:
            attrs["cell_methods"] = attrs["cell_methods"].replace("time: mean", f"{names['time']}: mean")
        made[names.get(name, name)] = tuple(names.get(d, d) for d in dimensions), values, attrs
    return made


FILE = {"title": "days", "source_id": "M"}
RIGHT: Files = [(grid(0), FILE), (grid(4), FILE), (grid(8), FILE)]


def all_files(change: Callable[[Variables], Variables]) -> Files:
    return [(change(variables), attrs) for variables, attrs in RIGHT]


def _shifted(variables: Variables, by: float) -> Variables:
    made = dict(variables)
    for name in ("time", "time_bnds"):
        dimensions, values, *rest = variables[name]
        made[name] = dimensions, values + by, *rest
    return made


def _scaled(variables: Variables) -> Variables:
    dimensions, values, attrs = variables["tas"]
    return {**variables, "tas": (dimensions, (values * np.float32(4)).astype("f4"), attrs)}


def _with_own_bounds_units(variables: Variables) -> Variables:
    return with_attrs(variables, "time_bnds", units="days since 2000-01-01", calendar="noleap")


SINCE_1850 = {"units": "days since 1850-01-01", "calendar": "noleap"}
SWAP = {"lat": "lon", "lon": "lat"}
#: The faulty files, the fixes, and the right files if they are others than `RIGHT`.
KINDS: dict[str, tuple[Any, ...]] = {
    "set": (
        all_files(lambda v: with_attrs(v, "tas", standard_name=None)),
        [aa.Fix(variable="tas", set={"standard_name": "air_temperature"})],
    ),
    "set of the file": ([(v, {"title": "weeks", "source_id": "M"}) for v, _ in RIGHT], [aa.Fix(set={"title": "days"})]),
    "units": (all_files(lambda v: with_attrs(v, "tas", units="degC")), [aa.Fix(variable="tas", set={"units": "K"})]),
    "calendar": (
        all_files(lambda v: with_attrs(v, "time", calendar="360_day")),
        [aa.Fix(variable="time", set={"calendar": "noleap"})],
    ),
    "units of time": (
        all_files(lambda v: with_attrs(v, "time", units="days since 1850-01-01")),
        [aa.Fix(variable="time", set={"units": "days since 2000-01-01"})],
    ),
    "units of time and of its bounds": (
        all_files(lambda v: with_attrs(with_attrs(v, "time", **SINCE_1850), "time_bnds", **SINCE_1850)),
        [aa.Fix(variable="time", set={"units": "days since 2000-01-01"})],
        all_files(_with_own_bounds_units),
    ),
    "fill value": (
        all_files(lambda v: v),
        [aa.Fix(variable="tas", set={"_FillValue": 10.0})],
        all_files(lambda v: with_attrs(v, "tas", _FillValue=np.float32(10))),
    ),
    "missing values": (
        all_files(lambda v: v),
        [aa.Fix(variable="tas", set={"missing_value": [10, 110.05]})],
        all_files(lambda v: with_attrs(v, "tas", missing_value=np.array([10, 110.05], "f4"))),
    ),
    "scale": (all_files(_scaled), [aa.Fix(variable="tas", set={"scale_factor": 0.25})]),
    "delete": (all_files(lambda v: with_attrs(v, "tas", comment="wrong")), [aa.Fix(variable="tas", delete="comment")]),
    "delete of the file": ([(v, {**a, "comment": "x"}) for v, a in RIGHT], [aa.Fix(delete=["comment"])]),
    "rename an attribute": (
        all_files(lambda v: with_attrs(v, "tas", long_name=None, long_nme="temperature")),
        [aa.Fix(variable="tas", rename={"long_nme": "long_name"})],
    ),
    "rename an attribute of the file": (
        [(v, {"source_id": "M", "tittle": "days"}) for v, _ in RIGHT],
        [aa.Fix(rename={"tittle": "title"})],
    ),
    "rename a variable": (all_files(lambda v: renamed(v, {"tas": "t2m"})), [aa.Fix(variable="t2m", rename="tas")]),
    "rename an auxiliary variable": (
        all_files(lambda v: renamed(v, {"area": "cells", "height": "h", "flag": "f"})),
        [aa.Fix(rename={"cells": "area", "h": "height", "f": "flag"})],
    ),
    "rename coordinates": (
        all_files(lambda v: renamed(v, {"time": "t", "lat": "latitude", "time_bnds": "t_b"})),
        [aa.Fix(variable="t", rename="time"), aa.Fix(rename={"latitude": "lat", "t_b": "time_bnds"})],
    ),
    "rename a dimension": (all_files(lambda v: renamed(v, {"bnds": "nv"})), [aa.Fix(variable="nv", rename="bnds")]),
    "swap dimensions": (all_files(lambda v: renamed(v, SWAP)), [aa.Fix(rename=SWAP)]),
    "drop": (
        all_files(lambda v: {**v, "extra": (("time", "lat"), np.zeros((4, 3)), {"units": "1"})}),
        [aa.Fix(variable="extra", drop=True)],
    ),
    "shift": (all_files(lambda v: _shifted(v, -1.5)), [aa.Fix(shift_time=(36, "hours"))]),
    "shift a variable": (all_files(lambda v: _shifted(v, 31)), [aa.Fix(variable="time", shift_time=(-31, "days"))]),
    "shift with units of the bounds": (
        all_files(lambda v: _with_own_bounds_units(_shifted(v, 0.5))),
        [aa.Fix(shift_time=(-720, "minutes"))],
        all_files(_with_own_bounds_units),
    ),
    "shift one file": ([RIGHT[0], (_shifted(grid(4), 2), FILE), RIGHT[2]], [aa.Fix(where="f_1.nc", shift_time=(-2, "days"))]),
    "files of an attribute": (
        [RIGHT[0], (_shifted(grid(4), 2), {**FILE, "run": 2}), RIGHT[2]],
        [aa.Fix(where={"run": 2}, shift_time=(-2, "days")), aa.Fix(where={"run": [1, 2]}, delete="run")],
    ),
    "two conditions": (
        [(_shifted(grid(0), 5), {**FILE, "source_id": "N"}), RIGHT[1], RIGHT[2]],
        [
            aa.Fix(where=["f_[01].nc", {"source_id": "?"}, {"source_id": "N*"}], shift_time=(-5, "days")),
            aa.Fix(set={"source_id": "M"}),
        ],
    ),
    "several": (
        all_files(lambda v: with_attrs(renamed(_shifted(v, 1), {"tas": "t2m", "time": "t"}), "t2m", units="degC", comment="x")),
        [
            aa.Fix(variable="t2m", set={"units": "K"}, delete="comment", rename="tas"),
            aa.Fix(rename={"t": "time"}),
            aa.Fix(shift_time=(-1, "day")),
        ],
    ),
}  # fmt: skip


def write_all(folder: Path, files: Files, **options: Any) -> Path:
    for number, (variables, attrs) in enumerate(files):
        write(folder / f"f_{number}.nc", variables, attrs, **options)
    return folder


@pytest.fixture(params=list(KINDS), scope="module")
def kind(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[aa.Fix], Path]:
    """Return a folder of faulty files, the fixes, and a folder of right files."""
    faulty, fixes, *right = KINDS[request.param]
    base = tmp_path_factory.mktemp("kind")
    return write_all(base / "faulty", faulty), fixes, write_all(base / "right", right[0] if right else RIGHT)


def same(agg: aa.Aggregation, expected: aa.Aggregation) -> None:
    """Assert that aggregations have the same arrays, coordinates and attributes."""
    assert (agg.refusals, agg.skipped) == ((), ())
    assert sorted(agg.names) == sorted(expected.names)
    for right in expected:
        same_array(agg[right.name or ""], right)


def same_array(own: aa.MasterArray, right: aa.MasterArray) -> None:
    assert (own.name, own.dimensions, own.shape, own.dtype) == (right.name, right.dimensions, right.shape, right.dtype)
    assert (own.units, own.calendar, own.directions) == (right.units, right.calendar, right.directions)
    for mine, theirs in ((own.attrs, right.attrs), (own.file_attrs, right.file_attrs)):
        assert {n: repr(v) for n, v in mine.items()} == {n: repr(v) for n, v in theirs.items()}
    np.testing.assert_array_equal(own[...], right[...])
    np.testing.assert_array_equal(own.read(masked=True).mask, right.read(masked=True).mask)
    assert set(own.coords) == set(right.coords)
    for name, coordinate in right.coords.items():
        same_array(own.coords[name], coordinate)


def test_the_right_archive_is_what_xarray_reads(tmp_path: Path) -> None:
    agg = aa.open(write_all(tmp_path, RIGHT))
    datasets = [xr.open_dataset(path, decode_times=False) for path in sorted(tmp_path.iterdir())]
    np.testing.assert_array_equal(agg["tas"][...], np.concatenate([dataset["tas"].values for dataset in datasets]))
    assert set(agg["tas"].coords) == {"time", "time_bnds", "lat", "lon", "area", "height"}


def test_each_kind_equals_the_right_archive(kind: tuple[Path, list[aa.Fix], Path]) -> None:
    faulty, fixes, right = kind
    before = {path: hashlib.sha256(path.read_bytes()).digest() for path in faulty.iterdir()}
    expected = aa.open(right)
    with pytest.raises(AssertionError):
        same(aa.open(faulty), expected)
    agg = aa.open(faulty, fixes=fixes)
    same(agg, expected)
    assert agg.fixes == tuple(fixes) and agg.check().ok
    assert {path: hashlib.sha256(path.read_bytes()).digest() for path in faulty.iterdir()} == before


def test_reads_that_scanned_nothing_are_fixed_too(kind: tuple[Path, list[aa.Fix], Path]) -> None:
    """Values of coordinates come from the files if they are not known."""
    faulty, fixes, right = kind
    expected = aa.open(right)["tas"].coords
    for name, coordinate in aa.open(faulty, fixes=fixes)["tas"].coords.items():
        unread = replace(coordinate, _known=None)
        np.testing.assert_array_equal(unread[...], expected[name][...])
        if unread.ndim:
            np.testing.assert_array_equal(unread[1:], expected[name][1:])


def test_single_files(kind: tuple[Path, list[aa.Fix], Path]) -> None:
    faulty, fixes, right = kind
    for path in faulty.iterdir():
        same(aa.open(path, fixes=fixes), aa.open(right / path.name))


def test_an_index_keeps_fixes(kind: tuple[Path, list[aa.Fix], Path], tmp_path: Path) -> None:
    faulty, fixes, right = kind
    first, expected = tmp_path / "first", aa.open(right)
    shutil.copytree(faulty, first)
    last = first / "f_2.nc"
    kept = last.rename(tmp_path / "f_2.nc")
    aa.open(first, fixes=fixes).save(tmp_path / "first" / "all.nca")
    shutil.copytree(first, tmp_path / "second")  # files and index elsewhere
    shutil.rmtree(first)
    shutil.copy(kept, tmp_path / "second" / last.name)
    agg = aa.open(tmp_path / "second" / "all.nca")
    assert agg.fixes == tuple(fixes)
    same(agg, aa.open(sorted(right.iterdir())[:2]))
    appended = agg.append(tmp_path / "second" / last.name)
    same(appended, expected)
    appended.save(tmp_path / "second" / "all.nca")
    same(aa.open(tmp_path / "second" / "all.nca", rules=aa.Rules(tolerance=1e-6)), expected)
    same(pickle.loads(pickle.dumps(aa.open(tmp_path / "second" / "all.nca"))), expected)
    same(pickle.loads(pickle.dumps(appended)).append(tmp_path / "second" / "f_*.nc"), expected)
    faulty_again = aa.open(tmp_path / "second" / "all.nca", fixes=None)
    assert faulty_again.fixes == ()
    with pytest.raises(AssertionError):
        same(faulty_again, expected)
    same(aa.open(tmp_path / "second" / "all.nca", fixes=[*fixes]), expected)


def test_assumed_files_are_fixed_alike(kind: tuple[Path, list[aa.Fix], Path], tmp_path: Path) -> None:
    faulty, fixes, right = kind
    if "f_1" in repr(fixes) or "run" in repr(fixes) or "?" in repr(fixes):
        pytest.skip("files of one group share the fault")
    for folder, source in ((tmp_path / "faulty", faulty), (tmp_path / "right", right)):
        shutil.copytree(source, folder)
        for number in range(3, 8):  # groups of a few files are scanned completely
            variables = _opened(source / "f_0.nc", 4.0 * number)
            write(folder / f"f_{number}.nc", *variables)
    agg = aa.open(tmp_path / "faulty", fixes=fixes, rules=aa.Rules(trust="assume"))
    assert any(s.assumed is not None for s in agg._provenance.structures())
    expected = aa.open(tmp_path / "right")
    same(agg, expected)
    agg = aa.open(tmp_path / "faulty", fixes=fixes, rules=aa.Rules(trust="assume"))
    agg.save(tmp_path / "all.nca")
    same(aa.open(tmp_path / "all.nca"), expected)
    assert agg.check().ok


def _opened(path: Path, later: float) -> tuple[Variables, Mapping[str, Any]]:
    """Return the contents of a file, with times later by some days."""
    import netCDF4

    made: Variables = {}
    with netCDF4.Dataset(path) as file:
        file.set_auto_maskandscale(False)
        for name, v in file.variables.items():
            attrs = {key: v.getncattr(key) for key in v.ncattrs()}
            values = v[...] + later if "since" in attrs.get("units", "") or name in ("time_bnds", "t_b") else v[...]
            made[name] = v.dimensions, values, attrs
        return made, {key: file.getncattr(key) for key in file.ncattrs()}


@pytest.mark.heavy
def test_other_processes_open_the_same(tmp_path: Path) -> None:
    expected = []
    for number, (faulty, fixes, *_) in enumerate(KINDS.values()):
        agg = aa.open(write_all(tmp_path / f"{number}", faulty), fixes=fixes)
        agg.save(tmp_path / f"{number}.nca")
        expected += [float(agg["tas"][...].sum()), *agg["tas"].coords["time"][...].tolist()]
    code = """if True:
        import sys
        import aggarray as aa
        for path in sys.argv[1:]:
            array = aa.open(path)["tas"]
            print(float(array[...].sum()), *array.coords["time"][...].tolist())
    """
    paths = [str(tmp_path / f"{number}.nca") for number in range(len(KINDS))]
    done = subprocess.run([sys.executable, "-c", code, *paths], capture_output=True, text=True, check=True)
    assert done.stdout.split() == list(map(str, expected))
