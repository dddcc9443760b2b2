"""Division of candidates of one signature into groups that can be joined.

`split` leaves out duplicates, unwraps longitudes, cuts interleaved arrays into runs, and applies the split rules until each
group can be joined. Every division is recorded with its reason.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from math import prod

import numpy as np

from aggarray.aggregate.candidate import Candidate
from aggarray.aggregate.duplicates import DigestCache, Note, without_duplicates
from aggarray.aggregate.equality import is_longitude
from aggarray.aggregate.join import Frame
from aggarray.aggregate.longitude import unwrapped
from aggarray.aggregate.rules import Rules
from aggarray.aggregate.runs import cut
from aggarray.aggregate.split_rules import RULES
from aggarray.aggregate.view import Division, View
from aggarray.dataclass import dataclass
from aggarray.partition.grid import refine

Refuse = Callable[[Candidate, Candidate, str, str, str | None], None]


@dataclass(frozen=True, slots=True, eq=False)
class Joinable:
    """Ordered candidates and their positions; ``overlap``: as in `Rules`."""

    candidates: list[Candidate]
    frame: Frame
    overlap: str


def split(candidates: list[Candidate], rules: Rules, refuse: Refuse, repeated: Note) -> Iterator[Joinable]:
    """Yield groups that can be joined.

    ``refuse``: called with (separate array, its relative, rule, reason, hint); ``repeated``: with (duplicate, kept).
    """
    reported, digests = set[int](), DigestCache()
    pending = [sorted(candidates, key=lambda c: (c.uri, c.array.name or "", c.number))]
    while pending:
        group = pending.pop(0)
        view = View(group, rules)
        if len(group) == 1:
            yield joinable(view, [0])
            continue
        changed = None
        if view.unconvertible is None and not any(candidate.cut_from for candidate in group):
            changed = without_duplicates(view, repeated, digests)
            changed = unwrapped(view) if changed is None else changed
        division = None if changed is not None else next((d for d in (rule(view) for rule in RULES) if d is not None), None)
        if division is not None and division.rule == "coordinate_values":
            changed = cut(view)
        if changed is not None:
            pending.insert(0, changed)
            continue
        if division is not None:
            pending[:0] = _uncut(_divide(view, division, refuse))
            continue
        rounds, blocked = _assign_rounds(view)
        if not blocked:
            yield joinable(view, rounds[0])
            continue
        for rows in rounds[1:]:
            # Of each later round the first array is refused, each array once.
            row = next((r for r in rows if group[r].number not in reported), None)
            if row is not None:
                reported.add(group[row].number)
                refuse(group[row], group[blocked[row]], "overlap", *_overlap(view, row, blocked[row]))
        pending[:0] = _uncut([[view.group[row] for row in rows] for rows in rounds])


def _divide(view: View, division: Division, refuse: Refuse) -> list[list[Candidate]]:
    """Divide by class, the largest first; report the refusal of each other."""
    members: dict[int, list[Candidate]] = {}
    for number, candidate in zip(division.classes, view.group, strict=True):
        members.setdefault(number, []).append(candidate)
    if len(members) == 1:
        members = {row: [one] for row, one in enumerate(view.group)}
    parts = sorted(members.values(), key=lambda m: -len(m))
    for part in parts[1:]:
        refuse(part[0], parts[0][0], division.rule, division.reason(parts[0][0], part[0]), division.hint)
    return parts


def _uncut(parts: Sequence[Sequence[Candidate]]) -> list[list[Candidate]]:
    """Replace runs in the parts of a group by the candidates they are from.

    A candidate with runs in several parts belongs to the last of them; every part is smaller than the group.
    """
    if not any(one.cut_from for part in parts for one in part):
        return list(map(list, parts))
    last = {one.number: number for number, part in enumerate(parts) for one in part}
    wholes = [{c.number: c.cut_from or c for c in part if last[c.number] == n} for n, part in enumerate(parts)]
    uncut = [list(whole.values()) for whole in wholes if whole]
    return uncut if len(uncut) > 1 else [[one] for one in uncut[0]]


def _sort_key(view: View) -> Callable[[int], tuple[object, ...]]:
    """Return the sort key of rows: lowest position, then URI, empty ones last."""
    boxes, _ = view.boxes(list(view.varying))
    empty = (boxes[:, :, 0] == boxes[:, :, 1]).any(axis=1)
    lowest: dict[int, list[int]] = {}
    for row, one in enumerate(view.group):
        start = boxes[row, :, 0].tolist()
        lowest[one.number] = list(map(min, start, lowest.get(one.number, start)))

    def sort_key(row: int) -> tuple[object, ...]:
        one = view.group[row]
        own = boxes[row, :, 0].tolist()
        return bool(empty[row]), one.rank, lowest[one.number], one.uri, one.array.name or "", one.number, own

    return sort_key


def joinable(view: View, rows: Sequence[int]) -> Joinable:
    """Return members with their positions, in order."""
    keys = list(view.varying)
    boxes, shape = view.boxes(keys)
    rows = sorted(rows, key=_sort_key(view))
    frame = Frame(
        dict(zip(keys, shape, strict=True)),
        {k: boxes[rows, axis, 0] for axis, k in enumerate(keys)},
        {k: boxes[rows, axis, 1] for axis, k in enumerate(keys)},
        view.tied,
    )
    candidates = [view.group[row] for row in rows]
    versions = len({candidate.rank for candidate in candidates}) > 1
    return Joinable(candidates, frame, "first" if versions else view.rules.overlap)


def _assign_rounds(view: View) -> tuple[list[list[int]], dict[int, int]]:
    """Return rounds of rows without overlap, and {blocked row: its blocker}."""
    all_rows = list(range(len(view.group)))
    if view.rules.overlap != "refuse":
        return [all_rows], {}
    keys = list(view.varying)
    boxes, shape = view.boxes(keys)
    boxes, shape = (boxes, shape) if keys else (np.tile([0, 1], (len(boxes), 1, 1)), (1,))
    by_rank: dict[int, list[int]] = {}
    for row in all_rows:
        by_rank.setdefault(view.group[row].rank, []).append(row)
    axis = _deciding_axis(view)
    sort_key = _sort_key(view)
    rounds: list[list[int]] = [[]]
    blocked: dict[int, int] = {}
    for rows in by_rank.values():
        if refine(boxes[rows], shape, list(map(str, range(len(shape)))), "all").overlap is None:
            rounds[0] += rows
        elif axis is None:
            rounds[0] += _serve_first(view, (sorted(rows, key=sort_key), boxes, shape), blocked)
        else:
            _assign_spans((sorted(rows, key=sort_key), boxes[:, axis]), rounds, blocked)
    if blocked and len(rounds) == 1:
        # Without varying axes all cover the same positions: each is separate.
        rounds += [list(blocked)] if keys else [[row] for row in blocked]
    return rounds, blocked


def _deciding_axis(view: View) -> int | None:
    """Return the only varying axis that decides about overlaps, or None."""
    several = [(axis, key) for axis, (key, different) in enumerate(view.varying.items()) if different > 1]
    if len(several) != 1 or any(one.cut_from for one in view.group):
        return None
    axis, key = several[0]
    coordinate = view.group[0].axes[key].coordinate
    layout = view.layouts[key]
    if coordinate is None or is_longitude(coordinate) or not all(map(layout.contiguous, range(len(layout.positions)))):
        return None
    return axis


def _assign_spans(rows_and_spans: tuple[list[int], np.ndarray], rounds: list[list[int]], blocked: dict[int, int]) -> None:
    """Assign spans, int64 (rows, 2), to the first rounds with room for them."""
    rows, spans = rows_and_spans
    ends = np.zeros(len(rows), np.int64)  # the end of the positions taken in each round
    used = 0
    first: list[int] = []
    for row in rows:
        low, high = spans[row].tolist()
        number = int((ends[:used] <= low).argmax()) if used else 0
        if low == high:
            number = 0
        elif not used or ends[number] > low:
            number, used = used, used + 1
        ends[number] = max(int(ends[number]), high)
        if number == len(rounds):
            rounds.append([])
        rounds[number].append(row)
        if number:
            before = bisect_right(first, low, key=lambda r: int(spans[r, 1]))
            blocked[row] = first[before]
        elif low < high:
            first.append(row)


def _serve_first(view: View, rows_and_boxes: tuple[list[int], np.ndarray, Sequence[int]], blocked: dict[int, int]) -> list[int]:
    """Return the rows served first, in order: all runs of an array or none."""
    rows, boxes, shape = rows_and_boxes
    cover = refine(boxes[rows], shape, list(map(str, range(len(shape)))), "every")
    owner = np.full(prod(cover.shape), -1, np.int64)
    begins = np.searchsorted(cover.box, np.arange(len(rows) + 1))
    cells = {row: cover.cell[begins[n] : begins[n + 1]] for n, row in enumerate(rows)}
    runs: dict[int, list[int]] = {}
    for row in rows:
        runs.setdefault(view.group[row].number, []).append(row)
    kept: list[int] = []
    for array_rows in runs.values():
        requested = np.concatenate([cells[row] for row in array_rows])
        taken = owner[requested][owner[requested] >= 0]
        if taken.size:
            blocked.update(dict.fromkeys(array_rows, int(taken[0])))
        else:
            for row in array_rows:
                owner[cells[row]] = row
            kept += array_rows
    return kept


def _overlap(view: View, row: int, by: int) -> tuple[str, str]:
    """Return the positions at which two candidates overlap, and what to do."""
    keys = list(view.varying)
    axes = view.group[row].axes
    if not keys:
        without = [p.name for p in axes.values() if p.coordinate is None]
        if without:
            text = f"{', '.join(without)} has no coordinate that gives an order"
            return text, f"Rules(order={{{without[0]!r}: 'name'}}) joins them by name"
        text = "all their coordinates are equal: they cover the same positions, and their values differ"
        return text, "leave one out, or give Rules(overlap='first')"
    spans = []
    for key in keys:
        covers = [view.layouts[key].positions[view.layouts[key].classes[r]] for r in (row, by)]
        ends = [(cover[0], cover[-1]) for cover in covers]
        low, high = (view.value(key, int(p), (by, row)) for p in (max(e[0] for e in ends), min(e[1] for e in ends)))
        spans.append(f"{axes[key].name} {low if low == high else f'{low} to {high}'}")
    hint = "give Rules(overlap='first') or Rules(overlap='last') to choose which one to use"
    return f"they overlap at {', '.join(spans)}", hint
