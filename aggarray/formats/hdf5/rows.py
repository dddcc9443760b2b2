"""How are rows of numbers, each of its own length, found in an HDF5 file? As CF has them: flat samples, and a size per row.

A dataset of a variable-length type is shown as two variables: under its own name the samples of all rows one after the other,
and beside it the sizes. These lie in the dataset itself, the samples elsewhere in the file: only those wanted are read.
"""

from collections.abc import Collection, Iterator
from contextlib import closing
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np

from aggarray.formats.base import SAMPLES, SIZES, Box, Variable, basename, error_text, h5py_file
from aggarray.formats.hdf5.links import is_external
from aggarray.formats.hdf5.metadata.data import UNREADABLE, is_invalid
from aggarray.formats.hdf5.metadata.lookup import H5File
from aggarray.formats.hdf5.metadata.rows import refused_rows, stored_rows

#: So many rows are read at a time where their sizes are told by nothing but their values.
_BLOCK = 1 << 12


def samples_dtype(dataset: Any) -> np.dtype[Any] | None:
    """Return the dtype of the samples of a 1-d dataset of rows of numbers, None for anything else."""
    import h5py

    try:
        inner = h5py.check_vlen_dtype(dataset.dtype)
    except TypeError:
        return None
    # Rows in other files would have to be read there for their sizes.
    if inner is None or dataset.shape is None or len(dataset.shape) != 1 or is_external(dataset.id):
        return None
    dtype = np.dtype(inner)
    plain = dtype.names is None and dtype.subdtype is None and dtype.metadata is None
    return np.dtype(dtype.str) if plain and dtype.kind in "biufc" else None


def exceeds_limits(dataset: Any) -> str | None:
    """Return why the sizes of rows are not looked at: what is stored does not bear out so many. None for any other dataset."""
    if samples_dtype(dataset) is None:
        return None
    return refused_rows(dataset.shape[0], dataset.id.get_storage_size())


def as_rows(variable: Variable, sizes: np.ndarray, taken: Collection[str]) -> tuple[Variable, Variable]:
    """Return the samples and the row sizes that stand for a variable of so many rows; those not written have no samples.

    ``taken``: the names of variables that there are.
    """
    size, beside = variable.shape[0], variable.name + SIZES
    while beside in taken:
        beside += "_"
    samples = basename(variable.name) + SAMPLES
    flat = replace(variable, shape=(int(sizes.sum()),), dimensions=(samples,))
    told = {"sample_dimension": samples, "long_name": f"number of samples per row of {basename(variable.name)}"}
    return flat, Variable(beside, np.dtype(np.int64), (size,), variable.dimensions, told)


def rows_of(name: str) -> str | None:
    """Return the name of the variable whose row sizes have this name, None for a name that no row sizes have.

    >>> rows_of("v_row_size"), rows_of("v_row_size_"), rows_of("v")
    ('v', 'v', None)
    """
    plain = name.rstrip("_")
    return plain.removesuffix(SIZES) if plain.endswith(SIZES) else None


def sizes_of(path: str, dataset: Any) -> np.ndarray:
    """Return the size of each row of a dataset, int64; the lock must be held.

    They are taken from where the rows are named, without a library, where that can be told; else from the rows.
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


def padded(sizes: np.ndarray, chosen: slice) -> np.ndarray:
    """Return some of the sizes of rows; rows that were never written, of an unlimited dimension, have none."""
    found = np.zeros(max(chosen.stop, len(sizes)), np.int64)
    found[: len(sizes)] = sizes
    return found[chosen]


def read_samples(dataset: Any, dtype: np.dtype[Any], offsets: np.ndarray, box: Box) -> np.ndarray:
    """Return a box of the samples of all rows; ``offsets``: where each row begins. Only rows that have any of them are read."""
    (chosen,) = box
    if chosen.start >= chosen.stop:
        return np.zeros(0, dtype)
    first = int(np.searchsorted(offsets, chosen.start, side="right")) - 1
    last = int(np.searchsorted(offsets, chosen.stop, side="left"))
    mislabelled = not dtype.isnative and _mislabels()
    found = (np.asarray(row) for part in _blocks(dataset, first, last) for row in part)
    rows = [row.view(dtype) if mislabelled else row.astype(dtype, copy=False) for row in found]
    flat = np.concatenate(rows) if rows else np.zeros(0, dtype)
    if len(flat) != int(offsets[last] - offsets[first]):
        raise ValueError("rows of other sizes than they had; the file has changed, open it again")
    start = chosen.start - int(offsets[first])
    return flat[start : start + chosen.stop - chosen.start : chosen.step or 1]


@cache
def _mislabels() -> bool:
    """Tell whether h5py gives rows of foreign byte order as they are stored, and says that they are in the machine's own."""
    import h5py

    foreign = np.dtype(np.int16).newbyteorder("S")
    with h5py_file("rows", "w", driver="core", backing_store=False) as file:
        made = file.create_dataset("rows", (1,), h5py.vlen_dtype(foreign))
        made[0] = np.ones(1, foreign)
        row = made[0]
    return bool(row.dtype.isnative and row[0] != 1)


def _blocks(dataset: Any, first: int, last: int) -> Iterator[np.ndarray]:
    cuts = [*range(first, last, _BLOCK), last]
    return (dataset[a:b] for a, b in pairwise(cuts))
