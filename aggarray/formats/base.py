"""Interface of file formats, and the data types that they return.

A format is one module of this package with a `FORMAT` object (or an object registered under the entry point
``aggarray.formats``). It recognises a file by its content, scans it once into a `Structure`, and opens it as a
`Handle` that reads boxes of stored values: not unpacked, missing values as stored, in native byte order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from aggarray.cf.attributes import basename, words
from aggarray.cf.frozen import FrozenDict
from aggarray.dataclass import dataclass
from aggarray.errors import LIBRARY_ERRORS as LIBRARY_ERRORS
from aggarray.errors import AggarrayError, FormatError
from aggarray.formats.library_errors import library_fault
from aggarray.formats.library_lock import LIBRARY_LOCK as LIBRARY_LOCK
from aggarray.formats.library_lock import h5py_file as h5py_file
from aggarray.partition.chunk_index import ChunkIndex
from aggarray.storage.state import Stamp

if TYPE_CHECKING:
    from aggarray.partition.signatures import FileSignature

#: Largest number of elements of a coordinate that a scan reads. Larger coordinates are read when they are compared.
SCAN_ELEMENTS = 1 << 20

#: Attributes of count and index variables, which assign samples to instances (CF section 9.3).
ROWS = frozenset(("sample_dimension", "instance_dimension"))

#: Suffixes of the name of a variable-length variable: of its row sizes, and of the dimension of its samples.
SIZES, SAMPLES = "_row_size", "_sample"

_NO_NAMES: FrozenDict[str] = FrozenDict()

Attributes = Mapping[str, Any]
Box = tuple[slice, ...]


@dataclass(frozen=True, slots=True)
class Variable:
    """Variable as stored in a file.

    ``name``: path in the file without a leading slash; ``dimensions``: base names, unique within the variable; ``dtype``: of
    the stored values in native byte order (StringDType for text, whose string-length dimension is removed); ``attrs``: as
    written, including ``_FillValue``; ``values``: the stored values if the scan read them. ``scopes``: per dimension the path
    of the group that defines it, in files where a group's dimension hides one of the same name in a parent group; None: each
    dimension is the nearest of its name.
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
    """Result of the scan of one file.

    ``attrs``: global attributes; ``groups``: attributes of each group by path; ``skipped``: (variable, reason) pairs;
    ``stamp``: state of the file just before the scan; ``sizes``: the file's dimensions by path, None if the format does not
    define dimensions; ``assumed``: the signature that the file was assumed to match, in which case the scan read only the
    coordinates in which files of its group differ; ``has_external_coordinates``: values lie in other files, which a scan does
    not open: coordinates are added by code that knows which files may be read; ``external_files``: names of the variables
    whose values lie in other files; ``given``: names of the attributes that a catalogue gave in place of those in the file.
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
    has_external_coordinates: bool = False
    external_files: tuple[str, ...] = ()
    given: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FixedStructure(Structure):
    """Structure of a file with fixes applied, for the arrays of the file.

    ``stored``: {name: name in the file} of renamed variables; ``units``: {name: units of the array} of shifted times, whose
    attribute ``units`` has the shifted date; both hashable. ``seen``: a hash of what was read of an assumed file, before the
    fixes; -1 for other files.
    """

    stored: Mapping[str, str] = _NO_NAMES
    units: Mapping[str, str] = _NO_NAMES
    seen: int = -1


def fixed_names(structure: Structure) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Return what fixes changed that reads must know; see `FixedStructure`."""
    return (structure.stored, structure.units) if isinstance(structure, FixedStructure) else (_NO_NAMES, _NO_NAMES)


class Handle(Protocol):
    """Open file; ``lasting``: it may stay open between reads."""

    lasting: bool

    def read(self, variable: str, box: tuple[slice, ...]) -> np.ndarray:
        """Return the stored values of a box.

        A box has one slice per dimension with explicit start and stop, step >= 1.
        """

    def mapped(self, variable: str) -> np.ndarray | None:
        """Return a read-only memory-mapped view, None if not one block."""

    def chunks(self, variable: str) -> ChunkIndex | None:
        """Return the chunk index, None if only `read` returns the values.

        The result is None for text, unknown filters, external, virtual or compact storage. Raises FormatError for a damaged
        file.
        """

    def external_files(self, variable: str) -> Iterable[str]:
        """Return the paths of other files that hold values of a variable.

        These are files of external and virtual storage and of links, each before the files that it refers to.
        """

    def close(self) -> None:
        """Close the file; views of it stay valid."""


@runtime_checkable
class Format(Protocol):
    """File format: one object per module of this package.

    A format that reads a few coordinates faster than all may have a method ``scan_partially(path: str, request:
    PartialScanRequest) -> PartialScan | None``. It opens the file once, and returns None if the file needs a full scan.
    """

    name: str

    def recognises(self, path: str, head: bytes) -> bool:
        """Return whether a file or folder is of this format.

        ``head``: first bytes of the file, empty for a folder.
        """

    def scan(self, path: str) -> Structure:
        """Return structure, attributes and coordinates; open the file once."""

    def open(self, path: str) -> Handle:
        """Open the file to read values from it."""


