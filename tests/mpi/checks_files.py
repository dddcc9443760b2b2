"""Checks of collective reading, reducing and writing.

All processes run them together.
"""

import pickle
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import netCDF4
import numpy as np
import pytest
import xarray
import zarr

import aggarray as aa
from aggarray import mpi
from aggarray.dap import Block, Cyclic, Distribution, Unstructured
from aggarray.mpi import ProcessGroup, zarr_store
from aggarray.mpi.transport.agreement import call_on_root
from tests.mpi.checks import factors, raises_on_all, random_map, section
from tests.support.decoding import decoded

SHAPE = (24, 30, 40)


@contextmanager
def shared_folder(root: ProcessGroup) -> Iterator[Path]:
    """Provide a folder to all processes."""
    folder = call_on_root(root.link, lambda: Path(tempfile.mkdtemp(prefix="aggarray-mpi-")))
    try:
        yield folder
        root.link.allgather(None)
    finally:
        if root.rank == 0:
            shutil.rmtree(folder, ignore_errors=True)


def write_files(folder: Path, chunks: tuple[int, int, int] | None, files: int = 4, **how: Any) -> np.ndarray:
    """Write files along time, every other one with reversed latitudes.

    Returns the values.
    """
    full = np.random.default_rng(1).integers(0, 1000, SHAPE).astype("f4")
    steps = SHAPE[0] // files
    if how.get("uneven"):
        full[:-steps] = 7.0  # deflated, the last file takes most bytes
    full[3, 4, 5] = np.nan
    for number in range(files):
        part = full[number * steps : (number + 1) * steps]
        with netCDF4.Dataset(folder / f"part_{number}.nc", "w", format=how.get("format", "NETCDF4")) as file:
            axes = {
                "time": (np.arange(number * steps, (number + 1) * steps), "days since 2000-01-01"),
                "lat": (np.linspace(-80, 80, SHAPE[1])[:: -1 if number % 2 else 1], "degrees_north"),
                "lon": (np.arange(SHAPE[2]) * 9.0, "degrees_east"),
            }
            for name, (values, units) in axes.items():
                file.createDimension(name, len(values))
                file.createVariable(name, "f8", (name,))[:] = values
                file[name].units = units
            zlib = {"zlib": True, "shuffle": True} if how.get("deflated", True) and "format" not in how else {}
            sizes = {"chunksizes": chunks} if chunks else {}
            tas = file.createVariable("tas", "f4", ("time", "lat", "lon"), fill_value=np.float32(-999), **zlib, **sizes)
            tas.setncatts({"units": "K", "long_name": "air temperature"})
            tas[:] = np.where(np.isnan(part), -999, part)[:, :: -1 if number % 2 else 1]
    return full


def across(root: ProcessGroup) -> list[Distribution]:
    """Return distributions of all types, across the chunks or along them."""
    n, (t, y, x) = root.size, SHAPE
    rng = np.random.default_rng(n)
    grid = factors(n, 3, rng)
    order = rng.permutation(y)
    return [
        Distribution.regular(SHAPE, "bbb", (1, n, 1)),
        Distribution.regular(SHAPE, "bbb", (1, 1, n), padding={2: (1, 1)} if n < 20 else {}, periodic=(2,), outer="wrap"),
        Distribution.regular(SHAPE, "cbb", (n, 1, 1)),
        Distribution.regular(SHAPE, "bcb", grid, block_size={1: 2}),
        Distribution((Block.even(t, 1), Unstructured(y, np.array_split(order, n)), Cyclic(x, 1))),
        # A part of the array, on all processes.
        Distribution((Unstructured(2, [[5, 9]] * n), Block.even(y, 1), Block.even(x, 1))),
        Distribution(tuple(random_map(size, k, rng) for size, k in zip(SHAPE, grid, strict=True))),
    ]


