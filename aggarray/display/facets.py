"""Columns of the attributes that tell arrays apart, for tables and pages."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from aggarray.aggregate.differences import (
    MAX_ATTRIBUTES,
    attribute_text,
    differing_attributes,
    distinguishing_facets,
    folders_or_files,
)

if TYPE_CHECKING:
    from aggarray.arrays.master import MasterArray


def facet_columns(arrays: Sequence[MasterArray]) -> tuple[list[str], list[tuple[str, ...]]]:
    """Return the distinguishing attributes of arrays, and a row per array.

    The facets come first, in the order of CMIP, without those that say only what another facet says. Arrays of one name that
    no facet tells apart add other attributes such as units, then ``folder`` or ``file``. A missing attribute is "".
    """
    columns = {name: [value or "" for value in values] for name, values in distinguishing_facets(arrays)}
    for rows in _same_rows(arrays, columns):
        for name, _ in differing_attributes([arrays[row] for row in rows])[:MAX_ATTRIBUTES]:
            columns[name] = [attribute_text(array, name) or "" for array in arrays]
    for rows in _same_rows(arrays, columns):
        name, paths = folders_or_files([arrays[row] for row in rows])
        column = columns.setdefault(name, [""] * len(arrays))
        for row, path in zip(rows, paths, strict=True):
            column[row] = path
    return list(columns), [tuple(column[row] for column in columns.values()) for row in range(len(arrays))]


def _same_rows(arrays: Sequence[MasterArray], columns: dict[str, list[str]]) -> list[list[int]]:
    """Return the groups of arrays of one name that no column tells apart."""
    groups: dict[tuple[str | None, ...], list[int]] = defaultdict(list)
    for row, array in enumerate(arrays):
        groups[array.name, *(column[row] for column in columns.values())].append(row)
    return [rows for rows in groups.values() if len(rows) > 1]
