"""Sub-array: a variable of a file, or an array in memory."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Literal, overload

import numpy as np

from aggarray.arrays.values import NamedArray
from aggarray.cf.encoding import Encoding, default_fill, encoding
from aggarray.cf.units import is_reference_time, normal_calendar
from aggarray.cf.units.calendars import epoch
from aggarray.dataclass import dataclass, fields, replace
from aggarray.errors import AggregationError, NotFoundError, printable
from aggarray.formats import scan
from aggarray.formats.templates import template_of
from aggarray.memory import Type
from aggarray.memory.creation import shared
from aggarray.memory.selection import normalise
from aggarray.memory.types import SUPPORTED
from aggarray.partition.matrix import Matrix, References, Template, single
from aggarray.read import ReadOptions, Target, read
from aggarray.read.open_files import with_external_coordinates
from aggarray.scan.resolution import resolve_references
from aggarray.storage import relocated
from aggarray.storage.access import ANYWHERE, Access


@dataclass(frozen=True, slots=True, eq=False)
class SubArray(NamedArray):
    """Array outside any master: a variable of a file, or values in memory.

    `from_file` and `from_array` make it.

    >>> s = SubArray.from_array([[1.0, 2.0]], dimensions=("y", "x"), units="K")
    >>> s.shape, s.units, s.uri
    ((1, 2), 'K', None)
    """

    template: Template
    uri: str | None
    source: str | np.ndarray
    #: The state of the file when it was scanned, as in `References`.
    _noted: tuple[int | None, tuple[int, int, int] | None] = (None, None)
    #: Permissions to read the file.
    _access: Access = ANYWHERE

    def __setstate__(self, state: list[Any]) -> None:
        for f, value in zip(fields(self), state, strict=True):
            object.__setattr__(self, f.name, relocated(value) if f.name == "uri" and value else value)

    @classmethod
    def from_file(cls, path: str | bytes | os.PathLike[Any], variable: str) -> SubArray:
        """Make a sub-array from a variable of a file.

        Raises FormatError if the file does not open, AggregationError if the path is not one, NotFoundError with the names of
        the variables if there is no such variable.
        """
        structure = with_external_coordinates(scan(path), ANYWHERE)
        for scanned in structure.variables:
            if scanned.name == variable:
                return cls(template_of(scanned, structure), structure.uri, variable, (None, structure.stamp))
        reason = dict(structure.skipped).get(variable)
        names = ", ".join(v.name for v in structure.variables) or "none"
        what = f"no variable {variable!r}" + (f": {reason}" if reason else "")
        raise NotFoundError(what, path=structure.uri, variable=variable, hint=None if reason else f"it has {names}")

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
    ) -> SubArray:
        """Make a sub-array of values in memory: a read-only view, or copied text.

        ``fill_value`` marks missing values. Masked arrays keep their mask. Raises AggregationError if dimensions, directions
        or the fill value do not fit the array, UnitsError for an unknown calendar of a reference time.
        """
        values, fill_value = _plain(array, fill_value)
        parameters = (values.shape, values.dtype, _axes(values.shape, dimensions, directions), units, calendar, fill_value)
        try:
            template = _template(*parameters)
        except TypeError:  # a fill value that does not hash, such as an array of size 1
            template = _template.__wrapped__(*parameters)
        return cls(template, None, values)

    @classmethod
    def from_local(cls, local: Any) -> SubArray:
        """Return the elements that one process owns of a distributed array.

        They come without communication padding and without a copy. ``local``: a LocalArray, or an object with
        ``__distarray__``. At the owned ranges, the sections of all processes of a block grid make a master array;
        `MasterArray.from_locals` makes one for any distribution.
        """
        from aggarray.arrays.local import LocalArray

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
        """Size along each dimension."""
        return self.template.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Data type of the values of `read`: unpacked, native."""
        return self.template.encoding.dtype

    @property
    def fill_value(self) -> Any:
        """Missing value in `read`: NaN for floats, None for integers without one."""
        encoding = self.template.encoding
        declared = encoding.fill_value
        return default_fill(encoding.dtype) if declared is None and encoding.may_miss else declared

    @property
    def dimensions(self) -> tuple[str, ...]:
        """Names of the dimensions."""
        return self.template.dimensions

    @property
    def directions(self) -> tuple[bool, ...]:
        """Direction of each dimension; True means increasing."""
        return self.template.directions

    @property
    def units(self) -> str | None:
        """Units in the file."""
        return self.template.units

    @property
    def calendar(self) -> str | None:
        """Calendar of reference times, None for other units."""
        return self.template.calendar

    @property
    def scale_factor(self) -> Any:
        """Packing: factor of stored values, or None."""
        return self.template.encoding.scale_factor

    @property
    def add_offset(self) -> Any:
        """Packing: value added after scaling, or None."""
        return self.template.encoding.add_offset

    @overload
    def read(self, key: Any = ..., *, masked: Literal[True], copy: bool | None = True) -> np.ma.MaskedArray[Any, Any]: ...
    @overload
    def read(self, key: Any = ..., masked: bool = False, copy: bool | None = True) -> np.ndarray: ...
    def read(self, key: Any = ..., masked: bool = False, copy: bool | None = True) -> np.ndarray:
        """Return the unpacked values of the sub-array, not conformed to a master.

        Missing values are `fill_value`. ``copy``: True gives a fresh array; None a read-only view where possible; False that
        view or an AggregationError.

        >>> SubArray.from_array([1, -9, 3], fill_value=-9).read(masked=True).mask.tolist()
        [False, True, False]
        """
        if self.template.declared:
            return self.resolved().read(key, masked, copy)
        template = self.template
        selectors = normalise(key, self.shape, self.dimensions)
        options = ReadOptions(masked=masked, copy=copy)
        return read(self.matrix(), Target(template.last_step, self.fill_value, self._access), selectors, options)

    def __datashape__(self) -> Type:
        return Type(self.shape, self.dtype, self.template.encoding.may_miss)

    def resolved(self) -> SubArray:
        """Return the sub-array with its file's template; errors as in `read`."""
        if not self.template.declared:
            return self
        matrix = resolve_references(self.matrix(), None, self.template.last_step, self._access)
        return subarray_at(matrix.references, 0, self._access)

    def matrix(self) -> Matrix:
        """Return a matrix of one partition that shows the complete sub-array."""
        seen, stamp = (None if n is None else np.array([n], np.int64) for n in self._noted)
        return single(self.template, self.uri, self.source, stamp, seen)

    def __repr__(self) -> str:
        where = "in memory" if self.uri is None else f"{self.variable!r} of {self.uri}"
        sizes = ", ".join(f"{d}: {n}" for d, n in zip(self.dimensions, self.shape, strict=True))
        # promise: escape-subarray-repr
        return printable(f"<aggarray.SubArray {where} ({sizes}) {self.dtype} {self.units or ''}>".replace(" >", ">"))


