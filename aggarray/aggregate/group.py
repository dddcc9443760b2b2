"""Which of the arrays that might be joined are, and in which groups?

`split` takes candidates of one signature: repeats are used once, longitudes are turned, interleaved arrays cut into runs, and
the rules divide until those that are left together can be joined. Every division is recorded with its reason.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np

from aggarray.aggregate.candidate import Candidate
from aggarray.aggregate.divide import RULES
from aggarray.aggregate.join import Frame
from aggarray.aggregate.repeat import Note, without_repeats
from aggarray.aggregate.rules import Rules
from aggarray.aggregate.runs import cut
from aggarray.aggregate.view import Division, View
from aggarray.aggregate.wrap import unwrapped
from aggarray.grid import refine

Refuse = Callable[[Candidate, Candidate, str, str], None]


@dataclass(frozen=True, slots=True, eq=False)
class Joinable:
    """Candidates in order, the first first, with their positions and which serves where several do."""

    found: list[Candidate]
    frame: Frame
    overlap: str


@dataclass(frozen=True, slots=True, eq=False)
class Ears:
    """Who is told: ``refuse`` (array apart, its relative, rule, reason), ``repeated`` (repeat, kept)."""

    refuse: Refuse
    repeated: Note
    told: set[int] = field(default_factory=set)
    differing: set[tuple[int, int]] = field(default_factory=set)


def split(found: list[Candidate], rules: Rules, ears: Ears) -> Iterator[Joinable]:
    """Yield groups that can be joined; everything that stays apart is told to ``ears``."""
    waiting = [sorted(found, key=lambda c: (c.uri, c.array.name or "", c.number))]
    while waiting:
        group = waiting.pop(0)
        view = View(group, rules)
        if len(group) == 1:
            yield _placed(view, list(range(len(group))))
            continue
        changed = _changed(view, ears)
        if changed is not None:
            waiting.insert(0, changed)
            continue
        division = next((d for d in (rule(view) for rule in RULES) if d is not None), None)
        runs = cut(view) if division is not None and division.rule == "coordinate_values" else None
        if runs is not None:
            waiting.insert(0, runs)
            continue
        if division is not None:
            waiting[:0] = [_wholes(part) for part in _apart(view, division, ears)]
            continue
        kept, blocked = _served(view)
        if not blocked:
            yield _placed(view, kept)
            continue
        rest = _told_overlaps(view, blocked, ears)
        waiting[:0] = [_wholes([view.group[row] for row in kept]), *rest]


def _changed(view: View, ears: Ears) -> list[Candidate] | None:
    """Return the group without repeats, or with longitudes turned; None where there is neither."""
    if view.broken is not None or any(one.whole for one in view.group):
        return None
    kept = without_repeats(view, ears.repeated, ears.differing)
    return kept if kept is not None else unwrapped(view)


def _apart(view: View, division: Division, ears: Ears) -> list[list[Candidate]]:
    """Divide by class, the largest class first; each other one is told how it differs from that."""
    members: dict[int, list[Candidate]] = {}
    for number, candidate in zip(division.classes, view.group, strict=True):
        members.setdefault(number, []).append(candidate)
    if len(members) == 1:
        members = {row: [one] for row, one in enumerate(view.group)}
    parts = sorted(members.values(), key=lambda m: -len(m))
    for part in parts[1:]:
        ears.refuse(part[0], parts[0][0], division.rule, division.reason(parts[0][0], part[0]))
    return parts


def _wholes(group: Sequence[Candidate]) -> list[Candidate]:
    """Return candidates with runs put back together: what is joined in the end is cut anew."""
    return list({c.number: c.whole or c for c in group}.values()) if any(c.whole for c in group) else list(group)


def _place(view: View) -> Callable[[int], tuple[object, ...]]:
    """Return what orders the rows of a view: the lowest along the dimensions, then by URI; what covers nothing comes last.

    Runs lie where the array lies that they were cut from, and then in their own order.
    """
    boxes, _ = view.boxes(list(view.varying))
    empty = (boxes[:, :, 0] == boxes[:, :, 1]).any(axis=1)
    lowest: dict[int, list[int]] = {}
    for row, one in enumerate(view.group):
        start = boxes[row, :, 0].tolist()
        lowest[one.number] = list(map(min, start, lowest.get(one.number, start)))

    def place(row: int) -> tuple[object, ...]:
        one = view.group[row]
        own = boxes[row, :, 0].tolist()
        return bool(empty[row]), one.rank, lowest[one.number], one.uri, one.array.name or "", one.number, own

    return place


def _placed(view: View, rows: Sequence[int]) -> Joinable:
    """Return members with their positions, in order."""
    keys = list(view.varying)
    boxes, shape = view.boxes(keys)
    rows = sorted(rows, key=_place(view))
    frame = Frame(
        dict(zip(keys, shape, strict=True)),
        {k: boxes[rows, axis, 0] for axis, k in enumerate(keys)},
        {k: boxes[rows, axis, 1] for axis, k in enumerate(keys)},
        view.tied,
    )
    found = [view.group[row] for row in rows]
    versions = len({one.rank for one in found}) > 1
    return Joinable(found, frame, "first" if versions else view.rules.overlap)


def _served(view: View) -> tuple[list[int], dict[int, int]]:
    """Return the rows that find their cells free, and {each other one: the row in its way}; versions do not compete."""
    everyone = list(range(len(view.group)))
    if view.rules.overlap != "refuse":
        return everyone, {}
    keys = list(view.varying)
    boxes, shape = view.boxes(keys)
    boxes, shape = (boxes, shape) if keys else (np.tile([0, 1], (len(boxes), 1, 1)), (1,))
    ranks = {one.rank for one in view.group}
    kept: list[int] = []
    blocked: dict[int, int] = {}
    for rank in ranks:
        rows = [row for row in everyone if view.group[row].rank == rank]
        _serve(view, (rows, boxes, shape), kept, blocked)
    return kept, blocked


def _serve(view: View, where: tuple[list[int], np.ndarray, Sequence[int]], kept: list[int], blocked: dict[int, int]) -> None:
    """Serve rows in order; runs of one array are served together or not at all."""
    rows, boxes, shape = where
    names = [str(axis) for axis in range(len(shape))]
    if refine(boxes[rows], shape, names).overlap is None:
        kept += rows
        return
    cover = refine(boxes[rows], shape, names, "every")
    owner = np.full(prod(cover.shape), -1, np.int64)
    begins = np.searchsorted(cover.box, np.arange(len(rows) + 1))
    cells = {row: cover.cell[begins[n] : begins[n + 1]] for n, row in enumerate(rows)}
    runs: dict[int, list[int]] = {}
    for row in sorted(rows, key=_place(view)):
        runs.setdefault(view.group[row].number, []).append(row)
    for together in runs.values():
        wanted = np.concatenate([cells[row] for row in together])
        taken = owner[wanted][owner[wanted] >= 0]
        if taken.size:
            blocked.update(dict.fromkeys(together, int(taken[0])))
        else:
            for row in together:
                owner[cells[row]] = row
            kept += together


def _told_overlaps(view: View, blocked: dict[int, int], ears: Ears) -> list[list[Candidate]]:
    """Tell why the blocked stay apart, each once; return them as they go on, together where they may fit each other."""
    rest: list[Candidate] = []
    for row, by in blocked.items():
        one = view.group[row]
        if one.number not in ears.told:
            ears.told.add(one.number)
            ears.refuse(one, view.group[by], "overlap", _overlap(view, row, by))
        rest.append(one)
    rest = _wholes(rest)
    # What covers the same positions need not be compared again.
    return [rest] if view.varying else [[one] for one in rest]


def _overlap(view: View, row: int, by: int) -> str:
    """Say where two candidates overlap."""
    keys = list(view.varying)
    place = view.group[row].places
    if not keys:
        without = [p.name for p in place.values() if p.coordinate is None]
        if without:
            text = f"{', '.join(without)} has no coordinate, so nothing tells their order"
            return f"{text}; Rules(order={{{without[0]!r}: 'name'}}) joins them by name"
        text = "all their coordinates are equal: they cover the same positions, and their values differ"
        return f"{text}; leave one out, or give Rules(overlap='first')"
    boxes, _ = view.boxes(keys)
    low = boxes[[row, by], :, 0].max(axis=0).tolist()
    high = boxes[[row, by], :, 1].min(axis=0).tolist()
    spans = [f"{place[k].name} {view.value(k, a)} to {view.value(k, b - 1)}" for k, a, b in zip(keys, low, high, strict=True)]
    return f"they overlap at {', '.join(spans)}; give Rules(overlap='first') or 'last' to say which serves them"
