"""Sizes of chunks and shards by dimension, as a caller gives them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from aggarray.errors import AggregationError, SelectionError, names_hint

if TYPE_CHECKING:
    from aggarray.output.layout import ExtractLayout, Variable

#: Most bytes of a chunk: more than Blosc and the readers of netCDF take.
MOST_BYTES = 2**31 - 64
#: Size by dimension; -1: the whole dimension.
ChunkSizes = Mapping[str, int]


def check_chunk_sizes(sizes: Mapping[str, Any] | None, dimensions: Iterable[str], argument: str = "chunks") -> dict[str, int]:
    """Return sizes by dimension; SelectionError names the argument.

    >>> check_chunk_sizes({"time": 30}, ["time", "lat"])
    {'time': 30}
    >>> check_chunk_sizes({"time": 0}, ["time", "lat"], "shards")
    Traceback (most recent call last):
    aggarray.errors.SelectionError: shards={'time': 0}: 0 is not a chunk size; give a positive integer, or -1 for all of it
    """
    names = list(dict.fromkeys(dimensions))
    for name, size in (sizes or {}).items():
        if name not in names:
            hint = names_hint(name, names, "the dimensions are")
            raise SelectionError(f"{argument}={_shown(name, size)}: no dimension {name!r}", hint=hint)
        if isinstance(size, bool) or not isinstance(size, int | np.integer) or (size < 1 and size != -1):
            hint = "give a positive integer, or -1 for all of it"
            raise SelectionError(f"{argument}={_shown(name, size)}: {size!r} is not a chunk size", hint=hint)
    return {name: int(size) for name, size in (sizes or {}).items()}


def check_shards(shards: Mapping[str, Any] | None, suffix: str) -> None:
    """Raise AggregationError for shards in a format without them."""
    if shards and suffix != ".zarr":
        raise AggregationError(f"shards={dict(shards)!r}: a {suffix} file has no shards", hint="write to .zarr, or give chunks")


def resize_chunk(
    chunk: Sequence[int], shape: Sequence[int], dimensions: Sequence[str], sizes: ChunkSizes, unlimited: Iterable[str] = ()
) -> tuple[int, ...]:
    """Return a chunk shape with sizes that only ``unlimited`` may exceed.

    >>> resize_chunk((8, 90), (5, 180), ("time", "lat"), {"time": 30, "lat": -1}), resize_chunk((8,), (5,), ("x",), {"x": 30})
    ((5, 180), (5,))
    >>> resize_chunk((8, 90), (5, 180), ("time", "lat"), {"time": 30}, ["time"])
    (30, 90)
    """
    own = (sizes.get(name) for name in dimensions)
    longer = {name for name in unlimited if sizes.get(name, -1) != -1}
    return tuple(
        max(1, size if given == -1 else (given or side) if name in longer else min(given or side, size))
        for name, side, size, given in zip(dimensions, chunk, shape, own, strict=True)
    )


def set_chunk_sizes(layout: ExtractLayout, chunks: Mapping[str, Any] | None, shards: Mapping[str, Any] | None) -> None:
    """Set the chunks, and the shards, of the chunked variables of a layout.

    Dimensions without a size keep the chosen one; if they have a shard, one that divides it. A shard has one chunk along
    dimensions without a size. Raises SelectionError for sizes that are invalid or do not fit each other.
    """
    sizes = check_chunk_sizes(chunks, layout.dimensions)
    shard_sizes = check_chunk_sizes(shards, layout.dimensions, "shards")
    for name, size in shard_sizes.items():
        if size != -1 and sizes.get(name, -1) != -1 and size % sizes[name]:
            what = f"shards={_shown(name, size)}: not a multiple of the chunk size {sizes[name]}"
            near = max(1, round(size / sizes[name])) * sizes[name]
            raise SelectionError(what, hint=f"give a multiple of {sizes[name]}, such as {near}")
    from aggarray.output.layout import unlimited_dimensions

    unlimited = unlimited_dimensions(layout)
    for variable in layout.variables:
        if variable.chunks is None:
            continue
        variable.chunks = resize_chunk(variable.chunks, variable.shape, variable.dimensions, sizes, unlimited)
        nbytes = prod(variable.chunks) * variable.dtype.itemsize
        if sizes and nbytes > MOST_BYTES:
            what = f"chunks={sizes!r}: a chunk has {nbytes} bytes, more than {MOST_BYTES}"
            raise SelectionError(what, variable=variable.name, hint="give smaller sizes")
        if not shard_sizes.keys().isdisjoint(variable.dimensions):
            _set_shards(variable, sizes, shard_sizes)


def _set_shards(variable: Variable, sizes: ChunkSizes, shard_sizes: ChunkSizes) -> None:
    chunk, shard = list(variable.chunks or ()), []
    for d, (name, size) in enumerate(zip(variable.dimensions, variable.shape, strict=True)):
        given = shard_sizes.get(name, chunk[d])
        if name in shard_sizes and given != -1 and name not in sizes:
            chunk[d] = next(side for side in range(min(chunk[d], given), 0, -1) if given % side == 0)
        # A chunk that is shorter than asked for, because the dimension is, may not divide the shard.
        shard.append(-(-(size if given == -1 else given) // chunk[d]) * chunk[d])
    variable.chunks, variable.shards = tuple(chunk), tuple(shard)


def _shown(name: str, size: Any) -> str:
    return repr({name: size})
