"""Packing and missing values of variables (CF 2.5.1, 8.1; NUG).

`encoding` reads the attributes of a variable into an `Encoding`, a frozen, hashable value. Many files share one.
`Encoding.decode` finds missing values among the stored values, and unpacks with the arithmetic of netCDF4-python. It returns a
mask: the caller chooses what replaces missing values.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from aggarray.cf.frozen import FrozenDict, Immutable
from aggarray.dataclass import dataclass
from aggarray.errors import FormatError

Bounds = tuple[Any, Any]

_NUMBERS = "iufc"
_FACTORS = ("scale_factor", "add_offset")
_ATTRIBUTES = ("_FillValue", "missing_value", "valid_min", "valid_max", "valid_range", "_Unsigned", *_FACTORS)
_DEFAULT_FILLS = {"i1": -127, "i2": -32767, "i4": -2147483647, "i8": -9223372036854775806}
_DEFAULT_FILLS |= {"u1": 255, "u2": 65535, "u4": 4294967295, "u8": 18446744073709551614}


@dataclass(frozen=True, slots=True)
class Encoding:
    """Encoding of a variable. Equal encodings decode equally.

    ``stored``: dtype in the file, in native byte order; ``viewed``: dtype after ``_Unsigned``; ``dtype``: dtype of the values.
    ``scale_factor``, ``add_offset``: NumPy scalars, or None. ``missing``: stored values that mean missing, ``_FillValue``
    first; ``missing_nan``: whether NaN means missing. ``valid``, ``valid_unpacked``: inclusive (least, greatest), either may be
    None, in stored and in unpacked units.
    """

    stored: np.dtype[Any]
    viewed: np.dtype[Any]
    dtype: np.dtype[Any]
    scale_factor: Any = None
    add_offset: Any = None
    missing: tuple[Any, ...] = ()
    missing_nan: bool = False
    valid: Bounds = (None, None)
    valid_unpacked: Bounds = (None, None)

    @property
    def packed(self) -> bool:
        """Whether the variable has a scale factor or an offset."""
        return self.scale_factor is not None or self.add_offset is not None

    @property
    def trivial(self) -> bool:
        """Whether decoded values equal the stored values and none can be missing."""
        return self.dtype == self.stored and not self.packed and not self.may_miss

    @property
    def may_miss(self) -> bool:
        """Whether any value can be missing."""
        return bool(self.missing) or self.missing_nan or (self.valid, self.valid_unpacked) != ((None, None), (None, None))

    @property
    def fill_value(self) -> Any:
        """Value of missing elements; that of integers is declared, or None."""
        if self.dtype.kind not in "iu":
            return default_fill(self.dtype)
        return self.missing[0] if self.missing and not self.packed else None

    def decode(self, raw: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """Return unpacked values and the mask of missing ones.

        ``raw``: stored values of any shape, not modified. Returns values of ``dtype`` and a bool array of the same shape, or
        None if none is missing. The values are ``raw`` itself if there is nothing to decode, and undefined where missing.

        >>> packing = encoding(np.dtype("i2"), {"_FillValue": np.int16(-1), "scale_factor": 0.5})
        >>> values, mask = packing.decode(np.array([4, -1], "i2"))
        >>> float(values[0]), mask.tolist()
        (2.0, [False, True])
        """
        raw = np.asarray(raw)
        if raw.dtype != self.stored:
            raw = raw.astype(self.stored)
        if self.viewed != self.stored:
            raw = raw.view(self.viewed)
        mask = None
        # Overflow of missing values is ignored.
        with np.errstate(all="ignore"):
            for value in self.missing:
                mask = _either(mask, raw == value)
            if self.missing_nan:
                mask = _either(mask, np.isnan(raw))
            values = raw if self.scale_factor is None and self.add_offset is None else self._unpack(raw)
            for bounded, (least, greatest) in ((raw, self.valid), (values, self.valid_unpacked)):
                if least is not None:
                    mask = _either(mask, bounded < least)
                if greatest is not None:
                    mask = _either(mask, bounded > greatest)
        return values, (mask if mask is not None and mask.any() else None)

    def _unpack(self, raw: np.ndarray) -> np.ndarray:
        scale, offset = self.scale_factor, self.add_offset
        if scale is not None and offset is not None:
            if scale == 1 and offset == 0:
                return raw.astype(self.dtype)
            product = np.asarray(raw * scale)
            out = product if product.dtype == self.dtype and product.ndim else None
            return np.asarray(np.add(product, offset, out=out))
        if scale is not None and scale != 1:
            return np.asarray(raw * scale)
        if offset is not None and offset != 0:
            return np.asarray(raw + offset)
        return raw


def encoding(dtype: np.dtype[Any], attrs: Mapping[str, Any], name: str = "") -> Encoding:
    """Read the encoding of a variable from its raw attributes.

    ``dtype``: of the stored values; ``attrs``: ``_FillValue``, ``missing_value`` (scalar or vector), ``valid_min``,
    ``valid_max``, ``valid_range``, ``scale_factor``, ``add_offset``, ``_Unsigned``; others are ignored. ``name``: the
    variable in errors.

    - Missing values are cast to the stored dtype. A value that the dtype cannot hold is dropped.
    - ``_Unsigned`` "true" or "True" views signed integers, and these attributes, as unsigned. Other values are ignored.
    - The unpacked dtype follows NumPy promotion of stored * scale_factor + add_offset, as in netCDF4-python.
    - Valid bounds are inclusive and in stored units, except that floating bounds of packed integers are in unpacked units
      (NUG). ``valid_range`` takes precedence over the other two. NaN is always valid.

    Raises FormatError for a scale_factor or add_offset that is not a finite number.

    >>> encoding(np.dtype("i2"), {"scale_factor": np.float32(0.1), "add_offset": np.float32(3)}).dtype
    dtype('float32')
    """
    if type(attrs) is FrozenDict:
        return _encoding_of_shared(np.dtype(dtype), Immutable(attrs), name)
    return _encoding(np.dtype(dtype), _Stated(attrs), name)


@lru_cache(maxsize=1024)
def _encoding_of_shared(dtype: np.dtype[Any], attrs: Immutable[FrozenDict[Any]], name: str) -> Encoding:
    """Return the encoding of attributes that many variables share."""
    return _encoding(dtype, _Stated(attrs.item), name)


class _Stated:
    """Attributes of an encoding, hashable so that equal ones are read once."""

    __slots__ = ("_key", "attrs")

    def __init__(self, attrs: Mapping[str, Any]) -> None:
        self.attrs = {key: attrs[key] for key in _ATTRIBUTES if key in attrs}
        self._key = tuple((key, _content(value)) for key, value in self.attrs.items())

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Stated) and self._key == other._key


def _content(value: Any) -> Any:
    """Return a key that is equal for attribute values of equal type and bits."""
    if isinstance(value, np.generic | np.ndarray) and value.dtype.kind in _NUMBERS:
        return value.dtype.str, value.shape, value.tobytes()
    return type(value), repr(value)


@lru_cache(maxsize=1024)
def _encoding(dtype: np.dtype[Any], stated: _Stated, name: str) -> Encoding:
    attrs = stated.attrs
    stored = dtype if dtype.kind == "T" else dtype.newbyteorder("=")  # text has no byte order
    if stored.kind in "TU":
        texts = [text for key in ("_FillValue", "missing_value") for text in _texts(attrs.get(key))]
        return Encoding(stored, stored, stored, missing=tuple(dict.fromkeys(texts)))
    if stored.kind not in _NUMBERS:
        return Encoding(stored, stored, stored)
    # As in netCDF4-python, _Unsigned (NUG) applies to signed integers only.
    unsigned = stored.kind == "i" and attrs.get("_Unsigned") in ("true", "True")
    viewed = np.dtype(f"u{stored.itemsize}") if unsigned else stored
    scale, offset = (_factor(attrs.get(key), key, name) for key in _FACTORS)
    unpacked = unpacked_dtype(viewed, scale, offset)
    # A fill value from JSON may be unsigned already.
    fills = [v for number in _numbers(attrs.get("_FillValue")) for v in (_cast(number, k, viewed) for k in (stored, viewed))]
    declared = [*fills, *(_cast(v, stored, viewed) for v in _numbers(attrs.get("missing_value")))]
    values = [value for value in declared if value is not None]
    missing = {value.item(): value for value in reversed(values) if value == value}  # reversed: the first of equals stays
    packed = scale is not None or offset is not None
    bounds = _valid(attrs, stored, viewed, unpacked if packed else None)
    missing_nan = any(value != value for value in values)
    return Encoding(stored, viewed, unpacked, scale, offset, tuple(reversed(missing.values())), missing_nan, *bounds)


def default_fill(dtype: np.dtype[Any]) -> Any:
    """Return the default value of missing elements of a dtype.

    Integers have netCDF's default fill values, other types NaN, NaT, "" or False. None for compound types.

    >>> int(default_fill(np.dtype("int16"))), default_fill(np.dtype("bool"))
    (-32767, False)
    """
    dtype = np.dtype(dtype)
    if dtype.kind in "iu":
        return dtype.type(_DEFAULT_FILLS[f"{dtype.kind}{dtype.itemsize}"])
    if dtype.kind == "c":
        return dtype.type(complex(math.nan, math.nan))
    if dtype.kind == "f":
        return dtype.type(math.nan)
    if dtype.kind in "mM":
        return np.array("NaT", dtype=dtype)[()]
    return {"T": "", "U": "", "S": b"", "b": False}.get(dtype.kind)


def _either(mask: np.ndarray | None, more: Any) -> np.ndarray:
    """Return the union of two masks, in place unless they are 0-dimensional."""
    if mask is None or mask.ndim == 0:
        return np.asarray(more if mask is None else mask | more)
    mask |= more
    return mask


def _texts(attribute: Any) -> list[str]:
    if attribute is None:
        return []
    items = [decode_text(i) if isinstance(i, bytes) else i for i in items_of(attribute).ravel().tolist()]
    return [item for item in items if isinstance(item, str)]


def decode_text(data: bytes, encoding: str = "utf-8") -> str:
    r"""Decode text; bytes invalid in the encoding are decoded as Latin-1.

    >>> decode_text("°C".encode()), decode_text(b"\xb0C")
    ('°C', '°C')
    """
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError:
        return data.decode("latin-1")
    return text if text.isascii() else plain_text(text)


def plain_text(text: str) -> str:
    r"""Return text without surrogates, whose bytes `decode_text` decodes.

    >>> plain_text("\udcb0C"), plain_text("°C")
    ('°C', '°C')
    """
    if text.isascii():
        return text
    for how in ("strict", "surrogateescape", "surrogatepass"):
        try:
            data = text.encode("utf-8", how)
        except UnicodeEncodeError:
            continue
        return text if how == "strict" else decode_text(data)
    return text


def items_of(attribute: Any) -> np.ndarray:
    """Return an attribute as an array; ragged lists (JSON) give objects.

    >>> items_of([1, 2]), items_of([[1], [2, 3]])
    (array([1, 2]), array([list([1]), list([2, 3])], dtype=object))
    """
    try:
        return np.asarray(attribute)
    except ValueError:
        return np.asarray(attribute, object)


def _numbers(attribute: Any) -> list[Any]:
    """Return an attribute's numbers, or those in its text, as NumPy scalars."""
    if attribute is None:
        return []
    flat = items_of(attribute).ravel()
    if flat.dtype.kind in _NUMBERS:
        return list(flat.astype(flat.dtype.newbyteorder("=")))
    return [number for text in _texts(attribute) if (number := _parse_number(text)) is not None]


