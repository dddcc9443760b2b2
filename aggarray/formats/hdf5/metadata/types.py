"""Datatypes and dataspaces of datasets and attributes."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from typing import Any

import numpy as np

from aggarray.dataclass import NamedTuple, dataclass, replace
from aggarray.formats.hdf5.metadata.data import UNDEFINED, UnsupportedError, little_endian, require

PLAIN, CHARACTERS, TEXTS, REFERENCES, USERS, OTHER = "plain", "characters", "texts", "references", "users", "other"
#: Numbers that only the HDF5 library converts to a NumPy dtype.
CONVERTED = "converted"
#: Object references, one per element.
OBJECTS = "objects"
#: Variable-length rows of numbers, and of other types.
ROWS, OTHER_ROWS = "rows", "other rows"

#: HDF5's numbers of datatype classes.
_INTEGER, _FLOAT, _NAMED = 0, 1, 8

#: Stored size of a variable-length element: count, address of a collection in the global heap, number of the object in it.
ELEMENT = 16

#: Stored element type of variable-length text, after version and class.
_BYTE = bytes([0, 0, 0, 1, 0, 0, 0, 0, 0, 8, 0])
#: Size, mantissa bits, largest and smallest exponent of the floating-point dtypes of converted values.
_FLOATS = ((2, 10, 15, -14), (4, 23, 127, -126), (8, 52, 1023, -1022))
#: Tag of h5py for dates and durations, for which HDF5 has no type.
_DATES = rb"NUMPY:([<>|=]?[mM]8(?:\[[0-9a-zA-Z]{1,8}\])?)\0*"
_BOOLEAN = {b"FALSE": 0, b"TRUE": 1}
_DEEPEST = 8

#: Name and value of each member of an enumeration, in the order of values.
Members = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Datatype:
    """Datatype, and the size of an element in bytes.

    ``category``: PLAIN (numbers), CONVERTED (numbers that the HDF5 library converts), CHARACTERS (fixed-length text), TEXTS
    (variable-length text), OBJECTS (object references), REFERENCES (lists of these), ROWS (of numbers), OTHER_ROWS, USERS
    (pairs of a reference and a number: the datasets along a scale) or OTHER. ``dtype``: as stored, including the byte order; of
    CONVERTED that of the values, of ROWS that of their numbers; None except for these, PLAIN and CHARACTERS. ``terminated``:
    whether CHARACTERS are NUL-terminated. ``type_name``: the name of a type that is not read; ``members``: (name, value) of an
    enumeration.
    """

    category: str
    size: int
    dtype: np.dtype[Any] | None = None
    terminated: bool = False
    type_name: str = ""
    members: Members = ()


@dataclass(frozen=True, slots=True)
class Dataspace:
    """Dataspace: shape and greatest shape, -1 = unlimited."""

    shape: tuple[int, ...]
    most: tuple[int, ...]
    empty: bool = False

    @property
    def count(self) -> int:
        """Number of elements."""
        return 0 if self.empty else math.prod(self.shape)


@cache
def _plain_dtypes() -> dict[bytes, np.dtype[Any]]:
    """Return the dtypes of NumPy and netCDF-4 by unversioned stored form."""
    dtypes = {}
    for size in (1, 2, 4, 8):
        for order, bit in (("<", 0), (">", 1)):
            for code, sign in (("u", 0), ("i", 8)):
                message = struct.pack("<BBBBIHH", 0, bit | sign, 0, 0, size, 0, 8 * size)
                dtypes[message] = np.dtype(f"{order}{code}{size}")
    for size, layout, bias in ((2, (10, 5, 0, 10), 15), (4, (23, 8, 0, 23), 127), (8, (52, 11, 0, 52), 1023)):
        for order, bit in (("<", 0), (">", 1)):
            # The first bit of the mantissa is implied (2 << 4); the sign is the last bit.
            message = struct.pack("<BBBBIHH4BI", 1, 0x20 | bit, 8 * size - 1, 0, size, 0, 8 * size, *layout, bias)
            dtypes[message] = np.dtype(f"{order}f{size}")
    return dtypes


@lru_cache(maxsize=512)
def datatype_of(message: bytes) -> Datatype:
    """Return the datatype in a message (type 0x0003), perhaps padded."""
    datatype, end = _parse(message, 0)
    # The padding after a composite type may hold arbitrary bytes.
    require(datatype.category == OTHER or not any(message[end:]), "malformed datatype")
    return datatype


def _parse(message: bytes, at: int, depth: int = 0) -> tuple[Datatype, int]:
    require(at + 8 <= len(message) and depth < _DEEPEST, "truncated datatype")
    version, number = message[at] >> 4, message[at] & 15
    size = int.from_bytes(message[at + 4 : at + 8], "little")
    require(1 <= version <= 5 and size > 0 and number < len(_CLASSES), f"datatype version {version} of class {number}")
    datatype, end = _CLASSES[number](_Type(message, at, version, size, message[at + 1 : at + 4], depth))
    require(end <= len(message), "truncated datatype")
    return datatype, end


class _Type(NamedTuple):
    """Datatype in a message: offset, version, size, flags, nesting depth."""

    message: bytes
    at: int
    version: int
    size: int
    bits: bytes
    depth: int

    @property
    def rest(self) -> int:
        """Offset of the properties of the type."""
        return self.at + 8

    @property
    def number(self) -> int:
        return int.from_bytes(self.bits[:2], "little")

    def inner(self, at: int) -> tuple[Datatype, int]:
        return _parse(self.message, at, self.depth + 1)

    def name(self, at: int) -> tuple[bytes, int]:
        end = self.message.find(b"\0", at)
        require(end > at, "malformed datatype")
        return self.message[at:end], end + 1 if self.version >= 3 else at + (end - at) // 8 * 8 + 8


_Parsed = tuple[Datatype, int]


def _integer(t: _Type) -> _Parsed:
    """Return an integer type; bit fields become unsigned integers."""
    stored = t.message[t.at : t.at + 12]
    require(len(stored) == 12 and stored[1] < 16 and not any(stored[2:4]), "malformed datatype")
    offset, precision = struct.unpack_from("<HH", stored, 8)
    require(precision > 0 and offset + precision <= 8 * t.size, "malformed datatype")
    dtype = _plain_dtypes().get(bytes([_INTEGER]) + stored[1:])
    sign = "i" if stored[1] & 8 and stored[0] & 15 == _INTEGER else "u"
    if dtype is not None:
        datatype = Datatype(PLAIN, t.size, dtype)
    elif t.size in (1, 2, 4, 8):
        datatype = Datatype(CONVERTED, t.size, np.dtype(f"{'>' if stored[1] & 1 else '<'}{sign}{t.size}"))
    else:
        datatype = Datatype(OTHER, t.size, type_name=f"{8 * t.size}-bit integer")
    return datatype, t.at + 12


def _float(t: _Type) -> _Parsed:
    """Return the smallest float dtype that holds the values, as in h5py."""
    stored = t.message[t.at : t.at + 20]
    require(len(stored) == 20, "truncated datatype")
    dtype = _plain_dtypes().get(bytes([_FLOAT]) + stored[1:])
    if dtype is not None:
        return Datatype(PLAIN, t.size, dtype), t.at + 20
    offset, precision, exponent_at, exponent, start, mantissa, bias = struct.unpack_from("<HHBBBBI", stored, 8)
    ends = (offset + precision, exponent_at + exponent, start + mantissa, stored[2] + 1)
    require(max(ends) <= 8 * t.size and min(exponent, mantissa) > 0 and stored[1] >> 4 & 3 < 3, "malformed datatype")
    for itemsize, digits, highest, lowest in _FLOATS:
        if mantissa <= digits and (1 << exponent) - bias - 1 <= highest and 1 - bias >= lowest:
            order = ">" if stored[1] & 65 == 1 else "<"
            return Datatype(CONVERTED, t.size, np.dtype(f"{order}f{itemsize}")), t.at + 20
    return Datatype(OTHER, t.size, type_name=f"{8 * t.size}-bit floating-point"), t.at + 20


def _time(t: _Type) -> _Parsed:
    return Datatype(OTHER, t.size, type_name="time"), t.rest + 2


def _characters(t: _Type) -> _Parsed:
    _check_string(t.bits[0], t.bits[1:])
    return Datatype(CHARACTERS, t.size, np.dtype(f"S{t.size}"), not t.bits[0] & 15), t.rest


def _opaque(t: _Type) -> _Parsed:
    """Return an opaque type, or dates and durations if h5py's tag marks them."""
    length = t.bits[0]
    require(not any(t.bits[1:]) and length % 8 == 0, "malformed datatype")
    dates = re.fullmatch(_DATES, t.message[t.rest : t.rest + length])
    datatype = Datatype(OTHER, t.size, type_name="opaque")
    return datatype if dates is None else Datatype(
        CONVERTED, t.size, np.dtype(dates[1].decode()), type_name="opaque"
    ), t.rest + length


