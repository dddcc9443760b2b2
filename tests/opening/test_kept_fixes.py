"""Fixes of indexes: moved files, several sources, other software, formats."""

import pickle
import shutil
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pytest
import xarray as xr

import aggarray as aa
from aggarray.index.store import SCHEMA
from tests.support.netcdf import cube, write

KELVIN = aa.Fix(variable="tas", set={"units": "degC"})


def archive(folder: Path, count: int = 3) -> Path:
    for n in range(count):
        write(folder / f"tas_{n}.nc", cube([2 * n, 2 * n + 1]), {"source_id": "M"})
    return folder


def times(agg: aa.Aggregation) -> list[float]:
    values: list[float] = agg["tas"].coords["time"][...].tolist()
    return values


@pytest.mark.parametrize("relative", [True, False])
def test_absolute_globs_follow_the_files(tmp_path: Path, relative: bool) -> None:
    folder = archive(tmp_path / "a b")
    fix = aa.Fix(where=str(folder / "tas_2.n?"), shift_time=(1, "day"))
    aa.open(folder, fixes=[fix]).save(tmp_path / "a b" / "all.nca", relative=relative)
    assert times(aa.open(folder / "all.nca")) == [0, 1, 2, 3, 5, 6]
    shutil.move(folder, tmp_path / "c")
    moved = None if relative else {str(folder): str(tmp_path / "c")}
    agg = aa.open(tmp_path / "c" / "all.nca", relocate=moved)
    assert agg.fixes == (aa.Fix(where=str(tmp_path / "c" / "tas_2.n?"), shift_time=(1, "day")),)
    again = aa.open(tmp_path / "c" / "all.nca", relocate=moved, rules=aa.Rules(holes="refuse"))
    assert times(agg) == times(again) == [0, 1, 2, 3, 5, 6]
    assert [p.kind for p in agg.check().problems] == ["gap"]  # all fixes match


def test_numbers_keep_their_dtype_in_an_index(tmp_path: Path) -> None:
    path = write(tmp_path / "a.nc", {"p": (("x",), np.arange(3, dtype="i2"), {"units": "1"})})
    fixes = [aa.Fix(variable="p", set={"scale_factor": np.float32(0.5), "levels": [np.int16(1), np.int16(2)]})]
    agg = aa.open(path, fixes=fixes)
    agg.save(tmp_path / "all.nca")
    again = aa.open(tmp_path / "all.nca", rules=aa.Rules(tolerance=1e-6))
    assert again["p"].dtype == agg["p"].dtype == "f4" and again.fixes == tuple(fixes)
    assert again["p"].attrs["levels"].dtype == "i2"


def test_only_indexes_with_fixes_need_a_newer_reader(tmp_path: Path) -> None:
    import h5py

    folder = archive(tmp_path / "a")
    for number, fixes in enumerate(((), (KELVIN,))):
        aa.open(folder, fixes=fixes).save(tmp_path / f"{number}.nca")
        with h5py.File(tmp_path / f"{number}.nca") as file:
            assert int(file["aggarray"].attrs["schema"].item()) == (SCHEMA if fixes else 1)


def test_indexes_among_sources_have_the_same_fixes(tmp_path: Path) -> None:
    folder = archive(tmp_path / "a")
    paths = [str(folder / f"tas_{n}.nc") for n in range(3)]
    first, second, plain = (str(tmp_path / f"{n}.nca") for n in range(3))
    aa.open(paths[:1], fixes=[KELVIN]).save(first)
    aa.open(paths[1:2], fixes=[KELVIN]).save(second)
    aa.open(paths[1:2]).save(plain)
    both = aa.open([first, second])
    assert both.fixes == (KELVIN,) and both["tas"].units == "degC" and both["tas"].shape[0] == 4
    for sources in ([first, plain], [first, paths[2]], [plain, first]):
        with pytest.raises(aa.AggregationError, match="fixes=None"):
            aa.open(sources)
        assert aa.open(sources, fixes=None)["tas"].units == "K"
        assert aa.open(sources, fixes=[KELVIN])["tas"].units == "degC"
    with pytest.raises(aa.AggregationError, match="same fixes"):
        aa.open(plain).append(first)
    assert aa.open(first).append(second)["tas"].shape[0] == 4
    assert aa.open(first).append(plain)["tas"].units == "degC"


