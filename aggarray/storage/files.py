"""Where does a data file lie, what is it like, and what are its bytes at some place? The same for local and remote files.

Formats read through `ByteSource` what they read without a library, so that they know of nothing else than paths.
"""

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from aggarray.errors import FormatError, MissingFileError
from aggarray.storage import remote
from aggarray.storage.ranges import SourceState

_SECOND = 10**9
_HOW = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0)


class FileState(NamedTuple):
    """What a file is like, as `os.stat` tells it: bytes, modification time in ns, inode (of a remote file: of its tag)."""

    st_size: int
    st_mtime_ns: int
    st_ino: int
    folder: bool = False


@contextmanager
def missing(path: str) -> Iterator[None]:
    """Make it a MissingFileError if a file is not there inside a block: it may have gone since it was last looked at."""
    try:
        yield
    except MissingFileError:
        raise
    except (FileNotFoundError, NotADirectoryError) as error:
        raise _missing(path) from error


def _missing(path: str) -> MissingFileError:
    return MissingFileError(f"{path}: no such file or folder; check the path")


def absolute(path: str | os.PathLike[str]) -> str:
    """Return the absolute path of a local file, an address as it is.

    >>> absolute("/data/../a.nc"), absolute("https://host/a.nc")
    ('/a.nc', 'https://host/a.nc')
    """
    text = os.fspath(path)
    return text if remote.is_remote(text) else os.path.abspath(text)


def stat_file(path: str) -> FileState:
    """Return what a file is like now. MissingFileError where it is gone, OSError where it cannot be looked at."""
    if remote.is_remote(path):
        found = remote.status(path)
        return FileState(found.size, found.time, found.state[2], found.folder)
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError) as error:
        # promise: file-vanishes
        raise _missing(path) from error
    return FileState(status.st_size, status.st_mtime_ns, status.st_ino, stat.S_ISDIR(status.st_mode))


def same_time(path: str, now: int, then: int) -> bool:
    """Tell whether a modification time is the one that was noted; of remote files whole seconds may have been.

    Those that are noted of remote files now have a fraction that their version gives.
    """
    return now == then or (remote.is_remote(path) and not then % _SECOND and now // _SECOND == then // _SECOND)


def resized(now: FileState, size: int) -> str | None:
    """Say how a file of so many bytes is another one now, None where it is as long as it was."""
    if now.folder:
        return "changed since it was scanned: a folder is in its place"
    return None if now.st_size == size else f"changed since it was scanned: {size} bytes then, {now.st_size} now"


def is_folder(path: str) -> bool:
    """Tell whether there is a folder."""
    return _is(path, True) if remote.is_remote(path) else os.path.isdir(path)


def is_file(path: str) -> bool:
    """Tell whether there is a file."""
    return _is(path, False) if remote.is_remote(path) else os.path.isfile(path)


def _is(path: str, folder: bool) -> bool:
    try:
        return stat_file(path).folder == folder
    except MissingFileError:
        return False


def store_mark(path: str, marks: Sequence[str]) -> str:
    """Return the file that tells that a folder is a Zarr store, by its name, empty for another folder."""
    if not remote.is_remote(path):
        return next((mark for mark in marks if os.path.isfile(os.path.join(path, mark))), "")
    try:
        return remote.status(path).store
    except MissingFileError:
        return ""


def contents(paths: Sequence[str]) -> list[bytes | None]:
    """Return all bytes of small files, None for those that are not there."""
    if paths and remote.is_remote(paths[0]):
        return remote.fetch_objects(paths)
    return list(map(_content, paths))


def _content(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read()
    except (FileNotFoundError, NotADirectoryError):
        return None


def folders_in(path: str) -> list[str]:
    """Return the names of the folders in a folder, sorted."""
    if remote.is_remote(path):
        return remote.folders_in(path)
    with missing(path), os.scandir(path) as entries:
        return sorted(entry.name for entry in entries if entry.is_dir())


class ByteSource:
    """An open file, read by offset; ``size``: its bytes, ``state``: what it was like, when it was opened. Close it."""

    __slots__ = ("_content", "_descriptor", "path", "size", "state")

    def __init__(self, path: str) -> None:
        self.path, self._descriptor = path, -1
        self._content = remote.open_object(path) if remote.is_remote(path) else None
        if self._content is not None:
            self.size = self._content.size
            self.state: SourceState = self._content.status.state
            return
        try:
            self._descriptor = os.open(path, _HOW)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise _missing(path) from error
        status = os.fstat(self._descriptor)
        self.size = status.st_size
        self.state = (status.st_mtime_ns, status.st_size, status.st_ino)

    def pread(self, count: int, offset: int) -> bytes:
        """Return bytes at an offset, fewer at the end of the file, where they may be fewer than a system call gives."""
        return os.pread(self._descriptor, count, offset) if self._content is None else self._content.pread(count, offset)

    def preads(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Return bytes of several places (offset, count), of a remote file got at once."""
        if self._content is not None:
            return self._content.preads(ranges)
        return [os.pread(self._descriptor, count, offset) for offset, count in ranges]

    def fill(self, target: memoryview, offset: int) -> None:
        """Fill a buffer of bytes; EOFError where the file ends before."""
        if self._content is not None:
            remote.RemoteSource(self.path, self._content.status.state).read_into(offset, target)
            return
        done = 0
        while done < len(target):
            # The system reads at most 2 GiB at a time.
            got = os.preadv(self._descriptor, [target[done:]], offset + done)
            if got == 0:
                raise EOFError(f"truncated since it was opened: ends at byte {offset + done}, {len(target) - done} more wanted")
            done += got

    def close(self) -> None:
        """Close the file; twice does no harm."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __enter__(self) -> "ByteSource":
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    def __del__(self) -> None:
        if os is not None:  # modules may be gone when the interpreter exits
            self.close()


def for_library(path: str) -> Any:
    """Return what h5py opens: a path, or a remote file as a file of Python."""
    return remote.ObjectFile(path) if remote.is_remote(path) else path


def make_ready(path: str) -> None:
    """Fetch the beginning of a remote file, where metadata lie: libraries that wait for it keep others waiting."""
    if remote.is_remote(path):
        remote.open_object(path).pread(remote.READY, 0)


def refuse_remote(path: str, what: str) -> None:
    """Raise FormatError for a remote file that cannot be read where it is."""
    if remote.is_remote(path):
        raise FormatError(f"{path}: {what}; fetch the file and open that")
