"""Positions of coordinate labels along a dimension.

`locate` has the semantics of xarray's ``sel``: a label is a value, a list of values or a slice with both ends included. Text
such as "2000-01" is a period. Labels are interpreted on the coordinate (`interpretation`), cast to a common dtype
(`comparison`), and found by a binary search.
"""

from __future__ import annotations

import datetime
import difflib
import operator
from typing import Any

import numpy as np

from aggarray.cf.labels.comparison import distance, equal_elements, is_coarser, rescale, tick, to_common_dtype
from aggarray.cf.labels.duration import as_timedeltas, has_length
from aggarray.cf.labels.interpretation import Axis, label_values, make_axis, period, show, unwrap
from aggarray.dataclass import replace
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
    variable: str | None = None,
) -> int | slice | np.ndarray:
    """Return the positions of a label along one dimension.

    ``values``: the 1-d coordinate: numbers, text, datetime64, or cftime objects of one calendar, in any order.
    ``label``: a value, a list or 1-d array of values, or a slice of values, with both ends included and a step in positions.
    ``method``: None (exact), "nearest", "pad" or "ffill" (the position before), "backfill" or "bfill" (the position after).
    ``tolerance``: one, or one per label: a number; for times a duration, as text ("12h"), timedelta64,
    ``datetime.timedelta`` or ``pandas.Timedelta``. ``dimension`` and ``variable`` are for errors.

    Returns an int for one value; a slice or int64 array for a slice, a period or a repeated value; an int64 array for a list.
    Text that is coarser than the coordinate, or on cftime dates, is a period; lists, and text with a method, use its start.
    Raises NotFoundError for an absent label, SelectionError for a label or option that does not apply.

    >>> latitude = np.array([90.0, 45.0, 0.0, -45.0])
    >>> locate(latitude, 45, dimension="lat"), locate(latitude, slice(60, 0), dimension="lat")
    (1, slice(1, 3, 1))
    >>> locate(latitude, [40, -50], method="nearest", tolerance=5, dimension="lat")
    array([1, 3])
    >>> locate(np.arange("2000-01-30", "2000-02-03", dtype="M8[D]"), "2000-01", dimension="time")
    slice(0, 2, 1)
    """
    axis = make_axis(values, dimension, variable)
    if method is not None and (not isinstance(method, str) or method not in _METHODS):
        raise axis.invalid(f"unknown method={method!r}", "give nearest, pad, ffill, backfill or bfill")
    how = _METHODS[method]
    if isinstance(label, slice):
        if how is not None or tolerance is not None:
            raise axis.invalid(f"method and tolerance do not apply to {label!r}", "give values, or the slice alone")
        return _locate_slice(axis, label)
    if how is None and tolerance is not None:
        raise axis.invalid(f"tolerance={tolerance!r} without a method", "add method='nearest'")
    return _locate_values(axis, label, how, tolerance)


def _locate_values(axis: Axis, label: Any, how: str | None, tolerance: Any) -> int | slice | np.ndarray:
    """Return the positions of one or several labels that are not slices."""
    label, several = unwrap(label, axis)
    if not several and how is None and isinstance(label, str) and axis.value_type in ("times", "dates"):
        start, after = period(label, axis)
        if axis.value_type == "dates" or is_coarser(start, axis.keys):
            axis, low, high = _ends(axis, start, after)
            if axis.order == 0:
                return np.flatnonzero((axis.keys >= low) & (axis.keys <= high)).astype(np.int64)
            if axis.keys.size and (high[0] < axis.ascending[0] or low[0] > axis.ascending[-1]):
                raise _not_found(axis, label, low[0], None)
            return slice(*_span(axis, low, high), 1)
    labels = label_values(label if several else [label], axis)
    if labels.size == 0:
        return np.zeros(0, np.int64)
    if several or how is not None:
        ascending = axis.ascending
        if bool(equal_elements(ascending[1:], ascending[:-1]).any()):
            raise axis.invalid("the coordinate repeats values, so a list or a method is ambiguous", "give one value")
    keys, labels = to_common_dtype(axis.keys, labels)
    axis = replace(axis, keys=keys)
    if how is None and not several:
        return _locate_one(axis, label, labels)
    positions = _locate_exact(axis, labels) if how is None else _locate_near(axis, labels, how, tolerance)
    if (positions < 0).any():
        absent = int(np.argmax(positions < 0))
        raise _not_found(axis, label[absent] if several else label, labels[absent], how)
    return positions if several else int(positions[0])