def test_fixes_that_match_no_file_are_problems(tmp_path: Path) -> None:
    folder = archive(tmp_path / "a")
    unused = aa.Fix(where="pr_*.nc", variable="tas", drop=True)
    agg = aa.open(folder, fixes=[KELVIN, unused, aa.Fix(variable="lost", drop=True, optional=True)])
    (problem,) = agg.check().problems
    assert (problem.kind, problem.file) == ("fix", None) and repr(unused) in problem.message
    agg.save(tmp_path / "all.nca")
    assert [p.kind for p in aa.open(tmp_path / "all.nca").check().problems] == ["fix"]
    assert agg.isel(time=0).check().ok  # the files of a selection are unknown


def test_other_software_gets_what_its_files_state(tmp_path: Path) -> None:
    """Values that need a fix are left to aggarray; names and attributes are not."""
    folder = archive(tmp_path / "a")
    harmless = [aa.Fix(variable="tas", rename="t2m", set={"long_name": "x"}), aa.Fix(shift_time=(1, "day"))]
    assert aa.open(folder, fixes=harmless).save(tmp_path / "all.nca").ok
    with netCDF4.Dataset(tmp_path / "all.nca") as file:
        assert file["t2m"].long_name == "x" and file["time"][:].tolist() == [1, 2, 3, 4, 5, 6]
        terms = file["t2m"].aggregated_data.split()
        assert str(file[terms[terms.index("identifiers:") + 1]][...]) == "tas"
    for attrs in ({"units": "degC"}, {"scale_factor": 2.0}, {"_FillValue": 3.0}):
        report = aa.open(folder, fixes=[aa.Fix(where="tas_1.nc", variable="tas", set=attrs)]).save(tmp_path / "other.nca")
        assert "a fix changes its units or packing" in report.problems[0].message
        with netCDF4.Dataset(tmp_path / "other.nca") as file:
            assert "tas" not in file.variables


def test_new_coordinates_are_read(tmp_path: Path) -> None:
    """A decreasing coordinate is one only with its fix: a scan has not read it."""
    for n in range(3):
        made: dict[str, Any] = {
            "p": (("t", "y"), np.arange(6.0).reshape(2, 3) + 6 * n, {"units": "1"}),
            "time": (("t",), [2.0 * n, 2.0 * n + 1], {"units": "days since 2000-01-01"}),
            "lat": (("y",), [3.0, 2.0, 1.0], {"units": "degrees_north"}),
        }
        write(tmp_path / f"{n}.nc", made)
    agg = aa.open(tmp_path, fixes=[aa.Fix(rename={"t": "time", "y": "lat"})])
    array = agg["p"]
    assert array.dimensions == ("time", "lat") and array.directions == (True, False)
    assert array.coords["lat"][...].tolist() == [3, 2, 1]
    np.testing.assert_array_equal(array[...], np.arange(18.0).reshape(6, 3))
    assert array.sel(lat=3.0)[:].tolist() == [0, 3, 6, 9, 12, 15]


@pytest.mark.parametrize("format", ["NETCDF3_CLASSIC", "zarr2", "zarr3", "NETCDF4"])
def test_formats(tmp_path: Path, format: str) -> None:
    for n in range(2):
        source = write(tmp_path / "source" / f"{n}.nc", cube([n]), format="NETCDF4" if "zarr" in format else format)
        if "zarr" in format:
            with xr.open_dataset(source) as dataset:
                dataset.to_zarr(tmp_path / "data" / f"{n}.zarr", zarr_format=int(format[-1]), consolidated=False)
    fixes = [aa.Fix(rename={"tas": "t", "lat": "y"}), aa.Fix(variable="time", shift_time=(1, "day"))]
    agg = aa.open(tmp_path / ("data" if "zarr" in format else "source"), fixes=fixes)
    array, plain = agg["t"], aa.open(tmp_path / "source")["tas"]
    assert array.dimensions == ("time", "y", "lon")
    np.testing.assert_array_equal(array[...], plain[...])
    dates, before = array.coords["time"].datetimes(), plain.coords["time"].datetimes()
    np.testing.assert_array_equal(dates, before + np.timedelta64(1, "D"))
    assert {p.data.variable for p in array.partitions if p.data is not None} == {"tas"}  # the name in the file
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(array))[...], plain[...])


