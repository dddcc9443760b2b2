"""How do the stored values of a variable become values, and which of them are missing (CF 2.5.1, 8.1; NUG)?

`encoding` reads the attributes of a variable once into an `Encoding`, a frozen value that compares and hashes, so that
an archive of a million files shares a handful. `Encoding.decode` then decides what is missing on the stored values and
unpacks them with the very arithmetic of netCDF4-python. What a missing element is replaced with is left to the caller:
the mask travels beside the values.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from aggarray.cf.frozen import FrozenDict, Immutable
from aggarray.errors import FormatError

Bounds = tuple[Any, Any]

_NUMBERS = "iufc"
_ATTRIBUTES = (
    "_FillValue",
    "missing_value",
    "valid_min",
    "valid_max",
    "valid_range",
    "scale_factor",
    "add_offset",
    "_Unsigned",
)
_DEFAULT_FILLS = {
    "i1": -127,
    "u1": 255,
    "i2": -32767,
    "u2": 65535,
    "i4": -2147483647,
    "u4": 4294967295,
    "i8": -9223372036854775806,
    "u8": 18446744073709551614,
}


@dataclass(frozen=True, slots=True)
class Encoding:
    """How one variable is stored; equal encodings decode alike.

    ``stored``: dtype in the file, native; ``viewed``: the same bytes after ``_Unsigned``; ``dtype``: that of the values.
    ``scale_factor``, ``add_offset``: NumPy scalars, or None. ``missing``: stored values that mean missing, ``_FillValue``
    first; ``missing_nan``: NaN means missing too. ``valid``, ``valid_unpacked``: inclusive (least, greatest), either None,
    in stored and in unpacked units.
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
        """Whether decoding hands on the stored values as they are, none of them missing."""
        return self.dtype == self.stored and not self.packed and not self.may_miss

    @property
    def may_miss(self) -> bool:
        """Whether any value can be missing."""
        return bool(self.missing) or self.missing_nan or (self.valid, self.valid_unpacked) != ((None, None), (None, None))

    @property
    def fill_value(self) -> Any:
        """What stands for a missing value: NaN, NaT, "" or False; for integers the declared value, None without one."""
        if self.dtype.kind not in "iu":
            return default_fill(self.dtype)
        return self.missing[0] if self.missing and not self.packed else None

    def decode(self, raw: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """Unpack stored values and tell which are missing.

        ``raw``: stored values of any shape; never modified. Returns values of ``dtype`` (``raw`` itself where nothing is
        to do; anything where missing) and a bool array of the same shape, or None when nothing is missing.

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
        # Missing values may overflow when unpacked, which is nobody's concern.
        with np.errstate(all="ignore"):
            mask = self._missing(raw)
            values = self._unpack(raw)
            mask = _outside(values, self.valid_unpacked, mask)
        return values, (mask if mask is not None and mask.any() else None)

    def _missing(self, raw: np.ndarray) -> np.ndarray | None:
        mask = None
        for value in self.missing:
            mask = _either(mask, raw == value)
        if self.missing_nan:
            mask = _either(mask, np.isnan(raw))
        return _outside(raw, self.valid, mask)

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

    ``dtype``: of the stored values; ``attrs``: ``_FillValue``, ``missing_value`` (a vector too), ``valid_min``, ``valid_max``,
    ``valid_range``, ``scale_factor``, ``add_offset``, ``_Unsigned``; all others are ignored. ``name`` is for messages.

    - Missing values are cast to the stored dtype; one that the dtype cannot hold never occurs and is dropped.
    - ``_Unsigned`` "true" or "True" views signed integers as unsigned ones, these attributes too; any other changes nothing.
    - The unpacked dtype is what NumPy promotion gives for stored * scale_factor + add_offset, as in netCDF4-python.
    - Valid bounds are inclusive and in stored units, except floating bounds of packed integers: those are in unpacked
      units (NUG). ``valid_range`` wins over the other two. NaN is never outside.

    A scale_factor or add_offset that is no finite number is a FormatError.

    >>> encoding(np.dtype("i2"), {"scale_factor": np.float32(0.1), "add_offset": np.float32(3)}).dtype
    dtype('float32')
    """
    if type(attrs) is FrozenDict:
        return _encoding_of_shared(np.dtype(dtype), Immutable(attrs), name)
    return _encoding(np.dtype(dtype), _Stated(attrs), name)


@lru_cache(maxsize=1024)
def _encoding_of_shared(dtype: np.dtype[Any], attrs: Immutable[FrozenDict[Any]], name: str) -> Encoding:
    """Read the encoding of attributes that many variables share."""
    return _encoding(dtype, _Stated(attrs.item), name)


class _Stated:
    """The attributes that matter to an encoding, hashable: an archive says the same a million times."""

    __slots__ = ("_key", "attrs")

    def __init__(self, attrs: Mapping[str, Any]) -> None:
        self.attrs = {key: attrs[key] for key in _ATTRIBUTES if key in attrs}
        self._key = tuple((key, _content(value)) for key, value in self.attrs.items())

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Stated) and self._key == other._key


