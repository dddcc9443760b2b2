"""Grid of the chunks of an array, and the values of one chunk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np

Position = tuple[int, ...]


def positions_in(box: Sequence[slice], sides: Sequence[int]) -> Iterator[Position]:
    """Yield the positions of the chunks that a box overlaps, in C order.

    >>> list(positions_in((slice(2, 5), slice(0, 3)), (2, 3)))
    [(1, 0), (2, 0)]
    """
    return product(*(range(s.start // side, -(-s.stop // side)) for s, side in zip(box, sides, strict=True)))


def chunk_in(values: np.ndarray, box: Sequence[slice], position: Position, sides: Sequence[int]) -> np.ndarray:
    """Return the view of a chunk in the values of a box of whole chunks.

    >>> chunk_in(np.arange(7), (slice(4, 11),), (2,), (4,)).tolist()
    [4, 5, 6]
    """
    starts = [n * side - s.start for n, side, s in zip(position, sides, box, strict=True)]
    key: Any = (..., *(slice(start, start + side) for start, side in zip(starts, sides, strict=True)))
    view: np.ndarray = values[key]  # with an Ellipsis, a 0-d chunk is an array
    return view


def full_chunk(values: np.ndarray, sides: tuple[int, ...], fill: Any) -> np.ndarray:
    """Return a chunk padded to its full size.

    ``fill``: None for 0.
    """
    if values.shape == sides:
        return values
    padded = np.full(sides, 0 if fill is None else fill, values.dtype)
    padded[tuple(map(slice, values.shape))] = values
    return padded
