"""What does a partition refer to? A sub-array: a variable of a file, or an array in memory, with its own parameters."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from aggarray.arrays.local import LocalArray
from aggarray.arrays.values import ReadOptions, Viewable, read_or_view
from aggarray.cf.encoding import Encoding, default_fill, encoding
from aggarray.cf.units import epoch, is_reference_time, normal_calendar
from aggarray.errors import AggregationError, NotFoundError, printable
from aggarray.formats import scan
from aggarray.formats.templates import template_of
from aggarray.memory import Type
from aggarray.memory.creation import shared
from aggarray.memory.selection import normalise
from aggarray.partition.matrix import Matrix, References, Template, single
from aggarray.read import Target
from aggarray.read.open_files import with_borrowed
from aggarray.scan.resolution import resolve_references
from aggarray.storage.access import ANYWHERE, Access


@dataclass(frozen=True, slots=True, eq=False)
class SubArray(Viewable):
    """An array outside any master: a variable of a file, or values in memory. Make one with `from_file` or `from_array`.

    >>> s = SubArray.from_array([[1.0, 2.0]], dimensions=("y", "x"), units="K")
    >>> s.shape, s.units, s.uri
    ((1, 2), 'K', None)
    """

    template: Template
    uri: str | None
    source: str | np.ndarray
    #: Of `References`: what the file was like when it was scanned.
    _noted: tuple[int | None, tuple[int, int, int] | None] = (None, None)
    #: How its file may be read.
    _access: Access = ANYWHERE

    @classmethod
    def from_file(cls, path: str | bytes | os.PathLike[Any], variable: str) -> "SubArray":
        """Return a variable of a file.

        FormatError where the file does not open, AggregationError for what is no path, NotFoundError lists the variables.
        """
        structure = with_borrowed(scan(path), ANYWHERE)
        for found in structure.variables:
            if found.name == variable:
                return cls(template_of(found, structure), structure.uri, variable, (None, structure.stamp))
        reason = dict(structure.skipped).get(variable)
        names = ", ".join(v.name for v in structure.variables) or "none"
        raise NotFoundError(f"{structure.uri}: no variable {variable!r}: {reason or f'it has {names}'}")

    @classmethod
    def from_array(
        cls,
        array: Any,
        *,
        dimensions: Sequence[str] | None = None,
        units: str | None = None,
        calendar: str | None = None,
        directions: Sequence[bool] | None = None,
        fill_value: Any = None,
    ) -> "SubArray":
        """Return values in memory: a read-only view of them, of text a copy; ``fill_value`` is the value that means missing.

        Masked arrays keep their mask. Raises AggregationError where dimensions, directions or the missing value do not fit
        the array, UnitsError for an unknown calendar of a reference time.
        """
        values, fill_value = _plain(array, fill_value)
        names, forward = _axes(values.shape, dimensions, directions)
        known = (values.shape, values.dtype, names, forward, units, calendar)
        try:
            template = _template(*known, fill_value)
        except TypeError:  # a missing value that does not hash, such as an array of one
            template = _template.__wrapped__(*known, fill_value)
        return cls(template, None, values)

    @classmethod
    def from_local(cls, local: Any) -> "SubArray":
        """Return what one process owns of a distributed array, without communication padding and without a copy.

        ``local``: a LocalArray, or anything that exports by ``__distarray__``. Placed at the owned ranges, the sections of all
        processes of a block grid make a master array; `MasterArray.from_locals` does so for any distribution.
        """
        section = local if isinstance(local, LocalArray) else LocalArray.from_distarray(local)
        named = {name: getattr(section.source, name, None) for name in ("dimensions", "units", "calendar", "directions")}
        return cls.from_array(section.owned, fill_value=getattr(section.source, "fill_value", None), **named)

    @property
    def variable(self) -> str | None:
        """Name of the variable in its file, None in memory."""
        return self.source if isinstance(self.source, str) else None

    @property
    def format(self) -> str:
        """Format of the file, or "memory"."""
        return self.template.format

    @property
    def shape(self) -> tuple[int, ...]:
        """Size per dimension."""
        return self.template.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Data type of what `read` returns: unpacked, native."""
        return self.template.encoding.dtype

    @property
    def fill_value(self) -> Any:
        """What `read` returns for missing values: NaN in floating arrays; None for integers that declare none."""
        decoding = self.template.encoding
        declared = decoding.fill_value
        return default_fill(decoding.dtype) if declared is None and decoding.may_miss else declared

    @property
    def dimensions(self) -> tuple[str, ...]:
        """Names of the dimensions."""
        return self.template.dimensions

    @property
    def directions(self) -> tuple[bool, ...]:
        """Sense of each dimension, True = increasing."""
        return self.template.directions

    @property
    def units(self) -> str | None:
        """Units as the file has them."""
        return self.template.units

    @property
    def calendar(self) -> str | None:
        """Calendar of reference times, None for other units."""
        return self.template.calendar

    @property
    def scale_factor(self) -> Any:
        """Packing: what stored values are multiplied with, or None."""
        return self.template.encoding.scale_factor

    @property
    def add_offset(self) -> Any:
        """Packing: what is then added, or None."""
        return self.template.encoding.add_offset

    def read(self, key: Any = ..., masked: bool = False, copy: bool | None = True) -> np.ndarray:
        """Return the sub-array's own values, unpacked but not conformed to anything; missing values as `fill_value`.

        ``copy``: True gives a fresh array; None a read-only view where possible; False that view or an AggregationError.

        >>> SubArray.from_array([1, -9, 3], fill_value=-9).read(masked=True).mask.tolist()
        [False, True, False]
        """
        if self.template.declared:
            return self.settled().read(key, masked, copy)
        template = self.template
        selectors = normalise(key, self.shape, self.dimensions)
        wish = ReadOptions(masked=masked, copy=copy)
        return read_or_view(self.matrix(), Target(template.last_step, self.fill_value, self._access), selectors, wish)

    def __datashape__(self) -> Type:
        return Type(self.shape, self.dtype, self.template.encoding.may_miss)

    def settled(self) -> "SubArray":
        """Return what the file has, where so far only an index has told of it; errors as in `read`."""
        if not self.template.declared:
            return self
        return subarray_at(
            resolve_references(self.matrix(), None, self.template.last_step, self._access).references, 0, self._access
        )

    def matrix(self) -> Matrix:
        """Return the matrix of one partition that shows the whole sub-array."""
        seen, stamp = (None if n is None else np.array([n], np.int64) for n in self._noted)
        return single(self.template, self.uri, self.source, stamp, seen)

    def __repr__(self) -> str:
        where = "in memory" if self.uri is None else f"{self.variable!r} of {self.uri}"
        sizes = ", ".join(f"{d}: {n}" for d, n in zip(self.dimensions, self.shape, strict=True))
        # promise: escape-subarray-repr
        return printable(f"<aggarray.SubArray {where} ({sizes}) {self.dtype} {self.units or ''}>".replace(" >", ">"))