def test_kerchunk_references_are_fixed(tmp_path: Path) -> None:
    folder = archive(tmp_path / "a")
    aa.open(folder).to_kerchunk(tmp_path / "all.json")
    agg = aa.open(tmp_path / "all.json", fixes=[aa.Fix(variable="tas", rename="t2m"), aa.Fix(shift_time=(1, "day"))])
    assert agg["t2m"].coords["time"][...].tolist() == [1, 2, 3, 4, 5, 6]
    np.testing.assert_array_equal(agg["t2m"][...], aa.open(folder)["tas"][...])


def test_exports_have_fixed_metadata(tmp_path: Path) -> None:
    folder = archive(tmp_path / "a")
    agg = aa.open(folder, fixes=[aa.Fix(variable="tas", rename="t2m", set={"scale_factor": 2.0, "units": "degC"})])
    agg.to_kerchunk(tmp_path / "all.json")
    plain = aa.open(folder)["tas"][...]
    with agg.to_xarray() as dataset:
        np.testing.assert_array_equal(dataset["t2m"].values, 2 * plain)
    np.testing.assert_array_equal(aa.open(tmp_path / "all.json")["t2m"][...], 2 * plain)
    with xr.open_dataset(str(folder / "*.nc"), engine="aggarray", fixes=[KELVIN]) as dataset:
        assert dataset["tas"].attrs["units"] == "degC"


def test_other_ranks_know_the_fixes(tmp_path: Path) -> None:
    """An aggregation of another process has no structures; what it appends is fixed alike."""
    from aggarray.mpi.pickling import dumps
    from aggarray.mpi.unpickling import loads

    folder = archive(tmp_path / "a")
    received = loads(dumps(aa.open([folder / "tas_0.nc", folder / "tas_1.nc"], fixes=[KELVIN])))
    assert received.fixes == (KELVIN,) and received.check().ok
    appended = received.append(folder / "tas_2.nc")
    assert appended["tas"].units == "degC" and times(appended) == [0, 1, 2, 3, 4, 5]


def test_damaged_fixes_of_an_index(tmp_path: Path) -> None:
    from aggarray.errors import IndexFileError
    from aggarray.index import Opening
    from aggarray.opening.joining import fixes_of

    for stored in (3, [3], [{"unknown": 1}], [{"variable": 5}], [{}], [{"where": 3}], [{"set": {"mapping": 1}}]):
        with pytest.raises(IndexFileError, match="damaged index"):
            fixes_of({"fixes": stored}, str(tmp_path / "all.nca"), Opening())


def test_shifts_of_times_that_are_no_coordinate_variable(tmp_path: Path) -> None:
    """NEMO's times lie along a dimension of another name; reference times of forecasts stay."""
    since = {"units": "hours since 2000-01-01"}
    made: dict[str, Any] = {
        "tos": (("time_counter",), np.zeros(2), {"coordinates": "time_centered run", "units": "degC"}),
        "time_centered": (("time_counter",), [1.0, 2.0], {**since, "standard_name": "time"}),
        "run": ((), 5.0, {**since, "standard_name": "forecast_reference_time"}),
    }
    coords = aa.open(write(tmp_path / "a.nc", made), fixes=[aa.Fix(shift_time=(1, "day"))])["tos"].coords
    assert coords["time_centered"][...].tolist() == [25, 26] and coords["run"][...] == 5
