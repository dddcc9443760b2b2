"""What are the variables of an HDF5 file, given its datasets: their names, dimensions and lengths?

Nothing is read here. Files of an archive mostly have the same datasets, of which the same is told without any work. A dimension
is a scale, never a name: a group may have a dimension of the name of another above it.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from aggarray.formats.base import (
    Attributes,
    Variable,
    has_coordinate,
    is_characters,
    scan_values,
    stored_variable,
)
from aggarray.formats.hdf5.metadata.conventions import ObjectAttributes
from aggarray.formats.hdf5.metadata.data import require
from aggarray.formats.hdf5.metadata.types import CHARACTERS, CONVERTED, PLAIN, ROWS, TEXTS, Dataspace, Datatype
from aggarray.formats.hdf5.refusals import attribute_refusal, refusal
from aggarray.formats.limits import is_scannable

#: How netCDF-4 stores a variable that is named like a dimension but is not its coordinate variable.
NOT_COORDINATE = "_nc4_non_coord_"


class DatasetItem(NamedTuple):
    """A dataset: the path of its group with a slash at the end, its name, what it is.

    ``scales``: numbers of the items that are its dimensions, where references tell; None for a dimension without a name. A
    scale that has another name in the file names that item.
    ``borrowing``: its values lie in other files.
    """

    prefix: str
    name: str
    space: Dataspace
    datatype: Datatype
    facts: ObjectAttributes
    scales: tuple[int | None, ...] | None
    borrowing: bool = False

    @property
    def path(self) -> str:
        """Path of the variable."""
        return self.prefix + self.name.removeprefix(NOT_COORDINATE)

    @property
    def is_variable(self) -> bool:
        """Whether it is a variable that is read: no dimension alone, and of a type that has a dtype."""
        return not self.facts.pure and dtype_of(self.datatype) is not None and not self.left_out

    @property
    def left_out(self) -> bool:
        """Whether its rows are not read: those of several dimensions, or of other files."""
        return self.datatype.category == ROWS and (len(self.space.shape) != 1 or self.borrowing)


@dataclass(frozen=True, slots=True)
class DescribedVariable:
    """A variable, of the item of a number: path, dimensions (None: without a name), their lengths.

    ``joined``: its characters are joined to text along the last dimension; ``read``: a scan reads its values if they are a
    coordinate's. ``scopes``: the paths of the groups whose dimensions
    they are, given where names alone do not tell.
    """

    number: int
    path: str
    dimensions: tuple[str | None, ...]
    lengths: tuple[int, ...]
    joined: bool
    read: bool
    scopes: tuple[str, ...] | None = None


class Contents(NamedTuple):
    """What the datasets of a file are: variables; lengths of dimensions by path; (name, reason) of what is left out.

    ``nameless``: dimensions have no names; ``rows``: there are rows; ``elsewhere``: paths of those with values in other files.
    """

    variables: tuple[DescribedVariable, ...]
    sizes: Mapping[str, int]
    skipped: tuple[tuple[str, str], ...]
    nameless: bool
    rows: bool
    elsewhere: tuple[str, ...]


@dataclass(slots=True, eq=False)
class _Dimension:
    """A dimension: the path of its group, its name, netCDF's number and whether it is noted, its length, whether it grows."""

    prefix: str
    name: str
    number: int
    noted: bool
    length: int
    grows: bool


_Axes = tuple[_Dimension | None, ...]


@lru_cache(maxsize=256)
def contents_of(items: tuple[DatasetItem, ...]) -> Contents:
    """Return what the datasets of a file are."""
    dimensions = _dimensions(items)
    variables = [(number, item) for number, item in enumerate(items) if item.is_variable]
    axes = [_axes(dimensions, number, item) for number, item in variables]
    for (_, item), of_item in zip(variables, axes, strict=True):
        for d, n, most in zip(of_item, item.space.shape, item.space.most, strict=True):
            if d is not None and d.grows and most == -1:
                d.length = max(d.length, n)
    spans = {item.path: tuple(None if d is None else d.name for d in ds) for (_, item), ds in zip(variables, axes, strict=True)}
    require(len(spans) == len(axes), "duplicate name")
    ordered = sorted(dimensions.values(), key=lambda d: d.number)
    places = {(d.prefix[:-1], d.name) for d in ordered}
    # Readers of names look from the group of the variable upwards.
    hidden = any(
        d is not None and nearest_scope(places, item.prefix[:-1], d.name) != d.prefix[:-1]
        for (_, item), ds in zip(variables, axes, strict=True)
        for d in ds
    )
    found = tuple(_described(number, item, ds, spans, hidden) for (number, item), ds in zip(variables, axes, strict=True))
    return Contents(
        found,
        {d.prefix + d.name: d.length for d in ordered},
        _skipped(items),
        any(None in d.dimensions for d in found),
        any(item.datatype.category == ROWS for item in items),
        tuple(item.path for _, item in variables if item.borrowing),
    )


def _skipped(items: tuple[DatasetItem, ...]) -> tuple[tuple[str, str], ...]:
    """Return (name, reason) of what is left out; attributes are named as CDL names them, ``variable:attribute``."""
    types = [(i.prefix + i.name, refusal(i.datatype.type_name)) for i in items if not i.facts.pure and not i.is_variable]
    owners = [(i.path, i.facts) for i in items if i.is_variable]
    return (*types, *(left for path, facts in owners for left in left_out(path, facts)))


