"""Linear conversions with rational slope and offset.

NumPy computes y = slope * x + offset, with a single rounding.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from aggarray.cf.units.udunits import through_udunits
from aggarray.dataclass import dataclass
from aggarray.errors import UnitsError

_BLOCK = 1 << 14
#: One beyond the largest int64.
_TOP = 2**63


@dataclass(frozen=True, slots=True)
class Conversion:
    """A conversion of values: y = ``slope`` * x + ``offset``.

    ``limit``: smallest valid source value, or None: two calendars may be equal only from 1582-10-15 on. ``through``: two units
    with another form of conversion (logarithms), which UDUNITS computes, or None.
    """

    slope: Fraction = Fraction(1)
    offset: Fraction = Fraction(0)
    limit: float | None = None
    through: tuple[str, str] | None = None

    @property
    def identity(self) -> bool:
        """Whether values do not change and need no check of `limit`."""
        return self == Conversion()

    @property
    def integer_exact(self) -> bool:
        """Whether integers stay integers."""
        return self.through is None and self.slope.denominator == 1 and self.offset.denominator == 1

    def __call__(self, values: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
        """Convert values of any shape into a new array.

        Integers give int64 if `integer_exact`, else float64. Floats give float64, within an ulp of exact arithmetic unless
        slope * x and offset cancel to their last bit. longdouble and complex keep their width. Elements in ``mask`` (bool, same
        shape) are not checked. Raises UnitsError for a value below `limit` or out of range for 64 bits, and for a dtype that
        does not convert.
        """
        values = np.asarray(values)
        kind = values.dtype.kind
        if kind not in "iuf" and not (kind == "c" and self.through is None and self.limit is None and self.offset == 0):
            if self.identity:
                return values.copy()
            raise UnitsError(f"values of dtype {values.dtype} do not convert", hint="give real numbers")
        used = values if mask is None else values[~mask]
        if self.limit is not None and (used < self.limit).any():
            what = f"value {used[used < self.limit][0]} is before 1582-10-15 (value {self.limit})"
            reason = "the standard and proleptic_gregorian calendars differ there"
            raise UnitsError(f"{what}: {reason}", hint="use one calendar")
        if kind in "iu" and self.integer_exact:
            return self._integers(values, used)
        if self.through is not None:
            return through_udunits(values, self.through)
        with np.errstate(all="ignore"):
            return np.asarray(self._floats(values))

    def _integers(self, values: np.ndarray, used: np.ndarray) -> np.ndarray:
        slope, offset = int(self.slope), int(self.offset)
        for end in (used.min(), used.max()) if used.size else ():
            if not -_TOP <= slope * int(end) + offset < _TOP:
                what = f"value {end} converts to {slope * int(end) + offset}, out of range for 64 bits"
                raise UnitsError(what, hint="convert it as float64")
        # Intermediate overflow is modulo 2**64, so a result in range is correct.
        scaled = np.multiply(values.astype(np.int64), np.int64((slope + _TOP) % (2 * _TOP) - _TOP))
        return np.asarray(np.add(scaled, np.int64((offset + _TOP) % (2 * _TOP) - _TOP)))

    def _floats(self, values: np.ndarray) -> Any:
        slope, offset, kind = self.slope, self.offset, values.dtype.kind
        if kind == "c" or values.dtype.itemsize > 8:
            dtype = np.result_type(values.dtype, np.float64)
            wide = np.longdouble if dtype.itemsize > 8 * (1 + (kind == "c")) else np.float64
            ratio = [wide(str(n)) for n in (*slope.as_integer_ratio(), *offset.as_integer_ratio())]
            return values.astype(dtype) * ratio[0] / ratio[1] + ratio[2] / ratio[3]
        if not (kind in "iu" and values.dtype.itemsize == 8):  # 64-bit integers may need more bits than float64 has
            if slope == 1 and offset == float(offset):
                return np.add(values, float(offset), dtype=np.float64)
            if offset == 0 and slope == float(slope):
                return np.multiply(values, float(slope), dtype=np.float64)
            small = 2**21 if values.dtype.itemsize <= 4 else 1
            if offset == 0 and abs(slope.numerator) <= small and slope.denominator < 2**53:
                product = np.multiply(values, float(slope.numerator), dtype=np.float64)  # exact
                return np.divide(product, float(slope.denominator))
        source, result = values.reshape(-1), np.empty(values.size)
        for start in range(0, source.size, _BLOCK):
            result[start : start + _BLOCK] = _affine(source[start : start + _BLOCK], slope, offset)
        return result.reshape(values.shape)


def _affine(values: np.ndarray, slope: Fraction, offset: Fraction) -> np.ndarray:
    """Compute slope * values + offset in twice float64's precision (Dekker)."""
    divisor = math.lcm(slope.denominator, offset.denominator)
    if float(divisor) != divisor:
        divisor = 1
    (s, s_rest), (o, o_rest) = ((float(f), float(f - Fraction(float(f)))) for f in (slope * divisor, offset * divisor))
    x = values.astype(np.float64)
    rest: Any = 0.0
    if values.dtype.kind in "iu" and values.dtype.itemsize == 8:
        high, low = (values >> 32).astype(np.float64) * 2.0**32, (values & 0xFFFFFFFF).astype(np.float64)
        x = high + low
        rest = low - (x - high)
    product, error = _product(x, s)
    total = product + o
    back = total - product
    error = error + ((product - (total - back)) + (o - back)) + (o_rest + x * s_rest + rest * s)
    if divisor == 1:
        exact = total + error
    else:  # divide last, so that integers cancel exactly
        exact = total / divisor
        again, lost = _product(exact, float(divisor))
        exact = exact + ((total - again) - lost + error) / divisor
    # Infinite and very large values do not split into halves.
    return np.where(np.isfinite(exact), exact, x * float(slope) + float(offset))


def _product(x: np.ndarray, y: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the rounded product and its rounding error."""
    (x_high, x_low), (y_high, y_low) = _halves(x), _halves(y)
    product = x * y
    return product, ((x_high * y_high - product) + x_high * y_low + x_low * y_high) + x_low * y_low


def _halves(x: Any) -> tuple[Any, Any]:
    """Split floats into high and low parts of 26 bits each."""
    spread = 134217729.0 * x
    high = spread - (spread - x)
    return high, x - high
