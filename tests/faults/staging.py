"""Disturbance of work at exact moments, many times, without restarting Python.

`Stage` is a process that has imported everything. For each attempt it forks a child that runs a command line or Python code
with a disturbance, and reports the outcome. Run as a program, this module is that process.

Disturbances: ``kill`` and ``interrupt`` send SIGKILL and SIGINT at the n-th step in a folder (Python audit events that open,
rename or remove a file, or make a folder), ``line`` sends SIGINT at the n-th line of some modules, ``limit`` limits the size of
files (also in C libraries), ``fatal`` kills at that size. No moment depends on time.
"""

import contextlib
import json
import os
import resource
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from tests.support.paths import ROOT

#: Seconds for an attempt; a child that exceeds them is killed and gets the status `HUNG`.
SECONDS = 60
HUNG = -1000
#: An unprivileged user: permissions do not restrict root.
NOBODY = 65534
_STEPS = ("open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.chmod", "fcntl.flock")


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of an attempt: exit status (negative: the signal), output, number of steps or lines."""

    status: int
    out: str
    err: str
    steps: int

    @property
    def said(self) -> str:
        """The single line on standard error; any other output fails."""
        lines = self.err.splitlines()
        assert len(lines) == 1, self
        return lines[0]


class Stage:
    """A process that forks attempts."""

    def __init__(self) -> None:
        # One date for all extracts, so that their bytes can be compared.
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "SOURCE_DATE_EPOCH": "1000000000"}
        command = [sys.executable, str(Path(__file__))]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, start_new_session=True
        )

    def attempt(self, *words: object, code: str | None = None, **how: Any) -> Outcome:
        """Run a command line, or code with its arguments in ``words``; ``how``: the disturbance, ``at``, ``below``."""
        assert self.process.stdin is not None and self.process.stdout is not None
        asked = {"words": list(map(str, words)), "code": code, **{k: v if k != "below" else str(v) for k, v in how.items()}}
        print(json.dumps(asked), file=self.process.stdin, flush=True)
        return Outcome(**json.loads(self.process.stdout.readline()))

    def close(self) -> None:
        """End the process."""
        self.process.communicate(timeout=60)


@contextlib.contextmanager
def staged() -> Iterator[Stage]:
    """Return a context manager of a stage."""
    stage = Stage()
    try:
        yield stage
    finally:
        stage.close()


class _Countdown:
    """Sends a signal at the n-th step; only counts if ``at`` is None."""

    def __init__(self, asked: dict[str, Any]) -> None:
        self.steps, self.at, self.below = 0, asked.get("at"), asked.get("below")
        self.signal = signal.SIGKILL if asked.get("how") == "kill" else signal.SIGINT
        self.modules = tuple(asked.get("modules") or ())

    def step(self) -> None:
        self.steps += 1
        if self.steps == self.at:
            os.kill(os.getpid(), self.signal)

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in _STEPS and (event == "fcntl.flock" or self.below in str(arguments[:2])):
            self.step()

    def trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        """Count the lines of the modules."""
        if not frame.f_code.co_filename.endswith(self.modules):
            return None
        if event in ("line", "return"):
            self.step()
        return self.trace


def _disturb(asked: dict[str, Any]) -> _Countdown:
    """Install the disturbance."""
    count, how = _Countdown(asked), asked.get("how")
    if asked.get("uid"):
        os.setgroups([])
        os.setgid(asked["uid"])
        os.setuid(asked["uid"])
    if how in ("kill", "interrupt", "count"):
        sys.addaudithook(count.audit)
    elif how in ("line", "lines"):
        sys.settrace(count.trace)
    elif how in ("limit", "fatal"):
        # Libraries that write temporary files when they are imported.
        import cf_units  # noqa: F401
        import numcodecs.blosc  # noqa: F401

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN if how == "limit" else signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (asked["at"], resource.RLIM_INFINITY))
    return count


def _child(asked: dict[str, Any], told: int) -> None:
    """Run the request in the child and exit with the status of an equivalent program."""
    from aggarray.cli import main

    status = 0
    count = _disturb(asked)
    try:
        if asked["code"] is None:
            main(asked["words"])
        else:
            exec(asked["code"], {"words": asked["words"], "__name__": "staged"})
    except SystemExit as stop:
        status = int(stop.code or 0)
    except BaseException as error:
        import traceback

        status = 1
        traceback.print_exception(error)
    sys.settrace(None)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    os.write(told, str(count.steps).encode())
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _read_until_ended(child: int, pipes: list[int], seconds: float) -> list[str] | None:
    """Return the output of a child and its descendants from pipes; None if it timed out."""
    deadline, texts = time.monotonic() + seconds, {pipe: b"" for pipe in pipes}
    left = list(pipes)
    while left:
        ready = select.select(left, [], [], max(0.0, deadline - time.monotonic()))[0]
        if not ready:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            break
        for pipe in ready:
            result = os.read(pipe, 1 << 16)
            texts[pipe] += result
            if not result:
                left.remove(pipe)
    for pipe in pipes:
        os.close(pipe)
    return None if left else [texts[pipe].decode(errors="replace") for pipe in pipes]


def _warm_up() -> None:
    """Run every kind of request once: children then find all modules imported, which other users may not read."""
    import numpy as np
    import pyarrow.parquet
    import zarr

    import aggarray as aa
    from aggarray.cli import commands, main

    _ = (pyarrow.parquet, zarr)
    with tempfile.TemporaryDirectory() as folder, open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        array = aa.MasterArray.from_subarrays([([(0, 2)], aa.SubArray.from_array(np.arange(2.0)))], dimensions=("x",), name="x")
        aa.Aggregation((array,)).save(f"{folder}/i.nc")
        Path(folder, "job.toml").write_text(f'[input]\nsource = "{folder}/i.nc"\n')
        lines = [f"extract {folder}/i.nc -o {folder}/x.nc", f"extract {folder}/x.nc -o {folder}/x.zarr"]
        lines += [f"aggregate {folder}/x.nc -o {folder}/j.nc", f"append {folder}/j.nc {folder}/x.zarr"]
        lines += [f"view {folder}/x.nc -o {folder}/p.html", f"run {folder}/job.toml"]
        for line in lines:
            try:
                main(line.split())
            except SystemExit as stop:
                if stop.code:
                    raise
        aa.open(f"{folder}/x.nc").to_kerchunk(f"{folder}/k.json")
    for name in commands.list_commands(None):  # type: ignore[arg-type]
        commands.get_command(None, name)  # type: ignore[arg-type]


def _serve() -> None:
    _warm_up()
    for line in sys.stdin:
        asked = json.loads(line)
        # Pipes are exempt from limits on file size.
        pipes = [os.pipe() for _ in range(3)]
        child = os.fork()
        if not child:
            os.dup2(pipes[0][1], 1)
            os.dup2(pipes[1][1], 2)
            sys.stdin.close()
            _child(asked, pipes[2][1])
        for _, end in pipes:
            os.close(end)
        texts = _read_until_ended(child, [begin for begin, _ in pipes], asked.get("seconds", SECONDS))
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) if texts is not None else HUNG
        texts = texts or ["", "", ""]
        print(json.dumps({"status": status, "out": texts[0], "err": texts[1], "steps": int(texts[2] or 0)}), flush=True)


if __name__ == "__main__":
    _serve()
