"""Lazy operations on arrays; their known values and reference times.

An array of an index is pickled as its `Origin`: its position there, and the lazy operations to repeat.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from aggarray.cf.units import is_reference_time
from aggarray.dataclass import dataclass, replace
from aggarray.errors import NotFoundError, SelectionError, UnitsError, names_hint
from aggarray.memory.selection import Range, Selector, as_range, normalise, result_shape
from aggarray.partition.conform import convert, fill_for
from aggarray.partition.matrix import Matrix, Step, Template
from aggarray.partition.plan import plan_dimension, runs
from aggarray.read import ReadOptions, Target, masked_array, output

if TYPE_CHECKING:
    from aggarray.arrays.master import MasterArray
    from aggarray.arrays.values import KnownValues


def select_matrix(matrix: Matrix, axis: int, selector: Selector) -> Matrix:
    """Select along a dimension; runs of an index array become partitions."""
    from aggarray.partition.tiling import reverse, select

    if isinstance(selector, int):
        return select(matrix, axis, plan_dimension(selector, matrix.edges[axis]))
    positions = selector if isinstance(selector, Range) else as_range(selector)
    if positions is not None and positions.step > 0:
        return select(matrix, axis, plan_dimension(positions, matrix.edges[axis]))
    if positions is not None:
        return reverse(select(matrix, axis, plan_dimension(positions.reversed(), matrix.edges[axis])), axis)
    indices = np.asarray(selector)
    if (np.diff(indices) < 0).all():
        return reverse(select(matrix, axis, runs(indices[::-1], matrix.edges[axis])), axis)
    return select(matrix, axis, runs(indices, matrix.edges[axis]))


def select_dimensions(array: MasterArray, selectors: Mapping[str, Selector]) -> MasterArray:
    """Select from an array per dimension; ignore dimensions that it lacks."""
    matrix, known = array._matrix, array._known
    for dimension, selector in selectors.items():
        if dimension in matrix.dimensions:
            axis = matrix.axis(dimension)
            if not (isinstance(selector, Range) and selector.is_full(matrix.shape[axis])):
                matrix, known = select_matrix(matrix, axis, selector), known and select_known(known, axis, selector)
    return replace(array, _matrix=matrix, _known=known)


def select_known(known: KnownValues, axis: int, selector: Selector) -> KnownValues:
    """Select along a dimension of the known values of an array."""
    key: Any = selector.as_slice() if isinstance(selector, Range) else selector
    index = (*(slice(None),) * axis, key)
    return np.asarray(known[0][index]), None if known[1] is None else np.asarray(known[1][index])


def read_known(known: KnownValues, target: Target, selectors: Sequence[Selector], options: ReadOptions) -> np.ndarray:
    """Copy a selection of values in memory, as `read` reads those of files."""
    for axis in reversed(range(len(selectors))):
        known = select_known(known, axis, selectors[axis])
    values, mask = known
    result = output(options.out, result_shape(selectors), target.step.dtype)
    result[...] = values
    if mask is not None:
        result[mask] = target.fill_value
    if not options.masked:
        return result
    mask = np.zeros(result.shape, bool) if mask is None else mask
    return masked_array(result, mask, target.fill_value)


def read_datetimes(array: MasterArray, key: Any) -> np.ndarray:
    """Read a selection of reference times, as `MasterArray.datetimes` does."""
    from aggarray.cf.units.calendars import datetime_kind, datetimes

    if array.units is None or not is_reference_time(array.units):
        named = next((n for n, c in array.coords.items() if c.units and c.ndim == 1 and is_reference_time(c.units)), None)
        hint = "select an array with units such as 'days since 2000-01-01'"
        hint = hint if named is None else f"the times are .coords[{named!r}].datetimes()"
        raise UnitsError(f"units {array.units!r} are not a reference time", variable=array.name, hint=hint)
    times = _with_nan(*array._values_and_mask())
    time_type = datetime_kind(array.units, array.calendar, *_finite_extent(times))
    if key is not ...:
        values = array.read(key, masked=True)
        times = _with_nan(np.ma.getdata(values), np.ma.getmaskarray(values))
    return datetimes(times, array.units, array.calendar, time_type)


def _finite_extent(values: np.ndarray) -> tuple[float | None, float | None]:
    """Return the least and the greatest finite value, None without any."""
    ends = (float(np.fmin.reduce(values, axis=None)), float(np.fmax.reduce(values, axis=None))) if values.size else ()
    if not all(map(math.isfinite, ends)):  # infinite, or NaN alone
        values = values[np.isfinite(values)]
        ends = (float(values.min()), float(values.max())) if values.size else ()
    return ends or (None, None)


def _with_nan(values: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
    return values if mask is None or not mask.any() else np.where(mask, np.nan, values)


def time_extent(array: MasterArray) -> np.ndarray:
    """Return the first and the last of reference times, as `read_datetimes`.

    The result is empty if all are missing.
    """
    from aggarray.cf.units.calendars import datetime_kind, datetimes

    times = _with_nan(*array._values_and_mask())
    ends = [np.fmin.reduce(times, axis=None), np.fmax.reduce(times, axis=None)] if times.size else []
    time_type = datetime_kind(str(array.units), array.calendar, *_finite_extent(times))
    return datetimes(np.array([end for end in ends if end == end], times.dtype), str(array.units), array.calendar, time_type)


def transpose_dimensions(array: MasterArray, names: Sequence[str]) -> MasterArray:
    """Reorder dimensions; raise SelectionError unless each is named once."""
    if sorted(names) != sorted(array.dimensions):
        raise SelectionError(f"cannot transpose to {names}", hint=f"give each of {array.dimensions} once")
    order = [array.dimensions.index(d) for d in names]
    values, mask = array._known or (None, None)
    known = None if values is None else (values.transpose(order), None if mask is None else mask.transpose(order))
    from aggarray.partition.tiling import transpose

    return replace(array, _matrix=transpose(array._matrix, order), _known=known)


def reverse_dimensions(array: MasterArray, selectors: Mapping[str, Range]) -> MasterArray:
    """Return an array with dimensions reversed, those of size 1 too."""
    from aggarray.partition.tiling import reverse

    for name, backwards in selectors.items():
        if name in array.dimensions:
            axis = array._matrix.axis(name)
            known = array._known and select_known(array._known, axis, backwards)
            array = replace(array, _matrix=reverse(array._matrix, axis), _known=known)
    return array


def with_step(array: MasterArray, step: Step) -> MasterArray:
    """Return an array converted by one more step.

    Templates keep the present step, so that chains stay exact.
    """
    now = array._step
    references = array._matrix.references
    templates = [t if _is_redundant(t, now, step) else replace(t, steps=(*t.steps, now)) for t in references.templates]
    matrix = replace(array._matrix, references=references.with_templates(templates))
    known = array._known and convert(*array._known, now, step)
    fill = fill_for(step.dtype, array.fill_value if array.dtype.kind in "iu" else None)
    changed = replace(array, units=step.units, calendar=step.calendar, dtype=step.dtype, fill_value=fill)
    return replace(changed, _matrix=matrix, _known=known)


def _is_redundant(template: Template, now: Step, step: Step) -> bool:
    """Return whether the values are the same without the step ``now``."""
    if template.unresolved:
        return False  # its values are not known yet
    before = template.last_step
    if before == now:
        return True
    if before.dtype.kind not in "iu" or now.dtype.kind not in "iu" or (now.units, now.calendar) != (step.units, step.calendar):
        return False
    from aggarray.cf.units.compatibility import conversion_between

    change = conversion_between(before, now)
    return change.integer_exact and np.can_cast(before.dtype, now.dtype) and np.can_cast(now.dtype, step.dtype)


def convert_units(array: MasterArray, units: str, calendar: str | None) -> MasterArray:
    """Return an array and its own bounds in other units."""
    now = array._step
    step = replace(now, units=units, calendar=calendar, dtype=np.dtype("f8") if array.dtype.kind in "iu" else array.dtype)
    # An empty conversion raises the errors of units and dtype before a file is read.
    convert(np.empty(0, array.dtype), None, now, step)
    bounds = {n: array.coords[n].to_units(units, calendar) for n in bounds_names(array) if n in array.coords}
    changed = with_step(array, step)
    return replace(changed, coords={**array.coords, **bounds}) if bounds else changed


def bounds_names(array: MasterArray) -> tuple[str, ...]:
    """Return the names of an array's own bounds: one or none (CF 7.1, 7.4)."""
    from aggarray.cf.attributes import basename

    stated = array.attrs.get("bounds", array.attrs.get("climatology"))
    return (basename(stated),) if isinstance(stated, str) else ()


