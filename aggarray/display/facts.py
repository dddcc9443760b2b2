"""Facts of arrays and aggregations as plain data, for text or JSON.

`array_facts` returns the data of `aggarray info`; `conformed` lists the differences between sub-arrays and their master, which
reading converts.
"""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from aggarray.aggregate.differences import facets_of, labels
from aggarray.aggregate.report import Report, date
from aggarray.arrays.master import MasterArray
from aggarray.arrays.ragged import RaggedMasterArray, flat_of
from aggarray.arrays.ragged_local import sample_distribution
from aggarray.cf.units.recognition import is_reference_time
from aggarray.display.markup import printable as printable
from aggarray.display.markup import sizes as sizes
from aggarray.errors import AggarrayError, ProtocolError
from aggarray.formats.templates import text_attribute
from aggarray.maps import Distribution
from aggarray.memory import type_string
from aggarray.opening.aggregation import Aggregation
from aggarray.partition.matrix import Template


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
    conformances = [Conformance(*difference, count, example) for difference, (count, example) in counts.items()]
    return sorted(conformances, key=lambda c: (-c.count, c.kind))


def differences(template: Template, array: MasterArray) -> Iterator[tuple[str, str, str]]:
    """Yield (kind, value, master's value) per difference of a template."""
    encoding = template.encoding
    units, calendar = template.units_in(array.units, array.calendar)
    if units != array.units:
        yield "units", str(units), str(array.units)
    if calendar != array.calendar:
        yield "calendar", str(calendar), str(array.calendar)
    if [d for d in template.dimensions if d in array.dimensions] != [d for d in array.dimensions if d in template.dimensions]:
        yield "dimension order", " ".join(template.dimensions), " ".join(array.dimensions)
    for dimension in set(template.dimensions) ^ set(array.dimensions):
        in_file, in_array = ("without", "with") if dimension in array.dimensions else ("with", "without")
        yield "size-1 dimension", f"{in_file} {dimension}", f"{in_array}"
    directions = dict(zip(array.dimensions, array.directions, strict=True))
    names = {True: "increasing", False: "decreasing"}
    for dimension, forward in zip(template.dimensions, template.directions, strict=True):
        if directions.get(dimension, forward) != forward:
            yield "direction", f"{dimension} {names[forward]}", names[not forward]
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
    if isinstance(value, str):
        return repr(value)
    return "NaN" if value != value else f"{value:g}"


def files_of(array: MasterArray) -> list[str]:
    """Return the files of an array, sorted."""
    references = array._matrix.references
    codes = np.unique(references.uri[np.unique(array._matrix.refs[array._matrix.refs >= 0])])
    return sorted(str(references.uris[code]) for code in codes if code >= 0)


def time_range(array: MasterArray) -> tuple[str, str] | None:
    """Return the first and last time as ISO text, None without times."""
    for coordinate in array.coords.values():
        name, standard_name = coordinate.name or "", text_attribute(coordinate.attrs.get("standard_name"))
        is_time = standard_name == "time" or name in array.dimensions or name.rpartition("/")[2] == "time"
        if is_time and coordinate.ndim <= 1 and is_reference_time(coordinate.units):
            try:
                times = coordinate.datetimes().ravel()
            except AggarrayError:
                return None
            valid = [t for t in times if t is not None and not (isinstance(t, np.datetime64) and np.isnat(t))]
            return (date(min(valid)), date(max(valid))) if valid else None
    return None


def array_facts(array: MasterArray) -> dict[str, Any]:
    """Return the data of `aggarray info` for an array, for JSON."""
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
    """Return the facts of every array; ``which`` distinguishes equal names."""
    return [{**array_facts(array), "which": which} for array, which in zip(agg, labels(agg.arrays), strict=True)]


def explanation(agg: Aggregation) -> dict[str, Any]:
    """Return the data of `aggarray explain`."""
    pairs = zip(agg, aggregation_facts(agg), strict=True)
    arrays = [{**facts, "conformed": [asdict(c) for c in conformed(array)]} for array, facts in pairs]
    return {
        "arrays": arrays,
        "refusals": _rows(agg.refusals, ("arrays", "files", "rule", "reason")),
        "skipped": _rows(agg.skipped, ("file", "variable", "reason")),
        "problems": problem_facts(agg.check()),
    }


def problem_facts(report: Report) -> list[dict[str, Any]]:
    """Return the problems of a report, for JSON."""
    return _rows(report.problems, ("kind", "file", "message"))


