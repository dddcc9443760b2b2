"""Validation of the exports of one or all processes.

Each fault states its process, dimension, key, value and rule.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice, product
from math import prod
from typing import Any

import numpy as np

from aggarray.dataclass import NamedTuple
from aggarray.errors import ProtocolError
from aggarray.maps.base import Map, MapType, Part
from aggarray.maps.dim_data import FaultList, Parsed, parse_dim_data, read_export
from aggarray.maps.fields import as_sizes, short_repr
from aggarray.maps.partial import MAX_PROCESSES


class _Axis(NamedTuple):
    """Parts of a dimension by rank, and the first process that exports each."""

    map_type: type[MapType]
    parts: list[Part | None]
    processes: list[int]


def validate(export: Any) -> None:
    """Check the export of one process (DAP, sections 1.5 and 1.6).

    ``export``: an object with ``__distarray__``, or its dictionary. Raises ProtocolError, which lists every fault (one line
    each in ``faults``).

    >>> validate({"__version__": "0.10.0", "buffer": b"abc", "dim_data": ({},)})
    >>> validate({"__version__": "0.10.0", "buffer": b"abc", "dim_data": {}})
    Traceback (most recent call last):
    aggarray.errors.ProtocolError: 'dim_data': must be a tuple of dictionaries, not dict; ...
    """
    faults = FaultList()
    read_export(export, faults)
    faults.raise_any()


def validate_all(exports: Sequence[Any]) -> None:
    """Check the export of each process, and that they are consistent.

    ``exports``: one per process, by rank. Raises ProtocolError, which lists every fault.
    """
    faults = FaultList()
    items = as_list(exports, "exports")
    parsed_exports = [read_export(item, faults, process) for process, item in enumerate(items)]
    versions = {e.version for e in parsed_exports if e is not None}
    if len(versions) > 1:
        first = {e.version: process for process, e in reversed(list(enumerate(parsed_exports))) if e is not None}
        ranks = ", ".join(f"{version} on process {first[version]}" for version in sorted(first))
        faults.note(None)("__version__", None, f"must be the same on all processes: {ranks}")
    elif versions:
        _combine([None if e is None else e.parts for e in parsed_exports], versions.pop(), faults)
    faults.raise_any()


def maps_of_all(dim_data: Sequence[Any], version: str, shapes: Sequence[Sequence[int]] | None) -> tuple[Map, ...]:
    """Return one map per dimension from the dim_data of all processes.

    Raises ProtocolError, which lists every fault.
    """
    faults = FaultList()
    items = as_list(dim_data, "dim_data of every rank")
    sizes = None if shapes is None else [as_sizes(one, "shape") for one in as_list(shapes, "shapes")]
    if sizes is not None and len(sizes) != len(items):
        raise ProtocolError(f"{len(sizes)} shapes for {len(items)} processes", hint="give one shape per process")
    parsed_dim_data: list[tuple[Parsed, ...] | None] = []
    for process, one in enumerate(items):
        parsed = parse_dim_data(one, version, None if sizes is None else sizes[process], faults, process)
        parsed_dim_data.append(parsed if isinstance(one, tuple) else None)
    axes = _combine(parsed_dim_data, version, faults)
    faults.raise_any()
    # Valid differences between processes of one rank, which no map expresses.
    for process, parts in enumerate(parsed_dim_data):
        for d, (own, axis) in enumerate(zip(parts or (), axes, strict=True)):
            first = None if own is None else axis.parts[own[1].rank]
            if own is None or first is None:
                continue
            expected = first.rank_variables()
            for key, value in own[1].rank_variables().items():
                if value != expected[key]:
                    rule = f"process {axis.processes[first.rank]} has {expected[key]}: one map cannot express both"
                    faults.note(process, d)(key, value, rule)
    faults.raise_any()
    return tuple(axis.map_type.from_parts([p for p in axis.parts if p is not None]) for axis in axes)


def as_list(items: Any, what: str) -> list[Any]:
    """Return a list of items, one per process; raise ProtocolError if empty."""
    try:
        if isinstance(items, Mapping | str | bytes):
            raise TypeError
        # The iterable may be infinite.
        items_ = list(islice(items, MAX_PROCESSES + 1))
    except TypeError as error:
        raise ProtocolError(f"{what}: not a list", hint="give a list with one item per process, by rank") from error
    if len(items_) > MAX_PROCESSES:
        raise ProtocolError(f"{what}: {short_repr(items)} has more items than the limit of {MAX_PROCESSES} processes")
    if not items_:
        raise ProtocolError(f"{what}: empty", hint="give the item of at least one process")
    return items_


def _combine(exports: Sequence[tuple[Parsed, ...] | None], version: str, faults: FaultList) -> list[_Axis]:
    """Record conflicts between processes; return the axes of a valid grid."""
    counts = {len(parts) for parts in exports if parts is not None}
    if len(counts) > 1:
        ranks = {len(parts): process for process, parts in reversed(list(enumerate(exports))) if parts is not None}
        lengths = ", ".join(f"{n} on process {p}" for n, p in sorted(ranks.items()))
        faults.note(None)("dim_data", None, f"must have the same length on all processes: {lengths}")
    if len(counts) != 1:
        return []
    columns = [[None if parts is None else parts[d] for parts in exports] for d in range(counts.pop())]
    comparable = [_constants(column, faults, d) for d, column in enumerate(columns)]
    grid = [parsed[1].nprocs for column in columns if (parsed := next(filter(None, column), None)) is not None]
    if len(grid) < len(columns):
        return []
    if prod(grid) != len(exports):
        faults.note(None)("proc_grid_size", tuple(grid), f"a grid of {prod(grid)} processes, but there are {len(exports)}")
        return []
    axes = []
    for d, column in enumerate(columns):
        axis = _axis(column, grid, d, faults)
        if axis is None or not comparable[d]:
            continue
        axes.append(axis)
        for conflict in axis.map_type.conflicts(axis.parts, version):
            faults.note(axis.processes[conflict.rank], d)(conflict.key, conflict.value, conflict.rule)
    return axes


def _constants(column: Sequence[Parsed], faults: FaultList, d: int) -> bool:
    """Record constants that differ; return whether all have one map type."""
    comparable = True
    first: tuple[int, type[MapType], Part] | None = None
    for process, parsed in enumerate(column):
        if parsed is None:
            continue
        map_type, part = parsed
        first = first or (process, map_type, part)
        if map_type is not first[1]:
            faults.note(process, d)("dist_type", map_type.letter, f"process {first[0]} has {first[1].letter!r}")
            comparable = False
            continue
        expected = first[2].constants()
        for key, value in part.constants().items():
            if value != expected[key]:
                faults.note(process, d)(key, value, f"process {first[0]} has {expected[key]!r}")
    return comparable


def _axis(column: Sequence[Parsed], grid: Sequence[int], d: int, faults: FaultList) -> _Axis | None:
    """Return the parts of a dimension; record wrong ranks and conflicts."""
    parts: list[Part | None] = [None] * grid[d]
    processes = [0] * grid[d]
    map_type: type[MapType] | None = None
    for process, (coords, parsed) in enumerate(zip(product(*map(range, grid)), column, strict=True)):
        if parsed is None:
            continue
        coordinate, part = coords[d], parsed[1]
        map_type = map_type or parsed[0]
        if part.rank != coordinate:
            rule = f"must be {coordinate}: ranks are in C order over a grid of {short_repr(tuple(grid))}"
            faults.note(process, d)("proc_grid_rank", part.rank, rule)
            continue
        first = parts[coordinate]
        if first is None:
            parts[coordinate], processes[coordinate] = part, process
            continue
        expected = first.rank_constants() if type(first) is type(part) else {}
        for key, value in part.rank_constants().items():
            if key in expected and not np.array_equal(value, expected[key]):
                rule = f"process {processes[coordinate]}, of the same proc_grid_rank, has {short_repr(expected[key])}"
                faults.note(process, d)(key, value, rule)
    return None if map_type is None else _Axis(map_type, parts, processes)
