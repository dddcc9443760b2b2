"""Which positions do coordinate labels name?

`locate` answers for one dimension, with the meaning of xarray's ``sel``: a label is one value, a list of values or a slice,
inclusive at both ends; text such as "2000-01" names a period. Numbers, text, datetime64 and cftime dates are ordered
arrays to NumPy, so all go one way: what the label means on this coordinate (`meaning`), one dtype for both (`scale`), then
a binary search.
"""

import datetime
import difflib
import operator
from typing import Any

import numpy as np

from aggarray.cf.labels.comparison import common, distance, is_coarser, rescale, same, tick
from aggarray.cf.labels.duration import as_timedeltas, has_length
from aggarray.cf.labels.interpretation import Axis, make_axis, period, show, unwrap, wanted_values
from aggarray.errors import NotFoundError, SelectionError

__all__ = ["locate"]

_METHODS = {None: None, "nearest": "nearest", "pad": "pad", "ffill": "pad", "backfill": "backfill", "bfill": "backfill"}


def locate(
    values: np.ndarray,
    label: Any,
    *,
    method: str | None = None,
    tolerance: Any = None,
    dimension: str,
    what: str = "",
) -> int | slice | np.ndarray:
    """Return the positions that a label names along one dimension.

    ``values``: the 1-d coordinate: numbers, text, datetime64, or cftime objects of one calendar, in any order.
    ``label``: a value, a list or 1-d array of values, or a slice of values, both ends included and its step counted in
    positions. ``method``: None (exact), "nearest", "pad" or "ffill" (the position before), "backfill" or "bfill" (the one
    after), within ``tolerance``: a number; for times a duration, as text ("12h"), timedelta64, ``datetime.timedelta`` or
    ``pandas.Timedelta``; one, or one for each label. ``dimension`` and ``what`` (a variable) are for messages.

    Returns an int for one value; a slice, or int64 array, for the slice, the period or the repeated value that it names; an
    int64 array for a list. Text that is coarser than the coordinate names a period, else a time; dates of cftime are always
    periods. Lists, and text with a method, take the start of the period. Raises NotFoundError where a label is absent,
    SelectionError where it cannot apply.

    >>> latitude = np.array([90.0, 45.0, 0.0, -45.0])
    >>> locate(latitude, 45, dimension="lat"), locate(latitude, slice(60, 0), dimension="lat")
    (1, slice(1, 3, 1))
    >>> locate(latitude, [40, -50], method="nearest", tolerance=5, dimension="lat")
    array([1, 3])
    >>> locate(np.arange("2000-01-30", "2000-02-03", dtype="M8[D]"), "2000-01", dimension="time")
    slice(0, 2, 1)
    """
    axis = make_axis(values, f"{what}: dimension {dimension!r}" if what else f"dimension {dimension!r}")
    if method is not None and (not isinstance(method, str) or method not in _METHODS):
        raise SelectionError(f"{axis.place}: method={method!r} is unknown: give nearest, pad, ffill, backfill or bfill")
    how = _METHODS[method]
    if isinstance(label, slice):
        if how is not None or tolerance is not None:
            raise SelectionError(
                f"{axis.place}: method and tolerance do not go with {label!r}: give values, or the slice alone"
            )
        return _locate_slice(axis, label)
    if how is None and tolerance is not None:
        raise SelectionError(f"{axis.place}: tolerance={tolerance!r} has no method: give method='nearest' with it")
    return _locate_values(axis, label, how, tolerance)


def _locate_values(axis: Axis, label: Any, how: str | None, tolerance: Any) -> int | slice | np.ndarray:
    """Return the positions of one label or of several, none of them a slice."""
    label, several = unwrap(label, axis)
    if not several and how is None and isinstance(label, str) and axis.kind in ("times", "dates"):
        start, after = period(label, axis)
        if axis.kind == "dates" or is_coarser(start, axis.keys):
            return _locate_period(axis, label, start, after)
    wanted = wanted_values(label if several else [label], axis)
    if wanted.size == 0:
        return np.zeros(0, np.int64)
    if several or how is not None:
        _refuse_repeats(axis)
    keys, wanted = common(axis.keys, wanted)
    axis = Axis(keys, axis.order, axis.kind, axis.place)
    if how is None and not several:
        return _locate_one(axis, label, wanted)
    found = _locate_exact(axis, wanted) if how is None else _locate_near(axis, wanted, how, tolerance)
    if (found < 0).any():
        absent = int(np.argmax(found < 0))
        raise _not_found(axis, label[absent] if several else label, wanted[absent], how)
    return found if several else int(found[0])


