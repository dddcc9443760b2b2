"""Conversion of a master array to a dask array.

The graph is one layer that computes the block of each task on demand. Importing this module needs the extra ``xarray``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from aggarray.arrays.pickling import ArrayReference, LazyBlock, fingerprint, has_large_values, read_block, read_shared
from aggarray.errors import AggregationError, SelectionError, install_command
from aggarray.interop.chunk_sizes import PackedSizes, dask_size, preferred_sizes
from aggarray.partition.chunk_sizes import merged_sizes

try:
    import dask.array as da
    from dask._task_spec import DataNode, TaskRef
    from dask.base import tokenize
    from dask.blockwise import BlockwiseDep, blockwise
    from dask.highlevelgraph import HighLevelGraph, MaterializedLayer
    from dask.utils import parse_bytes
except ImportError as error:
    raise AggregationError(f"to_dask needs dask: {error}", hint=install_command("xarray")) from error

Chunks = tuple[tuple[int, ...], ...]


class DaskBlocks(BlockwiseDep):  # type: ignore[misc]
    """Block of each task of a layer; ``token`` identifies the layer.

    ``array``: what `LazyBlock` takes, or None for blocks that are keys alone.
    """

    produces_tasks = False

    def __init__(self, array: Any, chunks: Chunks, token: tuple[Any, ...]) -> None:
        self.array, self.chunks, self._token = array, tuple(map(PackedSizes, chunks)), token
        self.numblocks = tuple(map(len, chunks))
        self._starts = [np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]).tolist() for sizes in chunks]

    def __reduce__(self) -> tuple[Any, ...]:
        return DaskBlocks, (self.array, self.chunks, self._token)

    def __getitem__(self, idx: tuple[int, ...]) -> Any:
        key = tuple(slice(starts[i], starts[i + 1]) for i, starts in zip(idx, self._starts, strict=True))
        return key if self.array is None else LazyBlock(self.array, key)

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        return type(self).__name__, self._token


def chunked(array: Any, chunks: Any = None) -> Chunks:
    """Return the sizes of the chunks along each dimension.

    ``chunks``: None or {} for stored chunks, merged up to `PREFERRED` bytes; else as dask takes them, by name or number of the
    dimension. "auto" and numbers of bytes ("32 MiB") merge these across files, up to that size. Raises SelectionError for
    chunks that are invalid.

    >>> from aggarray import MasterArray, SubArray
    >>> a, b = SubArray.from_array([1.0, 2.0]), SubArray.from_array([3.0])
    >>> array = MasterArray.from_subarrays([([(0, 2)], a), ([(2, 3)], b)], dimensions=("x",))
    >>> chunked(array), chunked(array, "auto"), chunked(array, {"x": 1})
    (((2, 1),), ((3,),), ((1, 1, 1),))
    """
    _check_sizes(chunks)
    preferred = preferred_sizes(array)
    if chunks is None:
        return preferred
    if isinstance(chunks, Mapping):
        unknown = [d for d in chunks if d not in array.dimensions and d not in range(array.ndim)]
        if unknown:
            hint = f"the array has {', '.join(array.dimensions)}"
            raise SelectionError(f"chunks={chunks!r}: no dimension {unknown[0]!r}", hint=hint)
        by_axis = {(array.dimensions.index(d) if isinstance(d, str) else d): size for d, size in chunks.items()}
        chunks = tuple(preferred[axis] if by_axis.get(axis) is None else by_axis[axis] for axis in range(array.ndim))
    given = list(chunks) if isinstance(chunks, tuple | list) else [chunks] * array.ndim
    automatic = [axis for axis, size in enumerate(given) if isinstance(size, str)]
    try:
        limit = min((dask_size() if given[axis] == "auto" else parse_bytes(given[axis]) for axis in automatic), default=0)
        explicit = chunks
        if automatic and len(given) == array.ndim:
            explicit = tuple(preferred[axis] if axis in automatic else size for axis, size in enumerate(given))
        sizes_by_axis = da.core.normalize_chunks(explicit, array.shape, dtype=array.dtype)
    except (ValueError, TypeError, NotImplementedError) as error:
        reason, _, _ = " ".join(str(error).split()).partition(". Got ")  # dask repeats chunks and shape
        hint = "give one size, or a tuple of sizes that add up to its size, per dimension"
        raise SelectionError(f"chunks={chunks!r} for an array of shape {array.shape}: {reason:.200}", hint=hint) from error
    sizes = tuple(tuple(map(int, lengths)) for lengths in sizes_by_axis)
    return merged_sizes(sizes, automatic, array.dtype.itemsize, int(limit)) if automatic else sizes


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

    No task is made. A few files are opened if no index knows how they are stored.
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
    graph = _graph(array, sizes, name, (token,))
    result = da.Array(graph, name, sizes, meta=np.empty((0,) * array.ndim, array.dtype))
    graph.layers[name].collection_annotations["chunks"] = tuple(map(PackedSizes, sizes))  # dask sends them
    return result


def _graph(array: Any, sizes: Chunks, name: str, token: tuple[Any, ...]) -> HighLevelGraph:
    """Return a layer of tasks, and one of the array if tasks share it."""
    order = tuple(range(array.ndim))
    reference = ArrayReference(array)
    small = reference.small
    if small or has_large_values(array):
        blocks = DaskBlocks(reference if small else array, sizes, token)
        layer = blockwise(read_block, name, order, blocks, order, numblocks={}, _data_producer=True)
        return HighLevelGraph.from_collections(name, layer)
    shared, keys = f"original-{name}", DaskBlocks(None, sizes, token)
    arguments = (TaskRef(shared), None, keys, order)
    layer = blockwise(read_shared, name, order, *arguments, numblocks={}, _data_producer=True)
    return HighLevelGraph(
        {shared: MaterializedLayer({shared: DataNode(shared, reference)}), name: layer}, {shared: set(), name: {shared}}
    )