#: Names and directions of the dimensions.
_Axes = tuple[tuple[str, ...], tuple[bool, ...]]


def _axes(shape: tuple[int, ...], dimensions: Any, directions: Any) -> _Axes:
    dimensions = (dimensions,) if isinstance(dimensions, str) else dimensions
    try:
        names = tuple(f"dim_{i}" for i in range(len(shape))) if dimensions is None else tuple(dimensions)
        forward = (True,) * len(shape) if directions is None else tuple(directions)
    except TypeError as error:
        what = f"dimensions {dimensions!r} and directions {directions!r} are not lists"
        raise AggregationError(what, hint="give one of each per dimension") from error
    typed = all(isinstance(n, str) for n in names) and all(isinstance(d, bool | np.bool) for d in forward)
    if not typed or not len(names) == len(set(names)) == len(forward) == len(shape):
        what = f"dimensions {names} and directions {forward} for an array of shape {shape}"
        raise AggregationError(what, hint="give one of each per dimension: names as text, each once, and True or False")
    return names, tuple(bool(d) for d in forward)


@lru_cache(maxsize=4096, typed=True)
def _template(
    shape: tuple[int, ...], dtype: np.dtype[Any], axes: _Axes, units: str | None, calendar: str | None, fill_value: Any
) -> Template:
    """Return the template of an array in memory, shared by equal parameters."""
    if units is not None and calendar is not None and is_reference_time(units):
        epoch(units, calendar)  # raises the error of an unknown calendar before the first read
    return Template(shape, *axes, units, normal_calendar(units, calendar), _encoding(dtype, fill_value))


