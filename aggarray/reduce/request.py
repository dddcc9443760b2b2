"""Checks of a reduction's arguments, before anything is read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from aggarray.cf.units import is_reference_time
from aggarray.errors import AggregationError, NotFoundError, names_hint
from aggarray.reduce.operations import OF_TIMES, OPERATIONS, ORDERED, WEIGHTED

if TYPE_CHECKING:
    from aggarray.reduce.grouping import Groups

#: Options of reductions that do not name their groups.
OPTIONS = ("weights", "skipna", "min_count")


def check_names(method: str, options: Mapping[str, Any], names: Sequence[str]) -> None:
    """Raise TypeError for an argument that a method does not take."""
    for name in options:
        if name not in names:
            what = f"{method}() got an unexpected keyword argument {name!r}"
            raise TypeError(f"{what}; {names_hint(name, names, 'the others are')}")


def check_operations(array: Any, operations: Any) -> tuple[str, ...]:
    """Return the operations, each once; raise an error for others.

    AggregationError names an unknown operation, or one that the values of the array do not have.
    """
    given = [operations] if isinstance(operations, str) else list(operations)
    for operation in given:
        if not isinstance(operation, str) or operation not in OPERATIONS:
            hint = names_hint(operation, OPERATIONS, "the operations are")
            hint = f"call .{operation}(...)" if operation in ("median", "quantile") else hint
            raise AggregationError(f"unknown operation: {operation!r}", variable=array.name, hint=hint)
    if not given:
        raise AggregationError("no operation", variable=array.name, hint=f"give some of {', '.join(OPERATIONS)}")
    check_values(array, given)
    return tuple(dict.fromkeys(given))


def check_values(array: Any, operations: Sequence[str]) -> None:
    """Raise AggregationError if the values do not have the operations."""
    if hasattr(type(array), "offsets"):
        what = f"rows of different lengths cannot be reduced: {operations[0]}"
        raise AggregationError(what, variable=array.name, hint="reduce .flat")
    if array.dtype.kind not in "iufb":
        kind = "text" if array.dtype.kind in "TUSO" else f"values of dtype {array.dtype}"
        what = f"{kind} cannot be reduced: {operations[0]}"
        raise AggregationError(what, variable=array.name, hint="reduce an array of real numbers")
    if array.units is not None and is_reference_time(array.units):
        for operation in operations:
            if operation not in OF_TIMES:
                what = f"reference times have no {operation}: {array.units!r}"
                raise AggregationError(what, variable=array.name, hint=f"they have {', '.join(sorted(OF_TIMES))}")


def axes_of(array: Any, dims: Any) -> tuple[int, ...]:
    """Return the numbers of dimensions; NotFoundError for an unknown one."""
    if dims is None:
        return tuple(range(array.ndim))
    names = names_of(array, dims)
    for name in names:
        if name not in array.dimensions:
            hint = names_hint(name, array.dimensions, "the dimensions are")
            raise NotFoundError(f"no dimension {name!r} to reduce", variable=array.name, hint=hint)
    return tuple(sorted({array.dimensions.index(name) for name in names}))


def names_of(array: Any, dims: Any) -> tuple[str, ...]:
    """Return names of dimensions in the order given, each once."""
    if dims is None:
        return tuple(array.dimensions)
    return tuple(dict.fromkeys([dims] if isinstance(dims, str) or not isinstance(dims, Iterable) else dims))


def check_order(array: Any, operations: Sequence[str], axes: Sequence[int]) -> None:
    """Raise AggregationError if an operation needs the order of one dimension."""
    for operation in operations:
        if operation in ORDERED and len(axes) != 1:
            names = ", ".join(array.dimensions[axis] for axis in axes) or "none"
            what = f"{operation} is along one dimension: {len(axes)} are given ({names})"
            raise AggregationError(what, variable=array.name, hint="name one dimension; positions are along that one")


def check_options(array: Any, skipna: Any, min_count: Any) -> None:
    """Raise AggregationError for invalid options."""
    if not isinstance(skipna, bool | np.bool_):
        raise AggregationError(f"invalid skipna={skipna!r}", variable=array.name, hint="give True or False")
    is_integer = isinstance(min_count, int | np.integer) and not isinstance(min_count, bool)
    if not is_integer or min_count < 0:
        hint = "give the least number of values as an integer of at least 0"
        raise AggregationError(f"invalid min_count={min_count!r}", variable=array.name, hint=hint)


def groups_along(array: Any, axes: Sequence[int], by: Any) -> Groups:
    """Return the groups of the one reduced dimension.

    Raises AggregationError unless one dimension is reduced.
    """
    if len(axes) != 1:
        names = ", ".join(array.dimensions[axis] for axis in axes) or "none"
        what = f"by groups one dimension: {len(axes)} are given ({names})"
        raise AggregationError(what, variable=array.name, hint="name it, dims='time', and reduce the others before or after")
    from aggarray.reduce.grouping import groups_of

    return groups_of(array, array.dimensions[axes[0]], by)


def weight_factors(
    array: Any, dims: Any, operations: Sequence[str], weights: Any
) -> tuple[tuple[tuple[int, ...], np.ndarray], ...]:
    """Return the factors of weights, by numbers of dimensions.

    ``dims``: the reduced dimensions as given: an array of weights is in their order. There are no factors if no operation uses
    them. They are checked in any case.
    """
    if weights is None:
        return ()
    from aggarray.reduce.cell_areas import check_widths
    from aggarray.reduce.weighting import weights_of

    factors = weights_of(array, names_of(array, dims), weights) or ()
    if WEIGHTED.isdisjoint(operations):
        return ()
    if "sum" in operations and isinstance(weights, str) and weights == "area":
        check_widths(array, names_of(array, dims))
    plain = (_without_repetition(tuple(array.dimensions.index(d) for d in own), values) for own, values in factors)
    return tuple(plain)


def _without_repetition(dimensions: tuple[int, ...], values: np.ndarray) -> tuple[tuple[int, ...], np.ndarray]:
    """Return a factor without the dimensions along which it is constant.

    >>> _without_repetition((0, 1), np.array([[1.0, 1.0], [2.0, 2.0]]))
    ((0,), array([1., 2.]))
    """
    for axis in reversed(range(values.ndim)):
        if values.size and (values == values.take([0], axis)).all():
            dimensions, values = dimensions[:axis] + dimensions[axis + 1 :], values.take(0, axis)
    return dimensions, values
