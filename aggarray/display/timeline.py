"""Positions of arrays on a calendar axis that they share, in years.

A position is a year plus the part of it that has passed, by months of equal length: the first of a month lies at the same
place in every calendar. No file is opened.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from aggarray.aggregate.gaps import coordinate_gaps
from aggarray.cf.units import is_reference_time
from aggarray.cf.units.calendars import date
from aggarray.dataclass import dataclass
from aggarray.display.cells import Spans, coordinate_of, spans, times_of
from aggarray.errors import AggarrayError, counted
from aggarray.partition.matrix import BLOCK

#: Begin and end of a part of an axis.
Span = tuple[float, float]
#: The most positions at which times become dates; those between are interpolated.
_MOST_DATES = 400
#: The most parts of one kind of a timeline. More are joined over the shortest distances.
_MOST_SPANS = 200
#: Steps of ticks in months, and the most ticks of an axis.
_TICK_STEPS = (1, 2, 3, 6, 12, 24, 60, 120, 240, 600, 1200, 2400, 6000, 12000, 24000, 60000, 120000)
_MOST_TICKS = 10


@dataclass(frozen=True, slots=True)
class TimeGap:
    """Missing steps between two times, which are in the coordinate's units."""

    begin: float
    end: float
    text: str


@dataclass(frozen=True, slots=True, eq=False)
class Timeline:
    """Parts of a calendar axis, in years.

    ``covered``: some file has data; ``holes``: no file covers a part of the array there; ``gaps``: steps are missing;
    ``dates``: the first and last time as ISO text; ``steps``: the gaps along ``dimension``, in the units of its coordinate.
    """

    covered: tuple[Span, ...]
    holes: tuple[Span, ...] = ()
    gaps: tuple[Span, ...] = ()
    dates: tuple[str, str] = ("", "")
    steps: tuple[TimeGap, ...] = ()
    dimension: str | None = None

    @property
    def limits(self) -> Span:
        """The begin of the first part and the end of the last one."""
        ends = [end for part in (self.covered, self.holes, self.gaps) for end in part]
        return min(ends)[0], max(end for _, end in ends)


def time_gaps(array: Any, dimension: str) -> list[TimeGap]:
    """Return the gaps of a time dimension that `check` reports."""
    values, found = times_of(array, dimension), coordinate_gaps(array, coordinate_of(array, dimension))
    if found is None:
        return []
    times, steps = found[0], [(gap.after, gap.count) for gap in found[1]]
    return [
        TimeGap(
            float(values[after] + (values[after + 1] - values[after]) / (count + 1)),
            float(values[after + 1]),
            f"{counted(count, 'step')} missing between {date(times[after])} and {date(times[after + 1])}",
        )
        for after, count in steps
    ]


def timeline(array: Any) -> Timeline | None:
    """Return where an array lies on a calendar axis, None without known times."""
    dimension = next((d for d in array.dimensions if times_of(array, d) is not None), None)
    try:
        return _at_known_times(array) if dimension is None else _along(array, dimension)
    except AggarrayError:
        return None


def _along(array: Any, dimension: str) -> Timeline:
    """Return the timeline of an array with increasing times."""
    matrix, axis = array._matrix, array.dimensions.index(dimension)
    values, coordinate = times_of(array, dimension), coordinate_of(array, dimension)
    present = np.moveaxis(matrix.refs.reshape(matrix.cells) >= 0, axis, 0).reshape(matrix.cells[axis], -1)
    own = spans(matrix.edges[axis], values)
    steps = tuple(time_gaps(array, dimension))
    missing = [(gap.begin, gap.end) for gap in steps]
    parts = (_runs(own, present.any(axis=1)), _runs(own, ~present.all(axis=1)), missing)
    year = _years(coordinate, values)
    covered, holes, gaps_ = (_joined([(year(first), year(last)) for first, last in part]) for part in parts)
    first, last = coordinate.datetimes([0, len(values) - 1])
    return Timeline(covered, holes, gaps_, (date(first), date(last)), steps, dimension)


def _at_known_times(array: Any) -> Timeline | None:
    """Return the timeline of an array with one time, or times in any order."""
    for coordinate in array.coords.values():
        is_own = coordinate.dimensions in [(), *((d,) for d in array.dimensions)]
        if is_own and is_reference_time(coordinate.units) and coordinate._is_known:
            times = coordinate.datetimes().ravel()
            valid = [t for t in times if t is not None and t == t]
            if valid:
                ends = np.array([min(valid), max(valid)], times.dtype)
                begin, end = decimal_years(ends).tolist()
                return Timeline(((begin, end),), dates=(date(ends[0]), date(ends[1])))
    return None


def _years(coordinate: Any, values: np.ndarray) -> Any:
    """Return a function from values of a coordinate to years."""
    positions = np.unique(np.linspace(0, len(values) - 1, min(len(values), _MOST_DATES)).astype(np.int64))
    known, years = values[positions], decimal_years(coordinate.datetimes(positions))
    usual = (years[-1] - years[0]) / (known[-1] - known[0]) if len(known) > 1 else 0.0
    return lambda value: float(np.interp(value, known, years) + max(value - known[-1], 0.0) * usual)


