"""At which positions along a dimension of an array are the labels that are asked for?"""

from typing import TYPE_CHECKING, Any

from aggarray.cf.labels import locate
from aggarray.cf.units import is_reference_time
from aggarray.errors import NotFoundError, SelectionError

if TYPE_CHECKING:
    from aggarray.arrays.master import MasterArray


def locate_labels(array: "MasterArray", dimension: str, label: Any, *, method: str | None, tolerance: Any) -> Any:
    """Return the positions of labels of the dimension's coordinate; without a coordinate labels are positions.

    ``method``, ``tolerance`` and what is returned as in `labels.locate`. Raises NotFoundError for a dimension or a label that
    is not there, SelectionError for labels of a wrong kind and for a method without a coordinate.
    """
    if dimension not in array.dimensions:
        hint = f"; {dimension!r} is a coordinate without a dimension of its own" if dimension in array.coords else ""
        names = ", ".join(array.dimensions) or "none"
        raise NotFoundError(f"no dimension {dimension!r} to select along: there is {names}{hint}")
    coordinate = array.coords.get(dimension)
    if coordinate is None:
        if method is not None or tolerance is not None:
            raise SelectionError(
                f"dimension {dimension!r} has no coordinate: method and tolerance need one; select by position"
            )
        return label
    if coordinate.units and is_reference_time(coordinate.units):
        values = coordinate.datetimes()
    else:
        values = coordinate._values_and_mask()[0]
    return locate(values, label, method=method, tolerance=tolerance, dimension=dimension)
