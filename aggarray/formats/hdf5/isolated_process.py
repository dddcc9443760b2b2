"""Isolated process that calls the HDF5 library for damaged files."""

from __future__ import annotations

import contextlib
import functools
import os
import pickle
import resource
import signal
import sys
from typing import Any

from aggarray.errors import LIBRARY_ERRORS, AggarrayError
from aggarray.formats.base import LIBRARY_LOCK, naming_errors
from aggarray.formats.hdf5.h5py_files import open_file
from aggarray.formats.hdf5.isolated import ROOM, packed
from aggarray.formats.hdf5.library import H5pyFile, scan_by_library
from aggarray.formats.library_errors import library_fault


def main() -> None:
    """Answer each request of standard input in a fork; a crash gives None."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.dup(1)
    # Output that libraries print must not mix with the answers.
    os.dup2(2, 1)
    import h5py  # noqa: F401 - imported once, before the forks

    while len(head := sys.stdin.buffer.read(8)) == 8:
        request = pickle.loads(sys.stdin.buffer.read(int.from_bytes(head, "little")))
        child = os.fork()
        if not child:
            _serve(request, answers)
        # Terminating the process also terminates the fork, which may never end.
        signal.signal(signal.SIGTERM, functools.partial(_kill_fork, child))
        if os.waitpid(child, 0)[1]:
            # The fork has written nothing: writing the answer is its last step.
            os.write(answers, packed(None))
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _kill_fork(child: int, *signal_arguments: Any) -> None:
    os.kill(child, signal.SIGKILL)
    os._exit(1)


def _serve(request: tuple[str, str, str | None, tuple[Any, ...]], answers: int) -> None:
    """Answer a request and exit at once: the memory may be corrupt."""
    code = 1
    try:
        data = memoryview(packed(_answer(*request)))
        while data:
            data = data[os.write(answers, data) :]
        code = 0
    finally:
        os._exit(code)


def _answer(path: str, method: str, variable: str | None, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    with contextlib.suppress(OSError, ValueError), open("/proc/self/statm", encoding="ascii") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
        most = used + 2 * os.path.getsize(path) + ROOM
        resource.setrlimit(resource.RLIMIT_AS, (most, resource.getrlimit(resource.RLIMIT_AS)[1]))
    try:
        if method == "scan":
            return "value", scan_by_library(path)
        with LIBRARY_LOCK, naming_errors(path, variable), open_file(path) as file:
            names = () if variable is None else (variable,)
            return "value", None if method == "open" else getattr(H5pyFile(path, file), method)(*names, *arguments)
    except AggarrayError as error:
        return "error", type(error).__name__, error.args, {n: getattr(error, n) for n in ("path", "variable", "hint")}
    except MemoryError:
        where = {"path": path, "variable": variable, "hint": "restore the file"}
        return "error", "FormatError", ("damaged: it needs more memory than its size justifies",), where
    except LIBRARY_ERRORS as error:
        fault = library_fault(error, path)
        return "error", "FormatError", fault.args, {"path": path, "hint": fault.hint}
