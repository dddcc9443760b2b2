"""What is asked of a file whose kind is known, and what is the answer?

Files of one kind differ in a few coordinates. A format that can tell these without reading the rest has a method
``scan_partially``.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from aggarray.formats.base import SCAN_ELEMENTS, Attributes, ChunkIndex, Stamp, Variable
from aggarray.storage.state import FileState


@dataclass(frozen=True, slots=True)
class PartialScanRequest:
    """What is wanted of a file whose kind is known.

    ``coordinates``: {name of a coordinate: its number of dimensions, 0 or 1}, with values, units and calendar;
    ``attributes``: names of global attributes.
    """

    coordinates: Mapping[str, int]
    attributes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PartialScan:
    """What was wanted of a file, and is there: global attributes; variables with values, units and calendar, nothing else.

    ``stamp``: as in `Structure`.
    """

    uri: str
    attrs: Attributes
    variables: tuple[Variable, ...]
    stamp: Stamp | None = None


@dataclass(frozen=True, slots=True)
class ChunkIndexRequest:
    """What is wanted of a file that is to be read: where the chunks of some variables are stored."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ScannedChunkIndexes:
    """Where the chunks of variables of a file are stored, of those that have any; ``state``: time, size and inode before."""

    uri: str
    state: FileState
    tables: Mapping[str, ChunkIndex]


#: What a `PartialScan` has of the attributes of a coordinate.
MAX_VALUES = ("units", "calendar")


def select_partial(
    path: str,
    attrs: Attributes,
    variables: Iterable[Variable],
    wanted: PartialScanRequest,
    read: Callable[[Variable], np.ndarray | None],
) -> PartialScan | None:
    """Return what is wanted of a file out of what its metadata tell; None where a coordinate is not plainly there.

    ``variables``: those of other names are passed over; ``read`` gives the stored values of one.
    """
    found = []
    for variable in variables:
        if wanted.coordinates.get(variable.name) != len(variable.shape) or variable.dtype.kind not in "iuf":
            continue
        # An empty one may be longer in truth: an unlimited dimension is as long as the longest of its variables.
        if not 0 < math.prod(variable.shape) <= SCAN_ELEMENTS:
            continue
        kept = {name: variable.attrs[name] for name in MAX_VALUES if name in variable.attrs}
        values = read(variable) if variable.values is None else variable.values
        found.append(replace(variable, attrs=kept, values=values))
    if len(found) != len(wanted.coordinates):
        return None
    return PartialScan(path, {name: attrs[name] for name in wanted.attributes if name in attrs}, tuple(found))


def unread(variable: Variable) -> np.ndarray:
    """Refuse to read a variable, for `select_partial`: values were read with the rest."""
    raise LookupError(variable.name)
