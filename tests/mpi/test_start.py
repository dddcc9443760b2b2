"""Modules that the ranks of a fresh job import."""

import json
from pathlib import Path

import pytest

import aggarray as aa
from tests.support.mpi import run_mpi
from tests.support.netcdf import cube, write

PROGRAM = """
import json, sys
from mpi4py import MPI
from aggarray import mpi
from aggarray.dap import Distribution
comm = MPI.COMM_WORLD
array = mpi.open(sys.argv[1], comm)["tas"]
opened = sorted(sys.modules)
section = mpi.local(array, Distribution.regular(array.shape, "bbb", (comm.size, 1, 1)), comm)
assert section.buffer.size
modules = comm.gather([opened, sorted(sys.modules)])
if comm.rank == 0:
    print(json.dumps(modules))
"""
#: Modules that only the process imports that opens the index.
OPENING = ("aggarray.index.loading", "aggarray.index.store", "aggarray.index.decoder", "aggarray.opening.sources")
#: Packages and modules that a process does not need to read from an opened index.
UNUSED = ("aggarray.formats", "aggarray.scan", "aggarray.display", "aggarray.export", "aggarray.cli", "aggarray.aggregate.join")
UNUSED += ("h5py", "netCDF4", "xarray", "dask", "zarr", "cf_units", "cftime", "fsspec", "aiohttp", "multiprocessing")


@pytest.fixture
def index(tmp_path: Path) -> Path:
    for number in range(4):
        write(tmp_path / f"{number}.nc", cube(range(3 * number, 3 * number + 3)))
    aa.open(tmp_path).save(tmp_path / "index.nca")
    return tmp_path / "index.nca"


def imported(modules: list[str], names: tuple[str, ...]) -> list[str]:
    """Return the modules that are in a list, or in packages of a list."""
    return [m for m in modules if any(m == name or m.startswith(f"{name}.") for name in names)]


def test_ranks_import_what_reading_needs(index: Path) -> None:
    program = index.with_name("program.py")
    program.write_text(PROGRAM)
    first, *others = json.loads(run_mpi(4, str(program), str(index)).splitlines()[-1])
    assert imported(first[0], OPENING)
    for after_opening, after_reading in others:
        assert imported(after_reading, (*OPENING, *UNUSED)) == []
        assert len(imported(after_opening, ("aggarray",))) <= 100
