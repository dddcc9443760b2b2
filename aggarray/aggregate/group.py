"""Which of the arrays that might be joined are, and why not the others?

`split` takes candidates of one signature and divides them until those that are left together can be joined: along allowed
dimensions, by monotonic coordinates whose values do not interleave, with equal coordinates elsewhere, enough of the
matrix covered, and no overlap. Every division is recorded with its reason, so that one bad candidate never spoils its group.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from aggarray.aggregate.candidate import Candidate
from aggarray.aggregate.equal import differ_along, difference, reference_units, shown
from aggarray.aggregate.join import Frame, match_coordinates
from aggarray.aggregate.positions import Layout, clusters, lay_out
from aggarray.aggregate.rules import Rules
from aggarray.errors import AggarrayError, AggregationError
from aggarray.grid import refine

Refuse = Callable[[Candidate, Candidate, str, str], None]


@dataclass(frozen=True, slots=True, eq=False)
class Joinable:
    """Candidates in order, the first first, with their positions."""

    found: list[Candidate]
    frame: Frame


def split(found: list[Candidate], rules: Rules, refuse: Refuse) -> Iterator[Joinable]:
    """Yield groups that can be joined; ``refuse`` is told (array apart, its relative, rule, reason) for every division."""
    waiting = [sorted(found, key=lambda c: (c.uri, c.array.name or ""))]
    while waiting:
        group = waiting.pop(0)
        if len(group) == 1:
            yield Joinable(group, Frame({}, {}, {}))
            continue
        view = _View(group, rules, refuse)
        parts = view.divided()
        if parts:
            waiting[:0] = parts
            continue
        joinable, rest = view.placed()
        yield joinable
        if rest:
            waiting.insert(0, rest)


class _View:
    """A group under examination: the layout of its places, and which of them vary."""

    def __init__(self, group: list[Candidate], rules: Rules, refuse: Refuse) -> None:
        self.group, self.rules, self.refuse = group, rules, refuse
        self.layouts: dict[str, Layout] = {}
        self.varying: dict[str, int] = {}

    def divided(self) -> list[list[Candidate]]:
        """Divide the group by the first rule that forbids joining it as a whole; [] where none does."""
        for step in (self._by_conversion, self._by_allowed_dimensions, self._by_interleaving, self._by_coordinates, self._by_coverage):
            parts = step()
            if parts:
                return parts
        return []

    def _apart(self, classes: Sequence[int], rule: str, reason: Callable[[Candidate, Candidate], str]) -> list[list[Candidate]]:
        """Divide by class, the largest class first; each other one is told how it differs from that."""
        members: dict[int, list[Candidate]] = {}
        for number, candidate in zip(classes, self.group, strict=True):
            members.setdefault(number, []).append(candidate)
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
            for row, place in enumerate(places):
                try:
                    values.append(place.values(*units))
                except AggarrayError as error:
                    text = f"{key}: {error}"
                    return self._apart([int(n == row) for n in range(len(places))], "conversion", lambda a, b, text=text: text)  # type: ignore[misc]
            self.layouts[key] = self._layout(key, values)
        self.varying = {key: n for key, layout in self.layouts.items() if (n := len(layout.positions)) > 1}
        return []

    def _layout(self, key: str, values: list[np.ndarray]) -> Layout:
        places = [c.places[key] for c in self.group]
        if any(p.coordinate is None for p in places):
            return self._by_order(key, [p.size for p in places])
        dtypes = {p.coordinate.dtype for p in places if p.coordinate is not None}
        eps = max((float(np.finfo(d).eps) for d in dtypes if d.kind == "f"), default=float(np.finfo("f8").eps))
        return lay_out(values, self.rules.tolerance, eps)

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
                return self._apart(classes, "along", lambda a, b, k=key: f"{differ_along(k, (a, b), self.rules.tolerance)}, and the rules join along {', '.join(self.rules.along or ())} only")  # type: ignore[misc]
            if any(c.places[key].coordinate is None for c in self.group) and name not in self.rules.order:
                return self._apart(classes, "no_coordinate", lambda a, b, k=key: _sizes(a, b, k))  # type: ignore[misc]
            odd = [not c.places[key].monotonic for c in self.group]
            if any(odd):
                return self._apart(
                    [1 + n if bad else 0 for n, bad in enumerate(odd)],
                    "not_monotonic",
                    lambda a, b, k=key: f"{k} of one does not run one way throughout, or has missing values",  # type: ignore[misc]
                )
        return []

    def _by_interleaving(self) -> list[list[Candidate]]:
        for key in sorted(self.varying, key=lambda k: self.varying[k]):
            together = clusters(self.layouts[key])
            if len(together) > 1:
                number = {c: n for n, members in enumerate(together) for c in members}
                classes = [number[c] for c in self.layouts[key].classes]
                return self._apart(classes, "coordinate_values", lambda a, b, k=key: differ_along(k, (a, b), self.rules.tolerance))  # type: ignore[misc]
        return []

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
                return self._apart(classes, "coordinate", lambda a, b: reasons.get(id(b)) or reasons[id(a)])
        return []

    def _coordinate_classes(self, name: str, matches: list[dict[str, str]], spans: list[str]) -> tuple[list[int], dict[int, str]]:
        """Number the candidates by one coordinate, among those at the same place of the dimensions it spans."""
        known: dict[tuple[int, ...], list[int]] = {}
        classes, reasons = [], {}
        scalar = [k for k, p in self.group[0].places.items() if p.scalar and k in self.varying]
        for row, candidate in enumerate(self.group):
            here = known.setdefault(tuple(self.layouts[k].classes[row] for k in [*spans, *scalar]), [])
            for number, other in enumerate(here):
                text = difference(self.group[other], candidate, (matches[other][name], matches[row][name]), self.rules.tolerance)
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
            return self._apart(fewest.classes, "too_many_partitions", lambda a, b: text)
        extents = [np.diff(e)[i] for e, i in zip(cover.edges, cover.index, strict=True)]
        share = float(prod(e.astype(np.float64) for e in extents).sum()) / prod(shape)
        least = self.rules.coverage if self.rules.holes == "fill" else 1.0
        if share > least or share == 1.0:
            return []
        where = ", ".join(self.group[0].places[k].name for k in self.varying)
        return self._apart(fewest.classes, "coverage", lambda a, b: f"together they cover {share:.0%} of {where}, not more than {least:.0%}")

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
        order = sorted(range(len(self.group)), key=lambda row: (boxes[row, :, 0].tolist(), self.group[row].uri, self.group[row].array.name or ""))
        kept, rest = order, []
        if self.rules.overlap == "refuse":
            kept, blocked = _served(boxes, shape, keys, order)
            for row, by in blocked.items():
                self.refuse(self.group[row], self.group[by], "overlap", self._overlap(row, by, keys, boxes))
            rest = [self.group[row] for row in order if row in blocked]
        frame = Frame(
            {k: n for k, n in zip(keys, shape, strict=True)},
            {k: boxes[kept, axis, 0] for axis, k in enumerate(keys)},
            {k: boxes[kept, axis, 1] for axis, k in enumerate(keys)},
        )
        if rest:  # what is left out may have been the only one at some positions
            again = [self.group[row] for row in kept]
            return (Joinable(again, Frame({}, {}, {})), rest) if len(again) == 1 else (_View(again, self.rules, _nobody)._again(), rest)
        return Joinable([self.group[row] for row in kept], frame), rest

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
                return f"{', '.join(without)} has no coordinate, so nothing tells their order; Rules(order={{{without[0]!r}: 'name'}}) joins them by name"
            return "all their coordinates are equal: they cover the same positions; leave one out, or give Rules(overlap='first')"
        common = [(max(boxes[row, a, 0], boxes[by, a, 0]), min(boxes[row, a, 1], boxes[by, a, 1])) for a in range(len(keys))]
        where = ", ".join(f"{place[k].name} {self._value(k, low)} to {self._value(k, high - 1)}" for k, (low, high) in zip(keys, common, strict=True))
        return f"they overlap at {where}; give Rules(overlap='first') or 'last' to say which serves them"

    def _value(self, key: str, position: int) -> str:
        """Return the coordinate value at a position of a union."""
        layout = self.layouts[key]
        for row, number in enumerate(layout.classes):
            found = np.flatnonzero(layout.positions[number] == position)
            if found.size:
                values = self.group[row].places[key].values(*reference_units([c.places[key] for c in self.group]))
                return shown(values[found[0]])
        return str(position)


def _nobody(apart: Candidate, relative: Candidate, rule: str, reason: str) -> None:
    """Refusals of a group laid out a second time have been told already."""


def _sizes(one: Candidate, other: Candidate, key: str) -> str:
    place, twin = one.places[key], other.places[key]
    return f"{place.name} has no coordinate and sizes {place.size} and {twin.size}; Rules(order={{{place.name!r}: 'name'}}) joins along it by name"


def _served(boxes: np.ndarray, shape: Sequence[int], keys: Sequence[str], order: Sequence[int]) -> tuple[list[int], dict[int, int]]:
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
