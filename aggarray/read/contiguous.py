"""Reading of the selected rows of large unfiltered chunks, often in place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import prod

import numpy as np

from aggarray.dataclass import NamedTuple
from aggarray.errors import MissingFileError
from aggarray.partition.chunk_selection import ChunkBlock, Rows, rows_of
from aggarray.read.stored_piece import StoredPiece, convert_in_place, place_in_view, put_conformed
from aggarray.storage.byte_source import GAP, ByteSource, shared_source, version_source

#: Bytes of one call that reads neighbouring rows.
SPAN = 1 << 22
#: Shorter rows are copied out of a larger read, longer ones are read in place.
_SHORT, _LONG = 1 << 9, 1 << 15
#: Largest number of spans that are read one by one.
_FEW = 8


class ContiguousRun(NamedTuple):
    """Block that is read in rows, from ``start`` in the selection."""

    block: ChunkBlock
    start: tuple[int, ...]

    @property
    def out(self) -> tuple[slice, ...]:
        """The target within the selection."""
        return self.shifted(self.block.out)

    def shifted(self, out: Sequence[slice]) -> tuple[slice, ...]:
        """Return positions in the part as positions in the selection."""
        return tuple(slice(o.start + s, o.stop + s) for o, s in zip(out, self.start, strict=True))


def read_contiguous_runs(stored: StoredPiece, runs: Sequence[ContiguousRun]) -> None:
    """Read, conform and place the selected elements of unfiltered chunks."""
    for run in runs:
        for rows in rows_of(run.block, stored.table.grid):
            _read(stored, rows, run.shifted(rows.out))


def _read(stored: StoredPiece, rows: Rows, out: tuple[slice, ...]) -> None:
    table, numbers, dtype = stored.table, rows.numbers.ravel(), stored.table.dtype
    first = table.offsets[numbers]
    absent = first < 0
    where = None if absent.any() or table.names is not None else _place(stored, rows, out)
    if where is None:
        buffer = np.empty((numbers.size, prod(rows.shape) * dtype.itemsize), np.uint8)
    else:
        buffer = where.reshape(numbers.size, -1).view(np.uint8)
    offsets = first + rows.starts.ravel() * dtype.itemsize
    for (path, needed), own in _by_file(stored, numbers, np.flatnonzero(~absent)):
        try:
            known = stored.versions
            with shared_source(path, stored.state) if known is None else version_source(path, known) as source:
                _read_rows(source, offsets[own], buffer, own)
        except MissingFileError:
            if needed:
                raise
            absent[own] = True  # a chunk of a store that is not there is all fill value
    if where is not None:
        convert_in_place(stored, out, where)
        return
    raw = buffer.view(dtype)
    raw[absent] = table.fill
    put_conformed(stored, out, _join_rows(raw, rows))


def _by_file(stored: StoredPiece, numbers: np.ndarray, there: np.ndarray) -> Iterator[tuple[tuple[str, bool], np.ndarray]]:
    """Yield (path, must exist) of each file, and its part of ``there``."""
    if stored.table.names is None:
        yield (stored.path, True), there
        return
    chunks, own = np.unique(numbers[there], return_inverse=True)
    order = np.argsort(own, kind="stable")
    files = [stored.table.file_of(stored.path, number) for number in chunks.tolist()]
    ends = np.searchsorted(own[order], np.arange(len(files) + 1)).tolist()
    for file, (begin, end) in zip(files, pairwise(ends), strict=True):
        yield file, there[order[begin:end]]


def _place(stored: StoredPiece, rows: Rows, out: tuple[slice, ...]) -> np.ndarray | None:
    """Return the part of the output that the rows fill unchanged, or None."""
    counts = rows.numbers.shape
    if not rows.shape:
        return place_in_view(stored, out, counts)
    complete = isinstance(rows.local, slice) and rows.local == slice(0, rows.shape[0], 1)
    if not complete or any(n != 1 for n in counts[rows.axis + 1 :]):
        return None
    shape = (*counts[: rows.axis], counts[rows.axis] * rows.shape[0], *rows.shape[1:])
    return place_in_view(stored, out, shape)


def _join_rows(raw: np.ndarray, rows: Rows) -> np.ndarray:
    axis, counts = rows.axis, rows.numbers.shape
    if not rows.shape:
        return raw.reshape(counts)
    rank, behind = len(counts), len(counts) - axis
    selected = raw.reshape((*counts, *rows.shape))[(*(slice(None),) * rank, rows.local)]
    order = [*range(axis), *(a for d in range(behind) for a in (axis + d, rank + d))]
    sizes = (n * size for n, size in zip(counts[axis:], selected.shape[rank:], strict=True))
    return selected.transpose(order).reshape((*counts[:axis], *sizes))


def _read_rows(source: ByteSource, offsets: np.ndarray, buffer: np.ndarray, places: np.ndarray) -> None:
    length = buffer.shape[1]
    if source.distant:
        # Each call takes a round trip: one requests all rows.
        parts = source.read_ranges([(int(offset), length) for offset in offsets])
        for place, part in zip(places.tolist(), parts, strict=True):
            buffer[place] = np.frombuffer(part, np.uint8)
        return
    if len(offsets) > 1 and (np.diff(offsets) < 0).any():
        order = np.argsort(offsets, kind="stable")
        offsets, places = offsets[order], places[order]
    gaps = np.diff(offsets) - length
    # A call costs less than copying a long row out of a larger read.
    separate = (gaps > (GAP if length < _LONG else 0)) | (np.diff((offsets - offsets[:1]) // SPAN) != 0)
    cuts = np.concatenate([[0], np.flatnonzero(separate) + 1, [len(offsets)]])
    spans = offsets[cuts[1:] - 1] + length - offsets[cuts[:-1]] if len(offsets) else cuts[:0]
    if len(spans) > _FEW and length <= _SHORT and spans.max() <= GAP:
        _read_short(source, offsets, buffer, places, (cuts, spans))
        return
    for begin, end in pairwise(cuts.tolist() if len(spans) else ()):
        start, low, count = int(offsets[begin]), int(places[begin]), end - begin
        if count == 1 or (not gaps[begin : end - 1].any() and (np.diff(places[begin:end]) == 1).all()):
            source.read_into(start, buffer[low : low + count])
            continue
        data = np.frombuffer(source.read_ranges([(start, int(offsets[end - 1]) + length - start)])[0], np.uint8)
        within = offsets[begin:end] - start
        if length <= _SHORT:
            buffer[places[begin:end]] = data[within[:, np.newaxis] + np.arange(length)]
        else:
            for place, at in zip(places[begin:end].tolist(), within.tolist(), strict=True):
                buffer[place] = data[at : at + length]


def _read_short(
    source: ByteSource, offsets: np.ndarray, buffer: np.ndarray, places: np.ndarray, groups: tuple[np.ndarray, np.ndarray]
) -> None:
    """Read short rows in spans; ``groups``: their first rows, their bytes."""
    cuts, spans = groups
    width = int(spans.max())
    most = max(1, SPAN // width)
    for first in range(0, len(spans), most):
        some = slice(first, first + most)
        starts, sizes = offsets[cuts[:-1][some]], spans[some]
        block = np.empty((len(sizes), width), np.uint8)
        source.read_each(starts.tolist(), sizes.tolist(), block)
        rows = slice(int(cuts[first]), int(cuts[min(first + most, len(spans))]))
        number = np.repeat(np.arange(len(sizes)), np.diff(cuts[first : first + len(sizes) + 1]))
        within = number * width + offsets[rows] - starts[number]
        buffer[places[rows]] = block.ravel()[within[:, np.newaxis] + np.arange(buffer.shape[1])]
