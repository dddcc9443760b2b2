"""Reading of what one process exports: a version, a buffer and dim_data.

Nothing in an export is trusted.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from aggarray.errors import AggarrayError, ProtocolError
from aggarray.maps.dim_data import FaultList, Parsed, parse_dim_data
from aggarray.maps.fields import as_integer, buffer_of, version_of


@dataclass(frozen=True, slots=True, eq=False)
class Export:
    """What one process exports, with its parsed dimensions."""

    version: str
    buffer: np.ndarray
    parts: tuple[Parsed, ...]


def export_dict(item: Any) -> Mapping[Any, Any]:
    """Return the dictionary of an object with ``__distarray__``, or the dictionary given."""
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
    """Return the rank in C order that an export states; None without one."""
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
