"""Sources of a selection as a table, and as plain data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from aggarray.display.markup import counted
from aggarray.display.table import MOST_ROWS, complete, relative_names, table

if TYPE_CHECKING:
    from aggarray.arrays.sources import Source

#: Indices of an array that are shown.
_SHOWN = 4


def sources_text(sources: Sequence[Source], width: int | None, most: int | None = MOST_ROWS) -> str:
    """Return the number of sources and a table of the first ones."""
    if not sources:
        return "no sources: all values are missing, or none is selected"
    shown = sources[:most]
    where, files = relative_names([s.uri or "in memory" for s in shown])
    columns: dict[str, list[str]] = {
        "file": files,
        "variable": [s.variable or "" for s in shown],
        "part": [indices_text(s.part) for s in shown],
        "location": [indices_text(s.location) for s in shown],
        "conversions": ["; ".join(s.conversions) for s in shown],
    }
    filled = {name: values for name, values in columns.items() if any(values)}
    text = table(list(zip(*filled.values(), strict=True)), list(filled), width=width, wrap="conversions")
    return complete([counted(len(sources), "source"), where + text], len(sources) - len(shown))


def source_facts(source: Source) -> dict[str, Any]:
    """Return a source, for JSON; indices as text, or as lists."""
    return {
        "uri": source.uri,
        "variable": source.variable,
        "part": [_one(indices) if isinstance(indices, slice) else indices.tolist() for indices in source.part],
        "location": [_one(indices) if isinstance(indices, slice) else indices.tolist() for indices in source.location],
        "conversions": list(source.conversions),
        "tracking_id": source.tracking_id,
    }


def indices_text(indices: Sequence[Any]) -> str:
    """Return slices and index arrays as written between square brackets.

    >>> import numpy as np
    >>> indices_text((slice(0, 31, 1), slice(5, 6, 1), slice(0, 9, 4), np.array([1, 2, 5, 7, 11])))
    '0:31, 5, 0:9:4, [1 2 5 7 ...]'
    """
    return ", ".join(map(_one, indices))


def _one(indices: Any) -> str:
    if not isinstance(indices, slice):
        more = " ..." if len(indices) > _SHOWN else ""
        return f"[{' '.join(map(str, indices[:_SHOWN].tolist()))}{more}]"
    if indices.stop == indices.start + 1:
        return str(indices.start)
    return f"{indices.start}:{indices.stop}" + (f":{indices.step}" if indices.step > 1 else "")
