"""May memory be taken for what a file claims to hold? Few bytes can claim any number of elements, and texts of any length."""

import math
from collections.abc import Sequence

#: A scan reads no coordinate of more bytes as they are stored.
_SCAN_BYTES = 1 << 26
#: No compression by HDF5's own filters makes more than this of a byte.
MOST_INFLATED = 1100


def is_scannable(shape: Sequence[int], itemsize: int) -> bool:
    """Tell whether a scan may read values that are stored in this shape, so many bytes each.

    >>> scannable((1000, 8), 1), scannable((1000, 1 << 20), 1)
    (True, False)
    """
    return math.prod(shape) * itemsize <= _SCAN_BYTES


def is_plausible(size: int, stored: int) -> bool:
    """Tell whether so many ``stored`` bytes may decode to as many as are claimed, or these are few.

    >>> believable(1000, 0), believable(1 << 40, 1 << 30), believable(1 << 40, 1 << 20)
    (True, True, False)
    """
    return size <= _SCAN_BYTES or size <= MOST_INFLATED * stored
