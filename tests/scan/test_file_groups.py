"""`Rules(trust="assume")` gives the result of verification, and never a wrong value for a file that differs."""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import aggarray as aa
from aggarray.formats import scan, scan_partially
from aggarray.formats.base import Structure
from aggarray.formats.hdf5 import FORMAT
from aggarray.formats.partial_scan import PartialScan, PartialScanRequest
from aggarray.scan.file_groups import group_files, probes_of
from aggarray.scan.resolution import _descriptions
from tests.support.netcdf import LAT, TAS, TIME, cube, field, write

ASSUME = aa.Rules(trust="assume")
LATS, LONS = np.array([10.0, 20.0, 30.0]), np.array([0.0, 5.0])


@pytest.fixture(autouse=True)
def forget() -> None:
    _descriptions._cache.clear()


def same(a: aa.MasterArray, b: aa.MasterArray, whole: bool = True) -> None:
    """Compare arrays; attributes of coordinates may come from any one file and are not compared."""
    assert (a.name, a.shape, a.dimensions, a.directions, a.dtype) == (b.name, b.shape, b.dimensions, b.directions, b.dtype)
    assert (a.units, a.calendar, str(a.fill_value), a.pmshape) == (b.units, b.calendar, str(b.fill_value), b.pmshape)
    assert repr(dict(a.attrs)) == repr(dict(b.attrs))
    assert not whole or repr(dict(a.file_attrs)) == repr(dict(b.file_attrs))
    np.testing.assert_array_equal(a[...], b[...])
    assert list(a.coords) == list(b.coords)
    for name in a.coords:
        same(a.coords[name], b.coords[name], whole=False)


def compared(source: Any, changes: Any = None, **given: Any) -> aa.Aggregation:
    """Open a source verified and assumed, compare both, and return the assumed one."""
    wishes = changes or {}
    verified = aa.open(source, rules=aa.Rules(**wishes), **given)
    assumed = aa.open(source, rules=aa.Rules(**wishes, trust="assume"), **given)
    assert len(assumed) == len(verified)
    for a, b in zip(assumed, verified, strict=True):
        same(a, b)
    assert assumed.refusals == verified.refusals and assumed.skipped == verified.skipped
    assert assumed.duplicates == verified.duplicates
    return assumed


def assumed_files(agg: aa.Aggregation) -> list[str]:
    return [Path(s.uri).name for s in agg._provenance.structures() if s.assumed is not None]


def bounded(times: Any, down: bool = False, **changes: Any) -> dict[str, Any]:
    """Return variables with bounds of time and latitude and a scalar height; ``down``: time bounds are decreasing."""
    times = np.asarray(times, "f8")
    pairs = np.stack([times - 0.5, times + 0.5], 1)
    lat = np.stack([LATS - 5, LATS + 5], 1)
    result = cube(
        times,
        time=(("time",), times, {**TIME, "bounds": "time_bnds"}),
        time_bnds=(("time", "bnds"), pairs[:, ::-1] if down else pairs),
        lat=(("lat",), LATS, {**LAT, "bounds": "lat_bnds"}),
        lat_bnds=(("lat", "bnds"), lat),
        height=((), 2.0, {"units": "m", "standard_name": "height", "positive": "up"}),
        tas=(("time", "lat", "lon"), field(times, LATS, LONS), {**TAS, "coordinates": "height"}),
    )
    return {**result, **changes}


def series(folder: Path, make: Callable[..., dict[str, Any]] = cube, count: int = 8, **given: Any) -> list[str]:
    """Write files of three steps each."""
    own = lambda n: {"title": "all", "tracking_id": f"id {n}", "source_id": "M"}  # noqa: E731
    return [write(folder / f"tas_{n:02}.nc", make(3 * n + np.arange(3)), own(n), **given) for n in range(count)]


# Groups


def test_paths_of_a_group_differ_only_in_digits() -> None:
    paths = ["/m1/tas_r1_2001.nc", "/m1/pr_r1_2001.nc", "/m2/tas_r10_2002.nc", "/m1/tas_r1_2001-07.nc"]
    assert group_files(paths) == [[0, 2], [1], [3]]
    assert group_files([]) == []


