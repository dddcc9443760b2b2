"""One array of the sections of all processes, in the order of indices."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

from aggarray.arrays.local import LocalArray
from aggarray.arrays.subarray import SubArray
from aggarray.dataclass import NamedTuple
from aggarray.errors import ProtocolError
from aggarray.maps import validate_all
from aggarray.maps.fields import OLD, concatenate_labels
from aggarray.maps.validation import as_list


class Sections(NamedTuple):
    """Sub-arrays at locations side by side, and the key that orders them.

    ``names``: those of the dimensions. ``directions``: those of the array that was distributed.
    """

    pieces: list[tuple[list[tuple[int, int]], SubArray]]
    key: tuple[slice | np.ndarray, ...]
    shape: tuple[int, ...]
    names: tuple[str, ...]
    directions: tuple[bool, ...]


def sections(exports: Sequence[Any], dimensions: Sequence[str] | None = None) -> Sections:
    """Return the sections of all processes, by rank, as sub-arrays.

    Raises ProtocolError if they do not fit together. ``dimensions``: their names in the order of the result; None: those of
    the first section.
    """
    locals_ = [e if isinstance(e, LocalArray) else LocalArray.from_distarray(e) for e in as_list(exports, "exports")]
    _check(locals_)
    grid = locals_[0].distribution.grid
    coords = list(product(*map(range, grid)))
    key: list[slice | np.ndarray] = []
    edges = []
    for d, count in enumerate(grid):
        owned: list[np.ndarray] = [np.zeros(0, np.int64)] * count
        for local, position in zip(locals_, coords, strict=True):
            owned[position[d]] = local.distribution.maps[d].owned(position[d])
        labels = concatenate_labels(owned)
        # If several ranks have a label, the lowest rank provides it.
        _, order = np.unique(labels, return_index=True)
        key.append(slice(None) if np.array_equal(order, np.arange(len(labels))) else order)
        edges.append(np.concatenate([[0], np.cumsum([len(indices) for indices in owned])]).tolist())
    pieces = [
        ([(e[c], e[c + 1]) for e, c in zip(edges, position, strict=True)], SubArray.from_local(local))
        for local, position in zip(locals_, coords, strict=True)
    ]
    first = pieces[0][1]
    names = first.dimensions if dimensions is None else tuple(dimensions)
    forward = dict(zip(first.dimensions, first.directions, strict=True))
    directions = tuple(forward.get(name, True) for name in names)
    return Sections(pieces, tuple(key), tuple(e[-1] for e in edges), names, directions)


def _check(locals_: Sequence[LocalArray]) -> None:
    try:
        validate_all([local.__distarray__() for local in locals_])
    except ProtocolError as error:
        try:
            validate_all([local.__distarray__(OLD) for local in locals_])
        except ProtocolError:
            raise error from None
