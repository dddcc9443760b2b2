"""Parsing and conversion of what one process exports, in both versions.

Exports are untrusted. {} and 'n' are expanded to blocks over one process. The distribution type parses each dictionary into a
part, from which a map of the known process is built; that map writes the other version.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from aggarray.dataclass import NamedTuple, dataclass, field
from aggarray.errors import AggarrayError, ProtocolError
from aggarray.maps.base import Map, MapType, Part
from aggarray.maps.fields import NEWEST, OLD, DimDictReader, Note, as_integer, as_sizes, buffer_of, short_repr, version_of
from aggarray.maps.partial import Partial

#: The type and the part of a valid dictionary, None for an invalid one.
Parsed = tuple[type[MapType], Part] | None


@functools.cache
def map_types() -> Mapping[str, type[MapType]]:
    """Return the map classes, ``MAP`` of each module, by ``dist_type``.

    >>> sorted(map_types())
    ['b', 'c', 'u']
    """
    package = __name__.rpartition(".")[0]
    names = sorted(info.name for info in pkgutil.iter_modules([str(Path(__file__).parent)]))
    classes = (getattr(importlib.import_module(f"{package}.{name}"), "MAP", None) for name in names)
    return {cls.letter: cls for cls in classes if isinstance(cls, type) and issubclass(cls, MapType)}


@dataclass(slots=True)
class FaultList:
    """The faults found so far, one line each."""

    lines: list[str] = field(default_factory=list)

    def note(self, process: int | None, dimension: int | None = None) -> Note:
        """Return a function that records faults of a process in a dimension."""

        def add(key: str | None, value: Any, rule: str) -> None:
            labels = [f"process {process}"] if process is not None else []
            labels += [f"dimension {dimension}"] if dimension is not None else []
            if key is not None:
                labels.append(f"{key!r}" if value is None else f"{key!r} = {short_repr(value)}")
            self.lines.append(f"{', '.join(labels)}: {rule}" if labels else rule)

        return add

    def raise_any(self) -> None:
        """Raise ProtocolError with all faults, if there are any."""
        if self.lines:
            raise ProtocolError("; ".join(self.lines), faults=self.lines)


def parse_dim_data(
    dim_data: Any, version: str | None, shape: Sequence[int] | None, faults: FaultList, process: int | None
) -> tuple[Parsed, ...]:
    """Parse the dim_data of a process and note every fault.

    ``version``: None where unknown: the dictionaries are not parsed; ``shape``: that of the buffer, None where unknown.
    """
    note = faults.note(process)
    entries = dim_data if isinstance(dim_data, tuple | list) else ()
    if not isinstance(dim_data, tuple):
        hint = "; ({...}) without a comma is a dict, write ({...},)" if isinstance(dim_data, Mapping) else ""
        note("dim_data", None, f"must be a tuple of dictionaries, not {type(dim_data).__name__}{hint}")
    elif shape is not None and len(shape) != len(entries):
        rule = f"{len(entries)} dictionaries for a buffer of {len(shape)} dimensions, of shape {tuple(shape)}"
        note("dim_data", None, rule)
    if version is None:
        return ()
    sizes = (None,) * len(entries) if shape is None or len(shape) != len(entries) else shape
    return tuple(parse_dimension(v, version, sizes[d], faults.note(process, d)) for d, v in enumerate(entries))


def parse_dimension(values: Any, version: str, extent: int | None, note: Note) -> Parsed:
    """Parse the dictionary of a dimension and note every fault."""
    if not isinstance(values, Mapping):
        note(None, None, f"{short_repr(values)} ({type(values).__name__}) must be a dict")
        return None
    expanded = _expand(values, version, extent, note)
    if expanded is None:
        return None
    entry = DimDictReader(expanded, version, extent, note)
    dist_type = expanded.get("dist_type")
    map_type = map_types().get(dist_type) if isinstance(dist_type, str) else None
    if map_type is None:
        letters = sorted([*(["n"] if version == OLD else []), *map_types()])
        rule = f"must be one of {', '.join(map(repr, letters))} in {version}"
        note("dist_type", dist_type, rule if "dist_type" in expanded else f"the key is missing; {rule}")
    size, nprocs, rank = entry.integer("size"), entry.integer("proc_grid_size", 1), entry.integer("proc_grid_rank")
    if nprocs is not None and rank is not None and rank >= nprocs:
        note("proc_grid_rank", rank, f"must be less than proc_grid_size ({nprocs})")
        rank = None
    if map_type is None:
        return None
    part = map_type.parse(entry, None if size is None or nprocs is None or rank is None else (size, nprocs, rank))
    return None if part is None else (map_type, part)


def _expand(values: Mapping[Any, Any], version: str, extent: int | None, note: Note) -> Mapping[Any, Any] | None:
    """Expand {} (0.10.0) or 'n' (0.9.0) to a block over one process."""
    dist_type = values.get("dist_type")
    if not values and version == NEWEST:
        if extent is None:
            note(None, None, "{} is a complete dimension, whose size is not known: give the shape of the buffer")
            return None
        size: Any = extent
    elif isinstance(dist_type, str) and dist_type == "n" and version == OLD:
        for key, required in (("proc_grid_size", 1), ("proc_grid_rank", 0)):
            if key in values and as_integer(values[key]) != required:
                note(key, values[key], f"must be {required} for dist_type 'n'")
        size = DimDictReader(values, version, extent, note).integer("size")
        if size is None:
            return None
    else:
        return values
    block = {"dist_type": "b", "size": size, "proc_grid_size": 1, "proc_grid_rank": 0, "start": 0, "stop": size}
    return block | {k: values[k] for k in ("padding", "periodic") if k in values}


class Export(NamedTuple):
    """What one process exports, with its parsed dimensions."""

    version: str
    buffer: np.ndarray
    parts: tuple[Parsed, ...]


def export_dict(item: Any) -> Mapping[Any, Any]:
    """Return the dictionary given, or that of ``__distarray__``."""
    if isinstance(item, Mapping):
        return item
    try:
        method = getattr(item, "__distarray__", None)
        result = method() if callable(method) else None
    except AggarrayError:
        raise
    except Exception as error:  # foreign code may raise any exception
        raise ProtocolError(f"__distarray__ of {type(item).__name__} fails: {type(error).__name__}: {error}") from error
    if not callable(method):
        reason = f"{type(item).__name__} has no method __distarray__ and is not its dictionary"
        raise ProtocolError(reason, hint="give an exporter")
    if not isinstance(result, Mapping):
        reason = f"__distarray__ of {type(item).__name__} returns {type(result).__name__}, which is not a dictionary"
        raise ProtocolError(reason)
    return result


def _stated_rank(dim_data: Any) -> int | None:
    rank, count = 0, 1
    for values in dim_data if isinstance(dim_data, tuple | list) else ():
        entry = values if isinstance(values, Mapping) else {}
        coordinate, size = as_integer(entry.get("proc_grid_rank", 0)), as_integer(entry.get("proc_grid_size", 1))
        if coordinate is None or size is None or not 0 <= coordinate < size:
            return None
        rank, count = rank * size + coordinate, count * size
    return rank if count > 1 else None


def read_export(item: Any, faults: FaultList, process: int | None = None) -> Export | None:
    """Parse an export and note every fault; None if it is unusable.

    ``process``: its rank, None for the rank that the export states.
    """
    try:
        entries = export_dict(item)
    except ProtocolError as error:
        faults.note(process)(None, None, str(error))
        return None
    process = _stated_rank(entries.get("dim_data")) if process is None else process
    note = faults.note(process)
    for key in ("__version__", "buffer", "dim_data"):
        if key not in entries:
            note(key, None, "the key is missing")
    version = buffer = None
    try:
        version = version_of(entries["__version__"]) if "__version__" in entries else None
    except ProtocolError as error:
        note("__version__", entries["__version__"], str(error))
    try:
        buffer = buffer_of(entries["buffer"]) if "buffer" in entries else None
    except ProtocolError as error:
        note("buffer", None, str(error))
    shape = None if buffer is None else buffer.shape
    parts = parse_dim_data(entries["dim_data"], version, shape, faults, process) if "dim_data" in entries else ()
    return None if version is None else Export(version, np.empty(0) if buffer is None else buffer, parts)


def map_of(map_type: type[MapType], part: Part) -> Map:
    """Return the map of one process's part, `Partial` if undetermined."""
    return map_type.from_part(part) if part.nprocs == 1 or map_type.one_part_suffices else Partial(map_type, part)


