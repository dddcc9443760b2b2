"""HDF5 files opened by h5py."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from aggarray.formats.base import h5py_file
from aggarray.storage.files import for_library
from aggarray.storage.remote import is_remote


def open_file(path: str) -> Any:
    """Open a file by h5py; the lock must be held."""
    if is_remote(path):
        return h5py_file(for_library(path), "r")
    try:
        # Files on read-only or network file systems often cannot be locked, and reading needs no lock.
        return h5py_file(path, "r", locking=False)
    except OSError:
        # Another part of this process has the file open with locking: the two must agree.
        return h5py_file(path, "r")


@contextmanager
def opened(path: str) -> Iterator[Any]:
    """Give a file as h5py has it for the length of a block; the lock must be held."""
    file = open_file(path)
    try:
        yield file
    finally:
        file.close()
