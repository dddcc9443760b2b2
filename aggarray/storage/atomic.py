"""Atomic replacement of files and folders.

A crash leaves the old or the new one: the new one is written beside it and renamed, under a lock (`locks`).
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import time
from collections.abc import Callable, Iterator

from aggarray.errors import IndexFileError
from aggarray.storage.locks import Lock, LockError, finish_uninterrupted, locked
from aggarray.storage.owners import abandoned, temporary_of

#: Errors of file systems that do not support fsync, mostly for folders.
_CANNOT_FLUSH = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EBADF, errno.EROFS)
#: Constants of renameat2: AT_FDCWD, RENAME_EXCHANGE.
_HERE, _EXCHANGE = -100, 2


@contextlib.contextmanager
def write_errors(path: str) -> Iterator[None]:
    """Raise errors of the operating system as IndexFileError with the path."""
    try:
        yield
    except LockError as error:
        raise IndexFileError(f"cannot be written: {error.what}", path=path, hint=error.hint) from error
    except OSError as error:
        if isinstance(error, IndexFileError) or error.strerror is None:
            raise
        hint = "check the folder, its permissions and its space"
        raise IndexFileError(f"cannot be written: {error.strerror}", path=path, hint=hint) from error


@contextlib.contextmanager
def replace_atomically(path: str, check: Callable[[], None] = lambda: None, folder: bool = False) -> Iterator[str]:
    """Give an empty file or folder, which replaces the old one after a block.

    ``path``: not a link; ``check``: called before the replacement. One process at a time; leftovers of killed processes are
    removed. An error or interrupt inside the block leaves only the old file, unchanged. Raises OSError.
    """
    with temporary_for(path, folder) as (temporary, lock):
        yield temporary
        # promise: permissions-kept
        keep_mode(path, temporary)
        for inner, _, names in os.walk(temporary):
            for name in names:
                flush(os.path.join(inner, name))
            flush(inner)
        if not folder:
            flush(temporary)
        # promise: lost-lock-replaces-nothing
        lock.check()
        check()
        put_in_place(temporary, path)
        flush(os.path.dirname(path))


@contextlib.contextmanager
def temporary_for(path: str, folder: bool = True) -> Iterator[tuple[str, Lock]]:
    """Give an empty temporary file or folder and the lock during a block.

    Both are removed afterwards. One process at a time; leftovers of killed processes are removed. The temporary file is never
    more readable than the path. Raises OSError.
    """
    with locked(path) as lock:
        for left in abandoned(path, lock.is_system):
            # promise: leftovers-removed
            _remove(left)
        temporary = temporary_of(path)
        try:
            create_private(temporary, path, folder)
            yield temporary, lock
        finally:
            # promise: temporary-removed-on-error
            finish_uninterrupted(lambda: _remove(temporary))


def create_private(new: str, path: str, folder: bool) -> None:
    """Create an empty file or folder, as private as ``path``, not via a link."""
    mode = _mode(path)
    if folder:
        # Users who may read a file may enter the folder.
        enter = 0 if mode is None or os.path.isdir(path) else (mode & 0o444) >> 2
        # promise: extract-folder-permissions
        os.mkdir(new, 0o777 if mode is None else 0o700 | mode | enter)
    else:
        how = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        # promise: temporary-permissions
        os.close(os.open(new, how, 0o666 if mode is None else 0o600 | mode))


def _mode(path: str) -> int | None:
    try:
        return os.stat(path).st_mode & 0o777
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ELOOP):
            raise
        return None


def put_in_place(new: str, path: str) -> None:
    """Rename a new file over the old one; swap a new folder with the old one."""
    if not (os.path.isdir(new) and os.path.isdir(path)):
        os.replace(new, path)
    # promise: folder-replaced-atomically
    elif not _exchange(new, path):
        # Some file systems cannot: for a moment neither exists.
        old = f"{new}.old.tmp"
        os.rename(path, old)
        try:
            os.rename(new, path)
        except BaseException:
            os.rename(old, path)
            raise
        os.rename(old, new)


def _exchange(one: str, other: str) -> bool:
    """Exchange two names atomically; return False if the system cannot."""
    import ctypes

    try:
        rename = ctypes.CDLL(None).renameat2
    except (OSError, AttributeError):
        return False
    return bool(rename(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE) == 0)


def keep_mode(old: str, new: str) -> None:
    """Copy the permissions of the old file to the new one."""
    if (mode := _mode(old)) is not None:
        os.chmod(new, mode)


def flush(path: str) -> None:
    """Write a file or folder to the disk; full disks may raise OSError here."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # promise: sync-error
        if error.errno not in _CANNOT_FLUSH:
            raise
    finally:
        os.close(descriptor)


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        for pause in (0, 0.01, 0.1):  # threads of a library may still write after its error
            time.sleep(pause)
            shutil.rmtree(path, ignore_errors=True)
            if not os.path.lexists(path):
                break
    else:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