def _axes(shape: tuple[int, ...], dimensions: Any, directions: Any) -> tuple[tuple[str, ...], tuple[bool, ...]]:
    """Return names and directions of the dimensions, the usual ones for None; AggregationError where they do not fit."""
    dimensions = (dimensions,) if isinstance(dimensions, str) else dimensions
    try:
        names = tuple(f"dim_{i}" for i in range(len(shape))) if dimensions is None else tuple(dimensions)
        forward = (True,) * len(shape) if directions is None else tuple(directions)
    except TypeError as error:
        raise AggregationError(f"dimensions {dimensions!r} and directions {directions!r}: give lists, one of each") from error
    kinds = all(isinstance(n, str) for n in names) and all(isinstance(d, bool | np.bool) for d in forward)
    if not kinds or not len(names) == len(set(names)) == len(forward) == len(shape):
        raise AggregationError(
            f"dimensions {names} and directions {forward} for an array of shape {shape}: "
            "give one of each per dimension: names as text, each once, and True or False"
        )
    return names, tuple(bool(d) for d in forward)


@lru_cache(maxsize=4096, typed=True)
def _template(
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    names: tuple[str, ...],
    forward: tuple[bool, ...],
    units: str | None,
    calendar: str | None,
    fill_value: Any,
) -> Template:
    """Return the template of an array in memory: one object for many arrays alike, which is fast to collect."""
    if units is not None and calendar is not None and is_reference_time(units):
        # A calendar that nobody knows is found out here rather than at the first read.
        epoch(units, calendar)
    return Template(shape, names, forward, units, normal_calendar(units, calendar), _decoding(dtype, fill_value))


