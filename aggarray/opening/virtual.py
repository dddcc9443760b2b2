"""Virtual datasets as arrays whose partitions are the source datasets.

The chunks of the sources are then read directly, in threads. Other regions refer to the virtual dataset, which HDF5 reads, and
list the files from which HDF5 takes the values. Regions without a source have the fill value.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

import numpy as np

from aggarray.arrays.master import MasterArray
from aggarray.cf.encoding import encoding
from aggarray.dataclass import replace
from aggarray.errors import AggarrayError
from aggarray.formats import open_file, stamp_of
from aggarray.formats.base import Structure
from aggarray.partition.matrix import Matrix, Parts, References, Step, Template, single
from aggarray.partition.reference_builder import ReferenceBuilder
from aggarray.partition.tiling import Cells, tile
from aggarray.storage.access import Access
from aggarray.storage.state import Stamp
from aggarray.storage.urls import is_remote

if TYPE_CHECKING:
    from aggarray.formats.hdf5.virtual import SourcePart, SourceVariable, VirtualPiece

#: Faults of sources that an entry of the skipped items lists one by one.
_LISTED = 3


def with_sources(
    arrays: Sequence[MasterArray], structure: Structure, access: Access
) -> tuple[list[MasterArray], list[tuple[str, str]]]:
    """Return the arrays of a file, with the sources of virtual datasets.

    The second result has the name of each variable that lacks sources, and the reason. Files that ``access`` does not allow are
    not opened: reading their region raises the error.
    """
    names = set(structure.external_files)
    if not names or structure.assumed is not None or is_remote(structure.uri):
        return list(arrays), []
    faults: dict[str, str] = {}
    stored = getattr(structure, "stored", {})

    def expand(array: MasterArray) -> MasterArray:
        if array.name not in names or type(array) is not MasterArray:
            return array
        expanded, sources = _expanded(array, stored.get(array.name, array.name), structure, access)
        lost = [source for source in sources if source.fault]
        if lost:
            faults[array.name] = _reason(lost)
        return expanded

    expanded = [replace(expand(a), coords={name: expand(c) for name, c in a.coords.items()}) for a in arrays]
    return expanded, sorted(faults.items())


def _reason(lost: Sequence[SourceVariable]) -> str:
    listed = "; ".join(f"{source.path}: {source.fault}" for source in lost[:_LISTED])
    more = f"; {len(lost) - _LISTED} more" if len(lost) > _LISTED else ""
    return f"sources of the virtual dataset give no values ({listed}{more}); restore them if the fill value is not meant there"


def _expanded(
    array: MasterArray, variable: str, structure: Structure, access: Access
) -> tuple[MasterArray, Sequence[SourceVariable]]:
    """Return a virtual dataset with its sources, and all of these."""
    matrix = array._matrix

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
            stored = array.dtype if array._known is not None else matrix.references.template_of(0).encoding.stored
            pieces = [] if find is None else find(variable, matrix.shape, stored, may_read)
    except (AggarrayError, OSError):
        return array, []  # reading it raises the error
    sources = tuple(dict.fromkeys(source for piece in pieces for source in piece.files))
    is_whole = len(matrix.references) == 1 == len(matrix.refs) and not matrix.parts.starts
    if not sources or array._known is not None or not is_whole or list(matrix.references.variables) != [variable]:
        return array, sources
    return replace(array, _matrix=_tiled(matrix, pieces)), sources


def _tiled(matrix: Matrix, pieces: Sequence[VirtualPiece]) -> Matrix:
    """Return the matrix of a virtual dataset with the sources in their places."""
    from aggarray.formats.hdf5.virtual import FORBIDDEN

    whole, builder, stamps = matrix.references, ReferenceBuilder(), _Stamps()
    builder.extend(whole)
    templates: dict[tuple[object, ...], Template] = {}
    regions: dict[tuple[SourceVariable, ...], int] = {(): 0}
    rows, starts, steps = list[int](), dict[str, np.ndarray](), dict[str, np.ndarray]()
    for piece in pieces:
        source = piece.source
        if source is None:
            files = tuple(sorted(file for file in piece.files if file.fault != FORBIDDEN))
            if files not in regions:
                regions[files] = builder.extend(_with_external(whole, files, stamps))
            rows.append(regions[files])
            positions = zip(matrix.dimensions, ((start, 1) for start, _ in piece.location), strict=True)
        else:
            key = source.shape, source.dimensions, source.dtype
            template = templates[key] = templates.get(key) or _template(whole.template_of(0), source)
            stamp = np.array([stamps.of(source.path)], np.int64)
            rows.append(builder.extend(single(template, source.path, source.variable, stamp).references))
            positions = zip(
                template.dimensions, ((p.start, p.step if len(p) > 1 else 1) for p in source.positions), strict=True
            )
        for name, (start, step) in positions:
            for columns, value, usual in ((starts, start, 0), (steps, step, 1)):
                if value != usual:
                    columns.setdefault(name, np.full(len(pieces), usual, np.int64))[len(rows) - 1] = value
    boxes, refs = np.array([piece.location for piece in pieces], np.int64), np.array(rows, np.int32)
    cells = Cells(matrix.dimensions, matrix.directions, boxes, refs, Parts(starts, steps), builder.build())
    return _with_rest(tile(cells, matrix.shape))


class _Stamps:
    """States of source files; those that do not open have none."""

    def __init__(self) -> None:
        self._known: dict[str, Stamp] = {}

    def of(self, path: str) -> Stamp:
        """Return the stamp of a file, of size -1 if it has none."""
        if path not in self._known:
            try:
                self._known[path] = stamp_of(path)
            except OSError:
                self._known[path] = (-1, 0, 0)
        return self._known[path]


def _with_external(whole: References, files: Sequence[SourceVariable], stamps: _Stamps) -> References:
    """Return the reference to a virtual dataset, with the files of a region."""
    uris = list(dict.fromkeys([*whole.uris, *(file.path for file in files)]))
    names = list(dict.fromkeys([*whole.variables, *(file.variable for file in files)]))
    own = (-1, 0, 0) if whole.stamps is None else whole.stamps[0].tolist()
    known = np.array([own, *map(stamps.of, uris[1:])], np.int64)
    external = np.array([(0, uris.index(file.path), names.index(file.variable)) for file in files], np.int32)
    return replace(whole, uris=tuple(uris), variables=tuple(names), stamps=known, external=external)


def _template(whole: Template, source: SourcePart) -> Template:
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
