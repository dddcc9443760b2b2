"""Datasets of archives are saved by xarray as they are, and keep how their files are stored."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pytest

pytest.importorskip("xarray", reason="the engine needs xarray: install the extra 'xarray'")
pytest.importorskip("dask.array", reason="chunks need dask: install the extra 'xarray'")
pytest.importorskip("zarr", reason="Zarr stores need zarr: install the extra 'xarray'")

import xarray as xr

import aggarray as aa
from aggarray.export.extract import extract
from aggarray.interop import chunk_sizes
from aggarray.xarray_engine import AggarrayBackendEntrypoint as Engine
from tests.support.examples import heavy_product

DAY = 30 * 40 * 4
DEFLATED = {"zlib": True, "complevel": 3, "shuffle": True}


def write(path: Path, start: int, steps: int, side: int | None, **options: Any) -> None:
    """Write days of a variable, packed if ``scale`` is given, with bounds of times and a missing value."""
    scale = options.pop("scale", None)
    with netCDF4.Dataset(path, "w") as file:
        file.setncatts({"history": "made for a test", "title": "days"})
        for name, size in (("time", steps if side is None else None), ("lat", 30), ("lon", 40), ("bnds", 2)):
            file.createDimension(name, size)
        days = start + np.arange(steps)
        file.createVariable("time", "i4", ("time",))[:] = days
        file["time"].setncatts({"units": "days since 2000-01-01", "calendar": "standard", "bounds": "time_bnds"})
        file["time"].standard_name = "time"
        file.createVariable("time_bnds", "f8", ("time", "bnds"))[:] = np.stack([days, days + 1], axis=1)
        for name, size in (("lat", 30), ("lon", 40)):
            file.createVariable(name, "f8", (name,))[:] = np.arange(size)
        how = {"contiguous": True} if side is None else {"chunksizes": (side, 30, 40)}
        kind, fill = ("i2", -32767) if scale else ("f4", 1e20)
        tas = file.createVariable("tas", kind, ("time", "lat", "lon"), fill_value=fill, **how, **options)
        tas.setncatts({"units": "K", **({"scale_factor": scale, "add_offset": 280.0} if scale else {})})
        values = np.round(280 + (np.arange(steps * 1200).reshape(steps, 30, 40) % 97 + start % 7) / 2, 1)
        tas[:] = np.ma.masked_equal(values, 290)


def years(folder: Path) -> Any:
    for start, steps in ((0, 366), (366, 365), (731, 365)):
        write(folder / f"{start}.nc", start, steps, 1, **DEFLATED)
    return folder


def uneven(folder: Path) -> Any:
    for start, steps, side in ((0, 60, 20), (60, 30, 30), (90, 45, 9), (135, 4, 4)):
        write(folder / f"{start:03d}.nc", start, steps, side, **DEFLATED)
    return folder


def packings(folder: Path) -> Any:
    for start, options in ((0, {"scale": 0.5, **DEFLATED}), (20, {"scale": 0.25, "zlib": True}), (50, {})):
        write(folder / f"{start:03d}.nc", start, 30 if start else 20, 10, **options)
    return folder


def packed(folder: Path) -> Any:
    for start, steps in ((0, 31), (31, 28)):
        write(folder / f"{start:03d}.nc", start, steps, 7, scale=0.5, **DEFLATED)
    return folder


def even(folder: Path) -> Any:
    for start in (0, 60, 120):
        write(folder / f"{start:03d}.nc", start, 60, 6, **DEFLATED)
    return folder


def extract_zarr(folder: Path) -> Any:
    extract(aa.open(uneven(folder))["tas"], folder / "e.zarr")
    return folder / "e.zarr"


def extract_nc(folder: Path) -> Any:
    (folder / "in").mkdir()
    extract(aa.open(years(folder / "in"))["tas"], folder / "e.nc")
    return folder / "e.nc"


CASES: tuple[Callable[[Path], Any], ...] = (years, uneven, packings, packed, even, extract_zarr, extract_nc)
WAYS: dict[str, Callable[[Any, Path], Any]] = {
    "zarr 2": lambda dataset, folder: dataset.to_zarr(folder / "out.zarr", zarr_format=2),
    "zarr 3": lambda dataset, folder: dataset.to_zarr(folder / "out.zarr", zarr_format=3, consolidated=False),
    "netcdf4": lambda dataset, folder: dataset.to_netcdf(folder / "out.nc", engine="netcdf4"),
    "h5netcdf": lambda dataset, folder: dataset.to_netcdf(folder / "out.nc", engine="h5netcdf"),
}


def reopened(folder: Path, how: str) -> Any:
    zarr = how.startswith("zarr")
    more = {"consolidated": False} if zarr else {}
    return xr.open_dataset(folder / ("out.zarr" if zarr else "out.nc"), engine="zarr" if zarr else how, **more).load()


@pytest.mark.parametrize(("case", "how"), heavy_product(CASES, [*WAYS]))
def test_saved_and_opened_again(case: Any, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if how == "h5netcdf":
        pytest.importorskip("h5netcdf")
    monkeypatch.setattr(chunk_sizes, "PREFERRED", 25 * DAY)
    (tmp_path / "data").mkdir()
    source = case(tmp_path / "data")
    if case not in (extract_zarr, extract_nc):
        aa.open(source).save(tmp_path / "index.nca")
        source = tmp_path / "index.nca"
    expected = xr.open_dataset(source, engine=Engine).load()
    dataset = xr.open_dataset(source, engine=Engine, chunks={})
    WAYS[how](dataset, tmp_path)
    result = reopened(tmp_path, how)
    for name, variable in expected.variables.items():
        assert result[name].dims == variable.dims and result[name].dtype == variable.dtype, name
        assert result[name].values.tobytes() == variable.values.tobytes(), name
        assert result[name].attrs == variable.attrs, name
    assert result.attrs["history"] == dataset.attrs["history"] and result.attrs["history"].endswith("made for a test")


@pytest.mark.parametrize("case", CASES)
def test_netcdf_keeps_chunks_and_compression(case: Any, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    source = case(tmp_path / "data")
    source = str(source / "*.nc") if source.is_dir() and source.suffix != ".zarr" else source
    dataset = xr.open_dataset(source, engine=Engine, chunks={})
    dataset.to_netcdf(tmp_path / "out.nc", engine="netcdf4")
    encoding = dataset["tas"].encoding
    with netCDF4.Dataset(tmp_path / "out.nc") as file:
        assert tuple(file["tas"].chunking()) == encoding["chunksizes"]
        filters = file["tas"].filters()
        assert {key: filters[key] for key in ("zlib", "shuffle", "fletcher32", "complevel")} == {
            key: encoding[key] for key in ("zlib", "shuffle", "fletcher32", "complevel")
        }


def test_encoding_equals_that_of_xarray_for_one_file(tmp_path: Path) -> None:
    write(tmp_path / "a.nc", 0, 40, 10, fletcher32=True, **DEFLATED)
    write(tmp_path / "b.nc", 0, 40, 10, scale=0.5, zlib=True, complevel=1, shuffle=False)
    write(tmp_path / "c.nc", 0, 40, None)
    for name in "abc":
        path = tmp_path / f"{name}.nc"
        expected = xr.open_dataset(path, engine="netcdf4")["tas"].encoding
        encoding = xr.open_dataset(path, engine=Engine)["tas"].encoding
        absent = {"szip", "zstd", "bzip2", "blosc", "preferred_chunks"}
        assert set(expected) - absent == set(encoding) - absent
        for key in set(encoding) - absent:
            assert encoding[key] == expected[key], key
        assert encoding["source"] == str(path) and encoding["original_shape"] == (40, 30, 40)


def test_the_source_is_the_index_or_the_first_file(tmp_path: Path) -> None:
    even(tmp_path)
    aa.open(tmp_path / "*.nc").save(tmp_path / "index.nca")
    indexed = xr.open_dataset(tmp_path / "index.nca", engine=Engine)
    files = xr.open_dataset(str(tmp_path / "*.nc"), engine=Engine)
    assert indexed["tas"].encoding["source"] == str(tmp_path / "index.nca")
    assert files["tas"].encoding["source"] == str(tmp_path / "000.nc")
    assert files["tas"].encoding["original_shape"] == files["tas"].shape == (180, 30, 40)
    (tmp_path / "000.nc").unlink()
    again = xr.open_dataset(tmp_path / "index.nca", engine=Engine, missing="fill")
    assert again["tas"].encoding["chunksizes"] == (6, 30, 40) and again["tas"].encoding["complevel"] == 3


def test_unequal_chunks_state_those_of_zarr(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunk_sizes, "PREFERRED", 25 * DAY)
    uneven(tmp_path)
    dataset = xr.open_dataset(str(tmp_path / "*.nc"), engine=Engine, chunks={})
    assert dataset["tas"].chunks[0] == (20, 20, 20, 30, 18, 18, 9, 4)
    assert dataset["tas"].encoding["chunks"] == (1, 30, 40) and "chunks" not in dataset["time"].encoding
    (tmp_path / "even").mkdir()
    monkeypatch.setattr(chunk_sizes, "PREFERRED", 20 * DAY)
    other = xr.open_dataset(str(even(tmp_path / "even") / "*.nc"), engine=Engine, chunks={})
    assert "chunks" not in other["tas"].encoding and other["tas"].chunks[0] == (12,) * 15
    other.chunk(time=50, lat=10).to_zarr(tmp_path / "rechunked.zarr", zarr_format=2)
    assert xr.open_zarr(tmp_path / "rechunked.zarr")["tas"].encoding["chunks"] == (50, 10, 40)


@pytest.mark.heavy
def test_real_archives_are_saved(shared_data: Path, tmp_path: Path) -> None:
    agg = aa.open(shared_data / "cmip6")
    longest = sorted(agg.arrays, key=lambda a: len(a.partitions))[-3:]
    for number, array in enumerate(longest):
        dataset = array.to_xarray(chunks={}).to_dataset(name="v")
        expected = array.to_xarray().load()
        dataset.to_zarr(tmp_path / f"{number}.zarr", zarr_format=2)
        dataset.to_netcdf(tmp_path / f"{number}.nc")
        for result in (xr.open_zarr(tmp_path / f"{number}.zarr"), xr.open_dataset(tmp_path / f"{number}.nc")):
            assert result["v"].values.tobytes() == expected.values.tobytes()
            assert result["time"].values.tobytes() == expected["time"].values.tobytes() or array.calendar


def test_history_of_files_that_differ_in_it(tmp_path: Path) -> None:
    even(tmp_path)
    with netCDF4.Dataset(tmp_path / "060.nc", "a") as file:
        file.history = "changed"
    line = "joined from 3 files by aggarray; the history of 000.nc follows\nmade for a test"
    agg = aa.open(tmp_path / "*.nc")
    agg.save(tmp_path / "index.nca")
    for dataset in (agg.to_xarray(), xr.open_dataset(tmp_path / "index.nca", engine=Engine)):
        assert dataset.attrs == {"history": line, "title": "days"}
    with netCDF4.Dataset(tmp_path / "000.nc", "a") as file:
        del file.history
    assert "history" not in aa.open(tmp_path / "*.nc").to_xarray().attrs
    (tmp_path / "000.nc").unlink()
    assert "history" not in xr.open_dataset(tmp_path / "index.nca", engine=Engine, missing="fill").attrs