def check_reading(root: ProcessGroup) -> None:
    """Sections equal those of NumPy, and each chunk is decoded once."""
    layouts: list[tuple[Any, dict[str, Any], int]] = [
        ((1, 30, 40), {}, 24),
        ((4, 10, 25), {}, 4 * 2 * 3 * 2),
        ((6, 30, 40), {}, 4),
        (None, {"format": "NETCDF3_CLASSIC"}, 0),
        ((6, 10, 40), {"deflated": False}, 0),
    ]
    for chunks, how, count in layouts:
        with shared_folder(root) as folder:
            full = call_on_root(root.link, lambda f=folder, c=chunks, h=how: write_files(f, c, **h))  # type: ignore[misc]
            tas = mpi.open(str(folder), root)["tas"]
            assert np.array_equal(tas.coords["lat"][:], np.linspace(-80, 80, 30))
            with mock.patch("aggarray.mpi.reading._SMALL", 0):
                for distribution in across(root):
                    with decoded() as decodes:
                        result = mpi.local(tas, distribution, root)
                        assert result._buffer is not None
                        root.link.allgather(None)
                    expected = section(full, distribution, root.rank or 0)
                    assert result.shape == expected.shape and np.array_equal(result.buffer, expected, equal_nan=True)
                    assert result.distribution == distribution and result.rank == root.rank and result.buffer.flags.writeable
                    counts = root.link.allgather(decodes[0])
                    if distribution.shape == SHAPE:
                        _check_decoded_once(root, counts, count)
            moved = Distribution.regular(SHAPE, "bbb", (1, root.size, 1))
            lazily = mpi.local(tas, moved, root, collective=False)
            assert lazily._buffer is None
            assert np.array_equal(lazily.buffer, section(full, moved, root.rank or 0), equal_nan=True)
            small = mpi.local(tas.coords["lat"], Distribution.regular((30,), "c", (root.size,)), root)
            assert np.array_equal(small.buffer, np.linspace(-80, 80, 30)[root.rank :: root.size])
            handed = mpi.local(tas, moved, root)  # read by process 0
            assert np.array_equal(handed.buffer, lazily.buffer, equal_nan=True)


def _check_decoded_once(root: ProcessGroup, counts: list[int], expected: int) -> None:
    """Check that each chunk was decoded once, with a balanced load."""
    assert sum(counts) == expected, (counts, expected)
    assert max(counts) <= 2 * expected / root.size + 1, counts


def check_virtual_arrays(root: ProcessGroup) -> None:
    """Read virtual and missing partitions, selections and values in memory."""
    with shared_folder(root) as folder, mock.patch("aggarray.mpi.reading._SMALL", 0):
        full = call_on_root(root.link, lambda: write_files(folder, (4, 10, 25)))
        tas = mpi.open(str(folder), root)["tas"]
        order = [7, 3, 3, 20, 21, 23, 1]
        cases = [
            (tas.lazy[::-1, 2:29:3], full[::-1, 2:29:3]),
            (tas.lazy[order, :, ::-2], full[order][..., ::-2]),
            (tas.transpose("lon", "time", "lat").astype("f8"), full.transpose(2, 0, 1).astype("f8")),
            (tas.lazy[5], full[5]),
        ]
        for array, values in cases:
            n = root.size
            grid = (n,) + (1,) * (array.ndim - 1)
            for dist_types, places in (("b", grid), ("c", grid[::-1])):
                distribution = Distribution.regular(array.shape, dist_types * array.ndim, places)
                result = mpi.local(array, distribution, root)
                assert np.array_equal(result.buffer, section(values, distribution, root.rank or 0), equal_nan=True)
        pieces = [([(0, 2)], aa.SubArray.from_array([1.0, 2.0])), ([(5, 7)], aa.SubArray.from_array([3.0, 4.0]))]
        holed = aa.MasterArray.from_subarrays(pieces, dimensions=("x",))
        every = Distribution.regular(holed.shape, "c", (root.size,))
        expected = np.array([1, 2, np.nan, np.nan, np.nan, 3, 4])[root.rank :: root.size]
        assert np.array_equal(mpi.local(holed, every, root).buffer, expected, equal_nan=True)


def raises_here(words: str, call: Callable[[], Any]) -> None:
    """Check that this process raises an error."""
    with pytest.raises(aa.ExchangeError, match=words):
        call()


