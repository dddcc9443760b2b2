"""How does a netCDF-4 file get onto a disk that may be full, with a clear error and nothing left behind?

HDF5 does not close a file that it fails to write: its descriptor, and the space that it takes, are gone for the life of the
process, and the error does not say what was wrong. So it is not told: it writes through a file that keeps the error for
later, or, where netCDF-C opens the file itself, to nowhere once something has gone wrong. Should netCDF-C not close the file
even so, a descriptor of an empty file is all that is lost.
"""

import contextlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from aggarray.formats.base import LIBRARY_LOCK, h5py_file

#: What is tried before anything is written: where there is not even so much space, netCDF-C would not close the file.
_LEAST = 1 << 16
#: What is tried to find out what was wrong: more than HDF5 writes at a time.
_MOST = 1 << 24


@contextmanager
def created(path: str) -> Iterator[Any]:
    """Give an empty ``netCDF4.Dataset`` to fill for the length of a block; OSError says what went wrong with the disk."""
    import netCDF4

    # promise: no-space-no-start
    _try(path, "wb", _LEAST)
    with LIBRARY_LOCK:
        dataset = netCDF4.Dataset(path, "w", format="NETCDF4")
        try:
            yield dataset
            dataset.sync()  # what goes wrong now leaves a dataset that can be closed yet
        except RuntimeError:
            try:
                # promise: disk-full-error
                _try(path, "r+b", _MOST)  # raises what the library has not told
            finally:
                _close_nowhere(dataset, path)
            raise
        except BaseException:
            _close_nowhere(dataset, path)
            raise
        dataset.close()


def _try(path: str, mode: str, size: int) -> None:
    """Write so many bytes more to a file that nobody needs."""
    with open(path, mode, buffering=0) as file:
        end = file.seek(0, os.SEEK_END) + size
        while (left := end - file.tell()) > 0:
            file.write(bytes(min(left, 1 << 20)))


def _close_nowhere(dataset: Any, path: str) -> None:
    """Close a dataset that is given up; what is still to be written goes nowhere, and the file takes no space."""
    with contextlib.ExitStack() as later:
        with contextlib.suppress(OSError):
            # promise: failed-write-frees-space
            os.truncate(path, 0)
            # HDF5 knows files by their number: no other may get it as long as this one is open.
            kept, nowhere = os.open(path, os.O_RDONLY | os.O_CLOEXEC), os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
            later.callback(os.close, nowhere)
            for number in _descriptors(path, kept):
                os.dup2(nowhere, number, inheritable=False)
        with contextlib.suppress(RuntimeError, OSError):
            dataset.close()
            os.close(kept)


def _descriptors(path: str, but: int) -> list[int]:
    """Return the descriptors of an open file, but for one."""
    there, found = os.stat(path), []
    for name in os.listdir("/dev/fd"):
        with contextlib.suppress(OSError):
            if int(name) != but and os.path.samestat(os.fstat(int(name)), there):
                found.append(int(name))
    return found


@contextmanager
def updated(path: str) -> Iterator[Any]:
    """Give an ``h5py.File`` to write to for the length of a block; OSError says what went wrong with the disk."""
    with open(path, "r+b", buffering=0) as disk:
        patient = _Patient(disk)
        try:
            with LIBRARY_LOCK, h5py_file(patient, "r+") as file:
                yield file
        finally:
            if patient.error is not None:
                raise patient.error


class _Patient:
    """A file that HDF5 writes to without ever being told of an error: that is kept until HDF5 has let go of the file."""

    def __init__(self, disk: Any) -> None:
        self._disk = disk
        self.error: OSError | None = None
        self.seek, self.tell, self.read, self.readinto = disk.seek, disk.tell, disk.read, disk.readinto

    def write(self, content: Any) -> int:
        """Write all of it, if nothing has gone wrong yet."""
        left = memoryview(content)
        while len(left) and self.error is None:
            try:
                left = left[self._disk.write(left) :]
            except OSError as error:
                # promise: disk-full-hdf5-closed
                self.error = error
        return len(content)

    def truncate(self, size: int | None = None) -> None:
        """Cut the file, or make it longer."""
        if self.error is None:
            try:
                self._disk.truncate(size)
            except OSError as error:
                self.error = error

    def flush(self) -> None:
        """Do nothing: nothing is kept back."""
