"""Gaps: missing steps of time axes, judged by the frequency of the data.

Attributes state the step (``frequency``, ``table_id``). Without them, and where most steps contradict them, the usual step of
the times decides: constant steps, or whole months, quarters or years of the calendar. A climatology has gaps only within a
year or, with steps below a day, within a day.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from aggarray.aggregate.identity import coordinate_identity
from aggarray.aggregate.rules import facet
from aggarray.arrays.lazy import bounds_names
from aggarray.arrays.master import MasterArray
from aggarray.arrays.ragged import RaggedMasterArray
from aggarray.cf.attributes import text_attribute
from aggarray.cf.frequency import Frequency, is_climatology, stated_frequency
from aggarray.cf.units import is_reference_time
from aggarray.dataclass import dataclass
from aggarray.errors import AggarrayError
from aggarray.partition.matrix import has_step

#: Maximum deviation of a step from a whole multiple of the usual step, and of the stated one.
_SLACK, _STATED_SLACK = 0.01, 0.2
#: Minimum fraction of steps that are whole multiples of the usual step; the others are not gaps.
_NEARLY_ALL = 0.9
#: Of fewer steps than this, one occurrence suffices for the usual step.
_FEW = 6
#: Maximum deviation of the day of monthly times: ends and middles of months vary by three days.
_DAYS_ABOUT = 3
#: Steps in months and in hours to which data are often reduced without a change of their attributes.
_REDUCED_MONTHS, _REDUCED_HOURS = (1, 3, 6, 12, 120, 360), (3, 6, 12, 24, 120, 168, 192, 240)
#: Times of an axis of equal steps that stand for all of them, and the days that they cover at most: less than a month each.
_EXAMPLE, _EXAMPLE_DAYS = 100, 1400
#: Occurrences of such a step that outweigh the attributes.
_REDUCED = 3


@dataclass(frozen=True, slots=True)
class Gap:
    """``count`` missing steps between positions ``after`` and ``after + 1``."""

    after: int
    count: int


@dataclass(frozen=True, slots=True)
class TimeGaps:
    """Gaps along a dimension of an array; ``stated``: the frequency used."""

    dimension: str
    times: np.ndarray
    gaps: list[Gap]
    stated: str


def gaps(times: np.ndarray, frequency: Frequency | None = None, climatology: bool = False) -> list[Gap]:
    """Return the missing steps of a time axis.

    ``times``: increasing, datetime64 or cftime objects of one calendar, length n. ``frequency``: the stated step, if any. The
    usual step is the smallest one whose whole multiples nearly all others are; an irregular axis has no gaps.

    >>> gaps(np.array(["2001-01", "2001-02", "2001-05", "2001-06"], "M8[D]"))
    [Gap(after=1, count=2)]
    >>> gaps(np.array(["1855-01-16", "2099-01-16"], "M8[D]"), Frequency(months=1))
    [Gap(after=0, count=2927)]
    """
    return _gaps(times, frequency, climatology)[0]


def _gaps(times: np.ndarray, frequency: Frequency | None, climatology: bool) -> tuple[list[Gap], bool]:
    """Return the gaps, and whether the stated frequency decided."""
    if len(times) < 2 or (frequency is not None and frequency.fixed):
        return [], False
    multiple = None if frequency is None else _stated_multiples(times, frequency)
    if multiple is not None and climatology and multiple.min() > 1:
        multiple = None
    by_frequency = multiple is not None and not _is_reduced(times, multiple)
    multiple = multiple if by_frequency else _usual_multiples(times)
    missing = [] if multiple is None else _missing(multiple, by_frequency)
    return [gap for gap in missing if not climatology or _is_in_cycle(times, gap.after)], by_frequency


def _stated_multiples(times: np.ndarray, frequency: Frequency) -> np.ndarray | None:
    """Return steps in multiples of the stated one, None if they do not fit."""
    if not frequency.months:
        steps = _seconds(times) / frequency.seconds
        return steps if (steps > 0).all() and _fits(steps, _STATED_SLACK) else None
    candidates = [s for s in (_month_steps(times, shift) for shift in (_middle(times), 0)) if (s > 0).all()]
    fitting = [s / frequency.months for s in candidates if _fits(s / frequency.months, _STATED_SLACK)]
    return min(fitting, key=lambda multiple: float(np.rint(multiple).sum()), default=None)


def _is_reduced(times: np.ndarray, multiple: np.ndarray) -> bool:
    """Return whether steps are regular and larger than the stated one.

    Tools that average or select times often keep the attributes of their input.
    """
    if multiple.min() < 1.5 or len(multiple) < _REDUCED:
        return False
    usual = _usual_multiples(times)
    if usual is None or (np.rint(usual) == 1).sum() < _REDUCED:
        return False
    months = _months(times)
    if months is not None:
        return int(months.min()) in _REDUCED_MONTHS
    return bool(np.isclose(_seconds(times).min() / 3600, _REDUCED_HOURS, rtol=_SLACK).any())


def _usual_multiples(times: np.ndarray) -> np.ndarray | None:
    """Return steps in multiples of the usual one, None for irregular times."""
    if len(times) < 3:
        return None
    months = _months(times)
    if months is not None:
        # Times on one day of the month are regular by intent: a single usual step suffices.
        multiple: np.ndarray = months / months.min()
        return multiple if _fits(multiple, _SLACK) else None
    steps = _seconds(times)
    ordered = np.sort(steps[steps > 0])
    cuts = [0, *(np.flatnonzero(np.diff(ordered) > _SLACK * ordered[1:]) + 1).tolist(), len(ordered)]
    # Of many steps, only those that are a third of all can be the usual one.
    least = 1 if len(ordered) < _FEW else len(ordered) / 3
    for step in (float(np.median(ordered[i:j])) for i, j in pairwise(cuts) if j - i >= least):
        if _fits(steps / step, _SLACK):
            return steps / step
    return None


def _seconds(times: np.ndarray) -> np.ndarray:
    """Return the steps in seconds of the calendar."""
    if times.dtype.kind == "M":
        return np.diff(times.astype("M8[us]")).astype(np.int64) / 1e6
    return np.array([(b - a).total_seconds() for a, b in pairwise(times)])


def _days(first: Any, last: Any) -> int:
    """Return the whole days between two times."""
    if isinstance(first, np.datetime64):
        return int((last.astype("M8[s]") - first.astype("M8[s]")) // np.timedelta64(1, "D"))
    days: int = (last - first).days
    return days


def _months(times: np.ndarray) -> np.ndarray | None:
    """Return steps in months of times on nearly one day a month, or None."""
    if _days(times[0], times[-1]) < 28 * (len(times) - 2):
        return None  # some month has two times
    months, day = _numbers(_shifted(times, _middle(times)))
    steps = np.diff(months)
    return steps if (steps > 0).all() and (np.abs(day - 15) <= _DAYS_ABOUT).mean() >= _NEARLY_ALL else None


def _middle(times: np.ndarray) -> int:
    """Return the days that move the usual day of the month to its middle.

    Days near the end of a month move, so that 31 January and 1 March are one month apart.
    """
    return 15 - int(np.sort(_numbers(times)[1])[len(times) // 2])


def _month_steps(times: np.ndarray, shift: int) -> np.ndarray:
    return np.diff(_numbers(_shifted(times, shift))[0])


def _shifted(times: np.ndarray, days: int) -> np.ndarray:
    shift = np.timedelta64(days, "D")
    moved: np.ndarray = times.astype("M8[us]") + shift if times.dtype.kind == "M" else times + shift.item()
    return moved


def _numbers(times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the month number of each time, from a year 0, and the day in it."""
    if times.dtype.kind == "M":
        months = times.astype("M8[M]")
        return months.astype(np.int64), (times.astype("M8[D]") - months.astype("M8[D]")).astype(np.int64) + 1
    return np.array([t.year * 12 + t.month for t in times], np.int64), np.array([t.day for t in times], np.int64)


