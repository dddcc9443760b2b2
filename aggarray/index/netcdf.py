"""Writing of netCDF-4 files to a disk that may be full.

HDF5 does not close a file that it fails to write: the descriptor and the disk space are lost until the process ends, and its
error does not name the cause. HDF5 therefore writes through a file object that keeps the first error. If netCDF-C opens the
file itself, its descriptors are redirected to the null device after an error. If netCDF-C still does not close the file, only
the descriptor of an empty file is lost.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from aggarray.formats.base import LIBRARY_LOCK, h5py_file

#: Bytes of a test write before anything else: with less space netCDF-C does not close the file.
_MIN_SPACE = 1 << 16
#: Bytes of a test write that finds the cause of an error: more than HDF5 writes at a time.
_PROBE = 1 << 24


@contextmanager
def created(path: str, extend: bool = False) -> Iterator[Any]:
    """Create a ``netCDF4.Dataset`` for a block; raise OSError on disk errors.

    ``extend``: open an existing file and keep its content.
    """
    import netCDF4

    size = os.path.getsize(path) if extend else 0
    # promise: no-space-no-start
    _write_zeros(path, "r+b" if extend else "wb", _MIN_SPACE)
    if extend:
        os.truncate(path, size)
    with LIBRARY_LOCK:
        dataset = netCDF4.Dataset(path, "a" if extend else "w", format="NETCDF4")
        try:
            yield dataset
            dataset.sync()  # an error here leaves a dataset that can still be closed
        except RuntimeError:
            try:
                # promise: disk-full-error
                _write_zeros(path, "r+b", _PROBE)  # raises the error that the library hides
            finally:
                _close_nowhere(dataset, path)
            raise
        except BaseException:
            _close_nowhere(dataset, path)
            raise
        dataset.close()


def _write_zeros(path: str, mode: str, size: int) -> None:
    """Append zeros to a file, to find out whether the disk has space."""
    with open(path, mode, buffering=0) as file:
        end = file.seek(0, os.SEEK_END) + size
        while (remaining := end - file.tell()) > 0:
            file.write(bytes(min(remaining, 1 << 20)))


def _close_nowhere(dataset: Any, path: str) -> None:
    """Close a failed dataset without writing; its file is emptied."""
    with contextlib.ExitStack() as later:
        with contextlib.suppress(OSError):
            # promise: failed-write-frees-space
            os.truncate(path, 0)
            # HDF5 identifies files by inode: this descriptor keeps the inode from being reused.
            kept, nowhere = os.open(path, os.O_RDONLY | os.O_CLOEXEC), os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
            later.callback(os.close, nowhere)
            state = os.stat(path)
            for number in map(int, os.listdir("/dev/fd")):
                with contextlib.suppress(OSError):
                    if number != kept and os.path.samestat(os.fstat(number), state):
                        os.dup2(nowhere, number, inheritable=False)
        with contextlib.suppress(RuntimeError, OSError):
            dataset.close()
            os.close(kept)


@contextmanager
def updated(path: str) -> Iterator[Any]:
    """Open a writable ``h5py.File`` for a block; raise OSError on disk errors."""
    with open(path, "r+b", buffering=0) as disk:
        target = _ErrorRecordingFile(disk)
        try:
            with LIBRARY_LOCK, h5py_file(target, "r+") as file:
                yield file
        finally:
            if target.error is not None:
                raise target.error


class _ErrorRecordingFile:
    """File that keeps its first write error until HDF5 has closed it."""

    def __init__(self, disk: Any) -> None:
        self._disk = disk
        self.error: OSError | None = None
        self.seek, self.tell, self.read, self.readinto = disk.seek, disk.tell, disk.read, disk.readinto

    def write(self, content: Any) -> int:
        """Write all bytes, unless an error occurred."""
        remaining = memoryview(content)
        while len(remaining) and self.error is None:
            try:
                remaining = remaining[self._disk.write(remaining) :]
            except OSError as error:
                # promise: disk-full-hdf5-closed
                self.error = error
        return len(content)

    def truncate(self, size: int | None = None) -> None:
        """Set the size of the file, unless an error occurred."""
        if self.error is None:
            try:
                self._disk.truncate(size)
            except OSError as error:
                self.error = error

    def flush(self) -> None:
        """Do nothing: writes are not buffered."""
