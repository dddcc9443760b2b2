"""What does a netCDF-3 file hold, and where are the bytes of a box?

Classic (CDF-1), 64-bit offset (CDF-2) and 64-bit data (CDF-5) files are read without a library: the header says where
every variable begins, the record variables interleave, and a box is read by `os.pread`. No lock, no shared position.
The layout is that of the "NetCDF classic format specification".
"""

import functools
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np

from aggarray.errors import FormatError, NotFoundError
from aggarray.formats.base import (
    Box,
    Chunks,
    Handle,
    Structure,
    Variable,
    blaming,
    counts,
    has_coordinate,
    one_chunk,
    stored_values,
    stored_variable,
    whole,
    with_values,
    worth_a_table,
)
from aggarray.formats.glimpses import Glimpse, Wanted, glimpsed

_TYPES = {
    **{1: ">i1", 2: "S1", 3: ">i2", 4: ">i4", 5: ">f4", 6: ">f8"},
    **{7: ">u1", 8: ">u2", 9: ">u4", 10: ">i8", 11: ">u8"},
}
_CLASSIC_TYPES = 6
_DIMENSIONS, _VARIABLES, _ATTRIBUTES = 0x0A, 0x0B, 0x0C
_STREAMING = {1: 0xFFFFFFFF, 2: 0xFFFFFFFF, 5: 0xFFFFFFFFFFFFFFFF}
_HEADER_READ = 1 << 16

#: A sparse box is read in spans of at most this many bytes, gaps included.
_SPAN = 1 << 22


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a variable lies: ``strides`` in bytes per dimension, the first one a whole record for a record variable."""

    variable: Variable
    stored: np.dtype[Any]
    shape: tuple[int, ...]
    begin: int
    strides: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Header:
    attrs: dict[str, Any]
    places: tuple[_Place, ...]
    sizes: dict[str, int]


@dataclass(frozen=True, slots=True)
class _Raw:
    """A variable as the header lists it; dimensions by position in the list of dimensions."""

    name: str
    stored: np.dtype[Any]
    dimensions: tuple[int, ...]
    attrs: dict[str, Any]
    begin: int


class _Cursor:
    """Walks through a header, fetching more of the file as it goes; every count is checked against the file's size."""

    def __init__(self, path: str, file: int):
        self.path, self.file, self.size = path, file, os.fstat(file).st_size
        self.data, self.at = os.pread(file, _HEADER_READ, 0), 4
        self.version = self.data[3]
        # Counts and lengths have 8 bytes in CDF-5, offsets 8 bytes except in CDF-1.
        self.count_width = 8 if self.version == 5 else 4
        self.offset_width = 4 if self.version == 1 else 8

    def take(self, count: int) -> int:
        """Step over ``count`` bytes and return where they begin."""
        start, self.at = self.at, self.at + count
        if self.at > len(self.data):
            if self.at > self.size:
                raise FormatError(
                    f"{self.path}: truncated: the header needs {self.at} bytes or more, the file has {self.size}; "
                    "fetch or write it again"
                )
            self.data += os.pread(self.file, max(self.at, 2 * len(self.data)) - len(self.data), len(self.data))
        return start

    def integer(self, width: int) -> int:
        """Return the next big-endian unsigned integer."""
        start = self.take(width)
        return int.from_bytes(self.data[start : self.at], "big")

    def count(self) -> int:
        """Return the next count of things, each of which takes a byte or more."""
        return self.integer(self.count_width)

    def padded(self, count: int) -> bytes:
        """Return the next ``count`` bytes and step over the padding to a multiple of four."""
        start = self.take(count + -count % 4)
        return self.data[start : start + count]

    def name(self) -> str:
        """Return the next name."""
        return self.padded(self.count()).decode("utf-8")

    def items(self, tag: int, least: int) -> range:
        """Open a list and return its positions; each item takes at least ``least`` bytes."""
        found, number = self.integer(4), self.count()
        if found not in (0, tag) or (found == 0 and number):
            raise self.damaged(f"a list begins with {found:#x}, not {tag:#x}")
        if number * least > self.size - self.at:
            raise self.damaged(f"a list of {number} items does not fit into {self.size} bytes")
        return range(number)

    def dtype(self) -> np.dtype[Any]:
        """Return the next type."""
        code = self.integer(4)
        if code not in _TYPES or (code > _CLASSIC_TYPES and self.version != 5):
            raise self.damaged(f"there is no type {code}")
        return _dtype(code)

    def attributes(self) -> dict[str, Any]:
        """Return the next list of attributes: text, a scalar, or an array of several values."""
        found: dict[str, Any] = {}
        for _ in self.items(_ATTRIBUTES, 12):
            name, dtype, number = self.name(), self.dtype(), self.count()
            data = self.padded(number * dtype.itemsize)
            if dtype.kind == "S":
                found[name] = data.decode("utf-8", "replace").replace("\x00", "")
            else:
                values = np.frombuffer(data, dtype).astype(dtype.newbyteorder("="))
                found[name] = values[0] if number == 1 else values
        return found

    def damaged(self, what: str) -> FormatError:
        """Return the error for a header that makes no sense."""
        return FormatError(f"{self.path}: damaged netCDF-3 header near byte {self.at}: {what}; fetch it again")


