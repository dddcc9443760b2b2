"""What are the variables of a netCDF-4 file, given its datasets: their names, dimensions and lengths?

Nothing is read here. Files of an archive mostly have the same datasets, of which the same is told without any work.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from aggarray.formats._h5.data import UnmodelledError, modelled, require
from aggarray.formats._h5.facts import Facts
from aggarray.formats._h5.types import CHARACTERS, PLAIN, TEXTS, Kind, Space
from aggarray.formats.base import Attributes, Variable, has_coordinate, is_characters, scan_values, stored_variable

#: How netCDF-4 stores a variable that is named like a dimension but is not its coordinate variable.
NOT_COORDINATE = "_nc4_non_coord_"
#: How netCDF-C begins the names of dimensions that it makes up.
_PHONY = "phony_dim_"


class Item(NamedTuple):
    """A dataset: the path of its group with a slash at the end, its name, what it is.

    ``scales``: numbers of the items that are its dimensions, where nothing but references tells.
    """

    prefix: str
    name: str
    space: Space
    kind: Kind
    facts: Facts
    scales: tuple[int, ...] | None

    @property
    def path(self) -> str:
        """Path of the variable."""
        return self.prefix + self.name.removeprefix(NOT_COORDINATE)


@dataclass(frozen=True, slots=True)
class Described:
    """A variable, of the item of a number: path, dimensions, their lengths, how many of them grow.

    ``joined``: its characters are joined to text along the last dimension.
    """

    number: int
    path: str
    dimensions: tuple[str, ...]
    lengths: tuple[int, ...]
    growing: int
    joined: bool


@dataclass(slots=True, eq=False)
class _Dimension:
    """A dimension: the path of its group, its name, netCDF's number and whether it is noted, its length, whether it grows."""

    prefix: str
    name: str
    number: int
    noted: bool
    length: int
    grows: bool


@lru_cache(maxsize=256)
def described(items: tuple[Item, ...], prefixes: tuple[str, ...]) -> tuple[tuple[Described, ...], Mapping[str, int]]:
    """Return the variables of a file and the lengths of its dimensions, by path; ``prefixes``: of its groups, in order."""
    dimensions = _dimensions(items)
    variables = [(number, item) for number, item in enumerate(items) if not item.facts.pure]
    axes = [_axes(dimensions, number, item) for number, item in variables]
    for (_, item), of_item in zip(variables, axes, strict=True):
        for d, n in zip(of_item, item.space.shape, strict=True):
            if d.grows:
                d.length = max(d.length, n)
            modelled(n == d.length or d.grows, "a variable that is not as long as its dimension")
    named: dict[str, dict[str, _Dimension]] = {prefix: {} for prefix in prefixes}
    for d in sorted(dimensions.values(), key=lambda d: d.number):
        named[d.prefix][d.name] = d
    spans = {item.path: tuple(d.name for d in ds) for (_, item), ds in zip(variables, axes, strict=True)}
    modelled(len(spans) == len(axes), "a name that is there twice")
    found = []
    for (number, item), ds in zip(variables, axes, strict=True):
        # netCDF4 looks for dimensions by name, from the group of the variable upwards.
        modelled(all(_nearest(named, item.prefix, d.name) is d for d in ds), "a dimension behind another")
        found.append(_described(number, item, ds, spans))
    return tuple(found), {d.prefix + d.name: d.length for of_group in named.values() for d in of_group.values()}


def _described(number: int, item: Item, axes: Sequence[_Dimension], spans: Mapping[str, tuple[str, ...]]) -> Described:
    path, lengths = item.path, tuple(d.length for d in axes)
    joined = False
    if is_characters(dtype_of(item.kind), len(lengths)):
        # What grows is no character of a text, nor is what a coordinate describes.
        joined = not (axes[-1].grows or has_coordinate(path, spans[path][-1], spans))
    return Described(number, path, spans[path], lengths, sum(d.grows for d in axes), joined)


def dtype_of(kind: Kind) -> np.dtype[Any]:
    """Return the dtype of a datatype, objects for text of variable length; UnmodelledError where netCDF-4 knows none."""
    if kind.name == TEXTS:
        return np.dtype(object)
    if kind.dtype is None or not (kind.name == PLAIN or (kind.name == CHARACTERS and kind.size == 1)):
        raise UnmodelledError("a type that is not modelled")
    return kind.dtype


def _dimensions(items: Sequence[Item]) -> dict[int, _Dimension]:
    """Return the dimensions by the number of their item, themselves numbered as netCDF-C does."""
    found: dict[int, _Dimension] = {}
    following = 0
    for position, item in enumerate(items):
        if not item.facts.scale:
            continue
        modelled(bool(item.space.shape) and not item.name.startswith((NOT_COORDINATE, _PHONY)), "an odd dimension")
        noted = item.facts.number
        number = following if noted is None else noted
        require(number >= 0 and all(number != d.number for d in found.values()), "an odd number of a dimension")
        following = max(following, number + 1)
        grows = item.space.most[0] == -1
        length = 0 if grows else item.space.shape[0]
        found[position] = _Dimension(item.prefix, item.name, number, noted is not None, length, grows)
    return found


def _axes(dimensions: Mapping[int, _Dimension], number: int, item: Item) -> tuple[_Dimension, ...]:
    """Return the dimensions of a variable; UnmodelledError where netCDF-C would make some up."""
    facts, rank = item.facts, len(item.space.shape)
    if facts.scale and rank == 1:
        return (dimensions[number],)
    if facts.numbers is not None:
        noted = {d.number: d for d in dimensions.values() if d.noted}
        require(all(n in noted for n in facts.numbers), "an odd number of a dimension")
        axes = tuple(noted[n] for n in facts.numbers)
    else:
        modelled(not rank or (not facts.scale and item.scales is not None), "dimensions without names")
        axes = tuple(dimensions[n] for n in item.scales or ())
    modelled(len(axes) == rank and all(item.prefix.startswith(d.prefix) for d in axes), "odd dimensions")
    return axes


def _nearest(named: Mapping[str, Mapping[str, _Dimension]], prefix: str, name: str) -> _Dimension | None:
    """Return the dimension of a name in the group of a path or the first group above it that has one."""
    while name not in named[prefix] and prefix:
        prefix = prefix[:-1].rpartition("/")[0]
        prefix += "/" if prefix else ""
    return named[prefix].get(name)


@lru_cache(maxsize=256)
def shared_variables(items: tuple[Item, ...], prefixes: tuple[str, ...]) -> tuple[tuple[Variable, ...], frozenset[str]]:
    """Return the variables, and whose values a scan reads; for files whose attributes all lie in the headers."""
    return variables_of(items, prefixes, [item.facts.shown for item in items])


def variables_of(
    items: tuple[Item, ...], prefixes: tuple[str, ...], attributes: Sequence[Attributes]
) -> tuple[tuple[Variable, ...], frozenset[str]]:
    """Return the variables, and whose values a scan reads; ``attributes``: of every item."""
    variables = tuple(
        stored_variable(d.path, dtype_of(items[d.number].kind), d.lengths, d.dimensions, attributes[d.number], d.joined)
        for d in described(items, prefixes)[0]
    )
    return variables, frozenset(scan_values(variables))