def decimal_years(times: np.ndarray) -> np.ndarray:
    """Return dates of any calendar as years, with months of equal length.

    >>> decimal_years(np.array(["2001-01-01", "2001-07-01", "2001-12-16T12"], "M8[s]")).tolist()
    [2001.0, 2001.5, 2001.9583333333333]
    """
    if times.dtype.kind != "M":
        return np.array([_decimal_year(t) for t in times])
    months = times.astype("M8[M]")
    length = (months + np.timedelta64(1, "M")).astype("M8[s]") - months.astype("M8[s]")
    years: np.ndarray = 1970 + (months.astype(np.int64) + (times.astype("M8[s]") - months.astype("M8[s]")) / length) / 12
    return years


def _decimal_year(time: Any) -> float:
    seconds = time.hour * 3600 + time.minute * 60 + time.second
    return float(time.year + (time.month - 1 + (time.day - 1 + seconds / 86_400) / time.daysinmonth) / 12)


def _runs(own: Spans, marked: np.ndarray) -> list[Span]:
    """Return the parts that consecutive marked cells cover without a break."""
    runs: list[Span] = []
    before = -1  # the last marked cell of the blocks so far
    for at in range(0, len(marked), BLOCK):
        cells = at + np.flatnonzero(marked[at : at + BLOCK])
        if not len(cells):
            continue
        begin, end = own.at(cells)
        previous = np.append(runs[-1][1] if runs else begin[0], end[:-1])
        breaks = (np.diff(cells, prepend=before) > 1) | (begin > previous + 1e-9 * np.abs(previous))
        breaks[0] |= not runs
        first = np.flatnonzero(breaks)
        last = np.append(first[1:], len(cells)) - 1
        if not breaks[0]:
            until = int(first[0]) - 1 if len(first) else -1
            runs[-1] = runs[-1][0], float(end[until])
        runs += zip(begin[first].tolist(), end[last[: len(first)]].tolist(), strict=True)
        before = int(cells[-1])
    return runs


def _joined(parts: Sequence[Span]) -> tuple[Span, ...]:
    """Return at most `_MOST_SPANS` parts, the nearest joined."""
    if len(parts) <= _MOST_SPANS:
        return tuple(parts)
    distances = np.array([right[0] - left[1] for left, right in pairwise(parts)])
    breaks = np.sort(np.argsort(distances, kind="stable")[-(_MOST_SPANS - 1) :]).tolist()
    firsts, lasts = [0, *(n + 1 for n in breaks)], [*breaks, len(parts) - 1]
    return tuple((parts[i][0], parts[j][1]) for i, j in zip(firsts, lasts, strict=True))


def common_parts(one: Sequence[Span], other: Sequence[Span]) -> tuple[Span, ...]:
    """Return the parts that lie in both of two sequences of parts.

    >>> common_parts([(0, 2), (4, 6)], [(1, 5)])
    ((1, 2), (4, 5))
    """
    pairs = ((max(a[0], b[0]), min(a[1], b[1])) for a in one for b in other)
    return tuple((begin, end) for begin, end in pairs if begin < end)


def united_parts(parts: Sequence[Span]) -> tuple[Span, ...]:
    """Return the union of parts as disjoint parts in order.

    >>> united_parts([(4, 6), (0, 2), (1, 3)])
    ((0, 3), (4, 6))
    """
    united: list[Span] = []
    for begin, end in sorted(parts):
        if united and begin <= united[-1][1]:
            united[-1] = united[-1][0], max(united[-1][1], end)
        else:
            united.append((begin, end))
    return tuple(united)


def ticks(limits: Span, most: int = _MOST_TICKS) -> list[tuple[float, str]]:
    """Return round positions of an axis in years, each with its label.

    >>> ticks((1850.0, 2015.0), 5)
    [(1850.0, '1850'), (1900.0, '1900'), (1950.0, '1950'), (2000.0, '2000')]
    >>> [label for _, label in ticks((2001.0, 2001.5), 8)]
    ['2001-01', '2001-03', '2001-05', '2001-07']
    >>> [label for _, label in ticks((2001.0, 2001.01))]
    ['2001-01-01', '2001-01-02', '2001-01-03', '2001-01-04']
    """
    first, last = limits[0] * 12 - 1e-6, limits[1] * 12 + 1e-6
    # Labels with months are longer than those of years.
    step = next((s for s in _TICK_STEPS if (last - first) / s < (most if s >= 12 else most // 2 + 1)), _TICK_STEPS[-1])
    marks = range(math.ceil(first / step) * step, math.floor(last) + 1, step)
    if len(marks) < 2 or last - first < 2:
        return _day_ticks(limits, most)
    return [(mark / 12, f"{mark // 12:04}" if step >= 12 else f"{mark // 12:04}-{mark % 12 + 1:02}") for mark in marks]


def _day_ticks(limits: Span, most: int) -> list[tuple[float, str]]:
    month = math.floor(limits[0] * 12) - 1970 * 12
    days = np.arange(np.datetime64(month, "M").astype("M8[D]"), np.datetime64(month + 4, "M").astype("M8[D]"))
    marks = [(x, str(day)) for x, day in zip(decimal_years(days).tolist(), days, strict=True) if limits[0] <= x <= limits[1]]
    return marks[:: -(-len(marks) // (most // 2)) or 1]