def test_probes_vary_each_number() -> None:
    paths = [f"/r{r}/{y}{m:02}.nc" for r in range(1, 4) for y in (2001, 2002) for m in range(1, 13)]
    assert probes_of(paths, range(len(paths))) == [0, 1, 24, 71]
    paths = [f"/r{r}/{y}/{m:02}.nc" for r in range(1, 4) for y in (2001, 2002) for m in range(1, 13)]
    assert probes_of(paths, range(100, 100 + len(paths))) == [100, 101, 112, 124, 171]
    assert probes_of(paths[:3], [5, 6, 7]) == [5, 6, 7]


# Equality with verification


@pytest.mark.parametrize("kind", ["NETCDF4", "NETCDF4_CLASSIC", "NETCDF3_CLASSIC", "NETCDF3_64BIT_DATA"])
@pytest.mark.parametrize("make", [cube, bounded, lambda t: bounded(t, down=True)])
def test_a_series(tmp_path: Path, kind: str, make: Any) -> None:
    series(tmp_path, make, format=kind, unlimited=("time",))
    agg = compared(tmp_path)
    assert agg["tas"].shape == (24, 3, 2)
    assert assumed_files(agg) == [f"tas_{n:02}.nc" for n in range(2, 7)]


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("consolidated", [False, True])
@pytest.mark.filterwarnings("ignore:Consolidated metadata")
def test_a_series_of_zarr_stores(tmp_path: Path, version: int, consolidated: bool) -> None:
    for n, path in enumerate(series(tmp_path / "nc", bounded)):
        with xr.open_dataset(path, decode_cf=False) as data:
            data.to_zarr(tmp_path / "zarr" / f"{n}.zarr", zarr_format=version, consolidated=consolidated)
    assert len(assumed_files(compared(tmp_path / "zarr"))) == 5


def test_partial_scan_equals_part_of_a_scan(tmp_path: Path) -> None:
    expected = PartialScanRequest({"time": 1, "height": 0}, ("title", "absent"))
    for kind in ("NETCDF4", "NETCDF3_CLASSIC"):
        path = series(tmp_path / kind, bounded, 1, format=kind)[0]
        seen, whole = scan_partially(path, expected), scan(path)
        assert isinstance(seen, PartialScan)
        assert seen.stamp == whole.stamp and seen.attrs == {"title": "all"}
        assert {v.name for v in seen.variables} == {"time", "height"}
        for result in seen.variables:
            other = next(v for v in whole.variables if v.name == result.name)
            assert result.dtype == other.dtype and result.shape == other.shape
            assert result.attrs == {k: v for k, v in other.attrs.items() if k in ("units", "calendar")}
            np.testing.assert_array_equal(result.values, other.values)
        for odd in ({"height": 1}, {"nothing": 0}, {"time": 0}):
            assert isinstance(scan_partially(path, PartialScanRequest(odd)), Structure)


def test_only_some_files_are_scanned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    series(tmp_path, bounded, 20)
    opened: list[str] = []
    kind = type(FORMAT)
    scan = kind.scan

    def counted(self: Any, path: str) -> Any:
        opened.append(Path(path).name)
        return scan(self, path)

    monkeypatch.setattr(kind, "scan", counted)
    agg = aa.open(tmp_path, rules=ASSUME)
    assert sorted(opened) == ["tas_00.nc", "tas_01.nc", "tas_19.nc"]
    agg["tas"].coords["time"][...]
    agg["tas"].sel(time=slice("2000-01-11", "2000-01-21"))
    assert len(opened) == 3
    # A read verifies its files, once each, and no others.
    np.testing.assert_array_equal(agg["tas"][30:33], field(np.arange(30, 33), LATS, LONS))
    agg["tas"][30:32], agg["tas"].coords["time_bnds"][30:33]
    assert opened[3:] == ["tas_10.nc"]


def test_times_of_other_units_and_lengths(tmp_path: Path) -> None:
    for n in range(8):
        times = np.arange(3 + n % 2)
        units = {**TIME, "units": f"days since 2000-01-{1 + 4 * n:02}"}
        write(tmp_path / f"{n}.nc", cube(times, time=(("time",), times.astype("f8" if n % 3 else "i4"), units)))
    assert len(assumed_files(compared(tmp_path))) == 5


