"""Which of the arrays that might be joined are, and why not the others?

`split` takes candidates of one signature and divides them until those that are left together can be joined: along allowed
dimensions, by monotonic coordinates whose values do not interleave, with equal coordinates elsewhere, enough of the
matrix covered, and no overlap. Every division is recorded with its reason, so that one bad candidate never spoils its group.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod

import numpy as np

from aggarray.aggregate.candidate import Candidate, Place
from aggarray.aggregate.equal import Units, differ_along, difference, reference_units, rounding, shown
from aggarray.aggregate.join import Frame, match_coordinates
from aggarray.aggregate.positions import Layout, clusters, lay_out
from aggarray.aggregate.rules import Rules
from aggarray.errors import AggarrayError, AggregationError
from aggarray.grid import refine

Refuse = Callable[[Candidate, Candidate, str, str], None]
Reason = Callable[[Candidate, Candidate], str]


@dataclass(frozen=True, slots=True, eq=False)
class Joinable:
    """Candidates in order, the first first, with their positions."""

    found: list[Candidate]
    frame: Frame


def split(found: list[Candidate], rules: Rules, refuse: Refuse) -> Iterator[Joinable]:
    """Yield groups that can be joined; ``refuse`` is told (array apart, its relative, rule, reason) for every division."""
    told: set[int] = set()
    waiting = [sorted(found, key=lambda c: (c.uri, c.array.name or ""))]
    while waiting:
        group = waiting.pop(0)
        if len(group) == 1:
            yield Joinable(group, Frame({}, {}, {}))
            continue
        view = _View(group, rules, refuse, told)
        parts = view.divided()
        if parts:
            waiting[:0] = parts
            continue
        joinable, rest = view.placed()
        yield joinable
        if rest and view.varying:
            waiting.insert(0, rest)
        else:  # what covers the same positions need not be compared again
            waiting[:0] = [[one] for one in rest]


class _View:
    """A group under examination: the layout of its places, and which of them vary."""

    def __init__(self, group: list[Candidate], rules: Rules, refuse: Refuse, told: set[int]) -> None:
        self.group, self.rules, self.refuse, self.told = group, rules, refuse, told
        self.layouts: dict[str, Layout] = {}
        self.varying: dict[str, int] = {}

    def divided(self) -> list[list[Candidate]]:
        """Divide the group by the first rule that forbids joining it as a whole; [] where none does."""
        by_layout = (self._by_conversion, self._by_allowed_dimensions, self._by_interleaving)
        for step in (*by_layout, self._by_coordinates, self._by_coverage):
            parts = step()
            if parts:
                return parts
        return []

    def _apart(self, classes: Sequence[int], rule: str, reason: Reason) -> list[list[Candidate]]:
        """Divide by class, the largest class first; each other one is told how it differs from that."""
        members: dict[int, list[Candidate]] = {}
        for number, candidate in zip(classes, self.group, strict=True):
            members.setdefault(number, []).append(candidate)
        if len(members) == 1:
            members = {row: [one] for row, one in enumerate(self.group)}
        parts = sorted(members.values(), key=lambda m: -len(m))
        for part in parts[1:]:
            self.refuse(part[0], parts[0][0], rule, reason(parts[0][0], part[0]))
        return parts

    def _by_conversion(self) -> list[list[Candidate]]:
        """Set aside whatever has a coordinate that does not convert or cannot be read; lay out the others."""
        for key in self.group[0].places:
            places = [c.places[key] for c in self.group]
            units = reference_units(places)
            values: list[np.ndarray] = []
            wrong: dict[int, str] = {}
            for row, place in enumerate(places):
                try:
                    values.append(place.values(*units))
                except AggarrayError as error:
                    wrong[row] = f"{place.name} ({_units(place)} and {_units(places[0])}): {error}"
            if wrong:
                reasons = {id(self.group[row]): text for row, text in wrong.items()}
                return self._apart([int(row in wrong) for row in range(len(places))], "conversion", partial(_either, reasons))
            self.layouts[key] = self._layout(key, values, units)
        self.varying = {key: n for key, layout in self.layouts.items() if (n := len(layout.positions)) > 1}
        return []

    def _layout(self, key: str, values: list[np.ndarray], units: Units) -> Layout:
        places = [c.places[key] for c in self.group]
        if any(p.coordinate is None for p in places):
            return self._by_order(key, [p.size for p in places])
        return lay_out(values, self.rules.tolerance, rounding(places, units))

    def _by_order(self, key: str, sizes: list[int]) -> Layout:
        """Lay out a dimension without a coordinate: one after the other where the rules say so, else by size."""
        how = self.rules.order.get(self.group[0].places[key].name)
        if how is None:
            distinct = sorted(set(sizes))
            return Layout([distinct.index(n) for n in sizes], [np.arange(n) for n in distinct], max(sizes), 0.0, 0.0)
        order = sorted(range(len(sizes)), key=lambda row: self.group[row].number if how == "given" else row)
        ends = np.cumsum([sizes[row] for row in order])
        positions = {row: np.arange(end - sizes[row], end) for row, end in zip(order, ends, strict=True)}
        return Layout(list(range(len(sizes))), [positions[row] for row in range(len(sizes))], int(ends[-1]), 0.0, 0.0)

    def _by_allowed_dimensions(self) -> list[list[Candidate]]:
        for key in self.varying:
            name = self.group[0].places[key].name
            classes = self.layouts[key].classes
            if self.rules.along is not None and not {name, key} & set(self.rules.along):
                return self._apart(classes, "along", partial(self._not_along, key))
            if any(c.places[key].coordinate is None for c in self.group) and name not in self.rules.order:
                return self._apart(classes, "no_coordinate", partial(_sizes, key=key))
            odd = [not c.places[key].monotonic for c in self.group]
            if any(odd):
                classes = [1 + n if bad else 0 for n, bad in enumerate(odd)]
                return self._apart(classes, "not_monotonic", partial(_unordered, key=key))
        return []

    def _not_along(self, key: str, one: Candidate, other: Candidate) -> str:
        text = differ_along(key, (one, other), self.rules.tolerance)
        return f"{text}, and the rules join along {', '.join(self.rules.along or ()) or 'nothing'} only"

    def _by_interleaving(self) -> list[list[Candidate]]:
        for key in sorted(self.varying, key=lambda k: self.varying[k]):
            together = clusters(self.layouts[key])
            if len(together) > 1:
                number = {c: n for n, members in enumerate(together) for c in members}
                classes = [number[c] for c in self.layouts[key].classes]
                return self._apart(classes, "coordinate_values", partial(self._interleaved, key))
        return []

    def _interleaved(self, key: str, one: Candidate, other: Candidate) -> str:
        return differ_along(key, (one, other), self.rules.tolerance)

    def _by_coordinates(self) -> list[list[Candidate]]:
        first = self.group[0]
        matches = [match_coordinates(first, c) for c in self.group]
        own = {p.name: key for key, p in first.places.items()}
        for name in first.array.coords:
            if own.get(name) in self.layouts:
                continue
            spans = [own[d] for d in first.array.coords[name].dimensions if d in own]
            classes, reasons = self._coordinate_classes(name, matches, spans)
            if any(classes):
                return self._apart(classes, "coordinate", partial(_either, reasons))
        return []

    def _coordinate_classes(
        self, name: str, matches: list[dict[str, str]], spans: list[str]
    ) -> tuple[list[int], dict[int, str]]:
        """Number the candidates by one coordinate, among those at the same place of the dimensions it spans."""
        known: dict[tuple[int, ...], list[int]] = {}
        classes, reasons = [], {}
        scalar = [k for k, p in self.group[0].places.items() if p.scalar and k in self.varying]
        for row, candidate in enumerate(self.group):
            here = known.setdefault(tuple(self.layouts[k].classes[row] for k in [*spans, *scalar]), [])
            for number, other in enumerate(here):
                names = (matches[other][name], matches[row][name])
                text = difference(self.group[other], candidate, names, self.rules.tolerance)
                if text is None:
                    classes.append(number)
                    break
                reasons[id(candidate)] = text
            else:
                here.append(row)
                classes.append(len(here) - 1)
        return classes, reasons

    def _by_coverage(self) -> list[list[Candidate]]:
        """Divide where too little of the matrix would be covered: by the dimension with the fewest different coordinates."""
        if len(self.varying) < 2:
            return []
        boxes, shape = self._boxes(list(self.varying))
        fewest = self.layouts[min(self.varying, key=lambda k: self.varying[k])]
        try:
            cover = refine(boxes, shape, list(self.varying), "first")
        except AggregationError as error:
            text = str(error)
            return self._apart(fewest.classes, "too_many_partitions", partial(_same, text))
        extents = [np.diff(e)[i] for e, i in zip(cover.edges, cover.index, strict=True)]
        share = float(prod(e.astype(np.float64) for e in extents).sum()) / prod(shape)
        least = self.rules.coverage if self.rules.holes == "fill" else 1.0
        if share > least or share == 1.0:
            return []
        where = ", ".join(self.group[0].places[k].name for k in self.varying)
        text = f"together they cover {share:.0%} of {where}, not more than {least:.0%}"
        return self._apart(fewest.classes, "coverage", partial(_same, text))

    def _boxes(self, keys: Sequence[str]) -> tuple[np.ndarray, tuple[int, ...]]:
        """Return where each candidate lies along some places, and the sizes of their unions."""
        boxes = np.empty((len(self.group), len(keys), 2), np.int64)
        for axis, key in enumerate(keys):
            layout = self.layouts[key]
            spans = np.array([(p[0], p[-1] + 1) if len(p) else (0, 0) for p in layout.positions], np.int64)
            boxes[:, axis] = spans[layout.classes]
        return boxes, tuple(self.layouts[k].size for k in keys)

    def placed(self) -> tuple[Joinable, list[Candidate]]:
        """Return what can be joined, in order, and what overlaps it: the lowest along the dimensions, then by URI, stay."""
        keys = list(self.varying)
        boxes, shape = self._boxes(keys)
        empty = (boxes[:, :, 0] == boxes[:, :, 1]).any(axis=1)

        def place(row: int) -> tuple[bool, list[int], str, str]:
            # What covers nothing is never the first.
            return bool(empty[row]), boxes[row, :, 0].tolist(), self.group[row].uri, self.group[row].array.name or ""

        kept = order = sorted(range(len(self.group)), key=place)
        rest: list[Candidate] = []
        if self.rules.overlap == "refuse":
            kept, blocked = _served(boxes, shape, keys, order)
            for row, by in blocked.items():
                if self.group[row].number not in self.told:
                    self.refuse(self.group[row], self.group[by], "overlap", self._overlap(row, by, keys, boxes))
            self.told.update(self.group[row].number for row in blocked)
            rest = [self.group[row] for row in order if row in blocked]
        frame = Frame(
            {k: n for k, n in zip(keys, shape, strict=True)},
            {k: boxes[kept, axis, 0] for axis, k in enumerate(keys)},
            {k: boxes[kept, axis, 1] for axis, k in enumerate(keys)},
        )
        found = [self.group[row] for row in kept]
        if rest and len(found) == 1:
            return Joinable(found, Frame({}, {}, {})), rest
        if rest:  # what is left out may have been the only one at some positions
            return _View(found, self.rules, _nobody, self.told)._again(), rest
        return Joinable(found, frame), rest

    def _again(self) -> Joinable:
        """Lay out a group that is known to be joinable."""
        self._by_conversion()
        return self.placed()[0]

    def _overlap(self, row: int, by: int, keys: Sequence[str], boxes: np.ndarray) -> str:
        """Say where two candidates overlap."""
        place = self.group[row].places
        if not keys:
            without = [p.name for p in place.values() if p.coordinate is None]
            if without:
                text = f"{', '.join(without)} has no coordinate, so nothing tells their order"
                return f"{text}; Rules(order={{{without[0]!r}: 'name'}}) joins them by name"
            text = "all their coordinates are equal: they cover the same positions"
            return f"{text}; leave one out, or give Rules(overlap='first')"
        low = boxes[[row, by], :, 0].max(axis=0).tolist()
        high = boxes[[row, by], :, 1].min(axis=0).tolist()
        common = zip(keys, low, high, strict=True)
        spans = [f"{place[k].name} {self._value(k, a)} to {self._value(k, b - 1)}" for k, a, b in common]
        return f"they overlap at {', '.join(spans)}; give Rules(overlap='first') or 'last' to say which serves them"

    def _value(self, key: str, position: int) -> str:
        """Return the coordinate value at a position of a union."""
        layout = self.layouts[key]
        for row, number in enumerate(layout.classes):
            found = np.flatnonzero(layout.positions[number] == position)
            if found.size:
                values = self.group[row].places[key].values(*reference_units([c.places[key] for c in self.group]))
                return shown(values[found[0]])
        return str(position)


def _either(reasons: dict[int, str], one: Candidate, other: Candidate) -> str:
    """Return the reason noted for either of two candidates."""
    return reasons.get(id(other)) or reasons[id(one)]


def _same(text: str, one: Candidate, other: Candidate) -> str:
    """Return a reason that is the same for every pair."""
    return text


def _units(place: Place) -> str:
    if place.coordinate is None:
        return "no coordinate"
    return f"{place.coordinate.units!r}" + (f", calendar {place.coordinate.calendar}" if place.coordinate.calendar else "")


def _unordered(one: Candidate, other: Candidate, key: str) -> str:
    place = next(c.places[key] for c in (other, one) if not c.places[key].monotonic)
    values = place.values(*reference_units([place]))
    ends = f" ({shown(values[0])} to {shown(values[-1])})" if len(values) else ""
    return f"{place.name}{ends} does not run one way throughout, has a value twice or has missing values"


def _nobody(apart: Candidate, relative: Candidate, rule: str, reason: str) -> None:
    """Refusals of a group laid out a second time have been told already."""


def _sizes(one: Candidate, other: Candidate, key: str) -> str:
    place, twin = one.places[key], other.places[key]
    sizes = f"{place.name} has no coordinate and sizes {place.size} and {twin.size}"
    return f"{sizes}; Rules(order={{{place.name!r}: 'name'}}) joins along it by name"


def _served(
    boxes: np.ndarray, shape: Sequence[int], keys: Sequence[str], order: Sequence[int]
) -> tuple[list[int], dict[int, int]]:
    """Return the candidates that find their cells free, in order, and {each other one: the one in its way}."""
    if not keys:
        return [order[0]], {row: order[0] for row in order[1:]}
    cover = refine(boxes, shape, keys)
    if cover.overlap is None:
        return list(order), {}
    cover = refine(boxes, shape, keys, "every")
    owner = np.full(prod(cover.shape), -1, np.int64)
    begins = np.searchsorted(cover.box, np.arange(len(boxes) + 1))
    kept, blocked = [], {}
    for row in order:
        cells = cover.cell[begins[row] : begins[row + 1]]
        taken = owner[cells][owner[cells] >= 0]
        if taken.size:
            blocked[row] = int(taken[0])
        else:
            owner[cells] = row
            kept.append(row)
    return kept, blocked
