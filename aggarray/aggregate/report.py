"""`Report` and `Problem`, and problems found without files: gaps, holes.

A gap is a missing step of a time axis (`gaps`), a hole a region of the matrix that no file covers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing

import numpy as np

from aggarray.aggregate.differences import short_paths
from aggarray.aggregate.gaps import time_gaps
from aggarray.aggregate.rules import Duplicate, Skipped
from aggarray.arrays.master import MasterArray
from aggarray.arrays.ragged import flat_of
from aggarray.cf.attributes import LEAD, REFERENCE
from aggarray.cf.units import is_reference_time
from aggarray.cf.units.calendars import date
from aggarray.dataclass import dataclass
from aggarray.errors import AggarrayError, ChangedFileError, MissingFileError, printable, without_credentials
from aggarray.formats import checksum, open_file
from aggarray.partition.file_names import paths_among
from aggarray.partition.matrix import Matrix, References
from aggarray.storage.files import resized, same_time, stat_file, state_path
from aggarray.storage.state import Stamp
from aggarray.storage.urls import is_remote


@dataclass(frozen=True, slots=True, repr=False)
class Problem:
    """One problem found by a check.

    ``kind``: gap, hole, duplicate, ...; ``file``: the file concerned or None; ``files``: all files with the same fault of their
    layout; ``remedy``: a line of the shell that mends the first of them, or the array; ``remedies``: such a line for each file
    that one can mend.
    """

    kind: str
    file: str | None
    message: str
    files: tuple[str, ...] = ()
    remedies: tuple[str, ...] = ()

    @property
    def remedy(self) -> str | None:
        """The first of `remedies`, None without any."""
        return self.remedies[0] if self.remedies else None

    def __post_init__(self) -> None:
        # Messages are printed on terminals, as those of errors.
        # promise: escape-problems
        object.__setattr__(self, "message", printable(self.message))
        object.__setattr__(self, "remedies", tuple(line for line in self.remedies if printable(line) == line))

    def __repr__(self) -> str:
        more = f", files={self.files!r}, remedy={self.remedy!r}" if self.files or self.remedy else ""
        return without_credentials(f"Problem(kind={self.kind!r}, file={self.file!r}, message={self.message!r}{more})")


@dataclass(frozen=True, slots=True, repr=False)
class Report:
    """The outcome of a check: ``ok`` if there is no problem."""

    ok: bool
    problems: tuple[Problem, ...]

    def __repr__(self) -> str:
        # The problems of a check print as a table.
        return f"Report: {repr(self.problems) if self.problems else 'no problems'}"


def gap_problems(array: MasterArray) -> Iterator[Problem]:
    """Yield gaps along time dimensions, with dates and files around each."""
    for along in time_gaps(array):
        axis, times = array.dimensions.index(along.dimension), along.times
        for gap in along.gaps:
            before, behind = sorted((gap.after, gap.after + 1), key=lambda position: times[position])
            steps = f"{gap.count} step{'s' if gap.count > 1 else ''}"
            text = f"{steps} of {along.dimension} missing between {date(times[before])} and {date(times[behind])}"
            files = [file_at(array, axis, position) for position in (before, behind)]
            names = ", ".join(short_paths([file for file in dict.fromkeys(files) if file]))
            stated = f" ({along.stated})" if along.stated else ""
            yield Problem("gap", files[0], f"{array.name}: {text}{stated}{f': {names}' if names else ''}")


def file_at(array: MasterArray, axis: int, position: int) -> str | None:
    """Return a file that serves a position along a dimension, None if missing."""
    matrix = array._matrix
    cell = int(np.searchsorted(matrix.edges[axis], position, side="right")) - 1
    refs = matrix.refs.reshape(matrix.cells).take(cell, axis=axis).ravel()
    present = refs[refs >= 0]
    return matrix.references.uri_of(int(present[0])) if present.size else None


def hole_problems(array: MasterArray) -> Iterator[Problem]:
    """Yield uncovered regions of the matrix, with values and a nearby file."""
    array = flat_of(array)
    matrix = array._matrix
    if not array.size:
        return
    missing = matrix.refs.reshape(matrix.cells) < 0
    if {REFERENCE, LEAD} <= set(matrix.dimensions):
        rest = tuple(axis for axis, d in enumerate(matrix.dimensions) if d not in (REFERENCE, LEAD))
        fields = np.asarray(missing.all(axis=rest, keepdims=True))
        yield from _lead_problems(array, fields.squeeze(rest))
        missing = missing & ~fields
    for box in boxes(missing).tolist():
        spans = [
            f"{name} {_span(array, name, int(edges[first]), int(edges[end]) - 1)}"
            for name, edges, (first, end) in zip(matrix.dimensions, matrix.edges, box, strict=True)
            if len(edges) > 2
        ]
        beside = _file_beside(matrix, box)
        names = f", beside {short_paths([beside])[0]}" if beside else ""
        yield Problem("hole", None, f"{array.name}: no file covers {', '.join(spans) or 'any of it'}{names}")


def _lead_problems(array: MasterArray, missing: np.ndarray) -> Iterator[Problem]:
    """Yield the leads that runs lack, once for all runs that lack the same.

    ``missing``: bool, per cell of the matrix along reference time and lead, in the order of the array.
    """
    names = [d for d in array.dimensions if d in (REFERENCE, LEAD)]
    for axis, name in enumerate(names):
        missing = np.repeat(missing, np.diff(array._matrix.edges[array.dimensions.index(name)]), axis)
    missing = missing if names == [REFERENCE, LEAD] else missing.T
    groups: dict[bytes, list[int]] = defaultdict(list)
    for row in np.flatnonzero(missing.any(axis=1)).tolist():
        groups[missing[row].tobytes()].append(row)
    for rows in groups.values():
        leads = [_span(array, LEAD, first, end - 1) for ((first, end),) in boxes(missing[rows[0]]).tolist()]
        runs = _span(array, REFERENCE, rows[0], rows[-1])
        runs = f"the run {runs}" if len(rows) == 1 else f"{len(rows)} of {len(missing)} runs, {runs}"
        yield Problem("hole", None, f"{array.name}: no file covers {LEAD} {', '.join(leads)} in {runs}")


def _file_beside(matrix: Matrix, box: Sequence[tuple[int, int]]) -> str | None:
    """Return the file of a cell next to a box of cells, None without."""
    refs, start = matrix.refs.reshape(matrix.cells), [first for first, _ in box]
    for axis, (first, end) in enumerate(box):
        for cell in (first - 1, end):
            if 0 <= cell < matrix.cells[axis] and (ref := int(refs[(*start[:axis], cell, *start[axis + 1 :])])) >= 0:
                return matrix.references.uri_of(ref)
    return None


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
    serving = paths_among((array._matrix.references for array in arrays), {d.file for d in duplicates})
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
    arrays: Sequence[MasterArray], stamps: Mapping[str, Stamp | None], checksums: bool = False, others: Iterable[str] = ()
) -> Iterator[Problem]:
    """Yield files that are missing, unreadable or changed since their stamps.

    ``others``: files of which the arrays may have no sub-array.
    """
    expected: dict[str, Stamp | None] = {}
    tables = [array._matrix.references for array in arrays]
    for references in tables:
        for code, uri in enumerate(references.uris):
            known = None if references.stamps is None else tuple(references.stamps[code].tolist())
            expected.setdefault(str(uri), stamps.get(str(uri)) if known is None or known[0] < 0 else known)
    for uri in others:
        expected.setdefault(uri, stamps.get(uri))
    external = _external_variables(tables)
    for uri, stamp in expected.items():
        variables = external.get(uri, {})
        of = "".join(f" (a source of {virtual})" for virtual in dict.fromkeys(variables.values()))
        try:
            _check_file(uri, variables)
            change = None if stamp is None else _change(uri, stamp, checksums)
            if variables and stamp is None:
                change = "did not exist when it was scanned"
            if change is not None:
                yield Problem("changed", uri, str(ChangedFileError(change + of, path=uri, hint="open or append it again")))
        except MissingFileError as error:
            yield Problem("missing", uri, f"{error}{of}")
        except AggarrayError as error:  # remote files raise other errors than MissingFileError
            yield Problem("unreadable", uri, f"{error}{of}")


def _external_variables(tables: Iterable[References]) -> dict[str, dict[str, str]]:
    """Return the virtual dataset of each source variable, by file and name."""
    external: dict[str, dict[str, str]] = defaultdict(dict)
    for references in tables:
        for row, code, name in [] if references.external is None else references.external.tolist():
            virtual = f"{references.variables[references.variable[row]]} in {references.uri_of(row)}"
            external[str(references.uris[code])][references.variables[name]] = virtual
    return external


def _check_file(uri: str, variables: Iterable[str]) -> None:
    """Raise an error for a file that does not open, or lacks a variable."""
    named = [name for name in variables if name]
    if variables and not named:
        stat_file(uri)  # plain bytes
        return
    with closing(open_file(uri)) as handle:
        for name in named:
            handle.chunks(name)


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
