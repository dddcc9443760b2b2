"""Work of one rank in the benchmarks of `exchanging`: halos and sums, ours and by mpi4py."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

_WIDTH, _ROW = 4, 256


def ours(paths: list[Path], comm, kind: str, shared: bool) -> Callable[[], np.ndarray]:  # type: ignore[no-untyped-def]
    """Return work by aggarray; ``shared``: whether ranks may share memory."""
    folder = paths[0]
    os.environ["AGGARRAY_SHARED_MEMORY"] = str(int(shared))
    from aggarray import mpi

    root = mpi.ProcessGroup(comm)
    x, times = _array(folder, comm, kind)
    move = (
        mpi.HaloExchange(root, _distribution(folder, comm))
        if kind == "halo"
        else mpi.AllSumReduce(root.grid((comm.size,)), [0])
    )

    def work() -> np.ndarray:
        result = x
        for _ in range(times):
            result = move(x)
        return result

    return work


def by_mpi4py(paths: list[Path], comm, kind: str) -> Callable[[], np.ndarray]:  # type: ignore[no-untyped-def]
    """Return the same work by functions of mpi4py."""
    folder = paths[0]
    x, times = _array(folder, comm, kind)

    def add() -> np.ndarray:
        for _ in range(times):
            comm.Allreduce(x, result := np.empty_like(x))
        return result

    def fill() -> np.ndarray:
        above, below = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
        for _ in range(times):
            for begin, end, to, origin, target in (
                (-2 * _WIDTH, -_WIDTH, above, below, slice(0, _WIDTH)),
                (_WIDTH, 2 * _WIDTH, below, above, slice(-_WIDTH, None)),
            ):
                sent = np.ascontiguousarray(x[:, begin:end])
                received = np.empty_like(sent)
                comm.Sendrecv(sent, to, 0, received, origin, 0)
                x[:, target] = received
        return x

    return fill if kind == "halo" else add


def _distribution(folder: Path, comm):  # type: ignore[no-untyped-def]
    from aggarray.dap import Distribution

    nbytes = int(np.load(folder / "exchange.npy")[0])
    shape = (max(1, nbytes // (8 * _WIDTH * _ROW)), 32 * comm.size, _ROW)
    padding = {1: (_WIDTH, _WIDTH)}
    return Distribution.regular(shape, "bbb", (1, comm.size, 1), padding=padding, periodic=(1,), outer="wrap")


def _array(folder: Path, comm, kind: str) -> tuple[np.ndarray, int]:  # type: ignore[no-untyped-def]
    nbytes, times = np.load(folder / "exchange.npy").tolist()
    shape = _distribution(folder, comm).local_shape(comm.rank) if kind == "halo" else (nbytes // 8,)
    return np.arange(float(np.prod(shape))).reshape(shape) + comm.rank, times
