"""Forecasts as arrays over reference time and lead.

`as_forecasts` gives each array of a file these two leading dimensions, so that the usual rules join runs and leads.
`with_valid_time` adds the valid time to the joined arrays.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from aggarray.aggregate.differences import short_paths
from aggarray.aggregate.forecast_times import ForecastTimes, Times, role_of, times_of
from aggarray.aggregate.identity import uri_of
from aggarray.aggregate.rules import Refusal, Rules, parse_dimension
from aggarray.aggregate.stages import Entry
from aggarray.arrays.forecast import as_integers, known_array, valid_times
from aggarray.arrays.master import MasterArray
from aggarray.arrays.ragged import RaggedMasterArray
from aggarray.cf.attributes import LEAD, REFERENCE, TIME, words
from aggarray.cf.units.calendars import epoch
from aggarray.dataclass import replace
from aggarray.errors import AggarrayError, AggregationError
from aggarray.formats.templates import is_decreasing
from aggarray.memory.selection import Range, Selector
from aggarray.partition.tiling import expand, rename

_MISSING = np.iinfo(np.int64).min
_HOURS, _SECONDS = "hours", "seconds since 1970-01-01"

#: An array with what it states.
_Stated = tuple[MasterArray, ForecastTimes]


def as_forecasts(entries: Sequence[Entry], rules: Rules) -> tuple[list[Entry], list[Refusal]]:
    """Return arrays of files over reference time and lead.

    Arrays without times do not change, nor do those that state too little, with a refusal each. Raises AggregationError if
    the rules take the reference time from paths and no path has it.
    """
    shared = _single_coordinates(entries)
    alone = {id(c): uri for uri, named in shared.items() for c in named.values()}
    made: list[MasterArray | _Stated] = []
    problems: dict[tuple[str, str, str | None], list[str]] = defaultdict(list)
    used = set[str]()  # files whose single coordinates belong to their arrays
    for entry, run in zip(entries, _runs_in_paths(entries, rules), strict=True):
        array, uri = entry.array, uri_of(entry.array)
        parts: list[MasterArray | _Stated] = [array]
        try:
            plain = id(array) in alone or isinstance(array, RaggedMasterArray)
            stated = None if plain else times_of(array, shared.get(uri, {}), run)
            parts = parts if stated is None else list(_parts(array, stated))
            used.update([uri] if stated is not None else [])
        except AggarrayError as error:
            problems[array.name or "", str(error.args[0]), error.hint].append(uri)
        made += parts
    made = [item for item in made if not isinstance(item, MasterArray) or alone.get(id(item)) not in used]
    cubes = _Cubes([item[1] for item in made if not isinstance(item, MasterArray)])
    arrays = [item if isinstance(item, MasterArray) else cubes.cube(*item) for item in made]
    return [Entry(array, number) for number, array in enumerate(arrays)], [_refusal(*p) for p in problems.items()]


def join_rules(rules: Rules) -> Rules:
    """Return the rules that join forecasts: their new dimension exists."""
    return replace(rules, new_dimension=None) if rules.member_dimension == REFERENCE else rules


def _refusal(problem: tuple[str, str, str | None], files: Sequence[str]) -> Refusal:
    name, reason, hint = problem
    uris = tuple(dict.fromkeys(uri for uri in files if uri))
    where = ", ".join(short_paths(uris[:3])) + (f" and {len(uris) - 3} more" if len(uris) > 3 else "")
    return Refusal((name,), uris, "forecast", f"{reason} ({where})" + (f"; {hint}" if hint else ""))


def _single_coordinates(entries: Sequence[Entry]) -> dict[str, dict[str, MasterArray]]:
    """Return times and leads that no variable names, by file and role.

    Each has one value.
    """
    shared: dict[str, dict[str, MasterArray]] = defaultdict(dict)
    for array in (entry.array for entry in entries):
        if array.size != 1 or type(array) is not MasterArray or array.dtype.kind not in "iuf":
            continue
        role, uri = role_of(array), uri_of(array)
        if uri and role is not None and (role != TIME or "standard_name" in array.attrs or array.name == TIME):
            shared[uri].setdefault(role, array)
    return shared


def _runs_in_paths(entries: Sequence[Entry], rules: Rules) -> list[str | None]:
    """Return the reference time in the path of each array, as text."""
    if rules.new_dimension is None or rules.member_dimension != REFERENCE:
        return [None] * len(entries)
    _, pattern = parse_dimension(rules.new_dimension)
    if pattern is None:
        hint = f"give {REFERENCE}=regex, with one group that matches the date in the path"
        raise AggregationError(f"new_dimension={rules.new_dimension!r}", hint=hint)
    found: dict[str, str | None] = {}
    for uri in {uri_of(entry.array) for entry in entries}:
        match = pattern.search(uri)
        found[uri] = None if match is None else match.group(1)
    if entries and all(text is None for text in found.values()):
        what = f"new_dimension={rules.new_dimension!r}: no file has a path that {pattern.pattern!r} matches"
        raise AggregationError(what, hint="correct the pattern")
    return [found[uri_of(entry.array)] for entry in entries]


def _parts(array: MasterArray, stated: ForecastTimes) -> Iterator[_Stated]:
    """Yield an array, or its parts of one run if the leads depend on the run."""
    reference, lead = stated.reference, stated.lead
    if len(lead.dimensions) > 1:
        stated = replace(stated, lead=_equal_leads(reference, lead))
        lead = stated.lead
    along = [d for d in reference.dimensions if d in lead.dimensions]
    if len(reference.dimensions) > 1 or len(lead.dimensions) > 2 or (len(lead.dimensions) == 2 and not along):
        what = f"the reference time spans {reference.dimensions} and the lead {lead.dimensions}"
        raise AggregationError(what, hint="give one run, or runs of a dimension, in a file")
    if (reference.values == _MISSING).any() or (not along and (lead.values == _MISSING).any()):
        raise AggregationError("a reference time or a lead is missing", hint="leave the file out")
    if not along:
        yield array, stated
        return
    (dimension,) = along
    cuts = _cuts(reference.values, lead)
    for start, stop in pairwise(cuts):
        single = replace(stated, reference=Times((), reference.values[start], reference.calendar), bounds=None)
        if len(lead.dimensions) == 2:
            (other,) = (d for d in lead.dimensions if d != dimension)
            values = lead.values.take(start, lead.dimensions.index(dimension))
            positions = np.flatnonzero(values != _MISSING)
            chosen: dict[str, Selector] = {dimension: start, other: positions}
            if positions.size:
                yield array._chosen(chosen), replace(single, lead=Times((other,), values[positions]))
            continue
        part = array._chosen({dimension: Range(start, stop - start)})
        values = lead.values[start:stop]
        if (reference.values[start:stop] == reference.values[start]).all():
            yield part, replace(single, lead=Times((dimension,), values))
        else:
            several = Times((dimension,), reference.values[start:stop], reference.calendar)
            yield part, replace(single, reference=several, lead=Times((), values[0]))


def _equal_leads(reference: Times, lead: Times) -> Times:
    """Return leads of one dimension if they are equal for all runs."""
    for dimension in reference.dimensions:
        axis = lead.dimensions.index(dimension) if dimension in lead.dimensions else None
        if axis is not None and (lead.values == lead.values.take([0], axis)).all():
            rest = tuple(d for d in lead.dimensions if d != dimension)
            return Times(rest, lead.values.take(0, axis))
    return lead


def _cuts(reference: np.ndarray, lead: Times) -> list[int]:
    """Return the positions at which parts of one run, or of one lead, begin."""
    count = len(reference)
    if len(lead.dimensions) == 2:
        return list(range(count + 1))
    cuts = [np.flatnonzero(values[1:] != values[:-1]) + 1 for values in (reference, lead.values)]
    return [0, *min(cuts, key=len).tolist(), count]


class _Cubes:
    """Arrays with leading dimensions of reference time and lead.

    The leads have the units that all files state, otherwise hours. Equal coordinates are one object.
    """

    def __init__(self, stated: Sequence[ForecastTimes]) -> None:
        units = {None if one.units is None else epoch(f"{one.units} since 1970-01-01").step: one.units for one in stated}
        spelled = sorted({str(one.units) for one in stated})
        self._units = spelled[0] if len(units) == 1 and None not in units else _HOURS
        self._step = int(epoch(f"{self._units} since 1970-01-01").step)
        self._made: dict[object, MasterArray] = {}

    def cube(self, array: MasterArray, stated: ForecastTimes) -> MasterArray:
        """Return an array over reference time, lead and its other dimensions."""
        names: dict[str, str] = {}
        for times, name in ((stated.reference, REFERENCE), (stated.lead, LEAD)):
            names |= dict.fromkeys(times.dimensions, name)
        methods = words(array.attrs.get("cell_methods"))
        named = [f"{TIME}:" if w[:-1] in names and w[-1:] == ":" else w for w in methods]
        attrs = array.attrs if named == methods else {**array.attrs, "cell_methods": " ".join(named)}
        replaced = {*stated.replaced, TIME, *(n for n in names if n in array.coords and array.coords[n].dimensions == (n,))}
        coords = {n: _renamed(c, names) for n, c in array.coords.items() if n not in replaced}
        cube = _leading(replace(_renamed(array, names), attrs=attrs, coords={}), names)
        cube = replace(cube, coords={**self._coordinates(array, stated), **coords})
        falling = [d for d in (REFERENCE, LEAD) if is_decreasing(cube.coords[d]._values_and_mask()[0])]
        return cube.flip(*falling) if falling else cube

    def _coordinates(self, array: MasterArray, stated: ForecastTimes) -> dict[str, MasterArray]:
        since = epoch(_SECONDS, stated.calendar).microseconds
        runs = np.atleast_1d(as_integers((stated.reference.values - since) / 1e6))
        leads = np.atleast_1d(stated.lead.values) / self._step
        coords = {
            REFERENCE: self._coordinate(array, REFERENCE, runs, (_SECONDS, stated.calendar), {"standard_name": REFERENCE})
        }
        attrs = {"standard_name": LEAD} | ({} if stated.bounds is None else {"bounds": stated.bounds[0]})
        coords[LEAD] = self._coordinate(array, LEAD, leads, (self._units, None), attrs)
        if stated.bounds is not None:
            name, values = stated.bounds
            coords[name] = self._coordinate(array, name, values / self._step, (self._units, None), {})
        return coords

    def _coordinate(
        self, like: MasterArray, name: str, values: np.ndarray, units: tuple[str, str | None], attrs: Mapping[str, Any]
    ) -> MasterArray:
        key = name, values.dtype, values.shape, values.tobytes(), units, *attrs.items()
        if key not in self._made:
            dimensions = (name,) if values.ndim == 1 else (LEAD, "bounds")
            self._made[key] = known_array(replace(like, file_attrs={}), name, values, dimensions, units, attrs)
        return self._made[key]


def _renamed(array: MasterArray, names: Mapping[str, str]) -> MasterArray:
    if set(names).isdisjoint(array.dimensions):
        return array
    return replace(array, _matrix=rename(array._matrix, names))


def _leading(array: MasterArray, names: Mapping[str, str]) -> MasterArray:
    """Return an array with reference time and lead as leading dimensions."""
    for name in (LEAD, REFERENCE):
        if name not in names.values():
            known: Any = array._known and tuple(None if k is None else k[np.newaxis] for k in array._known)
            array = replace(array, _matrix=expand(array._matrix, name), _known=known)
    rest = [d for d in array.dimensions if d not in (REFERENCE, LEAD)]
    return array.transpose(REFERENCE, LEAD, *rest)


def with_valid_time(array: MasterArray) -> MasterArray:
    """Return a joined array with its valid times.

    These span reference time and lead. Coordinates of these dimensions become values of one piece each.
    """
    runs, leads = (array.coords.get(name) for name in (REFERENCE, LEAD))
    if runs is None or leads is None or runs.dimensions != (REFERENCE,) or leads.dimensions != (LEAD,):
        return array
    if not {REFERENCE, LEAD} <= set(array.dimensions):
        return array
    single = {n: _in_one_piece(c) for n, c in array.coords.items() if c._known is not None and not c._matrix.references.uris}
    coords = {**array.coords, **single, TIME: valid_times(runs, leads)}
    own = {name: replace(coords.pop(name), file_attrs=array.file_attrs) for name in (REFERENCE, LEAD, TIME)}
    rest = [d for d in array.dimensions if d not in own]  # a new dimension of members leads
    return replace(array.transpose(REFERENCE, LEAD, *rest), coords={**own, **coords})


def _in_one_piece(c: MasterArray) -> MasterArray:
    if len(c._matrix.refs) == 1 or c._known is None:
        return c
    values, mask = c._known
    return known_array(c, c.name, values, c.dimensions, (c.units, c.calendar), c.attrs, mask)
