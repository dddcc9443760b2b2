"""How is an HDF5 file read that contradicts itself? By the library, in another process: a crash there is an error here.

The HDF5 library believes much of what a file says, and a damaged one makes it crash or run for ever. A helper that has loaded
them forks for each question: what one file has done to its memory is gone with the next. It stays for later questions.
"""

import atexit
import contextlib
import functools
import os
import pickle
import select
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from typing import Any

from aggarray import errors
from aggarray.errors import AggarrayError, FormatError
from aggarray.formats._h5.survey import contradicts_itself
from aggarray.formats.base import LIBRARY_ERRORS, LIBRARY_LOCK, blaming
from aggarray.formats.places import looks

#: Seconds that an answer may take, those for each byte of the file, and no more than so many.
PATIENCE, _PER_BYTE, _MOST_PATIENCE = 15.0, 1e-6, 60.0
#: Bytes of memory that an answer may take beyond twice those of the file.
ROOM = 1 << 31
_PIECE = 1 << 20


def possible() -> bool:
    """Tell whether there can be such a process: an embedded Python may not know of a program to start."""
    # promise: hdf5-isolated-process
    return bool(sys.executable) and hasattr(os, "fork")


def ask(path: str, what: str, variable: str | None = None, *rest: Any) -> Any:
    """Return what the libraries tell of a local file: ``what`` is "scan", "open", or a method of `_hdf5_file.Library`.

    Raises what these raise, and FormatError where they crash, take too long or want too much memory. Of a file over which they
    once took too long they are not asked again.
    """
    this = _marks_of(path)
    with _lock:
        until = time.monotonic() + patience(path)
        # promise: hdf5-endless-loop
        answer = None if this in _endless else _helper().answer((path, what, variable, rest), until)
        if answer is None and time.monotonic() >= until:
            _endless.append(this)
    if answer is None:
        of = f", variable {variable!r}" if variable else ""
        how = f"comes to no end within {patience(path):.0f} seconds" if this in _endless else "breaks down"
        # Over legal files, too: damage is what contradicts itself.
        what, remedy = ("damaged: ", "restore the file") if contradicts_itself(path) else ("", "write it anew, or leave it out")
        raise FormatError(f"{path}{of}: {what}the HDF5 library {how} over it; {remedy}")
    kind, *told = answer
    if kind == "error":
        raise getattr(errors, told[0])(told[1])
    return told[0]


def patience(path: str) -> float:
    """Return how many seconds an answer about a file may take: of a large one there is more to tell."""
    try:
        return min(PATIENCE + _PER_BYTE * looks(path).st_size, _MOST_PATIENCE)
    except OSError:
        return PATIENCE


def _marks_of(path: str) -> tuple[Any, ...]:
    """Return what tells a file from the one that replaces it."""
    try:
        return path, *looks(path)
    except OSError:
        return (path,)


class _Helper:
    """A running helper, of the process that started it."""

    def __init__(self) -> None:
        root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        search = [entry for entry in sys.path if isinstance(entry, str)]
        code = f"import sys; sys.path[:] = {[*search, root]!r}; from aggarray.formats._hdf5_apart import main; main()"
        self.owner = os.getpid()
        self.process = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0
        )

    def answer(self, question: Any, until: float) -> tuple[Any, ...] | None:
        """Return an answer, None where there is none until some time."""
        stdin = self.process.stdin
        try:
            if stdin is not None:
                stdin.write(_packed(question))
            size = int.from_bytes(self._bytes(8, until), "little")
            found: tuple[Any, ...] | None = pickle.loads(self._bytes(size, until))
            return found
        except (OSError, EOFError):
            self.end()
            return None
        except BaseException:  # an interrupt: what is still to come would be taken for the next answer
            self.end()
            raise

    def _bytes(self, count: int, until: float) -> bytes:
        found = bytearray()
        stdout = self.process.stdout
        while stdout is not None and len(found) < count:
            ready, _, _ = select.select([stdout], [], [], max(0.0, until - time.monotonic()))
            part = os.read(stdout.fileno(), min(_PIECE, count - len(found))) if ready else b""
            if not part:
                raise EOFError
            found += part
        return bytes(found)

    def end(self) -> None:
        """End the helper and whoever answers for it; of another process's helper only the ends of its pipes are closed."""
        global _current
        _current = None
        atexit.unregister(self.end)
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        if self.owner == os.getpid():
            self.process.terminate()
            self.process.wait()


_lock = threading.Lock()
_current: _Helper | None = None
#: The latest files over which the libraries did not come to an end: path and what they were like.
_endless: deque[tuple[Any, ...]] = deque(maxlen=256)


def _helper() -> _Helper:
    global _current
    if _current is not None and (_current.owner != os.getpid() or _current.process.poll() is not None):
        _current.end()
    if _current is None:
        _current = _Helper()
        atexit.register(_current.end)
    return _current


def _forked() -> None:
    global _lock
    # Another thread of the parent may have held it.
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def _packed(item: Any) -> bytes:
    data = pickle.dumps(item, 5)
    return len(data).to_bytes(8, "little") + data


# In the helper


def main() -> None:
    """Answer the questions of standard input, each in a fork, until it ends; None for one that a fork has died over."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.dup(1)
    # Libraries that print must not disturb the answers.
    os.dup2(2, 1)
    import h5py  # noqa: F401 - loaded once, for all answers, as is what follows

    from aggarray.formats import hdf5  # noqa: F401

    while len(head := sys.stdin.buffer.read(8)) == 8:
        question = pickle.loads(sys.stdin.buffer.read(int.from_bytes(head, "little")))
        child = os.fork()
        if not child:
            _serve(question, answers)
        # Whoever ends the helper does not wait for what may never come.
        signal.signal(signal.SIGTERM, functools.partial(_end, child))
        if os.waitpid(child, 0)[1]:
            # It has written nothing: answers are written when there is nothing else left to do.
            os.write(answers, _packed(None))
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _end(child: int, *given: Any) -> None:
    os.kill(child, signal.SIGKILL)
    os._exit(1)


def _serve(question: tuple[str, str, str | None, tuple[Any, ...]], answers: int) -> None:
    """Write the answer to a question and end, without taking anything down: memory may be in disorder."""
    code = 1
    try:
        data = memoryview(_packed(_answer(*question)))
        while data:
            data = data[os.write(answers, data) :]
        code = 0
    finally:
        os._exit(code)


def _answer(path: str, what: str, variable: str | None, rest: tuple[Any, ...]) -> tuple[Any, ...]:
    from aggarray.formats._hdf5_file import Library, opened
    from aggarray.formats.hdf5 import scan_by_library

    _limit(2 * os.path.getsize(path) + ROOM)
    try:
        if what == "scan":
            return "value", scan_by_library(path)
        with LIBRARY_LOCK, blaming(path, variable), opened(path) as file:
            about = () if variable is None else (variable,)
            return "value", None if what == "open" else getattr(Library(path, file), what)(*about, *rest)
    except AggarrayError as error:
        return "error", type(error).__name__, str(error)
    except MemoryError:
        of = f", variable {variable!r}" if variable else ""
        return "error", "FormatError", f"{path}{of}: damaged: it wants more memory than it has data; restore the file"
    except LIBRARY_ERRORS as error:
        return "error", "FormatError", f"{path}: cannot be read: {' '.join(str(error).split())}"


def _limit(more: int) -> None:
    """Let this process have no more than so many further bytes of memory."""
    import resource

    with contextlib.suppress(OSError, ValueError), open("/proc/self/statm", encoding="ascii") as file:
        taken = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (taken + more, resource.getrlimit(resource.RLIMIT_AS)[1]))
