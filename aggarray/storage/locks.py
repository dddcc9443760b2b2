"""Locks between processes that write to the same path.

They work on file systems with and without `flock`. With `flock` the lock is a hidden file beside the path, and the system
releases it with the process. Where `flock` fails, the lock is a file that is created exclusively and names its owner. The lock
of a process of this host that has ended is taken over at once, that of another host when it has had no heartbeat for `STALE`
seconds. A process that takes a lock over holds a second one while it compares and replaces, so that two never do.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from aggarray.errors import AggarrayError
from aggarray.storage.owners import lock_of, owner_of, temporary_of, this_process

#: Seconds between heartbeats of an exclusive lock file, and without one before it is taken over.
HEARTBEAT, STALE = 10.0, 120.0
#: Seconds between two attempts at an exclusive lock: at first, and at most.
_PAUSES = 0.002, 0.2
#: Errors of `flock` if another process holds the lock.
_HELD = (errno.EAGAIN, errno.EACCES)
#: Suffix of exclusive lock files.
_KIND = "held"


class LockError(AggarrayError, OSError):
    """A lock that is not available or was lost."""


class Lock:
    """A held lock: by `flock`, by an exclusive file, or by both."""

    def __init__(self) -> None:
        self._path, self._descriptor = "", -1
        self._exclusive: _Exclusive | None = None

    @property
    def is_system(self) -> bool:
        """Whether the operating system enforces the lock."""
        return self._descriptor >= 0

    def check(self) -> None:
        """Raise LockError if another process has taken the lock over."""
        lost = self._descriptor >= 0 and not is_still(self._descriptor, self._path)
        if lost or (self._exclusive is not None and not self._exclusive.is_mine()):
            raise LockError(f"its lock {self._path} was removed, or taken over by another process", hint="run it again")

    def acquire(self, path: str, wait: bool) -> None:
        """Acquire a path's lock; without ``wait``, raise BlockingIOError if held."""
        self._path = lock_of(path)
        while not self._flocked(wait):
            pass
        # A host on which `flock` fails may hold it now.
        # promise: exclusive-lock-file
        if self._descriptor < 0 or os.path.lexists(lock_of(path, _KIND)):
            self._exclusive = _Exclusive(path)
            self._exclusive.acquire(wait)

    def _flocked(self, wait: bool) -> bool:
        """Try to lock the lock file; return False if it was replaced meanwhile."""
        try:
            how = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
            # promise: lock-symlink
            self._descriptor = os.open(self._path, how, 0o666)
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
                raise
            raise LockError(f"its lock {self._path} is a link, or not a file", hint="remove it") from error
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except OSError as error:
            # promise: held-lock-kept
            if error.errno in _HELD:
                self._close()
                raise BlockingIOError(error.errno, error.strerror) from error
            with contextlib.suppress(OSError):
                os.unlink(self._path)  # no locks here: it means nothing
            self._close()
            return True
        if is_still(self._descriptor, self._path):
            return True
        self._close()
        return False

    def release(self) -> None:
        """Remove the lock files; releasing twice is harmless."""
        if self._exclusive is not None:
            self._exclusive.release()
        if self._descriptor >= 0:
            with contextlib.suppress(OSError):
                if is_still(self._descriptor, self._path) and self._is_held():
                    # promise: lock-removed-on-interrupt
                    os.unlink(self._path)
            self._close()

    def _is_held(self) -> bool:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            return error.errno not in _HELD
        return True

    def _close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


@contextlib.contextmanager
def locked(path: str, wait: bool = True) -> Iterator[Lock]:
    """Hold the lock of a path during a block, then remove its files.

    One process, and one thread, at a time. BlockingIOError if another one holds it and ``wait`` is false; LockError if it is
    not available; OSError if the folder is not writable.
    """
    lock = Lock()
    try:
        lock.acquire(path, wait)
        yield lock
    finally:
        finish_uninterrupted(lock.release)


@contextlib.contextmanager
def locked_file(descriptor: int, path: str, wait: bool) -> Iterator[None]:
    """Lock an open file during a block.

    There is no lock file where `flock` works. BlockingIOError if another process holds it and ``wait`` is false.
    """
    with contextlib.ExitStack() as stack:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except OSError as error:
            if error.errno in _HELD:
                raise BlockingIOError(error.errno, error.strerror) from error
            exclusive = _Exclusive(os.path.realpath(path))
            stack.callback(finish_uninterrupted, exclusive.release)
            exclusive.acquire(wait)
        yield


def unlock(path: str) -> None:
    """Remove a killed process's lock on an up-to-date path; keep a held one."""
    if any(os.path.lexists(lock_of(path, kind)) for kind in ("lock", _KIND)):
        with contextlib.suppress(OSError), locked(path, wait=False):
            pass


