"""Superblock of an HDF5 file."""

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
    """Base address, end of the file, root group, superblock extension, half the number of entries of a B-tree node."""

    base: int
    end: int
    address: int
    extension: int = UNDEFINED
    half: int = 0


def root_address(data: Data) -> int:
    """Find the superblock, set the base of addresses, and return the address of the root group's object header."""
    start = _signature_offset(data)
    if start:
        data.rebase(start)
    block = data.read_up_to(0, _LENGTH)
    version = block[8]
    if version in (0, 1):
        root = _parse_old(block, version)
    elif version in (2, 3):
        root = _parse_new(block)
    else:
        raise UnsupportedError(f"superblock version {version}")
    require(root.base == start and start < root.end <= start + data.size, "moved or truncated file")
    data.truncate(root.end - start)
    extension = 0 if root.extension == UNDEFINED else header_at(data, root.extension).halves
    data.half = max(data.half, root.half, extension)
    return root.address


def _signature_offset(data: Data) -> int:
    """Return the offset of the signature: byte 0 or, after a user block, byte 512, 1024, 2048, ..."""
    at = 0
    while at + len(SIGNATURE) <= data.size:
        if data.at(at, len(SIGNATURE)) == SIGNATURE:
            return at
        at = at * 2 or 512
    raise UnsupportedError("not an HDF5 file")


def _parse_old(block: bytes, version: int) -> _Root:
    """Return the fields of a superblock of version 0 or 1."""
    _, _, _, _, _, offsets, lengths, _, inner, _ = _OLD.unpack_from(block)
    require_supported((offsets, lengths) == (8, 8), "unsupported address size")
    at, half = _OLD.size, inner
    if version == 1:
        half = max(inner, little_endian(block, at, 2))
        at += 4
    base, _, end, driver, _, address, cache_type, _ = _OLD_ADDRESSES.unpack_from(block, at)
    require_supported(driver == UNDEFINED and cache_type <= 1, "file of several parts")
    return _Root(base, end, address, half=half)


def _parse_new(block: bytes) -> _Root:
    """Return the fields of a superblock of version 2 or 3."""
    # Addresses may be shorter or longer than eight bytes. The checksum follows four addresses.
    verify(block[: 16 + 4 * block[9]])
    require_supported(block[9] == 8, "unsupported superblock")
    _, _, offsets, lengths, flags, base, extension, end, root, _ = _NEW.unpack_from(block)
    # Nonzero flags: a writer has the file open, or crashed.
    require_supported((offsets, lengths, flags) == (8, 8, 0), "unsupported superblock")
    return _Root(base, end, root, extension)
