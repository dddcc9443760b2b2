"""What do the elements of a dataset or an attribute look like, and how many are there?"""

import math
import re
import struct
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import numpy as np

from aggarray.formats._h5.data import UNDEFINED, UnmodelledError, require

PLAIN, CHARACTERS, TEXTS, REFERENCES, USERS, OTHER = "plain", "characters", "texts", "references", "users", "other"
#: Numbers whose stored bytes only the HDF5 library turns into those of a NumPy dtype.
CONVERTED = "converted"
#: References to objects, one an element.
OBJECTS = "objects"
#: Rows of numbers, each of its own length; and of what else.
ROWS, OTHER_ROWS = "rows", "other rows"

#: HDF5's classes of datatypes.
_INTEGER, _FLOAT, _TIME, _STRING, _BITFIELD, _OPAQUE, _COMPOUND, _REFERENCE_CLASS, _ENUM, _SEQUENCE, _ARRAY, _COMPLEX = range(12)

#: A variable-length element as stored: count, address of a collection in the global heap, number of the object in it.
ELEMENT = 16

#: How HDF5 writes the type of the elements of text of variable length, and of a reference to an object.
_BYTE = bytes([0x10, 0, 0, 0, 1, 0, 0, 0, 0, 0, 8, 0])
_REFERENCE = bytes([0x17, 0, 0, 0, 8, 0, 0, 0])
#: Bits of the mantissa, largest and smallest exponent of the floating-point dtypes that values are converted to.
_FLOATS = ((2, 10, 15, -14), (4, 23, 127, -126), (8, 52, 1023, -1022))
#: How h5py tags dates and durations, which HDF5 has no type for.
_DATES = re.compile(rb"NUMPY:([<>|=]?[mM]8(?:\[[0-9a-zA-Z]{1,8}\])?)\0*")
_BOOLEAN = {b"FALSE": b"\0", b"TRUE": b"\1"}
_DEEPEST = 8


@dataclass(frozen=True, slots=True)
class Kind:
    """A datatype, and how many bytes an element has.

    ``name`` is PLAIN (numbers), CONVERTED (numbers that the HDF5 library converts), CHARACTERS (text of fixed length), TEXTS
    (of variable length), OBJECTS (references to objects), REFERENCES (lists of these), ROWS (of numbers), OTHER_ROWS, USERS
    (pairs of a reference and a number: who has a scale) or OTHER. ``dtype`` is as stored, byte order included, of CONVERTED
    that of the values, of ROWS that of their numbers; None except for these, PLAIN and CHARACTERS. ``terminated``: CHARACTERS
    end with a NUL. ``what``: the word for a type that is OTHER.
    """

    name: str
    size: int
    dtype: np.dtype[Any] | None = None
    terminated: bool = False
    what: str = ""


@dataclass(frozen=True, slots=True)
class Space:
    """A dataspace: its shape and the shape it may grow to, -1 = without end."""

    shape: tuple[int, ...]
    most: tuple[int, ...]
    empty: bool = False

    @property
    def count(self) -> int:
        """Number of elements."""
        return 0 if self.empty else math.prod(self.shape)


@cache
def _plain() -> dict[bytes, np.dtype[Any]]:
    """Return how HDF5 writes the dtypes that NumPy and netCDF-4 share, without the version."""
    found = {}
    for size in (1, 2, 4, 8):
        for order, bit in (("<", 0), (">", 1)):
            for code, sign in (("u", 0), ("i", 8)):
                message = struct.pack("<BBBBIHH", 0, bit | sign, 0, 0, size, 0, 8 * size)
                found[message] = np.dtype(f"{order}{code}{size}")
    for size, layout, bias in ((2, (10, 5, 0, 10), 15), (4, (23, 8, 0, 23), 127), (8, (52, 11, 0, 52), 1023)):
        for order, bit in (("<", 0), (">", 1)):
            # The mantissa's first bit is implied (2 << 4), the sign is the last bit.
            message = struct.pack("<BBBBIHH4BI", 1, 0x20 | bit, 8 * size - 1, 0, size, 0, 8 * size, *layout, bias)
            found[message] = np.dtype(f"{order}f{size}")
    return found


@lru_cache(maxsize=512)
def kind_of(message: bytes) -> Kind:
    """Return the datatype of a message (type 0x0003), which may be padded to a multiple of eight bytes."""
    kind, end = _parsed(message, 0, 0)
    require(_is_padding(message, end), "an odd datatype")
    return kind