def unique_dimensions(names: Iterable[str | None]) -> tuple[str, ...]:
    """Return a unique name per dimension, ``dim_N`` for a missing name.

    >>> unique_dimensions([None, "x", "x"])
    ('dim_0', 'x', 'x_2')
    """
    unique: list[str] = []
    for position, name in enumerate(names):
        candidate = base = name or f"dim_{position}"
        count = 1
        while candidate in unique:
            count += 1
            candidate = f"{base}_{count}"
        unique.append(candidate)
    return tuple(unique)


def scan_values(variables: Sequence[Variable]) -> set[str]:
    """Return the names of the variables whose values a scan reads.

    These are coordinate variables (CF section 5), the variables that ``coordinates``, ``bounds`` and ``climatology`` name, and
    count and index variables (CF section 9.3), up to `SCAN_ELEMENTS` elements each.
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


@contextmanager
def naming_errors(path: str, variable: str | None = None) -> Iterator[None]:
    """Convert exceptions of a library to FormatError with file and variable."""
    try:
        yield
    except AggarrayError as error:
        if error.path in (None, path) and f"variable {variable!r}" not in str(error):
            error.variable = error.variable or variable
        raise
    except LIBRARY_ERRORS as error:
        raise library_fault(error, path, variable) from error
    except MemoryError as error:
        raise FormatError("out of memory", path=path, variable=variable, hint="read less, or restore the file") from error


def stored_variable(
    name: str,
    stored: np.dtype[Any],
    shape: Sequence[int],
    dimensions: Sequence[str | None],
    attrs: Attributes,
    joined: bool = True,
) -> Variable:
    """Return the `Variable` for a stored array.

    ``stored``, ``shape``, ``dimensions``: before characters are joined; ``joined``: the last dimension of single characters is
    the string length; otherwise each character is a text.

    >>> stored_variable("name", np.dtype("S1"), (3, 8), ("station", "length"), {}).dimensions
    ('station',)
    """
    if joined and is_characters(stored, len(shape)):
        shape, dimensions = shape[:-1], dimensions[:-1]
    dtype = np.dtypes.StringDType() if stored.kind in "SUOT" else np.dtype(stored.newbyteorder("=").str)
    return Variable(name, dtype, tuple(int(n) for n in shape), unique_dimensions(dimensions), attrs)


def is_characters(stored: np.dtype[Any], ndim: int) -> bool:
    """Return whether an array holds single characters."""
    return stored.kind == "S" and stored.itemsize == 1 and ndim > 0


def has_coordinate(name: str, dimension: str | None, dimensions: Mapping[str, Sequence[str | None]]) -> bool:
    """Return whether a dimension has a coordinate variable.

    A dimension with one is not a string length (CF sections 2.7, 5). ``name``: path of the variable, whose group and parent
    groups are searched; ``dimensions``: of every variable by path.

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
    """Return stored values as values of a `Variable`.

    Characters are joined, text is decoded by ``_Encoding``, bytes have native order. ``joined`` as in `stored_variable`;
    ``place``: file and variable, for the log. UnicodeError for an unknown encoding.

    >>> stored_values(np.array([b"a", b"b"], "S1"), {}).tolist()
    'ab'
    """
    if values.dtype.kind in "SUOT":
        from aggarray.cf.text import bytes_to_text, characters_to_text, known_encoding

        declared = attrs.get("_Encoding")
        encoding = known_encoding(declared if isinstance(declared, str) else None)
        decode = characters_to_text if joined and is_characters(values.dtype, values.ndim) else bytes_to_text
        return decode(values, encoding, place)
    # A plain dtype, without the metadata of HDF5 enumerations.
    return values.astype(np.dtype(values.dtype.newbyteorder("=").str), copy=False)


def with_values(
    variables: Sequence[Variable], read: Callable[[Variable], np.ndarray | None], names: Collection[str] | None = None
) -> tuple[Variable, ...]:
    """Return the variables with read-only values of those in ``names``.

    Undecodable text stays without values. ``names``: None for those that a scan reads.
    """
    names = scan_values(variables) if names is None else names
    filled = list(variables)
    for number, v in enumerate(variables):
        try:
            values = read(v) if v.name in names else None
        except (UnicodeError, FormatError) as error:
            if not isinstance(error, UnicodeError) and not isinstance(error.__cause__, UnicodeError):
                raise
            continue
        if values is not None:
            values.flags.writeable = False
            filled[number] = Variable(v.name, v.dtype, v.shape, v.dimensions, v.attrs, values, v.scopes)
    return tuple(filled)


def counts(box: Box) -> tuple[int, ...]:
    """Return the number of elements of a box along each dimension.

    >>> counts((slice(0, 5, 2), slice(3, 3, 1)))
    (3, 0)
    """
    return tuple(len(range(s.start, s.stop, s.step or 1)) for s in box)


def full_box(shape: Iterable[int]) -> Box:
    """Return the box that covers an array.

    >>> full_box((2,))
    (slice(0, 2, 1),)
    """
    return tuple(slice(0, n, 1) for n in shape)
