"""Time of a whole process from its start to its first value.

The work is a fresh process that imports its libraries, opens the data, reads and prints one number. The bare loop knows where
the chunks lie: its process imports the libraries, reads, decodes and picks values. ``python -m tests.bench.starting`` prints
how many modules each process imports and how many files it opens.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from tests.bench.archives import paths_in, write_archive
from tests.bench.harness import Benchmark, Contestant, Size
from tests.bench.peers import INDEX
from tests.bench.stores import STORE, Stored, write_store
from tests.support.paths import ROOT
from tests.support.starting import besides_data, modules_of, opens_of, ours, system_opens_of

_CHUNKS = "chunks.json"
#: How the scripts print the number that is compared.
_PRINT = "; print(float(values.astype('f8').mean()))"

#: Scripts by contestant, which define ``values``: ``sys.argv`` has the source, the latitude and the longitude.
_HEAD = "import sys; source, y, x = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]); "
_OURS = _HEAD + "import aggarray as aa; values = aa.open(source)['tas'][:, y, x]" + _PRINT
_XARRAY = "import xarray; values = xarray.open_dataset(source%s)['tas'][:, y, x].values"
_BARE_LOOP = f"""
import os, sys, json
import numpy as np, h5py, deflate
source, y, x = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
with open(source) as file:
    chunks = json.load(file)
steps, rows, columns = chunks["shape"]
wanted = np.arange(steps) * rows * columns + y * columns + x
values = np.empty((len(chunks["files"]), steps), "f4")
for row, (path, offset, size) in zip(values, chunks["files"]):
    file = os.open(path, os.O_RDONLY)
    data = deflate.zlib_decompress(os.pread(file, size, offset), 4 * steps * rows * columns)
    os.close(file)
    shuffled = np.frombuffer(data, "u1").reshape(4, -1)
    row[:] = np.ascontiguousarray(shuffled[:, wanted].T).view("f4")[:, 0]
