"""`View`: the common properties and the positions of a group's members.

It holds candidates of one signature, the layout of each of their axes, and the axes that vary. Split rules take a view and
may return a `Division`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from aggarray.aggregate.candidate import AxisCoordinate, Candidate
from aggarray.aggregate.equality import reference_units, roundings, shown_in
from aggarray.aggregate.join import match_coordinates
from aggarray.aggregate.positions import PositionLayout, lay_out, natural
from aggarray.aggregate.rules import Rules
from aggarray.cf.units import is_reference_time
from aggarray.cf.units.compatibility import equivalent
from aggarray.dataclass import dataclass, replace
from aggarray.errors import AggarrayError

Reason = Callable[[Candidate, Candidate], str]


@dataclass(frozen=True, slots=True, eq=False)
class Division:
    """Split of a group: classes of the members, key of the rule, reason, hint."""

    classes: list[int]
    rule: str
    reason: Reason
    hint: str | None = None


class View:
    """A group with the layout of its axes.

    ``layouts`` by axis; ``varying``: {axis: number of different coordinates}; ``tied``: {scalar axis: the varying axis that it
    changes with}; ``unconvertible``: the division of members whose coordinates do not convert.
    """

    def __init__(self, group: list[Candidate], rules: Rules) -> None:
        self.group, self.rules = group, rules
        self.layouts: dict[str, PositionLayout] = {}
        self.varying: dict[str, int] = {}
        self.tied: dict[str, str] = {}
        self.unconvertible: Division | None = None
        for key in group[0].axes:
            self.unconvertible = self._lay_out(key)
            if self.unconvertible is not None:
                return
        self.varying = {key: n for key, layout in self.layouts.items() if (n := len(layout.positions)) > 1}
        self._tie()
        member = rules.member_dimension
        if member in group[0].axes and group[0].axes[member].scalar:
            self.varying.setdefault(member, 1)  # a dimension even with one member

    def _lay_out(self, key: str) -> Division | None:
        """Lay out an axis; return the division of members that do not convert."""
        axes = [c.axes[key] for c in self.group]
        if any(p.coordinate is None for p in axes):
            self.layouts[key] = self._by_order(key, [p.size for p in axes])
            return None
        units = reference_units(axes)
        distinct, numbers = _distinct(axes)
        values: list[np.ndarray] = []
        errors: dict[int, str] = {}
        for number, axis in enumerate(distinct):
            try:
                values.append(axis.values(*units))
            except AggarrayError as error:
                errors[number] = f"{axis.name} ({_units(axis)} and {_units(axes[0])}): {error}"
        if errors:
            reasons = {id(c): errors[n] for c, n in zip(self.group, numbers, strict=True) if n in errors}
            return Division([int(n in errors) for n in numbers], "conversion", either(reasons))
        layout = lay_out(values, self.rules.tolerance, roundings(distinct, units))
        self.layouts[key] = replace(layout, classes=[layout.classes[n] for n in numbers])
        return None

    def _by_order(self, key: str, sizes: list[int]) -> PositionLayout:
        """Lay out a dimension without a coordinate as ranges, in order if given."""
        order_rule = self.rules.order.get(self.group[0].axes[key].name)
        if order_rule is None:
            distinct = sorted(set(sizes))
            return PositionLayout([distinct.index(n) for n in sizes], [range(n) for n in distinct], max(sizes), 0.0)
        as_given = order_rule == "given"
        order = sorted(range(len(sizes)), key=lambda row: self.group[row].number if as_given else natural(self.group[row].uri))
        ends = np.cumsum([sizes[row] for row in order])
        positions = {row: range(int(end) - sizes[row], int(end)) for row, end in zip(order, ends, strict=True)}
        return PositionLayout(list(range(len(sizes))), [positions[row] for row in range(len(sizes))], int(ends[-1]), 0.0)

    def _tie(self) -> None:
        """Tie scalar coordinates that change with another axis to that axis."""

        def importance(key: str) -> tuple[bool, bool, str]:
            coordinate = self.group[0].axes[key].coordinate
            return key != "time", coordinate is None or not is_reference_time(coordinate.units), key

        for key in sorted(self.varying, key=importance, reverse=True):
            if key == "time" or not self._may_be_tied(key):
                continue
            for other in sorted((k for k in self.varying if k != key), key=importance):
                pairs = set(zip(self.layouts[key].classes, self.layouts[other].classes, strict=True))
                if len(pairs) == self.varying[other]:
                    self.tied[key] = other
                    del self.varying[key]
                    break

    def _may_be_tied(self, key: str) -> bool:
        """Return whether a scalar axis may depend on others: times, numbers."""
        axes = [c.axes[key] for c in self.group]
        coordinates = [axis.coordinate for axis in axes if axis.scalar and axis.coordinate is not None]
        if len(coordinates) < len(self.group) or key == self.rules.member_dimension:
            return False
        for c in coordinates:
            is_time = is_reference_time(c.units) or equivalent(c.units, None, "s", None)
            is_described = "standard_name" in c.attrs or "axis" in c.attrs
            if not is_time and (is_described or c.units not in (None, "", "1", "no_unit", "unknown")):
                return False
        return True

    def values(self, key: str) -> list[np.ndarray]:
        """Return the values of members along an axis, in the units of the first."""
        units = reference_units(c.axes[key] for c in self.group)
        return [c.axes[key].values(*units) for c in self.group]

    def matches(self) -> list[dict[str, str]]:
        """Return, per member, the name of each coordinate of the first."""
        return [match_coordinates(self.group[0], c) for c in self.group]

    def boxes(self, keys: Sequence[str]) -> tuple[np.ndarray, tuple[int, ...]]:
        """Return the box of each candidate along some axes, and their sizes."""
        boxes = np.empty((len(self.group), len(keys), 2), np.int64)
        for axis, key in enumerate(keys):
            layout = self.layouts[key]
            spans = np.array([(p[0], p[-1] + 1) if len(p) else (0, 0) for p in layout.positions], np.int64)
            boxes[:, axis] = spans[layout.classes]
        return boxes, tuple(self.layouts[k].size for k in keys)

    def value(self, key: str, position: int, rows: Sequence[int]) -> str:
        """Return the text of a value at a position, from the first row with it."""
        layout = self.layouts[key]
        for row in rows:
            indices = np.flatnonzero(np.asarray(layout.positions[layout.classes[row]]) == position)
            if indices.size:
                units = reference_units(c.axes[key] for c in self.group)
                return shown_in(self.group[row].axes[key].values(*units)[indices[0]], units)
        return str(position)


def _distinct(axes: Sequence[AxisCoordinate]) -> tuple[list[AxisCoordinate], list[int]]:
    """Return the different axes, and the number of each axis in these."""
    seen: dict[object, int] = {}
    distinct: list[AxisCoordinate] = []
    numbers = []
    for axis in axes:
        c = axis.coordinate
        key = id(axis) if c is None or c._known is None else (*map(id, c._known), c.units, c.calendar)
        number = seen.setdefault(key, len(distinct))
        if number == len(distinct):
            distinct.append(axis)
        numbers.append(number)
    return distinct, numbers


def either(reasons: dict[int, str]) -> Reason:
    """Return a reason function: the reason of either candidate, by its id."""
    return lambda one, other: reasons.get(id(other)) or reasons[id(one)]


def _units(axis: AxisCoordinate) -> str:
    if axis.coordinate is None:
        return "no coordinate"
    return f"{axis.coordinate.units!r}" + (f", calendar {axis.coordinate.calendar}" if axis.coordinate.calendar else "")
