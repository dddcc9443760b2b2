"""The process that asks the HDF5 library about files that may crash it: each question is answered in a fork of its own."""

import contextlib
import functools
import os
import pickle
import signal
import sys
from typing import Any

from aggarray.errors import AggarrayError
from aggarray.formats.base import LIBRARY_ERRORS, LIBRARY_LOCK, naming_errors
from aggarray.formats.hdf5.h5py_files import opened
from aggarray.formats.hdf5.isolated import ROOM, packed
from aggarray.formats.hdf5.library import H5pyFile, scan_by_library


def main() -> None:
    """Answer the questions of standard input, each in a fork, until it ends; None for one that a fork has died over."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.dup(1)
    # Libraries that print must not disturb the answers.
    os.dup2(2, 1)
    import h5py  # noqa: F401 - loaded once, for all answers

    while len(head := sys.stdin.buffer.read(8)) == 8:
        question = pickle.loads(sys.stdin.buffer.read(int.from_bytes(head, "little")))
        child = os.fork()
        if not child:
            _serve(question, answers)
        # Whoever ends the helper does not wait for what may never come.
        signal.signal(signal.SIGTERM, functools.partial(_end, child))
        if os.waitpid(child, 0)[1]:
            # It has written nothing: answers are written when there is nothing else left to do.
            os.write(answers, packed(None))
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _end(child: int, *given: Any) -> None:
    os.kill(child, signal.SIGKILL)
    os._exit(1)


def _serve(question: tuple[str, str, str | None, tuple[Any, ...]], answers: int) -> None:
    """Write the answer to a question and end, without taking anything down: memory may be in disorder."""
    code = 1
    try:
        data = memoryview(packed(_answer(*question)))
        while data:
            data = data[os.write(answers, data) :]
        code = 0
    finally:
        os._exit(code)


def _answer(path: str, what: str, variable: str | None, rest: tuple[Any, ...]) -> tuple[Any, ...]:
    _limit(2 * os.path.getsize(path) + ROOM)
    try:
        if what == "scan":
            return "value", scan_by_library(path)
        with LIBRARY_LOCK, naming_errors(path, variable), opened(path) as file:
            about = () if variable is None else (variable,)
            return "value", None if what == "open" else getattr(H5pyFile(path, file), what)(*about, *rest)
    except AggarrayError as error:
        return "error", type(error).__name__, error.args, vars(error)
    except MemoryError:
        of = f", variable {variable!r}" if variable else ""
        return "error", "FormatError", (f"{path}{of}: damaged: it wants more memory than it has data; restore the file",), {}
    except LIBRARY_ERRORS as error:
        return "error", "FormatError", (f"{path}: cannot be read: {' '.join(str(error).split())}",), {}


def _limit(more: int) -> None:
    """Let this process have no more than so many further bytes of memory."""
    import resource

    with contextlib.suppress(OSError, ValueError), open("/proc/self/statm", encoding="ascii") as file:
        taken = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (taken + more, resource.getrlimit(resource.RLIMIT_AS)[1]))