def is_still(descriptor: int, path: str) -> bool:
    """Return whether an open file is the one at a path."""
    try:
        there, held = os.lstat(path), os.fstat(descriptor)
    except FileNotFoundError:
        return False
    return (there.st_dev, there.st_ino) == (held.st_dev, held.st_ino)


def finish_uninterrupted(undo: Callable[[], None]) -> None:
    """Run a final action to its end, then raise an interrupt that came."""
    try:
        undo()
    except KeyboardInterrupt:
        undo()
        raise


class _Exclusive:
    """Lock file of an owner; ``depth``: 1 for the lock during a takeover."""

    def __init__(self, target: str, depth: int = 0) -> None:
        self._target, self._depth = target, depth
        self._path = lock_of(target, _KIND) + "~" * depth
        self._content, self._process = b"", os.getpid()
        self._ended = threading.Event()

    def is_mine(self) -> bool:
        """Return whether this object, in its own process, owns the file."""
        return bool(self._content) and self._process == os.getpid() and _content(self._path) == self._content

    def acquire(self, wait: bool) -> None:
        owner = this_process()
        content = {"owner": str(owner), "pid": owner.pid, "host": os.uname().nodename, "token": os.urandom(8).hex()}
        self._content = json.dumps(content).encode()
        made = temporary_of(self._target)
        pause, most = _PAUSES
        try:
            _write(made, self._content)
            while not self._created(made) and not self._taken_over(made):
                if not wait:
                    raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN), self._path)
                time.sleep(pause)
                pause = min(2 * pause, most)
        except BaseException:
            self.release()
            raise
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(made)
        self._sweep()
        if not self._depth:
            threading.Thread(target=self._beat, name="aggarray-lock", daemon=True).start()

    def _created(self, made: str) -> bool:
        try:
            os.link(made, self._path)
        except FileExistsError:
            return self.is_mine()  # a server may have done it without its answer getting here
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.EMLINK):
                raise
            try:
                _write(self._path, self._content)  # no hard links here
            except FileExistsError:
                return False
        return True

    def _taken_over(self, made: str) -> bool:
        """Replace the file of an owner that has ended, return False without one."""
        content = _content(self._path)
        if content is None or not self._is_stale(content, made):
            return False
        # If several processes see it stale, the first replaces it and the others see another content.
        guard = _Exclusive(self._target, self._depth + 1)
        try:
            guard.acquire(wait=True)
            # promise: lock-single-takeover
            if _content(self._path) != content:
                return False
            os.replace(made, self._path)
            return True
        finally:
            finish_uninterrupted(guard.release)

    def _sweep(self) -> None:
        guard = _Exclusive(self._target, self._depth + 1)
        if os.path.lexists(guard._path):
            with contextlib.suppress(BlockingIOError):
                guard.acquire(wait=False)
                guard.release()

    def _is_stale(self, content: bytes, made: str) -> bool:
        """Return whether the owner has ended or its heartbeat has stopped."""
        fields: Any = None
        with contextlib.suppress(ValueError, RecursionError):
            fields = json.loads(content)
        owner = owner_of(str(fields.get("owner", "")) if isinstance(fields, dict) else "")
        gone = None if owner is None else owner.is_gone()
        if gone is not None:
            # promise: exclusive-lock-dead-process
            return gone
        with contextlib.suppress(FileNotFoundError):
            # Both times come from the file server: clocks of hosts differ.
            os.utime(made)
            # promise: exclusive-lock-other-host
            return _read(made)[1] - _read(self._path)[1] > STALE
        return False

    def _beat(self) -> None:
        """Update the file's time at intervals, even after it was replaced."""
        with contextlib.suppress(OSError):
            descriptor = os.open(self._path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                while self.is_mine() and not self._ended.wait(HEARTBEAT):
                    # promise: exclusive-lock-heartbeat
                    os.utime(descriptor)
            finally:
                os.close(descriptor)

    def release(self) -> None:
        """Remove the file if it is this object's; releasing twice is harmless."""
        self._ended.set()
        with contextlib.suppress(OSError):
            if self.is_mine():
                os.unlink(self._path)


def _write(path: str, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    try:
        if os.write(descriptor, content) < len(content):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
    except BaseException:
        os.unlink(path)
        raise
    finally:
        os.close(descriptor)


def _read(path: str) -> tuple[bytes, float]:
    """Return a lock file's content and time, as refreshed by opening it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise LockError(f"its lock {path} is a link", hint="remove it") from error
    try:
        return os.read(descriptor, 4096), os.fstat(descriptor).st_mtime
    except IsADirectoryError as error:
        raise LockError(f"its lock {path} is a folder", hint="remove it") from error
    finally:
        os.close(descriptor)


def _content(path: str) -> bytes | None:
    try:
        return _read(path)[0]
    except FileNotFoundError:
        return None
