"""What reading converts between a sub-array and its master array."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import TYPE_CHECKING, Any

from aggarray.partition.matrix import Template

if TYPE_CHECKING:
    from aggarray.arrays.master import MasterArray


def differences(template: Template, array: MasterArray) -> Iterator[tuple[str, str, str]]:
    """Yield (kind, value, master's value) per difference of a template.

    Units, calendars and dtypes between those of the file and the master, from lazy conversions, follow that of the file.
    """
    steps = template.steps
    encodings = [template.encoding, *(step.encoding for step in steps if step.encoding is not None)]
    units, calendar = template.units_in(array.units, array.calendar)
    yield from _chain("units", [units, *(step.units for step in steps), array.units])
    yield from _chain("calendar", [calendar, *(step.calendar for step in steps), array.calendar])
    if [d for d in template.dimensions if d in array.dimensions] != [d for d in array.dimensions if d in template.dimensions]:
        yield "dimension order", " ".join(template.dimensions), " ".join(array.dimensions)
    for dimension in dict.fromkeys((*template.dimensions, *array.dimensions)):
        in_file, in_array = dimension in template.dimensions, dimension in array.dimensions
        if in_file != in_array:
            yield "size-1 dimension", f"{'with' if in_file else 'without'} {dimension}", "with" if in_array else "without"
    directions = dict(zip(array.dimensions, array.directions, strict=True))
    names = {True: "increasing", False: "decreasing"}
    for dimension, forward in zip(template.dimensions, template.directions, strict=True):
        if directions.get(dimension, forward) != forward:
            yield "direction", f"{dimension} {names[forward]}", names[not forward]
    for encoding in encodings:
        if encoding.viewed != encoding.stored:
            yield "_Unsigned", str(encoding.stored), str(encoding.viewed)
        if encoding.packed:
            scale, offset = (1 if f is None else f for f in (encoding.scale_factor, encoding.add_offset or 0))
            yield "packing", f"{encoding.viewed} x {scale:.7g} + {offset:.7g}", str(encoding.dtype)
    stages = [dtype for s in steps for dtype in (s.dtype, s.dtype if s.encoding is None else s.encoding.dtype)]
    yield from _chain("dtype", [template.encoding.dtype, *stages, array.dtype])
    for encoding in encodings:
        missing = ", ".join(["NaN"] * encoding.missing_nan + [_number(m) for m in encoding.missing])
        if encoding.may_miss and missing != _number(array.fill_value):
            yield "missing value", missing or "outside the valid range", _number(array.fill_value)


def conversions(template: Template, array: MasterArray) -> tuple[str, ...]:
    """Return the differences of a template in words.

    >>> from aggarray import MasterArray, SubArray
    >>> s = SubArray.from_array([1.5], dimensions=("x",), units="km")
    >>> a = MasterArray.from_subarrays([([(0, 1)], s)], dimensions=("x",), units="m")
    >>> conversions(s.template, a)
    ('units km -> m',)
    """
    return tuple(f"{kind} {found} -> {master}" for kind, found, master in differences(template, array))


def _chain(kind: str, values: Iterable[Any]) -> Iterator[tuple[str, str, str]]:
    """Yield the changes along a chain of conversions as one difference."""
    *before, last = [str(value) for value, _ in groupby(values)]
    if before:
        yield kind, " -> ".join(before), last


def _number(value: Any) -> str:
    if isinstance(value, str):
        return repr(value)
    return "NaN" if value != value else f"{value:g}"