def _span(axis: Axis, low: np.ndarray, high: np.ndarray) -> tuple[int, int]:
    """Return the slice limits of the ordered keys between two, both included."""
    first = int(np.searchsorted(axis.ascending, low, "left")[0])
    last = int(np.searchsorted(axis.ascending, high, "right")[0])
    return (first, last) if axis.order > 0 else (axis.keys.size - last, axis.keys.size - first)


def _locate_one(axis: Axis, label: Any, value: np.ndarray) -> int | slice | np.ndarray:
    """Return the position of one exact label, or all of a repeated one."""
    if axis.order == 0:
        hits = np.flatnonzero(equal_elements(axis.keys, value)).astype(np.int64)
        if hits.size > 1:
            return hits
        start, stop = (int(hits[0]), int(hits[0]) + 1) if hits.size else (0, 0)
    else:
        start, stop = _span(axis, value, value)
    if start == stop:
        raise _not_found(axis, label, value[0], None)
    return start if stop - start == 1 else slice(start, stop, 1)


def _ends(axis: Axis, start: Any, after: Any) -> tuple[Axis, np.ndarray, np.ndarray]:
    """Return the axis and the first and last time of a period, as arrays."""
    if axis.value_type == "dates":
        last = after - datetime.timedelta(microseconds=1)
        return axis, np.array([start], object), np.array([last], object)
    keys, edges = to_common_dtype(axis.keys, np.array([start, after]))
    return replace(axis, keys=keys), edges[:1], edges[1:] - tick(keys.dtype)


def _locate_slice(axis: Axis, label: slice) -> slice:
    """Return the slice between two labels; ``stop`` None includes position 0."""
    try:
        step = 1 if label.step is None else operator.index(label.step)
    except TypeError as error:
        raise axis.invalid(f"step {label.step!r} of a slice is not a number of positions", "give an integer") from error
    if step == 0:
        raise axis.invalid("the step of a slice is 0", "give another integer")
    first, last = (label.start, label.stop) if step > 0 else (label.stop, label.start)
    start = 0 if first is None else _edge(axis, first, False)
    stop = axis.keys.size if last is None else _edge(axis, last, True)
    if stop <= start:
        return slice(0, 0, 1)
    return slice(start, stop, step) if step > 0 else slice(stop - 1, start - 1 if start else None, step)


def _edge(axis: Axis, label: Any, is_last: bool) -> int:
    """Return where a slice bounded by a label starts; if ``is_last``, stops."""
    value, several = unwrap(label, axis)
    if several:
        raise axis.invalid(f"{show(label)} cannot bound a slice", "give one value")
    if isinstance(value, str) and axis.value_type in ("times", "dates"):
        axis, low, high = _ends(axis, *period(value, axis))
        edge = high if is_last == (axis.order >= 0) else low
    else:
        keys, edge = to_common_dtype(axis.keys, label_values([value], axis))
        axis = replace(axis, keys=keys)
    if axis.order:
        return _span(axis, edge, edge)[is_last]
    hits = np.flatnonzero(equal_elements(axis.keys, edge))
    if hits.size == 0 or hits[-1] - hits[0] + 1 != hits.size:
        reason = "its positions are not adjacent" if hits.size else "it is not one of the values"
        what = f"{show(value)} cannot bound a slice of an unordered coordinate: {reason}"
        raise axis.not_found(what, "give values that occur once, or a list of values")
    return int(hits[-1]) + 1 if is_last else int(hits[0])


def _locate_exact(axis: Axis, labels: np.ndarray) -> np.ndarray:
    """Return the position of each label, -1 if it is absent."""
    permutation = None if axis.order else np.argsort(axis.keys, kind="stable")
    ascending = axis.ascending if permutation is None else axis.keys[permutation]
    if not ascending.size:
        return np.full(labels.size, -1, np.int64)
    ranks = np.minimum(np.searchsorted(ascending, labels), ascending.size - 1)
    positions = ranks if axis.order > 0 else ascending.size - 1 - ranks if permutation is None else permutation[ranks]
    return np.where(equal_elements(ascending[ranks], labels), positions, -1).astype(np.int64)