def _span(axis: Axis, low: np.ndarray, high: np.ndarray) -> tuple[int, int]:
    """Return the positions from ``start`` up to ``stop`` of the ordered keys between two, both included."""
    first = int(np.searchsorted(axis.ascending, low, "left")[0])
    last = int(np.searchsorted(axis.ascending, high, "right")[0])
    return (first, last) if axis.order > 0 else (axis.keys.size - last, axis.keys.size - first)


def _locate_one(axis: Axis, label: Any, wanted: np.ndarray) -> int | slice | np.ndarray:
    """Return the position of one exact label, or the positions where it is repeated."""
    if axis.order == 0:
        hits = np.flatnonzero(same(axis.keys, wanted)).astype(np.int64)
        if hits.size > 1:
            return hits
        start, stop = (int(hits[0]), int(hits[0]) + 1) if hits.size else (0, 0)
    else:
        start, stop = _span(axis, wanted, wanted)
    if start == stop:
        raise _not_found(axis, label, wanted[0], None)
    return start if stop - start == 1 else slice(start, stop, 1)


def _ends(axis: Axis, start: Any, after: Any) -> tuple[Axis, np.ndarray, np.ndarray]:
    """Return the axis and the first and last moment of a period, each an array of one, in the axis' resolution."""
    if axis.kind == "dates":
        last = after - datetime.timedelta(microseconds=1)
        return axis, np.array([start], object), np.array([last], object)
    keys, edges = common(axis.keys, np.array([start, after]))
    return Axis(keys, axis.order, axis.kind, axis.place), edges[:1], edges[1:] - tick(keys.dtype)


def _locate_period(axis: Axis, label: str, start: Any, after: Any) -> slice | np.ndarray:
    """Return what lies in a period; NotFoundError only where all of the coordinate lies before or after it."""
    axis, low, high = _ends(axis, start, after)
    if axis.order == 0:
        return np.flatnonzero((axis.keys >= low) & (axis.keys <= high)).astype(np.int64)
    if axis.keys.size and (high[0] < axis.ascending[0] or low[0] > axis.ascending[-1]):
        raise _not_found(axis, label, low[0], None)
    return slice(*_span(axis, low, high), 1)


def _locate_slice(axis: Axis, label: slice) -> slice:
    """Return the slice of positions between two labels, its ends given unless it runs down to the first position."""
    try:
        step = 1 if label.step is None else operator.index(label.step)
    except TypeError as error:
        raise SelectionError(f"{axis.place}: step {label.step!r} of a slice counts positions: give an integer") from error
    if step == 0:
        raise SelectionError(f"{axis.place}: the step of a slice must not be 0")
    first, last = (label.start, label.stop) if step > 0 else (label.stop, label.start)
    start = 0 if first is None else _edge(axis, first, False)
    stop = axis.keys.size if last is None else _edge(axis, last, True)
    if stop <= start:
        return slice(0, 0, 1)
    return slice(start, stop, step) if step > 0 else slice(stop - 1, start - 1 if start else None, step)


def _edge(axis: Axis, label: Any, is_last: bool) -> int:
    """Return where a slice starts, or stops if ``is_last``, that this label bounds."""
    value, several = unwrap(label, axis)
    if several:
        raise SelectionError(f"{axis.place}: {show(label)} cannot bound a slice: give one value")
    if isinstance(value, str) and axis.kind in ("times", "dates"):
        axis, low, high = _ends(axis, *period(value, axis))
        wanted = high if is_last == (axis.order >= 0) else low
    else:
        keys, wanted = common(axis.keys, wanted_values([value], axis))
        axis = Axis(keys, axis.order, axis.kind, axis.place)
    if axis.order:
        return _span(axis, wanted, wanted)[is_last]
    hits = np.flatnonzero(same(axis.keys, wanted))
    if hits.size == 0 or hits[-1] - hits[0] + 1 != hits.size:
        why = "occurs apart from itself" if hits.size else "is not there"
        raise NotFoundError(
            f"{axis.place}: {show(value)} cannot bound a slice of a coordinate in no order, as it {why}: "
            "give values that it has once, or a list of values"
        )
    return int(hits[-1]) + 1 if is_last else int(hits[0])


def _refuse_repeats(axis: Axis) -> None:
    ascending = axis.ascending
    if bool(same(ascending[1:], ascending[:-1]).any()):
        raise SelectionError(f"{axis.place}: its coordinate repeats values, so a list or a method is ambiguous: give one value")


