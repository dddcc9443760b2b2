"""Checks of netCDF-4 files that all processes write.

All processes run them together.
"""

import contextlib
import itertools
import shutil
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest import mock

import h5py
import netCDF4
import numpy as np
import pytest
import xarray

import aggarray as aa
from aggarray import mpi
from aggarray.dap import Block, Cyclic, Distribution, Unstructured
from aggarray.mpi import ProcessGroup, encoded_chunks
from aggarray.mpi.transport.agreement import call_on_root
from tests.mpi.checks import raises_on_all, section
from tests.mpi.checks_files import SHAPE, Exporter, across, shared_folder, write_files

DTYPES = ("i1", "i2", ">i4", "i8", "u1", "u2", "u4", "u8", "f4", ">f8")


def _is_read_by_all(path: Path, name: str, expected: np.ndarray) -> None:
    """Check that netCDF4, h5py, xarray, aggarray and, if installed, ncdump read equal values."""
    with netCDF4.Dataset(path) as file:
        values = file[name][...]
        assert file.data_model == "NETCDF4" and file[name].dtype == expected.dtype.newbyteorder("=")
        filled = np.ma.filled(values, np.nan) if expected.dtype.kind == "f" else values
        assert np.array_equal(filled, expected, equal_nan=expected.dtype.kind == "f")
    with h5py.File(path) as file:
        stored = file[name][()]
        fill = file[name].attrs.get("_FillValue", [np.nan])[0]
        assert np.array_equal(stored, np.where(expected != expected, fill, expected), equal_nan=expected.dtype.kind == "f")
    with xarray.open_dataset(path, decode_times=False) as dataset:
        assert np.array_equal(dataset[name].values, expected, equal_nan=expected.dtype.kind == "f")
    assert np.array_equal(aa.open(path)[name][...], expected, equal_nan=expected.dtype.kind == "f")
    if ncdump := shutil.which("ncdump"):
        done = subprocess.run([ncdump, "-v", name, str(path)], capture_output=True, text=True, check=True)
        assert f"\n {name} =" in done.stdout


def check_netcdf(root: ProcessGroup) -> None:
    """Values, coordinates and attributes of all distributions are those of the source."""
    with shared_folder(root) as folder:
        full = call_on_root(root.link, lambda: write_files(folder, (6, 30, 40)))
        tas = mpi.open(str(folder / "part_*.nc"), root)["tas"]
        for number, distribution in enumerate(across(root)):
            path = folder / f"out_{number}.nc"
            mpi.write(mpi.local(tas, distribution, root), root, path)
            times = np.arange(24) if distribution.shape == SHAPE else np.array([5, 9])
            call_on_root(root.link, lambda p=path, v=full[times]: _is_read_by_all(p, "tas", v))  # type: ignore[misc]
            if root.rank == 0:
                with netCDF4.Dataset(path) as file:
                    result = file["tas"]
                    assert result.dimensions == ("time", "lat", "lon") and file.dimensions["time"].isunlimited()
                    assert (result.units, result.long_name, result._FillValue) == ("K", "air temperature", np.float32(-999))
                    assert result.filters()["zlib"] and result.filters()["complevel"] == 4 and result.filters()["shuffle"]
                    assert file["time"][:].tolist() == times.tolist() and file["time"].units == "days since 2000-01-01"
                    assert file["lat"][:].tolist() == np.linspace(-80, 80, 30).tolist()
                    assert "aggarray.mpi.write of tas(" in file.history
                _equals_zarr(aa.open(path)["tas"], tas.lazy[times])
        mean = mpi.reduce(mpi.local(tas, across(root)[3], root), "mean", "time", root)
        mpi.write(mean, root, path, "climatology")
        mpi.write(mpi.reduce(mean, "count", None, root), root, path, "cells")
        call_on_root(root.link, lambda: _is_read_by_all(path, "climatology", np.nanmean(full.astype("f8"), axis=0)))
        call_on_root(root.link, lambda: _is_read_by_all(path, "cells", np.asarray(1200)))
        if root.rank == 0:
            with xarray.open_dataset(path) as dataset:
                assert dataset["climatology"].attrs["cell_methods"] == "time: mean"
                assert list(dataset.sizes) == ["time", "lat", "lon"] and dataset.sizes["time"] == 24


def _equals_zarr(result: aa.MasterArray, source: aa.MasterArray) -> None:
    assert (result.units, result.calendar, result.dimensions) == (source.units, source.calendar, source.dimensions)
    assert result.coords.keys() == source.coords.keys()
    for name, coordinate in source.coords.items():
        own = result.coords[name]
        assert (own.units, own.calendar, own.dimensions) == (coordinate.units, coordinate.calendar, coordinate.dimensions)
        assert np.array_equal(own[...], coordinate[...])