def _compound(t: _Type) -> _Parsed:
    members, at = [], t.rest
    require(t.number > 0, "malformed datatype")
    for _ in range(t.number):
        name, at = t.name(at)
        width = (t.size.bit_length() + 7) // 8 if t.version >= 3 else 4
        offset = little_endian(t.message, at, width)
        part, at = t.inner(at + width + (28 if t.version == 1 else 0))
        require(offset + part.size <= t.size, "malformed datatype")
        members.append((name, offset, part))
    names, offsets, datatypes = zip(*members, strict=True)
    if (names, offsets, t.size) == ((b"dataset", b"dimension"), (0, 8), ELEMENT) and datatypes[0].category == OBJECTS:
        user = datatypes[1].dtype in (np.dtype("<i4"), np.dtype("<u4"))
        return Datatype(USERS if user else OTHER, t.size, type_name="compound"), at
    if names == (b"r", b"i") and offsets == (0, datatypes[0].size) and datatypes[0] == datatypes[1]:
        datatype = _complex_of(datatypes[0], t.size)
        return (datatype if datatype.category == PLAIN else Datatype(OTHER, t.size, type_name="compound")), at
    return Datatype(OTHER, t.size, type_name="compound"), at


def _complex(t: _Type) -> _Parsed:
    require(t.version >= 5 and t.bits == b"\1\0\0", "malformed datatype")
    part, end = t.inner(t.rest)
    return _complex_of(part, t.size), end