def test_tiles(tmp_path: Path) -> None:
    for n in range(4):
        for j in range(3):
            write(tmp_path / f"t{n}_y{j}.nc", cube([n], lats=10.0 * np.arange(3 * j, 3 * j + 3)))
    agg = compared(tmp_path)
    assert agg["tas"].shape == (4, 9, 2) and len(assumed_files(agg)) == 8


def test_single_steps_whose_time_is_a_scalar(tmp_path: Path) -> None:
    for n in range(6):
        single = (("lat", "lon"), field([n], LATS, LONS)[0], {**TAS, "coordinates": "time"})
        write(tmp_path / f"{n}.nc", cube([0], time=((), float(n), TIME), tas=single))
    assert len(assumed_files(compared(tmp_path))) == 3


def test_members_differ_in_identifying_attributes(tmp_path: Path) -> None:
    for r in range(1, 6):
        for n in range(4):
            write(tmp_path / f"r{r}" / f"{n}.nc", cube([n]), {"variant_label": f"r{r}", "history": f"{r} {n}"})
    agg = compared(tmp_path)
    assert len(agg) == 5 and len(assumed_files(agg)) == 16
    agg = compared(tmp_path, {"new_dimension": "variant_label", "separate_by": ()})
    assert agg["tas"].pmshape == (5, 4)
    compared(tmp_path, {"new_dimension": "r=/r([0-9]+)/"})


def test_several_variables_and_auxiliary_coordinates(tmp_path: Path) -> None:
    for name in ("tas", "pr"):
        for n in range(6):
            times = 2.0 * n + np.arange(2)
            more = {
                "tas": (("time", "lat", "lon"), field(times, LATS, LONS), {**TAS, "coordinates": "lead label"}),
                "lead": (("time",), np.arange(2) + 0.5 * n, {"units": "hours", "standard_name": "forecast_period"}),
                "label": (("time",), np.array([7, 8])),
            }
            write(tmp_path / name / f"{name}_{n}.nc", cube(times, **more), {"variable_id": name, "frequency": "day"})
    compared(tmp_path, {"separate_by": ("variable_id",)})


def test_groups(tmp_path: Path) -> None:
    for n in range(6):
        times = 2.0 * n + np.arange(2)
        inner = {f"in/{k}": v for k, v in cube(times).items()}
        write(tmp_path / f"{n}.nc", {**cube(times), **inner})
    compared(tmp_path)


def test_several_processes_and_progress(tmp_path: Path) -> None:
    series(tmp_path, bounded, 100)
    seen: list[tuple[int, int]] = []
    agg = compared(tmp_path, processes=3, progress=lambda done, total, what: seen.append((done, total)))
    assert seen == [(n + 1, 100) for n in range(100)] * 2
    assert len(assumed_files(agg)) == 97


# Differences are read from each file, or all files are scanned


def test_packing_that_differs_from_file_to_file(tmp_path: Path) -> None:
    for n in range(6):
        packed = (("time", "lat", "lon"), np.arange(6, dtype="i2").reshape(1, 3, 2), {**TAS, "scale_factor": 0.5 + n})
        write(tmp_path / f"{n}.nc", cube([n], tas=packed))
    assert assumed_files(compared(tmp_path)) == []


def test_dimensions_without_coordinates_of_other_sizes(tmp_path: Path) -> None:
    for n in range(6):
        write(tmp_path / f"{n}.nc", {"v": (("x",), np.arange(n + 1.0))})
    assert assumed_files(compared(tmp_path, {"order": {"x": "name"}})) == []
    for n in range(6):
        write(tmp_path / f"{n}.nc", {"v": (("x",), np.arange(n, n + 2.0))})
    assert len(assumed_files(compared(tmp_path, {"order": {"x": "name"}}))) == 3


def test_dissimilar_files_are_scanned(tmp_path: Path) -> None:
    paths = series(tmp_path)
    write(paths[3], {"pr": (("station",), np.arange(4.0), {"standard_name": "rain"})})  # no such coordinate
    write(paths[4], cube([12], time=((), 12.0, TIME), tas=(("lat", "lon"), field([12], LATS, LONS)[0], TAS)))  # of another rank
    Path(paths[5]).write_text("no data")
    agg = compared(tmp_path)
    assert [Path(s.file).name for s in agg.skipped] == ["tas_05.nc"]
    assert assumed_files(agg) == ["tas_02.nc", "tas_06.nc"]