values = values.reshape(-1){_PRINT}
"""
_FILE = {
    "netCDF4": "import netCDF4; values = netCDF4.Dataset(source)['tas'][:, y, x]",
    "h5py": "import h5py; values = h5py.File(source)['tas'][:, y, x]",
    "xarray": _XARRAY % "",
}
_ZARR = "import zarr; values = zarr.open_array(source + '/tas', mode='r', zarr_format=%d)[:, y, x]"
_TENSORSTORE = (
    "import tensorstore; kvstore = {'driver': 'file', 'path': source + '/tas/'}; "
    "values = tensorstore.open({'driver': '%s', 'kvstore': kvstore}).result()[:, y, x].read().result()"
)


def _command(folder: Path, size: Size, script: str, source: str) -> SimpleNamespace:
    key = size["lat"] // 2, size["lon"] // 3
    return SimpleNamespace(command=[sys.executable, "-c", script, str(folder / source), *map(str, key)])


def _words(folder: Path, _size: Size, words: tuple[str, ...]) -> SimpleNamespace:
    return SimpleNamespace(command=[str(folder / INDEX) if word == INDEX else word for word in words])


def _run(given: SimpleNamespace) -> str:
    # Compiled modules are kept, as those of an installed package: the round that is not timed writes them.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return subprocess.run(given.command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout


def _number(_given: SimpleNamespace, printed: str) -> dict[str, np.ndarray]:
    return {"mean": np.array(float(printed))}


def _end(_given: SimpleNamespace, _printed: str) -> dict[str, np.ndarray]:
    """Return the exit status: a process that fails raises an error."""
    return {"status": np.array(0)}


def _contestant(name: str, script: str, source: str, *needs: str) -> Contestant:
    return Contestant(name, partial(_command, script=script, source=source), _run, _number, needs)


def _program(name: str, *words: str, needs: tuple[str, ...] = ()) -> Contestant:
    return Contestant(name, partial(_words, words=words), _run, _end, needs)


def _write_index(folder: Path, size: Size) -> None:
    """Write deflated files, an index of them, and where their chunks lie."""
    import h5py

    import aggarray as aa

    write_archive(folder, size, deflated=True)
    aa.open(paths_in(folder)).save(folder / INDEX)
    files = []
    for path in paths_in(folder):
        with h5py.File(path) as file:
            chunk = file["tas"].id.get_chunk_info(0)
            files.append((path, chunk.byte_offset, chunk.size))
    shape = [size["steps"], size["lat"], size["lon"]]
    (folder / _CHUNKS).write_text(json.dumps({"shape": shape, "files": files}), encoding="utf-8")


def _write_file(folder: Path, size: Size) -> None:
    write_archive(folder, size, deflated=True)


_DEFLATED_FILE = "tas_day_00000.nc"
_MANY = {"full": {"files": 1000, "steps": 10, "lat": 18, "lon": 36}, "tiny": {"files": 3, "steps": 10, "lat": 6, "lon": 9}}
_ONE = {"full": {"files": 1, "steps": 10, "lat": 90, "lon": 180}, "tiny": {"files": 1, "steps": 10, "lat": 6, "lon": 9}}
_STEPS = {"full": {"steps": 240, "lat": 90, "lon": 180}, "tiny": {"steps": 10, "lat": 6, "lon": 9}}

_INDEX_ROWS = (
    _contestant("aggarray, a saved index", _OURS, INDEX),
    _contestant("a bare loop over known chunks", _BARE_LOOP, _CHUNKS, "h5py", "deflate"),
    _contestant("xarray with engine aggarray", _HEAD + _XARRAY % ", engine='aggarray'" + _PRINT, INDEX, "xarray"),
)
_FILE_ROWS = (
    _contestant("aggarray", _OURS, _DEFLATED_FILE),
    *(_contestant(name, _HEAD + script + _PRINT, _DEFLATED_FILE, name) for name, script in _FILE.items()),
)
_INFO_ROWS = (
    _program("aggarray info", sys.executable, "-m", "aggarray", "info", INDEX),
    _program("aggarray check", sys.executable, "-m", "aggarray", "check", INDEX),
    *((_program("ncdump -h", "ncdump", "-h", INDEX),) if shutil.which("ncdump") else ()),
    _program("import netCDF4", sys.executable, "-c", "import netCDF4", needs=("netCDF4",)),
)


def _store_rows(version: int) -> tuple[Contestant, ...]:
    driver = {2: "zarr", 3: "zarr3"}[version]
    return (
        _contestant("aggarray, a saved index", _OURS, INDEX, "zarr"),
        _contestant("aggarray", _OURS, STORE, "zarr"),
        _contestant("tensorstore", _HEAD + _TENSORSTORE % driver + _PRINT, STORE, "tensorstore"),
        _contestant("zarr-python", _HEAD + _ZARR % version + _PRINT, STORE, "zarr"),
    )


BENCHMARKS = (
    Benchmark("start-index", "a process to a point's series of an index", _MANY, _write_index, _INDEX_ROWS),
    Benchmark("start-file", "a process to a point's series of a file", _ONE, _write_file, _FILE_ROWS),
    *(
        Benchmark(
            f"start-zarr{stored.version}",
            f"a process to a point's series, Zarr {stored.version}, {stored.codec}",
            _STEPS,
            partial(write_store, stored=stored),
            _store_rows(stored.version),
            needs=("zarr",),
        )
        for stored in (Stored(2, "blosc"), Stored(3, "zstd"))
    ),
    Benchmark("start-info", "a process that prints an index, or checks its files", _MANY, _write_index, _INFO_ROWS),
)

_INFO = "import sys; from aggarray.cli import main; main(['%s', sys.argv[1]])"


def _paths() -> dict[str, tuple[Callable[[Path, Size], None], Size, str, str]]:
    """Return how the data of each path are made, their size, the script and its source."""
    stores = {
        f"Zarr {s.version}": (partial(write_store, stored=s), _STEPS["tiny"]) for s in (Stored(2, "blosc"), Stored(3, "zstd"))
    }
    return {
        "an index": (_write_index, _MANY["tiny"], _OURS, INDEX),
        "a file": (_write_file, _ONE["tiny"], _OURS, _DEFLATED_FILE),
        **{name: (*made, _OURS, STORE) for name, made in stores.items()},
        **{f"an index of {name}": (*made, _OURS, INDEX) for name, made in stores.items()},
        "aggarray info": (_write_index, _MANY["tiny"], _INFO % "info", INDEX),
        "aggarray check": (_write_index, _MANY["tiny"], _INFO % "check", INDEX),
    }


def main() -> None:
    """Print the modules that each path imports, and the files that it opens beside the data."""
    print("| path | modules | of aggarray | files opened by Python | by the process |\n| --- | --- | --- | --- | --- |")
    for name, (make, size, script, source) in _paths().items():
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            make(folder, size)
            _, _, *command = _command(folder, size, script, source).command
            modules = modules_of(*command)
            opened = [o and besides_data(o, lambda path: path.startswith(temporary)) for o in _opens(*command)]
        counts = [len(modules), len(ours(modules)), *("" if o is None else len(o) for o in opened)]
        print("|", " | ".join(map(str, (name, *counts))), "|", flush=True)


def _opens(*command: str) -> tuple[list[str], list[str] | None]:
    return opens_of(*command), system_opens_of(*command)


if __name__ == "__main__":
    main()
