"""Compression of written chunks: its name, level and filters."""

from __future__ import annotations

from collections.abc import Mapping

from aggarray.dataclass import dataclass
from aggarray.errors import AggregationError

#: Compressors in Blosc, as Blosc names them.
BLOSC: Mapping[str, str] = {
    **{"blosc": "zstd", "blosc_lz4": "lz4", "blosc_lz4hc": "lz4hc", "blosc_lz": "blosclz", "blosc_zlib": "zlib"},
}
_BLOSC_LEVELS = dict.fromkeys(BLOSC, (9, 5))
#: The greatest level of each compressor by suffix, and the level without one; the first compressor is the default.
COMPRESSORS: Mapping[str, Mapping[str, tuple[int, int]]] = {
    ".nc": {"zlib": (9, 4), "zstd": (22, 3), **_BLOSC_LEVELS},
    ".zarr": {"blosc": (9, 5), "zlib": (9, 4), "zstd": (22, 3), **_BLOSC_LEVELS},
}
#: Other names of compressors.
_ALIASES = {"gzip": "zlib", "deflate": "zlib", "blosc_zstd": "blosc"}
#: Chunks as they are.
NONE = "none"


@dataclass(frozen=True, slots=True)
class Compression:
    """A compressor and its level; level 0: ``none``."""

    name: str
    level: int

    def __str__(self) -> str:
        return f"{self.name}:{self.level}" if self.level else self.name


def parse_compression(text: str | None, suffix: str) -> Compression:
    """Return the compression of a text such as ``zlib:4``; None: the default.

    ``suffix``: that of the output. Raises AggregationError, which lists the compressors of the format.

    >>> str(parse_compression("zstd:3", ".nc")), str(parse_compression("zlib", ".zarr")), str(parse_compression(None, ".nc"))
    ('zstd:3', 'zlib:4', 'zlib:4')
    >>> str(parse_compression("gzip:6", ".zarr")), str(parse_compression("blosc_lz4", ".zarr"))
    ('zlib:6', 'blosc_lz4:5')
    >>> parse_compression("lzma", ".nc")
    Traceback (most recent call last):
    aggarray.errors.AggregationError: compress='lzma' is invalid for .nc; give zlib:1 to 9, zstd:1 to 22, blosc:1 to 9, or none
    """
    known = COMPRESSORS.get(suffix, COMPRESSORS[".nc"])  # .nc4 too
    name, colon, level = (next(iter(known)) if text is None else str(text).strip().lower()).partition(":")
    name = _ALIASES.get(name, name)
    if name == NONE and not colon:
        return Compression(NONE, 0)
    if name in known:
        most, usual = known[name]
        if not colon:
            return Compression(name, usual)
        if level.isascii() and level.isdigit() and 1 <= int(level) <= most:
            return Compression(name, int(level))
    # The other compressors in Blosc take the levels of "blosc".
    choices = ", ".join(f"{name}:1 to {most}" for name, (most, _) in known.items() if "_" not in name)
    raise AggregationError(f"compress={text!r} is invalid for {suffix}", hint=f"give {choices}, or {NONE}")