def test_unreadable_probe(tmp_path: Path) -> None:
    paths = series(tmp_path)
    Path(paths[-1]).write_text("no data")
    assert len(assumed_files(compared(tmp_path))) == 5
    for path in paths[:2]:
        Path(path).write_text("no data")
    assert assumed_files(compared(tmp_path)) == []


def test_an_index_among_the_files(tmp_path: Path) -> None:
    paths = series(tmp_path / "data")
    for n in range(5):
        aa.open(paths[n : n + 1]).save(tmp_path / f"index{n}.nc")
    agg = aa.open([*(tmp_path / f"index{n}.nc" for n in range(5)), *paths[5:]], rules=ASSUME)
    same(agg["tas"], aa.open(paths)["tas"])


# Differing files raise errors


PACKED = (("time", "lat", "lon"), np.ones((3, 3, 2), "i2"), {**TAS, "coordinates": "height", "scale_factor": 0.1})
VALUES = field([15, 16, 17], LATS, LONS)
HUNG = {**TAS, "coordinates": "height"}
DEVIATIONS: dict[str, tuple[dict[str, Any], str]] = {
    "packing": ({"tas": PACKED}, "'tas': stored as"),
    "scale": ({"tas": (("time", "lat", "lon"), VALUES, {**HUNG, "scale_factor": np.float32(2)})}, "scale_factor is '?<f4 2.0"),
    "units": ({"tas": (("time", "lat", "lon"), VALUES, {**HUNG, "units": "degC"})}, "units is 'degC', not 'K' as in"),
    "missing": ({"tas": (("time", "lat", "lon"), VALUES, {**HUNG, "_FillValue": np.float32(15)})}, "_FillValue is"),
    "methods": ({"tas": (("time", "lat", "lon"), VALUES, {**HUNG, "cell_methods": "time: maximum"})}, "cell_methods is"),
    "kind": (
        {"tas": (("time", "lat", "lon"), VALUES, {**HUNG, "units_metadata": "temperature: difference"})},
        "units_metadata is 'temperature: difference', not none as in",
    ),
    "order": ({"tas": (("lat", "time", "lon"), VALUES.transpose(1, 0, 2), HUNG)}, "dimensions are"),
    "type": ({"tas": (("time", "lat", "lon"), VALUES.astype("f8"), HUNG)}, "stored as <f8, not <f4 as in"),
    "direction": (
        {"lat": (("lat",), LATS[::-1], {**LAT, "bounds": "lat_bnds"}), "tas": (("time", "lat", "lon"), VALUES[:, ::-1], HUNG)},
        "'lat': values differ from those in",
    ),
    "grid": ({"lat": (("lat",), LATS + 1e-3, {**LAT, "bounds": "lat_bnds"})}, "'lat': values differ from those in"),
    "bounds": ({"lat_bnds": (("lat", "bnds"), np.ones((3, 2)))}, "'lat_bnds': values differ"),
    "pairs": ({"time_bnds": (("time", "bnds"), np.tile([2.0, 1.0], (3, 1)))}, "'time_bnds': bounds run in the other direction"),
    "height": ({"height": ((), 10.0, {"units": "m", "standard_name": "height", "positive": "up"})}, "'height': values differ"),
    "no coordinate": ({"lat_bnds": None}, "'lat_bnds': no such variable|bounds"),
    "packed time": (
        {"time": (("time",), np.array([15, 16, 17.0]), {**TIME, "bounds": "time_bnds", "scale_factor": 2.0})},
        "'time': scale_factor",
    ),
}