def _locate_exact(axis: Axis, wanted: np.ndarray) -> np.ndarray:
    """Return the position of each label, -1 where it is absent."""
    places = None if axis.order else np.argsort(axis.keys, kind="stable")
    ascending = axis.ascending if places is None else axis.keys[places]
    if not ascending.size:
        return np.full(wanted.size, -1, np.int64)
    found = np.minimum(np.searchsorted(ascending, wanted), ascending.size - 1)
    positions = found if axis.order > 0 else ascending.size - 1 - found if places is None else places[found]
    return np.where(same(ascending[found], wanted), positions, -1).astype(np.int64)


def _locate_near(axis: Axis, wanted: np.ndarray, how: str, tolerance: Any) -> np.ndarray:
    """Return the position that a method gives each label, -1 where there is none."""
    if axis.order == 0:
        raise SelectionError(f"{axis.place}: method={how!r} needs a coordinate in order, this is not: give exact values")
    if axis.kind == "text" and (how == "nearest" or tolerance is not None):
        raise SelectionError(f"{axis.place}: text has no distances: give exact labels, or method='pad' or 'backfill' alone")
    ascending, size = axis.ascending, axis.keys.size
    limit = None if tolerance is None else _limit(axis, tolerance, wanted.size)
    if size == 0:
        return np.full(wanted.size, -1, np.int64)
    below = np.searchsorted(ascending, wanted, "right") - 1
    above = np.searchsorted(ascending, wanted, "left")
    if how == "nearest":  # of two equally near the greater, as pandas has it
        up, down = (distance(ascending[i.clip(0, size - 1)], wanted) for i in (above, below))
        chosen = np.where((below < 0) | ((above < size) & (up <= down)), above, below)
    else:
        chosen = below if (how == "pad") == (axis.order > 0) else above
    absent = (chosen < 0) | (chosen >= size)
    if wanted.dtype.kind == "f":
        absent |= np.isnan(wanted)
    chosen = chosen.clip(0, size - 1)
    if limit is not None:
        absent |= ~(distance(ascending[chosen], wanted) <= limit)
    return np.where(absent, -1, chosen if axis.order > 0 else size - 1 - chosen).astype(np.int64)


def _limit(axis: Axis, tolerance: Any, size: int) -> np.ndarray:
    """Return a tolerance in the terms of `distance`."""
    numbers = axis.kind == "numbers"
    try:
        limit = np.asarray(tolerance) if numbers else as_timedeltas(tolerance)
    except (TypeError, ValueError, OverflowError) as error:
        raise SelectionError(f"{axis.place}: tolerance={show(tolerance)}: {error}") from error
    except SelectionError as error:
        raise SelectionError(f"{axis.place}: tolerance={show(tolerance)}: {error}") from None
    if limit.dtype.kind not in ("iuf" if numbers else "m") or (limit.dtype.kind == "m" and not has_length(limit.dtype)):
        expected = "a number" if numbers else "a duration of days or less, such as '12h' or numpy.timedelta64(12, 'h')"
        raise SelectionError(f"{axis.place}: tolerance={show(tolerance)} does not measure its labels: give {expected}")
    if limit.ndim > 1 or limit.size not in (1, size):
        raise SelectionError(f"{axis.place}: {limit.size} tolerances for {size} labels: give one, or one for each")
    if numbers:
        return limit
    unit = np.datetime_data(axis.keys.dtype)[0] if axis.kind == "times" else "us"
    return rescale(limit, np.dtype(f"m8[{unit}]")).astype(np.int64)


def _not_found(axis: Axis, label: Any, key: Any, how: str | None) -> NotFoundError:
    """Say which label is absent, what there is and what comes nearest."""
    ascending = axis.ascending
    if not ascending.size:
        return NotFoundError(f"{axis.place}: {show(label)} is not there: the coordinate has no values")
    there = f"{show(ascending[0])} to {show(ascending[-1])}"
    if axis.kind == "text":
        close = difflib.get_close_matches(str(key), ascending[:1000].tolist(), 1) or [str(ascending[0])]
        return NotFoundError(
            f"{axis.place}: {show(label)} is not among its {ascending.size} labels, as {show(close[0])} is ({there})"
        )
    wanted = np.array([key], dtype=ascending.dtype)
    after = int(np.searchsorted(ascending, wanted)[0])
    near = ascending[[max(after - 1, 0), min(after, ascending.size - 1)]]
    nearest = show(near[int(np.argmin(distance(near, wanted)))])
    what = f"has no value by method {how!r}" if how else "is not there"
    remedy = "give one of its values, or a wider tolerance" if how else "give one of its values, or method='nearest'"
    return NotFoundError(f"{axis.place}: {show(label)} {what} among its values {there}; the nearest is {nearest}: {remedy}")
