"""Reductions of master arrays while their files are read.

Each stored chunk is read and decoded once, and reduced while it is in the processor's cache.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aggarray.arrays.master import MasterArray


def reduce_array(
    array: MasterArray,
    operations: Sequence[str],
    dims: Any = None,
    *,
    by: Any = None,
    weights: Any = None,
    skipna: bool = True,
    min_count: int = 1,
    threads: int | None = None,
    advance: Callable[[int], None] | None = None,
) -> dict[str, MasterArray]:
    """Reduce in one pass over the files; {operation: result in memory}.

    Parameters and errors are those of `MasterArray.reduce`. ``advance``: receives the bytes of each block that was reduced, in
    any thread.
    """
    from aggarray.reduce.description import Description
    from aggarray.reduce.operations import Work
    from aggarray.reduce.request import axes_of, check_operations, check_options, check_order, groups_along, weight_factors
    from aggarray.reduce.streaming import Reduction, reduce_blocks

    names = check_operations(array, operations)
    axes = axes_of(array, dims)
    check_order(array, names, axes)
    check_options(array, skipna, min_count)
    groups = None if by is None else groups_along(array, axes, by)
    factors = weight_factors(array, dims, names, weights)
    work = Work(names, array.dtype, bool(factors), bool(skipna), int(min_count))
    description = Description.of(array, [array.dimensions[axis] for axis in axes], groups, weights)
    results = reduce_blocks(Reduction.of(array, axes, work, groups, factors, advance), threads)
    return {name: description.result(values, mask, name) for name, (values, mask) in results.items()}
