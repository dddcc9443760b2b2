"""How is a file replaced so that a crash leaves the old one or the new one, and two writers do not lose each other's work?

The new file is written beside the old one and renamed over it. Who saves holds a lock, a hidden file beside the index that
goes away with it; whoever comes second waits, and is told if the index is not the one that he opened.
"""

import contextlib
import fcntl
import glob
import os
import secrets
import time
from collections.abc import Iterator

from aggarray.errors import IndexFileError
from aggarray.indexes.store import stored_generation


@contextlib.contextmanager
def replacing(path: str, expected: int | None) -> Iterator[tuple[str, int]]:
    """Give (the path to write to, the generation to write) for the length of a block; afterwards the file is in its place.

    ``expected``: the generation that is updated, None to write whatever is there. Raises IndexFileError where the index has
    another generation by now, or the folder cannot be written to. An error inside the block leaves the old file.
    """
    path = os.path.realpath(path)
    folder, name = os.path.split(path)
    if os.path.lexists(path) and not os.path.isfile(path):
        raise IndexFileError(f"{path}: neither a file nor free: give another name for the index")
    try:
        with _locked(os.path.join(folder, f".{name}.lock")):
            now = stored_generation(path) if os.path.exists(path) else None
            # Of an index that was deleted nothing can be lost.
            if expected is not None and os.path.lexists(path) and now != expected:
                there = "it is no index any more" if now is None else f"generation {now} now, {expected} then"
                raise IndexFileError(
                    f"{path}: saved by somebody else since it was opened ({there}): open it again and append to that"
                )
            for left in glob.glob(os.path.join(glob.escape(folder), f".{glob.escape(name)}.*.tmp")):
                os.unlink(left)  # whoever holds the lock is the only one who writes: it is from a process that was killed
            temporary = os.path.join(folder, f".{name}.{secrets.token_hex(4)}.tmp")
            try:
                # Never a number that another index of this path has had: arrays that travelled, or wait, know it by that.
                yield temporary, time.time_ns() // 1_000_000 if now is None else now + 1
                _keep_mode(path, temporary)
                _flush(temporary)
                os.replace(temporary, path)
                _flush(folder)
            finally:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(temporary)
    except OSError as error:
        if isinstance(error, IndexFileError) or error.strerror is None:
            raise
        raise IndexFileError(
            f"{path}: cannot be written: {error.strerror}; check the folder, its permissions and its space"
        ) from error


@contextlib.contextmanager
def _locked(lock: str) -> Iterator[None]:
    """Hold a lock file; it is removed afterwards, so whoever waited for it looks whether it is still the one in the folder."""
    while True:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            # Some network file systems know no locks: there the rename alone has to do.
            with contextlib.suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            if _is(descriptor, lock):
                break
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.unlink(lock)
        os.close(descriptor)


def _is(descriptor: int, path: str) -> bool:
    """Tell whether an open file is the one that a path names."""
    try:
        there, held = os.stat(path), os.fstat(descriptor)
    except FileNotFoundError:
        return False
    return (there.st_dev, there.st_ino) == (held.st_dev, held.st_ino)


def _keep_mode(old: str, new: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.chmod(new, os.stat(old).st_mode & 0o777)


def _flush(path: str) -> None:
    """Have a file or folder on the disk before what comes next."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
