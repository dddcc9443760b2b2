"""Checksum of HDF5's metadata: lookup3 of Bob Jenkins (public domain).

numcodecs computes it quickly but takes longer to import than the metadata of a few files takes in Python.
"""

import struct
import sys

_MASK = 0xFFFFFFFF
#: Rotations of the three words for each block of twelve bytes, and at the end.
_MIX = (4, 6, 8, 16, 19, 4)
_FINAL = (14, 11, 25, 16, 4, 14, 24)
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


def _in_python(data: bytes) -> int:
    a = b = c = (0xDEADBEEF + len(data)) & _MASK
    if not data:
        return c
    padded = data + bytes(-len(data) % 12)
    blocks = list(struct.iter_unpack("<3I", padded))
    r1, r2, r3, r4, r5, r6 = _MIX
    for x, y, z in blocks[:-1]:
        a, b, c = a + x & _MASK, b + y & _MASK, c + z & _MASK
        a = a - c & _MASK ^ (c << r1 & _MASK | c >> 32 - r1)
        c = c + b & _MASK
        b = b - a & _MASK ^ (a << r2 & _MASK | a >> 32 - r2)
        a = a + c & _MASK
        c = c - b & _MASK ^ (b << r3 & _MASK | b >> 32 - r3)
        b = b + a & _MASK
        a = a - c & _MASK ^ (c << r4 & _MASK | c >> 32 - r4)
        c = c + b & _MASK
        b = b - a & _MASK ^ (a << r5 & _MASK | a >> 32 - r5)
        a = a + c & _MASK
        c = c - b & _MASK ^ (b << r6 & _MASK | b >> 32 - r6)
        b = b + a & _MASK
    x, y, z = blocks[-1]
    words: list[int] = [a + x & _MASK, b + y & _MASK, c + z & _MASK]
    for number, bits in enumerate(_FINAL):
        # In turn the third, first and second word: each takes a rotation of the one before it.
        at, before = (2 + number) % 3, (1 + number) % 3
        rotated = words[before] << bits & _MASK | words[before] >> 32 - bits
        words[at] = (words[at] ^ words[before]) - rotated & _MASK
    return words[2]
