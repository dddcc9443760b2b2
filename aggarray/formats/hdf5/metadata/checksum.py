"""Checksum of HDF5's metadata: lookup3 of Bob Jenkins (public domain).

numcodecs computes it quickly but takes longer to import than the metadata of a few files takes in Python.
"""

from __future__ import annotations

import struct
import sys

#: Bytes that a process checks in Python before it imports numcodecs.
_FEW = 1 << 15

_checked = 0


def lookup3(data: bytes) -> int:
    """Return the checksum of bytes.

    >>> hex(lookup3(b"Four score and seven years ago"))
    '0x17770551'
    """
    global _checked
    _checked += len(data)
    if _checked > _FEW or "numcodecs.jenkins" in sys.modules:
        from numcodecs.jenkins import jenkins_lookup3

        return int(jenkins_lookup3(data))
    return _in_python(data)


def _in_python(data: bytes, mask: int = 0xFFFFFFFF) -> int:  # a local name is found sooner
    a = b = c = (0xDEADBEEF + len(data)) & mask
    if not data:
        return c
    blocks = list(struct.iter_unpack("<3I", data + bytes(-len(data) % 12)))
    # Only the low 32 bits of a word count, to which it is cut before it is rotated. A multiple by `twice` repeats the word: one
    # shift of it to the right rotates the word to the left, and takes less time than two shifts.
    twice = 1 << 32 | 1
    for x, y, z in blocks[:-1]:
        a, b, c = a + x, b + y, c + z & mask
        a = (a - c ^ c * twice >> 28) & mask
        c += b
        b = (b - a ^ a * twice >> 26) & mask
        a += c
        c = (c - b ^ b * twice >> 24) & mask
        b += a
        a = (a - c ^ c * twice >> 16) & mask
        c += b
        b = (b - a ^ a * twice >> 13) & mask
        a += c
        c = (c - b ^ b * twice >> 28) & mask
        b += a
    x, y, z = blocks[-1]
    a, b, c = a + x & mask, b + y & mask, c + z & mask
    c = (c ^ b) - (b << 14 | b >> 18) & mask
    a = (a ^ c) - (c << 11 | c >> 21) & mask
    b = (b ^ a) - (a << 25 | a >> 7) & mask
    c = (c ^ b) - (b << 16 | b >> 16) & mask
    a = (a ^ c) - (c << 4 | c >> 28) & mask
    b = (b ^ a) - (a << 14 | a >> 18) & mask
    return int((c ^ b) - (b << 24 | b >> 8) & mask)
