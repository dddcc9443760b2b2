"""Conversion of the values of a sub-array to those of its master array.

The order is that of the aggregation specification (section 1): part (already taken), units, flip, transpose, size-1
dimensions, mask, dtype. The mask is kept beside the values to the end, so that valid data equal to the master's missing
value is not lost. Units are converted in float64 and rounded once to the master's dtype.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from aggarray.cf.encoding import default_fill
from aggarray.errors import AggregationError, UnitsError
from aggarray.partition.matrix import Step, Template

Masked = tuple[np.ndarray, np.ndarray | None]


def convert(values: np.ndarray, mask: np.ndarray | None, source: Step, target: Step) -> Masked:
    """Convert values from the units and dtype of one step to those of another.

    Returns values of ``target.dtype`` (the input itself where nothing changes) and the mask. NaN and infinity are masked where
    ``target.dtype`` is an integer. Raises UnitsError where the units do not convert, or where a converted value is out of range
    of an integer dtype.
    """
    if source.units == target.units and source.calendar == target.calendar:
        return cast(values, mask, target.dtype)
    from aggarray.cf.units.compatibility import conversion_between

    conversion = conversion_between(source, target)
    if conversion.identity:
        return cast(values, mask, target.dtype)
    if values.dtype.kind not in "iufcb":
        what = f"units do not convert: {source.units!r} to {target.units!r} (values of dtype {values.dtype})"
        raise UnitsError(what, hint="leave its units as they are")
    converted = conversion(values, mask)
    if target.dtype.kind in "iu":
        converted = np.rint(converted) if converted.dtype.kind == "f" else converted
        limits = np.iinfo(target.dtype)
        outside = (converted < limits.min) | (converted > limits.max)
        if mask is not None:
            outside &= ~mask
        if outside.any():
            what = f"value {converted[outside].ravel()[0]:.15g} {target.units or ''}".rstrip()
            hint = "read it with astype('int64') or astype('float64')"
            raise UnitsError(f"{what} is out of range of the array's {target.dtype}", hint=hint)
    return cast(converted, mask, target.dtype)


def cast(values: np.ndarray, mask: np.ndarray | None, dtype: np.dtype[Any]) -> Masked:
    """Cast as NumPy does; mask NaN and infinity in a dtype without them."""
    if values.dtype == dtype:
        return values, mask
    if values.dtype.kind in "fc" and dtype.kind in "iub":
        invalid = ~np.isfinite(values)
        if invalid.any():
            mask = invalid if mask is None else mask | invalid
    if mask is not None and values.dtype.kind in "fc":
        # Masked values may be out of range of the new dtype: zeros avoid a warning.
        values = np.where(mask, values.dtype.type(0), values)
    if values.dtype.kind == "c" and dtype.kind != "c":
        values = values.real
    if mask is not None and values.dtype.kind == "T":
        values = np.where(mask, np.asarray("0", values.dtype), values)
    try:
        with np.errstate(over="ignore"):
            return values.astype(dtype), mask
    except (ValueError, TypeError) as error:
        what = f"{values.dtype} values do not convert to {dtype}: {error}"
        raise AggregationError(what, hint="request another dtype") from error


def plain_dtype(requested: Any) -> np.dtype[Any]:
    """Return the dtype of an array: native byte order, text as StringDType.

    Raises AggregationError for anything else than a dtype of numbers, text or times.

    >>> plain_dtype(">i2"), plain_dtype("U5")
    (dtype('int16'), StringDType())
    """
    try:
        dtype = np.dtype(requested)
    except TypeError as error:
        raise AggregationError(
            f"not a dtype: {requested!r} ({error})", hint="give a dtype of numbers, text or times"
        ) from error
    if dtype.kind in "UT":
        return np.dtypes.StringDType()
    if dtype.kind not in "iufcbmM":
        raise AggregationError(f"unsupported dtype {dtype}", hint="give a dtype of numbers, text or times")
    native: np.dtype[Any] = dtype.newbyteorder("=")
    return native


def conform(values: np.ndarray, mask: np.ndarray | None, template: Template, target: Step) -> Masked:
    """Convert decoded values of a sub-array to units and dtype of its master.

    The values go through the steps of the template. A step with an encoding (a packed aggregation variable) is decoded when it
    is reached.
    """
    source = Step(template.units, template.calendar, values.dtype, temperature=template.temperature)
    for step in template.steps:
        values, mask = convert(values, mask, source, step)
        if step.encoding is not None:
            values, missing = step.encoding.decode(values)
            mask = missing if mask is None else mask if missing is None else mask | missing
        source = step
    return convert(values, mask, source, target)


def arrange(block: np.ndarray, dimensions: Sequence[str], flip: Sequence[int], order: Sequence[str]) -> np.ndarray:
    """Return a view with some axes reversed and the dimensions in an order.

    ``flip``: the axes to reverse. Dimensions of size 1 that ``order`` lacks are removed; those that the block lacks are added.

    >>> arrange(np.zeros((1, 2, 3)), ("height", "x", "y"), [1], ("time", "y", "x")).shape
    (1, 3, 2)
    """
    if flip:
        block = block[tuple(slice(None, None, -1) if axis in flip else slice(None) for axis in range(block.ndim))]
    kept = [axis for axis, name in enumerate(dimensions) if name in order]
    if len(kept) < block.ndim:
        block = block[tuple(slice(None) if axis in kept else 0 for axis in range(block.ndim))]
    names = [dimensions[axis] for axis in kept]
    present = [name for name in order if name in names]
    if names != present:
        block = block.transpose([names.index(name) for name in present])
    if len(present) < len(order):
        block = block[tuple(slice(None) if name in names else np.newaxis for name in order)]
    return block


def fill_for(dtype: np.dtype[Any], declared: Any = None) -> Any:
    """Return the value that represents a missing value in an array.

    This is NaN in floating arrays, ``declared`` in others where the dtype can hold it, else a default.

    >>> float(fill_for(np.dtype("f4"), -999)), int(fill_for(np.dtype("i2"), -999)), int(fill_for(np.dtype("u1"), -999))
    (nan, -999, 255)
    """
    if dtype.kind not in "iu" or declared is None:
        return default_fill(dtype)
    limits = np.iinfo(dtype)
    fits = np.isfinite(declared) and limits.min <= declared <= limits.max and int(declared) == declared
    return dtype.type(declared) if fits else default_fill(dtype)
