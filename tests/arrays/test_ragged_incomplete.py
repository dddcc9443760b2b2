"""Tests of incomplete multidimensional arrays (CF section 9.3.2) against a loop over netCDF4."""

from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import pytest
import xarray as xr
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import aggarray as aa
from aggarray.arrays.ragged import RaggedMasterArray
from aggarray.dap import Distribution, validate_all
from aggarray.export.extract import extract
from aggarray.memory import Ragged, type_string
from tests.support.examples import examples

pytestmark = pytest.mark.quick

FILL = -999.0
Rows = list[list[float | None]]
#: Rows of samples; None: a place in the middle that has none.
FIRST: Rows = [[1.0, 2.0, 3.0], [], [4.0, 5.0], [6.0]]
SECOND: Rows = [[7.0], [8.0, 9.0]]


def write(path: Path, rows: Rows, width: int | None = None, kind: str = "NETCDF4", **how: Any) -> Path:
    """Write an array of rows: temperatures are ten times the depths, float and packed."""
    width = max(map(len, rows), default=0) if width is None else width
    depth = np.full((len(rows), width), FILL)
    for n, row in enumerate(rows):
        depth[n, : len(row)] = [FILL if x is None else x for x in row]
    with netCDF4.Dataset(path, "w", format=kind) as f:
        f.setncatts({"featureType": "profile", "Conventions": "CF-1.11"})
        f.createDimension("profile", len(rows))
        f.createDimension("level", width)
        f.createVariable("profile_id", "i4", ("profile",)).setncatts({"cf_role": "profile_id"})
        f["profile_id"][:] = np.arange(len(rows)) + 100
        f.createVariable("lat", "f4", ("profile",)).setncatts({"standard_name": "latitude", "units": "degrees_north"})
        f["lat"][:] = np.arange(len(rows))
        for name, values, units in (("depth", depth, "m"), ("temp", np.where(depth == FILL, FILL, depth * 10), "degC")):
            v = f.createVariable(name, "f8", ("profile", "level"), fill_value=FILL, **how)
            v.setncatts({"units": units, **({"coordinates": "lat depth"} if name == "temp" else {"positive": "down"})})
            v[:] = values
        v = f.createVariable("quality", "i1", ("profile", "level"), fill_value=-1)
        v.coordinates = "lat depth"
        v[:] = np.where(depth == FILL, -1, 2)
    return path


def told(rows: Rows, times: float = 10) -> list[list[float]]:
    return [[x * times for x in row if x is not None] for row in rows]


@pytest.mark.parametrize("kind", ["NETCDF4", "NETCDF3_CLASSIC", "NETCDF3_64BIT_DATA"])
def test_rows_exclude_missing_elements(tmp_path: Path, kind: str) -> None:
    path = write(tmp_path / "a.nc", FIRST, width=5, kind=kind)
    agg = aa.open(path)
    a = agg["temp"]
    assert isinstance(a, RaggedMasterArray) and (a.shape, a.dimensions, a.size) == ((4,), ("profile",), 6)
    assert a[:].tolist() == told(FIRST) and a[0].tolist() == [10.0, 20.0, 30.0] and a[1].tolist() == []
    assert a[[3, 0]].tolist() == told([FIRST[3], FIRST[0]]) and a[::-2].tolist() == told(FIRST[::-2])
    assert a[a.counts > 1].tolist() == told([FIRST[0], FIRST[2]])
    assert (a.offsets.tolist(), a.counts.tolist()) == ([0, 3, 3, 5, 6], [3, 0, 2, 1])
    assert a.coords["depth"][:].tolist() == told(FIRST, 1) and a.coords["lat"][:].tolist() == [0, 1, 2, 3]
    assert a.coords["profile_id"][2] == 102 and agg["quality"][:].tolist() == [[2] * n for n in a.counts]
    assert sorted(x.name for x in agg) == ["quality", "temp"]  # what there is of profiles hangs on these
    assert type_string(a) == "4 * var * ?float64" and a.to_units("K")[3].tolist() == [333.15]
    assert a.lazy[2:][:].tolist() == told(FIRST[2:]) and a.read(0, masked=True).mask.sum() == 0
    with netCDF4.Dataset(path) as f:  # and a loop says the same
        assert [[float(x) for x in row.compressed()] for row in f["temp"][:]] == a[:].tolist()


