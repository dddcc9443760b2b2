"""Stored chunks of a piece, and how their values reach the output.

A `StoredPiece` is a piece with a chunk index. Values stored as the master's are read into a view of the output; others are
conformed, and placed or scattered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, NoReturn

import numpy as np

from aggarray.cf.encoding import Encoding
from aggarray.dataclass import NamedTuple, dataclass
from aggarray.errors import AggarrayError
from aggarray.partition.chunk_index import ChunkIndex
from aggarray.partition.chunk_selection import outer
from aggarray.partition.conform import arrange, conform
from aggarray.partition.matrix import Matrix, Step, Template
from aggarray.partition.plan import Piece
from aggarray.read.chunk_index import LocatedIndex
from aggarray.storage.access import ANYWHERE, Access
from aggarray.storage.state import FileState, Versions

Indices = slice | np.ndarray
Outputs = tuple[np.ndarray, np.ndarray | None]
#: Places values and mask of a part of a piece, given in the piece's own dimensions; None: values that are in place.
Put = Callable[[tuple[slice, ...], np.ndarray | None, np.ndarray | None], None]


@dataclass(frozen=True, slots=True)
class Target:
    """Parameters of the values of a master array, and access to its files."""

    step: Step
    fill_value: Any
    access: Access = ANYWHERE


class StoredPiece(NamedTuple):
    """Piece that is read directly, and how values and mask are placed."""

    table: ChunkIndex
    path: str
    state: FileState | None
    variable: str
    template: Template
    put: Put
    #: The output in the sub-array's dimensions and directions, if values can be decoded into it.
    view: np.ndarray | None
    target: Target
    #: Whether stored values are the master's except for byte order and missing values.
    is_plain: bool
    #: Versions of the files met so far, for chunks in several files.
    versions: Versions | None = None


def stored_piece(matrix: Matrix, piece: Piece, located: LocatedIndex, outputs: Outputs, target: Target) -> StoredPiece:
    """Return a piece with the function that places its values and mask."""
    template = matrix.references.template_of(piece.ref)
    variable = matrix.references.variables[int(matrix.references.variable[piece.ref])]
    put, view = putter(matrix, piece, outputs, target.fill_value)
    table = located[0]
    versions = None if table.names is None else Versions() if table.versions is None else table.versions.copy()
    step, encoding = target.step, template.encoding
    same_units = (template.units, template.calendar, template.temperature) == (step.units, step.calendar, step.temperature)
    same_dtype = encoding.stored == encoding.viewed == encoding.dtype == step.dtype
    unpacked = encoding.scale_factor is None and encoding.add_offset is None
    is_plain = same_units and same_dtype and unpacked and not template.steps
    return StoredPiece(*located, variable, template, put, view, target, is_plain, versions)


@lru_cache
def _plain_encoding(dtype: np.dtype[Any]) -> Encoding:
    return Encoding(dtype, dtype, dtype)


def putter(matrix: Matrix, piece: Piece, outputs: Outputs, fill: Any) -> tuple[Put, np.ndarray | None]:
    """Return a function that places parts of a piece, and the view if any."""
    if any(t is not None for t in piece.take) or not all(isinstance(o, slice) for o in piece.out):
        return _scattered(matrix, piece, outputs, fill), None
    see = seen_as_stored(matrix.references.template_of(piece.ref), piece.flip, matrix.dimensions)
    views = [None if o is None else see(o[(*piece.out, ...)]) for o in outputs]
    return partial(_put_in_view, views[0], views[1], fill), views[0]


def seen_as_stored(template: Template, flip: Sequence[int], dimensions: Sequence[str]) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function that views output with the axes of a sub-array."""
    if tuple(dimensions) == template.dimensions and not flip:
        return np.asarray
    names = [d for d in dimensions if d in template.dimensions]
    present = [d for d in template.dimensions if d in names]
    chosen: Any = (*(slice(None) if d in names else 0 for d in dimensions), ...)
    order = [names.index(d) for d in present]
    turned: Any = tuple(
        np.newaxis if name not in present else slice(None, None, -1 if axis in flip else 1)
        for axis, name in enumerate(template.dimensions)
    )
    return lambda block: np.asarray(block[chosen].transpose(order)[(*turned, ...)])


