"""How is a file or folder replaced so that a crash leaves the old one or the new one, and no writer undoes another's work?

What is new is written beside the old and renamed over it. Who writes holds a lock, a hidden file beside it that goes away with
it; whoever comes second waits, and is told if the index is not the one that he opened.
"""

import contextlib
import errno
import fcntl
import glob
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator

from aggarray.errors import IndexFileError
from aggarray.indexes.store import stored_generation

#: What file systems say that cannot be told to write at once, most of them of folders.
_CANNOT_FLUSH = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EBADF, errno.EROFS)
#: From the system's headers: paths count from the working directory; two names change places.
_HERE, _EXCHANGE = -100, 2


@contextlib.contextmanager
def replacing(path: str, expected: int | None) -> Iterator[tuple[str, int]]:
    """Give (the path to write to, the generation to write) for the length of a block; afterwards the file is in its place.

    ``expected``: the generation that is updated, None to write whatever is there. Raises IndexFileError where the index has
    another generation by now, or the folder cannot be written to. An error inside the block leaves the old file.
    """
    path = os.path.realpath(path)
    if os.path.lexists(path) and not os.path.isfile(path):
        raise IndexFileError(f"{path}: neither a file nor free: give another name for the index")
    with unwritten(path), beside(path) as temporary:
        now = stored_generation(path) if os.path.exists(path) else None
        # Of an index that was deleted nothing can be lost.
        if expected is not None and os.path.lexists(path) and now != expected:
            there = "it is no index any more" if now is None else f"generation {now} now, {expected} then"
            raise IndexFileError(
                f"{path}: saved by somebody else since it was opened ({there}): open it again and append to that"
            )
        # Never a number that another index of this path has had: arrays that travelled, or wait, know it by that.
        yield temporary, time.time_ns() // 1_000_000 if now is None else now + 1


@contextlib.contextmanager
def unwritten(path: str) -> Iterator[None]:
    """Make what the system says inside a block an IndexFileError that names the path."""
    try:
        yield
    except OSError as error:
        if isinstance(error, IndexFileError) or error.strerror is None:
            raise
        why = f"cannot be written: {error.strerror}; check the folder, its permissions and its space"
        raise IndexFileError(f"{path}: {why}") from error


@contextlib.contextmanager
def beside(path: str) -> Iterator[str]:
    """Give a path to write a file or a folder to for the length of a block; afterwards that is in its place, on the disk.

    ``path``: not a link. One process at a time; what others left here that were killed goes away. An error, or an
    interrupt, inside the block leaves what was there, and nothing else. Raises OSError.
    """
    folder = os.path.dirname(path)
    with aside(path) as temporary:
        yield temporary
        _keep_mode(path, temporary)
        _flush_all(temporary)
        put(temporary, path)
        flush(folder)


@contextlib.contextmanager
def aside(path: str) -> Iterator[str]:
    """Give a path to make something under that is to be called ``path``, for the length of a block; removed afterwards.

    One process at a time; what others left here that were killed goes away. Raises OSError.
    """
    folder, name = os.path.split(path)
    name = _short(name)
    with _locked(_lock_of(path)):
        for left in glob.glob(os.path.join(glob.escape(folder), f".{glob.escape(name)}.*.tmp")):
            _remove(left)  # whoever holds the lock is the only one who writes: it is from a process that was killed
        temporary = os.path.join(folder, f".{name}.{secrets.token_hex(4)}.tmp")
        try:
            yield temporary
        finally:
            surely(lambda: _remove(temporary))


def unlock(path: str) -> None:
    """Remove the lock of a file that needs no writing: whoever was killed has left it, unless somebody holds it now."""
    lock = _lock_of(os.path.realpath(path))
    with contextlib.suppress(OSError):  # none there, or a folder that may only be read
        _give_up(os.open(lock, os.O_RDWR | os.O_CLOEXEC), lock)


def _lock_of(path: str) -> str:
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{_short(name)}.lock")


def _short(name: str) -> str:
    """Return the beginning of a name to which more is added: names have 255 bytes."""
    return os.fsdecode(os.fsencode(name)[:200])


def put(new: str, path: str) -> None:
    """Give what is new the name of what was there, which it replaces; a folder that was there is called ``new`` afterwards."""
    if not (os.path.isdir(new) and os.path.isdir(path)):
        os.replace(new, path)
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


def surely(undo: Callable[[], None]) -> None:
    """Do what has to be done in the end, an interrupt notwithstanding: one that comes meanwhile is raised afterwards."""
    try:
        undo()
    except KeyboardInterrupt:
        undo()
        raise


@contextlib.contextmanager
def _locked(lock: str) -> Iterator[None]:
    """Hold a lock file for the length of a block; it is removed afterwards."""
    descriptor = -1
    try:
        descriptor = _acquired(lock)
        yield
    finally:
        _give_up(descriptor, lock)


def _acquired(lock: str) -> int:
    """Return a descriptor of the lock file, which others wait for; whoever waited looks whether it is still the one there."""
    while True:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            # Some network file systems know no locks: there the rename alone has to do.
            with contextlib.suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            if is_still(descriptor, lock):
                return descriptor
        except BaseException:
            _give_up(descriptor, lock)
            raise
        os.close(descriptor)


def _give_up(descriptor: int, lock: str) -> None:
    """Remove a lock file, unless somebody else holds it, and close it."""
    if descriptor < 0:
        return
    try:
        surely(lambda: _unlock(descriptor, lock))
    finally:
        os.close(descriptor)


def _unlock(descriptor: int, lock: str) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return
    except OSError:
        pass  # no locks there: nobody holds it
    with contextlib.suppress(OSError):
        if is_still(descriptor, lock):
            os.unlink(lock)


def is_still(descriptor: int, path: str) -> bool:
    """Tell whether an open file is the one that a path names."""
    try:
        there, held = os.stat(path), os.fstat(descriptor)
    except FileNotFoundError:
        return False
    return (there.st_dev, there.st_ino) == (held.st_dev, held.st_ino)


def _keep_mode(old: str, new: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.chmod(new, os.stat(old).st_mode & 0o777)


def flush(path: str) -> None:
    """Have a file or folder on the disk before what comes next. OSError where it does not get there: disks fill up late."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
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
    if os.path.isdir(path):
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
