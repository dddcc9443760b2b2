"""Positions of labels along a dimension of an array."""

from typing import TYPE_CHECKING, Any

from aggarray.cf.labels import locate
from aggarray.cf.units import is_reference_time
from aggarray.errors import NotFoundError, SelectionError

if TYPE_CHECKING:
    from aggarray.arrays.master import MasterArray


def locate_labels(array: "MasterArray", dimension: str, label: Any, *, method: str | None, tolerance: Any) -> Any:
    """Return the positions of labels of a dimension coordinate; without a coordinate labels are positions.

    ``method``, ``tolerance`` and the result as in `labels.locate`. Raises NotFoundError for a missing dimension or label,
    SelectionError for labels of a wrong type and for a method without a coordinate.
    """
    if dimension not in array.dimensions:
        why = f" ({dimension!r} is a coordinate without a dimension)" if dimension in array.coords else ""
        names = ", ".join(array.dimensions) or "none"
        raise NotFoundError(f"no dimension {dimension!r} to select along{why}", hint=f"the dimensions are: {names}")
    coordinate = array.coords.get(dimension)
    if coordinate is None:
        if method is not None or tolerance is not None:
            what = f"dimension {dimension!r} has no coordinate, which method and tolerance need"
            raise SelectionError(what, hint="select by position")
        return label
    if coordinate.units and is_reference_time(coordinate.units):
        values = coordinate.datetimes()
    else:
        values = coordinate._values_and_mask()[0]
    return locate(values, label, method=method, tolerance=tolerance, dimension=dimension)