def file_count(agg: Aggregation) -> int:
    """Return the number of files of an aggregation."""
    return len({str(uri) for array in agg for uri in array._matrix.references.uris})


def _rows(items: Iterable[Any], fields: tuple[str, ...]) -> list[dict[str, Any]]:
    return [{f: _listed(getattr(item, f)) for f in fields} for item in items]


def make_distribution(
    array: MasterArray, grid: tuple[int, ...], dist: str | None, block_size: int | None, partitions: str | None
) -> Distribution:
    """Return a distribution of an array; ProtocolError if it does not fit.

    ``dist``: 'b' or 'c' for each dimension, None: blocks; ``partitions``: how to distribute whole partitions instead.
    Dimensions that ``grid`` and ``dist`` do not mention are not divided.
    """
    types = (dist or "").replace(",", "").replace(" ", "")
    if len(types) > array.ndim:
        what = f"dist {dist!r} has {len(types)} letters for {array.ndim} dimensions"
        raise ProtocolError(what, hint="give at most one letter per dimension")
    grid = (*grid, *[1] * array.ndim)[: array.ndim]
    # By default, rows of different lengths are balanced by samples.
    if partitions is not None or (isinstance(array, RaggedMasterArray) and dist is None and block_size is None):
        return Distribution.from_partitions(array, grid, balance=partitions or "contiguous")
    types = types.ljust(array.ndim, "b")
    cyclic = [d for d, letter in enumerate(types) if letter == "c"]
    if block_size and not cyclic:
        what = f"block_size {block_size} without a cyclic dimension"
        raise ProtocolError(what, hint="leave it out, or give a 'c' in dist")
    return Distribution.regular(array.shape, types, grid, dict.fromkeys(cyclic, block_size or 1))


def distribution_facts(array: MasterArray, distribution: Distribution, version: str) -> dict[str, Any]:
    """Return the data of `aggarray distribute` for a protocol version.

    ``samples``: the dim_data of the samples of a ragged array, which every rank exports.
    """
    samples = sample_distribution(distribution, array.offsets) if isinstance(array, RaggedMasterArray) else None
    ranks = [
        {
            "rank": rank,
            "coords": list(distribution.coords(rank)),
            "local_shape": list(distribution.local_shape(rank)),
            "dim_data": _dim_data(distribution, rank, version),
            **({} if samples is None else {"samples": _dim_data(samples, rank, version)}),
        }
        for rank in range(distribution.nprocs)
    ]
    head = {"name": array.name, "dimensions": list(array.dimensions), "shape": list(array.shape)}
    return {**head, "grid": list(distribution.grid), "version": version, "ranks": ranks}


def section_rows(facts: dict[str, Any]) -> list[list[str]]:
    """Return the section of each rank of `distribution_facts` as slices."""
    rows = []
    for rank in facts["ranks"]:
        entries = zip(rank["dim_data"], rank["local_shape"], strict=True)
        shape = " x ".join(map(str, rank["local_shape"])) or "scalar"
        samples = [_section(e, e.get("stop", e["size"]) - e.get("start", 0)) for e in rank.get("samples", ())]
        rows.append([str(rank["rank"]), *(_section(e, n) for e, n in entries), shape, *samples])
    return rows


def _dim_data(distribution: Distribution, rank: int, version: str) -> list[dict[str, Any]]:
    return [{k: _listed(v) for k, v in entry.items()} for entry in distribution.dim_data(rank, version)]


def _section(entry: dict[str, Any], extent: int) -> str:
    """Return a dimension dictionary in the notation of slices."""
    dist_type = entry["dist_type"]
    if not extent:
        return f"{dist_type} nothing"
    if dist_type == "u":
        first = ", ".join(map(str, entry["indices"][:4]))
        return f"u {first}{', ...' if extent > 4 else ''}"
    if dist_type == "n":
        return f"n 0:{entry['size']}"
    if dist_type == "c":
        block = entry.get("block_size", 1)
        return f"c {entry['start']}::{entry['proc_grid_size'] * block}" + (f" in blocks of {block}" if block > 1 else "")
    return f"b {entry['start']}:{entry['stop']}"


def _listed(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else list(value) if isinstance(value, tuple) else value


def table(rows: list[list[Any]], head: list[str]) -> str:
    """Return rows under a head as text with aligned columns."""
    # promise: escape-tables
    cells = [[printable(item) for item in row] for row in (head, *rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    lines = ["  ".join(item.ljust(w) for item, w in zip(row, widths, strict=True)).rstrip() for row in cells]
    return "\n".join([lines[0], "  ".join("-" * w for w in widths), *lines[1:]])
