"""What do lazy operations do to the matrix, the known values and the templates of an array?"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from aggarray.arrays.values import KnownValues
from aggarray.cf.units import conversion_between
from aggarray.errors import SelectionError
from aggarray.formats.base import basename
from aggarray.memory.selection import Range, Selector, as_range, normalise
from aggarray.partition.matrix import Matrix, Step, Template
from aggarray.partition.plan import plan_dimension, runs
from aggarray.partition.tiling import reverse, select

if TYPE_CHECKING:
    from aggarray.arrays.master import MasterArray


def select_matrix(matrix: Matrix, axis: int, selector: Selector) -> Matrix:
    """Select along a dimension: runs of an index array become partitions, backward selections turn it round."""
    if isinstance(selector, int):
        return select(matrix, axis, plan_dimension(selector, matrix.edges[axis]))
    wanted = selector if isinstance(selector, Range) else as_range(selector)
    if wanted is not None and wanted.step > 0:
        return select(matrix, axis, plan_dimension(wanted, matrix.edges[axis]))
    if wanted is not None:
        return reverse(select(matrix, axis, plan_dimension(wanted.reversed(), matrix.edges[axis])), axis)
    indices = np.asarray(selector)
    if (np.diff(indices) < 0).all():
        return reverse(select(matrix, axis, runs(indices[::-1], matrix.edges[axis])), axis)
    return select(matrix, axis, runs(indices, matrix.edges[axis]))


def select_known(known: KnownValues | None, axis: int, selector: Selector) -> KnownValues | None:
    """Select from the values that are known of an array as `select_matrix` does from its matrix."""
    if known is None:
        return None
    chosen: Any = selector.as_slice() if isinstance(selector, Range) else selector
    index = (*(slice(None),) * axis, chosen)
    return np.asarray(known[0][index]), None if known[1] is None else np.asarray(known[1][index])


def is_unchanged_units(template: Template, now: Step, step: Step) -> bool:
    """Tell whether values come out the same without the step that they take now: integers merely become wider, say."""
    if template.unresolved:
        return False  # nobody knows yet what its values are
    before = template.last_step
    if before == now:
        return True
    if before.dtype.kind not in "iu" or now.dtype.kind not in "iu" or (now.units, now.calendar) != (step.units, step.calendar):
        return False
    change = conversion_between(before, now)
    return change.integer_exact and np.can_cast(before.dtype, now.dtype) and np.can_cast(now.dtype, step.dtype)


def bounds_named(array: "MasterArray") -> tuple[str, ...]:
    """Return the name of the bounds that an array has itself (CF 7.1, 7.4): one, or none."""
    stated = array.attrs.get("bounds", array.attrs.get("climatology"))
    return (basename(stated),) if isinstance(stated, str) else ()


def bounds_turned(
    before: "Mapping[str, MasterArray]", now: "Mapping[str, MasterArray]", *itself: "MasterArray"
) -> "dict[str, MasterArray]":
    """Return coordinates with pairs of bounds that run as their coordinates now do (CF 7.1).

    ``before``, ``now``: the coordinates before and after an operation; ``itself``: the array likewise, which may have bounds.
    """
    turned = dict(now)
    for one, other in (itself, *((c, now[name]) for name, c in before.items())):
        if one.ndim == other.ndim == 1 and one.directions != other.directions:
            for name, bounds in ((n, now[n]) for n in bounds_named(one) if n in now):
                if bounds.ndim == 2 and bounds.shape[1] == 2:
                    turned[name] = bounds._turned({bounds.dimensions[1]: Range(1, 2, -1)})
    return turned


def names_of(dimensions: Sequence[Any]) -> tuple[str, ...]:
    """Accept names one by one or as one sequence, as NumPy's transpose does; SelectionError for anything but names."""
    names = dimensions[0] if len(dimensions) == 1 and isinstance(dimensions[0], tuple | list) else dimensions
    for name in names:
        if not isinstance(name, str):
            raise SelectionError(f"dimension {name!r} ({type(name).__name__}): give names of dimensions")
    return tuple(names)


class Lazy:
    """Indexing that gives master arrays."""

    __slots__ = ("_array",)

    def __init__(self, array: "MasterArray") -> None:
        self._array = array

    def __getitem__(self, key: Any) -> "MasterArray":
        array = self._array
        selectors = dict(zip(array.dimensions, normalise(key, array.shape, array.dimensions), strict=True))
        return array._after("lazy", key, array._chosen(selectors))
