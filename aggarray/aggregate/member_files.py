"""Files of one member each of a new dimension, joined as columns.

They have the same variables, attributes and values of coordinates. An attribute or the path of each file gives its member.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import pairwise

import numpy as np

from aggarray.aggregate.file_series import FileSeries, grouped
from aggarray.aggregate.positions import natural
from aggarray.aggregate.rules import facet
from aggarray.scan.structure_table import StructureTable


class MemberFiles(FileSeries):
    """Files that differ in the member only, sorted by it.

    ``members``: the member of each file, as text.
    """

    def __init__(self, table: StructureTable, rows: Sequence[int], dimension: str, members: Sequence[str]) -> None:
        self.table, self.rows, self.dimension, self.members = table, list(rows), dimension, members
        self.axes, self.counted, self.units = {}, {}, None
        self.edges = np.arange(len(rows) + 1, dtype=np.int64)
        self.is_scalar, self._stackable, self.stacked = True, frozenset(), {}


def find_member_files(
    table: StructureTable,
    dimension: tuple[str, re.Pattern[str] | None],
    identifying: Collection[str],
    rows: Iterable[int],
) -> Iterator[MemberFiles]:
    """Yield files that differ in the member only, among some rows.

    ``dimension``: its name, and a pattern of the member in paths or None; ``identifying``: attributes that separate files.
    """
    name, pattern = dimension
    for group in grouped(table, identifying, rows):
        parts: dict[object, dict[int, str]] = {}
        for row in group:
            member = _member(table, row, name, pattern)
            if member is not None:
                variant = table.variants[table.variant[row]]
                values = tuple([table.value_key_at(row, p) for p in variant.valued])
                shapes = tuple([table.heads[head][0].shape for head in variant.heads])
                parts.setdefault((shapes, variant.valued, values), {})[row] = member
        for part in parts.values():
            ordered = _in_order(part)
            if ordered is not None and len(ordered) > 1:
                yield MemberFiles(table, ordered, name, [part[row] for row in ordered])


def _member(table: StructureTable, row: int, name: str, pattern: re.Pattern[str] | None) -> str | None:
    if pattern is None:
        return facet(table.attrs(row), name)
    match = pattern.search(table.uris[row])
    return None if match is None else match.group(1)


def _in_order(members: dict[int, str]) -> list[int] | None:
    """Return rows in the order of their members.

    None if numbers have another order than texts, or if members are equal.
    """
    keys = {row: natural(member) for row, member in members.items()}
    ordered = sorted(members, key=keys.__getitem__)
    if any(keys[one] == keys[other] for one, other in pairwise(ordered)):
        return None
    return None if any(member.startswith("-") for member in members.values()) else ordered
