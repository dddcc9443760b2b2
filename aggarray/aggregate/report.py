"""`Report` and `Problem`, and problems found without files: gaps, holes.

A gap is a missing step of a time axis that is otherwise regular: constant steps, or whole months, quarters or years of its
calendar. A hole is a region of the matrix that no file covers.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np

from aggarray.aggregate.differences import short_paths
from aggarray.aggregate.rules import Duplicate, Skipped
from aggarray.arrays.master import MasterArray
from aggarray.arrays.ragged import RaggedMasterArray, flat_of
from aggarray.cf.attributes import text_attribute
from aggarray.cf.units.calendars import date
from aggarray.cf.units.recognition import is_reference_time
from aggarray.dataclass import dataclass
from aggarray.errors import AggarrayError, ChangedFileError, MissingFileError, printable
from aggarray.formats import checksum, open_file
from aggarray.storage.files import resized, same_time, stat_file, state_path
from aggarray.storage.state import Stamp
from aggarray.storage.urls import is_remote

#: Maximum deviation of a step from a whole multiple of the usual step.
_SLACK = 0.01
#: Minimum fraction of steps that are whole multiples of the usual step; the others are not gaps.
_NEARLY_ALL = 0.9
#: Of fewer steps than this, one occurrence suffices for the usual step.
_FEW = 6
#: Maximum deviation of the day of monthly times: ends and middles of months vary by three days.
_DAYS_ABOUT = 3


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem found by a check.

    ``kind``: gap, hole, duplicate, ...; ``file``: the file concerned or None.
    """

    kind: str
    file: str | None
    message: str

    def __post_init__(self) -> None:
        # Messages are printed on terminals, as those of errors.
        # promise: escape-problems
        object.__setattr__(self, "message", printable(self.message))


@dataclass(frozen=True, slots=True)
class Report:
    """The outcome of a check: ``ok`` if there is no problem."""

    ok: bool
    problems: tuple[Problem, ...]


@dataclass(frozen=True, slots=True)
class Gap:
    """``count`` missing steps between positions ``after`` and ``after + 1``."""

    after: int
    count: int


def gaps(times: np.ndarray) -> list[Gap]:
    """Return the missing steps of a regular time axis.

    An irregular axis has none. ``times``: increasing, datetime64 or cftime objects of one calendar, length n. The usual step is
    the smallest one whose whole multiples nearly all others are.

    >>> gaps(np.array(["2001-01", "2001-02", "2001-05", "2001-06"], "M8[D]"))
    [Gap(after=1, count=2)]
    """
    if len(times) < 3:
        return []
    months = _months(times)
    if months is not None:
        # Times on one day of the month are regular by intent: a single usual step suffices.
        multiple = months / months.min()
        return _missing(multiple) if _fits(multiple) else []
    if times.dtype.kind == "M":
        days = np.diff(times.astype("M8[us]")).astype(np.int64) / 86_400e6
    else:
        days = np.array([(b - a).total_seconds() / 86_400 for a, b in pairwise(times)])
    ordered = np.sort(days[days > 0])
    cuts = [0, *(np.flatnonzero(np.diff(ordered) > _SLACK * ordered[1:]) + 1).tolist(), len(ordered)]
    # Of many steps, only those that are a third of all can be the usual one.
    least = 1 if len(ordered) < _FEW else len(ordered) / 3
    for step in (float(np.median(ordered[i:j])) for i, j in pairwise(cuts) if j - i >= least):
        if _fits(days / step):
            return _missing(days / step)
    return []


