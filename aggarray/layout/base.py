"""What checks of a layout work on: files, arrays, findings.

A check is a pure function of an `Archive` and its settings in a profile. It yields a `Finding` per fault, with all files that
have it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from aggarray.dataclass import NamedTuple, dataclass
from aggarray.formats.base import Variable
from aggarray.formats.partial_scan import FileLayout, VariableLayout

#: Values that are findings of their own; more of one property are one finding.
_MOST_VALUES = 6


@dataclass(frozen=True, slots=True, eq=False)
class Member:
    """Variable of one file that an array uses.

    ``dimensions``: names of the master, one for each stored dimension; ``stops``: by dimension of the master, where the part
    that the file covers ends.
    """

    file: FileLayout
    variable: Variable
    layout: VariableLayout
    dimensions: tuple[str, ...]
    stops: Mapping[str, int]


@dataclass(frozen=True, slots=True, eq=False)
class ArrayLayout:
    """Array of an archive with its members.

    ``number``: position in the aggregation; ``sizes``: by dimension; ``itemsize``: bytes of a value; ``joined``: dimensions
    along which files were joined.
    """

    number: int
    name: str
    sizes: Mapping[str, int]
    itemsize: int
    joined: tuple[str, ...]
    members: tuple[Member, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Archive:
    """Files and arrays of an aggregation.

    ``limits``, ``repack``: those of the profile, which remedies follow.
    """

    files: tuple[FileLayout, ...]
    arrays: tuple[ArrayLayout, ...]
    limits: tuple[int, int]
    repack: bool


class Extract(NamedTuple):
    """Remedy: extract an array with more options of ``aggarray extract``."""

    array: int
    options: tuple[str, ...] = ()


#: Remedy of what no line mends.
NO_LINES: Mapping[str, str] = {}


class Finding(NamedTuple):
    """Fault: what is wrong, the files that have it, and how many files could.

    ``remedy``: the line that mends each file, by its path, or an `Extract`; ``note``: what other files have, or what to do
    without a line.
    """

    text: str
    files: tuple[str, ...]
    examined: int
    remedy: Mapping[str, str] | Extract = NO_LINES
    note: str = ""


@dataclass(frozen=True, slots=True)
class Check:
    """Check of one property.

    ``settings``: the type of each setting that a profile may give; ``find``: yields the findings; ``optional``: settings that a
    profile may leave out.
    """

    name: str
    settings: Mapping[str, type]
    find: Callable[[Archive, Mapping[str, Any]], Iterator[Finding]]
    optional: tuple[str, ...] = ()

    @property
    def required(self) -> list[str]:
        """The settings that a profile gives."""
        return [name for name in self.settings if name not in self.optional]


class Values(NamedTuple):
    """Values of a property: the most common, the files of the others, counts.

    ``number``: of files with the most common value; ``examined``: of all files.
    """

    usual: Any
    others: Mapping[Any, list[str]]
    number: int
    examined: int


def compare(values: Iterable[tuple[str, Hashable]]) -> Values:
    """Return the most common value, and the files of every other.

    Of equally common values, that of the first file counts as the most common.

    >>> compare([("a.nc", 4), ("b.nc", 4), ("c.nc", 1)])
    Values(usual=4, others={1: ['c.nc']}, number=2, examined=3)
    """
    files: dict[Any, list[str]] = {}
    for file, value in values:
        files.setdefault(value, []).append(file)
    usual = max(files, key=lambda value: len(files[value]), default=None)
    others = {value: own for value, own in files.items() if value != usual}
    return Values(usual, others, len(files.get(usual, ())), sum(map(len, files.values())))


def differing(values: Values) -> list[tuple[Any, str, list[str]]]:
    """Return each other value, "", and its files; many values as one.

    >>> differing(compare([("a.nc", 4), ("b.nc", 4), ("c.nc", 1)]))
    [(1, '', ['c.nc'])]
    >>> differing(compare([(str(n), n) for n in range(9)]))
    [(1, ' and 7 other values', ['1', '2', '3', '4', '5', '6', '7', '8'])]
    """
    others = values.others
    if len(others) <= _MOST_VALUES:
        return [(value, "", files) for value, files in others.items()]
    merged = [file for files in others.values() for file in files]
    return [(next(iter(others)), f" and {len(others) - 1} other values", merged)]


def value_text(value: Any) -> str:
    """Return an attribute as text, equal for equal numbers of other types.

    >>> value_text("K"), value_text(np.float32(1e20)), value_text(np.array([1, 2], "i2")), value_text(None)
    ('K', '1e+20', '[1, 2]', 'none')
    """
    if value is None or isinstance(value, str):
        return value or "none"
    if isinstance(value, float | np.floating):
        # Fill values of float32 data may be doubles in other formats.
        number = float(value)
        return str(np.float32(number)) if abs(number) < 3e38 and float(np.float32(number)) == number else repr(number)
    return f"[{', '.join(map(value_text, value.ravel()))}]" if isinstance(value, np.ndarray) else str(value)


def suggested_chunks(array: ArrayLayout, limits: tuple[int, int]) -> dict[str, int]:
    """Return chunk sizes by dimension (-1: all) between limits of bytes.

    The target is the geometric mean of the limits, or the lower one without an upper (0). The last dimensions are in one chunk
    if they fit; the first one that does not fit is cut.

    >>> array = ArrayLayout(0, "tas", {"time": 3650, "lat": 90, "lon": 180}, 4, ("time",), ())
    >>> suggested_chunks(array, (4_000_000, 0)), suggested_chunks(array, (10_000, 20_000))
    ({'time': 62, 'lat': -1, 'lon': -1}, {'time': 1, 'lat': 20, 'lon': -1})
    """
    least, most = limits
    target = math.isqrt(least * most) if most else least
    chunks: dict[str, int] = {}
    nbytes = array.itemsize
    for name, size in reversed(list(array.sizes.items())):
        # All of a dimension but the first, if that leaves room.
        whole = name != next(iter(array.sizes)) and size * nbytes <= (most or target)
        side = size if whole else min(size, max(1, math.ceil(target / nbytes)), max(1, most // nbytes if most else size))
        chunks[name] = -1 if side >= size else side
        nbytes *= max(1, side)
    return dict(reversed(chunks.items()))


def chunk_option(chunks: Mapping[str, int]) -> tuple[str, ...]:
    """Return the option ``--chunks`` of ``aggarray extract``.

    >>> chunk_option({"time": 30, "lat": -1})
    ('--chunks', 'time=30,lat=-1')
    """
    return ("--chunks", ",".join(f"{name}={size}" for name, size in chunks.items())) if chunks else ()


def rechunked(
    archive: Archive, array: ArrayLayout, members: Sequence[Member], shape: Sequence[int] | None = None
) -> Mapping[str, str] | Extract:
    """Return the remedy for chunks: repack the files, or extract the array.

    ``shape``: of the chunks of repacked files, None: as suggested.
    """
    chunks = suggested_chunks(array, archive.limits)
    first = members[0]
    if not (archive.repack and first.layout.index and len(first.dimensions) == len(first.layout.shape)):
        return Extract(array.number, chunk_option(chunks))
    from aggarray.layout.remedies import repacked

    lines = {}
    for member in members:
        sides = shape or [max(chunks.get(name, 0), 0) for name in member.dimensions]
        sides = [min(size, side or size) for size, side in zip(member.layout.shape, sides, strict=True)]
        lines[member.file.uri] = repacked(member.file.uri, "-l", f"/{member.variable.name}:CHUNK={'x'.join(map(str, sides))}")
    return lines