def subarray_at(references: References, row: int, access: Access = ANYWHERE) -> SubArray:
    """Return the sub-array of a row of references, without conversions."""
    uri, code = references.uri_of(row), references.variable[row]
    template = references.template_of(row)
    template = replace(template, steps=()) if template.steps else template
    source = references.memory[code] if uri is None else references.variables[code]
    return SubArray(template, uri, source, (references.seen_of(row), references.stamp_of(row)), access)


def _plain(array: Any, fill_value: Any) -> tuple[np.ndarray, Any]:
    if np.ma.isMaskedArray(array):
        array, fill_value = _filled(array, fill_value)
    try:
        values = np.asarray(array)
    except ValueError as error:
        raise AggregationError(f"not an array: {error}", hint="give rows of equal length") from error
    if values.dtype.kind in "OUST" and values.dtype != np.dtypes.StringDType():
        values, fill_value = _text(values, fill_value)
    if values.dtype.kind not in "iufcbmMT":
        raise AggregationError(f"unsupported dtype {values.dtype}", hint=SUPPORTED)
    return shared(values), fill_value


def _text(values: np.ndarray, fill_value: Any) -> tuple[np.ndarray, Any]:
    if values.dtype.kind == "T":
        absent = np.array([not isinstance(v, str) for v in values.ravel().tolist()], bool).reshape(values.shape)
        if absent.any():
            plain = np.where(absent, np.array("", values.dtype), values).astype(np.dtypes.StringDType())
            return _filled(np.ma.array(plain, mask=absent), fill_value)
    if values.dtype.kind == "O" and not all(isinstance(v, str) for v in values.ravel()):
        raise AggregationError("unsupported Python objects that are not text", hint=SUPPORTED)
    try:
        values = np.char.decode(values, "utf-8") if values.dtype.kind == "S" else values
    except UnicodeDecodeError as error:
        hint = "decode it, numpy.char.decode(values, encoding)"
        raise AggregationError(f"the text is not UTF-8 ({error})", hint=hint) from error
    # NumPy converts only text in native byte order.
    native = values.astype(values.dtype.newbyteorder("=")) if values.dtype.kind == "U" else values
    return native.astype(np.dtypes.StringDType()), fill_value


def _filled(array: np.ma.MaskedArray, fill_value: Any) -> tuple[np.ndarray, Any]:
    """Replace masked elements by a fill value that no valid element has."""
    mask = np.ma.getmaskarray(array)
    if not mask.any():
        return np.ma.getdata(array), fill_value
    valid = np.ma.getdata(array)[~mask]
    candidates: tuple[Any, ...] = (fill_value,)
    if fill_value is None:
        candidates = default_fill(array.dtype), array.fill_value
        if array.dtype.kind in "iu":
            limits = np.iinfo(array.dtype)
            candidates = array.fill_value, default_fill(array.dtype), limits.min, limits.max
    for fill in candidates:
        if array.dtype.kind in "iu" and not np.iinfo(array.dtype).min <= fill <= np.iinfo(array.dtype).max:
            continue
        if not (np.isnan(valid).any() if fill != fill else (valid == fill).any()):
            return np.where(mask, np.asarray(fill, array.dtype), np.ma.getdata(array)), fill
    what = f"fill_value {candidates[0]!r} is a valid value of the masked array, or not a value of {array.dtype}"
    raise AggregationError(what, hint="give another")


def _encoding(dtype: np.dtype[Any], fill_value: Any) -> Encoding:
    attrs = {} if fill_value is None else {"_FillValue": fill_value}
    what = f"fill_value {fill_value!r} is not a value of dtype {dtype}"
    if dtype.kind not in "bmM" or fill_value is None:
        decoded = encoding(dtype, attrs)
        if fill_value is not None and not (decoded.missing or decoded.missing_nan):
            raise AggregationError(what, hint="give a value of the dtype")
        return decoded
    # Attributes cannot hold times and truth values: their encoding is made directly.
    native = dtype.newbyteorder("=")
    try:
        value = np.asarray(fill_value, native)[()]
    except (ValueError, TypeError) as error:
        raise AggregationError(f"{what}: {error}", hint="give a value of the dtype") from error
    is_nan = bool(value != value)
    return Encoding(native, native, native, missing=() if is_nan else (value,), missing_nan=is_nan)
