"""kerchunk references: parsing, resolution of file names, tables by array.

A reference belongs to a key of a Zarr store. It is a file with a byte range, or the bytes of a chunk. `ReferenceTable` holds
the references of one array as columns, by chunk number. Chunks without a reference are not stored.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Iterable, Mapping
from urllib.parse import unquote

import numpy as np

from aggarray.dataclass import dataclass, field
from aggarray.errors import FormatError
from aggarray.formats.zarr.chunk_keys import Numbering
from aggarray.formats.zarr.nodes import Node
from aggarray.storage import relocated

#: Bytes of a chunk, or path, offset and size. Offset 0 with size 0 is the entire file.
Reference = bytes | tuple[str, int, int]

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
#: Largest offset and size, of 64 bits.
MOST_BYTES = 2**63 - 1


@dataclass(frozen=True, slots=True, eq=False)
class ReferenceTable:
    """References of one array, a row per stored chunk.

    ``numbers``: chunk numbers in C order of the grid, ascending; ``files``: positions in ``paths``, -1 if ``inline`` holds the
    bytes, by number; ``offsets``, ``sizes``: byte ranges, both 0 for the entire file.
    """

    numbers: np.ndarray
    files: np.ndarray
    offsets: np.ndarray
    sizes: np.ndarray
    paths: tuple[str, ...] = ()
    inline: Mapping[int, bytes] = field(default_factory=dict)

    def find(self, number: int) -> Reference | None:
        """Return the reference of a chunk, None if it is not stored."""
        row = int(np.searchsorted(self.numbers, number))
        if row == len(self.numbers) or self.numbers[row] != number:
            return None
        if self.files[row] < 0:
            return self.inline[number]
        return self.paths[int(self.files[row])], int(self.offsets[row]), int(self.sizes[row])


class References:
    """A set of references; ``nodes``: arrays and groups by path ("": root)."""

    nodes: Mapping[str, Node]

    def __init__(self, path: str) -> None:
        if "://" in path:
            folder = path.rstrip("/").rpartition("/")[0]
        else:
            folder = os.path.dirname(os.path.realpath(path) if os.path.islink(path) else path)
        self.path, self._names = path, FileNames(folder)

    def table(self, name: str, numbering: Numbering) -> ReferenceTable:
        """Return an array's references, or raise FormatError with the key."""
        raise NotImplementedError(name)

    def error(self, key: str, what: str) -> FormatError:
        """Return the error of an invalid reference."""
        return FormatError(f"key {key!r:.80}: {what}", path=self.path, hint="write the references again")

    def resolve_name(self, key: str, name: str) -> str:
        """Return the path or URL of a file, or raise FormatError with the key."""
        try:
            return self._names[name]
        except ValueError as error:
            raise self.error(key, str(error)) from error

    def decode_inline(self, key: str, data: bytes) -> bytes:
        """Return an inline reference: plain text, or base64 after ``base64:``."""
        if not data.startswith(b"base64:"):
            return data
        try:
            return base64.b64decode(data[7:], validate=True)
        except (binascii.Error, ValueError) as error:
            raise self.error(key, f"damaged base64 ({error})") from error


def build_table(rows: Iterable[tuple[int, Reference]]) -> ReferenceTable:
    """Return the table of references; the last of equal numbers is used."""
    ordered = sorted(dict(rows).items(), key=lambda row: row[0])
    paths: dict[str, int] = {}
    inline: dict[int, bytes] = {}
    columns = np.zeros((4, len(ordered)), np.int64)
    for i, (number, reference) in enumerate(ordered):
        if isinstance(reference, bytes):
            inline[number] = reference
            columns[:, i] = number, -1, 0, len(reference)
        else:
            path, offset, size = reference
            columns[:, i] = number, paths.setdefault(path, len(paths)), offset, size
    numbers, files, offsets, sizes = columns
    return ReferenceTable(numbers, files.astype(np.int32), offsets, sizes, tuple(paths), inline)


class FileNames(dict[str, str]):
    """Path or URL of each file name, relative to ``folder``, resolved once.

    A name that is empty or contains a null byte raises ValueError.

    >>> names = FileNames("/data/refs")
    >>> names["../b c.nc"], names["file:///a.nc"], names["s3://bucket/a.nc"]
    ('/data/b c.nc', '/a.nc', 's3://bucket/a.nc')
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def __missing__(self, name: str) -> str:
        plain = name.removeprefix("file://").removeprefix("local://")
        if not plain or "\0" in plain:
            raise ValueError(f"{name!r:.80} is not a file name")
        if _URL.match(plain):
            path = plain
        elif _URL.match(self._folder):
            path = f"{self._folder}/{plain}" if not plain.startswith("/") else f"file://{plain}"
        else:
            path = os.path.normpath(os.path.join(self._folder, plain))
            if "%" in plain and plain != name and not os.path.exists(path):
                path = os.path.normpath(os.path.join(self._folder, unquote(plain, errors="surrogateescape")))
        self[name] = relocated(path)
        return self[name]
