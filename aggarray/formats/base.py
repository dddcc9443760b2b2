"""What does every file format give, and how are its stored values asked for?

A format is one module of this package with a `FORMAT` object (or an object registered under the entry point
``aggarray.formats``). It recognises a file by its content, scans it once into a `Structure`, and opens it as a
`Handle` that reads boxes of stored values: not unpacked, missing values as stored, bytes in native order.
"""

import math
import struct
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from aggarray.cf.text import bytes_to_text, characters_to_text, known_encoding
from aggarray.codecs import Filter
from aggarray.errors import AggarrayError, FormatError
from aggarray.formats.library_lock import LIBRARY_LOCK as LIBRARY_LOCK
from aggarray.formats.library_lock import h5py_file as h5py_file
from aggarray.partition.signatures import FileSignature
from aggarray.storage.state import Versions

#: Coordinates of more elements than this are not read by a scan, but when they are compared.
SCAN_ELEMENTS = 1 << 20

#: A table of so many chunks may always be made; a longer one where a sixteenth of its chunks or more are stored.
FREE_CHUNKS = 1 << 20

#: Attributes of the variables that say which samples belong together (CF section 9.3).
ROWS = frozenset(("sample_dimension", "instance_dimension"))

#: What is added to the name of a variable of variable length: for the sizes of its rows, and for the dimension of its samples.
SIZES, SAMPLES = "_row_size", "_sample"

#: What libraries raise over a damaged file; programming errors of ours pass through.
LIBRARY_ERRORS = (
    *(OSError, RuntimeError, ValueError, TypeError, LookupError, ArithmeticError, AttributeError, EOFError, BufferError),
    # The last one: a codec of numcodecs that believes a negative size.
    *(struct.error, zlib.error, SystemError),
)

Attributes = Mapping[str, Any]
#: What a file was like when it was scanned: bytes, modification time in nanoseconds, checksum of its head and tail.
Stamp = tuple[int, int, int]
Box = tuple[slice, ...]