def _parse_number(text: str) -> Any:
    """Return the number of a text, None if not numeric; float beyond 64 bits."""
    for number_type in (int, float):
        try:
            number = np.asarray(number_type(text))
        except ValueError:
            continue
        if number.dtype.kind in _NUMBERS:
            return number[()]
    return None


def _factor(attribute: Any, key: str, name: str) -> Any:
    """Return a packing attribute, None if absent or blank."""
    if attribute is None or (isinstance(attribute, str | bytes) and not attribute.strip()):
        return None
    numbers = _numbers(attribute)
    if len(numbers) != 1 or not np.isfinite(numbers[0]) or np.iscomplexobj(numbers[0]):
        what = f"{key} {attribute!r} is not one finite number"
        raise FormatError(what, variable=name or "?", hint="correct it in the file")
    return numbers[0]


def unpacked_dtype(viewed: np.dtype[Any], scale: Any, offset: Any) -> np.dtype[Any]:
    """Return the dtype of unpacked values; scale 1 and offset 0 are ignored."""
    both = scale is not None and offset is not None
    unpacked = viewed
    if both and scale == 1 and offset == 0:
        unpacked = scale.dtype
    else:
        for factor, neutral in ((scale, 1), (offset, 0)):  # in the order of the arithmetic
            if factor is not None and (both or factor != neutral):
                unpacked = np.result_type(unpacked, factor.dtype)
    return unpacked