def left_out(path: str, facts: ObjectAttributes) -> list[tuple[str, str]]:
    """Return (name, reason) of the attributes of an object that are left out."""
    return [(f"{path}:{name}", attribute_refusal(what)) for name, what in facts.left]


def _described(
    number: int, item: DatasetItem, axes: _Axes, spans: Mapping[str, tuple[str | None, ...]], hidden: bool
) -> DescribedVariable:
    path, shape, most = item.path, item.space.shape, item.space.most
    lengths = tuple(
        d.length if d is not None and d.grows and limit == -1 else n for d, n, limit in zip(axes, shape, most, strict=True)
    )
    joined = False
    if is_characters(dtype_of(item.datatype) or np.dtype(object), len(lengths)):
        # What grows is no character of a text, nor is what a coordinate describes.
        joined = not (most[-1] == -1 or (axes[-1] or _NAMELESS).grows or has_coordinate(path, spans[path][-1], spans))
    scopes = tuple("" if d is None else d.prefix[:-1] for d in axes) if hidden else None
    # promise: external-coordinates-roots
    read = not item.borrowing and is_scannable(lengths, item.datatype.size)
    return DescribedVariable(number, path, spans[path], lengths, joined, read, scopes)


def nearest_scope(scopes: Collection[tuple[str, str]], group: str, name: str) -> str | None:
    """Return the group in which a name means something, from a group upwards; ``scopes``: (group, name) of all.

    >>> nearest_scope({("", "x"), ("a", "x")}, "a/b", "x")
    'a'
    """
    while (group, name) not in scopes:
        if not group:
            return None
        group = group.rpartition("/")[0]
    return group


_NAMELESS = _Dimension("", "", -1, False, 0, False)


def dtype_of(datatype: Datatype) -> np.dtype[Any] | None:
    """Return the dtype of the values of a datatype, objects for text of variable length; None where there is none."""
    if datatype.category == TEXTS:
        return np.dtype(object)
    return datatype.dtype if datatype.category in (PLAIN, CONVERTED, CHARACTERS, ROWS) else None


def _dimensions(items: Sequence[DatasetItem]) -> dict[int, _Dimension]:
    """Return the dimensions by the number of their item, themselves numbered as netCDF-C does."""
    found: dict[int, _Dimension] = {}
    following, taken = 0, set[int]()
    for position, item in enumerate(items):
        if not item.facts.scale or item.scales is not None:
            continue
        noted = item.facts.number
        number = following if noted is None else noted
        require(number >= 0 and number not in taken, "invalid dimension number")
        taken.add(number)
        following = max(following, number + 1)
        # A scale without elements is a name alone: its length is that of the variables.
        grows = item.space.most[:1] == (-1,)
        length = 0 if grows or not item.space.shape else item.space.shape[0]
        name = item.name.removeprefix(NOT_COORDINATE)
        found[position] = _Dimension(item.prefix, name, number, noted is not None, length, grows)
    return found


def _axes(dimensions: Mapping[int, _Dimension], number: int, item: DatasetItem) -> _Axes:
    """Return the dimensions of a variable, None for each without a name."""
    facts, rank = item.facts, len(item.space.shape)
    axes: _Axes = (None,) * rank
    if facts.scale and rank == 1 and item.scales is None:
        return (dimensions[number],)
    if facts.numbers is not None and len(facts.numbers) == rank:
        noted = {d.number: d for d in dimensions.values() if d.noted}
        require(all(n in noted for n in facts.numbers), "invalid dimension number")
        axes = tuple(noted[n] for n in facts.numbers)
    elif facts.scale and rank and item.scales is None:
        axes = (dimensions[number], *axes[1:])
    elif item.scales is not None:
        axes = (*(None if n is None else dimensions.get(n) for n in item.scales[:rank]), *axes[len(item.scales) :])
    return axes


@lru_cache(maxsize=256)
def shared_variables(items: tuple[DatasetItem, ...]) -> tuple[tuple[Variable, ...], frozenset[str]]:
    """Return the variables, and whose values a scan reads; for files whose attributes all lie in the headers."""
    return variables_of(items, [item.facts.shown for item in items])


def variables_of(
    items: tuple[DatasetItem, ...], attributes: Sequence[Attributes]
) -> tuple[tuple[Variable, ...], frozenset[str]]:
    """Return the variables, and whose values a scan reads; ``attributes``: of every item."""
    variables = tuple(_variable(d, items[d.number], attributes[d.number]) for d in contents_of(items).variables)
    return variables, frozenset(scan_values(variables))


def _variable(described: DescribedVariable, item: DatasetItem, attrs: Attributes) -> Variable:
    d, dtype = described, dtype_of(item.datatype) or np.dtype(object)
    if item.space.empty:
        # Without a dataspace it is an array without elements.
        return stored_variable(d.path, dtype, (0,), (None,), attrs)
    found = stored_variable(d.path, dtype, d.lengths, d.dimensions, attrs, d.joined)
    return found if d.scopes is None else replace(found, scopes=d.scopes[: len(found.dimensions)])