@functools.cache
def _dtype(code: int) -> np.dtype[Any]:
    return np.dtype(_TYPES[code])


def _header(path: str, file: int) -> _Header:
    """Parse a header and check that the file is long enough for all that it announces."""
    cursor = _Cursor(path, file)
    records = cursor.count()
    dimensions = [(cursor.name(), cursor.count()) for _ in cursor.items(_DIMENSIONS, 8)]
    attrs = cursor.attributes()
    raw = [_raw_variable(cursor, dimensions) for _ in cursor.items(_VARIABLES, 20)]
    record_size = _record_size(raw, dimensions)
    if records == _STREAMING[cursor.version]:
        # Written as a stream: as many records as the file has room for.
        begins = [v.begin for v in raw if _is_record(v, dimensions)]
        records = max(cursor.size - min(begins), 0) // record_size if begins and record_size else 0
    spans = {v.name: tuple(dimensions[d][0] for d in v.dimensions) for v in raw}
    places = tuple(_place(v, dimensions, (records, record_size), spans) for v in raw)
    for place in places:
        _check_size(path, place, cursor.size)
    return _Header(attrs, places, {name: size or records for name, size in dimensions})


def _raw_variable(cursor: _Cursor, dimensions: Sequence[tuple[str, int]]) -> _Raw:
    name = cursor.name()
    rank = cursor.count()
    if rank * cursor.count_width > cursor.size - cursor.at:
        raise cursor.damaged(f"variable {name!r} has {rank} dimensions")
    ids = tuple(cursor.count() for _ in range(rank))
    for position, number in enumerate(ids):
        if number >= len(dimensions):
            raise cursor.damaged(f"variable {name!r} names dimension {number} of {len(dimensions)}")
        if position and dimensions[number][1] == 0:
            raise cursor.damaged(f"variable {name!r} has the record dimension {dimensions[number][0]!r} not first")
    attrs, dtype = cursor.attributes(), cursor.dtype()
    # The size that the header states is capped at 4 GiB by some writers: it is reckoned from the shape instead.
    cursor.count()
    return _Raw(name, dtype, ids, attrs, cursor.integer(cursor.offset_width))


def _is_record(raw: _Raw, dimensions: Sequence[tuple[str, int]]) -> bool:
    return bool(raw.dimensions) and dimensions[raw.dimensions[0]][1] == 0


def _record_size(variables: Sequence[_Raw], dimensions: Sequence[tuple[str, int]]) -> int:
    """Return the bytes of one record; a single record variable is not padded to a multiple of four."""
    records = [v for v in variables if _is_record(v, dimensions)]
    sizes = [math.prod(dimensions[d][1] for d in v.dimensions[1:]) * v.stored.itemsize for v in records]
    return sizes[0] if len(sizes) == 1 else sum(size + -size % 4 for size in sizes)


