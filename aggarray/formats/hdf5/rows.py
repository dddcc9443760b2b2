"""Variable-length HDF5 datasets as contiguous ragged arrays of CF.

A dataset of a variable-length type becomes two variables: the concatenated samples of all rows under its own name, and the row
sizes. The dataset itself holds the sizes. The samples lie elsewhere in the file, and only the requested ones are read.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import closing
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np

from aggarray.cf.attributes import basename
from aggarray.dataclass import replace
from aggarray.formats.base import SAMPLES, SIZES, Box, Variable, h5py_file
from aggarray.formats.hdf5.metadata.data import UNREADABLE, is_invalid
from aggarray.formats.hdf5.metadata.lookup import H5File
from aggarray.formats.hdf5.metadata.rows import refused_rows, stored_rows
from aggarray.formats.library_errors import error_text

#: Number of rows that are read at a time to find their sizes from their values.
_BLOCK = 1 << 12


def samples_dtype(dataset: Any) -> np.dtype[Any] | None:
    """Return the dtype of a 1-d variable-length dataset of numbers, or None."""
    import h5py

    from aggarray.formats.hdf5.h5py_files import is_external

    try:
        inner = h5py.check_vlen_dtype(dataset.dtype)
    except TypeError:
        return None
    # The sizes of rows in other files would have to be read there.
    if inner is None or dataset.shape is None or len(dataset.shape) != 1 or is_external(dataset.id):
        return None
    dtype = np.dtype(inner)
    plain = dtype.names is None and dtype.subdtype is None and dtype.metadata is None
    return np.dtype(dtype.str) if plain and dtype.kind in "biufc" else None


def exceeds_limits(dataset: Any) -> str | None:
    """Return why the rows exceed the stored bytes, None for other datasets."""
    if samples_dtype(dataset) is None:
        return None
    return refused_rows(dataset.shape[0], dataset.id.get_storage_size())


def ragged_variables(variable: Variable, sizes: np.ndarray, names: Collection[str]) -> tuple[Variable, Variable]:
    """Return the samples and row sizes of a variable-length variable.

    Rows that were never written have no samples. ``names``: the names of the existing variables.
    """
    size, size_name = variable.shape[0], variable.name + SIZES
    while size_name in names:
        size_name += "_"
    samples = basename(variable.name) + SAMPLES
    flat = replace(variable, shape=(int(sizes.sum()),), dimensions=(samples,))
    attrs = {"sample_dimension": samples, "long_name": f"number of samples per row of {basename(variable.name)}"}
    return flat, Variable(size_name, np.dtype(np.int64), (size,), variable.dimensions, attrs)


def rows_of(name: str) -> str | None:
    """Return the variable whose row sizes have this name, or None.

    >>> rows_of("v_row_size"), rows_of("v_row_size_"), rows_of("v")
    ('v', 'v', None)
    """
    plain = name.rstrip("_")
    return plain.removesuffix(SIZES) if plain.endswith(SIZES) else None


def sizes_of(path: str, dataset: Any) -> np.ndarray:
    """Return the size of each row of a dataset, int64; the lock must be held.

    The sizes come from the heap references in the dataset, without the library, or from the rows themselves if it is
    unsupported.
    """
    try:
        with closing(H5File(path)) as file:
            return stored_rows(file.data, file.dataset(dataset.name.strip("/"))).elements["count"].astype(np.int64)
    except UNREADABLE as error:
        if is_invalid(error):
            raise ValueError(f"damaged rows: {error_text(error)}; restore the file") from error
    count = dataset.shape[0]
    parts = (dataset[start : start + _BLOCK] for start in range(0, count, _BLOCK))
    return np.array([len(row) for rows in parts for row in rows], np.int64)


def select_sizes(sizes: np.ndarray, rows: slice) -> np.ndarray:
    """Return sizes of rows, 0 for rows that were never written."""
    padded = np.zeros(max(rows.stop, len(sizes)), np.int64)
    padded[: len(sizes)] = sizes
    return padded[rows]


def read_samples(dataset: Any, dtype: np.dtype[Any], offsets: np.ndarray, box: Box) -> np.ndarray:
    """Return a box of flat samples; ``offsets``: where each row begins."""
    (samples,) = box
    if samples.start >= samples.stop:
        return np.zeros(0, dtype)
    first = int(np.searchsorted(offsets, samples.start, side="right")) - 1
    last = int(np.searchsorted(offsets, samples.stop, side="left"))
    mislabelled = not dtype.isnative and _mislabels()
    parts = (dataset[start:stop] for start, stop in pairwise([*range(first, last, _BLOCK), last]))
    read = (np.asarray(row) for part in parts for row in part)
    rows = [row.view(dtype) if mislabelled else row.astype(dtype, copy=False) for row in read]
    flat = np.concatenate(rows) if rows else np.zeros(0, dtype)
    if len(flat) != int(offsets[last] - offsets[first]):
        raise ValueError("row sizes changed; the file was modified, open it again")
    start = samples.start - int(offsets[first])
    return flat[start : start + samples.stop - samples.start : samples.step or 1]


@cache
def _mislabels() -> bool:
    """Return whether h5py labels rows of foreign byte order as native."""
    import h5py

    foreign = np.dtype(np.int16).newbyteorder("S")
    with h5py_file("rows", "w", driver="core", backing_store=False) as file:
        dataset = file.create_dataset("rows", (1,), h5py.vlen_dtype(foreign))
        dataset[0] = np.ones(1, foreign)
        row = dataset[0]
    return bool(row.dtype.isnative and row[0] != 1)
