"""Columns of an index without a directory, found by its HDF5 metadata.

Indexes that an earlier version saved, or that another program modified, have none.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from typing import Any

import numpy as np

from aggarray.errors import IndexFileError
from aggarray.formats.hdf5 import FORMAT, SIGNATURE
from aggarray.formats.hdf5.metadata.chunk_index import chunk_index_of
from aggarray.formats.hdf5.metadata.data import UNREADABLE, InvalidError, UnsupportedError
from aggarray.formats.hdf5.metadata.lookup import H5File
from aggarray.formats.library_errors import error_text
from aggarray.index.directory import DTYPES, Column, Directory, check_length
from aggarray.storage.byte_source import open_source


class HDF5Columns:
    """Schema, generation and columns of an index, as `Directory`.

    Raises ValueError for content that is damaged, or that only the HDF5 library can read.
    """

    def __init__(self, path: str, group: str) -> None:
        self._group = group
        with _value_errors():
            self._file = H5File(path)
        try:
            with _value_errors():
                attributes = self._file.attributes(group)
                self.schema, self.generation = (_number(attributes[name]) for name in ("schema", "generation"))
        except BaseException:
            self.close()
            raise

    def column(self, name: str) -> Column:
        """Return a column; raise ValueError if the index has none of the name."""
        variable, dtype = f"{self._group}/{name}", np.dtype(DTYPES[name])
        with _value_errors():
            (length,) = self._file.shape(self._file.dataset(variable))
            check_length(name, length, self._file.data.size)
            table = chunk_index_of(self._file, variable)
        if table is None or table.dtype != dtype or (table.offsets < 0).any():
            raise ValueError(f"{name} is not a stored column of {DTYPES[name]}")
        return Column(length, table.chunk[0], table.filters, table.offsets, table.sizes, table.masks)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def directory_of(path: str, group: str) -> Directory:
    """Return the directory of an index; raise ValueError as `HDF5Columns`."""
    with closing(HDF5Columns(path, group)) as file:
        names = [name for name in DTYPES if file._file.has(f"{group}/{name}")]
        return Directory(file.schema, file.generation, {name: file.column(name) for name in names})


def generation_of(path: str, group: str) -> int | None:
    """Return the generation of an index of aggarray, None for other files."""
    try:
        file = _metadata_of(path, group)
        if file is None:
            return None
        with closing(file):
            attributes = file.attributes(group)
            return _number(attributes["generation"]) if "schema" in attributes else None
    except (InvalidError, KeyError) as error:
        # promise: index-damaged
        hint = "restore the index, or save it again"
        raise IndexFileError(f"damaged: {error_text(error)}", path=path, hint=hint) from error
    except UNREADABLE:
        return None


def _metadata_of(path: str, group: str) -> H5File | None:
    """Return metadata of a file with ``group`` at its root, else None.

    Only a few bytes of a file that is not HDF5 are read.
    """
    with open_source(path) as source:
        # A device has no size and may have no end: reading it could block.
        if not source.size or not FORMAT.recognises(path, source.pread(len(SIGNATURE), 0)):
            return None
        with suppress(*UNREADABLE), ExitStack() as stack:
            file = stack.enter_context(closing(H5File(path)))
            if group.encode() in [link.name for link in file.links_at(file.address, file.root)]:
                stack.pop_all()
                return file
    return None


@contextmanager
def _value_errors() -> Iterator[None]:
    try:
        yield
    except UnsupportedError as error:
        raise ValueError(str(error)) from error


def _number(value: Any) -> int:
    """Return an attribute of one integer; netCDF writes arrays of one."""
    return int(np.asarray(value).item())
