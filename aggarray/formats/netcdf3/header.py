"""What does the header of a netCDF-3 file say: which variables there are, and where each of them lies?

Nothing that it claims is believed before it is held against the size of the file.
"""

import functools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from aggarray.cf.encoding import decode_text
from aggarray.errors import FormatError
from aggarray.formats.base import Variable, has_coordinate, stored_variable
from aggarray.storage.byte_source import ByteSource

_TYPES = {
    **{1: ">i1", 2: "S1", 3: ">i2", 4: ">i4", 5: ">f4", 6: ">f8"},
    **{7: ">u1", 8: ">u2", 9: ">u4", 10: ">i8", 11: ">u8"},
}
_CLASSIC_TYPES = 6
_DIMENSIONS, _VARIABLES, _ATTRIBUTES = 0x0A, 0x0B, 0x0C
_STREAMING = {1: 0xFFFFFFFF, 2: 0xFFFFFFFF, 5: 0xFFFFFFFFFFFFFFFF}
_HEADER_READ = 1 << 16
#: NumPy knows so many dimensions.
_MOST_AXES = 64


@dataclass(frozen=True, slots=True)
class VariableLocation:
    """Where a variable lies: ``strides`` in bytes per dimension, the first one a whole record for a record variable."""

    variable: Variable
    stored: np.dtype[Any]
    shape: tuple[int, ...]
    begin: int
    strides: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Header:
    """What a header says: global attributes, where the variables lie, the lengths of the dimensions."""

    attrs: dict[str, Any]
    places: tuple[VariableLocation, ...]
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

    def __init__(self, path: str, file: ByteSource):
        self.path, self.file, self.size = path, file, file.size
        self.data, self.at = file.pread(_HEADER_READ, 0), 4
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
            self.data += self.file.pread(max(self.at, 2 * len(self.data)) - len(self.data), len(self.data))
        return start

    def integer(self, width: int) -> int:
        """Return the next big-endian unsigned integer."""
        start, stop = self.at, self.at + width
        if stop > len(self.data):
            self.take(width)
        self.at = stop
        return int.from_bytes(self.data[start:stop], "big")

    def count(self) -> int:
        """Return the next count of things, each of which takes a byte or more."""
        return self.integer(self.count_width)

    def padded(self, count: int) -> bytes:
        """Return the next ``count`` bytes and step over the padding to a multiple of four."""
        start = self.take(count + -count % 4)
        return self.data[start : start + count]

    def name(self) -> str:
        """Return the next name, which ends at a null byte, as netCDF-C reads it."""
        return decode_text(self.padded(self.count()).partition(b"\0")[0])

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
                found[name] = decode_text(data).replace("\x00", "")
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


def header_of(path: str, file: ByteSource) -> Header:
    """Parse a header and check that the file is long enough for all that it announces."""
    cursor = _Cursor(path, file)
    records = cursor.count()
    dimensions = [(cursor.name(), cursor.count()) for _ in cursor.items(_DIMENSIONS, 8)]
    attrs = cursor.attributes()
    raw = [_raw_variable(cursor, dimensions) for _ in cursor.items(_VARIABLES, 20)]
    for what, names in (("dimensions", [name for name, _ in dimensions]), ("variables", [v.name for v in raw])):
        if len(set(names)) < len(names):
            raise cursor.damaged(f"two {what} are named {Counter(names).most_common(1)[0][0]!r}")
    record_size = _record_size(raw, dimensions)
    if records == _STREAMING[cursor.version]:
        # Written as a stream: as many records as the file has room for.
        begins = [v.begin for v in raw if _is_record(v, dimensions)]
        records = max(cursor.size - min(begins), 0) // record_size if begins and record_size else 0
    spans = {v.name: tuple(dimensions[d][0] for d in v.dimensions) for v in raw}
    places = tuple(_place(v, dimensions, (records, record_size), spans) for v in raw)
    for place in places:
        _check_size(path, place, cursor.size)
    _check_apart(cursor, raw, dimensions, places)
    return Header(attrs, places, {name: size or records for name, size in dimensions})


def _raw_variable(cursor: _Cursor, dimensions: Sequence[tuple[str, int]]) -> _Raw:
    name = cursor.name()
    rank = cursor.count()
    # promise: netcdf3-rank-bound
    if rank > _MOST_AXES or rank * cursor.count_width > cursor.size - cursor.at:
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
) -> VariableLocation:
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
    return VariableLocation(variable, raw.stored, shape, raw.begin, tuple(strides[: len(shape)]))


def _check_size(path: str, place: VariableLocation, size: int) -> None:
    if 0 in place.shape:
        return
    end = place.begin + span_of(place, place.shape)
    # promise: netcdf3-truncated
    if end > size:
        raise FormatError(
            f"{path}, variable {place.variable.name!r}: truncated: its values end at byte {end}, the file has {size} bytes; "
            "fetch or write it again"
        )


def _check_apart(
    cursor: _Cursor, raw: Sequence[_Raw], dimensions: Sequence[tuple[str, int]], places: Sequence[VariableLocation]
) -> None:
    """Raise an error where values begin in the header, or among those of another variable: an offset is wrong."""
    fixed: list[tuple[int, int, str]] = []
    records: list[tuple[int, int, str]] = []
    for variable, place in zip(raw, places, strict=True):
        if 0 in place.shape:
            continue
        record = _is_record(variable, dimensions)
        span = span_of(place, (1, *place.shape[1:]) if record else place.shape)
        (records if record else fixed).append((place.begin, place.begin + span, variable.name))
    end, before = cursor.at, "the header"
    for begin, stop, name in [*sorted(fixed), *sorted(records)]:
        # promise: netcdf3-offsets
        if begin < end:
            raise cursor.damaged(f"the values of {name!r} begin at byte {begin}, where {before} has not ended")
        end, before = stop, repr(name)


def span_of(place: VariableLocation, taken: Sequence[int], steps: Sequence[int] | None = None) -> int:
    """Return the bytes from the first to the end of the last element of a box of ``taken`` elements per dimension."""
    steps = steps or (1,) * len(taken)
    return sum((n - 1) * step * s for n, step, s in zip(taken, steps, place.strides, strict=True)) + place.stored.itemsize