def _cast(value: Any, stored: np.dtype[Any], viewed: np.dtype[Any]) -> Any:
    """Return a number as the viewed dtype, None if the stored cannot hold it."""
    if stored.kind in "fc":
        if isinstance(value, np.complexfloating) and stored.kind == "f":
            return None
        with np.errstate(all="ignore"):
            cast = stored.type(value)
        return None if np.isinf(cast) and np.isfinite(value) else cast
    if isinstance(value, np.complexfloating) or not np.isfinite(value) or value != np.floor(value):
        return None
    integer = int(value)
    in_range = np.iinfo(stored).min <= integer <= np.iinfo(stored).max
    return np.array(integer, stored).view(viewed)[()] if in_range else None


def _valid(
    attrs: Mapping[str, Any], stored: np.dtype[Any], viewed: np.dtype[Any], unpacked: np.dtype[Any] | None
) -> tuple[Bounds, Bounds]:
    """Return the valid bounds in stored and in unpacked units."""
    pair: list[Any] = _numbers(attrs.get("valid_range"))
    bounds = _bounds(pair, stored, viewed, unpacked) if len(pair) == 2 else None
    if bounds is not None and (stored.kind == "f" or all(a is not None or b is not None for a, b in zip(*bounds, strict=True))):
        return bounds
    # A range with an end that an integer dtype cannot hold is ignored, as in netCDF4-python.
    ends = (_numbers(attrs.get("valid_min")), _numbers(attrs.get("valid_max")))
    return _bounds([end[0] if len(end) == 1 else None for end in ends], stored, viewed, unpacked)


def _bounds(
    pair: list[Any], stored: np.dtype[Any], viewed: np.dtype[Any], unpacked: np.dtype[Any] | None
) -> tuple[Bounds, Bounds]:
    """Return two bounds in stored and unpacked units; None if out of range."""
    bounds: list[Any] = [None, None]
    bounds_unpacked: list[Any] = [None, None]
    for i, value in enumerate(pair):
        if value is None or value != value or stored.kind == "c":
            continue
        if unpacked is not None and stored.kind in "iu" and isinstance(value, np.floating):
            bounds_unpacked[i] = _cast(value, unpacked, unpacked)
            continue
        if stored.kind in "iu" and isinstance(value, np.floating) and np.isfinite(value):
            value = np.floor(value) if i else np.ceil(value)
        bounds[i] = _cast(value, stored, viewed)
    return (bounds[0], bounds[1]), (bounds_unpacked[0], bounds_unpacked[1])