def subarray_at(references: References, row: int, access: Access = ANYWHERE) -> SubArray:
    """Return the object for one row of a table of sub-arrays: its own values, before any step towards a master."""
    uri, code = references.uri_of(row), references.variable[row]
    template = references.template_of(row)
    template = replace(template, steps=()) if template.steps else template
    source = references.memory[code] if uri is None else references.variables[code]
    return SubArray(template, uri, source, (references.seen_of(row), references.stamp_of(row)), access)


def _plain(array: Any, fill_value: Any) -> tuple[np.ndarray, Any]:
    """Return values as a read-only array of a plain dtype, and the value that marks missing ones."""
    if np.ma.isMaskedArray(array):
        array, fill_value = _filled(array, fill_value)
    try:
        values = np.asarray(array)
    except ValueError as error:
        raise AggregationError(f"no array: {error}; give rows of equal length") from error
    if values.dtype.kind in "OUST" and values.dtype != np.dtypes.StringDType():
        values, fill_value = _text(values, fill_value)
    if values.dtype.kind not in "iufcbmMT":
        raise AggregationError(f"an array of dtype {values.dtype}: give numbers, text or times")
    return shared(values), fill_value


def _text(values: np.ndarray, fill_value: Any) -> tuple[np.ndarray, Any]:
    """Return text of any dtype as StringDType, and what marks text that is missing: what a dtype has for it, say None."""
    if values.dtype.kind == "T":
        absent = np.array([not isinstance(v, str) for v in values.ravel().tolist()], bool).reshape(values.shape)
        if absent.any():
            plain = np.where(absent, np.array("", values.dtype), values).astype(np.dtypes.StringDType())
            return _filled(np.ma.array(plain, mask=absent), fill_value)
    if values.dtype.kind == "O" and not all(isinstance(v, str) for v in values.ravel()):
        raise AggregationError("an array of Python objects that are not text: give numbers, text or times")
    try:
        values = np.char.decode(values, "utf-8") if values.dtype.kind == "S" else values
    except UnicodeDecodeError as error:
        raise AggregationError(f"text that is not utf-8 ({error}): decode it, numpy.char.decode(values, encoding)") from error
    # NumPy makes no text of what is in another byte order.
    native = values.astype(values.dtype.newbyteorder("=")) if values.dtype.kind == "U" else values
    return native.astype(np.dtypes.StringDType()), fill_value


def _filled(array: np.ma.MaskedArray, fill_value: Any) -> tuple[np.ndarray, Any]:
    """Write a value over masked elements that no valid element has; return it too."""
    mask = np.ma.getmaskarray(array)
    if not mask.any():
        return np.ma.getdata(array), fill_value
    valid = np.ma.getdata(array)[~mask]
    candidates = _fills(array) if fill_value is None else (fill_value,)
    for fill in candidates:
        if array.dtype.kind in "iu" and not np.iinfo(array.dtype).min <= fill <= np.iinfo(array.dtype).max:
            continue
        if not (np.isnan(valid).any() if fill != fill else (valid == fill).any()):
            return np.where(mask, np.asarray(fill, array.dtype), np.ma.getdata(array)), fill
    raise AggregationError(
        f"fill_value {candidates[0]!r} is also a valid value of the masked array, or no value of {array.dtype}: give another"
    )


def _fills(array: np.ma.MaskedArray) -> tuple[Any, ...]:
    """Return values that may stand for missing ones of a masked array, the usual one first."""
    usual = default_fill(array.dtype)
    if array.dtype.kind not in "iu":
        return usual, array.fill_value
    limits = np.iinfo(array.dtype)
    return array.fill_value, usual, limits.min, limits.max


def _decoding(dtype: np.dtype[Any], fill_value: Any) -> Encoding:
    """Return the encoding of values in memory, of which ``fill_value`` (None: none) marks the missing ones."""
    attrs = {} if fill_value is None else {"_FillValue": fill_value}
    if dtype.kind not in "bmM" or fill_value is None:
        found = encoding(dtype, attrs)
        if fill_value is not None and not (found.missing or found.missing_nan):
            raise AggregationError(f"fill_value {fill_value!r} is no value of dtype {dtype}: give one that is")
        return found
    # Attributes of files have no times and no truth values: these are declared by hand.
    native = dtype.newbyteorder("=")
    try:
        value = np.asarray(fill_value, native)[()]
    except (ValueError, TypeError) as error:
        raise AggregationError(f"fill_value {fill_value!r} is no value of dtype {dtype}: {error}; give one that is") from error
    if value != value:
        return Encoding(native, native, native, missing_nan=True)
    return Encoding(native, native, native, missing=(value,))
