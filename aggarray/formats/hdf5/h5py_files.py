"""HDF5 files opened by h5py."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from aggarray.formats.base import h5py_file
from aggarray.storage.files import for_library
from aggarray.storage.remote import is_remote


def open_file(path: str) -> Any:
    """Open a file with h5py; the lock must be held."""
    if is_remote(path):
        return h5py_file(for_library(path), "r")
    try:
        # Files on read-only or network file systems often cannot be locked, and reading needs no lock.
        return h5py_file(path, "r", locking=False)
    except OSError:
        # The file is already open with locking in this process, and HDF5 requires the same flag.
        return h5py_file(path, "r")


@contextmanager
def opened(path: str) -> Iterator[Any]:
    """Open a file with h5py for the duration of a block; the lock must be held."""
    file = open_file(path)
    try:
        yield file
    finally:
        file.close()