@pytest.mark.parametrize("how", [{}, {"zlib": True, "chunksizes": (3, 5)}, {"zlib": True, "chunksizes": (2, 2)}])
def test_storage_layouts(tmp_path: Path, how: dict[str, Any]) -> None:
    rows: Rows = [[float(n + k) for k in range(n % 6)] for n in range(20)]
    a = aa.open(write(tmp_path / "a.nc", rows, 5, **how))["temp"]
    assert a[:].tolist() == told(rows) and a[7:9].tolist() == told(rows[7:9])
    assert a.read(11, copy=None).tolist() == told(rows)[11]


def test_stored_by_zarr_and_hdf5(tmp_path: Path) -> None:
    source = write(tmp_path / "a.nc", FIRST, 5)
    with xr.open_dataset(source, mask_and_scale=False) as ds:
        ds.to_zarr(tmp_path / "a.zarr", zarr_format=2, consolidated=False)
        ds.to_zarr(tmp_path / "b.zarr", zarr_format=3, consolidated=False)
    for name in ("a.zarr", "b.zarr"):
        assert isinstance(zarr.open_group(tmp_path / name)["temp"], zarr.Array)
        assert aa.open(tmp_path / name)["temp"][:].tolist() == told(FIRST)


def test_files_of_different_widths_are_one_array(tmp_path: Path) -> None:
    files = [write(tmp_path / "a.nc", FIRST), write(tmp_path / "b.nc", SECOND, 7), write(tmp_path / "c.nc", [])]
    (a,) = (x for x in aa.open(files) if x.name == "temp")
    every = told(FIRST + SECOND)
    assert a[:].tolist() == every and a.coords["depth"][3:5].tolist() == [[6.0], [7.0]]
    aa.open(files).save(tmp_path / "i.nca")
    again = aa.open(tmp_path / "i.nca")["temp"]
    assert again[:].tolist() == every and again[4].tolist() == [70.0] and again.coords["lat"][:].tolist() == [0, 1, 2, 3, 0, 1]
    with netCDF4.Dataset(tmp_path / "i.nca") as f:  # what others cannot read is not told to them
        assert "temp" not in f.variables
    result = aa.open(tmp_path / "i.nca").append(write(tmp_path / "e.nc", [[3.5, None, 4.5]]))["temp"]
    assert result[:].tolist() == [*every, [35.0, 45.0]] and result[-1].tolist() == [35.0, 45.0]
    assert aa.open(tmp_path / "i.nca").check().ok


def test_another_representation_follows(tmp_path: Path) -> None:
    write(tmp_path / "a.nc", FIRST)
    with netCDF4.Dataset(tmp_path / "b.nc", "w") as f:
        f.setncatts({"featureType": "profile", "Conventions": "CF-1.11"})
        f.createDimension("profile", 2)
        f.createDimension("level", 3)
        for name, dtype, attrs in (
            ("profile_id", "i4", {"cf_role": "profile_id"}),
            ("lat", "f4", {"standard_name": "latitude", "units": "degrees_north"}),
            ("size", "i4", {"sample_dimension": "level"}),
        ):
            f.createVariable(name, dtype, ("profile",)).setncatts(attrs)
        f["profile_id"][:], f["lat"][:], f["size"][:] = [1, 2], [0, 1], [1, 2]
        f.createVariable("depth", "f8", ("level",)).setncatts({"units": "m", "positive": "down"})
        f.createVariable("temp", "f8", ("level",)).setncatts({"units": "degC", "coordinates": "lat depth"})
        f["depth"][:], f["temp"][:] = [7, 8, 9], [70, 80, 90]
    for files, rows in ((["a.nc", "b.nc"], FIRST + SECOND), (["b.nc", "a.nc"], SECOND + FIRST)):
        a = aa.open([tmp_path / n for n in files], rules=aa.Rules(order={"profile": "given"}))["temp"]
        assert a[:].tolist() == told(rows) and a[[5, 1]].tolist() == told([rows[5], rows[1]])


