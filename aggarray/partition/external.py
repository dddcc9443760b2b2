"""Other files that hold the values of sub-arrays, as columns.

HDF5 itself assembles some regions of virtual datasets: the file of such a sub-array is not that of its values. The columns are
int32 (n, 3), sorted by row: the row of the sub-array, the number of another file, and the number of a variable there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from aggarray.dataclass import NamedTuple, replace
from aggarray.storage.state import Stamp

#: `References` of sub-arrays, whose module imports this one.
_References = TypeVar("_References")


class ExternalVariable(NamedTuple):
    """Variable of another file; ``stamp`` None: the file did not exist."""

    uri: str
    variable: str
    stamp: Stamp | None


def external_of(references: Any, row: int) -> list[ExternalVariable]:
    """Return the variables of other files that hold a sub-array's values."""
    if references.external is None:
        return []
    first, last = np.searchsorted(references.external[:, 0], [row, row + 1]).tolist()
    return [
        ExternalVariable(str(references.uris[code]), references.variables[name], _stamp(references.stamps, code))
        for _, code, name in references.external[first:last].tolist()
    ]


def _stamp(stamps: np.ndarray | None, code: int) -> Stamp | None:
    """Return the scanned state of a file, None if it did not exist."""
    size, time, checksum = (-1, 0, 0) if stamps is None or code < 0 else stamps[code].tolist()
    return None if size < 0 else (size, time, checksum)


def joined(blocks: Sequence[np.ndarray]) -> np.ndarray | None:
    """Return the entries of several columns by their rows, None without."""
    if not blocks:
        return None
    entries = np.concatenate(blocks)
    return entries[np.argsort(entries[:, 0], kind="stable")].astype(np.int32)


def entries_of(external: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return the entries of some sub-arrays, which are numbered anew.

    ``rows``: of the sub-arrays, in their new order.

    >>> entries_of(np.array([[0, 7, 1], [2, 8, 1], [2, 9, 1]], np.int32), np.array([2, 1])).tolist()
    [[0, 8, 1], [0, 9, 1]]
    """
    first, last = (np.searchsorted(external[:, 0], rows, side) for side in ("left", "right"))
    counts = last - first
    new = np.repeat(np.arange(len(rows), dtype=np.int32), counts)
    entries: np.ndarray = external[np.arange(len(new)) + np.repeat(first - (np.cumsum(counts) - counts), counts)]
    entries[:, 0] = new
    return entries


def with_entries(
    references: _References, rows: np.ndarray, select: Callable[[_References, np.ndarray], _References]
) -> _References:
    """Return ``select(references, rows)`` for sub-arrays with other files.

    These count as further sub-arrays meanwhile, so that their files and variables are numbered like the others.
    """
    table: Any = references
    plain, count = replace(table, external=None), len(rows)
    if table.external is None or not len(entries := entries_of(table.external, rows)):
        return select(plain, rows)
    added = entries[:, 1], entries[:, 2], table.template[rows[entries[:, 0]]]
    columns = zip((table.uri, table.variable, table.template), added, strict=True)
    uri, variable, template = (np.concatenate(pair) for pair in columns)
    extended = replace(plain, uri=uri, variable=variable, template=template)
    made: Any = select(extended, np.concatenate([rows, np.arange(len(table), len(extended))]))
    external = np.stack([entries[:, 0], made.uri[count:], made.variable[count:]], axis=-1)
    cut = {name: getattr(made, name)[:count] for name in ("uri", "variable", "template")}
    selected: _References = replace(made, **cut, external=external)
    return selected