def _complex_of(part: Datatype, size: int) -> Datatype:
    dtype = part.dtype
    if part.category == PLAIN and dtype is not None and dtype.kind == "f" and part.size > 2 and size == 2 * part.size:
        return Datatype(PLAIN, size, np.dtype(f"{dtype.byteorder}c{size}"))
    return Datatype(OTHER, size, type_name="complex")


def _reference(t: _Type) -> _Parsed:
    objects = t.bits == b"\0\0\0" and t.size == 8
    return Datatype(OBJECTS if objects else OTHER, t.size, type_name="reference"), t.rest


def _enumeration(t: _Type) -> _Parsed:
    """Return the integer type of an enumeration, except h5py's booleans."""
    base, at = t.inner(t.rest)
    names = []
    for _ in range(t.number):
        name, at = t.name(at)
        names.append(name)
    end = at + base.size * len(names)
    values = t.message[at:end]
    require(base.category in (PLAIN, CONVERTED) and base.size == t.size and end <= len(t.message), "malformed datatype")
    if base.size == 1 and dict(zip(names, values, strict=True)) == _BOOLEAN:
        return Datatype(CONVERTED, 1, np.dtype(bool)), end
    if base.category != PLAIN or base.dtype is None:
        return base, end
    numbers = np.frombuffer(values, base.dtype).tolist()
    texts = [name.decode("utf-8", "backslashreplace") for name in names]
    return replace(base, members=members_of(dict(zip(texts, numbers, strict=True)))), end


