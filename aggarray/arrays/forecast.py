"""Views of forecasts along the valid time: best, constant lead, one run.

They are those of the Forecast Model Run Collections of THREDDS. Partitions are tiled anew; no value is read.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from aggarray.cf.attributes import LEAD, REFERENCE, TIME
from aggarray.cf.units.calendars import epoch
from aggarray.dataclass import replace
from aggarray.errors import NotFoundError, SelectionError
from aggarray.formats.templates import is_decreasing
from aggarray.partition.conform import fill_for
from aggarray.partition.tiling import rename

if TYPE_CHECKING:
    from aggarray.arrays.master import MasterArray


def forecast_view(array: MasterArray, view: Any, period: Any, run: Any) -> MasterArray:
    """Return a view of a forecast; see `MasterArray.forecast`."""
    given = {name: value for name, value in (("view", view), ("period", period), ("run", run)) if value is not None}
    if len(given) != 1:
        what = f"forecast({', '.join(f'{n}={v!r}' for n, v in given.items())})"
        raise SelectionError(
            f"{what}: {len(given)} views instead of one", variable=array.name, hint="give one of 'best', period=... or run=..."
        )
    if view is not None and view != "best":
        close = difflib.get_close_matches(str(view), ["best"])
        hint = "did you mean 'best'?" if close else "give 'best', period=... or run=..."
        raise SelectionError(f"forecast({view!r}): no such view", variable=array.name, hint=hint)
    _check_dimensions(array)
    if view is not None:
        return _best(array)
    if period is not None:
        return _single(array, LEAD, _position_of_lead(array, period), REFERENCE)
    return _single(array, REFERENCE, _position_of_run(array, run), LEAD)


def _check_dimensions(array: MasterArray) -> None:
    """Raise NotFoundError unless an array is over reference time and lead."""
    for name in (REFERENCE, LEAD):
        if name not in array.dimensions:
            has = ", ".join(array.dimensions) or "none"
            hint = f"open the files with rules=aggarray.Rules.forecast(); the dimensions are: {has}"
            raise NotFoundError(f"no dimension {name!r} to view a forecast along", variable=array.name, hint=hint)
        coordinate = array.coords.get(name)
        if coordinate is None or coordinate.dimensions != (name,):
            raise NotFoundError(f"dimension {name!r} has no coordinate", variable=array.name, hint="give it one")


def _position_of_lead(array: MasterArray, period: Any) -> int:
    """Return the position of a lead, or raise NotFoundError."""
    from aggarray.cf.labels.duration import as_timedeltas, has_length

    lead, number = array.coords[LEAD], period
    hint = f"give a number of {lead.units}, a text such as '6 hours', or a timedelta64"
    if isinstance(period, bool | slice):
        raise SelectionError(f"period={period!r} is not a lead", variable=array.name, hint=hint)
    try:
        duration = as_timedeltas(_spelled(period))
        if duration.dtype.kind == "m" and has_length(duration.dtype):
            step = float(epoch(f"{lead.units} since 1970-01-01").step)
            number = float(duration / np.timedelta64(1, "us")) / step
        number = float(number)
    except (TypeError, ValueError, SelectionError) as error:
        raise SelectionError(f"period={period!r} is not a lead", variable=array.name, hint=hint) from error
    values = np.asarray(lead._values_and_mask()[0])
    position = _nearest(values, number, LEAD)
    # A lead such as a third of an hour is rounded.
    if abs(values[position] - number) > 1e-6 * max(1.0, abs(number)):
        hint = f"the nearest is {values[position]:g} {lead.units}"
        raise NotFoundError(f"period={period!r} not found", variable=array.name, hint=hint)
    return position


def _nearest(values: np.ndarray, label: Any, dimension: str) -> int:
    """Return the position of the nearest value; NotFoundError without any."""
    from aggarray.cf.labels import locate

    return int(locate(values, label, method="nearest", dimension=dimension))  # type: ignore[arg-type]


def _spelled(period: Any) -> Any:
    """Return a number written as text as a number."""
    try:
        return float(period) if isinstance(period, str) else period
    except ValueError:
        return period


def _position_of_run(array: MasterArray, run: Any) -> int:
    """Return the position of a run, or raise NotFoundError."""
    from aggarray.cf.labels import locate

    if isinstance(run, bool | slice | int | float):
        hint = "give a time such as '2024-01-01T12'"
        raise SelectionError(f"run={run!r} is not a reference time", variable=array.name, hint=hint)
    dates = array.coords[REFERENCE].datetimes()
    try:
        chosen = np.atleast_1d(np.arange(len(dates))[locate(dates, run, dimension=REFERENCE)])
    except NotFoundError:
        chosen = np.zeros(0, np.int64)
    if not len(chosen):
        nearest = _shown(dates[_nearest(dates, run, REFERENCE)])
        raise NotFoundError(f"run={run!r} not found", variable=array.name, hint=f"the nearest is {nearest}")
    if len(chosen) > 1:
        listed = ", ".join(map(_shown, dates[chosen[:4]])) + (", ..." if len(chosen) > 4 else "")
        raise SelectionError(f"run={run!r} is {len(chosen)} runs", variable=array.name, hint=f"give one of {listed}")
    return int(chosen[0])


def _shown(date: Any) -> str:
    """Return a date as text, to the minute if it has no seconds."""
    text = str(date.astype("M8[s]")) if isinstance(date, np.datetime64) else str(date.isoformat())
    return text.removesuffix(":00")


def _single(array: MasterArray, chosen: str, position: int, along: str) -> MasterArray:
    """Return the values at one run or lead, along the valid time."""
    part = _with_time(array)._chosen({chosen: position})
    return replace(_renamed(part, along), coords={name: _renamed(c, along) for name, c in part.coords.items()})


def _renamed(array: MasterArray, along: str) -> MasterArray:
    """Return an array with a dimension renamed to the valid time."""
    return replace(array, _matrix=rename(array._matrix, {along: TIME})) if along in array.dimensions else array


def _with_time(array: MasterArray) -> MasterArray:
    """Return an array with its valid times as first coordinate."""
    time = array.coords.get(TIME)
    if time is None or set(time.dimensions) != {REFERENCE, LEAD}:
        time = valid_times(array.coords[REFERENCE], array.coords[LEAD])
    return replace(array, coords={TIME: time, **{name: c for name, c in array.coords.items() if name != TIME}})


def valid_times(runs: MasterArray, leads: MasterArray) -> MasterArray:
    """Return the valid times of reference times and leads.

    They have the units of the former, and are int64 if all are whole numbers. ``runs``, ``leads``: 1-d coordinates.
    """
    unit, step = epoch(str(runs.units), runs.calendar).step, epoch(f"{leads.units} since 1970-01-01").step
    seconds = np.rint(np.asarray(leads._values_and_mask()[0]) * float(step)) / float(unit)
    times = as_integers(np.asarray(runs._values_and_mask()[0])[:, np.newaxis] + seconds)
    attrs = {"standard_name": TIME}
    return known_array(runs, TIME, times, (*runs.dimensions, *leads.dimensions), (runs.units, runs.calendar), attrs)


def as_integers(values: np.ndarray) -> np.ndarray:
    """Return values as int64 if all values are whole numbers.

    >>> as_integers(np.array([1.0, 2.0])).dtype, as_integers(np.array([1.5, 2.0])).dtype
    (dtype('int64'), dtype('float64'))
    """
    integers = np.rint(values)
    return integers.astype(np.int64) if (integers == values).all() else values


def known_array(
    like: MasterArray,
    name: str | None,
    values: np.ndarray,
    dimensions: Sequence[str],
    units: tuple[str | None, str | None],
    attrs: Mapping[str, Any],
    mask: np.ndarray | None = None,
) -> MasterArray:
    """Return an array of values in memory, of the file attributes of another.

    ``units``: with the calendar.
    """
    from aggarray.arrays.subarray import SubArray

    values = values.copy()
    values.flags.writeable = False
    falls = bool(values.size and values.ndim) and is_decreasing(values.reshape(len(values), -1)[:, 0])
    forward = [axis > 0 or not falls for axis in range(values.ndim)]
    masked = values if mask is None else np.ma.array(values, mask=mask)
    piece = SubArray.from_array(masked, dimensions=dimensions, units=units[0], calendar=units[1], directions=forward)
    fill, matrix, known = fill_for(piece.dtype, piece.fill_value), piece.matrix(), (values, mask)
    like = replace(like, name=name, units=piece.units, calendar=piece.calendar, dtype=piece.dtype, fill_value=fill)
    return replace(like, attrs=attrs, coords={}, _matrix=matrix, _known=known, _origin=None)


def _best(array: MasterArray) -> MasterArray:
    """Return the values of the latest run with a file for each valid time."""
    from aggarray.partition.diagonal import along_path, covered_cells

    array = _with_time(array)
    array = _leading(array)
    covered = covered_cells(array._matrix)
    rows, columns = best_positions(
        array.coords[TIME]._values_and_mask()[0], array.coords[REFERENCE]._values_and_mask()[0], covered
    )
    positions = {REFERENCE: rows, LEAD: columns}

    def on_path(item: MasterArray) -> MasterArray:
        names = [d for d in item.dimensions if d in positions]
        if item._known is not None and names:
            return _known_on_path(item, positions)
        if len(names) < 2:
            part = item._selected({d: positions[d] for d in names})
            return replace(part, _matrix=rename(part._matrix, dict.fromkeys(names, TIME)))
        matrix = along_path(_leading(item)._matrix, rows, columns)
        return replace(item, _matrix=rename(matrix, {LEAD: TIME}))

    return replace(on_path(array), coords={name: on_path(c) for name, c in array.coords.items()})


def _leading(array: MasterArray) -> MasterArray:
    """Return an array with increasing runs and leads as first dimensions."""
    directions = dict(zip(array.dimensions, array.directions, strict=True))
    turned = [d for d in (REFERENCE, LEAD) if not directions[d]]
    array = array.flip(*turned) if turned else array
    return array.transpose(REFERENCE, LEAD, *(d for d in array.dimensions if d not in (REFERENCE, LEAD)))


def _known_on_path(item: MasterArray, positions: Mapping[str, np.ndarray]) -> MasterArray:
    """Return known values at positions, along the valid time."""
    names = [d for d in (REFERENCE, LEAD) if d in item.dimensions]
    rest = [d for d in item.dimensions if d not in names]
    order, key = [item.dimensions.index(d) for d in (*names, *rest)], tuple(positions[d] for d in names)
    values, mask = (None if k is None else k.transpose(order)[key] for k in item._known or (None, None))
    return known_array(item, item.name, np.asarray(values), (TIME, *rest), (item.units, item.calendar), item.attrs, mask)


def best_positions(times: np.ndarray, runs: np.ndarray, covered: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return row and column of the latest covered run of each valid time.

    ``times``: (runs, leads); ``runs``: reference times; ``covered``: bool, of the shape of ``times``. The positions are in the
    order of the valid times.

    >>> times = np.array([[0, 6, 12], [6, 12, 18]])
    >>> rows, columns = best_positions(times, np.array([0, 6]), np.array([[1, 1, 1], [1, 0, 1]], bool))
    >>> rows.tolist(), columns.tolist()
    ([0, 1, 0, 1], [0, 0, 2, 2])
    """
    rows, columns = np.nonzero(covered)
    own = times[rows, columns]
    order = np.lexsort((runs[rows], own))
    ordered = own[order]
    last = order[np.append(ordered[1:] != ordered[:-1], np.ones(min(1, len(order)), bool))]
    return rows[last], columns[last]
