"""How do values get from stored chunks to their places without a library that lets one thread work at a time?

Byte ranges are read, decoded, conformed and placed chunk by chunk, while a chunk is in the cache of the processor. What
cannot be read this way is said so (None), and read through the library of its format.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from aggarray.codecs import before_shuffle, decode
from aggarray.conform import arrange, conform
from aggarray.errors import AggarrayError, FormatError, MissingFileError
from aggarray.formats.base import Chunks
from aggarray.options import get_options
from aggarray.plan import Piece
from aggarray.read.blocks import raise_named
from aggarray.read.cache import decoded_chunks
from aggarray.read.chunking import STRETCH, Indices, Task, tasks_of
from aggarray.read.files import file_state
from aggarray.read.tables import Found
from aggarray.read.target import Target
from aggarray.source import read_into, read_ranges
from aggarray.table import Matrix, Template

#: Of a shuffled chunk of which less than this fraction is wanted only those bytes are gathered.
_FEW = 8
#: Bytes that are read at once.
BATCH = 1 << 21


Outputs = tuple[np.ndarray, np.ndarray | None]


class Stored(NamedTuple):
    """A piece that is read directly: its chunks, the path of its file, its template, and where values and mask go."""

    table: Chunks
    path: str
    state: tuple[int, ...]
    variable: str
    template: Template
    put: Callable[[tuple[slice, ...], np.ndarray, np.ndarray | None], None]
    #: Where values can be decoded straight to: the output in the sub-array's dimensions and directions, else None.
    view: np.ndarray | None
    target: Target


class Batch(NamedTuple):
    """Tasks of one file that are read together; ``path``: of that file; ``size``: bytes needed while it is carried out."""

    stored: Stored
    path: str
    tasks: list[Task]
    size: int


def stored_piece(matrix: Matrix, piece: Piece, found: Found, outputs: Outputs, target: Target) -> Stored:
    """Return a piece with what puts its values into the outputs (values and mask, in the master's dimensions)."""
    template = matrix.references.template_of(piece.ref)
    variable = matrix.references.variables[int(matrix.references.variable[piece.ref])]
    plain = all(t is None for t in piece.take) and all(isinstance(o, slice) for o in piece.out)
    if plain:
        views = [None if o is None else _as_stored(o[(*piece.out, ...)], template, piece, matrix) for o in outputs]
        put = _by_view(views[0], views[1], target.fill_value)
        return Stored(*found, variable, template, put, views[0], target)
    return Stored(*found, variable, template, _scattered(matrix, piece, outputs, target.fill_value), None, target)


def _as_stored(block: np.ndarray, template: Template, piece: Piece, matrix: Matrix) -> np.ndarray:
    """Return a view of a block of the output in the dimensions and directions of the sub-array."""
    names = list(matrix.dimensions)
    absent = [d for d in names if d not in template.dimensions]
    if absent:
        block = block[(*(0 if d in absent else slice(None) for d in names), ...)]
        names = [d for d in names if d not in absent]
    present = [d for d in template.dimensions if d in names]
    if names != present:
        block = block.transpose([names.index(d) for d in present])
    index: list[Any] = []
    for axis, name in enumerate(template.dimensions):
        if name not in present:
            index.append(np.newaxis)
        else:
            index.append(slice(None, None, -1) if axis in piece.flip else slice(None))
    return np.asarray(block[(*index, ...)])


def _by_view(values: Any, mask: np.ndarray | None, fill: Any) -> Callable[..., None]:
    def put(out: tuple[slice, ...], found: np.ndarray, absent: np.ndarray | None) -> None:
        where = values[(*out, ...)]  # a view even where nothing is left to index
        where[...] = found
        if absent is not None:
            np.copyto(where, fill, where=absent)
            if mask is not None:
                mask[out] = absent

    return put


def _scattered(matrix: Matrix, piece: Piece, outputs: tuple[np.ndarray, np.ndarray | None], fill: Any) -> Callable[..., None]:
    """Put values to positions that index arrays give, repeats included."""
    template, names = matrix.references.template_of(piece.ref), matrix.dimensions

    def put(out: tuple[slice, ...], found: np.ndarray, absent: np.ndarray | None) -> None:
        places, picks = [], []
        for d, name in enumerate(names):
            axis = template.dimensions.index(name) if name in template.dimensions else None
            extent = piece.shape[d]
            low, high = (0, extent) if axis is None else (out[axis].start, out[axis].stop)
            if axis is not None and axis in piece.flip:
                low, high = extent - high, extent - low
            place, pick = _positions(piece.out[d], piece.take[d], low, high)
            places.append(place)
            picks.append(pick)
        where = np.ix_(*places)
        for array, output in ((found, outputs[0]), (absent, outputs[1])):
            if array is None or output is None:
                continue
            block = arrange(array, template.dimensions, piece.flip, names)
            for axis, pick in enumerate(picks):
                block = block if pick is None else block.take(pick, axis=axis)
            if output is outputs[0] and absent is not None:
                gone = arrange(absent, template.dimensions, piece.flip, names)
                for axis, pick in enumerate(picks):
                    gone = gone if pick is None else gone.take(pick, axis=axis)
                block = np.where(gone, np.asarray(fill, output.dtype), block)
            output[where] = block

    return put


def _positions(out: Indices, take: np.ndarray | None, low: int, high: int) -> tuple[np.ndarray, np.ndarray | None]:
    """Return where the elements low to high of a block go along one dimension, and which of them each place takes."""
    positions = np.arange(out.start, out.stop) if isinstance(out, slice) else out
    if take is None:
        return positions[low:high], None
    wanted = np.flatnonzero((take >= low) & (take < high))
    return positions[wanted], take[wanted] - low


def batches(stored: Stored, selection: Sequence[Indices]) -> Iterator[Batch]:
    """Yield the tasks of a piece in batches of neighbours in one file."""
    table = stored.table
    # A chunk decoded, unshuffled, converted in double precision, and its mask.
    each = prod(table.chunk) * (2 * table.dtype.itemsize + 17) if table.filters else STRETCH
    tasks: list[Task] = []
    path, size = stored.path, 0
    for task in tasks_of(table, selection):
        own = stored.path if table.names is None else f"{stored.path}/{table.names[task.chunk]}"
        if tasks and (own != path or size >= BATCH):
            yield Batch(stored, path, tasks, size + each)
            tasks, size = [], 0
        path = own
        tasks.append(task)
        size += max(task.size, 0)
    if tasks:
        yield Batch(stored, path, tasks, size + each)


def carry_out(batch: Batch) -> None:
    """Read, decode, conform and place the tasks of a batch; errors name the file and the variable."""
    stored = batch.stored
    try:
        _carry_out(batch)
    except MissingFileError as error:
        if stored.target.access.missing != "fill":
            raise_named(error, stored.path, stored.variable)
        _put_missing(batch)
    except AggarrayError as error:
        raise_named(error, stored.path, stored.variable)
    except OSError as error:
        text = f"{stored.path}, variable {stored.variable!r}: {error.strerror or error}"
        raise FormatError(f"{text}; read it again") from error


def _put_missing(batch: Batch) -> None:
    """Make missing what the tasks of a batch would give."""
    stored = batch.stored
    for task in batch.tasks:
        gone = np.zeros(tuple(o.stop - o.start for o in task.out), stored.target.step.dtype)
        stored.put(task.out, gone, np.ones(gone.shape, bool))


def _carry_out(batch: Batch) -> None:
    stored, table = batch.stored, batch.stored.table
    if table.names is not None and not os.path.exists(batch.path):
        # A chunk of a Zarr store that is not there is all fill value.
        for task in batch.tasks:
            _put(stored, task, _fill(table, task))
        return
    tasks = [t for t in batch.tasks if not _cached(stored, t) and not _straight(batch, t)]
    data = iter(_ranges(batch.path, [t for t in tasks if t.offset >= 0]))
    for task in tasks:
        try:
            if task.offset < 0:
                _put(stored, task, _fill(table, task))
            elif not _decoded_in_place(stored, task, found := next(data)):
                _put(stored, task, _decoded(stored, task, found))
        except AggarrayError:  # some of which are ValueErrors
            raise
        except ValueError as error:
            _check_unchanged(stored)
            raise FormatError(f"chunk {task.chunk} at byte {task.offset}: {error}; restore the file") from error
    _check_unchanged(stored)


def _check_unchanged(stored: Stored) -> None:
    """Raise FormatError where a file is not the one any more whose chunks were looked up."""
    if stored.state and file_state(stored.path, None) != stored.state:
        raise FormatError("changed while it was read: read it again, or open the files anew")


def _ranges(path: str, tasks: Sequence[Task]) -> Iterable[Any]:
    """Return the bytes of tasks that are stored; FormatError where the file is too short."""
    if not tasks:
        return ()
    # A size of 0 is that of the file: chunks of a Zarr store may have been written anew since they were listed.
    return read_ranges(path, [(t.offset, t.size or os.path.getsize(path)) for t in tasks])


def _key(stored: Stored, task: Task) -> tuple[Any, ...]:
    return stored.path, stored.state, stored.variable, task.chunk


def _cached(stored: Stored, task: Task) -> bool:
    """Serve a task from the chunks that are kept decoded."""
    whole = decoded_chunks.get(_key(stored, task)) if stored.table.filters and stored.state else None
    if whole is None:
        return False
    _put(stored, task, whole[_outer(task.local)])
    return True


def _put(stored: Stored, task: Task, raw: np.ndarray) -> None:
    encoding = stored.template.encoding
    values, mask = conform(*encoding.decode(raw), stored.template, stored.target.step)
    stored.put(task.out, values, mask)


def _fill(table: Chunks, task: Task) -> np.ndarray:
    shape = tuple(o.stop - o.start for o in task.out)
    return np.broadcast_to(np.asarray(table.fill, table.dtype.newbyteorder("=")), shape)


def _decoded(stored: Stored, task: Task, data: Any) -> np.ndarray:
    """Return the wanted elements of a chunk, in native byte order."""
    table = stored.table
    itemsize, count = table.dtype.itemsize, prod(task.shape)
    if not table.filters:
        if len(data) != count * itemsize:
            raise ValueError(f"{len(data)} bytes where {count * itemsize} should be")
        return _native(np.frombuffer(data, table.dtype).reshape(task.shape)[_outer(task.local)])
    mask = 0 if table.masks is None else int(table.masks[task.chunk])
    wanted = prod(o.stop - o.start for o in task.out)
    # Planes are those of elements only where the filter was told their size.
    few = wanted * _FEW <= count and not mask & 1 and itemsize > 1 and table.filters[0].parameters == (itemsize,)
    rest = before_shuffle(table.filters) if few else None
    if rest is None:
        buffer = decode(table.filters, data, count * itemsize, mask)
        whole = _native(np.frombuffer(buffer, table.dtype).reshape(task.shape))
        if stored.state:
            decoded_chunks.keep(_key(stored, task), whole)
        return np.asarray(whole[_outer(task.local)])
    planes = np.frombuffer(decode(rest, data, count * itemsize, mask >> 1), np.uint8).reshape(itemsize, *task.shape)
    index = _outer(task.local)
    some = planes[(slice(None), *index)]
    return _native(np.ascontiguousarray(np.moveaxis(some, 0, -1)).view(table.dtype)[..., 0])


def _outer(local: Sequence[Indices]) -> tuple[Any, ...]:
    """Return an index that picks along every dimension by itself."""
    arrays = [axis for axis, chosen in enumerate(local) if not isinstance(chosen, slice)]
    if len(arrays) < 2:
        return tuple(local)
    return np.ix_(*(np.arange(c.start, c.stop, c.step) if isinstance(c, slice) else c for c in local))


def _native(values: np.ndarray) -> np.ndarray:
    return values if values.dtype.isnative else values.astype(values.dtype.newbyteorder("="))


def _straight(batch: Batch, task: Task) -> bool:
    """Read a stretch without filters straight into the output, where it lies there as it does in the file."""
    stored, table = batch.stored, batch.stored.table
    if table.filters or task.offset < 0 or not task.size or not _as_it_is(stored):
        return False
    where = _place_of(stored, task)
    if where is None or where.nbytes != task.size:
        return False
    read_into(batch.path, task.offset, where)
    _settle_in_place(stored, task, where)
    return True


def _decoded_in_place(stored: Stored, task: Task, data: Any) -> bool:
    """Decode a chunk that is wanted whole straight into the output, where it lies there as it does in the file."""
    table = stored.table
    if not table.filters or stored.view is None or get_options().cache_bytes or not _as_it_is(stored):
        return False
    where = _place_of(stored, task)
    if where is None or where.nbytes != prod(task.shape) * table.dtype.itemsize:
        return False
    mask = 0 if table.masks is None else int(table.masks[task.chunk])
    decode(table.filters, data, where.nbytes, mask, where.reshape(-1).view(np.uint8))
    _settle_in_place(stored, task, where)
    return True


def _place_of(stored: Stored, task: Task) -> np.ndarray | None:
    """Return the part of the output that a task fills with all that it has, in the order that the file has; else None."""
    if stored.view is None:
        return None
    key: Any = (*task.out, ...)
    where: np.ndarray = stored.view[key]
    return where if where.shape == task.shape and where.flags.c_contiguous else None


def _settle_in_place(stored: Stored, task: Task, where: np.ndarray) -> None:
    """Make stored values in the output those of the master: byte order, and what stands for missing."""
    if not stored.table.dtype.isnative:
        where.byteswap(inplace=True)
    mask = stored.template.encoding.decode(where)[1] if stored.template.encoding.may_miss else None
    if mask is not None:
        stored.put(task.out, where, mask)


def _as_it_is(stored: Stored) -> bool:
    """Tell whether stored values are those of the master but for byte order and missing values."""
    encoding, step = stored.template.encoding, stored.target.step
    same = stored.template.last_step == step and not stored.template.steps
    return same and not encoding.packed and encoding.viewed == encoding.stored == step.dtype