def _fits(multiple: np.ndarray, slack: float) -> bool:
    """Return whether nearly all steps are whole multiples."""
    nearest = np.rint(multiple)
    return bool(((nearest >= 1) & (np.abs(multiple - nearest) <= slack)).mean() >= _NEARLY_ALL)


def _missing(multiple: np.ndarray, by_frequency: bool) -> list[Gap]:
    """Return the gaps: steps that are several times the usual or stated one.

    A stated step is missing even if times are labelled differently on both sides; the whole steps between them count.
    """
    steps = np.floor(multiple + _STATED_SLACK) if by_frequency else np.rint(multiple)
    longer = np.flatnonzero((steps > 1) & (by_frequency | (np.abs(multiple - steps) <= _SLACK)))
    return [Gap(int(i), int(steps[i]) - 1) for i in longer]


def _is_in_cycle(times: np.ndarray, after: int) -> bool:
    """Return whether a step of a climatology stays in one year or one day."""
    before, behind = times[[after, after + 1]]
    within_days = bool(_seconds(times).min() < 86_400)
    if times.dtype.kind == "M":
        unit = "M8[D]" if within_days else "M8[Y]"
        return bool(before.astype(unit) == behind.astype(unit))
    fields = ("year", "month", "day") if within_days else ("year",)
    return all(getattr(before, name) == getattr(behind, name) for name in fields)