def _content(value: Any) -> Any:
    """Return what makes two attribute values the same, to the bit and in type."""
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
    viewed = _viewed(stored, attrs.get("_Unsigned"))
    scale, offset = (_factor(attrs.get(key), key, name) for key in ("scale_factor", "add_offset"))
    unpacked = unpacked_dtype(viewed, scale, offset)
    # A fill value of JSON may be unsigned already.
    fills = [v for number in _numbers(attrs.get("_FillValue")) for v in (_cast(number, k, viewed) for k in (stored, viewed))]
    declared = [*fills, *(_cast(v, stored, viewed) for v in _numbers(attrs.get("missing_value")))]
    found = [value for value in declared if value is not None]
    missing = {value.item(): value for value in reversed(found) if value == value}  # reversed: the first of equals stays
    packed = scale is not None or offset is not None
    valid, valid_unpacked = _valid(attrs, stored, viewed, unpacked if packed else None)
    return Encoding(
        stored,
        viewed,
        unpacked,
        scale,
        offset,
        missing=tuple(reversed(missing.values())),
        missing_nan=any(value != value for value in found),
        valid=valid,
        valid_unpacked=valid_unpacked,
    )


def default_fill(dtype: np.dtype[Any]) -> Any:
    """Return the value that stands for missing in an array of a dtype that declares none.

    Integers have netCDF's default fill values; others NaN, NaT, "" or False. None where there is none (compound types).

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
    """Join two masks, in place where possible: scalars come back from arrays without dimensions."""
    if mask is None or mask.ndim == 0:
        return np.asarray(more if mask is None else mask | more)
    mask |= more
    return mask


def _outside(values: np.ndarray, bounds: Bounds, mask: np.ndarray | None) -> np.ndarray | None:
    least, greatest = bounds
    if least is not None:
        mask = _either(mask, values < least)
    if greatest is not None:
        mask = _either(mask, values > greatest)
    return mask


def _texts(attribute: Any) -> list[str]:
    """List the texts of an attribute; anything else has none."""
    if attribute is None:
        return []
    items = [decode_text(i) if isinstance(i, bytes) else i for i in items_of(attribute).ravel().tolist()]
    return [item for item in items if isinstance(item, str)]


def decode_text(data: bytes, encoding: str = "utf-8") -> str:
    r"""Return text: of the encoding, or of Latin-1, in which every byte is a character, where it is not in that.

    >>> decode_text("°C".encode()), decode_text(b"\xb0C")
    ('°C', '°C')
    """
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError:
        return data.decode("latin-1")
    return text if text.isascii() else plain_text(text)


def plain_text(text: str) -> str:
    r"""Return text without surrogates: where there are any, the bytes that they stand for as `decode_text` reads them.

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
    """Return an attribute as an array; lists in lists of different lengths, which JSON may hold, are objects.

    >>> items_of([1, 2]), items_of([[1], [2, 3]])
    (array([1, 2]), array([list([1]), list([2, 3])], dtype=object))
    """
    try:
        return np.asarray(attribute)
    except ValueError:
        return np.asarray(attribute, object)


def _numbers(attribute: Any) -> list[Any]:
    """List the numbers of an attribute as NumPy scalars of its own dtype, numeric text as well; anything else has none."""
    if attribute is None:
        return []
    flat = items_of(attribute).ravel()
    if flat.dtype.kind in _NUMBERS:
        return list(flat.astype(flat.dtype.newbyteorder("=")))
    return [number for text in _texts(attribute) if (number := _parsed(text)) is not None]


