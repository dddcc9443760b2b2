"""Groups of the positions along a dimension: months, years, labels."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from aggarray.cf.units.date_fields import DAY, DateFields, day_numbers, named_years, to_reference_time
from aggarray.dataclass import dataclass
from aggarray.errors import NotFoundError, SelectionError, names_hint
from aggarray.reduce.memory_arrays import data_and_mask
from aggarray.reduce.time_cells import cell_lengths, middle_fields, time_along, time_fields

if TYPE_CHECKING:
    from aggarray.arrays.master import MasterArray

#: Periods that recur: the result has a dimension of this name, and a climatology of the times.
CYCLES = ("month", "season", "dayofyear", "hour")
#: Periods that follow each other: the result keeps the dimension. An n-year bin is written as "10-year".
PERIODS = ("year", "year-season", "year-month", "day")
SEASONS = ("DJF", "MAM", "JJA", "SON")
#: Dimension of the groups of an array of labels.
GROUP = "group"
_BINS = re.compile(r"([1-9]\d{0,5})-years?")


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """Groups of the positions along a dimension of an array.

    ``dimension``: of the array; ``name``: of the result; ``labels``: one per group, ascending (seasons: DJF, MAM, JJA, SON);
    ``numbers``: int64, the group of each position, -1 for none; ``keeps_dimension``: whether the groups are periods that
    follow each other, with a time coordinate. ``complete``: bool per group, whether its cells cover its periods; None if that
    is unknown or labels make the groups. ``edges``: float64 (groups, 2), the start of the first and the end of the last
    period of each group in the units of the time coordinate, ``times``: the middle of the first period; None without times.
    ``by``: the name of the grouping, None for an array of labels.
    """

    dimension: str
    name: str
    labels: np.ndarray
    numbers: np.ndarray
    keeps_dimension: bool = False
    complete: np.ndarray | None = None
    edges: np.ndarray | None = None
    times: np.ndarray | None = None
    by: str | None = None

    @property
    def count(self) -> int:
        """Number of groups."""
        return len(self.labels)


@dataclass(frozen=True, slots=True, eq=False)
class _Periods:
    """Periods that occur: label, start and end of each, and that of a time.

    ``start``, ``end``: microseconds on the axis of the calendar. ``order``: number of the period in its cycle, such as the
    year of a January; None where periods may be absent.
    """

    labels: np.ndarray
    start: np.ndarray
    end: np.ndarray
    numbers: np.ndarray
    order: np.ndarray | None = None


def groups_of(array: MasterArray, dimension: str, by: Any) -> Groups:
    """Return the groups of the positions along a dimension.

    ``by``: "month", "season", "dayofyear" or "hour": groups of the labels that occur, along a new dimension of that name;
    "year", "year-season", "year-month", "day" or bins of years such as "10-year", which start at the first year: periods in
    order, along the dimension itself; the name of another 1-d coordinate along the dimension: a group for each of its values;
    an array of labels, one per position: groups along the dimension ``group``. December belongs to the season of the next
    year. Missing times and labels are in no group. Raises SelectionError or NotFoundError for others.
    """
    if dimension not in array.dimensions:
        raise NotFoundError(
            f"no dimension {dimension!r} to group", hint=names_hint(dimension, array.dimensions, "the dimensions are")
        )
    if not isinstance(by, str):
        return _groups_of_labels(array, dimension, by)
    coordinate = time_along(array, dimension)
    bins = _BINS.fullmatch(by)
    if by in CYCLES + PERIODS or bins:
        if coordinate is not None:
            _check_name(array, dimension, by if by in CYCLES else dimension)
            return _groups_of_times(array, dimension, coordinate, by, int(bins[1]) if bins else 0)
        if not _is_along(array, dimension, by):
            what = f"cannot group by {by!r}: dimension {dimension!r} has no 1-d time coordinate"
            raise SelectionError(what, variable=array.name, hint="group by a coordinate along it, or by an array of labels")
    if not _is_along(array, dimension, by):
        names = [n for n, c in array.coords.items() if c.dimensions == (dimension,)]
        known = [*CYCLES, *PERIODS, "10-year", *names] if coordinate is not None else names
        raise NotFoundError(f"no grouping {by!r} of dimension {dimension!r}", hint=names_hint(by, known, "give"))
    name = by.rpartition("/")[2]
    _check_name(array, dimension, name)
    return _labelled(dimension, name, *_checked_labels(array.coords[by].read(masked=True), by), by)


def _is_along(array: MasterArray, dimension: str, name: str) -> bool:
    return name in array.coords and array.coords[name].dimensions == (dimension,)


def _check_name(array: MasterArray, dimension: str, name: str) -> None:
    if name != dimension and name in array.dimensions:
        what = f"the groups of {dimension!r} need a dimension {name!r}, which the array has"
        raise SelectionError(what, variable=array.name, hint="give an array of labels, whose dimension is 'group'")


def _groups_of_times(array: MasterArray, dimension: str, coordinate: MasterArray, by: str, years: int) -> Groups:
    dates = time_fields(coordinate)
    periods = _periods(dates, by, years)
    unique, groups = np.unique(periods.labels, return_inverse=True)
    present = ~dates.missing
    numbers = np.full(len(dates.missing), -1, np.int64)
    numbers[present] = groups[periods.numbers[present]]
    start, end, first_end = (
        _extreme(ufunc, values, groups, len(unique))
        for ufunc, values in ((np.minimum, periods.start), (np.maximum, periods.end), (np.minimum, periods.end))
    )
    moments = np.stack([start, end, start + (first_end - start) // 2])
    start, end, middle = to_reference_time(moments // DAY, str(coordinate.units), coordinate.calendar, moments % DAY)
    lengths = cell_lengths(array, coordinate, dates)
    complete = None if lengths is None else _complete(periods, groups, np.where(present, lengths, 0), len(unique))
    if complete is not None:
        cells = _periods(middle_fields(array, coordinate), by, years)
        complete[numbers[present & (cells.start[cells.numbers] != periods.start[periods.numbers])]] = False
    labels = np.array(SEASONS)[unique] if by == "season" else _named(unique, by, years, moments[0] // DAY, dates.calendar)
    name = by if by in CYCLES else dimension
    return Groups(dimension, name, labels, numbers, by not in CYCLES, complete, np.stack([start, end], axis=1), middle, by)


def _extreme(ufunc: np.ufunc, values: np.ndarray, groups: np.ndarray, count: int) -> np.ndarray:
    limit = np.iinfo(np.int64).max if ufunc is np.minimum else np.iinfo(np.int64).min
    result = np.full(count, limit)
    ufunc.at(result, groups, values)
    return result


def _periods(dates: DateFields, by: str, years: int) -> _Periods:
    """Return the periods of a grouping that times fall into."""
    present = ~dates.missing
    months = dates.year * 12 + dates.month - 1
    keys = {
        "hour": dates.day_number * 24 + dates.microsecond // (DAY // 24),
        "month": months,
        "year-month": months,
        "season": (months + 1) // 3,
        "year-season": (months + 1) // 3,
        "year": dates.year,
    }.get(by, dates.year if years else dates.day_number)
    if years and present.any():
        keys = (keys - keys[present].min()) // years
    unique, first, inverse = np.unique(keys[present], return_index=True, return_inverse=True)
    numbers = np.zeros(len(keys), np.int64)
    numbers[present] = inverse
    if by in ("hour", "day", "dayofyear"):
        size = DAY // 24 if by == "hour" else DAY
        labels = {"hour": unique % 24, "dayofyear": dates.dayofyear[present][first]}.get(by, unique)
        return _Periods(labels, unique * size, (unique + 1) * size, numbers, unique // 24 if by == "hour" else None)
    length = {"year": 12, "season": 3, "year-season": 3}.get(by, 12 * years or 1)
    start = unique * length - (length == 3)
    if years and present.any():
        start = start + int(dates.year[present].min()) * 12
    first, last = (day_numbers(0, start + 1 + shift, dates.calendar) * DAY for shift in (0, length))
    cycle = {"month": 12, "season": 4}.get(by)
    return _Periods(
        unique % cycle + (by == "month") if cycle else unique, first, last, numbers, unique // cycle if cycle else None
    )


def _complete(periods: _Periods, groups: np.ndarray, lengths: np.ndarray, count: int) -> np.ndarray:
    """Return whether cells cover all periods of each group.

    A cycle is incomplete, too, if one of its periods is absent between others.
    """
    covered = np.bincount(periods.numbers, lengths, len(periods.start))
    shortest = lengths[lengths > 0].min(initial=np.inf)
    enough = covered >= (periods.end - periods.start) - 0.5 * min(float(shortest), DAY * 400.0)
    complete = np.ones(count, bool)
    complete[groups[~enough]] = False
    if periods.order is not None:
        first, last = (_extreme(ufunc, periods.order, groups, count) for ufunc in (np.minimum, np.maximum))
        complete &= np.bincount(groups, minlength=count) == last - first + 1
    return complete


def _named(unique: np.ndarray, by: str, years: int, start: np.ndarray, calendar: str) -> np.ndarray:
    """Return the labels of groups: numbers, or text such as "2000-01"."""
    if by in ("month", "dayofyear", "hour"):
        return unique
    from aggarray.cf.units.date_fields import civil

    year, month, day, _ = civil(start, calendar)
    if by == "year-season":
        return np.array([f"{y}-{SEASONS[s]}" for y, s in zip(named_years(unique // 4, calendar), unique % 4, strict=True)], str)
    named = named_years(year, calendar)
    if by == "year":
        return named
    if years:
        last = named_years(year + years - 1, calendar)
        return np.array([f"{a}/{b}" for a, b in zip(named, last, strict=True)], str)
    parts = (named, month) if by == "year-month" else (named, month, day)
    return np.array(
        ["-".join(f"{n:02d}" if i else f"{n:04d}" for i, n in enumerate(each)) for each in zip(*parts, strict=True)], str
    )


def _groups_of_labels(array: MasterArray, dimension: str, by: Any) -> Groups:
    size = array.shape[array.dimensions.index(dimension)]
    labels, missing = _checked_labels(by.read(masked=True) if isinstance(by, type(array)) else by, "by")
    if labels.shape != (size,):
        what = f"labels of shape {labels.shape} for dimension {dimension!r} of size {size}"
        raise SelectionError(what, variable=array.name, hint="give one label for each position")
    _check_name(array, dimension, GROUP)
    return _labelled(dimension, GROUP, labels, missing, None)


def _checked_labels(labels: Any, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return labels and which are missing; SelectionError for other types."""
    values, missing = data_and_mask(labels)
    if values.dtype.kind in "TO":
        items = values.ravel().tolist()
        texts = ["" if v is None or (isinstance(v, float) and v != v) else v for v in items]  # pandas marks missing text so
        if all(isinstance(v, str) for v in texts) and (any(texts) or values.dtype.kind == "T"):
            values = np.array(texts, str).reshape(values.shape)
    if values.dtype.kind not in "iufbUM":
        hint = names_hint("", [*CYCLES, *PERIODS, "10-year"], "give numbers or text, or one of")
        raise SelectionError(f"labels of type {values.dtype} cannot form groups: {name} ({labels!r:.80})", hint=hint)
    missing = missing.copy()
    if values.dtype.kind in "fM":
        missing |= np.isnan(values) if values.dtype.kind == "f" else np.isnat(values)
    elif values.dtype.kind == "U":
        missing |= values == ""
    return values, missing


def _labelled(dimension: str, name: str, labels: np.ndarray, missing: np.ndarray, by: str | None) -> Groups:
    numbers = np.full(labels.shape, -1, np.int64)
    unique, numbers[~missing] = np.unique(labels[~missing], return_inverse=True)
    return Groups(dimension, name, unique, numbers, by=by)
