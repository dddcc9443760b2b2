"""One MPI rank of a benchmark: ``python -m tests.bench.ranks WAY FOLDER``, started by `collective`.

Opens the source, does the work once so that libraries, connections and memory are ready, and prints "ready". For each line of
the pipe FOLDER/asked it repeats the work and prints "done". A line with "save" stores the sections in the folder.
"""

import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path

import numpy as np

from tests.bench import rank_exchanges

#: Folder of written files; their chunks, which are those of `aggarray.mpi.write`, and missing value.
OUT, WRITE_CHUNKS, FILL = "out", (8, 180, 360), np.float32(1e20)


def main(way: str, folder: Path) -> None:
    """Do the work once per request."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    work = WAYS[way](sorted(folder.glob("*.nc")) or [folder], comm)
    work()
    _say(comm, "ready")
    # Some launchers do not forward standard input.
    asked = (folder / "asked").open(encoding="utf-8") if comm.rank == 0 else None
    while True:
        line = comm.bcast(asked.readline() if asked else None)
        if not line:
            return
        comm.Barrier()
        values = work()
        comm.Barrier()
        if "save" in line:
            np.save(folder / f"section_{comm.rank}.npy", values)
            comm.Barrier()
        _say(comm, "done")


def _say(comm, word: str) -> None:  # type: ignore[no-untyped-def]
    comm.Barrier()
    if comm.rank == 0:
        print(word, flush=True)


Work = Callable[[], np.ndarray]


def _ours(paths: list[Path], comm, collective: bool) -> Work:  # type: ignore[no-untyped-def]
    from aggarray import mpi
    from aggarray.dap import Distribution

    tas = mpi.open([str(p) for p in paths], comm)["tas"]

    def work() -> np.ndarray:
        # Every rank has some latitudes at all times, and so needs a part of every stored step.
        across = Distribution.regular(tas.shape, "bbb", (1, comm.size, 1))
        return mpi.local(tas, across, comm, collective=collective).buffer

    return work


def _by_h5py(paths: list[Path], comm) -> Work:  # type: ignore[no-untyped-def]
    import h5py

    def work() -> np.ndarray:
        result = []
        for path in paths:
            with h5py.File(path) as file:
                tas = file["tas"]
                rows = np.array_split(np.arange(tas.shape[1]), comm.size)[comm.rank]
                values = tas[:, rows[0] : rows[-1] + 1]
                values[values == tas.fillvalue] = np.nan
                result.append(values)
        return np.concatenate(result)

    return work


def _lower_bound(paths: list[Path], comm) -> Work:  # type: ignore[no-untyped-def]
    """Decode a share of the chunks into one buffer, and fill new memory of the size of the section."""
    import h5py

    from aggarray.codecs import Filter, decode_all

    chunks = []
    for path in paths:
        with h5py.File(path) as file:
            tas = file["tas"]
            found = (tas.id.get_chunk_info(number) for number in range(tas.id.get_num_chunks()))
            chunks += [(path, chunk.byte_offset, chunk.size) for chunk in found]
            steps, shape, dtype = sum(1 for _ in chunks), tas.shape, tas.dtype
    own = [chunks[n] for n in np.array_split(np.arange(len(chunks)), comm.size)[comm.rank]]
    filters = Filter("shuffle", (dtype.itemsize,)), Filter("deflate", (4,))
    decoded = np.empty((8, dtype.itemsize * shape[1] * shape[2]), np.uint8)
    section = steps, len(np.array_split(np.arange(shape[1]), comm.size)[comm.rank]), shape[2]

    def work() -> np.ndarray:
        result = np.empty(section, dtype)
        values = decoded.view(dtype).reshape(-1, *shape[1:])[:, : section[1]]
        files = {path: path.open("rb", buffering=0) for path in paths}
        for start in range(0, len(own), len(decoded)):
            parts = [os.pread(files[path].fileno(), size, offset) for path, offset, size in own[start : start + len(decoded)]]
            decode_all(filters, parts, decoded[: len(parts)])
        for file in files.values():
            file.close()
        for start in range(0, steps, len(values)):
            result[start : start + len(values)] = values[: steps - start]
        return result

    return work


def read_values(paths: list[Path]) -> np.ndarray:
    """Return the values of all files, NaN where missing."""
    import netCDF4

    parts = []
    for path in paths:
        with netCDF4.Dataset(path) as file:
            parts.append(np.ma.filled(file["tas"][...], np.nan))
    return np.concatenate(parts)


def _numbered(paths: list[Path]) -> Iterator[Path]:
    """Yield new paths of output, equal on all ranks."""
    return (paths[0].parent / OUT / f"{number}" for number in count())


def _written(paths: list[Path], comm, suffix: str, compress: str | None) -> Work:  # type: ignore[no-untyped-def]
    from aggarray import mpi
    from aggarray.dap import Distribution

    tas, outputs = mpi.open([str(p) for p in paths], comm)["tas"], _numbered(paths)
    local = mpi.local(tas, Distribution.regular(tas.shape, "bbb", (comm.size, 1, 1)), comm)

    def work() -> np.ndarray:
        mpi.write(local, comm, f"{next(outputs)}{suffix}", compress=compress)
        return np.empty(0)

    return work


def _raw(paths: list[Path], comm, encoded: bool) -> Work:  # type: ignore[no-untyped-def]
    values, outputs = _own_steps(paths, comm), _numbered(paths)
    steps = max(1, (16 << 20) // max(values[:1].nbytes, 1))
    shape = (comm.allreduce(len(values)), *values.shape[1:])

    def work() -> np.ndarray:
        folder = next(outputs)
        folder.mkdir(exist_ok=True)
        if comm.rank == 0:
            np.save(folder / "shape.npy", shape)
        if not encoded:
            values.tofile(folder / f"{comm.rank}.bin")
            return np.empty(0)
        from numcodecs.zstd import Zstd

        for start in range(0, len(values), steps):
            (folder / f"{comm.rank}_{start}.zst").write_bytes(Zstd(0).encode(values[start : start + steps]))
        return np.empty(0)

    return work


def _own_steps(paths: list[Path], comm) -> np.ndarray:  # type: ignore[no-untyped-def]
    """Return the steps of this rank in a block distribution."""
    whole = read_values(paths)
    bounds = [len(whole) * rank // comm.size for rank in range(comm.size + 1)]
    return whole[bounds[comm.rank] : bounds[comm.rank + 1]].copy()


WAYS = {
    **{
        f"{kind}-{name}": partial(rank_exchanges.ours, kind=kind, shared=shared)
        for kind in ("halo", "sum")
        for name, shared in (("shared", True), ("messages", False))
    },
    **{f"{kind}-mpi4py": partial(rank_exchanges.by_mpi4py, kind=kind) for kind in ("halo", "sum")},
    "write-netcdf": lambda paths, comm: _written(paths, comm, ".nc", "zlib:4"),
    "write-zarr": lambda paths, comm: _written(paths, comm, ".zarr", None),
    "write-zarr-none": lambda paths, comm: _written(paths, comm, ".zarr", "none"),
    "write-raw": lambda paths, comm: _raw(paths, comm, False),
    "write-raw-zstd": lambda paths, comm: _raw(paths, comm, True),
    "collective": lambda paths, comm: _ours(paths, comm, True),
    "independent": lambda paths, comm: _ours(paths, comm, False),
    "h5py": _by_h5py,
    "bound": _lower_bound,
}

if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
