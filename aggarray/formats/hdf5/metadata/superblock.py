"""Where does an HDF5 file begin, and where is its root group?"""

import struct
from typing import NamedTuple

from aggarray.formats.hdf5.metadata.data import (
    UNDEFINED,
    Data,
    UnsupportedError,
    little_endian,
    require,
    require_supported,
    verify,
)
from aggarray.formats.hdf5.metadata.headers import header_at

SIGNATURE = b"\x89HDF\r\n\x1a\n"
#: The longest superblock.
_LENGTH = 104

_OLD = struct.Struct("<8sBBBxBBBxHHI")
_OLD_ADDRESSES = struct.Struct("<QQQQQQII16x")
_NEW = struct.Struct("<8sBBBBQQQQI")


class _Root(NamedTuple):
    """Base address, end of the file, root group, an extension of the superblock, and half the entries of nodes of B-trees."""

    base: int
    end: int
    address: int
    extension: int = UNDEFINED
    half: int = 0


def root_address(data: Data) -> int:
    """Find the superblock, let addresses count from it, and return the address of the root group's object header."""
    start = _start(data)
    if start:
        data.rebase(start)
    block = data.upto(0, _LENGTH)
    version = block[8]
    if version in (0, 1):
        found = _old(block, version)
    elif version in (2, 3):
        found = _new(block)
    else:
        raise UnsupportedError(f"superblock version {version}")
    require(found.base == start and start < found.end <= start + data.size, "moved or truncated file")
    data.end(found.end - start)
    extension = 0 if found.extension == UNDEFINED else header_at(data, found.extension).halves
    data.half = max(data.half, found.half, extension)
    return found.address


def _start(data: Data) -> int:
    """Return where the signature is: at the beginning or, after a user block, at 512, 1024, 2048, ... bytes."""
    at = 0
    while at + len(SIGNATURE) <= data.size:
        if data.at(at, len(SIGNATURE)) == SIGNATURE:
            return at
        at = at * 2 or 512
    raise UnsupportedError("not an HDF5 file")


def _old(block: bytes, version: int) -> _Root:
    """Return what versions 0 and 1 say."""
    _, _, _, _, _, offsets, lengths, _, inner, _ = _OLD.unpack_from(block)
    require_supported((offsets, lengths) == (8, 8), "unsupported address size")
    at, half = _OLD.size, inner
    if version == 1:
        half = max(inner, little_endian(block, at, 2))
        at += 4
    base, _, end, driver, _, address, kind, _ = _OLD_ADDRESSES.unpack_from(block, at)
    require_supported(driver == UNDEFINED and kind <= 1, "file of several parts")
    return _Root(base, end, address, half=half)


def _new(block: bytes) -> _Root:
    """Return what versions 2 and 3 say."""
    # Addresses may be shorter or longer than eight bytes: the checksum comes after four of them.
    verify(block[: 16 + 4 * block[9]])
    require_supported(block[9] == 8, "unsupported superblock")
    _, _, offsets, lengths, flags, base, extension, end, root, _ = _NEW.unpack_from(block)
    # Flags tell of a writer that is at work or died.
    require_supported((offsets, lengths, flags) == (8, 8, 0), "unsupported superblock")
    return _Root(base, end, root, extension)
