"""Labels in text such as ``time=2000:2010``, and selections by them.

``a:b`` is a slice with both ends, ``a:b:n`` every n-th element of it, ``a,b,c`` a list; other text is one label. A colon
in a time of day (``2000-01-01T12:30``) belongs to the time. The coordinate decides whether text is a number or a time.
"""

from __future__ import annotations

import contextlib
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
        raise click.BadParameter(
            "a tolerance needs a method; give the method nearest, pad or backfill", param_hint="--tolerance"
        )
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
    arrays: Sequence[MasterArray], labels: Mapping[str, Any], method: str | None, tolerances: Mapping[str | None, Any]
) -> list[MasterArray]:
    """Select from arrays; NotFoundError for absent dimensions or no values.

    A method reaches one step of the coordinate unless a tolerance is given. The ends of a slice may have either order.
    """
    dimensions = sorted({d for a in arrays for d in a.dimensions})
    for name in labels:
        if name not in dimensions:
            what = f"--sel {name}={format_label(labels[name])}: no dimension {name!r}"
            raise NotFoundError(what, hint=f"the dimensions are: {', '.join(dimensions) or 'none'}")
    for limited in tolerances:
        if limited is not None and (limited not in labels or isinstance(labels[limited], slice)):
            how = "selected by a slice" if limited in labels else "not selected by --sel"
            raise click.BadParameter(f"{limited!r} is {how}", param_hint="--tolerance")
    selections = []
    for array in arrays:
        selected = array
        for dimension in [d for d in labels if d in array.dimensions]:
            label, limit = _typed(array, dimension, labels[dimension]), tolerances.get(dimension, tolerances.get(None))
            if isinstance(label, slice):  # method and tolerance do not apply
                selected = _select_between(selected, dimension, label)
            else:
                selected = _select_labels(selected, dimension, label, method, limit)
            if array.size and not selected.size:
                runs = f"; {dimension} runs from {extent}" if (extent := _extent(array.coords.get(dimension))) else ""
                raise NotFoundError(f"--sel {dimension}={format_label(label)} selects nothing of {array.name}{runs}")
        selections.append(selected)
    return selections


def _select_between(array: MasterArray, dimension: str, label: slice) -> MasterArray:
    """Select a slice, whose ends may have either order along a coordinate."""
    coordinate, text = array.coords.get(dimension), f"--sel {dimension}={format_label(label)}"
    extent = _extent(coordinate)
    if coordinate is not None and _is_longitude(coordinate):
        if None not in (label.start, label.stop) and abs(label.stop - label.start) >= 360:
            return array.sel({dimension: slice(None, None, label.step)})
        hint = _longitude_hint(label, coordinate)
        if hint is not None:
            raise NotFoundError(f"{text} lies outside {dimension}, which runs from {extent}", hint=hint)
    selected = array.sel({dimension: label})
    axis = array.dimensions.index(dimension)
    if not selected.shape[axis] and coordinate is not None and None not in (label.start, label.stop):
        reverse = array.sel({dimension: slice(label.stop, label.start, label.step)})
        if reverse.shape[axis] and _is_longitude(coordinate) and label.start > label.stop:  # eastward, across the ends
            start, stop = format_label(slice(label.start, None)), format_label(slice(None, label.stop))
            hint = f"write {format_label(slice(label.stop, label.start))}, or select {start} and {stop} separately"
            raise NotFoundError(f"{text} crosses the ends of {dimension}, which runs from {extent}", hint=hint)
        return reverse
    return selected


def _select_labels(array: MasterArray, dimension: str, label: Any, method: str | None, limit: Any) -> MasterArray:
    """Select a label or a list; a method without limit reaches one step."""
    coordinate = array.coords.get(dimension)
    try:
        if method is None or limit is not None or coordinate is None:
            return array.sel({dimension: label}, method=method, tolerance=limit)
        if isinstance(label, str):  # a period with values, such as a year, needs no method
            with contextlib.suppress(NotFoundError):
                selected = array.sel({dimension: label})
                if selected.size:
                    return selected
        reach = _reach(array, dimension, label, method)
        return array.sel({dimension: label}, method=method, tolerance=reach)
    except NotFoundError as error:
        if coordinate is None:
            raise
        if method is not None and limit is None:
            error.hint = f"method={method!r} reaches one step of {dimension}: give one of its values, or tolerance=..."
        if _is_longitude(coordinate):
            numbers = [one for one in (label if isinstance(label, list) else [label]) if isinstance(one, int | float)]
            equal = [(n, _equal_longitude(n, coordinate)) for n in numbers]
            written = ", ".join(f"{other:g} for {n:g}" for n, other in equal if other is not None)
            error.hint = f"{dimension} runs from {_extent(coordinate)}: write {written}" if written else error.hint
        raise


