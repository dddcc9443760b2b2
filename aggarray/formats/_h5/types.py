"""What do the elements of a dataset or an attribute look like, and how many are there?"""

import math
import struct
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import numpy as np

from aggarray.formats._h5.data import UNDEFINED, UnmodelledError, require

PLAIN, CHARACTERS, TEXTS, REFERENCES, USERS, OTHER = "plain", "characters", "texts", "references", "users", "other"
#: Rows of numbers, each of its own length; and of what else.
ROWS, OTHER_ROWS = "rows", "other rows"

#: A variable-length element as stored: count, address of a collection in the global heap, number of the object in it.
ELEMENT = 16

#: How HDF5 writes the type of the elements of text of variable length, and of a reference to an object.
_BYTE = bytes([0x10, 0, 0, 0, 1, 0, 0, 0, 0, 0, 8, 0])
_REFERENCE = bytes([0x17, 0, 0, 0, 8, 0, 0, 0])


@dataclass(frozen=True, slots=True)
class Kind:
    """A datatype, and how many bytes an element has.

    ``name`` is PLAIN (numbers), CHARACTERS (text of fixed length), TEXTS (of variable length), REFERENCES (lists of references
    to objects), ROWS (of numbers), OTHER_ROWS, USERS (pairs of a reference and a number: who has a scale) or OTHER, which is
    not modelled. ``dtype`` is as stored, byte order included, of ROWS that of their numbers, None but for these, PLAIN and
    CHARACTERS. ``terminated``: CHARACTERS end with a NUL.
    """

    name: str
    size: int
    dtype: np.dtype[Any] | None = None
    terminated: bool = False


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
    for size, layout, bias in ((4, (23, 8, 0, 23), 127), (8, (52, 11, 0, 52), 1023)):
        for order, bit in (("<", 0), (">", 1)):
            # The mantissa's first bit is implied (2 << 4), the sign is the last bit.
            message = struct.pack("<BBBBIHH4BI", 1, 0x20 | bit, 8 * size - 1, 0, size, 0, 8 * size, *layout, bias)
            found[message] = np.dtype(f"{order}f{size}")
    return found


@lru_cache(maxsize=512)
def kind_of(message: bytes) -> Kind:
    """Return the datatype of a message (type 0x0003), which may be padded to a multiple of eight bytes."""
    require(len(message) >= 8, "a datatype that is cut short")
    version, number = message[0] >> 4, message[0] & 15
    size = int.from_bytes(message[4:8], "little")
    # Of what is modelled here all versions are written alike.
    require(1 <= version <= 5 and size > 0, f"datatype version {version}")
    length = {0: 12, 1: 20}.get(number)
    if length is not None:
        require(_is_padding(message, length), "an odd datatype")
        dtype = _plain().get(bytes([number]) + message[1:length])
        return Kind(PLAIN, size, dtype) if dtype is not None else Kind(OTHER, size)
    if number == 3:
        require(_is_padding(message, 8), "an odd datatype")
        _check_text(message[1], message[2:4])
        return Kind(CHARACTERS, size, np.dtype(f"S{size}"), not message[1] & 15)
    if number == 9:
        return _sequence(message)
    return Kind(USERS if message.startswith(_users()) else OTHER, size)


def _sequence(message: bytes) -> Kind:
    """Return a type of variable length: HDF5 makes them of bytes and of references, in the same way always."""
    # It is a sequence, or a text: the library dies over elements that are neither.
    require(message[4:8] == bytes([ELEMENT, 0, 0, 0]) and message[1] & 15 <= 1, "an odd datatype")
    if message[1] & 15 == 1 and message.startswith(_BYTE, 8) and _is_padding(message, 8 + len(_BYTE)):
        _check_text(message[1] >> 4 | (message[2] & 15) << 4, message[3:4] + bytes([message[2] >> 4]))
        return Kind(TEXTS, ELEMENT)
    if message[1:4] == b"\0\0\0":
        if message[8:] == _REFERENCE:
            return Kind(REFERENCES, ELEMENT)
        if len(message) >= 16 and message[8] & 15 <= 1:
            numbers = kind_of(message[8:])
            return Kind(ROWS if numbers.name == PLAIN else OTHER_ROWS, ELEMENT, numbers.dtype)
    return Kind(OTHER_ROWS, ELEMENT)


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
