"""Chunk grids and chunk keys of arrays in Zarr stores."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from aggarray.dataclass import dataclass
from aggarray.partition.chunk_index import grid_of

#: A dtype as byte order, kind, size and unit of times, or as a name.
_STATED = re.compile(r"[<>|=]?[a-zA-Z?][0-9]{0,8}(\[[0-9]{0,8}[a-zA-Z]+\])?|[a-z]+[0-9]{0,3}")
#: Largest number of chunks, and length of a dimension.
MOST = 2**62


@dataclass(frozen=True, slots=True)
class ArrayLayout:
    """An array as its metadata describe it; ``meta``: the JSON object.

    ``dtype``: native, or as stated in version 2.
    """

    version: Literal[2, 3]
    meta: Mapping[str, Any]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]


def parse_named_configuration(stated: Any) -> tuple[str, Mapping[str, Any]]:
    """Return name and settings of a configuration, or of a bare name."""
    if isinstance(stated, str):
        return stated, {}
    settings = stated.get("configuration") if isinstance(stated, dict) else None
    name = stated.get("name") if isinstance(stated, dict) else None
    if not isinstance(name, str) or not isinstance(settings or {}, dict):
        raise ValueError(f"damaged metadata: {stated!r:.60}")
    return name, settings or {}


def outer_chunk(layout: ArrayLayout) -> tuple[int, ...]:
    """Return the shape of a chunk, or of a shard, or raise ValueError."""
    if layout.version == 2:
        return check_chunk_shape(layout.meta.get("chunks"), layout.shape)
    return check_chunk_shape(parse_named_configuration(layout.meta.get("chunk_grid"))[1].get("chunk_shape"), layout.shape)


def check_chunk_shape(stated: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the stated shape of a chunk, or raise ValueError."""
    if not isinstance(stated, list) or len(stated) != len(shape) or not all(type(n) is int and n > 0 for n in stated):
        raise ValueError(f"damaged metadata: chunks {stated!r:.60} of shape {shape}")
    return tuple(stated)


def codec_steps(layout: ArrayLayout) -> list[tuple[str, Mapping[str, Any]]]:
    """Return names (version 3) and settings of codecs in encoding order."""
    if layout.version == 3:
        return [parse_named_configuration(step) for step in layout.meta.get("codecs") or ()]
    stated = [*(layout.meta.get("filters") or ()), layout.meta.get("compressor")]
    return [(f"numcodecs.{step.get('id')}", step) for step in stated if step]


@dataclass(frozen=True, slots=True)
class Keys:
    """Chunk key encoding: ``lead``, then positions with a separator.

    >>> Keys("c/", "/").name((0, 1)), Keys("", ".").name(()), Keys("c.", ".").name(())
    ('c/0/1', '0', 'c')
    """

    lead: str
    separator: str

    def name(self, position: Sequence[int]) -> str:
        """Return the key of the chunk at a position of the grid."""
        return self.lead + self.separator.join(map(str, position)) if position else self.lead[:-1] or "0"


@dataclass(frozen=True, slots=True)
class Numbering:
    """Keys of the chunks of an array, and their numbers in C order.

    >>> numbering = Numbering(Keys("c/", "/"), (2, 4))
    >>> numbering.number("c/1/2"), numbering.number("c/2/0"), numbering.number("c/1")
    (6, None, None)
    """

    keys: Keys
    grid: tuple[int, ...]

    def number(self, key: str) -> int | None:
        """Return the number of a chunk, None if the key is not the key of a chunk."""
        if not self.grid:
            return 0 if key == self.keys.name(()) else None
        if not key.startswith(self.keys.lead):
            return None
        positions = key[len(self.keys.lead) :].split(self.keys.separator)
        if len(positions) != len(self.grid):
            return None
        number = 0
        for side, position in zip(self.grid, positions, strict=True):
            if not (position.isascii() and position.isdecimal() and len(position) < 20 and int(position) < side):
                return None
            number = number * side + int(position)
        return number


def numbering(layout: ArrayLayout) -> Numbering | None:
    """Return the numbering, None for unknown chunk grids or key encodings.

    Raises ValueError for damaged metadata.
    """
    keys = key_encoding(layout)
    if keys is None:
        return None
    if layout.version == 3 and parse_named_configuration(layout.meta.get("chunk_grid"))[0] != "regular":
        return None
    grid = grid_of(layout.shape, outer_chunk(layout))
    return Numbering(keys, grid) if math.prod(grid) <= MOST else None


@dataclass(frozen=True, slots=True)
class Paths:
    """Path of the file of a chunk, by chunk number in C order.

    ``grid``: number of chunks along each dimension; ``per``: number of chunks in a file along each dimension.

    >>> paths = Paths("tas", Keys("c/", "/"), (2, 4), (1, 2))
    >>> paths(5), paths(6)
    ('tas/c/1/0', 'tas/c/1/1')
    """

    within: str
    keys: Keys
    grid: tuple[int, ...]
    per: tuple[int, ...]

    def __call__(self, number: int) -> str:
        """Return the path of the file of a chunk."""
        position: list[int] = []
        for side, per_file in zip(reversed(self.grid), reversed(self.per), strict=True):
            number, index = divmod(number, side)
            position.append(index // per_file)
        name = self.keys.name(position[::-1])
        return f"{self.within}/{name}" if self.within else name


def key_encoding(layout: ArrayLayout) -> Keys | None:
    """Return the chunk key encoding of an array, None for an unknown one."""
    meta = layout.meta
    if layout.version == 2:
        separator = meta.get("dimension_separator") or "."
        return Keys("", separator) if separator in (".", "/") else None
    name, settings = parse_named_configuration(meta.get("chunk_key_encoding") or "default")
    separator = settings.get("separator", "/" if name == "default" else ".")
    if name not in ("default", "v2") or separator not in (".", "/"):
        return None
    return Keys(f"c{separator}" if name == "default" else "", separator)


def list_files(folder: str, keys: Keys) -> set[str] | None:
    """Return names of files in a folder and in subfolders of chunk keys.

    None if a subfolder is a link, because links may form a cycle. zarr-python then looks up each chunk.
    """
    names: set[str] = set()
    pending = [""]
    while pending:
        prefix = pending.pop()
        try:
            entries = list(os.scandir(os.path.join(folder, prefix)))
        except (FileNotFoundError, NotADirectoryError):
            continue
        for entry in entries:
            if not entry.is_dir():
                names.add(prefix + entry.name)
            elif keys.separator == "/" and (entry.name.isdigit() or entry.name == "c"):
                if entry.is_symlink():
                    return None
                pending.append(f"{prefix}{entry.name}/")
    return names


def parse_dtype(text: Any) -> np.dtype[Any]:
    """Return the dtype of metadata, or raise TypeError or ValueError.

    The text is checked first because NumPy evaluates some texts as Python expressions.

    >>> parse_dtype("<f4"), parse_dtype("int16")
    (dtype('float32'), dtype('int16'))
    """
    # promise: zarr-dtype-names
    if not isinstance(text, str) or not _STATED.fullmatch(text):
        raise ValueError(f"damaged metadata: type {text!r:.60}")
    dtype: np.dtype[Any] = np.dtype(text)
    return dtype