def reverse_bounds(
    before: Mapping[str, MasterArray], now: Mapping[str, MasterArray], *itself: MasterArray
) -> dict[str, MasterArray]:
    """Reverse pairs of bounds where their coordinates are reversed (CF 7.1).

    ``before``, ``now``: the coordinates before and after an operation; ``itself``: the array before and after.
    """
    coords = dict(now)
    for old, new in (itself, *((c, now[name]) for name, c in before.items())):
        if old.ndim == new.ndim == 1 and old.directions != new.directions:
            for name, bounds in ((n, now[n]) for n in bounds_names(old) if n in now):
                if bounds.ndim == 2 and bounds.shape[1] == 2:
                    coords[name] = bounds._turned({bounds.dimensions[1]: Range(1, 2, -1)})
    return coords


def dimension_names(dimensions: Sequence[Any]) -> tuple[str, ...]:
    """Return names given singly or in a sequence; else raise SelectionError."""
    names = dimensions[0] if len(dimensions) == 1 and isinstance(dimensions[0], tuple | list) else dimensions
    for name in names:
        if not isinstance(name, str):
            raise SelectionError(f"dimension {name!r} ({type(name).__name__}) is not a name", hint="give names of dimensions")
    return tuple(names)


def locate_labels(array: MasterArray, dimension: str, label: Any, *, method: str | None, tolerance: Any) -> Any:
    """Return the positions of labels of a dimension coordinate.

    Without a coordinate labels are positions. ``method``, ``tolerance`` and the result as in `labels.locate`. Raises
    NotFoundError for a missing dimension or label, SelectionError for labels of a wrong type and for a method without a
    coordinate.
    """
    from aggarray.cf.labels import locate

    if dimension not in array.dimensions:
        why = f" ({dimension!r} is a coordinate without a dimension)" if dimension in array.coords else ""
        hint = names_hint(dimension, array.dimensions, "the dimensions are")
        raise NotFoundError(f"no dimension {dimension!r} to select along{why}", hint=hint)
    coordinate = array.coords.get(dimension)
    if coordinate is None:
        if method is not None or tolerance is not None:
            what = f"dimension {dimension!r} has no coordinate, which method and tolerance need"
            raise SelectionError(what, hint="select by position")
        return label
    times = coordinate.units is not None and is_reference_time(coordinate.units)
    values = coordinate.datetimes() if times else coordinate._values_and_mask()[0]
    try:
        return locate(values, label, method=method, tolerance=tolerance, dimension=dimension)
    except NotFoundError as error:
        if not times and coordinate.units not in (None, "1"):
            error.hint = f"{error.hint}; {dimension} is in {coordinate.units}"
        raise


