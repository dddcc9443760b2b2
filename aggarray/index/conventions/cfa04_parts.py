"""Parts of sub-arrays as CFA-0.4 writes them.

A part is text: a list of one item per dimension, ``[start, stop, step]`` with an inclusive stop, or ``(i, j, k)`` for single
positions. ``[]`` is all of the sub-array.
"""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

# Blanks are removed before: a pattern that allows them anywhere takes exponential time.
_NUMBERS = r"-?\d{1,18}(?:,-?\d{1,18})*,?"
_ITEM = re.compile(rf"\[({_NUMBERS})\]|\(({_NUMBERS})\)")


_SYNTAX = "write text such as '[[0, 9, 1], (2, 5)]'"


class PartError(ValueError):
    """An invalid part. The message does not include the part itself; ``hint``: what to do."""

    def __init__(self, what: str, hint: str | None = None) -> None:
        super().__init__(what)
        self.hint = hint


def parse_part(written: Any) -> list[slice | np.ndarray]:
    """Return the part by dimension: slices, or increasing positions.

    [] is all of the sub-array.

    >>> parse_part("[[2, 6, 2], (0, 3)]")
    [slice(2, 7, 2), array([0, 3])]
    >>> parse_part("[0, 4, 1]"), parse_part("[]")
    ([slice(0, 5, 1)], [])
    """
    if written is None or (isinstance(written, str | list) and not written):
        return []
    if isinstance(written, list):
        written = str(written)
    if not isinstance(written, str):
        raise PartError("is not a part", _SYNTAX)
    text = "".join(written.split())
    if text in ("[]", "()"):
        return []
    if not _ITEM.fullmatch(text):
        if text[:1] + text[-1:] not in ("[]", "()"):
            raise PartError("is not a part", _SYNTAX)
        text = text[1:-1]
    if _ITEM.sub("", text).strip(","):
        raise PartError("is not a part", _SYNTAX)
    return [_indices(match) for match in _ITEM.finditer(text)]


def _indices(match: "re.Match[str]") -> slice | np.ndarray:
    numbers = [int(n) for n in (match[1] or match[2]).split(",") if n.strip()]
    if match[1]:
        start, stop, step = [*numbers, 1][:3] if len(numbers) in (2, 3) else (-1, -1, 0)
        if start < 0 or stop < start - 1 or step < 1:
            hint = "give [start, stop, step], the stop inclusive, the step at least 1"
            raise PartError(f"has the invalid item [{match[1]}]", hint)
        last = start + (stop - start) // step * step
        return slice(start, last + 1 if stop >= start else start, step)
    picked = np.array(numbers, np.int64)
    if (picked < 0).any() or (np.diff(picked) <= 0).any():
        raise PartError(f"has the invalid item ({match[2]})", "give increasing positions from 0 on")
    return picked


def part_text(part: Sequence[slice | np.ndarray]) -> str:
    """Return a part as CFA-0.4 writes it.

    >>> part_text([slice(2, 7, 2), np.array([0, 3])])
    '[[2, 6, 2], (0, 3)]'
    """
    items = ([int(p.start), int(p.stop) - 1, int(p.step)] if isinstance(p, slice) else tuple(p.tolist()) for p in part)
    return f"[{', '.join(map(str, items))}]"
