"""Consecutive compressed streams, decoded up to a maximum size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def decode_streams(
    data: np.ndarray, size: int, make: Callable[[], Any], failure: type[Exception], single: bool = False
) -> np.ndarray:
    """Return the joined data of consecutive streams, at most ``size`` bytes.

    Zeros after a stream are ignored. ``make``: returns a decompressor of one stream with the interface of
    ``bz2.BZ2Decompressor``, which raises ``failure``; ``single``: all bytes after the first stream are ignored. Raises
    ValueError for damaged or longer data.

    >>> import bz2
    >>> stored = np.frombuffer(bz2.compress(b"ab") + bz2.compress(b"c"), np.uint8)
    >>> decode_streams(stored, 3, bz2.BZ2Decompressor, OSError).tobytes()
    b'abc'
    """
    parts: list[bytes] = []
    rest, room = data.tobytes(), size
    while not parts or (not single and rest.strip(b"\0")):
        decompressor = make()
        try:
            # One byte above the limit detects a longer stream. 0 would mean no limit.
            part = decompressor.decompress(rest, room + 1)
        except failure as error:
            raise ValueError(f"damaged: {error}") from error
        room -= len(part)
        if room < 0:
            raise ValueError(f"longer than {size} bytes")
        if not decompressor.eof:
            raise ValueError("truncated")
        parts.append(part)
        rest = decompressor.unused_data
    return np.frombuffer(parts[0] if len(parts) == 1 else b"".join(parts), np.uint8)