def members_of(values: Mapping[str, int]) -> Members:
    """Return the members of an enumeration in the order of their values."""
    return tuple(sorted(((name, int(value)) for name, value in values.items()), key=lambda member: (member[1], member[0])))


def _sequence(t: _Type) -> _Parsed:
    """Return a variable-length type: text, lists of references, or rows."""
    # Types other than sequence and text crash the library.
    require(t.size == ELEMENT and t.bits[0] & 15 <= 1, "malformed datatype")
    inner, end = t.inner(t.rest)
    if t.bits[0] & 15 == 1:
        _check_string(t.bits[0] >> 4 | (t.bits[1] & 15) << 4, t.bits[2:3] + bytes([t.bits[1] >> 4]))
        require(t.message[t.rest] & 15 == _INTEGER and t.message.startswith(_BYTE, t.rest + 1), "malformed datatype")
        return Datatype(TEXTS, ELEMENT), end
    if t.bits == b"\0\0\0":
        if inner.category == OBJECTS:
            return Datatype(REFERENCES, ELEMENT, type_name="variable-length"), end
        # Rows of enumerations are not read.
        numbers = inner.category == PLAIN and t.message[t.rest] & 15 != _NAMED
        return Datatype(ROWS if numbers else OTHER_ROWS, ELEMENT, inner.dtype, type_name="variable-length"), end
    return Datatype(OTHER_ROWS, ELEMENT, type_name="variable-length"), end


def _array(t: _Type) -> _Parsed:
    rank = little_endian(t.message, t.rest, 1)
    at = t.rest + (1 if t.version >= 3 else 4)
    sides = [little_endian(t.message, at + 4 * i, 4) for i in range(rank)]
    part, end = t.inner(at + (4 if t.version >= 3 else 8) * rank)
    require(0 < rank <= 32 and math.prod(sides) * part.size == t.size, "malformed datatype")
    return Datatype(OTHER, t.size, type_name="array"), end


#: Parsers by HDF5's number of the class.
_CLASSES: tuple[Callable[[_Type], _Parsed], ...] = (
    *(_integer, _float, _time, _characters, _integer, _opaque, _compound),
    *(_reference, _enumeration, _sequence, _array, _complex),
)


def _check_string(padding_and_set: int, rest: bytes) -> None:
    require(padding_and_set & 15 <= 2 and padding_and_set >> 4 <= 1 and not any(rest), "malformed string datatype")


@lru_cache(maxsize=2048)
def dataspace_of(message: bytes) -> Dataspace:
    """Return the dataspace in a message (type 0x0001), perhaps padded."""
    require(len(message) >= 4, "truncated dataspace")
    version, rank, flags, form = message[:4]
    if version == 1:
        at, form = 8, 1 if rank else 0
    elif version == 2:
        at = 4
    else:
        raise UnsupportedError(f"dataspace version {version}")
    require(rank <= 32 and flags <= 1 and form <= 2 and (form == 1 or rank == 0), "malformed dataspace")
    end = at + 8 * rank * (1 + flags)
    require(end <= len(message) < end + 8 and not any(message[end:]), "truncated dataspace")
    numbers = struct.unpack_from(f"<{rank * (1 + flags)}Q", message, at)
    shape, most = numbers[:rank], numbers[rank:] if flags else numbers[:rank]
    for n, limit in zip(shape, most, strict=True):
        require(n < 1 << 63 and (limit == UNDEFINED or n <= limit), "malformed dataspace")
    return Dataspace(shape, tuple(-1 if limit == UNDEFINED else limit for limit in most), form == 2)