def _reach(array: MasterArray, dimension: str, label: Any, method: str) -> Any:
    """Return the distance from each label's value to its nearer neighbour.

    A coordinate of one value takes the length of its bounds, or reaches nothing. None: text, which has no distances.
    """
    import numpy as np

    from aggarray.cf.labels import locate

    values = _values(array.coords[dimension])
    if values.dtype.kind not in "iufMO":
        return None
    positions = np.asarray(locate(values, label, method=method, dimension=dimension), np.int64)
    steps = np.abs(np.diff(values))
    steps = steps.astype("m8[us]") if values.dtype.kind in "MO" else steps.astype(np.float64) * (1 + 1e-6)
    if not len(steps):
        return _length(array, dimension)
    before, behind = steps[(positions - 1).clip(0)], steps[positions.clip(max=len(steps) - 1)]
    reach = np.minimum(before, behind)
    return reach if reach.ndim else reach[()]


def _length(array: MasterArray, dimension: str) -> Any:
    """Return the length of the only cell of a coordinate, zero without bounds."""
    import numpy as np

    from aggarray.arrays.lazy import bounds_names

    bounds = next((array.coords[n] for n in bounds_names(array.coords[dimension]) if n in array.coords), None)
    values = _values(array.coords[dimension])[[0, 0]] if bounds is None or bounds.size != 2 else _values(bounds).ravel()
    length = abs(values[1] - values[0])
    return np.timedelta64(length, "us") if values.dtype.kind in "MO" else float(length)


def _values(coordinate: MasterArray) -> Any:
    """Return the values of a coordinate, of a reference time its dates."""
    from aggarray.cf.units import is_reference_time

    return coordinate.datetimes() if is_reference_time(coordinate.units) else coordinate[...]


def _extent(coordinate: MasterArray | None) -> str | None:
    """Return the first and last value of a coordinate as text."""
    from aggarray.cf.units.calendars import date

    if coordinate is None or not coordinate.size:
        return None
    values = _values(coordinate)[[0, -1]]
    first, last = (date(v) for v in values) if values.dtype.kind in "MO" else map(str, values.tolist())
    return f"{first} to {last}"


def _is_longitude(coordinate: MasterArray) -> bool:
    from aggarray.aggregate.identity import coordinate_identity

    return coordinate.dtype.kind in "iuf" and coordinate_identity(coordinate) == "longitude" and coordinate.size > 1


def _longitude_hint(label: slice, coordinate: MasterArray) -> str | None:
    """Return how to write a slice with ends outside of longitudes, or None."""
    start, stop = label.start, label.stop
    equal = [None if end is None else _equal_longitude(end, coordinate, 1) for end in (start, stop)]
    if equal == [None, None]:
        return None
    start, stop = (own if other is None else other for own, other in zip((start, stop), equal, strict=True))
    if None not in (start, stop) and start <= stop:
        return f"write {format_label(slice(start, stop))}"
    return f"select {format_label(slice(start, None))} and {format_label(slice(None, stop))} separately"


def _equal_longitude(value: float, coordinate: MasterArray, slack: float = 0.0) -> float | None:
    """Return the equal longitude of a coordinate, for one outside of it.

    ``slack``: steps by which a value may lie outside of the first and the last longitude.
    """
    low, high, step = _longitudes(coordinate)
    # One step below the first longitude of a circle lies the last one, which a slice would leave out.
    if low <= value <= high or low - slack * step < value <= high + slack * step:
        return None
    return next((value + turn for turn in (360, -360) if low - step < value + turn < high + step), None)


def _longitudes(coordinate: MasterArray) -> tuple[float, float, float]:
    """Return the least and the greatest longitude, and the step at the end."""
    values = coordinate[...]
    return float(values.min()), float(values.max()), float(abs(values[-1] - values[-2]))


def format_label(label: Any) -> str:
    """Return a label as text.

    >>> format_label(slice(None, "5", None)), format_label(["1", "2"])
    (':5', '1,2')
    """
    if isinstance(label, slice):
        ends = ["" if end is None else str(end) for end in (label.start, label.stop, *([label.step] if label.step else []))]
        return ":".join(ends)
    return ",".join(map(str, label)) if isinstance(label, list) else str(label)


def _typed(array: MasterArray, dimension: str, label: Any) -> Any:
    """Return a label, converted to numbers for numeric coordinates."""
    from aggarray.cf.units import is_reference_time

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