def labels_key(
    array: MasterArray, given: Mapping[str, Any] | str | None, method: str | None, tolerance: Any, named: Mapping[str, Any]
) -> tuple[Any, ...]:
    """Return the key of labels by dimension; errors as of `locate_labels`.

    ``given``: more labels, or the method.
    """
    labels = {**given, **named} if isinstance(given, Mapping) else named
    if isinstance(given, str):
        if not labels:
            hint = "give dimension=label, such as time='2001-01'"
            raise SelectionError(f"no labels to select: sel({given!r})", variable=array.name, hint=hint)
        method = given
    key = {d: locate_labels(array, d, label, method=method, tolerance=tolerance) for d, label in labels.items()}
    return tuple(key.get(d, slice(None)) for d in array.dimensions)


def positions_key(array: MasterArray, indexers: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the key of positions by dimension; SelectionError for others."""
    for name in indexers:
        if name not in array.dimensions:
            hint = names_hint(name, array.dimensions, "the dimensions are")
            raise SelectionError(f"no dimension {name!r} to select along", variable=array.name, hint=hint)
    return tuple(indexers.get(d, slice(None)) for d in array.dimensions)


class Lazy:
    """Indexing that returns master arrays."""

    __slots__ = ("_array",)

    def __init__(self, array: MasterArray) -> None:
        self._array = array

    def __getitem__(self, key: Any) -> MasterArray:
        array = self._array
        selectors = dict(zip(array.dimensions, normalise(key, array.shape, array.dimensions), strict=True))
        return array._after("lazy", key, array._chosen(selectors))


@dataclass(frozen=True, slots=True, eq=False)
class Origin:
    """Recipe of an array: how to find it, and the operations to repeat.

    ``find(*place)`` returns the array, then the lazy operations ``steps`` (name, arguments) follow. ``witness``: objects of
    the described array; an array with other objects was changed since.
    """

    find: Callable[..., Any]
    place: tuple[Any, ...]
    steps: tuple[tuple[str, Any], ...] = ()
    witness: tuple[object, ...] = ()

    def describes(self, witness: tuple[object, ...]) -> bool:
        """Return whether an array with these objects is the described one."""
        return len(witness) == len(self.witness) and all(a is b for a, b in zip(witness, self.witness, strict=True))

    def then(self, name: str, arguments: Any, witness: tuple[object, ...]) -> Origin:
        """Return the origin of the result of an operation."""
        return replace(self, steps=(*self.steps, (name, arguments)), witness=witness)


def restore_array(find: Callable[..., Any], place: tuple[Any, ...], steps: tuple[tuple[str, Any], ...]) -> Any:
    """Return the array of an `Origin`; IndexFileError if its index changed."""
    array = find(*place)
    for name, arguments in steps:
        array = array.lazy[arguments] if name == "lazy" else getattr(array, name)(*arguments)
    return array
