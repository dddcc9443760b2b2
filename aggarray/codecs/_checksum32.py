"""Checksums of four bytes, little-endian, before or after the data."""

from collections.abc import Callable

import numpy as np

from aggarray.codecs.base import Parameters

ENDS = ("start", "end")


def usable(parameters: Parameters) -> bool:
    """Return whether the only parameter is the location of the checksum: "start" or "end"."""
    return len(parameters) == 1 and parameters[0] in ENDS


def checked(data: np.ndarray, location: object, checksum: Callable[[np.ndarray], int]) -> np.ndarray:
    """Return the data without its checksum, as a view. Raises ValueError if the checksum does not match.

    >>> checked(np.array([1, 2, 9, 3, 0, 0, 0], np.uint8), "end", len).tolist()
    [1, 2, 9]
    """
    if data.size < 4:
        raise ValueError(f"truncated: {data.size} bytes have no checksum")
    body, tail = (data[4:], data[:4]) if location == "start" else (data[:-4], data[-4:])
    stored, computed = int.from_bytes(tail.tobytes(), "little"), checksum(body)
    # promise: zarr-checksum
    if computed != stored:
        raise ValueError(f"damaged: checksum {computed:#010x}, stored {stored:#010x}")
    return body
