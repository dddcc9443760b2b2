"""Checks of the files that each process opens.

All processes run them together.
"""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import netCDF4
import numpy as np
import pytest

import aggarray as aa
from aggarray import mpi
from aggarray.dap import Distribution
from aggarray.mpi import ProcessGroup
from aggarray.mpi.transport.agreement import call_on_root
from aggarray.read import close_files
from aggarray.read.chunk_index import chunk_tables
from tests.mpi.checks import section
from tests.mpi.checks_files import SHAPE, shared_folder, write_files

_listeners: list[list[str]] = []


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open" and _listeners and isinstance(arguments[0], str | bytes):
        _listeners[-1].append(os.fsdecode(arguments[0]))


sys.addaudithook(_note)  # stays until the process ends


@contextmanager
def opens_in(folder: Path) -> Iterator[list[str]]:
    """Collect the names of the files of a folder that this process opens, with Python or with the library of the format."""
    opened: list[str] = []
    names: list[str] = []
    _listeners.append(opened)
    try:
        with mock.patch("aggarray.formats.open_file", side_effect=AssertionError("metadata of a file is parsed")):
            yield names
    finally:
        _listeners.remove(opened)
        names += [Path(path).name for path in opened if Path(path).parent == folder]


def _forget() -> None:
    chunk_tables.clear()
    close_files()


def _save_index(folder: Path, **how: Any) -> np.ndarray:
    full = write_files(folder, (6, 10, 40), **how)
    aa.open(folder).save(folder / "index.nca")
    return full


