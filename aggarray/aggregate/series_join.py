"""Join of series with series and arrays, without the arrays of files.

A series is one candidate. Its join with others equals the join of all files if the files of different series cover different
positions, and if no tolerance, conversion or rule distinguishes one from the other. Otherwise there is none, and the arrays of
the files are joined.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from aggarray.aggregate.candidate import Candidate
from aggarray.aggregate.equality import reference_units, roundings
from aggarray.aggregate.group import Joinable, joinable
from aggarray.aggregate.longitude import unwrapped
from aggarray.aggregate.rules import Rules
from aggarray.aggregate.split_rules import RULES
from aggarray.aggregate.view import View
from aggarray.arrays.master import MasterArray
from aggarray.dataclass import replace
from aggarray.partition.grid import refine
from aggarray.partition.tiling import by_position


def joinable_series(group: Sequence[Candidate], rules: Rules) -> Joinable | None:
    """Return candidates to join as they are; None if their files must be."""
    names = {(member.array.name, frozenset(member.array.coords), frozenset(member.axes)) for member in group}
    if len(names) > 1 or not all(member.array.size for member in group):
        return None  # the commonest name counts each file
    ordered = sorted(group, key=lambda c: (c.uri, c.array.name or "", c.number))
    view = View(ordered, replace(rules, tolerance=0.0, overlap="refuse"))
    if view.unconvertible is not None or view.tied or not all(_is_separate(view, key, rules.tolerance) for key in view.layouts):
        return None
    keys = list(view.varying)
    if any(map(_new_dimensions, group)) and any(all(c.axes[key].scalar for c in group) for key in keys):
        return None  # the order of several new dimensions is that of the coordinates of a file
    boxes, shape = view.boxes(keys)
    if len(group) > 1 and (not keys or refine(boxes, shape, keys, "all").overlap is not None):
        return None
    if unwrapped(view) is not None or any(rule(view) is not None for rule in RULES):
        return None
    return joinable(view, range(len(ordered)))


def _new_dimensions(member: Candidate) -> set[str]:
    """Return the dimensions of a series that its files lack."""
    matrix = member.array._matrix
    return set(matrix.dimensions).difference(*(template.dimensions for template in matrix.references.templates))


def _is_separate(view: View, key: str, fraction: float) -> bool:
    """Return whether values of an axis are equal, or differ in any tolerance.

    The positions of members must be equal, or follow each other.
    """
    layout = view.layouts[key]
    ends = sorted((int(p[0]), int(p[-1]) + 1) for p in layout.positions)
    overlap = any(stop > start for (_, stop), (start, _) in pairwise(ends))
    if overlap or not all(map(layout.contiguous, range(len(layout.positions)))):
        return False
    if view.group[0].axes[key].coordinate is None:
        return len(layout.positions) == 1
    values = np.unique(np.concatenate(view.values(key)))
    if values.dtype.kind not in "iuf":
        return True
    # No spacing of a file is larger than the largest step.
    steps = np.diff(values.astype(np.float64))
    largest, axes = float(steps.max(initial=0.0)), [c.axes[key] for c in view.group]
    allowed = fraction * largest + max(roundings(axes, reference_units(axes)))
    return bool(np.isfinite(values).all() and (steps > allowed).all())


def in_order_of_files(array: MasterArray, candidate: Candidate) -> MasterArray:
    """Return a joined array with its files in the order of their join.

    ``candidate``: the first one by name.
    """
    new = _new_dimensions(candidate)  # scalar coordinates of a file follow its dimensions
    names = sorted((axis.name for axis in candidate.axes.values()), key=new.__contains__)

    def ordered(item: MasterArray) -> MasterArray:
        cells = dict(zip(item.dimensions, item._matrix.cells, strict=True))
        joined = [name for name in names if cells.get(name, 1) > 1]
        return item if len(joined) < 2 else replace(item, _matrix=by_position(item._matrix, joined))

    return replace(ordered(array), coords={name: ordered(c) for name, c in array.coords.items()})
