"""What is wrong with an aggregation? `Report` lists `Problem`s; here are those that need no file: gaps, holes, duplicates.

A gap is a missing step of a time axis that is regular but for it: constant steps, or whole months, quarters or years of its
calendar. A hole is a place of the matrix that no file covers.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from aggarray.errors import AggarrayError, FormatError, MissingFileError
from aggarray.formats import identify
from aggarray.master import MasterArray
from aggarray.units import is_reference_time

#: A step counts as whole if it is this near to a multiple of the usual one.
_SLACK = 0.01


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing found by a check: ``kind`` (gap, hole, duplicate, ...), the file concerned or None, and a message."""

    kind: str
    file: str | None
    message: str


@dataclass(frozen=True, slots=True)
class Report:
    """The outcome of a check: ``ok`` where there is no problem."""

    ok: bool
    problems: tuple[Problem, ...]


@dataclass(frozen=True, slots=True)
class Duplicate:
    """A file that repeats another exactly, for one array, and was therefore left out."""

    array: str
    file: str
    kept: str


@dataclass(frozen=True, slots=True)
class Gap:
    """Missing steps of a time axis: ``count`` of them between positions ``after`` and ``after + 1``."""

    after: int
    count: int


def gaps(times: np.ndarray) -> list[Gap]:
    """Return the missing steps of a regular time axis; none where no regular step can be made out.

    ``times``: increasing, datetime64 or cftime objects of one calendar, length n.

    >>> gaps(np.array(["2001-01", "2001-02", "2001-05", "2001-06"], "M8[D]"))
    [Gap(after=1, count=2)]
    """
    if len(times) < 3:
        return []
    days = _days(times)
    usual = float(np.median(days))
    months = np.diff(_months(times))
    for whole in (1, 2, 3, 4, 6, 12):
        if 27 * whole <= usual <= 31.5 * whole and (months > 0).all() and not (months % whole).any():
            return _missing(months / whole)
    if usual <= 0 or (np.abs(days / usual - 1) <= _SLACK).mean() <= 0.5:
        return []
    return _missing(days / usual)


def _days(times: np.ndarray) -> np.ndarray:
    """Return the steps of a time axis in days."""
    if times.dtype.kind == "M":
        return np.diff(times.astype("M8[us]")).astype(np.int64) / 86_400e6
    return np.array([(b - a).total_seconds() / 86_400 for a, b in pairwise(times)])


def _months(times: np.ndarray) -> np.ndarray:
    """Return the number of each month, counted from year 0."""
    if times.dtype.kind == "M":
        return times.astype("M8[M]").astype(np.int64)
    return np.array([t.year * 12 + t.month for t in times], np.int64)


def _missing(multiple: np.ndarray) -> list[Gap]:
    """Return the gaps where steps are whole multiples of the usual one, but not one of it."""
    whole = np.rint(multiple)
    found = np.flatnonzero((whole > 1) & (np.abs(multiple - whole) <= _SLACK))
    return [Gap(int(i), int(whole[i]) - 1) for i in found]


def gap_problems(array: MasterArray) -> Iterator[Problem]:
    """Yield the gaps along the time dimensions of an array, with the dates and the files around them."""
    for axis, dimension in enumerate(array.dimensions):
        for coordinate in _times_along(array, dimension):
            try:
                times = coordinate.datetimes()
            except AggarrayError:
                continue
            if len(times) < 3 or any(t is None or t != t for t in times[[0, -1]]):
                continue
            down = bool(times[0] > times[-1])
            for gap in gaps(times[::-1] if down else times):
                after = len(times) - 2 - gap.after if down else gap.after
                before, behind = (after + 1, after) if down else (after, after + 1)
                steps = f"{gap.count} step{'s' if gap.count > 1 else ''}"
                yield Problem(
                    "gap",
                    file_at(array, axis, before),
                    f"{array.name}: {steps} of {dimension} missing between {date(times[before])} and {date(times[behind])}"
                    f"{_between(file_at(array, axis, before), file_at(array, axis, behind))}",
                )


def _times_along(array: MasterArray, dimension: str) -> Iterator[MasterArray]:
    """Yield the coordinate that gives the time along a dimension, if there is one."""
    own = [c for c in array.coords.values() if c.dimensions == (dimension,) and is_reference_time(c.units)]
    best = [c for c in own if c.name == dimension] or [c for c in own if c.attrs.get("standard_name") == "time"]
    yield from best[:1]


def _between(one: str | None, other: str | None) -> str:
    names = [os.path.basename(f) for f in dict.fromkeys((one, other)) if f]
    return f": {', '.join(names)}" if names else ""


def file_at(array: MasterArray, axis: int, position: int) -> str | None:
    """Return a file that serves a position along a dimension, None where none does."""
    matrix = array._matrix
    cell = int(np.searchsorted(matrix.edges[axis], position, side="right")) - 1
    refs = matrix.refs.reshape(matrix.cells).take(cell, axis=axis).ravel()
    present = refs[refs >= 0]
    return matrix.references.uri_of(int(present[0])) if present.size else None


def date(time: Any) -> str:
    """Return a time as ISO text, without a time of day where that is midnight."""
    text = str(time.astype("M8[s]")) if isinstance(time, np.datetime64) else str(time.isoformat())
    return text.removesuffix("T00:00:00")


def hole_problems(array: MasterArray) -> Iterator[Problem]:
    """Yield the places of the matrix that no file covers, by coordinate values where there are coordinates."""
    matrix = array._matrix
    for cell in np.flatnonzero(matrix.refs < 0) if array.size else ():
        index = np.unravel_index(int(cell), matrix.cells)
        spans = []
        for d, (edges, i) in enumerate(zip(matrix.edges, index, strict=True)):
            if len(edges) > 2:
                spans.append(
                    f"{matrix.dimensions[d]} {_span(array, matrix.dimensions[d], int(edges[i]), int(edges[i + 1]) - 1)}"
                )
        yield Problem("hole", None, f"{array.name}: no file covers {', '.join(spans) or 'any of it'}")


def _span(array: MasterArray, dimension: str, first: int, last: int) -> str:
    """Name a range of positions by its coordinate values."""
    coordinate = array.coords.get(dimension)
    if coordinate is None or coordinate.ndim != 1:
        return f"{first}:{last + 1}"
    if is_reference_time(coordinate.units):
        ends = [date(t) for t in coordinate.datetimes([first, last])]
    else:
        ends = [f"{v:g}" if isinstance(v, float | int) else str(v) for v in coordinate[[first, last]].tolist()]
    return " to ".join(dict.fromkeys(ends))


def duplicate_problems(duplicates: Sequence[Duplicate]) -> Iterator[Problem]:
    """Yield the files that were left out because they repeat others."""
    for found in duplicates:
        yield Problem("duplicate", found.file, f"{found.array}: {found.file} repeats {found.kept} exactly and is left out")


def file_problems(arrays: Sequence[MasterArray]) -> Iterator[Problem]:
    """Yield the files that are gone or that cannot be read any more."""
    uris = dict.fromkeys(str(uri) for array in arrays for uri in array._matrix.references.uris)
    for uri in uris:
        try:
            identify(uri)
        except MissingFileError as error:
            yield Problem("missing", uri, str(error))
        except FormatError as error:
            yield Problem("unreadable", uri, str(error))