def num_owned_indices(dim_dict: Any, version: str = NEWEST) -> int:
    """Return the number of indices that a process owns along a dimension.

    Communication padding does not count (0.10.0, appendix). The appendix is wrong about the partial block of a cyclic
    dimension: here it belongs to the next rank in turn.

    >>> num_owned_indices({"dist_type": "c", "size": 7, "proc_grid_size": 2, "proc_grid_rank": 1, "start": 2, "block_size": 2})
    3
    """
    faults = FaultList()
    parsed = parse_dimension(dim_dict, version_of(version), None, faults.note(None))
    faults.raise_any()
    return 0 if parsed is None else parsed[1].count


def convert(
    dim_data: Any, target: str, shape: Sequence[int] | None = None, source: str | None = None
) -> tuple[dict[str, Any], ...]:
    """Return the dim_data of one process in another version of the protocol.

    ``source``: the version of ``dim_data``, None for the other version than ``target``; ``shape``: that of the buffer, required
    for {}. Raises ProtocolError for invalid dim_data, and for what the target cannot express: padding that wraps, and padding
    that differs on the two sides of a cut, as far as one process can tell.

    >>> convert(({"dist_type": "n", "size": 10},), "0.10.0")[0]["stop"]
    10
    """
    target = version_of(target)
    source = version_of(source) if source is not None else NEWEST if target == OLD else OLD
    faults = FaultList()
    parsed = parse_dim_data(dim_data, source, None if shape is None else as_sizes(shape, "shape"), faults, None)
    faults.raise_any()
    return tuple(map_of(*one).dim_dict(one[1].rank, target) for one in parsed if one is not None)