def _parsed(text: str) -> Any:
    """Return the number that a text is, whole ones exactly; None if it is none."""
    for kind in (int, float):
        try:
            number = np.asarray(kind(text))
        except ValueError:
            continue
        if number.dtype.kind in _NUMBERS:  # an int beyond 64 bits is not: taken as a float then
            return number[()]
    return None


def _viewed(stored: np.dtype[Any], unsigned: Any) -> np.dtype[Any]:
    """Return the dtype that ``_Unsigned`` asks integers to be seen as (NUG): as in netCDF4-python, signed ones alone."""
    return np.dtype(f"u{stored.itemsize}") if stored.kind == "i" and unsigned in ("true", "True") else stored


def _factor(attribute: Any, key: str, name: str) -> Any:
    """Return a packing attribute as a NumPy scalar of its own dtype, None if absent or blank."""
    if attribute is None or (isinstance(attribute, str | bytes) and not attribute.strip()):
        return None
    numbers = _numbers(attribute)
    if len(numbers) != 1 or not np.isfinite(numbers[0]) or np.iscomplexobj(numbers[0]):
        raise FormatError(f"variable {name or '?'}: {key} {attribute!r} is not one finite number; correct it in the file")
    return numbers[0]


def unpacked_dtype(viewed: np.dtype[Any], scale: Any, offset: Any) -> np.dtype[Any]:
    """Return the dtype of unpacked values; a lone scale of 1 or offset of 0 changes nothing, as in netCDF4-python."""
    both = scale is not None and offset is not None
    unpacked = viewed
    if both and scale == 1 and offset == 0:
        unpacked = scale.dtype
    else:
        for factor, neutral in ((scale, 1), (offset, 0)):  # one by one, as the arithmetic is done
            if factor is not None and (both or factor != neutral):
                unpacked = np.result_type(unpacked, factor.dtype)
    return unpacked


def _cast(value: Any, stored: np.dtype[Any], viewed: np.dtype[Any]) -> Any:
    """Return an attribute's number as a scalar of the viewed dtype; None where the stored dtype cannot hold it."""
    if stored.kind in "fc":
        if isinstance(value, np.complexfloating) and stored.kind == "f":
            return None
        with np.errstate(all="ignore"):
            cast = stored.type(value)
        return None if np.isinf(cast) and np.isfinite(value) else cast
    if isinstance(value, np.complexfloating) or not np.isfinite(value) or value != np.floor(value):
        return None
    whole = int(value)
    held = np.iinfo(stored).min <= whole <= np.iinfo(stored).max
    return np.array(whole, stored).view(viewed)[()] if held else None


def _valid(
    attrs: Mapping[str, Any], stored: np.dtype[Any], viewed: np.dtype[Any], unpacked: np.dtype[Any] | None
) -> tuple[Bounds, Bounds]:
    """Return the valid bounds in stored and in unpacked units (``unpacked``: None when not packed)."""
    pair: list[Any] = _numbers(attrs.get("valid_range"))
    found = _bounds(pair, stored, viewed, unpacked) if len(pair) == 2 else None
    if found is not None and (stored.kind == "f" or all(a is not None or b is not None for a, b in zip(*found, strict=True))):
        return found
    # A range of which integers of the type cannot have one end is not one, as in netCDF4-python.
    ends = (_numbers(attrs.get("valid_min")), _numbers(attrs.get("valid_max")))
    return _bounds([end[0] if len(end) == 1 else None for end in ends], stored, viewed, unpacked)


def _bounds(
    pair: list[Any], stored: np.dtype[Any], viewed: np.dtype[Any], unpacked: np.dtype[Any] | None
) -> tuple[Bounds, Bounds]:
    """Return two bounds, either None, in stored and in unpacked units; what the types cannot hold is None."""
    bounds: list[Any] = [None, None]
    bounds_unpacked: list[Any] = [None, None]
    for place, value in enumerate(pair):
        if value is None or value != value or stored.kind == "c":
            continue
        if unpacked is not None and stored.kind in "iu" and isinstance(value, np.floating):
            bounds_unpacked[place] = _cast(value, unpacked, unpacked)
            continue
        if stored.kind in "iu" and isinstance(value, np.floating) and np.isfinite(value):
            value = np.floor(value) if place else np.ceil(value)
        bounds[place] = _cast(value, stored, viewed)
    return (bounds[0], bounds[1]), (bounds_unpacked[0], bounds_unpacked[1])
