"""Budgets of function calls: how many functions of how many modules a simple operation runs through."""

from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import netCDF4
import numpy as np
import pytest

import aggarray as aa
from aggarray.read.chunk_index import chunk_tables
from aggarray.storage.byte_source import close_sources
from tests.bench.archives import paths_in, write_archive
from tests.support.calls import calls_of, follow
from tests.support.netcdf import cube, write

PACKAGE = f"{Path(aa.__file__).parent}/"


def functions_of(call: Callable[[], object]) -> set[tuple[str, str]]:
    """Return (module, function) of the named functions of aggarray that a call runs.

    Comprehensions and the methods that dataclasses get from their decorator do not count.
    """
    result: set[tuple[str, str]] = set()

    def note(frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        own = code.co_filename.startswith(PACKAGE) and not code.co_filename.endswith("dataclass.py")
        if event == "call" and own and not code.co_name.startswith("<"):
            result.add((code.co_filename.removeprefix(PACKAGE), code.co_qualname))

    follow(call, note)
    return result


def modules_of(functions: set[tuple[str, str]]) -> set[str]:
    return {module for module, _ in functions}


def test_opening_one_file(tmp_path: Path) -> None:
    path = write(tmp_path / "a.nc", cube(range(40)))
    aa.open(path)
    functions = functions_of(lambda: aa.open(path))
    assert len(functions) <= 150 and len(modules_of(functions)) <= 35, sorted(functions)


@pytest.mark.parametrize("before", [slice(5, 25), slice(None)], ids=["same slice", "other slice"])
def test_a_warm_read(tmp_path: Path, before: slice) -> None:
    """A third read, of a chunked and deflated variable."""
    path = tmp_path / "a.nc"
    sizes = {"time": (40, "days since 2000-01-01"), "lat": (20, "degrees_north"), "lon": (30, "degrees_east")}
    with netCDF4.Dataset(path, "w") as file:
        for name, (size, units) in sizes.items():
            file.createDimension(name, size)
            file.createVariable(name, "f8", (name,)).units = units
            file[name][:] = np.arange(size)
        file.createVariable("tas", "f4", tuple(sizes), zlib=True, chunksizes=(10, 20, 30)).units = "K"
        file["tas"][:] = np.arange(24_000, dtype="f4").reshape(40, 20, 30)
    array = aa.open(path)["tas"]
    for _ in range(2):
        assert array[before, 3, 4].tolist() == [600.0 * t + 94 for t in range(40)[before]]
    functions = functions_of(lambda: array[5:25, 3, 4])
    assert len(functions) <= 70 and len(modules_of(functions)) <= 16, sorted(functions)


def test_a_first_read_of_each_file(tmp_path: Path) -> None:
    """One value of each of many small files, through their index."""
    sizes = {"files": 120, "steps": 4, "lat": 6, "lon": 9}
    write_archive(tmp_path, sizes, deflated=True)
    aa.open(paths_in(tmp_path)).save(tmp_path / "index.nca")
    close_sources()
    chunk_tables.clear()
    array = aa.open(tmp_path / "index.nca")["tas"]
    assert array[:80, 1, 2].shape == (80,)
    assert calls_of(lambda: array[80:, 1, 2], within=PACKAGE) <= 25 * 100