@pytest.mark.parametrize("name", DEVIATIONS)
def test_deviating_file(tmp_path: Path, name: str) -> None:
    changes, text = DEVIATIONS[name]
    paths = series(tmp_path, bounded)
    variables = {k: v for k, v in {**bounded([15, 16, 17]), **changes}.items() if v is not None}
    write(paths[5], variables, {"title": "all", "tracking_id": "5", "source_id": "M"})
    agg = aa.open(tmp_path, rules=ASSUME)
    array = agg["tas"]
    assert array.shape == (24, 3, 2)
    np.testing.assert_array_equal(array[:15], field(np.arange(15), LATS, LONS))
    for read in (
        lambda: array[14:16],
        lambda: array.read((slice(15, 18), 0), masked=True),
        lambda: array.read(slice(15, 18), copy=None),
        lambda: array.lazy[16].to_units("degC")[...],
        lambda: array.coords["time_bnds"][...],
        lambda: array.partitions[5].data.read(),
        lambda: agg.save(tmp_path / "index.nc"),
        lambda: agg.append(tmp_path).save(tmp_path / "index.nc"),
    ):
        with pytest.raises(aa.FormatError, match=text) as caught:
            read()
        assert "trust='verify'" in str(caught.value)
        assert paths[5] in str(caught.value) and "tas_00.nc" in str(caught.value)
    assert not (tmp_path / "index.nc").exists()
    problems = agg.check().problems
    assert [(p.kind, p.file) for p in problems] == [("unreadable", paths[5])] and "trust='verify'" in problems[0].message
    assert len(aa.open(tmp_path)) >= 1


def test_dataset_absent_from_probes(tmp_path: Path) -> None:
    paths = series(tmp_path)
    write(paths[5], cube([15, 16, 17]), {"source_id": "N"})
    agg = aa.open(tmp_path, rules=ASSUME)
    with pytest.raises(aa.FormatError, match=r"source_id is 'N', not 'M' as in .*trust='verify'"):
        agg["tas"][...]


def test_absent_variable_and_other_size(tmp_path: Path) -> None:
    paths = series(tmp_path)
    write(paths[5], cube([15, 16, 17], tas=None, pr=(("time",), np.ones(3), {"standard_name": "rain"})), {"source_id": "M"})
    with pytest.raises(aa.FormatError, match=r"no such variable.*variable 'tas' in .*tas_05\.nc"):
        aa.open(tmp_path, rules=ASSUME)["tas"][...]
    write(paths[5], cube([15, 16, 17], lats=[10.0, 20.0]), {"source_id": "M"})
    with pytest.raises(aa.FormatError, match=r"'lat' has size 2, not 3 as in .*verify"):
        aa.open(tmp_path, rules=ASSUME)["tas"][...]


def test_irrelevant_attributes_may_differ(tmp_path: Path) -> None:
    paths = series(tmp_path)
    tas = (("time", "lat", "lon"), VALUES, {**TAS, "history": "once more", "long_name": "temperature"})
    write(paths[5], cube([15, 16, 17], tas=tas), {"source_id": "M", "note": "another"})
    assert aa.open(tmp_path, rules=ASSUME)["tas"][...].shape == (24, 3, 2)


# Saving and appending


def test_saved_index_is_verified(tmp_path: Path) -> None:
    series(tmp_path / "data", bounded)
    agg = aa.open(tmp_path / "data", rules=ASSUME)
    assert agg.save(tmp_path / "index.nc").ok
    again, verified = aa.open(tmp_path / "index.nc"), aa.open(tmp_path / "data")
    same(again["tas"], verified["tas"])
    same(agg["tas"], verified["tas"])
    assert again._provenance.rules == ASSUME and not assumed_files(again)
    assert not any(t.declared for t in again["tas"]._matrix.references.templates)
    assert agg.save(tmp_path / "index.nc").ok
    # A selection is saved as a selection.
    agg.select("tas", source_id="M").save(tmp_path / "selected.nc")
    same(aa.open(tmp_path / "selected.nc")["tas"], verified["tas"])


def test_append_equals_opening_all_files(tmp_path: Path) -> None:
    paths = series(tmp_path, bounded, 14)
    verified = aa.open(paths)
    for first in (aa.open(paths[:6], rules=ASSUME), aa.open(paths[:6])):
        first.save(tmp_path / "index.nca")
        for before in (first, aa.open(tmp_path / "index.nca", rules=ASSUME)):
            after = before.append(paths)
            same(after["tas"], verified["tas"])
            expected = paths[2:5] * (before is first and first._provenance.rules == ASSUME)
            expected += paths[8:13] * (before._provenance.rules == ASSUME)
            assert assumed_files(after) == [Path(p).name for p in expected]
            assert after.check().ok
            after.save(tmp_path / "after.nca")
            same(aa.open(tmp_path / "after.nca")["tas"], verified["tas"])
    (tmp_path / "after.nca").unlink()