def _place(
    raw: _Raw, dimensions: Sequence[tuple[str, int]], sizes: tuple[int, int], spans: Mapping[str, tuple[str, ...]]
) -> _Place:
    """Return where a variable lies. ``sizes``: number and bytes of records; ``spans``: every variable's dimensions."""
    records, record_size = sizes
    shape = tuple(dimensions[d][1] or records for d in raw.dimensions)
    strides = [raw.stored.itemsize]
    for n in shape[:0:-1]:
        strides.insert(0, strides[0] * n)
    if _is_record(raw, dimensions):
        strides[0] = record_size
    names = spans[raw.name]
    # A record is no character of a text, nor is what a coordinate describes.
    real = bool(names) and (dimensions[raw.dimensions[-1]][1] == 0 or has_coordinate(raw.name, names[-1], spans))
    variable = stored_variable(raw.name, raw.stored, shape, names, raw.attrs, joined=not real)
    return _Place(variable, raw.stored, shape, raw.begin, tuple(strides[: len(shape)]))


def _check_size(path: str, place: _Place, size: int) -> None:
    if 0 in place.shape:
        return
    end = place.begin + _span(place, place.shape)
    if end > size:
        raise FormatError(
            f"{path}, variable {place.variable.name!r}: truncated: its values end at byte {end}, the file has {size} bytes; "
            "fetch or write it again"
        )


def _span(place: _Place, taken: Sequence[int], steps: Sequence[int] | None = None) -> int:
    """Return the bytes from the first to the end of the last element of a box of ``taken`` elements per dimension."""
    steps = steps or (1,) * len(taken)
    return sum((n - 1) * step * s for n, step, s in zip(taken, steps, place.strides, strict=True)) + place.stored.itemsize


def _chunks(place: _Place) -> Chunks | None:
    """Describe where the values lie: in one piece, or a record at a time between those of other variables."""
    shape, dtype = place.shape, place.stored
    fill = dtype.newbyteorder("=").type(0)
    if dtype.kind == "S":
        return None
    size = math.prod(shape[1:]) * dtype.itemsize
    if 0 in shape or not shape or place.strides[0] == size:
        return one_chunk(shape, dtype, fill, place.begin)
    # A file with holes may claim any number of records.
    if not worth_a_table(shape[:1], 0):
        return None
    offsets = place.begin + np.arange(shape[0], dtype=np.int64) * place.strides[0]
    return Chunks(shape, (1, *shape[1:]), dtype, (), fill, offsets, np.full(shape[0], size, np.int64))


def _read_box(file: int, place: _Place, box: Box) -> np.ndarray:
    """Return the values of a box, native, in the stored shape."""
    out = np.empty(counts(box), place.stored.newbyteorder("="))
    if out.size:
        for part, target in _pieces(place, box, out):
            _read_span(file, place, part, target)
    return out


