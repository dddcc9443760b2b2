"""Representation of a master array as text.

This module imports nothing that imports master arrays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aggarray.aggregate.rules import COLUMN_ORDER, IMPLIED_BY, facets_in
from aggarray.display.markup import counted, printable
from aggarray.partition.file_names import file_count

if TYPE_CHECKING:
    from aggarray.arrays.master import MasterArray

#: Of more coordinates than this, the first ones are shown.
MOST_COORDS = 12


def array_text(array: MasterArray) -> str:
    """Return the representation of an array: shape, dataset, partitions."""
    sizes = ", ".join(f"{d}: {n}" for d, n in zip(array.dimensions, array.shape, strict=True))
    words = ("aggarray.MasterArray", array.name, f"({sizes})", array.dtype, None if array.units is None else str(array.units))
    files, missing = file_count(array._matrix), int((array._matrix.refs < 0).sum())
    partitions = [f"partitions: {array.partitions._sizes}", *([counted(files, "file")] if files else [])]
    facets = {name: value for name, value in facets_in(array, COLUMN_ORDER).items() if value is not None}
    dataset = [facets[name] for name in facets if facets.keys().isdisjoint(IMPLIED_BY.get(name, ()))]
    lines = [f"<{' '.join(str(w) for w in words if w)}>", *([f"dataset: {', '.join(dataset)}"] if dataset else [])]
    lines.append(", ".join([*partitions, *([f"{missing} missing"] if missing else [])]))
    if array.coords:
        names, more = list(array.coords)[:MOST_COORDS], len(array.coords) - MOST_COORDS
        lines.append(f"coords: {', '.join(names)}{f' and {more} more' if more > 0 else ''}")
    # promise: escape-array-repr
    return "\n  ".join(map(printable, lines))
