"""Filters as files state them, and the protocol of codecs."""

from __future__ import annotations

from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np

from aggarray.dataclass import dataclass

#: Parameters of a filter, in the order that the module of its codec documents.
Parameters: TypeAlias = tuple[int | str | bool, ...]


#: Largest element size of Blosc in bytes.
MAX_ITEM = 255
#: Largest ratio of decoded to encoded bytes of HDF5's own filters.
MOST_INFLATED = 1100


@dataclass(frozen=True, slots=True)
class Filter:
    """Step of an encoding as a file states it: name of a codec, parameters."""

    name: str
    parameters: Parameters = ()


@runtime_checkable
class Codec(Protocol):
    """Decoder of one filter, stateless and thread-safe.

    A codec whose `grown` depends on the data may have an attribute ``ratio``: the largest number of bytes that one stored byte
    decodes to. Stored data that is too short for a chunk then raises an error before memory is allocated.
    """

    @property
    def name(self) -> str:
        """Name of the codec in filters."""

    def usable(self, parameters: Parameters) -> bool:
        """Return whether library and parameters allow decoding, by default True."""
        return True

    def grown(self, size: int, parameters: Parameters) -> int | None:
        """Return the encoded size of ``size`` bytes, None (default) if variable."""
        return None

    def decode(self, data: np.ndarray, size: int, parameters: Parameters, out: np.ndarray | None) -> np.ndarray:
        """Return at most ``size`` decoded bytes, a buffer of uint8.

        ``data``: uint8, contiguous. ``out``: a writable buffer of ``size`` bytes that may be filled and returned. A codec that
        does not return ``out`` may leave anything in it. Raises ValueError or RuntimeError for damaged data. A codec allocates
        at most ``size`` bytes, whatever size the data declares.
        """


def output_buffer(decoded: int, size: int, out: np.ndarray | None) -> np.ndarray:
    """Return ``out`` if data decode to its size, else new memory.

    Raises ValueError if they decode to more than ``size`` bytes. ``decoded``: the decoded size that the data declare.
    """
    if decoded > size:
        raise ValueError(f"decodes to {decoded} bytes, {size} expected")
    return out if out is not None and decoded == size else np.empty(decoded, np.uint8)
