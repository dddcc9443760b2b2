"""How does CFA-0.4 write which part of a sub-array a partition shows?

As text: a list of one item per dimension, ``[start, stop, step]`` with an inclusive stop, or ``(i, j, k)``, the positions
one by one. ``[]`` is all of it.
"""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

# Blanks are taken out before: a pattern that allows for them anywhere takes forever over many.
_NUMBERS = r"-?\d{1,18}(?:,-?\d{1,18})*,?"
_ITEM = re.compile(rf"\[({_NUMBERS})\]|\(({_NUMBERS})\)")


class PartError(ValueError):
    """A part that cannot be understood; the caller says which."""


def parsed_part(written: Any) -> list[slice | np.ndarray]:
    """Return the part per dimension, as slices with a stop of their own or increasing positions; [] for all of it.

    >>> parsed_part("[[2, 6, 2], (0, 3)]")
    [slice(2, 7, 2), array([0, 3])]
    >>> parsed_part("[0, 4, 1]"), parsed_part("[]")
    ([slice(0, 5, 1)], [])
    """
    if written is None or (isinstance(written, str | list) and not written):
        return []
    if isinstance(written, list):
        written = str(written)
    if not isinstance(written, str):
        raise PartError("write text such as '[[0, 9, 1], (2, 5)]'")
    text = "".join(written.split())
    if text in ("[]", "()"):
        return []
    if not _ITEM.fullmatch(text):
        if text[:1] + text[-1:] not in ("[]", "()"):
            raise PartError("write text such as '[[0, 9, 1], (2, 5)]'")
        text = text[1:-1]
    if _ITEM.sub("", text).strip(","):
        raise PartError("write text such as '[[0, 9, 1], (2, 5)]'")
    return [_indices(match) for match in _ITEM.finditer(text)]


def _indices(match: "re.Match[str]") -> slice | np.ndarray:
    numbers = [int(n) for n in (match[1] or match[2]).split(",") if n.strip()]
    if match[1]:
        start, stop, step = [*numbers, 1][:3] if len(numbers) in (2, 3) else (-1, -1, 0)
        if start < 0 or stop < start - 1 or step < 1:
            raise PartError(f"[{match[1]}]: give [start, stop, step], the stop inclusive, the step at least 1")
        last = start + (stop - start) // step * step
        return slice(start, last + 1 if stop >= start else start, step)
    picked = np.array(numbers, np.int64)
    if (picked < 0).any() or (np.diff(picked) <= 0).any():
        raise PartError(f"({match[2]}): give positions from 0 on, each larger than the one before")
    return picked


def part_text(part: Sequence[slice | np.ndarray]) -> str:
    """Return a part as CFA-0.4 writes it.

    >>> part_text([slice(2, 7, 2), np.array([0, 3])])
    '[[2, 6, 2], (0, 3)]'
    """
    return f"[{', '.join(map(_item, part))}]"


def _item(indices: slice | np.ndarray) -> str:
    if isinstance(indices, slice):
        return f"[{indices.start}, {indices.stop - 1}, {indices.step}]"
    return f"({', '.join(map(str, indices.tolist()))}{',' if len(indices) == 1 else ''})"
