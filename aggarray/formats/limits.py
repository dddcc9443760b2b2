"""Bounds on the memory that the declared sizes in a file may take.

A file of few bytes can declare any number of elements and texts of any length.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from aggarray.codecs.base import MOST_INFLATED as MOST_INFLATED

#: Largest coordinate that a scan reads, in stored bytes.
_SCAN_BYTES = 1 << 26


def is_scannable(shape: Sequence[int], itemsize: int) -> bool:
    """Return whether a scan may read values of this shape and item size.

    >>> is_scannable((1000, 8), 1), is_scannable((1000, 1 << 20), 1)
    (True, False)
    """
    return math.prod(shape) * itemsize <= _SCAN_BYTES


def is_plausible(size: int, stored: int) -> bool:
    """Return whether ``size`` is small or plausible for ``stored`` bytes.

    >>> is_plausible(1000, 0), is_plausible(1 << 40, 1 << 30), is_plausible(1 << 40, 1 << 20)
    (True, True, False)
    """
    return size <= _SCAN_BYTES or size <= MOST_INFLATED * stored
