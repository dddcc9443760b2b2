"""Header of a netCDF-3 file: attributes, dimensions and variables.

Counts, lengths and offsets are compared with the size of the file before they are used.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from aggarray.cf.encoding import decode_text
from aggarray.dataclass import dataclass
from aggarray.errors import FormatError
from aggarray.formats.base import Variable, has_coordinate, stored_variable
from aggarray.storage.byte_source import ByteSource

#: Types by code. The first six exist in all versions of the format.
_TYPES = dict(enumerate(map(np.dtype, (">i1", "S1", ">i2", ">i4", ">f4", ">f8", ">u1", ">u2", ">u4", ">i8", ">u8")), 1))
_CLASSIC_TYPES = 6
_DIMENSIONS, _VARIABLES, _ATTRIBUTES = 0x0A, 0x0B, 0x0C
_STREAMING = {1: 0xFFFFFFFF, 2: 0xFFFFFFFF, 5: 0xFFFFFFFFFFFFFFFF}
_HEADER_READ = 1 << 16
#: Largest number of dimensions in NumPy.
_MOST_AXES = 64


@dataclass(frozen=True, slots=True)
class VariableLocation:
    """Location of a variable.

    ``begin``: offset of the first byte; ``strides``: bytes per dimension. The first stride of a record variable is a record.
    """

    variable: Variable
    stored: np.dtype[Any]
    shape: tuple[int, ...]
    begin: int
    strides: tuple[int, ...]
    is_record: bool


@dataclass(frozen=True, slots=True)
class Header:
    """Global attributes, locations of variables, sizes of dimensions."""

    attrs: dict[str, Any]
    locations: tuple[VariableLocation, ...]
    sizes: dict[str, int]


@dataclass(frozen=True, slots=True)
class _Raw:
    """A variable as the header lists it; size 0: the record dimension."""

    name: str
    stored: np.dtype[Any]
    dimensions: tuple[str, ...]
    sizes: tuple[int, ...]
    attrs: dict[str, Any]
    begin: int
    is_record: bool


class _Cursor:
    """Parser position in a header; counts must fit the size of the file."""

    def __init__(self, path: str, file: ByteSource):
        self.path, self.file, self.size = path, file, file.size
        self.data, self.position = file.pread(_HEADER_READ, 0), 4
        self.version = self.data[3]
        # Counts and lengths have 8 bytes in CDF-5. Offsets have 4 bytes in CDF-1, else 8.
        self.count_width = 8 if self.version == 5 else 4
        self.offset_width = 4 if self.version == 1 else 8

    def take(self, count: int) -> int:
        start, self.position = self.position, self.position + count
        if self.position > len(self.data):
            if self.position > self.size:
                what = f"truncated: the header has at least {self.position} bytes, the file {self.size}"
                raise FormatError(what, path=self.path, hint="fetch or write it again")
            self.data += self.file.pread(max(self.position, 2 * len(self.data)) - len(self.data), len(self.data))
        return start

    def integer(self, width: int) -> int:
        start, stop = self.position, self.position + width
        if stop > len(self.data):
            self.take(width)
        self.position = stop
        return int.from_bytes(self.data[start:stop], "big")

    def count(self) -> int:
        return self.integer(self.count_width)

    def padded(self, count: int) -> bytes:
        start = self.take(count + -count % 4)
        return self.data[start : start + count]

    def name(self) -> str:
        """Return the next name. It ends at a null byte, as in netCDF-C."""
        return decode_text(self.padded(self.count()).partition(b"\0")[0])

    def items(self, tag: int, least: int) -> range:
        """Return the range of list items, each of at least ``least`` bytes."""
        stored, number = self.integer(4), self.count()
        if stored not in (0, tag) or (stored == 0 and number):
            raise self.damaged(f"a list begins with {stored:#x}, not {tag:#x}")
        if number * least > self.size - self.position:
            raise self.damaged(f"a list of {number} items does not fit into {self.size} bytes")
        return range(number)

    def dtype(self) -> np.dtype[Any]:
        code = self.integer(4)
        if code not in _TYPES or (code > _CLASSIC_TYPES and self.version != 5):
            raise self.damaged(f"unknown type {code}")
        return _TYPES[code]

    def attributes(self) -> dict[str, Any]:
        attrs: dict[str, Any] = {}
        for _ in self.items(_ATTRIBUTES, 12):
            name, dtype, number = self.name(), self.dtype(), self.count()
            data = self.padded(number * dtype.itemsize)
            if dtype.kind == "S":
                attrs[name] = decode_text(data).replace("\x00", "")
            else:
                values = np.frombuffer(data, dtype).astype(dtype.newbyteorder("="))
                attrs[name] = values[0] if number == 1 else values
        return attrs

    def damaged(self, what: str) -> FormatError:
        where = f"damaged netCDF-3 header near byte {self.position}"
        return FormatError(f"{where}: {what}", path=self.path, hint="fetch it again")


def header_of(path: str, file: ByteSource) -> Header:
    """Parse a header, or raise FormatError for locations out of range."""
    cursor = _Cursor(path, file)
    records = cursor.count()
    dimensions = [(cursor.name(), cursor.count()) for _ in cursor.items(_DIMENSIONS, 8)]
    attrs = cursor.attributes()
    raw = [_raw_variable(cursor, dimensions) for _ in cursor.items(_VARIABLES, 20)]
    for what, names in (("dimensions", [name for name, _ in dimensions]), ("variables", [v.name for v in raw])):
        if len(set(names)) < len(names):
            raise cursor.damaged(f"several {what} are named {Counter(names).most_common(1)[0][0]!r}")
    sizes = [math.prod(v.sizes[1:]) * v.stored.itemsize for v in raw if v.is_record]
    # A single record variable is not padded to a multiple of four.
    record_size = sizes[0] if len(sizes) == 1 else sum(size + -size % 4 for size in sizes)
    if records == _STREAMING[cursor.version]:
        # The number of records of a streamed file follows from its size.
        begins = [v.begin for v in raw if v.is_record]
        records = max(cursor.size - min(begins), 0) // record_size if begins and record_size else 0
    spans = {v.name: v.dimensions for v in raw}
    locations = tuple(_location(v, records, record_size, spans) for v in raw)
    _check_extents(cursor, locations)
    return Header(attrs, locations, {name: size or records for name, size in dimensions})


def _raw_variable(cursor: _Cursor, dimensions: Sequence[tuple[str, int]]) -> _Raw:
    name = cursor.name()
    rank = cursor.count()
    # promise: netcdf3-rank-bound
    if rank > _MOST_AXES or rank * cursor.count_width > cursor.size - cursor.position:
        raise cursor.damaged(f"variable {name!r} has {rank} dimensions")
    ids = tuple(cursor.count() for _ in range(rank))
    for position, number in enumerate(ids):
        if number >= len(dimensions):
            raise cursor.damaged(f"variable {name!r} has dimension {number} of {len(dimensions)}")
        if position and dimensions[number][1] == 0:
            raise cursor.damaged(f"the record dimension {dimensions[number][0]!r} of variable {name!r} is not its first")
    attrs, dtype = cursor.attributes(), cursor.dtype()
    # Some writers cap the stated size at 4 GiB: it is computed from the shape instead.
    cursor.count()
    names, sizes = tuple(dimensions[number][0] for number in ids), tuple(dimensions[number][1] for number in ids)
    return _Raw(name, dtype, names, sizes, attrs, cursor.integer(cursor.offset_width), sizes[:1] == (0,))


def _location(raw: _Raw, records: int, record_size: int, spans: Mapping[str, tuple[str, ...]]) -> VariableLocation:
    shape = tuple(n or records for n in raw.sizes)
    strides = [raw.stored.itemsize]
    for n in shape[:0:-1]:
        strides.insert(0, strides[0] * n)
    if raw.is_record:
        strides[0] = record_size
    # The record dimension and a dimension with a coordinate are not lengths of text.
    real = bool(shape) and (raw.sizes[-1] == 0 or has_coordinate(raw.name, raw.dimensions[-1], spans))
    variable = stored_variable(raw.name, raw.stored, shape, raw.dimensions, raw.attrs, joined=not real)
    return VariableLocation(variable, raw.stored, shape, raw.begin, tuple(strides[: len(shape)]), raw.is_record)


def _check_extents(cursor: _Cursor, locations: Sequence[VariableLocation]) -> None:
    """Raise FormatError for values outside the file or that overlap."""
    extents: list[tuple[bool, int, int, str]] = []
    for location in locations:
        if 0 in location.shape:
            continue
        name, end = location.variable.name, location.begin + span_of(location, location.shape)
        # promise: netcdf3-truncated
        if end > cursor.size:
            what = f"truncated: its values end at byte {end}, the file has {cursor.size} bytes"
            raise FormatError(what, path=cursor.path, variable=name, hint="fetch or write it again")
        first = (1, *location.shape[1:]) if location.is_record else location.shape
        extents.append((location.is_record, location.begin, location.begin + span_of(location, first), name))
    end, before = cursor.position, "the header"
    for _, begin, stop, name in sorted(extents):
        # promise: netcdf3-offsets
        if begin < end:
            raise cursor.damaged(f"the values of {name!r} begin at byte {begin}, before the end of {before}")
        end, before = stop, repr(name)


def span_of(location: VariableLocation, shape: Sequence[int], steps: Sequence[int] | None = None) -> int:
    """Return the bytes from first to last element of a box of ``shape``."""
    steps = steps or (1,) * len(shape)
    gaps = sum((n - 1) * step * s for n, step, s in zip(shape, steps, location.strides, strict=True))
    return gaps + location.stored.itemsize
