"""How do the values of a part of a sub-array become values of the master?

In the order of the aggregation specification (section 1): part (already taken), units, flip, transpose, size-1
dimensions, mask, dtype. The mask travels beside the values to the end, so that valid data that happens to equal the
master's missing value is not lost. Units are converted in float64 and rounded once to the master's dtype.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from aggarray.cf.encoding import default_fill
from aggarray.cf.units import conversion_between
from aggarray.errors import AggregationError, UnitsError
from aggarray.partition.matrix import Step, Template

Masked = tuple[np.ndarray, np.ndarray | None]


def convert(values: np.ndarray, mask: np.ndarray | None, source: Step, target: Step) -> Masked:
    """Convert values from the units and dtype of one step to those of another.

    Returns values of ``target.dtype`` (the input itself where nothing changes) and the mask; what an integer dtype cannot
    hold because it is not a number joins the mask. Raises UnitsError where the units do not convert, or where a converted
    value is beyond an integer dtype.
    """
    change = conversion_between(source, target)
    if change.identity:
        return cast(values, mask, target.dtype)
    if values.dtype.kind not in "iufcb":
        raise UnitsError(f"values of dtype {values.dtype} have no units: {source.units!r} cannot become {target.units!r}")
    converted = change(values, mask)
    if target.dtype.kind in "iu":
        converted = np.rint(converted) if converted.dtype.kind == "f" else converted
        _check_range(converted, mask, target)
    return cast(converted, mask, target.dtype)


def _check_range(values: np.ndarray, mask: np.ndarray | None, target: Step) -> None:
    """Raise UnitsError for a value that the integer dtype of a step cannot hold."""
    limits = np.iinfo(target.dtype)
    beyond = (values < limits.min) | (values > limits.max)
    if mask is not None:
        beyond &= ~mask
    if beyond.any():
        what = f"value {values[beyond].ravel()[0]:.15g} {target.units or ''}".rstrip()
        raise UnitsError(f"{what} is beyond the {target.dtype} of the array: read it with astype('int64') or astype('float64')")


def cast(values: np.ndarray, mask: np.ndarray | None, dtype: np.dtype[Any]) -> Masked:
    """Cast as NumPy does; into a dtype without NaN, what is not a number joins the mask."""
    if values.dtype == dtype:
        return values, mask
    if values.dtype.kind in "fc" and dtype.kind in "iub":
        absent = ~np.isfinite(values)
        if absent.any():
            mask = absent if mask is None else mask | absent
    if mask is not None and values.dtype.kind in "fc":
        # What lies under the mask may be out of range of the new dtype: it must neither warn nor matter.
        values = np.where(mask, values.dtype.type(0), values)
    if values.dtype.kind == "c" and dtype.kind != "c":
        values = values.real
    if mask is not None and values.dtype.kind == "T":
        values = np.where(mask, np.asarray("0", values.dtype), values)
    try:
        with np.errstate(over="ignore"):
            return values.astype(dtype), mask
    except (ValueError, TypeError) as error:
        raise AggregationError(f"values of {values.dtype} do not become {dtype}: {error}; ask for another dtype") from error


def plain_dtype(wanted: Any) -> np.dtype[Any]:
    """Return what an array asked for as ``wanted`` has: native byte order, text as StringDType.

    Raises AggregationError for what is no dtype, or none of numbers, text or times.

    >>> plain_dtype(">i2"), plain_dtype("U5")
    (dtype('int16'), StringDType())
    """
    try:
        dtype = np.dtype(wanted)
    except TypeError as error:
        raise AggregationError(f"dtype {wanted!r}: {error}; give a dtype of numbers, text or times") from error
    if dtype.kind in "UT":
        return np.dtypes.StringDType()
    if dtype.kind not in "iufcbmM":
        raise AggregationError(f"dtype {dtype}: give a dtype of numbers, text or times")
    native: np.dtype[Any] = dtype.newbyteorder("=")
    return native


def conform(values: np.ndarray, mask: np.ndarray | None, template: Template, target: Step) -> Masked:
    """Take decoded values of a sub-array through its steps to the units and dtype of the master.

    A step with an encoding of its own (an aggregation variable that is packed itself) is decoded when it is reached.
    """
    source = Step(template.units, template.calendar, values.dtype, temperature=template.temperature)
    for step in template.steps:
        values, mask = convert(values, mask, source, step)
        if step.encoding is not None:
            values, absent = step.encoding.decode(values)
            mask = absent if mask is None else mask if absent is None else mask | absent
        source = step
    return convert(values, mask, source, target)


def arrange(block: np.ndarray, dimensions: Sequence[str], flip: Sequence[int], wanted: Sequence[str]) -> np.ndarray:
    """Return a view with axes ``flip`` reversed and dimensions as ``wanted``: size-1 ones removed or added.

    >>> arrange(np.zeros((1, 2, 3)), ("height", "x", "y"), [1], ("time", "y", "x")).shape
    (1, 3, 2)
    """
    if flip:
        block = block[tuple(slice(None, None, -1) if axis in flip else slice(None) for axis in range(block.ndim))]
    kept = [axis for axis, name in enumerate(dimensions) if name in wanted]
    if len(kept) < block.ndim:
        block = block[tuple(slice(None) if axis in kept else 0 for axis in range(block.ndim))]
    names = [dimensions[axis] for axis in kept]
    present = [name for name in wanted if name in names]
    if names != present:
        block = block.transpose([names.index(name) for name in present])
    if len(present) < len(wanted):
        block = block[tuple(slice(None) if name in names else np.newaxis for name in wanted)]
    return block


def fill_for(dtype: np.dtype[Any], declared: Any = None) -> Any:
    """Return what stands for a missing value in an array of ``dtype``: NaN, or ``declared`` where it fits, else a default.

    >>> float(fill_for(np.dtype("f4"), -999)), int(fill_for(np.dtype("i2"), -999)), int(fill_for(np.dtype("u1"), -999))
    (nan, -999, 255)
    """
    if dtype.kind not in "iu" or declared is None:
        return default_fill(dtype)
    limits = np.iinfo(dtype)
    fits = np.isfinite(declared) and limits.min <= declared <= limits.max and int(declared) == declared
    return dtype.type(declared) if fits else default_fill(dtype)
