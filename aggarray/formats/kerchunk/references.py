"""Which arrays do kerchunk references describe, and where is each chunk of them?

References name files and byte ranges, or hold small chunks themselves, under the keys of a Zarr store. `PlacedChunks` has those
of one array as columns, by the numbers of its chunks: what is not named is not stored.
"""

import base64
import binascii
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import unquote

import numpy as np

from aggarray.errors import FormatError
from aggarray.formats.zarr.chunk_keys import Numbering
from aggarray.formats.zarr.nodes import Node

#: What one reference is: bytes, or a file, whole (offset 0, size 0) or from an offset on.
Reference = bytes | tuple[str, int, int]

_METADATA = (".zarray", ".zgroup", ".zattrs", "zarr.json", ".zmetadata")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
#: Offsets and sizes are numbered in 64 bits.
_MOST = 2**63 - 1


@dataclass(frozen=True, slots=True, eq=False)
class PlacedChunks:
    """Where the chunks of one array are: a row per chunk that is stored, by number in C order of the grid, rising.

    ``files``: which of ``paths``, -1: ``inline`` has its bytes, by number; ``offsets``, ``sizes``: both 0: the whole file.
    """

    numbers: np.ndarray
    files: np.ndarray
    offsets: np.ndarray
    sizes: np.ndarray
    paths: tuple[str, ...] = ()
    inline: Mapping[int, bytes] = field(default_factory=dict)

    def find(self, number: int) -> Reference | None:
        """Return where a chunk is, None where it is not stored."""
        row = int(np.searchsorted(self.numbers, number))
        if row == len(self.numbers) or self.numbers[row] != number:
            return None
        if self.files[row] < 0:
            return self.inline[number]
        return self.paths[int(self.files[row])], int(self.offsets[row]), int(self.sizes[row])


class References(Protocol):
    """What a set of references tells: ``nodes`` by path in the store, the root under the empty name."""

    nodes: Mapping[str, Node]

    def placed(self, name: str, numbering: Numbering) -> PlacedChunks:
        """Return where the chunks of an array are. FormatError, naming the key, for references that make no sense."""


def is_metadata(key: str) -> bool:
    """Tell whether a key is one of metadata.

    >>> is_metadata("tas/.zarray"), is_metadata("tas/0.0")
    (True, False)
    """
    return key.rpartition("/")[2] in _METADATA


def placed_of(rows: Iterable[tuple[int, Reference]]) -> PlacedChunks:
    """Return references, by the numbers of their chunks, as columns; of equal numbers the last counts."""
    found = sorted(dict(rows).items(), key=lambda row: row[0])
    paths: dict[str, int] = {}
    inline: dict[int, bytes] = {}
    columns = np.zeros((4, len(found)), np.int64)
    for i, (number, reference) in enumerate(found):
        if isinstance(reference, bytes):
            inline[number] = reference
            columns[:, i] = number, -1, 0, len(reference)
        else:
            path, offset, size = reference
            columns[:, i] = number, paths.setdefault(path, len(paths)), offset, size
    numbers, files, offsets, sizes = columns
    return PlacedChunks(numbers, files.astype(np.int32), offsets, sizes, tuple(paths), inline)


def checked(path: str, key: str, reference: Any, names: "FileNames") -> Reference:
    """Return one reference as it stands in JSON; FormatError, naming file and key, for one that is none."""
    if isinstance(reference, str):
        return decoded(path, key, reference.encode("utf-8", "surrogateescape"))
    if not isinstance(reference, list) or len(reference) not in (1, 3) or not isinstance(reference[0], str):
        raise wrong(path, key, f"{reference!r:.80} is no reference: text, [file] or [file, offset, size] is")
    name, offset, size = reference if len(reference) == 3 else (reference[0], 0, 0)
    if type(offset) is not int or type(size) is not int or not (0 <= offset <= _MOST and 0 <= size <= _MOST - offset):
        raise wrong(path, key, f"{size!r:.30} bytes at offset {offset!r:.30} is no range of a file")
    return named(path, key, name, names), offset, size


def named(path: str, key: str, name: str, names: "FileNames") -> str:
    """Return the path of a file that a reference names. FormatError, naming the key, for what is no name."""
    try:
        return names[name]
    except ValueError as error:
        raise wrong(path, key, str(error)) from error


def wrong(path: str, key: str, text: str) -> FormatError:
    """Return the error of a reference that makes no sense."""
    return FormatError(f"{path}, key {key!r:.80}: {text}; write the references again")


def decoded(path: str, key: str, data: bytes) -> bytes:
    """Return the bytes that a reference holds: text as it is, or base64 after that word."""
    if not data.startswith(b"base64:"):
        return data
    try:
        return base64.b64decode(data[7:], validate=True)
    except (binascii.Error, ValueError) as error:
        raise wrong(path, key, f"damaged base64 ({error})") from error


class FileNames(dict[str, str]):
    """The absolute path, or the URL, of each file that references name; relative names start at ``folder``.

    Each is worked out once. ValueError for what no file can be called.

    >>> names = Names("/data/refs")
    >>> names["../b c.nc"], names["file:///a.nc"], names["s3://bucket/a.nc"]
    ('/data/b c.nc', '/a.nc', 's3://bucket/a.nc')
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def __missing__(self, name: str) -> str:
        self[name] = found = self._resolved(name)
        return found

    def _resolved(self, name: str) -> str:
        plain = name.removeprefix("file://").removeprefix("local://")
        if not plain or "\0" in plain:
            raise ValueError(f"{name!r:.80} is no name of a file")
        if _URL.match(plain):
            return plain
        if _URL.match(self._folder):
            return f"{self._folder}/{plain}" if not plain.startswith("/") else f"file://{plain}"
        literal = os.path.normpath(os.path.join(self._folder, plain))
        if "%" not in plain or plain == name or os.path.exists(literal):
            return literal
        return os.path.normpath(os.path.join(self._folder, unquote(plain, errors="surrogateescape")))


def home_of(path: str) -> str:
    """Return the folder at which relative names in a file start; one that is a link lies where that points to."""
    if "://" in path:
        return path.rstrip("/").rpartition("/")[0]
    return os.path.dirname(os.path.realpath(path) if os.path.islink(path) else path)


def by_array(keys: Iterable[str], arrays: Iterable[str]) -> dict[str, list[str]]:
    """Group the keys of chunks by the array that they are of, the innermost one; keys of no array are left out.

    >>> by_array(["a/0.0", "a/c/0", "x/0", "b/0"], ["a", "b"])
    {'a': ['a/0.0', 'a/c/0'], 'b': ['b/0']}
    """
    found: dict[str, list[str]] = {name: [] for name in arrays}
    for key in keys:
        name = key
        while name:
            name = name.rpartition("/")[0]
            if name in found:
                found[name].append(key)
                break
    return found


def checked_columns(path: str, name: str, columns: Sequence[np.ndarray]) -> None:
    """Raise FormatError for offsets or sizes of an array's chunks that are no ranges of a file."""
    offsets, sizes = columns
    bad = (offsets < 0) | (sizes < 0) | (offsets > _MOST - np.maximum(sizes, 0))
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise wrong(path, name, f"{sizes[row]} bytes at offset {offsets[row]} is no range of a file")
