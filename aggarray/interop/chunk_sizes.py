"""Chunk sizes that dask and xarray are offered."""

import sys
from collections.abc import Iterable
from typing import Any

from aggarray.partition.chunk_sizes import ChunkSizes

#: Bytes up to which stored chunks are merged.
PREFERRED = 100_000_000


def preferred_sizes(array: Any) -> ChunkSizes:
    """Return stored chunks, merged up to `PREFERRED` bytes.

    The size of dask, if smaller, is the limit: dask cuts larger ones for "auto", without regard to
    stored chunks.
    """
    sizes: ChunkSizes = array.chunks_for(max(1, min(PREFERRED, dask_size())))
    return sizes


def dask_size() -> int:
    """Return the option ``array.chunk-size`` of dask, if dask is imported."""
    if "dask" not in sys.modules:
        return PREFERRED
    import dask
    from dask.utils import parse_bytes

    return int(parse_bytes(dask.config.get("array.chunk-size", PREFERRED)))


def preferred_chunks(arrays: Iterable[Any]) -> list[dict[str, Any]]:
    """Return the chunks that xarray is offered, by dimension, for each array.

    Values in memory, such as bounds of coordinates, may be cut anywhere: along each dimension they are cut as the largest
    array is, so that the variables of a dataset agree.
    """
    arrays = list(arrays)
    sizes = [
        None if array._known is not None else dict(zip(array.dimensions, preferred_sizes(array), strict=True))
        for array in arrays
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
    """Return one number for equal sizes, of which the last may be smaller."""
    return sizes[0] if len(set(sizes[:-1])) <= 1 and sizes[-1] <= sizes[0] else sizes
