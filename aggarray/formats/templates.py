"""What is a variable of a file as a sub-array? Its attributes, read once into a `Template` that files alike share."""

import functools
from collections.abc import Sequence
from typing import Any

from aggarray.cf.encoding import encoding
from aggarray.cf.units import normal_calendar, temperature_of
from aggarray.formats.base import Structure, Variable
from aggarray.partition.matrix import Template


def template_of(variable: Variable, structure: Structure, directions: Sequence[bool] | None = None) -> Template:
    """Return what a variable of a file is as a sub-array.

    ``directions`` None: taken from the coordinate variables of the file (CF section 5): decreasing ones give False.
    """
    attrs = variable.attrs
    units = text_attribute(attrs.get("units"))
    if directions is None:
        known = {v.name: v.values for v in structure.variables if v.dimensions == (v.name,) and v.values is not None}
        directions = [not is_decreasing(known.get(d)) for d in variable.dimensions]
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
    """Return the same object for equal templates: an archive has a handful."""
    return template


def text_attribute(value: Any) -> str | None:
    """Return an attribute as text where it is text, numbers such as ``units = 1`` written out; None if absent."""
    if value is None or isinstance(value, str):
        return value.strip() if value else value
    return str(value.item()) if getattr(value, "size", 2) == 1 else str(value)


#: What files write where they have no name for something.
_NO_NAMES = ("", "unknown", "undefined", "none", "missing", "n/a", "-", "no standard name", "not specified")


@functools.lru_cache(maxsize=4096)
def naming(text: str) -> str | None:
    """Return a text that names something, blanks put right, None where it says that nobody knows.

    >>> naming("air  temperature"), naming("unknown")
    ('air temperature', None)
    """
    text = " ".join(text.split())
    return None if text.lower() in _NO_NAMES else text


def is_decreasing(values: Any) -> bool:
    """Tell whether the values of a 1-d coordinate run downwards throughout."""
    if values is None or values.ndim != 1 or len(values) < 2 or values.dtype.kind in "OT":
        return False
    return bool((values[1:] < values[:-1]).all())
