"""Reading of invalid HDF5 files by the library in an isolated process.

A damaged file can make the HDF5 library crash or loop endlessly. An isolated process, which has imported the library, forks for
each request, so that memory corrupted by one file does not affect the next. A crash is an error here. The process is kept for
later requests.
"""

from __future__ import annotations

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
from aggarray.formats.hdf5.metadata.validation import is_damaged
from aggarray.storage.files import stat_file

#: Time limit of a request in seconds: base, addition per byte of the file, maximum.
PATIENCE, _PER_BYTE, _MOST_PATIENCE = 15.0, 1e-6, 60.0
#: Bytes of memory that a request may take in addition to twice the size of the file.
ROOM = 1 << 31
_BLOCK = 1 << 20


def can_isolate() -> bool:
    """Return whether this Python has an executable and can fork."""
    # promise: hdf5-isolated-process
    return bool(sys.executable) and hasattr(os, "fork")


def call_isolated(path: str, method: str, variable: str | None = None, *arguments: Any) -> Any:
    """Return the result of the HDF5 library for a local file.

    ``method``: "scan", "open" or a method of `library.H5pyFile`. Raises the errors of the method, and FormatError if the
    library crashes, times out or needs too much memory. A file that timed out once is not tried again.
    """
    identity: tuple[Any, ...] = (path,)
    with contextlib.suppress(OSError):
        # A file that replaces this one has another state.
        identity = path, *stat_file(path)
    with _lock:
        deadline = time.monotonic() + time_limit(path)
        # promise: hdf5-endless-loop
        answer = None if identity in _endless else _process().answer((path, method, variable, arguments), deadline)
        if answer is None and time.monotonic() >= deadline:
            _endless.append(identity)
    if answer is None:
        event = f"timed out after {time_limit(path):.0f} s" if identity in _endless else "crashed"
        # The library fails on some valid files, too.
        invalid = is_damaged(path)
        what, hint = ("damaged: ", "restore the file") if invalid else ("", "rewrite the file, or leave it out")
        raise FormatError(f"{what}the HDF5 library {event}", path=path, variable=variable, hint=hint)
    outcome, *result = answer
    if outcome == "error":
        name, what, where = result
        raise getattr(errors, name)(*what, **where)
    return result[0]


def time_limit(path: str) -> float:
    """Return the time limit of a request in seconds, by the file's size."""
    try:
        return min(PATIENCE + _PER_BYTE * stat_file(path).size, _MOST_PATIENCE)
    except OSError:
        return PATIENCE


class _IsolatedProcess:
    """Running isolated process; ``owner``: the process that started it."""

    def __init__(self) -> None:
        root = str(Path(__file__).resolve().parents[3])
        search = [entry for entry in sys.path if isinstance(entry, str)]
        code = f"import sys; sys.path[:] = {[*search, root]!r}; from aggarray.formats.hdf5.isolated_process import main; main()"
        self.owner = os.getpid()
        self.process = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0
        )

    def answer(self, request: Any, deadline: float) -> tuple[Any, ...] | None:
        """Return the answer to a request, None after the deadline."""
        stdin = self.process.stdin
        try:
            if stdin is not None:
                stdin.write(packed(request))
            size = int.from_bytes(self._bytes(8, deadline), "little")
            unpickled: tuple[Any, ...] | None = pickle.loads(self._bytes(size, deadline))
            return unpickled
        except (OSError, EOFError):
            self.end()
            return None
        except BaseException:  # after an interrupt the rest of this answer would be read as the next one
            self.end()
            raise

    def _bytes(self, count: int, deadline: float) -> bytes:
        received = bytearray()
        stdout = self.process.stdout
        while stdout is not None and len(received) < count:
            ready, _, _ = select.select([stdout], [], [], max(0.0, deadline - time.monotonic()))
            part = os.read(stdout.fileno(), min(_BLOCK, count - len(received))) if ready else b""
            if not part:
                raise EOFError
            received += part
        return bytes(received)

    def end(self) -> None:
        """Terminate the process; only close the pipes if another started it."""
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
#: Latest files for which the library timed out: path and state.
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
    # Another thread of the parent may have held the lock.
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def packed(item: Any) -> bytes:
    """Return a pickled object after its size, 8 bytes little-endian."""
    data = pickle.dumps(item, 5)
    return len(data).to_bytes(8, "little") + data
