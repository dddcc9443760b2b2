"""Columns of an index without a directory, found by its HDF5 metadata.

Indexes that an earlier version saved, or that another program modified, have none.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

import numpy as np

from aggarray.formats.hdf5.metadata.chunk_index import chunk_index_of
from aggarray.formats.hdf5.metadata.data import UnsupportedError
from aggarray.formats.hdf5.metadata.lookup import H5File
from aggarray.index.directory import DTYPES, Column, Directory, check_length
from aggarray.index.recognition import number_in


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
                self.schema, self.generation = (number_in(attributes[name]) for name in ("schema", "generation"))
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


@contextmanager
def _value_errors() -> Iterator[None]:
    try:
        yield
    except UnsupportedError as error:
        raise ValueError(str(error)) from error