def _parsed(message: bytes, at: int, depth: int) -> tuple[Kind, int]:
    """Return the datatype that begins at a place of a message, and where it ends (or the end of the message, where unknown)."""
    require(at + 8 <= len(message) and depth < _DEEPEST, "a datatype that is cut short")
    version, number = message[at] >> 4, message[at] & 15
    size = int.from_bytes(message[at + 4 : at + 8], "little")
    require(1 <= version <= 5 and size > 0, f"datatype version {version}")
    bits, rest = message[at + 1 : at + 4], at + 8
    if number in (_INTEGER, _BITFIELD):
        return _integer(message[at : at + 12], size), at + 12
    if number == _FLOAT:
        return _float(message[at : at + 20], size), at + 20
    if number == _STRING:
        _check_text(bits[0], bits[1:])
        return Kind(CHARACTERS, size, np.dtype(f"S{size}"), not bits[0] & 15), rest
    if number == _SEQUENCE:
        return _sequence(message[at:]), len(message)
    if number == _REFERENCE_CLASS:
        plain = bits == b"\0\0\0" and size == 8
        return Kind(OBJECTS, size, what="reference") if plain else Kind(OTHER, size, what="reference"), rest
    if number == _ENUM:
        return _enumeration(message, at, version, depth)
    if number == _COMPLEX:
        part, end = _parsed(message, rest, depth + 1)
        return _complex(part, size), end
    if message.startswith(_users(), at):
        return Kind(USERS, size, what="compound"), len(message)
    if number == _COMPOUND:
        return _compound(message, at, version, depth), len(message)
    if number == _OPAQUE and (dates := _DATES.fullmatch(message[rest : rest + bits[0]])):
        return Kind(CONVERTED, size, np.dtype(dates[1].decode())), rest + bits[0]
    what = {_TIME: "time", _OPAQUE: "opaque", _ARRAY: "array"}.get(number)
    require(what is not None, f"a datatype of class {number}")
    return Kind(OTHER, size, what=what or ""), len(message)


def _integer(message: bytes, size: int) -> Kind:
    """Return a type of whole numbers, or of bits, which are shown as unsigned numbers."""
    require(len(message) == 12 and message[1] < 16, "an odd datatype")
    dtype = _plain().get(bytes([_INTEGER]) + message[1:])
    if dtype is not None:
        return Kind(PLAIN, size, dtype)
    if size not in (1, 2, 4, 8):
        return Kind(OTHER, size, what=f"{8 * size}-bit integer")
    sign = "i" if message[1] & 8 and message[0] & 15 == _INTEGER else "u"
    return Kind(CONVERTED, size, np.dtype(f"{'>' if message[1] & 1 else '<'}{sign}{size}"))


def _float(message: bytes, size: int) -> Kind:
    """Return a type of floating-point numbers; those of odd layout have the smallest dtype that holds them, as in h5py."""
    require(len(message) == 20, "a datatype that is cut short")
    dtype = _plain().get(bytes([_FLOAT]) + message[1:])
    if dtype is not None:
        return Kind(PLAIN, size, dtype)
    _, _, _, exponent, _, mantissa, bias = struct.unpack_from("<HHBBBBI", message, 8)
    for itemsize, digits, highest, lowest in _FLOATS:
        if mantissa <= digits and (1 << exponent) - bias - 1 <= highest and 1 - bias >= lowest:
            return Kind(CONVERTED, size, np.dtype(f"{'>' if message[1] & 65 == 1 else '<'}f{itemsize}"))
    return Kind(OTHER, size, what=f"{8 * size}-bit floating-point")


def _enumeration(message: bytes, at: int, version: int, depth: int) -> tuple[Kind, int]:
    """Return a type of numbers with names: the numbers; h5py's booleans are left to it, as it checks them."""
    base, place = _parsed(message, at + 8, depth + 1)
    names = []
    for _ in range(int.from_bytes(message[at + 1 : at + 3], "little")):
        end = message.find(b"\0", place)
        require(end > place, "an odd datatype")
        names.append(message[place:end])
        place = end + 1 if version >= 3 else place + (end - place) // 8 * 8 + 8
    values = message[place : place + base.size * len(names)]
    require(len(values) == base.size * len(names) and base.name in (PLAIN, CONVERTED), "an odd datatype")
    end = place + len(values)
    if base.size == 1 and dict(zip(names, [values[i : i + 1] for i in range(len(values))], strict=True)) == _BOOLEAN:
        return Kind(CONVERTED, 1, np.dtype(bool)), end
    return base, end