def _locate_near(axis: Axis, labels: np.ndarray, how: str, tolerance: Any) -> np.ndarray:
    """Return the position of each label by a method, -1 if there is none."""
    if axis.order == 0:
        raise axis.invalid(f"method={how!r} needs an ordered coordinate", "give exact values")
    if axis.value_type == "text" and (how == "nearest" or tolerance is not None):
        raise axis.invalid("text has no distances", "give exact labels, or method='pad' or 'backfill' without tolerance")
    ascending, size = axis.ascending, axis.keys.size
    limit = None if tolerance is None else _limit(axis, tolerance, labels.size)
    if size == 0:
        return np.full(labels.size, -1, np.int64)
    below = np.searchsorted(ascending, labels, "right") - 1
    above = np.searchsorted(ascending, labels, "left")
    if how == "nearest":  # the greater of two equally near values, as in pandas
        up, down = (distance(ascending[i.clip(0, size - 1)], labels) for i in (above, below))
        ranks = np.where((below < 0) | ((above < size) & (up <= down)), above, below)
    else:
        ranks = below if (how == "pad") == (axis.order > 0) else above
    absent = (ranks < 0) | (ranks >= size)
    if labels.dtype.kind == "f":
        absent |= np.isnan(labels)
    ranks = ranks.clip(0, size - 1)
    if limit is not None:
        absent |= ~(distance(ascending[ranks], labels) <= limit)
    return np.where(absent, -1, ranks if axis.order > 0 else size - 1 - ranks).astype(np.int64)


def _limit(axis: Axis, tolerance: Any, size: int) -> np.ndarray:
    """Return a tolerance that compares with the results of `distance`."""
    numbers = axis.value_type == "numbers"
    expected = "a number" if numbers else "a duration of days or less, such as '12h' or numpy.timedelta64(12, 'h')"
    try:
        limit = np.asarray(tolerance) if numbers else as_timedeltas(tolerance)
    except SelectionError as error:
        raise axis.invalid(f"tolerance={show(tolerance)}: {error.args[0]}", error.hint or f"give {expected}") from None
    except (TypeError, ValueError, OverflowError) as error:
        raise axis.invalid(f"tolerance={show(tolerance)}: {error}", f"give {expected}") from error
    if limit.dtype.kind not in ("iuf" if numbers else "m") or (limit.dtype.kind == "m" and not has_length(limit.dtype)):
        raise axis.invalid(f"tolerance={show(tolerance)} is not a distance of labels", f"give {expected}")
    if limit.ndim > 1 or limit.size not in (1, size):
        raise axis.invalid(f"{limit.size} tolerances for {size} labels", "give one, or one per label")
    if numbers:
        return limit
    unit = np.datetime_data(axis.keys.dtype)[0] if axis.value_type == "times" else "us"
    return rescale(limit, np.dtype(f"m8[{unit}]")).astype(np.int64)


def _not_found(axis: Axis, label: Any, key: Any, how: str | None) -> NotFoundError:
    ascending = axis.ascending
    if not ascending.size:
        return axis.not_found(f"{show(label)} not found: the coordinate has no values", None)
    extent = f"{show(ascending[0])} to {show(ascending[-1])}"
    if axis.value_type == "text":
        close = difflib.get_close_matches(str(key), ascending[:1000].tolist(), 1) or [str(ascending[0])]
        what = f"{show(label)} not found among {ascending.size} labels, {extent}"
        return axis.not_found(what, f"give one of them, such as {show(close[0])}")
    labels = np.array([key], dtype=ascending.dtype)
    after = int(np.searchsorted(ascending, labels)[0])
    near = ascending[[max(after - 1, 0), min(after, ascending.size - 1)]]
    nearest = show(near[int(np.argmin(distance(near, labels)))])
    by_method = f" by method {how!r}" if how else ""
    hint = "give one of its values, or a wider tolerance" if how else "give one of its values, or method='nearest'"
    return axis.not_found(f"{show(label)} not found{by_method} in {extent}, the nearest is {nearest}", hint)
