"""The whole of an array: read directly, through its Zarr view, and from a server on this machine."""

import atexit
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from tests.bench.harness import Benchmark, Contestant, Size
from tests.bench.layouts import Layout
from tests.bench.peers import INDEX, write_with_index
from tests.support.paths import ROOT

_STEP = Layout((1, 180, 360), options={"zlib": True, "shuffle": True})
_SIZES = {
    "full": {"files": 24, "steps": 120, "lat": 180, "lon": 360},
    "tiny": {"files": 2, "steps": 5, "lat": 8, "lon": 10},
}


def start_server(index: Path, *options: str) -> tuple[subprocess.Popen[str], str]:
    """Start ``aggarray serve``; return its process, which ends with this one, and the address of the store."""
    line = [sys.executable, "-m", "aggarray", "serve", str(index), "--port", "0", "--quiet", *options]
    process = subprocess.Popen(line, cwd=ROOT, text=True, stdout=subprocess.PIPE)
    atexit.register(_end, process)
    assert process.stdout is not None
    return process, process.stdout.readline().split()[-1]


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def _index(folder: Path, _size: Size) -> SimpleNamespace:
    import zarr

    import aggarray as aa

    return SimpleNamespace(agg=aa.open(folder / INDEX), library=zarr)


def _server(folder: Path, _size: Size) -> SimpleNamespace:
    import aiohttp  # noqa: F401
    import fsspec  # noqa: F401
    import zarr

    return SimpleNamespace(address=start_server(folder / INDEX)[1], library=zarr)


def _direct(given: SimpleNamespace) -> np.ndarray:
    values: np.ndarray = given.agg["tas"][...]
    return values


def _view(given: SimpleNamespace) -> np.ndarray:
    return given.library.open_group(given.agg.to_zarr_store(), mode="r")["tas"][...]


def _http(given: SimpleNamespace) -> np.ndarray:
    return given.library.open_group(given.address, mode="r", zarr_format=3)["tas"][...]


def _values(_given: Any, values: np.ndarray) -> dict[str, np.ndarray]:
    return {"tas": values}


BENCHMARKS = (
    Benchmark(
        "serve",
        "all values: directly, through a Zarr view, and over HTTP on this machine",
        _SIZES,
        partial(write_with_index, layout=_STEP),
        (
            Contestant("aggarray, tas[...]", _index, _direct, _values),
            Contestant("zarr-python, to_zarr_store()", _index, _view, _values),
            Contestant("zarr-python, aggarray serve", _server, _http, _values, ("starlette", "uvicorn", "aiohttp")),
        ),
        ("zarr", "netCDF4"),
    ),
)
