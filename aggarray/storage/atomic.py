"""How is a file or folder replaced so that a crash leaves the old one or the new one, and no writer undoes another's work?

What is new is written beside the old and renamed over it, while the lock of the path is held (`locks`). A second writer waits,
and gets an error if the index is not the one that it opened.
"""

import contextlib
import errno
import os
import shutil
from collections.abc import Callable, Iterator

from aggarray.errors import IndexFileError
from aggarray.storage.locks import Lock, LockError, finish_uninterrupted, locked
from aggarray.storage.owners import abandoned, temporary_of

#: What file systems say that cannot be told to write at once, most of them of folders.
_CANNOT_FLUSH = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EBADF, errno.EROFS)
#: From the system's headers: paths count from the working directory; two names change places.
_HERE, _EXCHANGE = -100, 2


@contextlib.contextmanager
def write_errors(path: str) -> Iterator[None]:
    """Make what the system says inside a block an IndexFileError that names the path."""
    try:
        yield
    except LockError as error:
        raise IndexFileError(f"{path}: cannot be written: {error}") from error
    except OSError as error:
        if isinstance(error, IndexFileError) or error.strerror is None:
            raise
        why = f"cannot be written: {error.strerror}; check the folder, its permissions and its space"
        raise IndexFileError(f"{path}: {why}") from error


@contextlib.contextmanager
def replace_atomically(path: str, check: Callable[[], None] = lambda: None, folder: bool = False) -> Iterator[str]:
    """Give an empty file or folder to fill for the length of a block; afterwards that is in its place, on the disk.

    ``path``: not a link; ``check``: called before the old one is replaced. One process at a time; what killed processes have
    left is removed. An error, or an interrupt, inside the block leaves what was there, and nothing else. Raises OSError.
    """
    with temporary_for(path, folder) as (temporary, lock):
        yield temporary
        # promise: permissions-kept
        keep_mode(path, temporary)
        _flush_all(temporary)
        # promise: lost-lock-replaces-nothing
        lock.check()
        check()
        put_in_place(temporary, path)
        flush(os.path.dirname(path))


@contextlib.contextmanager
def temporary_for(path: str, folder: bool = True) -> Iterator[tuple[str, Lock]]:
    """Give an empty file or folder that is to be called ``path``, and the lock, for the length of a block; removed afterwards.

    One process at a time; what killed processes have left is removed. No user may read it who may not read what there is at
    the path. Raises OSError.
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
    """Create an empty file or folder, which may be read by no more users than what it replaces; never through a link."""
    mode = _mode(path)
    if folder:
        # Who may read a file may enter the folder in which it is made.
        enter = 0 if mode is None or os.path.isdir(path) else (mode & 0o444) >> 2
        # promise: extract-folder-permissions
        os.mkdir(new, 0o777 if mode is None else 0o700 | mode | enter)
    else:
        how = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        # promise: temporary-permissions
        os.close(os.open(new, how, 0o666 if mode is None else 0o600 | mode))


def _mode(path: str) -> int | None:
    """Return the permissions of what is at a path, None where there is nothing."""
    try:
        return os.stat(path).st_mode & 0o777
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ELOOP):
            raise
        return None


def put_in_place(new: str, path: str) -> None:
    """Give what is new the name of what was there, which it replaces; a folder that was there is called ``new`` afterwards."""
    if not (os.path.isdir(new) and os.path.isdir(path)):
        os.replace(new, path)
    # promise: folder-replaced-atomically
    elif not _exchange(new, path):
        # Not every file system can do that: for a moment there is neither.
        old = f"{new}.old.tmp"
        os.rename(path, old)
        try:
            os.rename(new, path)
        except BaseException:
            os.rename(old, path)
            raise
        os.rename(old, new)


def _exchange(one: str, other: str) -> bool:
    """Have two names change places at once; False where the system cannot."""
    import ctypes

    try:
        rename = ctypes.CDLL(None).renameat2
    except (OSError, AttributeError):
        return False
    return bool(rename(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE) == 0)


def keep_mode(old: str, new: str) -> None:
    """Give what is new the permissions of what is to be replaced."""
    if (mode := _mode(old)) is not None:
        os.chmod(new, mode)


def flush(path: str) -> None:
    """Have a file or folder on the disk before what comes next. OSError where it does not get there: disks fill up late."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # promise: sync-error
        if error.errno not in _CANNOT_FLUSH:
            raise
    finally:
        os.close(descriptor)


def _flush_all(path: str) -> None:
    """Have a file, or a folder with all that is in it, on the disk."""
    for folder, _, names in os.walk(path):
        for name in names:
            flush(os.path.join(folder, name))
        flush(folder)
    if not os.path.isdir(path):
        flush(path)


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
