"""What can be said of an array in plain data, for people and for scripts?

`array_facts` gives what `aggarray info` prints; `conformed` lists in what the sub-arrays differ from their master, and so
what reading them changes.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from aggarray.aggregate.differences import facets_of, labels
from aggarray.aggregate.report import Report
from aggarray.arrays import MasterArray
from aggarray.arrays.ragged import RaggedMasterArray, flat_of
from aggarray.arrays.ragged_local import sample_distribution
from aggarray.cf.units import is_reference_time
from aggarray.display.markup import printable as printable
from aggarray.errors import AggarrayError, ProtocolError
from aggarray.formats.templates import text_attribute
from aggarray.maps import Distribution
from aggarray.memory import type_string
from aggarray.opening import Aggregation
from aggarray.partition.matrix import Template


@dataclass(frozen=True, slots=True)
class Conformance:
    """One way in which sub-arrays differ from their master: ``kind``, both sides in words, how many, and an example file."""

    kind: str
    found: str
    master: str
    count: int
    example: str | None


def conformed(array: MasterArray) -> list[Conformance]:
    """List the differences between the sub-arrays of an array and the array itself, most frequent first."""
    array = flat_of(array)
    references = array._matrix.references
    used = np.unique(array._matrix.refs[array._matrix.refs >= 0])
    numbers = references.template[used]
    counts: dict[tuple[str, str, str], tuple[int, str | None]] = {}
    for number in np.unique(numbers):
        rows = used[numbers == number]
        for difference in differences(references.templates[number], array):
            count, example = counts.get(difference, (0, references.uri_of(int(rows[0]))))
            counts[difference] = (count + len(rows), example)
    found = [Conformance(*difference, count, example) for difference, (count, example) in counts.items()]
    return sorted(found, key=lambda c: (-c.count, c.kind))


def differences(template: Template, array: MasterArray) -> Iterator[tuple[str, str, str]]:
    """Yield (kind, sub-array's, master's) for everything in which a template differs from its master."""
    encoding = template.encoding
    units, calendar = template.units_in(array.units, array.calendar)
    if units != array.units:
        yield "units", str(units), str(array.units)
    if calendar != array.calendar:
        yield "calendar", str(calendar), str(array.calendar)
    if [d for d in template.dimensions if d in array.dimensions] != [d for d in array.dimensions if d in template.dimensions]:
        yield "dimension order", " ".join(template.dimensions), " ".join(array.dimensions)
    for dimension in set(template.dimensions) ^ set(array.dimensions):
        here, there = ("without", "with") if dimension in array.dimensions else ("with", "without")
        yield "size-1 dimension", f"{here} {dimension}", f"{there}"
    ways = dict(zip(array.dimensions, array.directions, strict=True))
    for dimension, forward in zip(template.dimensions, template.directions, strict=True):
        if ways.get(dimension, forward) != forward:
            yield "direction", f"{dimension} {_way(forward)}", _way(not forward)
    if encoding.packed:
        scale, offset = (1 if f is None else f for f in (encoding.scale_factor, encoding.add_offset or 0))
        yield "packing", f"{encoding.viewed} x {scale:.7g} + {offset:.7g}", f"{encoding.dtype}"
    if encoding.dtype != array.dtype:
        yield "dtype", str(encoding.dtype), str(array.dtype)
    if encoding.may_miss:
        missing = ", ".join(["NaN"] * encoding.missing_nan + [_number(m) for m in encoding.missing])
        if missing != _number(array.fill_value):
            yield "missing value", missing or "outside the valid range", _number(array.fill_value)


def _number(value: Any) -> str:
    """Return a missing value as people write it."""
    if isinstance(value, str):
        return repr(value)
    return "NaN" if value != value else f"{value:g}"


def _way(forward: bool) -> str:
    return "increasing" if forward else "decreasing"


def files_of(array: MasterArray) -> list[str]:
    """Return the files that serve an array, sorted."""
    references = array._matrix.references
    codes = np.unique(references.uri[np.unique(array._matrix.refs[array._matrix.refs >= 0])])
    return sorted(str(references.uris[code]) for code in codes if code >= 0)


def time_range(array: MasterArray) -> tuple[str, str] | None:
    """Return the first and last time of an array as ISO text, None where it has no time coordinate."""
    for coordinate in array.coords.values():
        if coordinate.ndim <= 1 and is_reference_time(coordinate.units) and _is_time(coordinate, array):
            try:
                times = coordinate.datetimes().ravel()
            except AggarrayError:
                return None
            valid = [t for t in times if t is not None and not (isinstance(t, np.datetime64) and np.isnat(t))]
            return (_iso(min(valid)), _iso(max(valid))) if valid else None
    return None


def _is_time(coordinate: MasterArray, array: MasterArray) -> bool:
    name = coordinate.name or ""
    return (
        text_attribute(coordinate.attrs.get("standard_name")) == "time"
        or name in array.dimensions
        or name.rpartition("/")[2] == "time"
    )


def _iso(time: Any) -> str:
    text = str(time.astype("M8[s]")) if isinstance(time, np.datetime64) else str(time.isoformat())
    return text.removesuffix("T00:00:00")


def array_facts(array: MasterArray) -> dict[str, Any]:
    """Return what `aggarray info` says of an array, as JSON can hold it."""
    paths = files_of(array)
    return {
        "name": array.name,
        "facets": facets_of(array),
        "dimensions": list(array.dimensions),
        "shape": list(array.shape),
        "dtype": str(array.dtype),
        "type": type_string(array),
        "units": array.units,
        "calendar": array.calendar,
        "partitions": {
            "dimensions": list(array.pmdimensions),
            "shape": list(array.pmshape),
            "missing": int((array._matrix.refs < 0).sum()),
        },
        "files": len(paths),
        "subarrays": len(np.unique(array._matrix.refs[array._matrix.refs >= 0])),
        "time": list(time_range(array) or []) or None,
        "coords": list(array.coords),
        "paths": paths,
    }


def aggregation_facts(agg: Aggregation) -> list[dict[str, Any]]:
    """Return the facts of every array; ``which`` is what tells it from others of its name, "" where there is none."""
    return [{**array_facts(array), "which": which} for array, which in zip(agg, labels(agg.arrays), strict=True)]


def explanation(agg: Aggregation) -> dict[str, Any]:
    """Return what `aggarray explain` says: arrays with what is conformed, refusals, what was skipped, and problems."""
    fields = ("kind", "found", "master", "count", "example")
    arrays = [{**facts, "conformed": _rows(conformed(a), fields)} for a, facts in zip(agg, aggregation_facts(agg), strict=True)]
    return {
        "arrays": arrays,
        "refusals": _rows(agg.refusals, ("arrays", "files", "rule", "reason")),
        "skipped": _rows(agg.skipped, ("file", "variable", "reason")),
        "problems": problem_facts(agg.check()),
    }


def problem_facts(report: Report) -> list[dict[str, Any]]:
    """Return the problems of a report, as JSON can hold them."""
    return _rows(report.problems, ("kind", "file", "message"))


def file_count(agg: Aggregation) -> int:
    """Return how many files serve the arrays of an aggregation."""
    return len({str(uri) for array in agg for uri in array._matrix.references.uris})


def _rows(items: Iterable[Any], fields: tuple[str, ...]) -> list[dict[str, Any]]:
    return [{f: _plain(getattr(item, f)) for f in fields} for item in items]


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


class DistributionRequest(NamedTuple):
    """How an array is to be distributed: over a grid, 'b' or 'c' for each dimension (None: blocks), or whole partitions.

    Dimensions that are not mentioned are not divided.
    """

    grid: tuple[int, ...]
    dist: str | None = None
    block_size: int | None = None
    partitions: str | None = None


def distributed(array: MasterArray, wanted: DistributionRequest) -> Distribution:
    """Return the distribution that is wanted of an array; ProtocolError where it does not fit."""
    types = (wanted.dist or "").replace(",", "").replace(" ", "")
    if len(types) > array.ndim:
        raise ProtocolError(f"dist {wanted.dist!r} for {array.ndim} dimensions: give one letter for each at most")
    grid = (*wanted.grid, *[1] * array.ndim)[: array.ndim]
    # Rows are of different lengths: whoever does not say how gets about as many samples as others.
    whole = isinstance(array, RaggedMasterArray) and wanted.dist is None and wanted.block_size is None
    if wanted.partitions is not None or whole:
        return Distribution.from_partitions(array, grid, balance=wanted.partitions or "contiguous")
    types = types.ljust(array.ndim, "b")
    cyclic = [d for d, letter in enumerate(types) if letter == "c"]
    if wanted.block_size and not cyclic:
        raise ProtocolError(f"block_size {wanted.block_size} without a cyclic dimension: leave it out, or name one 'c' in dist")
    return Distribution.regular(array.shape, types, grid, dict.fromkeys(cyclic, wanted.block_size or 1))


def distribution_facts(array: MasterArray, wanted: DistributionRequest, version: str) -> dict[str, Any]:
    """Return what `aggarray distribute` says: the array, the process grid, and the dim_data of every rank in that version.

    ``samples``: of every rank of a ragged array the dim_data of its samples, which it exports.
    """
    found = distributed(array, wanted)
    samples = sample_distribution(found, array.offsets) if isinstance(array, RaggedMasterArray) else None
    ranks = [
        {
            "rank": rank,
            "coords": list(found.coords(rank)),
            "local_shape": list(found.local_shape(rank)),
            "dim_data": _dim_data(found, rank, version),
            **({} if samples is None else {"samples": _dim_data(samples, rank, version)}),
        }
        for rank in range(found.nprocs)
    ]
    about = {"name": array.name, "dimensions": list(array.dimensions), "shape": list(array.shape), "grid": list(found.grid)}
    return {**about, "version": version, "ranks": ranks}


def section_rows(found: dict[str, Any]) -> list[list[str]]:
    """Return a row for each rank of `distribution_facts`: what it has along each dimension, as Python would slice it."""
    shown = []
    for one in found["ranks"]:
        entries = zip(one["dim_data"], one["local_shape"], strict=True)
        shape = " x ".join(map(str, one["local_shape"])) or "scalar"
        samples = [_section(e, e.get("stop", e["size"]) - e.get("start", 0)) for e in one.get("samples", ())]
        shown.append([str(one["rank"]), *(_section(e, n) for e, n in entries), shape, *samples])
    return shown


def _dim_data(found: Distribution, rank: int, version: str) -> list[dict[str, Any]]:
    return [{k: _listed(v) for k, v in entry.items()} for entry in found.dim_data(rank, version)]


def _section(entry: dict[str, Any], extent: int) -> str:
    """Return in a few words what a dimension dictionary says."""
    kind = entry["dist_type"]
    if not extent:
        return f"{kind} nothing"
    if kind == "u":
        first = ", ".join(map(str, entry["indices"][:4]))
        return f"u {first}{', ...' if extent > 4 else ''}"
    if kind == "n":
        return f"n 0:{entry['size']}"
    if kind == "c":
        block = entry.get("block_size", 1)
        return f"c {entry['start']}::{entry['proc_grid_size'] * block}" + (f" in blocks of {block}" if block > 1 else "")
    return f"b {entry['start']}:{entry['stop']}"


def _listed(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else _plain(value)


def table(rows: list[list[Any]], head: list[str], cell: Callable[[Any], str] = printable) -> str:
    """Lay out rows under a head, columns aligned."""
    # promise: escape-tables
    cells = [[*map(printable, head)], *([cell(item) for item in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    lines = ["  ".join(item.ljust(w) for item, w in zip(row, widths, strict=True)).rstrip() for row in cells]
    return "\n".join([lines[0], "  ".join("-" * w for w in widths), *lines[1:]])
