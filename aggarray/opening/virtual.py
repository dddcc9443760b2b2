"""Virtual datasets as arrays whose partitions are the source datasets.

The chunks of the sources are then read directly, in threads. Regions without a readable source refer to the virtual dataset,
which HDF5 reads: they have its fill value.
"""

from collections.abc import Sequence
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from aggarray.arrays.master import MasterArray
from aggarray.cf.encoding import encoding
from aggarray.dataclass import replace
from aggarray.errors import AggarrayError
from aggarray.formats import open_file, stamp_of
from aggarray.formats.base import Structure
from aggarray.partition.matrix import Matrix, Parts, Step, Template, single
from aggarray.partition.reference_builder import ReferenceBuilder
from aggarray.partition.tiling import Cells, tile
from aggarray.storage.access import Access
from aggarray.storage.state import Stamp
from aggarray.storage.urls import is_remote

if TYPE_CHECKING:
    from aggarray.formats.hdf5.virtual import SourcePart, VirtualPiece


def with_sources(arrays: Sequence[MasterArray], structure: Structure, access: Access) -> list[MasterArray]:
    """Return the arrays of a file, with the sources of virtual datasets.

    Files that ``access`` does not allow are not opened: reading their region raises the error.
    """
    names = set(structure.external_files)
    if not names or structure.assumed is not None or is_remote(structure.uri):
        return list(arrays)
    expand = partial(_expanded, names=names, structure=structure, access=access)
    return [replace(expand(a), coords={name: expand(c) for name, c in a.coords.items()}) for a in arrays]


def _expanded(array: MasterArray, names: set[str], structure: Structure, access: Access) -> MasterArray:
    references = array._matrix.references
    is_whole = type(array) is MasterArray and len(references) == 1 == len(array._matrix.refs) and not array._matrix.parts.starts
    if not is_whole or array._known is not None or list(references.variables) != [array.name] or array.name not in names:
        return array

    from aggarray.formats.hdf5.virtual import VirtualPiece

    def may_read(path: str) -> bool:
        try:
            # promise: virtual-pieces-roots
            access.check_named(path, structure.uri)
        except AggarrayError:
            return False
        return True

    try:
        with closing(open_file(structure.uri)) as handle:
            find: Any = getattr(handle, "virtual_pieces", None)
            pieces = [] if find is None else find(array.name, array._matrix.shape, may_read)
        stored = array._matrix.references.template_of(0).encoding.stored
        direct = [p.source is not None and np.can_cast(p.source.dtype, stored, "safe") for p in pieces]
        pieces = [p if is_direct else VirtualPiece(p.location) for p, is_direct in zip(pieces, direct, strict=True)]
        return replace(array, _matrix=_tiled(array._matrix, pieces)) if any(direct) else array
    except (AggarrayError, OSError):
        return array  # reading it raises the error; sources that overlap are left to HDF5


def _tiled(matrix: Matrix, pieces: "Sequence[VirtualPiece]") -> Matrix:
    """Return the matrix of a virtual dataset with the sources in their places.

    Raises AggregationError if pieces overlap.
    """
    boxes = np.array([piece.location for piece in pieces], np.int64)
    direct = np.array([piece.source is not None for piece in pieces])
    if not direct.all():
        all_of_it = Cells(
            matrix.dimensions, matrix.directions, boxes, np.zeros(len(pieces), np.int32), Parts(), matrix.references
        )
        tile(all_of_it, matrix.shape)
    whole, builder = matrix.references.template_of(0), ReferenceBuilder()
    builder.extend(matrix.references)
    stamps: dict[str, Stamp] = {}
    templates: dict[tuple[object, ...], Template] = {}
    rows, starts = list[int](), dict[str, np.ndarray]()
    for source in (piece.source for piece in pieces if piece.source is not None):
        key = source.shape, source.dimensions, source.dtype
        template = templates[key] = templates.get(key) or _template(whole, source)
        if source.path not in stamps:
            stamps[source.path] = stamp_of(source.path)
        stamp = np.array([stamps[source.path]], np.int64)
        for name, start in zip(template.dimensions, source.starts, strict=True):
            if start:
                starts.setdefault(name, np.zeros(int(direct.sum()), np.int64))[len(rows)] = start
        rows.append(builder.extend(single(template, source.path, source.variable, stamp).references))
    refs = np.array(rows, np.int32)
    cells = Cells(matrix.dimensions, matrix.directions, boxes[direct], refs, Parts(starts), builder.build())
    return _with_rest(tile(cells, matrix.shape))


def _template(whole: Template, source: "SourcePart") -> Template:
    """Return the template of a source; its values are encoded as the whole's."""
    names = [f"source_{axis}" if d is None else whole.dimensions[d] for axis, d in enumerate(source.dimensions)]
    forward = [d is None or whole.directions[d] for d in source.dimensions]
    placed = replace(whole, shape=source.shape, dimensions=tuple(names), directions=tuple(forward))
    if source.dtype == whole.encoding.stored:
        return placed
    step = Step(whole.units, whole.calendar, whole.encoding.stored, whole.encoding, whole.temperature)
    return replace(placed, encoding=encoding(source.dtype, {}), steps=(step, *whole.steps))


def _with_rest(matrix: Matrix) -> Matrix:
    """Return a matrix whose missing cells show row 0, the whole array."""
    missing = np.flatnonzero(matrix.refs < 0)
    if not missing.size:
        return matrix
    refs, starts = matrix.refs.copy(), dict(matrix.parts.starts)
    refs[missing] = 0
    for name, edges, index in zip(matrix.dimensions, matrix.edges, np.unravel_index(missing, matrix.cells), strict=True):
        column = starts[name] = starts.get(name, np.zeros(len(refs), np.int64)).copy()
        column[missing] = edges[index]
    return replace(matrix, refs=refs, parts=replace(matrix.parts, starts=starts))
