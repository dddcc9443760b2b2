"""How is an HDF5 file read that contradicts itself? By the library, in another process: a crash there is an error here.

The HDF5 library believes much of what a file says, and a damaged one makes it crash or run for ever. A helper that has loaded
them forks for each question: what one file has done to its memory is gone with the next. It stays for later questions.
"""

import atexit
import contextlib
import os
import pickle
import select
import subprocess
import sys
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any

from aggarray import errors
from aggarray.errors import FormatError
from aggarray.formats.hdf5.metadata.validation import contradicts_itself
from aggarray.storage.files import stat_file

#: Seconds that an answer may take, those for each byte of the file, and no more than so many.
PATIENCE, _PER_BYTE, _MOST_PATIENCE = 15.0, 1e-6, 60.0
#: Bytes of memory that an answer may take beyond twice those of the file.
ROOM = 1 << 31
_PIECE = 1 << 20


def can_isolate() -> bool:
    """Tell whether there can be such a process: an embedded Python may not know of a program to start."""
    # promise: hdf5-isolated-process
    return bool(sys.executable) and hasattr(os, "fork")


def ask_isolated(path: str, what: str, variable: str | None = None, *rest: Any) -> Any:
    """Return what the libraries tell of a local file: ``what`` is "scan", "open", or a method of `_hdf5_file.Library`.

    Raises what these raise, and FormatError where they crash, take too long or want too much memory. Of a file over which they
    once took too long they are not asked again.
    """
    this = _file_identity(path)
    with _lock:
        until = time.monotonic() + time_limit(path)
        # promise: hdf5-endless-loop
        answer = None if this in _endless else _process().answer((path, what, variable, rest), until)
        if answer is None and time.monotonic() >= until:
            _endless.append(this)
    if answer is None:
        of = f", variable {variable!r}" if variable else ""
        how = f"comes to no end within {time_limit(path):.0f} seconds" if this in _endless else "breaks down"
        # Over legal files, too: damage is what contradicts itself.
        what, remedy = ("damaged: ", "restore the file") if contradicts_itself(path) else ("", "write it anew, or leave it out")
        raise FormatError(f"{path}{of}: {what}the HDF5 library {how} over it; {remedy}")
    kind, *told = answer
    if kind == "error":
        name, what, where = told
        raise getattr(errors, name)(*what, **where)
    return told[0]


def time_limit(path: str) -> float:
    """Return how many seconds an answer about a file may take: of a large one there is more to tell."""
    try:
        return min(PATIENCE + _PER_BYTE * stat_file(path).size, _MOST_PATIENCE)
    except OSError:
        return PATIENCE


def _file_identity(path: str) -> tuple[Any, ...]:
    """Return what tells a file from the one that replaces it."""
    try:
        return path, *stat_file(path)
    except OSError:
        return (path,)


class _IsolatedProcess:
    """A running helper, of the process that started it."""

    def __init__(self) -> None:
        root = str(Path(__file__).resolve().parents[3])
        search = [entry for entry in sys.path if isinstance(entry, str)]
        code = f"import sys; sys.path[:] = {[*search, root]!r}; from aggarray.formats.hdf5.isolated_process import main; main()"
        self.owner = os.getpid()
        self.process = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0
        )

    def answer(self, question: Any, until: float) -> tuple[Any, ...] | None:
        """Return an answer, None where there is none until some time."""
        stdin = self.process.stdin
        try:
            if stdin is not None:
                stdin.write(packed(question))
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
_current: _IsolatedProcess | None = None
#: The latest files over which the libraries did not come to an end: path and what they were like.
_endless: deque[tuple[Any, ...]] = deque(maxlen=256)


def _process() -> _IsolatedProcess:
    global _current
    if _current is not None and (_current.owner != os.getpid() or _current.process.poll() is not None):
        _current.end()
    if _current is None:
        _current = _IsolatedProcess()
        atexit.register(_current.end)
    return _current


def _forked() -> None:
    global _lock
    # Another thread of the parent may have held it.
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def packed(item: Any) -> bytes:
    """Return a pickled object after its size, 8 bytes little-endian."""
    data = pickle.dumps(item, 5)
    return len(data).to_bytes(8, "little") + data