@dataclass(frozen=True, slots=True)
class Variable:
    """One variable as a file holds it.

    ``name`` is its path in the file without a leading slash; ``dimensions`` are base names, unique within the variable;
    ``dtype`` is that of the stored values in native byte order (StringDType for text, the string-length dimension
    gone); ``attrs`` are as written, ``_FillValue`` among them; ``values`` are the stored values where the scan read them.
    ``scopes``: per dimension the path of the group that has it, in files where a group hides a dimension above it by another of
    its name; None: each is the nearest of its name.
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    dimensions: tuple[str, ...]
    attrs: Attributes
    values: np.ndarray | None = None
    scopes: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Structure:
    """What a scan finds in one file.

    ``attrs`` are the global attributes, ``groups`` those of each group by path; ``skipped`` lists (variable, reason);
    ``stamp``: what the file was like just before.
    ``sizes`` has the file's dimensions by path, None where the format has none of its own.
    ``assumed``: what it was taken to be like; only the coordinates that files of its kind differ in were read of it then.
    ``borrowed``: values lie in other files, which a scan leaves alone: who knows which may be read adds coordinates.
    ``elsewhere``: names of those coordinates alone whose values lie in other files.
    """

    uri: str
    format: str
    attrs: Attributes
    variables: tuple[Variable, ...]
    groups: Mapping[str, Attributes]
    skipped: tuple[tuple[str, str], ...] = ()
    sizes: Mapping[str, int] | None = None
    stamp: Stamp | None = None
    assumed: FileSignature | None = None
    borrowed: bool = False
    elsewhere: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class ChunkIndex:
    """Where the values of a variable are stored: a grid of chunks, each a range of bytes of a file.

    ``shape``: of the variable; ``chunk``: shape of a chunk, no side of it 0 (edge chunks are stored whole); ``dtype``: as
    stored, byte order included, plain numbers only; ``filters``: of every chunk, in the order of encoding; ``fill``: what
    elements of chunks that are not stored are, a native scalar;
    ``offsets``, ``sizes``: int64, one per chunk in C order of the grid, offset -1 = not stored, size 0 = the whole file;
    ``masks``: uint32 per chunk (bit i: filter i was skipped) or None where none was;
    ``names``: None where all lie in the file itself, else tells the path of a chunk's file: relative to the store (Zarr), where
    a file that is not there holds chunks that are not stored; or absolute, or a URL, of a file that has to be there;
    ``inline``: stored bytes, by number, of chunks that lie in no file; ``versions``: what the files were like that told where
    the chunks in them lie. The arrays are read-only. Nothing in them has been held against the size of the file.
    """

    shape: tuple[int, ...]
    chunk: tuple[int, ...]
    dtype: np.dtype[Any]
    filters: tuple[Filter, ...]
    fill: Any
    offsets: np.ndarray
    sizes: np.ndarray
    masks: np.ndarray | None = None
    names: Callable[[int], str] | None = None
    inline: Mapping[int, bytes] | None = None
    versions: Versions | None = None

    def __post_init__(self) -> None:
        for column in (self.offsets, self.sizes, self.masks):
            if column is not None:
                column.flags.writeable = False

    @property
    def grid(self) -> tuple[int, ...]:
        """Number of chunks along each dimension."""
        return grid_of(self.shape, self.chunk)


class Handle(Protocol):
    """An open file; ``lasting``: it may stay open between reads, to nobody's harm."""

    lasting: bool

    def read(self, variable: str, box: tuple[slice, ...]) -> np.ndarray:
        """Return the stored values of a box: one slice per dimension, start and stop given, step >= 1."""

    def mapped(self, variable: str) -> np.ndarray | None:
        """Return the whole variable as a read-only memory-mapped view, or None where it is not stored that way."""

    def chunks(self, variable: str) -> ChunkIndex | None:
        """Return where the values are stored, or None where that cannot be told as `ChunkIndex`: they are read by `read`.

        That is so for text, unknown filters, external, virtual or compact storage. FormatError for a damaged file.
        """

    def elsewhere(self, variable: str) -> Iterable[str]:
        """Return the paths of other files that hold values of a variable: external and virtual storage, links.

        What another file has to be opened for comes after its path.
        """

    def close(self) -> None:
        """Close the file; views handed out stay valid."""


@runtime_checkable
class Format(Protocol):
    """A file format: one object per module of this package.

    It may have a method ``scan_partially(path: str, request: PartialScanRequest) -> PartialScan | None``, where a few
    coordinates are read faster than all: it opens the file once, and returns None where it is not sure, so that the file is
    scanned.
    """

    name: str

    def recognises(self, path: str, head: bytes) -> bool:
        """Tell whether the file (``head``: its first bytes) or folder (``head`` empty) is of this format."""

    def scan(self, path: str) -> Structure:
        """Read structure, attributes and coordinate values, opening the file once."""

    def open(self, path: str) -> Handle:
        """Open for reading values."""


