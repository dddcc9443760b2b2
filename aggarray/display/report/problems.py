"""Problems of a page: what a check reports, with the arrays concerned."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from aggarray.aggregate.report import Problem, Report, duplicate_problems, gap_problems, hole_problems, skipped_problems
from aggarray.arrays.master import MasterArray
from aggarray.dataclass import NamedTuple
from aggarray.display.overview import arrays_by_file, refused_arrays
from aggarray.errors import AggarrayError
from aggarray.opening.aggregation import Aggregation
from aggarray.opening.fixing import fix_problems


class Entry(NamedTuple):
    """A line of the list of problems; ``arrays``: the numbers of its arrays."""

    kind: str
    text: str
    arrays: tuple[int, ...]


def array_problems(array: MasterArray) -> Iterator[Problem]:
    """Yield the problems of an array that are known without opening files."""
    for find in (gap_problems, hole_problems):
        try:
            yield from find(array)
        except AggarrayError as error:
            yield Problem("unreadable", None, f"{array.name}: {error}")


def entries(agg: Aggregation, report: Report | None) -> list[Entry]:
    """Return the problems of an aggregation, and surprising refusals.

    ``report``: the result of `agg.check()`, None = problems that are known without opening files. A refusal because of a facet
    is not surprising: such arrays are different datasets.
    """
    known: dict[Problem, list[int]] = {}
    for number, array in enumerate(agg):
        for problem in array_problems(array):
            known.setdefault(problem, []).append(number)
    problems: Sequence[Problem] = (
        report.problems
        if report
        else (
            *known,
            *duplicate_problems(agg.duplicates, agg.arrays),
            *skipped_problems(agg.skipped),
            *fix_problems(agg._provenance),
        )
    )
    refused = [r for r in agg.refusals if not agg._provenance.separates(r.rule)]
    files = {problem.file or "" for problem in problems}.union(*(refusal.files for refusal in refused))
    by_file = arrays_by_file(agg.arrays, files)
    rows = [Entry(p.kind, p.message, tuple(known.get(p) or by_file.get(p.file or "", []))) for p in problems]
    rows += [Entry(r.rule, r.reason, tuple(refused_arrays(r, agg.arrays, by_file))) for r in refused]
    return sorted(rows, key=lambda entry: _ORDER.get(entry.kind, len(_ORDER)))


#: Problems in this order come first.
_ORDER = {kind: n for n, kind in enumerate(("missing", "unreadable", "changed", "gap", "hole", "overlap", "units"))}