def _put_in_view(
    view: Any, mask_view: np.ndarray | None, fill: Any, out: tuple[slice, ...], values: Any, mask: np.ndarray | None
) -> None:
    where = view[(*out, ...)]  # a view even where nothing is left to index
    if values is not None:
        where[...] = values
    if mask is not None:
        np.copyto(where, fill, where=mask)
        if mask_view is not None:
            mask_view[out] = mask


def _scattered(matrix: Matrix, piece: Piece, outputs: Outputs, fill: Any) -> Put:
    template, names = matrix.references.template_of(piece.ref), matrix.dimensions

    def put(out: tuple[slice, ...], values: Any, mask: np.ndarray | None) -> None:
        places: list[Indices] = []
        picks = []
        for d, name in enumerate(names):
            axis = template.dimensions.index(name) if name in template.dimensions else None
            extent = piece.shape[d]
            low, high = (0, extent) if axis is None else (out[axis].start, out[axis].stop)
            if axis is not None and axis in piece.flip:
                low, high = extent - high, extent - low
            place, pick = _positions(piece.out[d], piece.take[d], low, high)
            places.append(place)
            picks.append(pick)
        where = outer(places)

        def laid(block: np.ndarray) -> np.ndarray:
            block = arrange(block, template.dimensions, piece.flip, names)
            for axis, pick in enumerate(picks):
                block = block if pick is None else block.take(pick, axis=axis)
            return block

        if mask is None:
            outputs[0][where] = laid(values)
            return
        absent = laid(mask)
        outputs[0][where] = np.where(absent, np.asarray(fill, outputs[0].dtype), laid(values))
        if outputs[1] is not None:
            outputs[1][where] = absent

    return put


def _positions(out: Indices, take: np.ndarray | None, low: int, high: int) -> tuple[Indices, np.ndarray | None]:
    """Return output positions of elements low to high, and which go there."""
    if take is None:
        return slice(out.start + low, out.start + high, 1) if isinstance(out, slice) else out[low:high], None
    positions = np.arange(out.start, out.stop) if isinstance(out, slice) else out
    wanted = np.flatnonzero((take >= low) & (take < high))
    return positions[wanted], take[wanted] - low


def put_conformed(stored: StoredPiece, out: tuple[slice, ...], raw: np.ndarray) -> None:
    """Conform and place stored values; FormatError or UnitsError if invalid."""
    raw = raw if raw.dtype.isnative else native(raw)
    encoding = stored.template.encoding
    if stored.is_plain and encoding == _plain_encoding(encoding.dtype):
        stored.put(out, raw, None)
        return
    stored.put(out, *conform(*encoding.decode(raw), stored.template, stored.target.step))


def put_missing(stored: StoredPiece, out: tuple[slice, ...]) -> None:
    """Set a part of the output to missing."""
    gone = np.zeros(tuple(o.stop - o.start for o in out), stored.target.step.dtype)
    stored.put(out, gone, np.ones(gone.shape, bool))


def place_in_view(stored: StoredPiece, out: tuple[slice, ...], shape: tuple[int, ...]) -> np.ndarray | None:
    """Return the contiguous output that stored values fill unchanged, or None."""
    if stored.view is None or not stored.is_plain:
        return None
    key: Any = (*out, ...)
    where: np.ndarray = stored.view[key]
    return where if where.shape == shape and where.flags.c_contiguous else None


def convert_in_place(stored: StoredPiece, out: tuple[slice, ...], where: np.ndarray) -> None:
    """Convert byte order and missing values of stored values in the output."""
    if not stored.table.dtype.isnative:
        # Three times as fast as `byteswap`, and it releases the interpreter lock.
        flat = where.reshape(-1)
        np.copyto(flat, flat.view(flat.dtype.newbyteorder()))
    mask = stored.template.encoding.decode(where)[1] if stored.template.encoding.may_miss else None
    if mask is not None:
        stored.put(out, None, mask)


def native(values: np.ndarray) -> np.ndarray:
    """Return values in native byte order."""
    return values if values.dtype.isnative else values.astype(values.dtype.newbyteorder("="))


def raise_with_location(error: AggarrayError, uri: str, variable: str, cause: BaseException | None = None) -> NoReturn:
    """Raise an error with file and variable."""
    from aggarray.formats.flattened import stored_name

    if error.path not in (None, uri):
        error.args = (f"{error.what} ({error.path})",)
    error.path, error.variable = uri, error.variable or stored_name(variable)
    error.__cause__ = cause or error.__cause__
    raise error
