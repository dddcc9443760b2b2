"""Reference times and leads of arrays, as files state them.

The standard_name of a coordinate decides its role, its name only without one. The valid time is the reference time plus the
lead: what a file does not state follows from the rest. Times are in microseconds, so that those of different units compare
exactly.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from aggarray.arrays.lazy import bounds_names
from aggarray.arrays.master import MasterArray
from aggarray.cf.attributes import LEAD, REFERENCE, TIME, basename, text_attribute
from aggarray.cf.units import MIXABLE, calendar_name, is_reference_time
from aggarray.cf.units.calendars import epoch, moments
from aggarray.dataclass import dataclass
from aggarray.errors import AggarrayError, AggregationError

#: Names of leads without a standard_name, such as those of cfgrib.
_LEADS = (LEAD, "step", "lead", "lead_time", "leadtime")
#: Names of times without a standard_name that are not reference times.
_TIMES = (TIME, "valid_time")

_SECOND = 1_000_000
_DAY = 86_400 * _SECOND
#: Rounding errors of times in files; whole seconds within it are meant.
_ROUNDING = 50_000
#: Longest time between the date of units and the first time, if that date is the reference time.
_LONGEST_START = 366 * _DAY
_MISSING = np.iinfo(np.int64).min


@dataclass(frozen=True, slots=True, eq=False)
class Times:
    """Times on the axis of a calendar, or leads, in int64 microseconds.

    ``dimensions``: of the values, among those of the array; ``calendar``: None for leads.
    """

    dimensions: tuple[str, ...]
    values: np.ndarray
    calendar: str | None = None

    def minus(self, other: Times) -> Times:
        """Return differences over the dimensions of both."""
        names = tuple(dict.fromkeys((*self.dimensions, *other.dimensions)))
        one, two = self._over(names), other._over(names)
        missing = (one == _MISSING) | (two == _MISSING)
        leads = self.calendar is not None and other.calendar is not None
        return Times(names, np.where(missing, _MISSING, rounded(one - two)), None if leads else self.calendar)

    def along(self, dimension: str) -> Times:
        """Return the times over a dimension that they may lack."""
        return self if dimension in self.dimensions else Times((dimension,), self.values.reshape(1), self.calendar)

    def _over(self, names: tuple[str, ...]) -> np.ndarray:
        order = [self.dimensions.index(d) for d in names if d in self.dimensions]
        values = self.values.transpose(order)
        return values[tuple(slice(None) if d in self.dimensions else np.newaxis for d in names)]


@dataclass(frozen=True, slots=True, eq=False)
class ForecastTimes:
    """Reference times and leads of an array.

    ``units``: of the leads as stated, None if they follow from times; ``bounds``: of the leads, microseconds (leads, 2), with
    the name that they have; ``replaced``: names of the coordinates that state all this.
    """

    reference: Times
    lead: Times
    calendar: str
    units: str | None = None
    bounds: tuple[str, np.ndarray] | None = None
    replaced: frozenset[str] = frozenset()


def rounded(values: np.ndarray) -> np.ndarray:
    """Return microseconds, rounded to whole seconds if these are near.

    >>> rounded(np.array([1_000_003, 1_400_000]))
    array([1000000, 1400000])
    """
    seconds = (values + _SECOND // 2) // _SECOND * _SECOND
    return np.where(np.abs(values - seconds) <= _ROUNDING, seconds, values)


def name_of(coordinate: MasterArray | None) -> str:
    """Return the name of a coordinate for an error."""
    return "the file" if coordinate is None else str(coordinate.name)


def role_of(coordinate: MasterArray) -> str | None:
    """Return the role of a coordinate: `REFERENCE`, `LEAD`, `TIME` or None."""
    standard_name, name = text_attribute(coordinate.attrs.get("standard_name")), basename(coordinate.name or "")
    if is_reference_time(coordinate.units):
        run_time = coordinate.attrs.get("_CoordinateAxisType") == "RunTime"  # as in files of the netCDF-Java library
        if (standard_name or name) == REFERENCE or run_time:
            return REFERENCE
        return TIME if standard_name in (TIME, None) else None
    return LEAD if standard_name == LEAD or (standard_name is None and name in _LEADS) else None


def times_of(array: MasterArray, shared: Mapping[str, MasterArray], run: str | None) -> ForecastTimes | None:
    """Return reference times and leads; None of an array without times.

    ``shared``: single times and leads of the file, by role; ``run``: the reference time as text, from the path. Raises
    AggregationError if the array states too little or contradicts itself.
    """
    found = _Coordinates(array, shared)
    lead = None if found.lead is None else found.leads(found.lead)
    if lead is None and not found.times:
        return None
    calendar = calendar_name(next((c.calendar for c in (*found.times, found.reference) if c is not None), None))
    reference = valid = None
    if run is not None:
        reference = Times((), np.array(_run_in_path(run, calendar), np.int64), calendar)
    elif found.reference is not None:
        reference = found.read(found.reference)
    if lead is None:
        valid = found.valid()
        reference = _date_of_units(valid, found.read(valid)) if reference is None else reference
        lead = _checked(found.read(valid), reference).minus(reference)
    elif reference is None:
        reference, valid = _reference(found, lead)
    elif run is None:
        valid = _confirmed(found, reference, lead)
    if found.times:
        lead = _along_valid_time(array, reference, lead, found.dimensions(found.valid() if valid is None else valid))
    named = [c for c in (found.lead, found.reference, *found.times) if c is not None]
    replaced = frozenset(n for c in named for n in (str(c.name), *bounds_names(c)))
    units = None if found.lead is None else found.lead.units
    return ForecastTimes(reference, lead, calendar, units, found.bounds(valid, reference, lead), replaced)


class _Coordinates:
    """Coordinates of an array that are times or leads."""

    def __init__(self, array: MasterArray, shared: Mapping[str, MasterArray]) -> None:
        self._array = array
        bounds = {name for c in array.coords.values() for name in bounds_names(c)}
        own = [(role_of(c), c) for name, c in array.coords.items() if name not in bounds and c.dtype.kind in "iuf"]
        own = [(role, c) for role, c in own if role is not None and self.dimensions(c) is not None]
        # A coordinate with a standard_name comes first.
        own.sort(key=lambda item: "standard_name" not in item[1].attrs)
        roles = {role for role, _ in own}
        own += [(role, c) for role, c in shared.items() if role not in roles and array.ndim]
        self.times = [c for role, c in own if role == TIME]
        self.reference = next((c for role, c in own if role == REFERENCE), None)
        self.lead = next((c for role, c in own if role == LEAD), None)
        if self.lead is not None and not self._is_lead(self.lead):
            self.lead = None

    def _is_lead(self, lead: MasterArray) -> bool:
        """Return whether a lead has units of time, or raise AggregationError."""
        try:
            step = epoch(f"{lead.units} since 1970-01-01").step
        except AggarrayError:
            step = None
        if step is not None and step <= 7 * _DAY:
            return True
        if self.times and (self.reference is not None or "standard_name" not in lead.attrs):
            return False  # the times say it
        what = f"the units of {lead.name} are {lead.units!r}, no fixed duration of at most a week"
        raise AggregationError(what, hint="give it units such as 'hours'")

    def dimensions(self, c: MasterArray) -> tuple[str, ...] | None:
        """Return the dimensions of a coordinate that its array has.

        Those of size 1 may be absent; None if others are.
        """
        names = self._array.dimensions
        if any(d not in names and n != 1 for d, n in zip(c.dimensions, c.shape, strict=True)):
            return None
        return tuple(d for d in c.dimensions if d in names)

    def _values(self, c: MasterArray) -> np.ndarray:
        values, mask = c._values_and_mask()
        values = values if mask is None or not mask.any() else np.where(mask, np.nan, values)
        sizes = dict(zip(c.dimensions, values.shape, strict=True))
        return values.reshape([sizes[d] for d in self.dimensions(c) or ()])

    def read(self, c: MasterArray) -> Times:
        """Return the times of a coordinate."""
        values = self._values(c)
        times = rounded(moments(values, str(c.units), c.calendar))
        times = np.where(np.isnan(values), _MISSING, times) if values.dtype.kind == "f" else times
        return Times(self.dimensions(c) or (), times, calendar_name(c.calendar))

    def leads(self, c: MasterArray, values: np.ndarray | None = None) -> Times:
        """Return the leads of a coordinate."""
        values, units = self._values(c) if values is None else values, f"{c.units} since 1970-01-01"
        missing = np.isnan(values) if values.dtype.kind == "f" else np.zeros(values.shape, bool)
        leads = moments(np.where(missing, 0, values), units) - epoch(units).microseconds
        return Times(self.dimensions(c) or (), np.where(missing, _MISSING, rounded(leads)))

    def valid(self) -> MasterArray:
        """Return the valid time of an array without leads."""
        spanning = sorted(self.times, key=lambda c: (not self.dimensions(c), basename(str(c.name)) not in _TIMES))
        return spanning[0]

    def bounds(self, valid: MasterArray | None, reference: Times, lead: Times) -> tuple[str, np.ndarray] | None:
        """Return the bounds of leads, which the file states or times have."""
        for c in (self.lead, valid):
            names = () if c is None else bounds_names(c)
            bounds = self._array.coords.get(names[0]) if names else None
            if c is None or bounds is None or bounds.size != 2 * lead.values.size or lead.values.ndim > 1:
                continue
            values = bounds._values_and_mask()[0].reshape(-1, 2)
            if c is self.lead:
                return names[0], self.leads(c, values).values
            if not reference.values.ndim:
                return names[0], rounded(moments(values, str(c.units), c.calendar) - reference.values)
        return None


def _reference(found: _Coordinates, lead: Times) -> tuple[Times, MasterArray | None]:
    """Return the reference time beside leads, and the valid time."""
    times = [(c, found.read(c)) for c in found.times]
    for one, reference in times:
        for other, valid in times:
            if one is not other and _fits(valid, reference, lead):
                return reference, other
    if len(times) == 1:
        ((c, only),) = times
        if set(lead.dimensions) <= set(only.dimensions):
            return only.minus(lead), c
        return only, None  # cfgrib: the time of a file with steps
    if not times:
        raise AggregationError(f"{name_of(found.lead)} has no reference time", hint=_HINT)
    names = " and ".join(str(c.name) for c, _ in times)
    raise AggregationError(f"{names} do not differ by {name_of(found.lead)}", hint=_HINT)


def _confirmed(found: _Coordinates, reference: Times, lead: Times) -> MasterArray | None:
    """Return the valid time of a file; AggregationError if it differs."""
    stated = [(c, found.read(c)) for c in found.times]
    for c, valid in stated:
        if _fits(_checked(valid, reference), reference, lead):
            return c
    named = [c for c, _ in stated if "standard_name" in c.attrs or set(lead.dimensions) & set(c.dimensions)]
    if named:
        reason = f"{named[0].name} is not {name_of(found.reference)} plus the lead"
        raise AggregationError(reason, hint="correct one of them, or leave the file out")
    return None


def _fits(valid: Times, reference: Times, lead: Times) -> bool:
    """Return whether the valid times are the reference times plus the leads."""
    own = valid.minus(reference).minus(Times(lead.dimensions, lead.values))
    return bool(((own.values == 0) | (own.values == _MISSING)).all())


def _checked(valid: Times, reference: Times) -> Times:
    """Return valid times; AggregationError if calendars differ."""
    calendars = {valid.calendar, reference.calendar}
    if len(calendars) > 1 and not calendars <= set(MIXABLE):
        what = f"the calendars of time and reference time differ: {valid.calendar!r} and {reference.calendar!r}"
        raise AggregationError(what, hint="correct one of them")
    return valid


#: What to do about a reference time that is not stated.
_HINT = f"state it, or give new_dimension='{REFERENCE}=regex' for the date in the path"


def _date_of_units(time: MasterArray, valid: Times) -> Times:
    """Return the date of the units of a time, unless it is far from the first."""
    since = epoch(str(time.units), time.calendar).microseconds
    values = valid.values[valid.values != _MISSING]
    start = int(values.min()) - since if values.size else 0
    if not 0 <= start <= _LONGEST_START:
        away = f"{abs(start) // _DAY} days {'before' if start > 0 else 'after'} the first time"
        raise AggregationError(f"no reference time: the date of the units {time.units!r} is {away}", hint=_HINT)
    return Times((), np.array(since, np.int64), valid.calendar)


def _run_in_path(text: str, calendar: str) -> int:
    """Return a date in a path as microseconds on the axis of a calendar."""
    digits = re.sub(r"\D", "", text)
    if len(digits) not in (6, 8, 10, 12, 14):
        what = f"{text!r} in the path is not a date"
        raise AggregationError(what, hint="match a date such as 20240131, 2024013112 or 2024-01-31T12:00")
    year, *rest = (digits[:4], *(digits[at : at + 2] for at in range(4, len(digits), 2)))
    month, day, hour, minute, second = (*rest, *("01", "01", "00", "00", "00")[len(rest) :])
    return epoch(f"seconds since {year}-{month}-{day} {hour}:{minute}:{second}", calendar).microseconds


def _along_valid_time(array: MasterArray, reference: Times, lead: Times, valid: tuple[str, ...] | None) -> Times:
    """Return leads along the dimension of one valid time, if they have none."""
    sizes: dict[str, Any] = dict(zip(array.dimensions, array.shape, strict=True))
    if lead.dimensions or valid is None or len(valid) != 1 or sizes[valid[0]] != 1 or valid == reference.dimensions:
        return lead
    return lead.along(valid[0])
