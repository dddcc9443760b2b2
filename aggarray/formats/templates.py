"""Templates: attributes that describe a variable as a sub-array.

Equal files share one `Template`.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from aggarray.cf.attributes import text_attribute
from aggarray.cf.encoding import encoding
from aggarray.cf.units import normal_calendar
from aggarray.cf.units.temperature import temperature_of
from aggarray.formats.base import Structure, Variable
from aggarray.partition.matrix import Template


def template_of(variable: Variable, structure: Structure, directions: Sequence[bool] | None = None) -> Template:
    """Return the template of a variable of a file.

    ``directions`` None: they follow from the coordinate variables of the file (CF section 5), False for decreasing ones.
    """
    attrs = variable.attrs
    units = text_attribute(attrs.get("units"))
    if directions is None:
        coordinates = {v.name: v.values for v in structure.variables if v.dimensions == (v.name,) and v.values is not None}
        directions = [not is_decreasing(coordinates.get(d)) for d in variable.dimensions]
    template = Template(
        variable.shape,
        variable.dimensions,
        tuple(directions),
        units,
        normal_calendar(units, text_attribute(attrs.get("calendar"))),
        encoding(variable.dtype, attrs, variable.name),
        structure.format,
        declared=structure.assumed is not None,
        assumed=structure.assumed,
        temperature=temperature_of(units, attrs),
    )
    return _shared(template)


@functools.lru_cache(maxsize=1024)
def _shared(template: Template) -> Template:
    return template


def is_decreasing(values: Any) -> bool:
    """Return whether the values of a 1-d coordinate are strictly decreasing."""
    if values is None or values.ndim != 1 or len(values) < 2 or values.dtype.kind in "OT":
        return False
    return bool((values[1:] < values[:-1]).all())


def are_pairs_decreasing(values: np.ndarray | None) -> bool:
    """Return whether every pair of bounds is decreasing."""
    if values is None or values.shape[1:] != (2,) or values.dtype.kind not in "iuf" or not len(values):
        return False
    return bool((values[:, 1] < values[:, 0]).all())