def time_gaps(array: MasterArray) -> Iterator[TimeGaps]:
    """Yield the gaps along each time dimension of an array."""
    if isinstance(array, RaggedMasterArray):
        return
    for dimension in array.dimensions:
        coordinate = time_coordinate(array, dimension)
        found = None if coordinate is None else coordinate_gaps(array, coordinate)
        if found is not None:
            yield TimeGaps(dimension, *found)


def time_coordinate(array: MasterArray, dimension: str) -> MasterArray | None:
    """Return the coordinate of the times along a dimension, None without."""
    own = [c for c in array.coords.values() if c.dimensions == (dimension,) and is_reference_time(c.units)]
    named = [c for c in own if text_attribute(c.attrs.get("standard_name")) == "time"]
    return next(iter([c for c in own if c.name == dimension] or named), None)


def coordinate_gaps(array: MasterArray, coordinate: MasterArray) -> tuple[np.ndarray, list[Gap], str] | None:
    """Return times, their gaps in order, and the stated frequency used.

    None if the times cannot be read, or are not ordered. Without gaps, the times may be the first ones only.
    """
    try:
        is_time, frequency = coordinate_identity(coordinate) == "time", None
        if is_time:
            attributes = {**array.attrs, **array.file_attrs}
            frequency = stated_frequency(attributes, facet(attributes, "table_id"))
        climatology = is_time and is_climatology(coordinate.attrs, array.attrs.get("cell_methods"), frequency)
        example = None if climatology else _regular_times(coordinate)
        times = coordinate.datetimes() if example is None or _gaps(example, frequency, False)[0] else example
        if len(times) < 2 or (np.isnat(times) if times.dtype.kind == "M" else times == np.array(None)).any():
            return None
        decreasing = bool(times[0] > times[-1])
        found, by_frequency = _gaps(times[::-1] if decreasing else times, frequency, climatology)
        found = [Gap(len(times) - 2 - g.after, g.count) for g in reversed(found)] if decreasing else found
        touching = _touching(array, coordinate) if found else None
    except AggarrayError:
        return None
    if touching is not None:
        found = [gap for gap in found if not touching[gap.after]]
    return times, found, frequency.stated if by_frequency and frequency is not None else ""


def _regular_times(coordinate: MasterArray) -> np.ndarray | None:
    """Return the first times of many with equal steps, None for others.

    They have gaps exactly if all times have. No file is read.
    """
    if coordinate.ndim != 1 or len(coordinate) <= _EXAMPLE or not coordinate._is_known:
        return None
    values, mask = coordinate._values_and_mask()
    step = values[1] - values[0] if values.dtype.kind in "iuf" else 0
    if not step > 0 or (mask is not None and mask.any()) or not has_step(values, step):
        return None
    coordinate.datetimes([-1])  # raises an error where the last time is out of range
    times = coordinate.datetimes(slice(0, _EXAMPLE))
    return times if times[0] < times[-1] and _days(times[0], times[-1]) <= _EXAMPLE_DAYS else None


def _touching(array: MasterArray, coordinate: MasterArray) -> np.ndarray | None:
    """Return whether the cells of successive times touch; None: unknown.

    Cells that are longer than usual were made of the times, across gaps: they do not count.
    """
    bounds: Any = next((array.coords[n] for n in bounds_names(coordinate) if n in array.coords), None)
    if bounds is None or not bounds._is_known or bounds.shape != (*coordinate.shape, 2) or "climatology" in coordinate.attrs:
        return None
    values, mask = bounds._values_and_mask()
    if values.dtype.kind not in "iuf" or (mask is not None and mask.any()):
        return None
    low, high = np.sort(values.astype(np.float64), axis=1).T
    length = high - low
    usual = length <= 1.5 * float(np.median(length))
    if low[0] > low[-1]:
        low, high = high, low  # decreasing times: the end of a cell is the start of the one before
    near = np.abs(low[1:] - high[:-1]) <= _STATED_SLACK * float(np.median(length))
    touching: np.ndarray = near & usual[1:] & usual[:-1]
    return touching