def check_opening(root: ProcessGroup) -> None:
    """Process 0 opens files or an index; its errors are raised on all."""
    with shared_folder(root) as folder:
        full = call_on_root(root.link, lambda: write_files(folder, (6, 30, 40)))
        opened = mock.Mock(wraps=aa.open)
        with mock.patch("aggarray.opening.sources.open", opened) if root.rank == 0 else mock.patch("os.getpid", wraps=int):
            agg = mpi.open(str(folder), root, variables=["tas"])
        assert agg.names == ("tas",) and np.array_equal(agg["tas"][3], full[3], equal_nan=True)
        if root.rank == 0:
            agg.save(folder / "index.nca")
        root.link.allgather(None)
        again = mpi.open(str(folder / "index.nca"), root)
        # The index is not opened again.
        root.link.allgather(None)
        if root.rank == 0:
            (folder / "index.nca").rename(folder / "gone.nca")
        root.link.allgather(None)
        assert np.array_equal(again["tas"][:], full, equal_nan=True)
        assert dict(again["tas"].attrs) == dict(agg["tas"].attrs) and again["tas"].coords.keys() == agg["tas"].coords.keys()
        # Some of the processes, in another order.
        with root.include(list(range(root.size))[::-2]) as some:
            if some.rank is None:
                raises_here("inactive", lambda: mpi.open(str(folder), some))
            else:
                own = mpi.open(str(folder), some)["tas"]
                across_ = Distribution.regular(SHAPE, "bbb", (1, some.size, 1))
                with mock.patch("aggarray.mpi.reading._SMALL", 0):
                    mine = mpi.local(own, across_, some)
                assert np.array_equal(mine.buffer, section(full, across_, some.rank), equal_nan=True)
                assert mpi.reduce(mine, "count", None, some).buffer == full.size - 1
        with pytest.raises(aa.MissingFileError):
            mpi.open(str(folder / "nothing.nc"), root)
        with pytest.raises(aa.NotFoundError):
            mpi.open(str(folder), root, variables=["pr"])
        d = Distribution.regular(SHAPE, "bbb", (root.size, 1, 1))
        raises_on_all(
            root,
            "but the group has",
            lambda: mpi.local(agg["tas"], Distribution.regular(SHAPE, "bbb", (root.size, 2, 1)), root),
        )
        raises_on_all(root, "the distribution has shape", lambda: mpi.local(agg["tas"].lazy[1], d, root))
        raises_on_all(root, "is not a MasterArray", lambda: mpi.local(full, d, root))
        if root.rank == 0:
            (folder / "part_2.nc").write_bytes(b"gone")
        root.link.allgather(None)
        with mock.patch("aggarray.mpi.reading._SMALL", 0), pytest.raises(aa.FormatError, match=r"part_2\.nc"):
            mpi.local(agg["tas"], Distribution.regular(SHAPE, "bbb", (1, root.size, 1)), root)


def check_uneven_costs(root: ProcessGroup) -> None:
    """All processes compute the distribution of process 0."""
    with shared_folder(root) as folder:
        full = call_on_root(root.link, lambda: write_files(folder, (6, 30, 40), uneven=True))
        index = folder / "index.nca"
        call_on_root(root.link, lambda: bool(aa.open(folder).save(index)))
        alone = call_on_root(root.link, lambda: aa.open(index)["tas"].partitions.costs()[0].tolist())
        assert max(alone) > 2 * min(alone)
        opened = mpi.open(str(index), root)["tas"]
        again = pickle.loads(pickle.dumps(opened))
        for array, values in (
            (opened, full),
            (again, full),
            (opened.lazy[3:, ::-1], full[3:, ::-1]),
        ):
            for balance in ("contiguous", "cost"):
                across_ = Distribution.from_partitions(array, (root.size, 1, 1), balance=balance)
                with mock.patch("aggarray.mpi.reading._SMALL", 0):
                    mine = mpi.local(array, across_, root)
                assert np.array_equal(mine.buffer, section(values, across_, root.rank), equal_nan=True)
            assert len({tuple(c) for c in root.link.allgather(array.partitions.costs()[0].tolist())}) == 1
        assert opened.partitions.costs()[0].tolist() == again.partitions.costs()[0].tolist() == alone


_NUMPY: dict[str, Callable[..., Any]] = {
    "sum": np.nansum,
    "mean": np.nanmean,
    "min": np.nanmin,
    "max": np.nanmax,
    "std": np.nanstd,
    "count": lambda values, axis: (~np.isnan(values)).sum(axis=axis),
}


