"""How are the files of an array's chunks named in a Zarr store, and which chunk is meant by a name?"""

import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from aggarray.formats.base import grid_of

#: A dtype: byte order, kind, size, unit of times; or its name.
_STATED = re.compile(r"[<>|=]?[a-zA-Z?][0-9]{0,8}(\[[0-9]{0,8}[a-zA-Z]+\])?|[a-z]+[0-9]{0,3}")
#: Chunks are numbered in 64 bits.
MOST = 2**62


@dataclass(frozen=True, slots=True)
class ArrayLayout:
    """An array as its metadata describe it: ``meta`` is the whole JSON object, ``dtype`` native or that of version 2."""

    version: Literal[2, 3]
    meta: Mapping[str, Any]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]


def named(given: Any) -> tuple[str, Mapping[str, Any]]:
    """Return the name and the settings of a codec or the like, which may be a bare name."""
    if isinstance(given, str):
        return given, {}
    settings = given.get("configuration") if isinstance(given, dict) else None
    name = given.get("name") if isinstance(given, dict) else None
    if not isinstance(name, str) or not isinstance(settings or {}, dict):
        raise ValueError(f"damaged metadata: {given!r:.60}")
    return name, settings or {}


def outer_chunk(layout: ArrayLayout) -> Any:
    """Return the shape of a chunk, or shard, as the metadata have it."""
    if layout.version == 2:
        return layout.meta.get("chunks")
    return named(layout.meta.get("chunk_grid"))[1].get("chunk_shape")


def sides_of(given: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of a chunk; ValueError where it is none."""
    if not isinstance(given, list) or len(given) != len(shape) or not all(type(n) is int and n > 0 for n in given):
        raise ValueError(f"damaged metadata: chunks {given!r:.60} of shape {shape}")
    return tuple(given)


@dataclass(frozen=True, slots=True)
class Keys:
    """How the files of chunks are named: ``lead``, then the position along each dimension, separated.

    >>> Keys("c/", "/").name((0, 1)), Keys("", ".").name(()), Keys("c.", ".").name(())
    ('c/0/1', '0', 'c')
    """

    lead: str
    separator: str

    def name(self, place: Sequence[int]) -> str:
        """Return the name of the chunk at a place of the grid."""
        return self.lead + self.separator.join(map(str, place)) if place else self.lead[:-1] or "0"


@dataclass(frozen=True, slots=True)
class Numbering:
    """What the chunks of an array are named, and which number each has in C order of the ``grid``.

    >>> numbering = Numbering(Keys("c/", "/"), (2, 4))
    >>> numbering.number("c/1/2"), numbering.number("c/2/0"), numbering.number("c/1")
    (6, None, None)
    """

    keys: Keys
    grid: tuple[int, ...]
    #: Shape of a chunk, or of a shard.
    chunk: tuple[int, ...] = ()

    def number(self, name: str) -> int | None:
        """Return the number of a chunk, None where the name is none of a chunk."""
        if not self.grid:
            return 0 if name == self.keys.name(()) else None
        if not name.startswith(self.keys.lead):
            return None
        places = name[len(self.keys.lead) :].split(self.keys.separator)
        if len(places) != len(self.grid):
            return None
        number = 0
        for side, place in zip(self.grid, places, strict=True):
            if not (place.isascii() and place.isdecimal() and len(place) < 20 and int(place) < side):
                return None
            number = number * side + int(place)
        return number


def numbering(layout: ArrayLayout) -> Numbering | None:
    """Return how the chunks of an array are named, None where nobody knows. ValueError for damaged metadata."""
    keys = keys_of(layout)
    if keys is None or (layout.version == 3 and named(layout.meta.get("chunk_grid"))[0] != "regular"):
        return None
    chunk = sides_of(outer_chunk(layout), layout.shape)
    grid = grid_of(layout.shape, chunk)
    return Numbering(keys, grid, chunk) if math.prod(grid) <= MOST else None


@dataclass(frozen=True, slots=True)
class Paths:
    """The path of the file that holds a chunk, by the chunk's number in C order: made when it is asked for.

    ``grid``: of the chunks; ``per``: how many of them a file holds along each dimension.

    >>> paths = Paths("tas", Keys("c/", "/"), (2, 4), (1, 2))
    >>> paths(5), paths(6)
    ('tas/c/1/0', 'tas/c/1/1')
    """

    within: str
    keys: Keys
    grid: tuple[int, ...]
    per: tuple[int, ...]

    def __call__(self, number: int) -> str:
        """Return the path of a chunk by its number in C order."""
        place: list[int] = []
        for side, many in zip(reversed(self.grid), reversed(self.per), strict=True):
            number, at = divmod(number, side)
            place.append(at // many)
        name = self.keys.name(place[::-1])
        return f"{self.within}/{name}" if self.within else name


def keys_of(layout: ArrayLayout) -> Keys | None:
    """Return how the chunks of an array are named, None for an unknown encoding."""
    meta = layout.meta
    if layout.version == 2:
        separator = meta.get("dimension_separator") or "."
        return Keys("", separator) if separator in (".", "/") else None
    name, settings = named(meta.get("chunk_key_encoding") or "default")
    separator = settings.get("separator", "/" if name == "default" else ".")
    if name not in ("default", "v2") or separator not in (".", "/"):
        return None
    return Keys(f"c{separator}" if name == "default" else "", separator)


def listing(folder: str, keys: Keys) -> set[str] | None:
    """Return the names of the files of a folder, with those of the folders below where names of chunks run through them.

    None where a folder is a link: it may lead back above, and zarr-python looks for one chunk at a time.
    """
    found: set[str] = set()
    waiting = [""]
    while waiting:
        prefix = waiting.pop()
        try:
            entries = list(os.scandir(os.path.join(folder, prefix)))
        except (FileNotFoundError, NotADirectoryError):
            continue
        for entry in entries:
            if not entry.is_dir():
                found.add(prefix + entry.name)
            elif keys.separator == "/" and (entry.name.isdigit() or entry.name == "c"):
                if entry.is_symlink():
                    return None
                waiting.append(f"{prefix}{entry.name}/")
    return found


def stated_dtype(text: Any) -> np.dtype[Any]:
    """Return the dtype that metadata state; TypeError or ValueError for what states none: NumPy would evaluate much as Python.

    >>> stated_dtype("<f4"), stated_dtype("int16")
    (dtype('float32'), dtype('int16'))
    """
    # promise: zarr-dtype-names
    if not isinstance(text, str) or not _STATED.fullmatch(text):
        raise ValueError(f"damaged metadata: type {text!r:.60}")
    dtype: np.dtype[Any] = np.dtype(text)
    return dtype