def _compound(message: bytes, at: int, version: int, depth: int) -> Kind:
    """Return a type of named members: a complex number where these are its parts, in the order of NumPy."""
    size, place = int.from_bytes(message[at + 4 : at + 8], "little"), at + 8
    other = Kind(OTHER, size, what="compound")
    members = []
    if message[at + 1 : at + 3] != b"\2\0":
        return other
    for _ in range(2):
        end = message.find(b"\0", place)
        require(end > place, "an odd datatype")
        name, place = message[place:end], end + 1 if version >= 3 else place + (end - place) // 8 * 8 + 8
        width = (size.bit_length() + 7) // 8 if version >= 3 else 4
        offset = int.from_bytes(message[place : place + width], "little")
        place += width + (28 if version == 1 else 0)
        if name not in (b"r", b"i") or message[place : place + 1] and message[place] & 15 != _FLOAT:
            return other
        part, place = _parsed(message, place, depth + 1)
        members.append((name, offset, part))
    (real, first, part), (imaginary, second, beside) = members
    together = (real, imaginary) == (b"r", b"i") and (first, second) == (0, part.size) and part == beside
    return _complex(part, size) if together else other


def _complex(part: Kind, size: int) -> Kind:
    if part.name == PLAIN and part.dtype is not None and part.size in (4, 8) and size == 2 * part.size:
        return Kind(PLAIN, size, np.dtype(f"{part.dtype.byteorder}c{size}"))
    return Kind(OTHER, size, what="complex")


def _sequence(message: bytes) -> Kind:
    """Return a type of variable length: HDF5 makes them of bytes and of references, in the same way always."""
    # It is a sequence, or a text: the library dies over elements that are neither.
    require(message[4:8] == bytes([ELEMENT, 0, 0, 0]) and message[1] & 15 <= 1, "an odd datatype")
    if message[1] & 15 == 1 and message.startswith(_BYTE, 8) and _is_padding(message, 8 + len(_BYTE)):
        _check_text(message[1] >> 4 | (message[2] & 15) << 4, message[3:4] + bytes([message[2] >> 4]))
        return Kind(TEXTS, ELEMENT)
    if message[1:4] == b"\0\0\0":
        if message[8:] == _REFERENCE:
            return Kind(REFERENCES, ELEMENT, what="variable-length")
        if len(message) >= 16 and message[8] & 15 <= 1:
            numbers = kind_of(message[8:])
            return Kind(ROWS if numbers.name == PLAIN else OTHER_ROWS, ELEMENT, numbers.dtype, what="variable-length")
    return Kind(OTHER_ROWS, ELEMENT, what="variable-length")


@cache
def _users() -> tuple[bytes, ...]:
    """Return how HDF5 writes the type of REFERENCE_LIST: a reference "dataset" and an int "dimension", signed or not."""
    found = []
    for sign in (0, 8):
        head, number = bytes([2, 0, 0, ELEMENT, 0, 0, 0]), bytes([0x10, sign, 0, 0, 4, 0, 0, 0, 0, 0, 32, 0])
        # Version 1 pads names and leaves room for dimensions.
        first = b"dataset\0" + bytes(32) + _REFERENCE + b"dimension" + bytes(7) + b"\x08" + bytes(31) + number
        later = b"dataset\0" + bytes(1) + _REFERENCE + b"dimension\0\x08" + number
        found += [b"\x16" + head + first, *(bytes([version << 4 | 6]) + head + later for version in (3, 4, 5))]
    return tuple(found)


def _check_text(padding_and_set: int, rest: bytes) -> None:
    """Hold padding (up to 2) and character set (up to 1) against what there is."""
    require(padding_and_set & 15 <= 2 and padding_and_set >> 4 <= 1 and not any(rest), "an odd type of text")


def _is_padding(message: bytes, start: int) -> bool:
    return start <= len(message) < start + 8 and not any(message[start:])


@lru_cache(maxsize=2048)
def space_of(message: bytes) -> Space:
    """Return the dataspace of a message (type 0x0001), which may be padded to a multiple of eight bytes."""
    require(len(message) >= 4, "a dataspace that is cut short")
    version, rank, flags, form = message[:4]
    if version == 1:
        at, form = 8, 1 if rank else 0
    elif version == 2:
        at = 4
    else:
        raise UnmodelledError(f"dataspace version {version}")
    require(rank <= 32 and flags <= 1 and form <= 2 and (form == 1 or rank == 0), "an odd dataspace")
    end = at + 8 * rank * (1 + flags)
    require(_is_padding(message, end), "a dataspace that is cut short")
    numbers = struct.unpack_from(f"<{rank * (1 + flags)}Q", message, at)
    shape, most = numbers[:rank], numbers[rank:] if flags else numbers[:rank]
    for n, limit in zip(shape, most, strict=True):
        require(n < 1 << 62 and (limit == UNDEFINED or n <= limit), "an odd dataspace")
    return Space(shape, tuple(-1 if limit == UNDEFINED else limit for limit in most), form == 2)
