"""Facts of arrays and aggregations as plain data, for text or JSON.

`array_facts` returns the data of `aggarray info`; `conformed` lists the differences between sub-arrays and their master, which
reading converts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from aggarray.cf.attributes import text_attribute
from aggarray.cf.units import is_reference_time
from aggarray.dataclass import dataclass
from aggarray.display.markup import printable as printable
from aggarray.display.markup import sizes as sizes
from aggarray.errors import AggarrayError
from aggarray.partition.file_names import count_files, file_codes, files_at, used_files
from aggarray.partition.file_names import file_count as files_in
from aggarray.partition.matrix import Matrix, used_rows

if TYPE_CHECKING:
    from aggarray.aggregate.report import Report
    from aggarray.arrays.master import MasterArray
    from aggarray.opening.aggregation import Aggregation


#: Differences of which pictures mark the cells: values, their order or their precision are not those of the file.
MATTERS = frozenset({"units", "calendar", "direction", "dimension order", "dtype"})


@dataclass(frozen=True, slots=True)
class Conformance:
    """Difference between sub-arrays and their master, with an example file."""

    kind: str
    found: str
    master: str
    count: int
    example: str | None


def conformed(array: MasterArray) -> list[Conformance]:
    """Return differences of sub-arrays from an array, most frequent first."""
    from aggarray.arrays.conversions import differences
    from aggarray.arrays.ragged import flat_of

    array = flat_of(array)
    references = array._matrix.references
    used = used_subarrays(array._matrix)
    numbers = references.template[used]
    counts: dict[tuple[str, str, str], tuple[int, str | None]] = {}
    for number in used_rows(numbers, len(references.templates)).tolist():
        rows = used[numbers == number]
        for difference in differences(references.templates[number], array):
            count, example = counts.get(difference, (0, references.uri_of(int(rows[0]))))
            counts[difference] = (count + len(rows), example)
    conformances = [Conformance(*difference, count, example) for difference, (count, example) in counts.items()]
    return sorted(conformances, key=lambda c: (-c.count, c.kind))


def used_subarrays(matrix: Matrix) -> np.ndarray:
    """Return the rows of the sub-arrays that a matrix uses."""
    return np.flatnonzero(matrix.used)


def files_of(array: MasterArray) -> list[str]:
    """Return the files of an array, sorted."""
    return sorted(files_at(array._matrix.references.uris, file_codes(array._matrix)))


def time_range(array: MasterArray) -> tuple[str, str] | None:
    """Return the first and last time as ISO text, None without times."""
    for coordinate in array.coords.values():
        name, standard_name = coordinate.name or "", text_attribute(coordinate.attrs.get("standard_name"))
        is_time = standard_name == "time" or name in array.dimensions or name.rpartition("/")[2] == "time"
        if is_time and coordinate.ndim <= 1 and is_reference_time(coordinate.units):
            try:
                times = coordinate._time_extent()
            except AggarrayError:
                return None
            from aggarray.cf.units.calendars import date

            if times.dtype.kind == "M":
                times = times[~np.isnat(times)]
                return (date(times.min()), date(times.max())) if len(times) else None
            valid = [t for t in times if t is not None and not (isinstance(t, np.datetime64) and np.isnat(t))]
            return (date(min(valid)), date(max(valid))) if valid else None
    return None


def array_facts(array: MasterArray, with_time: bool = True, with_paths: bool = True) -> dict[str, Any]:
    """Return the data of `aggarray info` for an array, for JSON.

    ``with_time``: decode the times, which takes longest; ``with_paths``: list the files, of which there may be millions.
    """
    from aggarray.aggregate.differences import facets_of

    return {
        "name": array.name,
        "facets": facets_of(array),
        "dimensions": list(array.dimensions),
        "shape": list(array.shape),
        "dtype": str(array.dtype),
        "type": str(array.__datashape__()),
        "units": array.units,
        "calendar": array.calendar,
        "partitions": {
            "dimensions": list(array.pmdimensions),
            "shape": list(array.pmshape),
            "missing": int((array._matrix.refs < 0).sum()),
        },
        "files": files_in(array._matrix),
        "bytes": array.nbytes,
        "subarrays": int(array._matrix.used.sum()),
        "time": (list(time_range(array) or []) or None) if with_time else None,
        "coords": list(array.coords),
        **({"paths": files_of(array)} if with_paths else {}),
    }


def aggregation_facts(agg: Aggregation, with_paths: bool = True) -> list[dict[str, Any]]:
    """Return the facts of every array; ``which`` distinguishes equal names."""
    from aggarray.aggregate.differences import labels

    pairs = zip(agg, labels(agg.arrays), strict=True)
    return [{**array_facts(array, with_paths=with_paths), "which": which} for array, which in pairs]


def explanation(agg: Aggregation, report: Report) -> dict[str, Any]:
    """Return the data of `aggarray explain`; ``report``: of its check."""
    pairs = zip(agg, aggregation_facts(agg), strict=True)
    arrays = [{**facts, "conformed": [asdict(c) for c in conformed(array)]} for array, facts in pairs]
    return {
        "arrays": arrays,
        "refusals": _rows(agg.refusals, ("arrays", "files", "rule", "reason")),
        "skipped": _rows(agg.skipped, ("file", "variable", "reason")),
        "fixes": _fixes(agg),
        "problems": problem_facts(report),
    }


def _fixes(agg: Aggregation) -> list[Any]:
    if not agg.fixes:
        return []
    from aggarray.scan.repairs import match_counts

    counts = match_counts(agg._provenance.structures(), agg.fixes)
    return [{**fix.plain(), "files": count} for fix, count in zip(agg.fixes, counts, strict=True)]


def problem_facts(report: Report) -> list[dict[str, Any]]:
    """Return the problems of a report, for JSON."""
    rows = _rows(report.problems, ("kind", "file", "message"))
    for row, problem in zip(rows, report.problems, strict=True):
        remedies = {"remedy": problem.remedy, "remedies": list(problem.remedies)}
        row |= {"files": list(problem.files), **remedies} if problem.files else {}
    return rows


def file_count(agg: Aggregation) -> int:
    """Return the number of files of an aggregation."""
    return count_files((array._matrix.references, used_files(array._matrix)) for array in agg)


def _rows(items: Iterable[Any], fields: tuple[str, ...]) -> list[dict[str, Any]]:
    return [{f: listed(getattr(item, f)) for f in fields} for item in items]


def listed(value: Any) -> Any:
    """Return an array or tuple as a list, for JSON."""
    return value.tolist() if isinstance(value, np.ndarray) else list(value) if isinstance(value, tuple) else value
