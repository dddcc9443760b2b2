"""Checks of shared memory: ranks on one node, on several nodes, and without shared memory.

All processes run them together. A mocked machine of each rank makes nodes.
"""

import gc
import os
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
from aggarray.dap import Distribution, LocalArray
from aggarray.mpi import ProcessGroup, collective_read, reading, shared_slabs, sums
from aggarray.mpi.transport import shared, trees
from aggarray.mpi.transport.agreement import call_on_root
from aggarray.mpi.transport.base import Link
from aggarray.mpi.transport.moving import Part
from aggarray.mpi.transport.shared import Window
from tests.mpi.checks import check_halo, factors, raises_on_all, random_map, section
from tests.mpi.checks_files import decoded, shared_folder

#: The machine of a rank of some; None: no shared memory.
Machine = Callable[[int, int], Any]
MACHINES: dict[str, Machine] = {
    "one": lambda rank, size: 0,
    "pairs": lambda rank, size: rank // 2,
    "interleaved": lambda rank, size: rank % 3,
    "uneven": lambda rank, size: min(rank, 1),
    "some without": lambda rank, size: None if rank % 3 == 0 else 0,
    "none": lambda rank, size: None,
}


@contextmanager
def machines(machine: Machine) -> Iterator[None]:
    """Make nodes of the ranks, and rings so small that slots are used again."""

    def machine_of(link: Link) -> Any:
        return machine(link.rank, link.size)

    with (
        mock.patch.object(shared, "machine_of", machine_of),
        mock.patch.object(reading, "_SMALL", 0),
        mock.patch.object(reading, "_TURN_BYTES", 3000),
        mock.patch.object(collective_read, "_RING_BYTES", 6000),
    ):
        yield


def write_random(folder: Path, rng: np.random.Generator) -> np.ndarray:
    """Write files of any dtype, chunks and packing, some flipped; return the values."""
    steps, lat, lon = (int(n) for n in rng.integers([1, 1, 1], [9, 20, 25]))
    count = int(rng.integers(1, 4))
    stored = str(rng.choice(["f4", "f8", "i2", "i4", ">f4", "u1"]))
    packed = stored in ("i2", "u1") and bool(rng.integers(2))
    fill = np.dtype(stored).type(200)
    raw = rng.integers(0, 100, (count * steps, lat, lon)).astype(stored)
    missing = rng.integers(0, 20, raw.shape) == 0
    chunks = tuple(int(rng.integers(1, n + 1)) for n in (steps, lat, lon))
    zlib = bool(rng.integers(3))
    for number in range(count):
        part = slice(number * steps, (number + 1) * steps)
        turned = slice(None, None, -1 if number and rng.integers(2) else 1)
        with netCDF4.Dataset(folder / f"part_{number}.nc", "w") as file:
            axes = {
                "time": (np.arange(part.start, part.stop), "days since 2000-01-01"),
                "lat": (np.linspace(-80, 80, lat)[turned] if lat > 1 else [0.0], "degrees_north"),
                "lon": (np.arange(lon) * 2.0, "degrees_east"),
            }
            for name, (values, units) in axes.items():
                file.createDimension(name, len(values))
                file.createVariable(name, "f8", (name,))[:] = values
                file[name].units = units
            how: dict[str, Any] = {"zlib": zlib, "shuffle": zlib, "chunksizes": chunks}
            how |= {"endian": "big"} if stored.startswith(">") else {}
            tas = file.createVariable("tas", stored, tuple(axes), fill_value=fill, **how)
            tas.setncatts({"units": "K", **({"scale_factor": 0.5, "add_offset": 10.0} if packed else {})})
            tas.set_auto_maskandscale(False)
            tas[:] = np.where(missing[part], fill, raw[part])[:, turned]
    if packed or raw.dtype.kind == "f":
        full: np.ndarray = np.where(missing, np.nan, raw * 0.5 + 10.0 if packed else raw.astype(raw.dtype.newbyteorder("=")))
        return full if packed else full.astype(raw.dtype.newbyteorder("="))
    return np.where(missing, fill, raw)