def check_reducing(root: ProcessGroup) -> None:
    """Reductions of any distribution equal NumPy's without missing values."""
    with shared_folder(root) as folder:
        full = call_on_root(root.link, lambda: write_files(folder, (6, 30, 40)))
        tas = mpi.open(str(folder), root)["tas"]
        for number, distribution in enumerate(d for d in across(root) if d.shape == SHAPE):
            local = mpi.local(tas, distribution, root)
            for operation, dimensions in (
                *((one, "time") for one in _NUMPY),
                *((one, ("lon", "time")) for one in _NUMPY),
                ("mean", None),
                ("std", ("time", "lat", "lon")),
                ("sum", ()),
            )[number % 2 :: 2]:
                result = mpi.reduce(local, operation, dimensions, root)
                names = (
                    ("time", "lat", "lon")
                    if dimensions is None
                    else (dimensions,)
                    if isinstance(dimensions, str)
                    else dimensions
                )
                axes = tuple(d for d, name in enumerate(("time", "lat", "lon")) if name in names)
                expected = section(
                    np.asarray(_NUMPY[operation](full.astype("f8"), axis=axes)), result.distribution, result.rank
                )
                assert result.shape == expected.shape
                assert np.allclose(result.buffer, expected, rtol=1e-12, atol=0, equal_nan=True), (operation, dimensions)
                kind = {"count": "i8", "min": "f4", "max": "f4"}.get(operation, "f8")
                assert result.dtype == kind
        every = mpi.local(tas, Distribution.regular(SHAPE, "bbb", (root.size, 1, 1)), root)
        for wrong in (("time",) * 2, "height", 3):
            raises_on_all(root, "dimension", lambda w=wrong: mpi.reduce(every, "mean", w, root))  # type: ignore[misc]
        raises_on_all(root, "operation 'median'", lambda: mpi.reduce(every, "median", "time", root))
        raises_on_all(root, "has no method __distarray__", lambda: mpi.reduce(full, "mean", "time", root))
    # Integers have a fill value; extremes keep their type; large means do not spoil deviations.
    numbers = np.arange(3 * root.size * 2, dtype="i4").reshape(3, -1) + 2**30
    numbers[0, 0], numbers[:, 1] = -1, -1
    piece = aa.SubArray.from_array(numbers, dimensions=("y", "x"), fill_value=-1)
    array = aa.MasterArray.from_subarrays([([(0, n) for n in numbers.shape], piece)], dimensions=("y", "x"), name="n")
    local = mpi.local(array, Distribution.regular(numbers.shape, "bc", (1, root.size)), root)
    masked = np.ma.masked_equal(numbers, -1)
    lowest = mpi.reduce(local, "min", "y", root)
    assert lowest.dtype == "i4"
    assert np.array_equal(lowest.buffer, section(masked.min(axis=0).filled(-1), lowest.distribution, lowest.rank))
    assert np.isclose(mpi.reduce(local, "std", None, root).buffer, masked.astype("f8").std(), rtol=1e-12, atol=0)
    assert np.isnan(mpi.reduce(local, "mean", "y", root).buffer[1]) == (root.size == 1) or root.rank


