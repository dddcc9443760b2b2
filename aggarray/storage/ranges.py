"""Byte ranges: checks, and ranges that are read together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from aggarray.dataclass import dataclass
from aggarray.errors import FormatError

#: (offset, size) in bytes.
Range: TypeAlias = tuple[int, int]


def check_range(path: str, offset: int, size: int, there: int) -> None:
    """Raise FormatError for a range outside a file of ``there`` bytes."""
    if offset < 0 or size < 0:
        what = f"{size} bytes at offset {offset}: no such range"
        raise FormatError(what, path=path, hint="the file or its index is damaged")
    if size and offset + size > there:
        raise truncated(path, offset, size, there)


def truncated(path: str, offset: int, size: int, there: int) -> FormatError:
    """Return the error of a file that ends before a range of it."""
    what = f"truncated: {size} bytes at offset {offset} requested of {there} bytes"
    return FormatError(what, path=path, hint="fetch or write the file again")


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes read in one call, and the ranges (by number) inside them."""

    offset: int
    size: int
    members: tuple[int, ...]


def merge_ranges(ranges: Sequence[Range], gap: int, most: int) -> list[Span]:
    """Return the spans to read for ranges in any order, sorted by offset.

    Ranges at most ``gap`` bytes apart share a span of up to ``most`` bytes, or one longer range. Empty ranges have no span.

    >>> merge_ranges([(100, 10), (0, 20), (5, 0), (1 << 20, 3)], 1 << 16, 1 << 24)
    [Span(offset=0, size=110, members=(1, 0)), Span(offset=1048576, size=3, members=(3,))]
    """
    merged: list[Span] = []
    members: list[int] = []
    start = end = 0
    for i in sorted((i for i, r in enumerate(ranges) if r[1] > 0), key=lambda i: ranges[i][0]):
        offset, size = ranges[i]
        if members and (offset > end + gap or max(end, offset + size) - start > most):
            merged.append(Span(start, end - start, tuple(members)))
            members = []
        if not members:
            start = end = offset
        members.append(i)
        end = max(end, offset + size)
    if members:
        merged.append(Span(start, end - start, tuple(members)))
    return merged


def cut_span(span: Span, data: memoryview, ranges: Sequence[Range], out: list[memoryview]) -> None:
    """Put the bytes of each range inside a span into ``out``, by its number."""
    for i in span.members:
        offset, size = ranges[i]
        out[i] = data[offset - span.offset : offset - span.offset + size]


def bytes_of(buffer: object) -> np.ndarray:
    """View a writable, contiguous buffer as uint8, or raise ValueError."""
    array = buffer if isinstance(buffer, np.ndarray) else np.frombuffer(buffer, np.uint8)  # type: ignore[call-overload]
    if not array.flags.c_contiguous or not array.flags.writeable:
        raise ValueError("the buffer to read into must be writable and contiguous")
    return array.reshape(-1).view(np.uint8)
