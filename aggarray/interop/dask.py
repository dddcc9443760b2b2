"""Conversion of a master array to a dask array.

The graph is one layer that computes the block of each task on demand. Importing this module needs the extra ``xarray``.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from aggarray.errors import AggregationError, SelectionError, install_command
from aggarray.interop.pickling import LazyBlock, fingerprint, read_block

try:
    import dask.array as da
    from dask.base import tokenize
    from dask.blockwise import BlockwiseDep, blockwise
    from dask.highlevelgraph import HighLevelGraph
except ImportError as error:
    raise AggregationError(f"to_dask needs dask: {error}", hint=install_command("xarray")) from error

Chunks = tuple[tuple[int, ...], ...]


class DaskBlocks(BlockwiseDep):  # type: ignore[misc]
    """Block of each task of a layer; ``token`` identifies the layer."""

    produces_tasks = False

    def __init__(self, array: Any, chunks: Chunks, token: tuple[Any, ...]) -> None:
        self.array, self.chunks, self._told = array, chunks, token
        self.numblocks = tuple(map(len, chunks))
        self._starts = [np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]).tolist() for sizes in chunks]

    def __getitem__(self, idx: tuple[int, ...]) -> LazyBlock:
        key = (slice(starts[i], starts[i + 1]) for i, starts in zip(idx, self._starts, strict=True))
        return LazyBlock(self.array, tuple(key))

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        return type(self).__name__, self._told


def partition_chunks(array: Any) -> Chunks:
    """Return the sizes of the partitions along each dimension.

    >>> from aggarray import MasterArray, SubArray
    >>> a, b = SubArray.from_array([1.0, 2.0]), SubArray.from_array([3.0])
    >>> partition_chunks(MasterArray.from_subarrays([([(0, 2)], a), ([(2, 3)], b)], dimensions=("x",)))
    ((2, 1),)
    """
    return tuple(tuple(np.diff(edges).tolist()) or (0,) for edges in array._matrix.edges)


def chunked(array: Any, chunks: Any = None) -> Chunks:
    """Return the sizes of the chunks along each dimension.

    ``chunks``: None for the partitions, else as dask takes them, by name or number of the dimension. Raises SelectionError
    for chunks that are invalid.
    """
    partitions = partition_chunks(array)
    _check_sizes(chunks)
    if chunks is None:
        return partitions
    if isinstance(chunks, Mapping):
        unknown = [d for d in chunks if d not in array.dimensions and d not in range(array.ndim)]
        if unknown:
            hint = f"the array has {', '.join(array.dimensions)}"
            raise SelectionError(f"chunks={chunks!r}: no dimension {unknown[0]!r}", hint=hint)
        by_axis = {(array.dimensions.index(d) if isinstance(d, str) else d): size for d, size in chunks.items()}
        chunks = tuple(partitions[axis] if by_axis.get(axis) is None else by_axis[axis] for axis in range(array.ndim))
    try:
        sizes_by_axis = da.core.normalize_chunks(chunks, array.shape, dtype=array.dtype, previous_chunks=partitions)
    except (ValueError, TypeError, NotImplementedError) as error:
        reason, _, _ = " ".join(str(error).split()).partition(". Got ")  # dask repeats chunks and shape
        hint = "give one size, or a tuple of sizes that add up to its size, per dimension"
        raise SelectionError(f"chunks={chunks!r} for an array of shape {array.shape}: {reason:.200}", hint=hint) from error
    return tuple(tuple(map(int, lengths)) for lengths in sizes_by_axis)


def _check_sizes(chunks: Any) -> None:
    """Raise SelectionError for sizes that dask misreads or divides by."""
    items = chunks.values() if isinstance(chunks, Mapping) else chunks
    for along in items if isinstance(chunks, tuple | list | Mapping) else (chunks,):
        listed = isinstance(along, tuple | list)  # a listed chunk may be empty, as a dimension may
        for size in along if listed else (along,):
            integer = isinstance(size, int | np.integer)
            if isinstance(size, bool | np.bool_) or (integer and (size < (0 if listed else -1) or (size == 0 and not listed))):
                hint = "give a positive integer, -1 for the whole dimension, or 'auto'"
                raise SelectionError(f"chunks={chunks!r}: {size!r} is not a chunk size", hint=hint)


def to_dask(array: Any, chunks: Any = None) -> Any:
    """Return a master array as a dask array, lazily.

    No file is opened and no task is made.
    ``chunks``: as `chunked` takes them.

    >>> from aggarray import MasterArray, SubArray
    >>> a, b = SubArray.from_array([1.0, 2.0]), SubArray.from_array([3.0])
    >>> made = to_dask(MasterArray.from_subarrays([([(0, 2)], a), ([(2, 3)], b)], dimensions=("x",)))
    >>> made.chunks, made.sum().compute().item()
    (((2, 1),), 6.0)
    """
    sizes = chunked(array, chunks)
    token = tokenize(fingerprint(array), sizes)
    name = f"aggarray-{array.name or 'array'}-{token}"
    order = tuple(range(array.ndim))
    layer = blockwise(read_block, name, order, DaskBlocks(array, sizes, (token,)), order, numblocks={}, _data_producer=True)
    graph = HighLevelGraph.from_collections(name, layer)
    return da.Array(graph, name, sizes, meta=np.empty((0,) * array.ndim, array.dtype))
