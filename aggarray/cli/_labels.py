"""Which labels does a text such as ``time=2000:2010`` name, and what does an array select by them?

``a:b`` is a slice, both ends included, ``a:b:n`` every n-th of it, ``a,b,c`` a list; anything else is one label. A colon
inside a time of day (``2000-01-01T12:30``) belongs to that. What a text means, a number or a time, the coordinate decides.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from aggarray.errors import NotFoundError

if TYPE_CHECKING:
    from aggarray.arrays import MasterArray

_MOMENT = r"-?\d{4,}-\d{2}-\d{2}[T ]\d{2}(?::\d{2}(?::\d{2}(?:\.\d*)?)?)?(?:Z|[+-]\d{2}(?::?\d{2})?)?"
_SLICE = re.compile(rf"({_MOMENT}|[^:]*):({_MOMENT}|[^:]*)(?::(-?\d+))?")


def parse(texts: Sequence[str]) -> dict[str, Any]:
    """Return labels by dimension, as text, lists of text and slices of text. BadParameter for what is none.

    >>> parse(["time=2000:2010", "lat=-30", "lon=1,2"])
    {'time': slice('2000', '2010', None), 'lat': '-30', 'lon': ['1', '2']}
    >>> parse(["time=2000-01-01T12:00:2000-01-02T00:30"])["time"]
    slice('2000-01-01T12:00', '2000-01-02T00:30', None)
    """
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, label = text.partition("=")
        if not equals or not name.strip() or not label.strip():
            raise click.BadParameter(f"{text!r}: give DIMENSION=LABEL, such as time=2000:2010", param_hint="--sel")
        if name.strip() in found:
            raise click.BadParameter(f"{text!r}: {name.strip()} is selected twice", param_hint="--sel")
        found[name.strip()] = label_of(label.strip())
    return found


def label_of(text: str) -> Any:
    """Return the label, list or slice of labels that a text is.

    >>> label_of("0:90:2"), label_of("2000-01-01T12:00"), label_of(":5")
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


@dataclass(frozen=True, slots=True)
class Near:
    """How labels that are not there are found: a method, and tolerances by dimension, None for all others."""

    method: str | None = None
    tolerances: Mapping[str | None, Any] = field(default_factory=dict)

    def keywords(self, dimension: str) -> dict[str, Any]:
        """Return the arguments of `MasterArray.sel` for one dimension."""
        return {"method": self.method, "tolerance": self.tolerances.get(dimension, self.tolerances.get(None))}


def near_of(method: str | None, given: Sequence[Any]) -> Near:
    """Return how labels that are not there are found; ``given``: tolerances as LIMIT or DIMENSION=LIMIT.

    BadParameter for a tolerance without a method, and for two of one dimension.

    >>> near_of("nearest", ["0.5", "time=12h"]).tolerances
    {None: 0.5, 'time': '12h'}
    """
    if given and method is None:
        raise click.BadParameter("limits a method: give a method too", param_hint="--tolerance")
    found: dict[str | None, Any] = {}
    for one in given:
        name, equals, value = str(one).rpartition("=")
        if (equals and not name.strip()) or not value.strip():
            raise click.BadParameter(f"{one!r}: give 0.5, 12h, or DIMENSION=12h", param_hint="--tolerance")
        key = name.strip() or None
        if key in found:
            raise click.BadParameter(f"{one!r}: a second tolerance of {key or 'all dimensions'}", param_hint="--tolerance")
        try:
            found[key] = float(value)
        except ValueError:
            found[key] = value.strip()
    return Near(method, found)


def select_all(arrays: "Sequence[MasterArray]", labels: Mapping[str, Any], near: Near) -> "list[MasterArray]":
    """Return the selections of arrays; NotFoundError for a dimension that none of them has."""
    there = sorted({d for a in arrays for d in a.dimensions})
    for name in labels:
        if name not in there:
            raise NotFoundError(
                f"--sel {name}={shown(labels[name])}: no dimension {name!r}: there are {', '.join(there) or 'none'}"
            )
    for limited in near.tolerances:
        if limited is not None and limited not in labels:
            raise click.BadParameter(f"{limited!r} is not selected by --sel", param_hint="--tolerance")
    found = [select(array, labels, near) for array in arrays]
    for before, after in zip(arrays, found, strict=True):
        if before.size and not after.size:
            empty = after.dimensions[after.shape.index(0)]
            raise NotFoundError(f"--sel {empty}={shown(labels[empty])}: {before.name} has nothing there")
    return found


def shown(label: Any) -> str:
    """Return a label as it is written.

    >>> shown(slice(None, "5", None)), shown(["1", "2"])
    (':5', '1,2')
    """
    if is_slice(label):
        ends = ["" if end is None else str(end) for end in (label.start, label.stop, *([label.step] if label.step else []))]
        return ":".join(ends)
    return ",".join(map(str, label)) if isinstance(label, list) else str(label)


def select(array: "MasterArray", labels: Mapping[str, Any], near: Near) -> "MasterArray":
    """Return the selection; dimensions that the array lacks are ignored. Method and tolerance apply to no slice."""
    for dimension, label in labels.items():
        if dimension in array.dimensions:
            own = {dimension: _typed(array, dimension, label)}
            array = array.sel(own, **({} if is_slice(label) else near.keywords(dimension)))
    return array


def is_slice(label: Any) -> bool:
    """Tell whether a label is a slice."""
    return isinstance(label, slice)


def _typed(array: "MasterArray", dimension: str, label: Any) -> Any:
    """Return a label with numbers in place of text where the coordinate has numbers, or positions are meant."""
    from aggarray.cf.units import is_reference_time

    coordinate = array.coords.get(dimension)
    if coordinate is not None and (coordinate.dtype.kind not in "iuf" or is_reference_time(coordinate.units)):
        return label
    if is_slice(label):
        return slice(_number(label.start, dimension), _number(label.stop, dimension), label.step)
    if isinstance(label, list):
        return [_number(one, dimension) for one in label]
    return _number(label, dimension)


def _number(text: Any, dimension: str) -> Any:
    if not isinstance(text, str):
        return text
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    raise NotFoundError(f"--sel {dimension}: {text!r} is no number: {dimension} is selected by numbers")
