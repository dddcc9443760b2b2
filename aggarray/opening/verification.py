"""Verification of assumed files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from aggarray.aggregate.report import Problem
from aggarray.arrays.master import MasterArray
from aggarray.dataclass import replace
from aggarray.errors import AggarrayError, FormatError
from aggarray.formats.base import Structure
from aggarray.opening.joining import Sources, arrays_in, join_arrays, tables_of
from aggarray.opening.provenance import Outcome, Provenance
from aggarray.partition.matrix import used_rows
from aggarray.scan.comparison import Mismatch, difference, other_variables
from aggarray.scan.files import scan_files
from aggarray.scan.resolution import resolve_references


def verified(outcome: Outcome, before: Provenance) -> tuple[Outcome, Provenance]:
    """Return an aggregation whose assumed files and templates are verified."""
    if before.records() is not None or not any(s.assumed is not None for s in before.structures()):
        return outcome._replace(arrays=tuple(map(resolve_array, outcome.arrays))), before
    structures = _verified_structures(before.structures(), outcome.arrays)
    after = replace(before, structures=lambda: structures)
    skipped = [s for s in outcome.skipped if s.variable is None]
    sources = Sources(structures, list(before.others()), skipped, tables=tables_of(outcome.arrays))
    joined = join_arrays(*arrays_in(sources, after, outcome.duplicates), after, outcome.duplicates)
    _check_kept(outcome.arrays, joined.arrays)
    return joined, after


def _verified_structures(structures: Sequence[Structure], arrays: Sequence[MasterArray]) -> list[Structure]:
    """Scan the assumed files and return verified structures.

    Raises the error of a scan, and FormatError for a file that differs from its assumed signature or lacks a variable of
    ``arrays``.
    """
    from aggarray.opening.catalogue import kept_attributes, with_given

    used: dict[str, set[str]] = defaultdict(set)  # the variables that arrays and their coordinates read, by file
    for array in (one for a in arrays for one in (a, *a.coords.values())):
        references, rows = array._matrix.references, array._matrix.refs
        rows = used_rows(rows, len(references))
        rows = rows[references.uri[rows] >= 0]
        for code, name in zip(references.uri[rows].tolist(), references.variable[rows].tolist(), strict=True):
            used[str(references.uris[code])].add(references.variables[name])
    results = {}
    for assumed, real in _scanned_again(structures):
        if isinstance(real, AggarrayError):
            raise real
        results[assumed.uri] = with_given(real, kept_attributes(assumed))
        lost = sorted(used[assumed.uri] - {v.name for v in real.variables})
        # promise: trusted-index-complete
        if lost and assumed.assumed is not None:
            mismatch = Mismatch(f"not as assumed: no such variable, unlike in {assumed.assumed.model}")
            raise FormatError(mismatch.what, path=assumed.uri, variable=lost[0], hint=mismatch.hint)
    return [results.get(s.uri, s) for s in structures]


def _check_kept(before: Sequence[MasterArray], after: Sequence[MasterArray]) -> None:
    """Raise FormatError if an array is absent after verification."""
    now = {_outline(array) for array in after}
    for array in before:
        if _outline(array) not in now:
            shapes = ", ".join(str(other.shape) for other in after if other.name == array.name) or "none"
            mismatch = Mismatch(f"{array.name}: shape {array.shape} was assumed, the files give {shapes}")
            raise FormatError(mismatch.what, hint=mismatch.hint)


def _outline(array: MasterArray) -> tuple[object, ...]:
    return array.name, array.dimensions, array.shape, array.dtype, array.units, array.calendar


def assumption_problems(structures: Sequence[Structure]) -> Iterator[Problem]:
    """Yield a problem per file that differs from its assumed signature."""
    for seen, real in _scanned_again(structures):
        text = None
        if isinstance(real, _UnlikeError):
            text = str(real)
        elif isinstance(real, Structure) and seen.assumed is not None:
            others = other_variables(real, seen.assumed, seen)
            text = None if others is None else str(_UnlikeError(others.what, path=seen.uri, hint=others.hint))
        if text is not None:
            yield Problem("unreadable", seen.uri, text)


class _UnlikeError(FormatError):
    """A file that differs from its assumed signature."""


def _scanned_again(structures: Sequence[Structure]) -> Iterator[tuple[Structure, Structure | AggarrayError]]:
    unverified = [s for s in structures if s.assumed is not None]
    scanned = scan_files([s.uri for s in unverified]) if unverified else []
    for assumed, (uri, real) in zip(unverified, scanned, strict=True):
        if isinstance(real, Structure) and assumed.assumed is not None:
            mismatch = difference(real, assumed.assumed, assumed)
            if mismatch is not None:
                yield assumed, _UnlikeError(mismatch.what, path=uri, hint=mismatch.hint)
                continue
        yield assumed, real


def resolve_array(array: MasterArray) -> MasterArray:
    """Return an array with verified templates, coordinates included."""
    one = _resolved(array)
    coords = {name: _resolved(c) for name, c in array.coords.items()}
    return one if all(c is array.coords[n] for n, c in coords.items()) else replace(one, coords=coords)


def _resolved(array: MasterArray) -> MasterArray:
    if not any(t.assumed is not None for t in array._matrix.references.templates):
        return array
    step: Any = array._step
    return replace(array, _matrix=resolve_references(array._matrix, None, step, array._access))
