"""Default chunk sizes of dask and xarray arrays."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from math import prod
from typing import Any
from zlib import compress, decompress

import numpy as np

from aggarray.arrays.chunk_sizes import axis_cuts
from aggarray.partition.chunk_sizes import ChunkSizes, chunk_ends, merged_ends, sizes_of

#: Bytes up to which stored chunks are merged.
PREFERRED = 100_000_000
#: Number of chunks above which small ones are merged across files.
MOST_CHUNKS = 10_000


class PackedSizes(tuple[int, ...]):
    """Sizes of chunks along a dimension, with a compressed pickle.

    >>> import pickle
    >>> sizes = PackedSizes([31, 28, 31, 30] * 10_000)
    >>> len(pickle.dumps(sizes)) < 500, pickle.loads(pickle.dumps(sizes)) == sizes
    (True, True)
    """

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        column = np.array(self, np.min_scalar_type(max(self, default=0)))
        return _unpacked, (column.dtype.str, compress(column.tobytes()))


def _unpacked(dtype: str, column: bytes) -> PackedSizes:
    return PackedSizes(np.frombuffer(decompress(column), dtype).tolist())


def preferred_sizes(array: Any) -> ChunkSizes:
    """Return the sizes of stored chunks, merged up to a limit.

    The limit is `PREFERRED` bytes, or dask's chunk size if that is smaller: for "auto", dask would cut larger chunks, also
    within stored chunks. More than `MOST_CHUNKS` chunks are merged across files, because dask takes time for each task: up to
    twice the mean size of `MOST_CHUNKS` chunks, and at most the limit.
    """
    limit = max(1, min(PREFERRED, dask_size()))
    itemsize = array.dtype.itemsize
    ends = chunk_ends(axis_cuts(array), itemsize, limit)
    if prod(len(own) - 1 for own in ends) <= MOST_CHUNKS:
        return sizes_of(ends)
    partitioned = [axis for axis, edges in enumerate(array.partitions.edges) if len(edges) > 2]
    return sizes_of(merged_ends(ends, partitioned, itemsize, min(limit, -(-2 * array.nbytes // MOST_CHUNKS))))


def dask_size() -> int:
    """Return the option ``array.chunk-size`` of dask, if dask is imported."""
    if "dask" not in sys.modules:
        return PREFERRED
    import dask
    from dask.utils import parse_bytes

    return int(parse_bytes(dask.config.get("array.chunk-size", PREFERRED)))


def preferred_chunks(arrays: Iterable[Any], regular: int | None = None) -> list[dict[str, Any]]:
    """Return the ``preferred_chunks`` of each array, by dimension.

    Values in memory, such as bounds of coordinates, get the chunks of the largest array along each dimension, so that the
    variables of a dataset agree. ``regular``: the maximum bytes of chunks of equal size; None: sizes may differ.
    """
    arrays = list(arrays)

    def sizes_of(array: Any) -> ChunkSizes:
        return preferred_sizes(array) if regular is None else array.chunks_for(regular, regular=True)

    sizes = [
        None if array._known is not None else dict(zip(array.dimensions, sizes_of(array), strict=True)) for array in arrays
    ]
    by_dimension: dict[str, tuple[int, ...]] = {}
    for _, own in sorted(zip(arrays, sizes, strict=True), key=lambda pair: pair[0].nbytes):
        by_dimension |= own or {}
    return [
        {
            d: _compact((by_dimension if own is None else own).get(d, (n,)))
            for d, n in zip(array.dimensions, array.shape, strict=True)
        }
        for array, own in zip(arrays, sizes, strict=True)
    ]


def _compact(sizes: tuple[int, ...]) -> int | tuple[int, ...]:
    """Return one number for equal sizes; the last may be smaller."""
    return sizes[0] if len(set(sizes[:-1])) <= 1 and sizes[-1] <= sizes[0] else sizes