def check_netcdf_ragged(root: ProcessGroup) -> None:
    """Of a ragged array the samples are written."""
    counts = np.arange(9)
    with shared_folder(root) as folder:
        source, samples = str(folder / "stations.nc"), np.arange(36, dtype="f4")
        if root.rank == 0:
            with netCDF4.Dataset(source, "w") as file:
                file.featureType = "timeSeries"
                file.createDimension("station", 9)
                file.createDimension("obs", 36)
                rows = file.createVariable("row_size", "i4", ("station",))
                rows.sample_dimension, rows[:] = "obs", counts
                heights = file.createVariable("height", "f4", ("obs",))
                heights.units, heights[:] = "m", samples
        root.link.allgather(None)
        heights = mpi.open(source, root)["height"]
        assert heights.shape == (9,)
        local = mpi.local(heights, Distribution.regular((9,), "b", (root.size,)), root)
        mpi.write(local, root, folder / "out.nc")
        call_on_root(root.link, lambda: _is_read_by_all(folder / "out.nc", "height", samples))
        assert aa.open(folder / "out.nc")["height"].units == "m"
        root.link.allgather(None)


def _layouts(shape: tuple[int, int], n: int) -> list[Distribution]:
    (y, x), rng = shape, np.random.default_rng(n)
    order = rng.permutation(x)
    empty = [0, y, *[y] * (n - 1)]
    return [
        Distribution.regular(shape, "bb", (n, 1)),
        Distribution.regular(shape, "bb", (1, n), padding={1: (2, 2)}),
        Distribution.regular(shape, "bc", (1, n), block_size={1: 3}),
        Distribution((Cyclic(y, n), Block.even(x, 1))),
        Distribution((Block.even(y, 1), Unstructured(x, np.array_split(order, n)))),
        Distribution((Block(empty), Block.even(x, 1))),  # all but one section are empty
    ]


def check_netcdf_dtypes(root: ProcessGroup) -> None:
    """All dtypes of netCDF, and times and flags, in all distributions; of many processes, some pairs of these."""
    n, me = root.size, root.rank or 0
    shape, rng = (7, 50), np.random.default_rng(0)
    layouts = _layouts(shape, n)
    pairs = itertools.product(layouts, DTYPES) if n <= 2 else zip(itertools.cycle(layouts), DTYPES, strict=False)
    with shared_folder(root) as folder:
        for number, (distribution, dtype) in enumerate(pairs):
            values = rng.integers(0, 100, shape).astype(dtype)
            if values.dtype.kind == "f":
                values[2, 3] = np.nan
            path = folder / f"{number}.nc"
            export = Exporter(section(values, distribution, me), distribution.dim_data(me))
            mpi.write(export, root, path, "v")
            call_on_root(root.link, lambda p=path, v=values: _is_read_by_all(p, "v", v))  # type: ignore[misc]
        times = np.array("2001-02-03", "M8[h]") + rng.integers(0, 9000, shape).astype("m8[h]")
        times[1, 1] = np.datetime64("NaT", "h")
        for values in (rng.random(shape) < 0.5, times, times.astype("M8[ns]"), times.astype("M8[W]")):
            path = folder / f"{values.dtype.str[1:]}.nc"
            piece = aa.SubArray.from_array(values, dimensions=("y", "x"))
            array = aa.MasterArray.from_subarrays([([(0, 7), (0, 50)], piece)], dimensions=("y", "x"), name="v")
            names = {"v": layouts[1], "w": layouts[2]}
            for name, distribution in names.items():
                mpi.write(mpi.local(array, distribution, root), root, path, name)
            if me == 0:
                with xarray.open_dataset(path) as dataset:
                    for name in names:
                        result = dataset[name].values
                        assert result.dtype.kind == values.dtype.kind
                        assert np.array_equal(result, values, equal_nan=values.dtype.kind == "M")
            root.link.allgather(None)
        for wrong in ("c8", "f2", "g"):
            zeros = Exporter(section(np.zeros(shape, wrong), distribution, me), distribution.dim_data(me))
            raises_on_all(root, "(cannot be written|no type for)", lambda z=zeros: mpi.write(z, root, folder / "c.nc", "v"))  # type: ignore[misc]
        assert not (folder / "c.nc").exists()


