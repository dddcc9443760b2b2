"""Labels in text such as ``time=2000:2010``, and selections by them.

``a:b`` is a slice with both ends, ``a:b:n`` every n-th element of it, ``a,b,c`` a list; other text is one label. A colon
in a time of day (``2000-01-01T12:30``) belongs to the time. The coordinate decides whether text is a number or a time.
"""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from aggarray.errors import NotFoundError

if TYPE_CHECKING:
    from aggarray.arrays.master import MasterArray

_MOMENT = r"-?\d{4,}-\d{2}-\d{2}[T ]\d{2}(?::\d{2}(?::\d{2}(?:\.\d*)?)?)?(?:Z|[+-]\d{2}(?::?\d{2})?)?"
_SLICE = re.compile(rf"({_MOMENT}|[^:]*):({_MOMENT}|[^:]*)(?::(-?\d+))?")


def parse(texts: Sequence[str]) -> dict[str, Any]:
    """Return labels by dimension as text, lists and slices.

    Raises BadParameter for other text.

    >>> parse(["time=2000:2010", "lat=-30", "lon=1,2"])
    {'time': slice('2000', '2010', None), 'lat': '-30', 'lon': ['1', '2']}
    >>> parse(["time=2000-01-01T12:00:2000-01-02T00:30"])["time"]
    slice('2000-01-01T12:00', '2000-01-02T00:30', None)
    """
    labels: dict[str, Any] = {}
    for text in texts:
        name, equals, label = text.partition("=")
        if not equals or not name.strip() or not label.strip():
            what = f"{text!r} is not of the form DIMENSION=LABEL, such as time=2000:2010"
            raise click.BadParameter(what, param_hint="--sel")
        if name.strip() in labels:
            raise click.BadParameter(f"{text!r}: {name.strip()} is selected twice", param_hint="--sel")
        labels[name.strip()] = parse_label(label.strip())
    return labels


def parse_label(text: str) -> Any:
    """Return the label, list of labels or slice of a text.

    >>> parse_label("0:90:2"), parse_label("2000-01-01T12:00"), parse_label(":5")
    (slice('0', '90', 2), '2000-01-01T12:00', slice(None, '5', None))
    """
    if re.fullmatch(_MOMENT, text):
        return text
    if "," in text:
        return [part.strip() for part in text.split(",") if part.strip()]
    ends = _SLICE.fullmatch(text)
    if ends is None:
        return text
    start, stop, step = ends.groups()
    return slice(start or None, stop or None, None if step is None else int(step))


def parse_tolerances(method: str | None, limits: Sequence[Any]) -> dict[str | None, Any]:
    """Return tolerances by dimension, None: all others, from texts.

    Raises BadParameter for a tolerance without a method, and for two tolerances of one dimension.

    >>> parse_tolerances("nearest", ["0.5", "time=12h"])
    {None: 0.5, 'time': '12h'}
    """
    if limits and method is None:
        raise click.BadParameter("a tolerance needs a method; give one", param_hint="--tolerance")
    tolerances: dict[str | None, Any] = {}
    for limit in limits:
        name, equals, value = str(limit).rpartition("=")
        if (equals and not name.strip()) or not value.strip():
            what = f"{limit!r} is not a tolerance; give 0.5, 12h, or DIMENSION=12h"
            raise click.BadParameter(what, param_hint="--tolerance")
        key = name.strip() or None
        if key in tolerances:
            what = f"{limit!r} is a second tolerance of {key or 'all dimensions'}"
            raise click.BadParameter(what, param_hint="--tolerance")
        try:
            tolerances[key] = float(value)
        except ValueError:
            tolerances[key] = value.strip()
    return tolerances


def select_all(
    arrays: "Sequence[MasterArray]", labels: Mapping[str, Any], method: str | None, tolerances: Mapping[str | None, Any]
) -> "list[MasterArray]":
    """Select from arrays; NotFoundError for absent dimensions or no values."""
    dimensions = sorted({d for a in arrays for d in a.dimensions})
    for name in labels:
        if name not in dimensions:
            what = f"--sel {name}={format_label(labels[name])}: no dimension {name!r}"
            raise NotFoundError(what, hint=f"the dimensions are: {', '.join(dimensions) or 'none'}")
    for limited in tolerances:
        if limited is not None and limited not in labels:
            raise click.BadParameter(f"{limited!r} is not selected by --sel", param_hint="--tolerance")
    selections = []
    for array in arrays:
        selected = array
        for dimension in [d for d in labels if d in array.dimensions]:
            label = labels[dimension]
            # Method and tolerance do not apply to slices.
            limit = tolerances.get(dimension, tolerances.get(None))
            how = {} if isinstance(label, slice) else {"method": method, "tolerance": limit}
            selected = selected.sel({dimension: _typed(array, dimension, label)}, **how)
        if array.size and not selected.size:
            empty = selected.dimensions[selected.shape.index(0)]
            raise NotFoundError(f"--sel {empty}={format_label(labels[empty])} selects nothing of {array.name}")
        selections.append(selected)
    return selections


def format_label(label: Any) -> str:
    """Return a label as text.

    >>> format_label(slice(None, "5", None)), format_label(["1", "2"])
    (':5', '1,2')
    """
    if isinstance(label, slice):
        ends = ["" if end is None else str(end) for end in (label.start, label.stop, *([label.step] if label.step else []))]
        return ":".join(ends)
    return ",".join(map(str, label)) if isinstance(label, list) else str(label)


def _typed(array: "MasterArray", dimension: str, label: Any) -> Any:
    """Return a label, converted to numbers for numeric coordinates."""
    from aggarray.cf.units.recognition import is_reference_time

    coordinate = array.coords.get(dimension)
    if coordinate is not None and (coordinate.dtype.kind not in "iuf" or is_reference_time(coordinate.units)):
        return label
    if isinstance(label, slice):
        return slice(_number(label.start, dimension), _number(label.stop, dimension), label.step)
    if isinstance(label, list):
        return [_number(item, dimension) for item in label]
    return _number(label, dimension)


def _number(text: Any, dimension: str) -> Any:
    if not isinstance(text, str):
        return text
    for convert in (int, float):
        try:
            return convert(text)
        except ValueError:
            continue
    raise NotFoundError(f"--sel {dimension}: {text!r} is not a number", hint=f"select {dimension} by numbers")