def test_assumed_signatures_are_pickled(tmp_path: Path) -> None:
    paths = series(tmp_path, bounded)
    array = aa.open(paths, rules=ASSUME)["tas"]
    again = pickle.loads(pickle.dumps(array.lazy[:, 1].flip("time")))
    np.testing.assert_array_equal(again[...], array[::-1, 1])
    write(paths[4], bounded([12, 13, 14], lat=(("lat",), LATS + 1, LAT)))
    with pytest.raises(aa.FormatError, match="trust='verify'"):
        pickle.loads(pickle.dumps(array))[...]


def test_files_removed_or_changed_after_opening(tmp_path: Path) -> None:
    paths = series(tmp_path, bounded)
    array = aa.open(paths, rules=ASSUME, missing="fill")["tas"]
    agg = aa.open(paths, rules=ASSUME)
    Path(paths[4]).unlink()
    assert np.isnan(array[12:15]).all() and not np.isnan(array[15:]).any()
    with pytest.raises(aa.MissingFileError, match=r"tas_04\.nc"):
        agg["tas"][...]
    with pytest.raises(aa.MissingFileError, match=r"tas_04\.nc"):
        agg.save(tmp_path / "index.nc")
    write(paths[4], bounded([12, 13, 14, 15]), {"source_id": "M"})
    moved = r"'time' changed since the files were opened.*tas_04\.nc.*; open them again"
    with pytest.raises(aa.FormatError, match=moved):
        agg["tas"][...]
    write(paths[4], bounded([12, 13, 14.25]), {"source_id": "M"})
    with pytest.raises(aa.FormatError, match=moved):
        agg.save(tmp_path / "index.nc")


def test_joining_and_changing_assumed_arrays(tmp_path: Path) -> None:
    paths = series(tmp_path, bounded)
    whole, verified = aa.open(paths, rules=ASSUME)["tas"], aa.open(paths)["tas"]
    halves = aa.concat([whole.lazy[:10], whole.lazy[10:]], "time")
    np.testing.assert_array_equal(halves[...], verified[...])
    np.testing.assert_array_equal(whole.to_units("degC").astype("f8")[3:20], verified.to_units("degC").astype("f8")[3:20])
    assert whole.partitions[4].punits == "K" and whole.partitions[4].data.dtype == np.float32
    by_hand = aa.Aggregation((whole,))
    by_hand.save(tmp_path / "hand.nc")
    saved = aa.open(tmp_path / "hand.nc")["tas"]
    np.testing.assert_array_equal(saved[...], verified[...])
    assert not any(t.declared for t in saved._matrix.references.templates)


def test_many_files_are_verified_by_several_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = series(tmp_path, cube, 80)
    agg = aa.open(paths, rules=ASSUME)
    runs: list[int] = []
    from aggarray.scan.workers import WorkerPool

    run = WorkerPool.run

    def counted(self: Any, tasks: Any, *given: Any) -> Any:
        runs.append(len(tasks))
        return run(self, tasks, *given)

    monkeypatch.setattr(WorkerPool, "run", counted)
    np.testing.assert_array_equal(agg["tas"][:, 1, 1], aa.open(paths)["tas"][:, 1, 1])
    assert runs[0] == 77
    Path(paths[40]).write_text("no data")
    with pytest.raises(aa.FormatError, match=r"tas_40\.nc"):
        agg["tas"][...]


def test_roots_hold_for_verifying_too(tmp_path: Path) -> None:
    series(tmp_path / "in")
    agg = aa.open(tmp_path / "in", rules=ASSUME, roots=[tmp_path / "in"])
    outside = write(tmp_path / "out" / "x.nc", cube([9, 10, 11]))
    link = tmp_path / "in" / "tas_03.nc"
    link.unlink()
    link.symlink_to(outside)
    with pytest.raises(aa.IndexFileError, match="outside the folders"):
        agg["tas"][...]


def test_invalid_trust() -> None:
    with pytest.raises(aa.AggregationError, match="trust='blindly' is invalid; give one of verify, assume"):
        aa.Rules(trust="blindly")
    assert aa.Rules().trust == "verify" and group_files([]) == []