def check_netcdf_files(root: ProcessGroup) -> None:
    """Files are extended, never damaged; conflicts and failures raise on all processes."""
    with shared_folder(root) as folder:
        full = call_on_root(root.link, lambda: write_files(folder, (6, 30, 40)))
        tas = mpi.open(str(folder / "part_*.nc"), root)["tas"]
        local = mpi.local(tas, Distribution.regular(SHAPE, "bbb", (1, root.size, 1)), root)
        path = folder / "out.nc"
        mpi.write(local, root, path, compress="zlib:1")
        for wrong, words in (
            ("tas", "already exists.*variable 'tas' in"),
            ("a/b", "invalid name"),
            ("time", "that of a dimension.*'time_2'"),
        ):
            raises_on_all(root, words, lambda w=wrong: mpi.write(local, root, path, w))  # type: ignore[misc]
        for elsewhere in ("s3://bucket/out.nc", "file:///out.zarr", "", b"out.nc", None):
            raises_on_all(root, "invalid path .*; give the path of a local", lambda e=elsewhere: mpi.write(local, root, e))  # type: ignore[misc]
        later = mpi.local(tas.lazy[1:], Distribution.regular((23, 30, 40), "bbb", (1, root.size, 1)), root)
        raises_on_all(root, "'time' has size 23, that of the file has size 24", lambda: mpi.write(later, root, path, "later"))
        turned = mpi.local(tas.flip("lat"), Distribution.regular(SHAPE, "bbb", (1, root.size, 1)), root)
        raises_on_all(root, "the stored coordinate 'lat' differs", lambda: mpi.write(turned, root, path, "turned"))
        raises_on_all(root, "compress='lzma'.*give zlib:1 to 9", lambda: mpi.write(local, root, path, "x", compress="lzma"))
        before = call_on_root(root.link, path.read_bytes)
        with mock.patch("aggarray.mpi.netcdf_file.encode", _failing(root.rank != 0 or root.size == 1)):
            raises_on_all(root, "MemoryError: too much", lambda: mpi.write(local, root, path, "again"))
        refused = mock.Mock(side_effect=RuntimeError("can't start new thread"))
        submit = refused if root.rank or root.size == 1 else ThreadPoolExecutor.submit
        with mock.patch.object(ThreadPoolExecutor, "submit", submit):
            raises_on_all(root, "can't start new thread", lambda: mpi.write(local, root, path, "again"))
        call_on_root(root.link, lambda: (folder / "text.nc").write_text("not a file of netCDF") and None)
        (root.rank or 0) or (folder / "place.nc").mkdir()
        with pytest.raises(aa.ExchangeError, match="not a netCDF-4 file"):
            mpi.write(local, root, folder / "text.nc")
        with pytest.raises(aa.ExchangeError, match="not a netCDF-4 file"):
            mpi.write(local, root, folder / "place.nc")
        assert call_on_root(root.link, path.read_bytes) == before
        call_on_root(root.link, lambda: aa.open(folder / "part_0.nc").save(folder / "index.nc") and None)
        raises_on_all(root, "is an index", lambda: mpi.write(local, root, folder / "index.nc"))
        writer = netCDF4.Dataset(path, "a") if root.rank == 0 else contextlib.nullcontext()
        raises_on_all(root, "is open for writing", lambda: mpi.write(local, root, path, "again"))
        with writer:
            root.link.allgather(None)
        mpi.write(local, root, path, "again", compress="none")
        call_on_root(root.link, lambda: _is_read_by_all(path, "again", full))
        if root.rank == 0:
            with netCDF4.Dataset(path) as file:
                assert [file[name].filters()["zlib"] for name in ("tas", "again")] == [True, False]
            assert not [p for p in folder.iterdir() if p.name.startswith(".")]
        root.link.allgather(None)


def _failing(fails: bool) -> Callable[..., bytes]:
    from aggarray.output.netcdf_file import encode

    def call(*arguments: Any) -> bytes:
        if fails:
            raise MemoryError("too much")
        return encode(*arguments)

    return call


def check_netcdf_batches(root: ProcessGroup) -> None:
    """Many small batches: process 0 receives few bytes at a time; after an error the others stop."""
    n, me = root.size, root.rank or 0
    values = np.random.default_rng(0).random((64, 300))
    distribution = Distribution.regular(values.shape, "bb", (n, 1))
    with shared_folder(root) as folder:
        local = Exporter(section(values, distribution, me), distribution.dim_data(me))
        small = mock.patch.multiple("aggarray.partition.block_shapes", _MIN_BYTES=1 << 8, _MAX_BYTES=1 << 9)
        batches = mock.patch.multiple(encoded_chunks, _BATCH_BYTES=1 << 10, _IN_FLIGHT=1 << 11, _MOST_CHUNKS=3)
        with small, batches:
            mpi.write(local, root, folder / "small.nc", "v", compress="zlib:1")
            call_on_root(root.link, lambda: _is_read_by_all(folder / "small.nc", "v", values))
            placed = [0]

            def placing(_file: Any, _variable: Any) -> Callable[..., None]:
                def place(*_arguments: Any) -> None:
                    placed[0] += 1
                    if placed[0] > 4:
                        raise ValueError("no more")

                return place

            with mock.patch("aggarray.mpi.netcdf_file.chunk_placer", placing):
                raises_on_all(root, "ValueError: no more", lambda: mpi.write(local, root, folder / "b.nc", "v"))
        assert not (folder / "b.nc").exists()
        root.link.allgather(None)


NETCDF_CHECKS: tuple[Callable[[ProcessGroup], None], ...] = (
    check_netcdf,
    check_netcdf_dtypes,
    check_netcdf_ragged,
    check_netcdf_files,
    check_netcdf_batches,
)