def check_writing(root: ProcessGroup) -> None:
    """zarr and xarray read the written arrays; each chunk has one writer."""
    n, me = root.size, root.rank or 0
    with shared_folder(root) as folder:
        full = call_on_root(root.link, lambda: write_files(folder, (6, 30, 40)))
        tas = mpi.open(str(folder / "part_*.nc"), root)["tas"]
        for number, distribution in enumerate(across(root)):
            local = mpi.local(tas, distribution, root)
            store = folder / f"out_{number}.zarr"
            written = _written(root, lambda a=local, s=store: mpi.write(a, root, s))  # type: ignore[misc]
            assert written and len(written) == len(set(written)), "two processes wrote one chunk"
            times = np.arange(24) if distribution.shape == SHAPE else np.array([5, 9])
            call_on_root(root.link, lambda s=store, t=times: _is_stored(s, t, full[t]))  # type: ignore[misc]
        mean = mpi.reduce(mpi.local(tas, across(root)[3], root), "mean", "time", root)
        mpi.write(mean, root, store, "climatology")
        with xarray.open_zarr(store) as dataset:
            assert np.allclose(dataset["climatology"], np.nanmean(full.astype("f8"), axis=0), rtol=1e-12, atol=0)
            assert dataset["climatology"].dims == ("lat", "lon")
            assert dataset["climatology"].attrs["cell_methods"] == "time: mean"
        total = mpi.reduce(mean, "count", None, root)
        mpi.write(total, root, store, "cells")
        assert zarr.open_group(store, mode="r")["cells"][()] == 30 * 40
        plain = Distribution.regular((5, 7), "cb", (1, n))
        values = np.arange(35, dtype=">i2").reshape(5, 7)
        exporter = Exporter(section(values, plain, me), plain.dim_data(me))
        mpi.write(exporter, root, folder / "plain.zarr", "numbers")
        back = zarr.open_group(folder / "plain.zarr", mode="r")["numbers"]
        assert np.array_equal(back[:], values) and back.metadata.dimension_names == ("dim_0", "dim_1")
        raises_on_all(root, "exists.*variable 'cells' in", lambda: mpi.write(total, root, store, "cells"))
        raises_on_all(root, "invalid name .*; give the array a name", lambda: mpi.write(exporter, root, folder / "x.zarr"))
        raises_on_all(root, "has no method __distarray__", lambda: mpi.write(values, root, folder / "x.zarr", "x"))
        raises_on_all(root, "not a Zarr store", lambda: mpi.write(total, root, folder, "x"))
        if n > 1:
            one = Distribution.regular((4,), "b", (n,)).dim_data(0)
            export = Exporter(np.zeros(-(-4 // n)), one)
            raises_on_all(root, "proc_grid_rank", lambda: mpi.write(export, root, folder / "x.zarr", "x"))


def check_source_files(root: ProcessGroup) -> None:
    """A written file or store lists the source files of its arrays, also of reduced ones."""
    with shared_folder(root) as folder:
        call_on_root(root.link, lambda: write_files(folder, (6, 30, 40)))
        call_on_root(root.link, lambda: _identify(folder / "part_3.nc", "hdl:21.14100/1"))
        sources = [str(folder / f"part_{number}.nc") for number in (1, 2, 3)]
        for suffix in (".nc", ".zarr"):
            path, listed = folder / f"listed{suffix}", list[list[str]]()
            for name, count in (("mean", 2), ("all", 3)):
                tas = mpi.open(sources[:count], root)["tas"]
                local = mpi.local(tas, Distribution.regular(tas.shape, "bbb", (root.size, 1, 1)), root)
                mpi.write(mpi.reduce(local, "mean", "time", root, weights="time" if name == "all" else None), root, path, name)
                listed.append(_listed(path)["uri"])
            assert listed == [sources[:2], sources]
            assert _listed(path)["tracking_id"] == ["", "", "hdl:21.14100/1"]
            with xarray.open_dataset(path, engine="netcdf4" if suffix == ".nc" else "zarr") as dataset:
                assert {*dataset.data_vars} == {"mean", "all"} and "source_file" not in dataset.dims
            assert {*aa.open(path).names} == {"mean", "all"}


def _identify(path: Path, identifier: str) -> None:
    with netCDF4.Dataset(path, "a") as file:
        file.tracking_id = identifier


def _listed(path: Path) -> dict[str, list[str]]:
    with xarray.open_dataset(path, group="source_files", engine="netcdf4" if path.suffix == ".nc" else "zarr") as listed:
        return {str(name): listed[name].values.tolist() for name in listed.variables}


def _is_stored(store: Path, times: np.ndarray, values: np.ndarray) -> None:
    tas = (result := zarr.open_group(store, mode="r"))["tas"]
    assert np.array_equal(tas[:], values, equal_nan=True) and tas.metadata.dimension_names == ("time", "lat", "lon")
    assert tas.attrs["long_name"] == "air temperature" and tas.attrs["units"] == "K"
    assert result["time"][:].tolist() == times.tolist() and result["time"].attrs["units"].startswith("days since 2000")
    again = aa.open(store)["tas"]
    assert again.units == "K" and np.array_equal(again[:], values, equal_nan=True)


class Exporter:
    """Export of another library."""

    def __init__(self, values: np.ndarray, dim_data: Any) -> None:
        self._export = {"__version__": "0.10.0", "buffer": values, "dim_data": dim_data}

    def __distarray__(self) -> dict[str, Any]:
        return self._export


def _written(root: ProcessGroup, write: Callable[[], None]) -> list[str]:
    """Return the written chunks, once per process that wrote them."""
    keys: list[str] = []
    put = zarr_store._write_file

    def noting(path: str, content: Any) -> None:
        keys.append(path)
        put(path, content)

    with mock.patch.object(zarr_store, "_write_file", noting):
        write()
    return [key for result in root.link.allgather(keys) for key in result]


FILE_CHECKS: tuple[Callable[[ProcessGroup], None], ...] = (
    check_reading,
    check_virtual_arrays,
    check_opening,
    check_uneven_costs,
    check_reducing,
    check_writing,
    check_source_files,
)
