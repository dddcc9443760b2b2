"""How xarray writes an array back: chunks and compression of its files."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate
from math import gcd, prod
from typing import Any

from aggarray.arrays.pickling import from_index
from aggarray.read.stored_shapes import shape_of, stored_filters

#: Bytes up to which chunks of a Zarr array are made where those of dask are unequal.
_ZARR_CHUNK = 1 << 22
#: Level of files that do not state theirs: that of netCDF4-python.
_LEVEL = 4


def storage_encoding(name: str, array: Any, chunks: Mapping[str, Any]) -> dict[str, Any]:
    """Return encoding that keeps the storage of an array's files.

    The keys are those of xarray's own engines. Of files that differ, the first counts. ``chunks``: the preferred ones.
    """
    encoding: dict[str, Any] = {"original_shape": array.shape}
    source = _source(array)
    if source is not None:
        encoding["source"] = source
    if array._known is None and array.ndim:
        encoding |= _compression(array)
    zarr = zarr_chunks([chunks[d] for d in array.dimensions], array.dtype.itemsize)
    # xarray holds coordinate variables in memory, in one piece.
    if zarr is not None and array.dimensions != (name,):
        encoding["chunks"] = zarr
    return encoding


def _source(array: Any) -> str | None:
    """Return the index of an array, or its first file."""
    if from_index(array):
        return str(array._origin.place[0])
    uris = array._matrix.references.uris
    return str(uris[0]) if len(uris) else None


def _compression(array: Any) -> dict[str, Any]:
    """Return chunk sizes and filters of the first file, or of the last."""
    matrix = array._matrix
    rows = matrix.refs[matrix.refs >= 0]
    for row in rows[[0, -1]].tolist() if len(rows) else ():
        stored = stored_filters(matrix.references, row, array._access)
        if stored is None:
            continue
        index, level = stored
        names = {f.name for f in index.filters}
        deflated = "deflate" in names or "gzip" in names
        encoding: dict[str, Any] = {"zlib": deflated, "shuffle": "shuffle" in names, "fletcher32": "fletcher32" in names}
        encoding["complevel"] = (_LEVEL if level is None else level) if deflated else 0
        shape = shape_of(index)
        if shape is None:
            return {**encoding, "contiguous": True, "chunksizes": None}
        sides = dict(zip(matrix.references.template_of(row).dimensions, shape, strict=True))
        sizes = tuple(max(1, min(sides.get(d, 1), n)) for d, n in zip(array.dimensions, array.shape, strict=True))
        return {**encoding, "contiguous": False, "chunksizes": sizes}
    return {}


def zarr_chunks(preferred: list[Any], itemsize: int) -> tuple[int, ...] | None:
    """Return the shape of Zarr chunks that fit unequal chunks of dask.

    Zarr's chunks are equal, and two tasks must not write one. The result is None for equal chunks, which xarray writes as they
    are.

    >>> zarr_chunks([(365, 365, 366, 365), 180, 360], 4), zarr_chunks([(1200, 780), (90, 80)], 4)
    ((1, 180, 360), (1200, 90))
    >>> zarr_chunks([120, 180], 4), zarr_chunks([(60, 60, 90, 60), (40, 50)], 8)
    (None, (30, 40))
    """
    if not any(isinstance(sizes, tuple) for sizes in preferred):
        return None
    sides = [gcd(*list(accumulate(sizes))[:-1]) if isinstance(sizes, tuple) else sizes for sizes in preferred]
    for d, sizes in enumerate(preferred):
        if isinstance(sizes, tuple):
            room = max(1, _ZARR_CHUNK // max(1, itemsize * prod(sides) // sides[d]))
            sides[d] = max(side for side in range(1, min(sides[d], room) + 1) if sides[d] % side == 0)
    return tuple(sides)
