"""Modules that a worker process imports that unpickles an array and reads it."""

import pickle
from pathlib import Path
from typing import Any

import pytest

import aggarray as aa
from aggarray.arrays.pickling import LazyBlock, read_block
from aggarray.export.extract import extract
from tests.support.netcdf import cube, write
from tests.support.starting import modules_of, ours, run_script

#: Packages and modules that reading a pickled array does not need.
UNUSED = ("aggregate", "cli", "display", "export", "mpi", "opening", "scan.worker", "scan.workers", "xarray_engine")
FOREIGN = {"h5py", "netCDF4", "xarray", "dask", "zarr", "cf_units", "cftime", "fsspec", "aiohttp", "asyncio"}

READ = "import pickle, sys; print(float(pickle.load(open(sys.argv[1], 'rb'))[..., -1].sum()))"
CALL = (
    "import pickle, sys; function, block = pickle.load(open(sys.argv[1], 'rb')); print(float(function(block)[..., -1].sum()))"
)
POOL = """
import pickle, sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from operator import getitem
if __name__ == "__main__":
    array = pickle.load(open(sys.argv[1], 'rb'))
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        print(float(pool.submit(getitem, array, (..., -1)).result().sum()))
        print(*pool.submit(eval, "__import__('sys').modules.keys() - set()").result())
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(3):
        write(tmp_path / f"{number}.nc", cube(range(3 * number, 3 * number + 3)))
    aa.open(tmp_path).save(tmp_path / "index.nca")
    return tmp_path


def arrays(folder: Path) -> dict[str, aa.MasterArray]:
    indexed, files = aa.open(folder / "index.nca")["tas"], aa.open(folder / "?.nc")["tas"]
    extract(indexed, folder / "extract.nc")
    aa.open(folder / "extract.nc").save(folder / "extract.nca")
    return {
        "an index": indexed,
        "a selection of an index": indexed.lazy[1:8, ::-1],
        "an index of an extract": aa.open(folder / "extract.nca")["tas"],
        "files": files,
        "a selection of files": files.lazy[1:8, ::-1],
    }


def unused(modules: set[str]) -> set[str]:
    """Return the modules of a set that reading does not need."""
    own = {m for m in ours(modules) if any(f"{m}.".startswith(f"aggarray.{name}.") for name in UNUSED)}
    return own | {m for m in modules if m.partition(".")[0] in FOREIGN}


def saved(item: Any, folder: Path) -> str:
    (folder / "item.pickle").write_bytes(pickle.dumps(item))
    return str(folder / "item.pickle")


@pytest.mark.heavy
def test_an_unpickled_array_is_read_with_few_modules(folder: Path) -> None:
    for name, array in arrays(folder).items():
        path = saved(array, folder)
        assert float(run_script(READ, path)) == float(array[..., -1].sum()), name
        modules = modules_of(READ, path)
        assert unused(modules) == set(), name
        if "index" in name:
            assert len(modules) <= 225 and len(ours(modules)) <= 60, (name, sorted(ours(modules)))


def test_a_task_of_dask_is_run_with_few_modules(folder: Path) -> None:
    for name, array in arrays(folder).items():
        path = saved((read_block, LazyBlock(array, tuple(slice(0, 2) for _ in array.shape))), folder)
        assert unused(modules_of(CALL, path)) == set(), name


def test_a_worker_process_reads_with_few_modules(folder: Path) -> None:
    array = arrays(folder)["an index"]
    script = folder / "pool.py"
    script.write_text(POOL)
    value, modules = run_script(
        f"import runpy; runpy.run_path({str(script)!r}, run_name='__main__')", saved(array, folder)
    ).splitlines()
    assert float(value) == float(array[..., -1].sum())
    assert unused(set(modules.split())) == set()