def _pieces(place: _Place, box: Box, out: np.ndarray) -> Iterator[tuple[Box, np.ndarray]]:
    """Cut a sparse box into boxes of short spans, each with its part of ``out``."""
    wanted = out.nbytes
    span = _span(place, out.shape, [s.step or 1 for s in box])
    axis = next((i for i, n in enumerate(out.shape) if n > 1), None)
    if axis is None or span <= max(_SPAN, 2 * wanted):
        yield box, out
        return
    chosen = box[axis]
    step = chosen.step or 1
    several = max(1, _SPAN // (step * place.strides[axis]))
    for first in range(0, out.shape[axis], several):
        last = min(first + several, out.shape[axis])
        part = slice(chosen.start + first * step, chosen.start + (last - 1) * step + 1, step)
        target = out[(slice(None),) * axis + (slice(first, last),)]
        yield from _pieces(place, (*box[:axis], part, *box[axis + 1 :]), target)


def _read_span(file: int, place: _Place, box: Box, out: np.ndarray) -> None:
    """Read the span of a box at once and pick its elements into ``out``."""
    steps = [s.step or 1 for s in box]
    offset = place.begin + sum(s.start * stride for s, stride in zip(box, place.strides, strict=True))
    span = _span(place, out.shape, steps)
    if span == out.nbytes and out.flags.c_contiguous:
        # The wanted bytes are all there is in between: straight into place.
        _fill(file, offset, out.reshape(-1).view(np.uint8).data)
        if place.stored.byteorder == ">" and not np.dtype(">i4").isnative:
            out.byteswap(inplace=True)
        return
    data = np.empty(span, np.uint8)
    _fill(file, offset, data.data)
    strides = [step * stride for step, stride in zip(steps, place.strides, strict=True)]
    out[...] = np.ndarray(out.shape, place.stored, data, strides=strides)


def _fill(file: int, offset: int, target: memoryview) -> None:
    done = 0
    while done < len(target):
        # The system reads at most 2 GiB at a time.
        got = os.preadv(file, [target[done:]], offset + done)
        if got == 0:
            raise EOFError(f"truncated since it was opened: ends at byte {offset + done}, {len(target) - done} more wanted")
        done += got


class _File:
    """An open netCDF-3 file."""

    lasting = True

    def __init__(self, path: str):
        self._path, self._file = path, os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        try:
            self.header = _header(path, self._file)
        except BaseException:
            self.close()
            raise
        self._places = {place.variable.name: place for place in self.header.places}

    def _place(self, variable: str) -> _Place:
        try:
            return self._places[variable]
        except KeyError:
            raise NotFoundError(f"{self._path}: no variable {variable!r}; it holds {', '.join(self._places)}") from None

    def values(self, variable: str, box: Box) -> np.ndarray:
        """Return the values of a box as they are, errors too."""
        place = self._place(variable)
        # Joined text is stored with its length as the last dimension.
        text = whole(place.shape[len(box) :])
        return stored_values(_read_box(self._file, place, (*box, *text)), place.variable.attrs, joined=bool(text))

    def whole(self, variable: Variable) -> np.ndarray:
        """Return all values of a variable as they are."""
        return self.values(variable.name, whole(variable.shape))

    def read(self, variable: str, box: Box) -> np.ndarray:
        """Return the stored values of a box."""
        with blaming(self._path, variable):
            return self.values(variable, box)

    def elsewhere(self, variable: str) -> Sequence[str]:
        """Return nothing: the format knows no other files."""
        return ()

    def mapped(self, variable: str) -> np.ndarray | None:
        """Return the whole variable as a read-only view of the mapped file, big-endian, records strided."""
        place = self._place(variable)
        if place.stored.kind == "S" or 0 in place.shape:
            return None
        with blaming(self._path, variable):
            data = np.memmap(self._path, np.uint8, "r", place.begin, (_span(place, place.shape),))
            view = np.ndarray(place.shape, place.stored, data, strides=place.strides)
        view.flags.writeable = False
        return view

    def chunks(self, variable: str) -> Chunks | None:
        """Return where the values are stored, None for text; records without a gap between them are one chunk."""
        with blaming(self._path, variable):
            return _chunks(self._place(variable))

    def close(self) -> None:
        """Close the file."""
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)

    def __del__(self) -> None:
        if os is not None:  # modules may be gone when the interpreter exits
            self.close()


class _NetCDF3:
    """The format netCDF-3 in its three versions."""

    name = "netCDF3"

    def recognises(self, path: str, head: bytes) -> bool:
        """Tell whether the first bytes are ``CDF`` and a known version."""
        return head[:3] == b"CDF" and head[3:4] in (b"\x01", b"\x02", b"\x05")

    def scan(self, path: str) -> Structure:
        """Read the header and the coordinates."""
        with closing(_File(path)) as file:
            variables = with_values([place.variable for place in file.header.places], file.whole)
            return Structure(path, self.name, file.header.attrs, variables, {}, sizes=file.header.sizes)

    def glimpse(self, path: str, wanted: Wanted) -> Glimpse | None:
        """Read the header and the coordinates wanted."""
        with closing(_File(path)) as file:
            return glimpsed(path, file.header.attrs, [p.variable for p in file.header.places], wanted, file.whole)

    def open(self, path: str) -> Handle:
        """Open for reading values."""
        return _File(path)


FORMAT = _NetCDF3()
