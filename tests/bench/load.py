"""Time and memory for very many small files: ``python -m tests.bench.load [--files 100000]``.

Each step is a fresh process; its memory is the peak of that process or of one of its children. The files are netCDF-4 with one
time step each: the first is written by netCDF4, the others are copies with their own time and values.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

_LAT, _LON = 4, 8
#: The steps by name, as code for a fresh interpreter with ``folder``, ``index`` and ``count`` defined.
_STEPS = {
    "scan and index": "main(['aggregate', folder, '-o', index])",
    "open, without an index": "assert aa.open(folder)['tas'].shape == (count, 4, 8)",
    "the same, files taken to be alike": "assert aa.open(folder, rules=aa.Rules(trust='assume'))['tas'].shape == (count, 4, 8)",
    "check every file": "main(['check', index])",
    "open the index": "assert aa.open(index)['tas'].shape == (count, 4, 8)",
    "1,000 random steps": """
a = aa.open(index)['tas']
steps = np.sort(np.random.default_rng(1).choice(count, min(1000, count), replace=False))
assert np.array_equal(a[steps], value(steps[:, None, None], np.arange(4)[:, None], np.arange(8)))
""",
    "one point of every step": """
a = aa.open(index)['tas']
assert np.array_equal(a[:, 2, 3], value(np.arange(count), 2, 3))
""",
    "all values": """
a = aa.open(index)['tas']
assert np.array_equal(a[:], value(np.arange(count)[:, None, None], np.arange(4)[:, None], np.arange(8)))
""",
}
_BEFORE = """
import sys
import numpy as np
import aggarray as aa
from aggarray.cli import main as command
from tests.bench.load import value
folder, index, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
def main(arguments):
    status = command(arguments)
    assert not status, status
"""


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a step: seconds, and the peak memory of one process in bytes."""

    step: str
    seconds: float
    memory: int


def value(step: np.ndarray | int, lat: np.ndarray | int, lon: np.ndarray | int) -> np.ndarray:
    """Return the value at a grid point, float32.

    >>> value(3, 2, 1)
    array(321., dtype=float32)
    """
    return np.asarray(step * 100 + lat * 10 + lon, np.float32)


def write_files(folder: Path, count: int, first_step: int = 0) -> None:
    """Write a number of files, a thousand per folder, from a time step on."""
    import h5py
    import netCDF4

    first = folder / "first.nc"
    with netCDF4.Dataset(first, "w") as file:
        file.setncatts({"Conventions": "CF-1.11", "title": "one step of many"})
        for name, size, units in (
            ("time", 1, "hours since 2000-01-01"),
            ("lat", _LAT, "degrees_north"),
            ("lon", _LON, "degrees_east"),
        ):
            file.createDimension(name, size)
            axis = file.createVariable(name, "f8", (name,))
            axis.units = units
            axis[:] = np.arange(size)
        tas = file.createVariable("tas", "f4", ("time", "lat", "lon"), fill_value=False)
        tas.setncatts({"units": "K", "standard_name": "air_temperature"})
        tas[:] = value(0, np.arange(_LAT)[:, None], np.arange(_LON))
    with h5py.File(first) as file:
        places = {name: file[name].id.get_offset() for name in ("time", "tas")}
    data = bytearray(first.read_bytes())
    first.unlink()
    for number in range(count):
        step = first_step + number
        if number % 1000 == 0:
            home = folder / f"{number // 1000:04d}"
            home.mkdir()
        for name, result in (("time", np.float64(step)), ("tas", value(step, np.arange(_LAT)[:, None], np.arange(_LON)))):
            packed = result.tobytes()
            data[places[name] : places[name] + len(packed)] = packed
        (home / f"{step:07d}.nc").write_bytes(data)


def measured(step: str, folder: Path, index: Path, count: int) -> Cost:
    """Run one step in a fresh process. Raises RuntimeError if it fails or a value is wrong."""
    order = [sys.executable, "-c", f"{_BEFORE}\n{_STEPS[step]}", str(folder), str(index), str(count)]
    started = time.perf_counter()
    process = subprocess.Popen(order, cwd=Path(__file__).resolve().parents[2], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{step}: failed with {process.returncode}")
    return Cost(step, seconds, usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024))


def main(arguments: list[str] | None = None) -> None:
    """Print a Markdown table of the costs of the steps."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.load", description="What very many small files cost.")
    parser.add_argument("--files", type=int, default=100_000, help="how many (default: %(default)s)")
    parser.add_argument("--keep", type=Path, help="write the files into this folder, and leave them there")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="aggarray-load-") as name:
        folder = options.keep or Path(name) / "data"
        if not folder.exists():
            folder.mkdir(parents=True)
            write_files(folder, options.files)
        print(f"| {options.files:,} files | s | µs per file | MB |\n| --- | --- | --- | --- |")
        for step in _STEPS:
            cost = measured(step, folder, Path(name) / "index.nca", options.files)
            each = cost.seconds / options.files * 1e6
            print(f"| {step} | {cost.seconds:.2f} | {each:.0f} | {cost.memory / 1e6:.0f} |", flush=True)


if __name__ == "__main__":
    main()
