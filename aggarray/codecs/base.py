"""What is a codec, and which bytes go in and out of it?"""

from dataclasses import dataclass
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np

#: What a filter says about itself, in the order that its codec's module states.
Parameters: TypeAlias = tuple[int | str | bool, ...]


@dataclass(frozen=True, slots=True)
class Filter:
    """One step of an encoding as a file states it: name of the codec, and its parameters (plain numbers and texts)."""

    name: str
    parameters: Parameters = ()


@runtime_checkable
class Codec(Protocol):
    """Decodes the bytes of one filter. It holds no state, and any number of threads may use it at once.

    A codec whose `grown` depends on the data may have an attribute ``ratio``: a byte of its data decodes to at most so many.
    Fewer bytes than a chunk needs are then refused before memory is taken for it.
    """

    @property
    def name(self) -> str:
        """The name that filters state."""

    def usable(self, parameters: Parameters) -> bool:
        """Tell whether such a filter can be decoded here: libraries installed, parameters valid."""

    def grown(self, size: int, parameters: Parameters) -> int | None:
        """Return how many bytes encoding makes of ``size``; None where that depends on the data."""

    def decode(self, data: np.ndarray, size: int, parameters: Parameters, out: np.ndarray | None) -> np.ndarray:
        """Return at most ``size`` decoded bytes, a buffer of uint8.

        ``data``: uint8, contiguous. ``out``: a writable buffer of ``size`` bytes that may be filled and returned; who
        does not use it leaves it alone. ValueError or RuntimeError for data that is not what it should be; memory
        is taken for ``size`` bytes, never for what damaged data claims.
        """