def _months(times: np.ndarray) -> np.ndarray | None:
    """Return steps in months of times on nearly one day a month, or None."""
    days = np.sort(_numbers(times)[1])
    # Days near the end of a month are moved to its middle, so that 31 January and 1 March are one month apart.
    shift = np.timedelta64(15 - int(days[len(days) // 2]), "D")
    moved = times.astype("M8[us]") + shift if times.dtype.kind == "M" else times + shift.item()
    months, day = _numbers(moved)
    steps = np.diff(months)
    return steps if (steps > 0).all() and (np.abs(day - 15) <= _DAYS_ABOUT).mean() >= _NEARLY_ALL else None


def _numbers(times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the month number of each time, from a year 0, and the day in it."""
    if times.dtype.kind == "M":
        months = times.astype("M8[M]")
        return months.astype(np.int64), (times.astype("M8[D]") - months.astype("M8[D]")).astype(np.int64) + 1
    return np.array([t.year * 12 + t.month for t in times], np.int64), np.array([t.day for t in times], np.int64)


def _fits(multiple: np.ndarray) -> bool:
    """Return whether nearly all steps are whole multiples."""
    nearest = np.rint(multiple)
    return bool(((nearest >= 1) & (np.abs(multiple - nearest) <= _SLACK)).mean() >= _NEARLY_ALL)


def _missing(multiple: np.ndarray) -> list[Gap]:
    """Return the gaps: steps that are several times the usual one."""
    steps = np.rint(multiple)
    longer = np.flatnonzero((steps > 1) & (np.abs(multiple - steps) <= _SLACK))
    return [Gap(int(i), int(steps[i]) - 1) for i in longer]


def gap_problems(array: MasterArray) -> Iterator[Problem]:
    """Yield gaps along time dimensions, with dates and files around each."""
    if isinstance(array, RaggedMasterArray):
        return
    for axis, dimension in enumerate(array.dimensions):
        own = [c for c in array.coords.values() if c.dimensions == (dimension,) and is_reference_time(c.units)]
        named = [c for c in own if text_attribute(c.attrs.get("standard_name")) == "time"]
        for coordinate in ([c for c in own if c.name == dimension] or named)[:1]:
            try:
                times = coordinate.datetimes()
            except AggarrayError:
                continue
            if len(times) < 3 or any(t is None or t != t for t in times[[0, -1]]):
                continue
            decreasing = bool(times[0] > times[-1])
            for gap in gaps(times[::-1] if decreasing else times):
                after = len(times) - 2 - gap.after if decreasing else gap.after
                before, behind = (after + 1, after) if decreasing else (after, after + 1)
                steps = f"{gap.count} step{'s' if gap.count > 1 else ''}"
                text = f"{steps} of {dimension} missing between {date(times[before])} and {date(times[behind])}"
                files = [file_at(array, axis, position) for position in (before, behind)]
                names = ", ".join(short_paths([file for file in dict.fromkeys(files) if file]))
                yield Problem("gap", files[0], f"{array.name}: {text}{f': {names}' if names else ''}")


def file_at(array: MasterArray, axis: int, position: int) -> str | None:
    """Return a file that serves a position along a dimension, None if missing."""
    matrix = array._matrix
    cell = int(np.searchsorted(matrix.edges[axis], position, side="right")) - 1
    refs = matrix.refs.reshape(matrix.cells).take(cell, axis=axis).ravel()
    present = refs[refs >= 0]
    return matrix.references.uri_of(int(present[0])) if present.size else None


def hole_problems(array: MasterArray) -> Iterator[Problem]:
    """Yield the uncovered regions of the matrix, by coordinate values."""
    array = flat_of(array)
    matrix = array._matrix
    if not array.size:
        return
    for box in boxes(matrix.refs.reshape(matrix.cells) < 0).tolist():
        spans = [
            f"{name} {_span(array, name, int(edges[first]), int(edges[end]) - 1)}"
            for name, edges, (first, end) in zip(matrix.dimensions, matrix.edges, box, strict=True)
            if len(edges) > 2
        ]
        yield Problem("hole", None, f"{array.name}: no file covers {', '.join(spans) or 'any of it'}")


def boxes(marked: np.ndarray) -> np.ndarray:
    """Cover the True elements of an array with boxes.

    The boxes are runs along the last dimension, then equal runs of adjacent rows. Returns int64 (boxes, dimensions, 2): start
    and end along each dimension, in the order of their first elements.

    >>> boxes(np.array([[True, True, False], [True, True, True]])).tolist()
    [[[0, 1], [0, 2]], [[1, 2], [0, 3]]]
    """
    starts = np.argwhere(marked)
    result = np.stack([starts, starts + 1], axis=-1).astype(np.int64)
    for axis in range(marked.ndim - 1, -1, -1):
        others = np.delete(result, axis, axis=1).reshape(len(result), 2 * (marked.ndim - 1))
        order = np.lexsort((result[:, axis, 0], *others.T[::-1]))
        result, others = result[order], others[order]
        follows = (others[1:] == others[:-1]).all(axis=1) & (result[1:, axis, 0] == result[:-1, axis, 1])
        first = np.concatenate([[True], ~follows])[: len(result)]
        last = np.concatenate([~follows, [True]])[: len(result)]
        ends = result[last, axis, 1]
        result = result[first]
        result[:, axis, 1] = ends
    return result[np.lexsort(result[:, ::-1, 0].T)] if marked.ndim else result


def _span(array: MasterArray, dimension: str, first: int, last: int) -> str:
    """Return a range of positions as text, by coordinate values."""
    coordinate = array.coords.get(dimension)
    if coordinate is None or coordinate.ndim != 1:
        return f"{first}:{last + 1}"
    if is_reference_time(coordinate.units):
        ends = [date(t) for t in coordinate.datetimes([first, last])]
    else:
        ends = [f"{v:g}" if isinstance(v, float | int) else str(v) for v in coordinate[[first, last]].tolist()]
    return " to ".join(dict.fromkeys(ends))


def duplicate_problems(duplicates: Sequence[Duplicate], arrays: Sequence[MasterArray]) -> Iterator[Problem]:
    """Yield the files that serve no array because they repeat others."""
    serving = {str(uri) for array in arrays for uri in array._matrix.references.uris}
    by_file: dict[str, list[Duplicate]] = defaultdict(list)
    for duplicate in duplicates:
        if duplicate.file and duplicate.file not in serving:
            by_file[duplicate.file].append(duplicate)
    for file, repeats in by_file.items():
        names, kept = (dict.fromkeys(values) for values in zip(*((d.array, d.kept) for d in repeats), strict=True))
        text = f"{file} repeats {' and '.join(kept)} exactly and is left out"
        yield Problem("duplicate", file, f"{', '.join(names)}: {text}")


def skipped_problems(skipped: Sequence[Skipped]) -> Iterator[Problem]:
    """Yield the files that could not be read at all."""
    for item in skipped:
        if item.variable is None:
            yield Problem("unreadable", item.file, f"{item.reason} ({item.file})")


def file_problems(
    arrays: Sequence[MasterArray], stamps: Mapping[str, Stamp | None], checksums: bool = False
) -> Iterator[Problem]:
    """Yield files that are missing, unreadable or changed since their stamps."""
    expected: dict[str, Stamp | None] = {}
    for references in (array._matrix.references for array in arrays):
        for code, uri in enumerate(references.uris):
            known = None if references.stamps is None else tuple(references.stamps[code].tolist())
            expected.setdefault(str(uri), stamps.get(str(uri)) if known is None or known[0] < 0 else known)
    for uri, stamp in expected.items():
        try:
            open_file(uri).close()
            change = None if stamp is None else _change(uri, stamp, checksums)
            if change is not None:
                yield Problem("changed", uri, str(ChangedFileError(change, path=uri, hint="open or append it again")))
        except MissingFileError as error:
            yield Problem("missing", uri, str(error))
        except AggarrayError as error:  # remote files raise other errors than MissingFileError
            yield Problem("unreadable", uri, str(error))


def _change(uri: str, stamp: Stamp, checksums: bool) -> str | None:
    """Return how a file has changed since its stamp, None if it has not."""
    path = state_path(uri)
    status = stat_file(path)
    change = resized(status, stamp[0])
    if change:
        return change
    if not same_time(uri, status.mtime_ns, stamp[1]):
        # Web servers give whole seconds: copies of local files are compared by checksum.
        copied = is_remote(uri) and status.mtime_ns // 10**9 == stamp[1] // 10**9
        same = (checksums or copied) and checksum(path) == stamp[2]
        if copied and same:
            return None
        kept = ", but the same bytes at its ends" if same else ""
        return f"changed since it was scanned: different modification time{kept}"
    if checksums and checksum(path) != stamp[2]:
        return "changed since it was scanned: same size and modification time, but different bytes at its ends"
    return None
