"""Layout of a Zarr view: its groups, arrays and their chunk shapes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import numpy as np

from aggarray.arrays.master import MasterArray
from aggarray.arrays.ragged_variables import flatten_ragged
from aggarray.output.chunk_sizes import ChunkSizes, check_chunk_sizes, resize_chunk
from aggarray.output.dataset import ROOT
from aggarray.output.datasets import datasets
from aggarray.output.layout import ExtractLayout, Variable, lay_out

#: Kinds of data types that Zarr has.
KINDS = "biufceT"
#: Most bytes of a chosen chunk, unless a stored chunk is larger.
MOST_BYTES = 1 << 23

#: Returns whether an array belongs to a store.
Keep = Callable[[MasterArray], bool]


def lay_out_groups(
    arrays: Sequence[MasterArray], chunks: ChunkSizes | None = None, keep: Keep | None = None
) -> dict[str, ExtractLayout]:
    """Return the layout of each group by its path; "": the root group.

    All arrays are in the root group if their names are unique. Otherwise each dataset is a group. ``keep``: returns whether an
    array is laid out; those that are not change no path. Raises SelectionError for chunks that are invalid.
    """
    groups = dict[str, ExtractLayout]()
    for path, members in _groups(list(map(flatten_ragged, arrays))):
        kept = [array for array in members if keep is None or keep(array)]
        if kept or not members:
            groups[path] = lay_out(kept, KINDS, path or ROOT, sys.maxsize)
    sizes = check_chunk_sizes(chunks, (d for layout in groups.values() for d in layout.dimensions))
    for variable in (v for layout in groups.values() for v in layout.variables):
        variable.chunks = _chunk_shape(variable, sizes)
        if variable.fill is not None and variable.dtype.kind == "f":
            # As a master array reads it.
            variable.fill = variable.attributes["_FillValue"] = variable.dtype.type(np.nan)
    return groups


def group_paths(arrays: Sequence[MasterArray]) -> list[str]:
    """Return the path of the group of each array."""
    flat = list(map(flatten_ragged, arrays))
    paths = {id(member): path for path, members in _groups(flat) for member in members}
    return [paths[id(array)] for array in flat]


def _groups(arrays: Sequence[MasterArray]) -> list[tuple[str, Sequence[MasterArray]]]:
    names = [array.name for array in arrays]
    if len(set(names)) == len(names):
        return [("", arrays)]
    return [(path.strip("/"), group.arrays) for path, group in datasets(arrays).items()]


def _chunk_shape(variable: Variable, sizes: ChunkSizes) -> tuple[int, ...] | None:
    """Return the shape of the chunks of a variable, None for one piece."""
    if variable.dtype.kind == "T" or not variable.shape:
        return None
    chosen = [lengths[0] for lengths in variable.source.chunks_for(MOST_BYTES, regular=True)]
    return resize_chunk(chosen, variable.shape, variable.dimensions, sizes)