SAMPLES = st.lists(st.lists(st.one_of(st.none(), st.floats(0, 9, width=16)), max_size=4), max_size=5)


@given(st.lists(SAMPLES, min_size=1, max_size=3), st.data())
@settings(max_examples=examples(25), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_rows_with_gaps_equal_a_loop(tmp_path: Path, files: list[Rows], data: st.DataObject) -> None:
    paths = [write(tmp_path / f"{n}.nc", rows) for n, rows in enumerate(files)]
    (a, *more) = [x for x in aa.open(paths, rules=aa.Rules(order={"profile": "given"})) if x.name == "temp"]
    if more:  # exact repeats are left out; what is told apart by nothing but its order stays whole
        return
    distinct = [rows for n, rows in enumerate(files) if rows not in files[:n]]
    every = [row for rows in distinct for row in told(rows)]
    key = data.draw(st.slices(len(every)))
    if len(every) == len(a):
        assert a[:].tolist() == every and a[key].tolist() == every[key]
        assert [row.tolist() for row in a] == every


def test_sections_and_exports(tmp_path: Path) -> None:
    rows: Rows = [[float(n), None, float(n + 1)][: n % 4] for n in range(30)]
    agg = aa.open(write(tmp_path / "a.nc", rows))
    a = agg["temp"]
    shares = Distribution.from_partitions(a, 3)
    sections = [a.local(shares, rank) for rank in range(3)]
    assert [row for s in sections for row in s.ragged.tolist()] == told(rows)
    validate_all([s.__distarray__() for s in sections])
    assert sections[2].samples.distribution.shape == (a.size,)
    ds = agg.to_xarray()
    assert ds["temp"].dims == ("level",) and ds["temp"].values.tolist() == [x for row in told(rows) for x in row]
    assert ds["profile_size"].values.tolist() == [len(row) for row in told(rows)]
    extract(agg, tmp_path / "out.nc")
    assert aa.open(tmp_path / "out.nc")["temp"][:].tolist() == told(rows)
    ak = pytest.importorskip("awkward", reason="ragged arrays in awkward: the extra 'ragged'")
    assert ak.to_list(a.to_awkward()) == told(rows)


def test_shared_coordinates_stay_two_dimensional(tmp_path: Path) -> None:
    write(tmp_path / "a.nc", FIRST)
    with netCDF4.Dataset(tmp_path / "a.nc", "a") as f:
        del f["temp"].coordinates
        del f["quality"].coordinates
        f["temp"].coordinates = f["quality"].coordinates = "lat"
    a = aa.open(tmp_path / "a.nc")["temp"]  # nothing is said of where samples are: orthogonal, or not of samples at all
    assert a.shape == (4, 3) and Ragged.from_masked(a.read(masked=True)).tolist() == told(FIRST)
    write(tmp_path / "b.nc", FIRST)
    with netCDF4.Dataset(tmp_path / "b.nc", "a") as f:
        f.delncattr("featureType")
    assert aa.open(tmp_path / "b.nc")["temp"].shape == (4, 3)
    write(tmp_path / "c.nc", FIRST)
    with netCDF4.Dataset(tmp_path / "c.nc", "a") as f:
        f.createVariable("level", "f8", ("level",)).setncatts({"axis": "Z", "units": "m"})
        f["level"][:] = [1, 2, 3]
    assert aa.open(tmp_path / "c.nc")["temp"].shape == (4, 3)


def test_errors_name_the_variable_of_the_file(tmp_path: Path) -> None:
    path = write(tmp_path / "a.nc", FIRST, zlib=True)
    a = aa.open(path)["temp"]
    with h5py.File(path, "r+") as f:
        chunk = f["temp"].id.get_chunk_info(0)
    data = bytearray(path.read_bytes())
    data[chunk.byte_offset + 4 : chunk.byte_offset + 8] = b"\xff\xff\xff\xff"
    path.write_bytes(data)
    with pytest.raises(aa.FormatError, match=r"variable 'temp' in .*a\.nc") as caught:
        aa.open(path)["temp"][:]
    assert "rows of" not in str(caught.value)
    path.unlink()
    with pytest.raises(aa.MissingFileError, match=r"variable 'temp' in .*a\.nc"):
        a[:]
