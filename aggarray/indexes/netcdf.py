"""How does a netCDF-4 file get onto a disk that may be full? It is made in memory, and written by plain calls of the system.

HDF5 never closes a file that it fails to write: its descriptor, and the space that it takes, are gone for the life of the
process, and the error does not say what was wrong. So neither it nor netCDF-C writes to a disk itself.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from aggarray.formats.base import LIBRARY_LOCK

T = TypeVar("T")

#: Memory to begin with.
_START = 1 << 16
#: Where a superblock of version 2 or 3 says at which byte the file ends.
_VERSION, _END = 8, slice(28, 36)


def in_memory(fill: Callable[[Any], T]) -> tuple[T, memoryview]:
    """Return what ``fill`` returns, which is given an empty ``netCDF4.Dataset``, and the bytes of the file that comes of it.

    >>> size, content = in_memory(lambda dataset: dataset.createDimension("x", 3).size)
    >>> size, bytes(content[1:4])
    (3, b'HDF')
    """
    import netCDF4

    with LIBRARY_LOCK:
        dataset = netCDF4.Dataset("in memory", "w", format="NETCDF4", memory=_START)
        try:
            found = fill(dataset)
        except BaseException:
            dataset.close()
            raise
        content = memoryview(dataset.close())
    # Memory grows in steps: the last one is not full.
    end = int.from_bytes(content[_END], "little") if content[_VERSION] in (2, 3) else len(content)
    return found, content[:end]


def write_bytes(path: str, content: Any) -> None:
    """Write a file; OSError says what is wrong."""
    with open(path, "wb") as file:
        file.write(content)


@contextmanager
def updated(path: str) -> Iterator[Any]:
    """Give an ``h5py.File`` to write to for the length of a block; OSError says what went wrong with the disk."""
    import h5py

    with open(path, "r+b", buffering=0) as disk:
        patient = _Patient(disk)
        try:
            with LIBRARY_LOCK, h5py.File(patient, "r+") as file:
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
