"""Columns of texts: the bytes of all texts in one buffer, decoded lazily."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np


class Texts(Sequence[str]):
    """Sequence of texts in one buffer, decoded lazily.

    ``starts``: where each text starts in the buffer, None if they follow each other.

    >>> Texts(np.frombuffer(b"abc", np.uint8), np.array([1, 2]))[1]
    'bc'
    """

    __slots__ = ("buffer", "is_joined", "lengths", "starts")

    def __init__(self, buffer: np.ndarray, lengths: np.ndarray, starts: np.ndarray | None = None) -> None:
        self.buffer, self.lengths = buffer, lengths
        self.is_joined = starts is None
        self.starts = np.cumsum(lengths) - lengths if starts is None else starts

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, item: Any) -> Any:
        if isinstance(item, slice):
            return [self[i] for i in range(len(self))[item]]
        number = range(len(self))[item]
        start = self.starts[number]
        return self.buffer[start : start + self.lengths[number]].tobytes().decode("utf-8", "surrogateescape")

    def __iter__(self) -> Iterator[str]:
        buffer = self.buffer.tobytes()
        for start, length in zip(self.starts.tolist(), self.lengths.tolist(), strict=True):
            yield buffer[start : start + length].decode("utf-8", "surrogateescape")

    def text(self) -> str:
        """Return all texts joined."""
        return self.buffer.tobytes().decode("utf-8", "surrogateescape") if self.is_joined else "".join(self)
