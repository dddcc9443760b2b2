"""Requests and results of partial scans.

Files of one group differ in a few coordinates only. A format that can read these without reading the rest of a file has a
method ``scan_partially``.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import numpy as np

from aggarray.dataclass import dataclass
from aggarray.formats.base import SCAN_ELEMENTS, Attributes, Variable
from aggarray.partition.chunk_index import ChunkIndex
from aggarray.storage.state import FileState, Stamp


@dataclass(frozen=True, slots=True)
class PartialScanRequest:
    """Items to read from a file whose group is known.

    ``coordinates``: {name of a coordinate: its number of dimensions, 0 or 1}, read with values, units and calendar;
    ``attributes``: names of global attributes.
    """

    coordinates: Mapping[str, int]
    attributes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PartialScan:
    """Requested items that a file has.

    ``attrs``: global attributes; ``variables``: coordinates with values, units and calendar only; ``stamp``: as in `Structure`.
    """

    uri: str
    attrs: Attributes
    variables: tuple[Variable, ...]
    stamp: Stamp | None = None


@dataclass(frozen=True, slots=True)
class ChunkIndexRequest:
    """Names of variables of a file whose chunk indexes are requested."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ScannedChunkIndexes:
    """Chunk indexes of a file; ``state``: of the file before the read."""

    uri: str
    state: FileState
    tables: Mapping[str, ChunkIndex]


#: Attributes of a coordinate in a `PartialScan`.
COORDINATE_ATTRIBUTES = ("units", "calendar")


def select_partial(
    path: str,
    attrs: Attributes,
    variables: Iterable[Variable],
    request: PartialScanRequest,
    read: Callable[[Variable], np.ndarray | None] | None = None,
) -> PartialScan | None:
    """Select requested items, None if a coordinate is missing or differs.

    ``variables`` of other names are ignored; ``read`` returns the stored values of a variable, None: the variables have them.
    """
    selected = []
    for variable in variables:
        if request.coordinates.get(variable.name) != len(variable.shape) or variable.dtype.kind not in "iuf":
            continue
        # An empty dataset may stand for a longer variable: the longest variable decides the length of an unlimited dimension.
        if not 0 < math.prod(variable.shape) <= SCAN_ELEMENTS:
            continue
        attributes = {name: variable.attrs[name] for name in COORDINATE_ATTRIBUTES if name in variable.attrs}
        values = variable.values if read is None else read(variable)
        selected.append(replace(variable, attrs=attributes, values=values))
    if len(selected) != len(request.coordinates):
        return None
    return PartialScan(path, {name: attrs[name] for name in request.attributes if name in attrs}, tuple(selected))
