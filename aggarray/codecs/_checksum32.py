"""Does a checksum of four bytes, little-endian, before the data or after it, agree with it?"""

from collections.abc import Callable

import numpy as np

from aggarray.codecs.base import Parameters

ENDS = ("start", "end")


def usable(parameters: Parameters) -> bool:
    """Tell whether the only parameter says where the checksum stands: "start" or "end"."""
    return len(parameters) == 1 and parameters[0] in ENDS


def checked(data: np.ndarray, location: object, checksum: Callable[[np.ndarray], int]) -> np.ndarray:
    """Return the data without its checksum, not copied; ValueError where that does not agree.

    >>> checked(np.array([1, 2, 9, 3, 0, 0, 0], np.uint8), "end", len).tolist()
    [1, 2, 9]
    """
    if data.size < 4:
        raise ValueError(f"{data.size} bytes are too few for a checksum")
    body, told = (data[4:], data[:4]) if location == "start" else (data[:-4], data[-4:])
    stored, found = int.from_bytes(told.tobytes(), "little"), checksum(body)
    # promise: zarr-checksum
    if found != stored:
        raise ValueError(f"the checksum is {stored:#010x}, that of the data {found:#010x}: the data is damaged")
    return body