def check_opened_files(root: ProcessGroup) -> None:
    """One process opens the index; each opens the data files that it reads, once."""
    with shared_folder(root) as folder:
        full = call_on_root(root.link, lambda: _save_index(folder))
        _forget()
        with opens_in(folder) as opened:
            tas = mpi.open(str(folder / "index.nca"), root)["tas"]
        assert set(opened) == ({"index.nca"} if root.rank == 0 else set()), opened
        rows = Distribution.regular(SHAPE, "bbb", (root.size, 1, 1))
        start, stop = rows.maps[0].indices(root.rank or 0)[[0, -1]] if rows.local_shape(root.rank or 0)[0] else (0, -1)
        own = [f"part_{number}.nc" for number in range(start // 6, stop // 6 + 1)]
        with opens_in(folder) as opened:
            assert np.array_equal(tas.local(rows, root.rank).buffer, section(full, rows, root.rank or 0), equal_nan=True)
        assert sorted(set(opened) - {"index.nca"}) == own and len(set(opened)) == len(opened), (opened, own)
        assert root.rank == 0 or "index.nca" not in opened
        across = Distribution.regular(SHAPE, "bbb", (1, root.size, 1))
        for distribution in (rows, across):
            _forget()
            with opens_in(folder) as opened, mock.patch("aggarray.mpi.reading._SMALL", 0):
                result = mpi.local(tas, distribution, root)
            assert np.array_equal(result.buffer, section(full, distribution, root.rank or 0), equal_nan=True)
            assert len(set(opened)) == len(opened) and "index.nca" not in opened, opened
        root.link.allgather(None)


def check_changed_files(root: ProcessGroup) -> None:
    """Received chunk positions apply to unchanged files and copies only."""
    with shared_folder(root) as folder:
        full = call_on_root(root.link, lambda: _save_index(folder))
        tas = mpi.open(str(folder / "index.nca"), root)["tas"]
        root.link.allgather(None)
        call_on_root(root.link, lambda: os.utime(folder / "part_1.nc", (1, 1)))  # a copy
        _forget()
        assert np.array_equal(tas[:], full, equal_nan=True)
        root.link.allgather(None)
        call_on_root(root.link, lambda: (folder / "part_1.nc").write_bytes((folder / "part_2.nc").read_bytes()) and None)
        _forget()
        with pytest.raises(aa.IndexFileError, match=r"changed since it was scanned.*part_1\.nc"):
            tas[:]
        root.link.allgather(None)


def check_sent_tables(root: ProcessGroup) -> None:
    """Arrays share the received tables; large ones are not sent."""
    with shared_folder(root) as folder:
        full = call_on_root(root.link, lambda: _two_variables(folder))
        agg = mpi.open(str(folder / "index.nca"), root)
        tables = [a._matrix.references.tables for a in (agg["tas"], agg["pr"])]
        assert tables[0] is tables[1] and tables[0] is not None
        costs = agg["tas"].partitions.costs()[0].tolist()
        root.link.allgather(None)
        with mock.patch("aggarray.mpi.pickling.MOST_BYTES", tables[0].load().nbytes - 1 if root.rank == 0 else 0):
            less = mpi.open(str(folder / "index.nca"), root)["tas"]
        assert less.partitions.costs()[0].tolist() == costs
        if root.rank:
            assert less._matrix.references.tables.find(less._matrix.references, 0) is None
        _forget()
        assert np.array_equal(less[:], full)
        # Two indexes, each with some of the files.
        root.link.allgather(None)
        call_on_root(root.link, lambda: _split_index(folder))
        both = mpi.open([str(folder / f"{name}.nca") for name in ("one", "two")], root)["tas"]
        assert both._matrix.references.tables.members
        _forget()
        with opens_in(folder) as opened:
            assert np.array_equal(both[:], full)
        assert root.rank == 0 or sorted(opened) == ["0.nc", "1.nc", "2.nc"]
        root.link.allgather(None)


def _split_index(folder: Path) -> None:
    for name, numbers in (("one", [0, 1]), ("two", [2])):
        aa.open([folder / f"{number}.nc" for number in numbers]).save(folder / f"{name}.nca")


def _two_variables(folder: Path) -> np.ndarray:
    values = np.arange(60, dtype="f4").reshape(3, 4, 5)
    for number, part in enumerate(values):
        with netCDF4.Dataset(folder / f"{number}.nc", "w") as file:
            for name, size in (("time", None), ("lat", 4), ("lon", 5)):
                file.createDimension(name, size)
            time = file.createVariable("time", "f8", ("time",))
            time.units = "days since 2000-01-01"
            time[:] = [number]
            for name in ("tas", "pr"):
                file.createVariable(name, "f4", ("time", "lat", "lon"), zlib=True).units = "K" if name == "tas" else "mm"
                file[name][:] = part[None]
    aa.open(folder).save(folder / "index.nca")
    return values


def check_large_coordinates(root: ProcessGroup) -> None:
    """One process reads values of coordinates that lie in the index."""
    with shared_folder(root) as folder:
        lat = call_on_root(root.link, lambda: _large_coordinate(folder))
        coordinate = mpi.open(str(folder / "index.nca"), root)["tas"].coords["lat"]
        halves = Distribution.regular(lat.shape, "bb", (root.size, 1))
        with opens_in(folder) as opened:
            result = mpi.local(coordinate, halves, root)
        assert np.array_equal(result.buffer, section(lat, halves, root.rank or 0))
        assert root.rank == 0 or opened == [], opened
        root.link.allgather(None)


def _large_coordinate(folder: Path) -> np.ndarray:
    lat = np.random.default_rng(2).uniform(-90, 90, (100, 120))
    with netCDF4.Dataset(folder / "a.nc", "w") as file:
        file.createDimension("y", 100)
        file.createDimension("x", 120)
        for name, units in (("lat", "degrees_north"), ("lon", "degrees_east")):
            variable = file.createVariable(name, "f8", ("y", "x"))
            variable.units, variable.standard_name = units, {"lat": "latitude", "lon": "longitude"}[name]
            variable[:] = lat
        tas = file.createVariable("tas", "f4", ("y", "x"))
        tas.units, tas.coordinates = "K", "lat lon"
        tas[:] = lat
    aa.open(folder).save(folder / "index.nca")
    return lat


START_CHECKS: tuple[Callable[[ProcessGroup], None], ...] = (
    check_opened_files,
    check_changed_files,
    check_sent_tables,
    check_large_coordinates,
)