def check_nodes(root: ProcessGroup) -> None:
    """Sections of any files and distributions equal NumPy's, on any nodes."""
    size, rng = root.size, np.random.default_rng(root.size)
    for turn in range(10 if size <= 4 else 2):
        with shared_folder(root) as folder:
            full = call_on_root(root.link, lambda f=folder, n=turn: write_random(f, np.random.default_rng([n, size])))  # type: ignore[misc]
            tas = mpi.open(str(folder), root)["tas"]
            assert tas.shape == full.shape
            for machine in MACHINES.values():
                grid = factors(size, 3, rng)
                distribution = Distribution(tuple(map(random_map, full.shape, grid, [rng] * 3)))
                with machines(machine), decoded() as decodes:
                    result = mpi.local(tas, distribution, root)
                    root.link.allgather(None)
                expected = section(full, distribution, root.rank or 0)
                values = result.buffer
                assert values.shape == expected.shape and values.flags.c_contiguous and values.flags.writeable
                assert np.array_equal(values, expected, equal_nan=values.dtype.kind == "f"), (turn, distribution)
                _check_own_memory(root, values)
                assert sum(root.link.allgather(decodes[0])) <= _stored_chunks(folder)


def _stored_chunks(folder: Path) -> int:
    count = 0
    for path in folder.glob("*.nc"):
        with netCDF4.Dataset(path) as file:
            tas = file["tas"]
            count += int(np.prod([-(-n // side) for n, side in zip(tas.shape, tas.chunking(), strict=True)]))
    return count


def _check_own_memory(root: ProcessGroup, values: np.ndarray) -> None:
    """Check that no process sees what another writes into its section."""
    values[...] = (root.rank or 0) % 100
    root.link.allgather(None)
    assert (values == (root.rank or 0) % 100).all()


def check_refused_windows(root: ProcessGroup) -> None:
    """Ranks that cannot create or open a window exchange messages instead."""
    rng = np.random.default_rng(3)
    with shared_folder(root) as folder:
        full = call_on_root(root.link, lambda: write_random(folder, np.random.default_rng(8)))
        tas = mpi.open(str(folder), root)["tas"]
        last = root.rank == root.size - 1
        refuse = {
            "memfd_create": mock.Mock(side_effect=OSError("refused")),
            "posix_fallocate": mock.Mock(side_effect=OSError("no memory")),
            "readlink": mock.Mock(return_value="/memfd:another (deleted)"),
        }
        for name, refused in refuse.items():
            distribution = Distribution(tuple(map(random_map, full.shape, factors(root.size, 3, rng), [rng] * 3)))
            with machines(MACHINES["one"]), mock.patch.object(os, name, refused if last else getattr(os, name)):
                result = mpi.local(tas, distribution, root)
            expected = section(full, distribution, root.rank or 0)
            assert np.array_equal(result.buffer, expected, equal_nan=expected.dtype.kind == "f")


def check_errors_on_nodes(root: ProcessGroup) -> None:
    """An error of one rank that reads, packs or copies is raised on all ranks; the next read works."""
    with shared_folder(root) as folder:
        full = call_on_root(root.link, lambda: write_random(folder, np.random.default_rng(11)))
        tas = mpi.open(str(folder), root)["tas"]
        across = Distribution.regular(full.shape, "bbc", (1, 1, root.size))
        expected = section(full, across, root.rank or 0)
        for place, machine in MACHINES.items():
            every = place == "pairs" or root.size <= 4
            for owner, name in ((type(tas), "read"), (Part, "get"), (Part, "put"))[: None if every else 1]:
                with machines(machine):
                    calls: list[int] = []
                    with _called(owner, name, lambda n=calls: n.append(0)):  # type: ignore[misc]
                        mpi.local(tas, across, root)
                    callers = [rank for rank, count in enumerate(root.link.allgather(len(calls))) if count]
                    with _called(owner, name, _raise if callers and root.rank == callers[-1] else int):
                        words = _error(lambda: mpi.local(tas, across, root))
                    assert f"process {callers[-1]}: damaged" in words if root.size > 1 else len(callers) <= 1, (name, words)
                    assert len(set(root.link.allgather(words))) == 1
                    assert np.array_equal(mpi.local(tas, across, root).buffer, expected, equal_nan=full.dtype.kind == "f")


@contextmanager
def _called(owner: type, name: str, before: Callable[[], object]) -> Iterator[None]:
    """Call a function before a method."""
    method = getattr(owner, name)

    def calling(*arguments: Any, **options: Any) -> Any:
        before()
        return method(*arguments, **options)

    with mock.patch.object(owner, name, calling):
        yield


def _raise() -> None:
    raise aa.FormatError("damaged", path="there.nc")


def _error(call: Callable[[], Any]) -> str:
    try:
        call()
    except aa.AggarrayError as error:
        return str(error)
    return "no error"


def check_many_reads(root: ProcessGroup) -> None:
    """Reads leave no open files, mappings or names behind."""
    with shared_folder(root) as folder:
        full = call_on_root(root.link, lambda: write_random(folder, np.random.default_rng(11)))
        tas = mpi.open(str(folder), root)["tas"]
        across = Distribution.regular(full.shape, "bbc", (1, 1, root.size))
        sections = []
        for number in range(30):
            with machines(MACHINES["one" if number % 2 else "pairs"]):
                sections.append(mpi.local(tas, across, root))
            if number == 9:
                before = _resources()
        assert _resources() == before
        assert not any("aggarray" in name for name in os.listdir("/dev/shm")) if os.path.isdir("/dev/shm") else True
        assert all(np.array_equal(s.buffer, sections[0].buffer, equal_nan=full.dtype.kind == "f") for s in sections)


def _resources() -> tuple[int, int]:
    """Return the numbers of open files, and of mappings of windows."""
    if not os.path.isdir("/proc/self/fd"):
        pytest.skip("no /proc")
    gc.collect()
    maps = Path("/proc/self/maps").read_text(encoding="utf-8")
    return len(os.listdir("/proc/self/fd")), maps.count("/memfd:aggarray-")


@contextmanager
def nodes(root: ProcessGroup, machine: Machine) -> Iterator[None]:
    """Make nodes whose ranks share slabs and sums of any size, in several blocks."""

    def forget() -> None:
        root.link.allgather(None)
        root.link.node = None
        root.link.sums.clear()

    with (
        machines(machine),
        mock.patch.object(shared_slabs, "SHARED_BYTES", 1),
        mock.patch.object(sums, "SMALL", 0),
        mock.patch.object(trees, "SMALL", 0),
        mock.patch.object(sums, "_BLOCK_BYTES", 1 << 14),
    ):
        forget()
        yield
        forget()


@contextmanager
def count_writes() -> Iterator[list[int]]:
    """Count what this rank writes into windows."""
    written: list[int] = []
    with _called(Window, "set_counter", lambda: written.append(1)):
        yield written


def check_halos_on_nodes(root: ProcessGroup) -> None:
    """Halos and their adjoints are the same on any nodes, and those of a node go through windows."""
    for name, machine in MACHINES.items():
        with nodes(root, machine), count_writes() as written:
            check_halo(root)
        _check_written(root, name, written)


def check_halos_of_many_dtypes(root: ProcessGroup) -> None:
    """An exchange fills arrays of one dtype after another; an error leaves it usable."""
    shape = (5, 4 * root.size, 3)
    distribution = Distribution.regular(shape, "bbb", (1, root.size, 1), padding={1: (2, 1)}, periodic=(1,), outer="wrap")
    with nodes(root, MACHINES["one"]):
        move = mpi.HaloExchange(root, distribution)
        inner = distribution.owned_slices(root.rank or 0)
        for dtype in ("i1", "f8", "f4", "c16", ">i4", "M8[s]"):
            for turn in range(3):
                full = (np.arange(np.prod(shape)).reshape(shape) + turn).astype("i8").astype(dtype)
                expected = section(full, distribution, root.rank or 0)
                x = np.asarray(np.zeros_like(expected), order="F" if (root.rank or 0) % 2 else "C")
                x[inner] = expected[inner]
                frozen = x.copy()
                frozen.flags.writeable = root.rank != root.size - 1
                raises_on_all(root, "read-only", lambda m=move, f=frozen: m(f))  # type: ignore[misc]
                assert np.array_equal(move(x), expected), (dtype, turn)


def check_sums_on_nodes(root: ProcessGroup) -> None:
    """Sums and reductions have the same bits on any nodes."""
    size, rng = root.size, np.random.default_rng(root.rank)
    values = [rng.standard_normal(n) * 10.0 ** rng.integers(-9, 9, n) for n in (1, 5, 2048, 5000, 20_001)]
    distributions = [Distribution.regular((size, len(x)), "bb", (size, 1)) for x in values]
    sections = [LocalArray.holding(x[None], d, root.rank or 0) for x, d in zip(values, distributions, strict=True)]
    results: dict[str, list[bytes]] = {}
    for name, machine in MACHINES.items():
        with nodes(root, machine), count_writes() as written:
            total = mpi.AllSumReduce(root.grid((size,)), axes_keep=())
            pairs = mpi.AllSumReduce(
                root.include(range(max(size // 2 * 2, 1))).grid((max(size // 2, 1), min(size, 2))), axes_keep=(0,)
            )
            arrays = [move(x) for move in (total, pairs, total) for x in values]
            arrays += [mpi.reduce(one, operation, 0, root).buffer for one in sections for operation in ("std", "min", "count")]
            results[name] = [array.tobytes() for array in arrays]
        _check_written(root, name, written)
    assert all(one == results["none"] for one in results.values())


def _check_written(root: ProcessGroup, name: str, written: list[int]) -> None:
    if name in ("one", "pairs", "none"):
        assert bool(sum(root.link.allgather(len(written)))) == (root.size > 1 and name != "none"), name


def check_refused_memory(root: ProcessGroup) -> None:
    """Ranks exchange halos and sums by messages if one cannot open a window or a pipe."""
    refuse = {
        "pipe2": mock.Mock(side_effect=OSError("no descriptors")),
        "memfd_create": mock.Mock(side_effect=OSError("refused")),
        "readlink": mock.Mock(return_value="pipe:[0]"),
    }
    distribution = Distribution.regular((5, 4 * root.size), "bb", (1, root.size), padding={1: (1, 1)})
    full = np.arange(5.0 * 4 * root.size).reshape(distribution.shape)
    expected = section(full, distribution, root.rank or 0)
    for name, refused in refuse.items():
        last = root.rank == root.size - 1
        with nodes(root, MACHINES["one"]), mock.patch.object(os, name, refused if last else getattr(os, name)):
            with count_writes() as written:
                x = np.zeros_like(expected)
                inner = distribution.owned_slices(root.rank or 0)
                x[inner] = expected[inner]
                assert np.array_equal(mpi.HaloExchange(root, distribution)(x), expected)
                assert mpi.AllSumReduce(root.grid((root.size,)), axes_keep=())(np.ones(9)).tolist() == [root.size] * 9
            assert not any(root.link.allgather(len(written))) or name == "pipe2"


def check_many_exchanges(root: ProcessGroup) -> None:
    """Exchanges and sums leave no open files or mappings behind."""
    distribution = Distribution.regular((5, 4 * root.size), "bb", (1, root.size), padding={1: (1, 1)})
    before = _resources()
    for _ in range(5):
        with nodes(root, MACHINES["one"]):
            mpi.HaloExchange(root, distribution)(np.ones(distribution.local_shape(root.rank or 0)))
            mpi.AllSumReduce(root.grid((root.size,)), axes_keep=())(np.ones(100))
    assert _resources() == before


SHARED_CHECKS: tuple[Callable[[ProcessGroup], None], ...] = (
    check_nodes,
    check_refused_windows,
    check_errors_on_nodes,
    check_many_reads,
    check_halos_on_nodes,
    check_halos_of_many_dtypes,
    check_sums_on_nodes,
    check_refused_memory,
    check_many_exchanges,
)
