"""How are rows of numbers, each of its own length, found in an HDF5 file? As CF has them: flat samples, and a size per row.

A dataset of a variable-length type is shown as two variables: under its own name the samples of all rows one after the other,
and beside it the sizes. These lie in the dataset itself, the samples elsewhere in the file: only those wanted are read.
"""

from collections.abc import Collection, Iterator
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np

from aggarray.formats._hdf5_links import borrows
from aggarray.formats.base import FREE_CHUNKS, Box, Variable, basename, h5py_file
from aggarray.formats.claims import MOST_INFLATED
from aggarray.formats.places import File

#: What is added to a variable's name: for the sizes of its rows, and for the dimension of its samples.
SIZES, SAMPLES = "_row_size", "_sample"

#: A row as stored: count, address of a collection in the global heap, number of the object in it.
_ELEMENT = np.dtype([("count", "<u4"), ("address", "<u8"), ("number", "<u4")])
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
    if inner is None or dataset.shape is None or len(dataset.shape) != 1 or borrows(dataset.id):
        return None
    dtype = np.dtype(inner)
    plain = dtype.names is None and dtype.subdtype is None and dtype.metadata is None
    return np.dtype(dtype.str) if plain and dtype.kind in "biufc" else None


def unbelievable(dataset: Any) -> str | None:
    """Return why the sizes of rows are not looked at: what is stored does not bear out so many. None for any other dataset."""
    if samples_dtype(dataset) is None:
        return None
    most = FREE_CHUNKS + dataset.id.get_storage_size() * MOST_INFLATED // _ELEMENT.itemsize
    return None if dataset.shape[0] <= most else f"a claim of {dataset.shape[0]} rows, hardly any stored; write the file anew"


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

    They are taken from where the rows are named, which is read as it is, where no filter is in the way; else from the rows.
    """
    stored = _elements(path, dataset)
    if stored is not None:
        return stored["count"].astype(np.int64)
    count = dataset.shape[0]
    parts = (dataset[start : start + _BLOCK] for start in range(0, count, _BLOCK))
    return np.array([len(row) for rows in parts for row in rows], np.int64)


def _elements(path: str, dataset: Any) -> np.ndarray | None:
    """Return the rows as stored, None where these bytes are not had as they are."""
    import h5py

    made, (count,) = dataset.id.get_create_plist(), dataset.shape
    if not dataset.id.get_storage_size():
        return np.zeros(count, _ELEMENT)
    if made.get_nfilters() or dataset.id.get_type().get_size() != _ELEMENT.itemsize:
        return None
    if made.get_layout() == h5py.h5d.CONTIGUOUS:
        if dataset.id.get_storage_size() != count * _ELEMENT.itemsize:
            return None
        with File(path) as file:
            return np.frombuffer(file.pread(count * _ELEMENT.itemsize, dataset.id.get_offset()), _ELEMENT)
    if made.get_layout() != h5py.h5d.CHUNKED:
        return None
    found, (chunk,) = np.zeros(count, _ELEMENT), dataset.chunks
    for number in range(dataset.id.get_num_chunks()):
        (start,) = dataset.id.get_chunk_info(number).chunk_offset
        _, packed = dataset.id.read_direct_chunk((start,))
        values = np.frombuffer(packed, _ELEMENT, count=chunk)
        found[start : start + chunk] = values[: max(0, count - start)]
    return found


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