def grid_of(shape: Sequence[int], chunk: Sequence[int]) -> tuple[int, ...]:
    """Return how many chunks there are along each dimension, the last one perhaps partly outside the shape.

    >>> grid_of((10, 0), (4, 3))
    (3, 0)
    """
    return tuple(-(-n // c) for n, c in zip(shape, chunk, strict=True))


def needs_chunk_index(grid: Sequence[int], stored: int) -> bool:
    """Tell whether a table of chunks may take the memory it needs: what a file claims must be borne out by what it stores.

    >>> worth_a_table((1000, 1000), 0), worth_a_table((10**6, 10**6), 500)
    (True, False)
    """
    return math.prod(grid) <= FREE_CHUNKS + 16 * stored


def one_chunk(shape: tuple[int, ...], dtype: np.dtype[Any], fill: Any, offset: int | None) -> ChunkIndex:
    """Describe values that lie in one piece at an offset, None where they were never written.

    >>> one_chunk((2, 3), np.dtype("f4"), np.float32(0), 100).sizes
    array([24])
    """
    count = 0 if 0 in shape else 1
    offsets = np.full(count, -1 if offset is None or not count else offset, np.int64)
    sizes = np.full(count, math.prod(shape) * dtype.itemsize, np.int64)
    return ChunkIndex(shape, tuple(max(n, 1) for n in shape), dtype, (), fill, offsets, sizes)


def basename(name: str) -> str:
    """Return the last part of a variable's path."""
    return name.rpartition("/")[2]


def unique_dimensions(names: Iterable[str | None]) -> tuple[str, ...]:
    """Name every dimension of a variable, once: nameless ones by position, repeated ones with a suffix.

    >>> unique_dimensions([None, "x", "x"])
    ('dim_0', 'x', 'x_2')
    """
    found: list[str] = []
    for position, name in enumerate(names):
        wanted = given = name or f"dim_{position}"
        count = 1
        while wanted in found:
            count += 1
            wanted = f"{given}_{count}"
        found.append(wanted)
    return tuple(found)


def words(attribute: Any) -> list[str]:
    """Split a blank-separated attribute such as ``coordinates``; anything but text has no words."""
    return attribute.split() if isinstance(attribute, str) else []


def scan_values(variables: Sequence[Variable]) -> set[str]:
    """Return the names of the variables whose values a scan reads.

    These are coordinate variables (CF section 5), what ``coordinates``, ``bounds`` and ``climatology`` name, and what says
    which samples belong together (CF section 9.3), up to `SCAN_ELEMENTS` elements each.
    """
    named: set[str] = set()
    for variable in variables:
        for attribute in ("coordinates", "bounds", "climatology"):
            named.update(basename(word) for word in words(variable.attrs.get(attribute)))
    return {
        v.name
        for v in variables
        if (basename(v.name) in named or v.dimensions == (basename(v.name),) or not ROWS.isdisjoint(v.attrs))
        and math.prod(v.shape) <= SCAN_ELEMENTS
    }


def select_outer(read: Callable[[tuple[slice, ...]], np.ndarray], selection: Sequence[slice | np.ndarray]) -> np.ndarray:
    """Read an orthogonal selection through a reader of boxes.

    ``selection``: per dimension a slice (step >= 1) or a strictly increasing int64 array. Indices near each other are
    read as one box and picked in memory; far ones in several boxes.
    """
    for axis, chosen in enumerate(selection):
        if isinstance(chosen, slice):
            continue
        if chosen.size == 0:
            return select_outer(read, [*selection[:axis], slice(0, 0, 1), *selection[axis + 1 :]])
        cuts = np.flatnonzero(np.diff(chosen) > 32) + 1
        blocks = []
        for run in np.split(chosen, cuts):
            first, last = int(run[0]), int(run[-1])
            box = [*selection[:axis], slice(first, last + 1, 1), *selection[axis + 1 :]]
            block = select_outer(read, box)
            blocks.append(block if run.size == last - first + 1 else block.take(run - first, axis=axis))
        return blocks[0] if len(blocks) == 1 else np.concatenate(blocks, axis=axis)
    return read(tuple(s for s in selection if isinstance(s, slice)))


@contextmanager
def naming_errors(path: str, variable: str | None = None) -> Iterator[None]:
    """Turn what a library raises inside the block into one line that names file and variable (FormatError)."""
    try:
        yield
    except AggarrayError:
        raise
    except LIBRARY_ERRORS as error:
        raise FormatError(f"{path}{f', variable {variable!r}' if variable else ''}: {error_text(error)}") from error
    except MemoryError as error:
        of = f", variable {variable!r}" if variable else ""
        raise FormatError(f"{path}{of}: wants more memory than there is; read less of it, or restore the file") from error


def error_text(error: BaseException) -> str:
    """Say in one line what an exception of a library says."""
    if isinstance(error, UnicodeDecodeError):
        return f"text that is not {error.encoding} (byte {error.object[error.start]:#04x}); set the attribute _Encoding"
    if isinstance(error, OSError) and error.strerror:
        return str(error.strerror)
    # A KeyError's text is its argument in quotes.
    text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    return f"cannot be read: {' '.join(text.split()) or type(error).__name__}"


def stored_variable(
    name: str,
    stored: np.dtype[Any],
    shape: Sequence[int],
    dimensions: Sequence[str | None],
    attrs: Attributes,
    joined: bool = True,
) -> Variable:
    """Describe a variable by how it is stored: ``stored`` dtype, ``shape`` and ``dimensions`` before text is joined.

    ``joined``: the last dimension of single characters is the length of a text; else each character is a text.

    >>> stored_variable("name", np.dtype("S1"), (3, 8), ("station", "length"), {}).dimensions
    ('station',)
    """
    if joined and is_characters(stored, len(shape)):
        shape, dimensions = shape[:-1], dimensions[:-1]
    dtype = np.dtypes.StringDType() if stored.kind in "SUOT" else np.dtype(stored.newbyteorder("=").str)
    return Variable(name, dtype, tuple(int(n) for n in shape), unique_dimensions(dimensions), attrs)


def is_characters(stored: np.dtype[Any], ndim: int) -> bool:
    """Tell whether an array is one of single characters, the last dimension the string length if it is no real one."""
    return stored.kind == "S" and stored.itemsize == 1 and ndim > 0


def has_coordinate(name: str, dimension: str | None, dimensions: Mapping[str, Sequence[str | None]]) -> bool:
    """Tell whether a dimension of a variable has a coordinate variable (CF sections 2.7, 5): it is no string length then.

    ``name``: path of the variable, whose group and those above are searched; ``dimensions``: of every variable by path.

    >>> dimensions = {"flag": ("time",), "name": ("time", "length"), "time": ("time",)}
    >>> has_coordinate("flag", "time", dimensions), has_coordinate("name", "length", dimensions)
    (True, False)
    """
    group = name
    while dimension is not None and group:
        group = group.rpartition("/")[0]
        if dimension in dimensions.get(f"{group}/{dimension}" if group else dimension, ()):
            return True
    return False


def stored_values(values: np.ndarray, attrs: Attributes, joined: bool = True, place: str = "") -> np.ndarray:
    """Return what was read as the values of a Variable: characters joined, text decoded by ``_Encoding``, native bytes.

    ``joined`` as in `stored_variable`; ``place``: file and variable, for the log. UnicodeError for an unknown encoding.

    >>> stored_values(np.array([b"a", b"b"], "S1"), {}).tolist()
    'ab'
    """
    if values.dtype.kind in "SUOT":
        stated = attrs.get("_Encoding")
        encoding = known_encoding(stated if isinstance(stated, str) else None)
        as_text = characters_to_text if joined and is_characters(values.dtype, values.ndim) else bytes_to_text
        return as_text(values, encoding, place)
    # The plain dtype: HDF5's notes on enumerations do not travel on.
    return values.astype(np.dtype(values.dtype.newbyteorder("=").str), copy=False)


def with_values(
    variables: Sequence[Variable], read: Callable[[Variable], np.ndarray | None], wanted: Collection[str] | None = None
) -> tuple[Variable, ...]:
    """Give the variables that `scan_values` names their values, read-only; undecodable text waits for its own read.

    ``wanted``: what `scan_values` has named, if somebody has asked it. ``read`` returns None for what is not `scannable`.
    """
    wanted = scan_values(variables) if wanted is None else wanted
    return tuple(_with_values(v, read) if v.name in wanted else v for v in variables)


def _with_values(variable: Variable, read: Callable[[Variable], np.ndarray | None]) -> Variable:
    try:
        values = read(variable)
    except UnicodeError:
        return variable
    except FormatError as error:
        if isinstance(error.__cause__, UnicodeError):
            return variable
        raise
    if values is None:
        return variable
    values.flags.writeable = False
    v = variable
    return Variable(v.name, v.dtype, v.shape, v.dimensions, v.attrs, values, v.scopes)


def counts(box: Box) -> tuple[int, ...]:
    """Return how many elements a box takes along each dimension.

    >>> counts((slice(0, 5, 2), slice(3, 3, 1)))
    (3, 0)
    """
    return tuple(len(range(s.start, s.stop, s.step or 1)) for s in box)


def whole(shape: Iterable[int]) -> Box:
    """Return the box that is all of an array.

    >>> whole((2,))
    (slice(0, 2, 1),)
    """
    return tuple(slice(0, n, 1) for n in shape)
