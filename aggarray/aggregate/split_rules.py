"""Rules that split a group of candidates.

`RULES` is a tuple of functions. Each takes a `View` and returns a `Division` with its reason, or None. The first division
splits the group, and its parts are examined again, so that one bad member does not prevent the join of the others.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod

import numpy as np

from aggarray.aggregate.candidate import Candidate
from aggarray.aggregate.equality import describe_axis_difference, difference, reference_units, shown
from aggarray.aggregate.longitude import repeated_meridians
from aggarray.aggregate.positions import clusters
from aggarray.aggregate.view import Division, View, either
from aggarray.errors import AggregationError
from aggarray.partition.grid import refine

Rule = Callable[[View], Division | None]


def conversion(view: View) -> Division | None:
    """Separate arrays whose coordinates do not convert or are unreadable."""
    return view.unconvertible


def split_along(view: View) -> Division | None:
    """Separate arrays along the dimensions that the rules exclude."""
    allowed = view.rules.along
    if allowed is None:
        return None
    key = next((key for key in view.varying if {view.group[0].axes[key].name, key}.isdisjoint(allowed)), None)
    if key is None:
        return None
    only = f"and the rules join along {', '.join(allowed) or 'nothing'} only"
    return Division(view.layouts[key].classes, "along", lambda one, other: f"{_differ(view, key, one, other)}, {only}")


def coordinate_needed(view: View) -> Division | None:
    """Separate arrays along dimensions without a coordinate or an order."""
    for key in view.varying:
        axes = [c.axes[key] for c in view.group]
        if any(p.coordinate is None for p in axes) and axes[0].name not in view.rules.order:
            hint = f"Rules(order={{{axes[0].name!r}: 'name'}}) joins along it by name"
            return Division(view.layouts[key].classes, "no_coordinate", partial(_sizes, key=key), hint)
    return None


def monotonic(view: View) -> Division | None:
    """Separate arrays whose coordinate is not monotonic."""
    for key in view.varying:
        invalid = [c.axes[key].coordinate is not None and not c.axes[key].monotonic for c in view.group]
        if any(invalid):
            classes = [1 + n if bad else 0 for n, bad in enumerate(invalid)]
            return Division(classes, "not_monotonic", partial(_describe_order, key=key))
    return None


def interleaved(view: View) -> Division | None:
    """Separate arrays with values between values of others."""
    for key in sorted(view.varying, key=lambda k: view.varying[k]):
        groups = clusters(view.layouts[key])
        if len(groups) > 1:
            number = {c: n for n, members in enumerate(groups) for c in members}
            classes = [number[c] for c in view.layouts[key].classes]
            return Division(classes, "coordinate_values", partial(_differ, view, key))
    return None


def coordinates(view: View) -> Division | None:
    """Separate arrays whose other coordinates differ at the same position."""
    first, matches = view.group[0], view.matches()
    own = {p.name: key for key, p in first.axes.items()}
    for name in first.array.coords:
        if own.get(name) in view.layouts or name == view.rules.versions:
            continue
        spans = [own[d] for d in first.array.coords[name].dimensions if d in own]
        parent = next((own[n] for n, bounds in first.bounds.items() if bounds == name and n in own), None)
        spans += [parent] if parent is not None and first.axes[parent].scalar else []
        # Candidates at one position along the coordinate's dimensions are numbered by its values.
        by_position: dict[tuple[int, ...], list[int]] = {}
        classes, reasons = [], {}
        for row, candidate in enumerate(view.group):
            members = by_position.setdefault(tuple(view.layouts[k].classes[row] for k in spans), [])
            for number, other in enumerate(members):
                names = (matches[other][name], matches[row][name])
                text = difference(view.group[other], candidate, names, view.rules.tolerance)
                if text is None:
                    classes.append(number)
                    break
                reasons[id(candidate)] = text
            else:
                members.append(row)
                classes.append(len(members) - 1)
        if any(classes):
            return Division(classes, "coordinate", either(reasons))
    return None


def coverage(view: View) -> Division | None:
    """Separate arrays along a dimension if they cover too little together."""
    keys = [key for key, different in view.varying.items() if different > 1]
    if len(keys) < 2:
        return None
    fewest = view.layouts[min(keys, key=lambda k: view.varying[k])]
    try:
        share = covered(view, keys)
    except AggregationError as error:
        text = str(error)
        return Division(fewest.classes, "too_many_partitions", lambda a, b: text)
    required = view.rules.coverage if view.rules.holes == "fill" else 1.0
    if share > required or share == 1.0:
        return None
    where = ", ".join(view.group[0].axes[k].name for k in keys)
    reason = f"together they cover {share:.0%} of {where}, which is not more than {required:.0%}"
    return Division(fewest.classes, "coverage", lambda a, b: reason)


def covered(view: View, keys: list[str]) -> float:
    """Return the covered fraction; raise AggregationError for too many cells."""
    boxes, shape = view.boxes(keys)
    cover = refine(boxes, shape, keys, "first")
    extents = [np.diff(e)[i] for e, i in zip(cover.edges, cover.index, strict=True)]
    return float(prod(e.astype(np.float64) for e in extents).sum()) / prod(shape)


def _differ(view: View, key: str, one: Candidate, other: Candidate) -> str:
    return describe_axis_difference(key, (one, other), view.rules.tolerance)


def _describe_order(one: Candidate, other: Candidate, key: str) -> str:
    axis = next(c.axes[key] for c in (other, one) if not c.axes[key].monotonic)
    values = axis.values(*reference_units([axis]))
    ends = f" ({shown(values[0])} to {shown(values[-1])})" if len(values) else ""
    return f"{axis.name}{ends} is not monotonic, repeats a value or has missing values"


def _sizes(one: Candidate, other: Candidate, key: str) -> str:
    axis, other_axis = one.axes[key], other.axes[key]
    return f"{axis.name} has no coordinate, and sizes {axis.size} and {other_axis.size}"


#: In order of precedence.
RULES: tuple[Rule, ...] = (
    conversion,
    split_along,
    coordinate_needed,
    monotonic,
    repeated_meridians,
    interleaved,
    coordinates,
    coverage,
)
