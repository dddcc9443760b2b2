"""Variables of an HDF5 file, derived from its datasets.

No file is read here. Most files of an archive have equal datasets and share the results through caches. A dimension is
identified by its dimension scale, not by its name: a group may have a dimension with the name of one in a parent group.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from aggarray.cf.frozen import FrozenDict
from aggarray.dataclass import NamedTuple, dataclass, replace
from aggarray.formats.base import Attributes, Variable, has_coordinate, is_characters, scan_values, stored_variable
from aggarray.formats.hdf5.metadata.attributes import ObjectAttributes
from aggarray.formats.hdf5.metadata.data import require
from aggarray.formats.hdf5.metadata.types import CHARACTERS, CONVERTED, PLAIN, ROWS, TEXTS, Dataspace, Datatype, Members
from aggarray.formats.hdf5.refusals import attribute_refusal, refusal
from aggarray.formats.limits import is_scannable

#: Prefix of the stored name of a netCDF-4 variable with the name of a dimension that is not its coordinate variable.
NOT_COORDINATE = "_nc4_non_coord_"
#: Attributes of flags (CF section 3.5). A variable that has one describes its values itself.
_FLAGS = ("flag_values", "flag_masks", "flag_meanings")


class DatasetItem(NamedTuple):
    """Dataset with the path of its group, which ends in a slash.

    ``scales``: numbers of the items that are its dimensions, if they are given by references; None for a dimension without a
    name. A scale with a second name in the file refers to the item of the first. ``is_external``: values in other files.
    """

    prefix: str
    name: str
    space: Dataspace
    datatype: Datatype
    facts: ObjectAttributes
    scales: tuple[int | None, ...] | None
    is_external: bool = False

    @property
    def path(self) -> str:
        """Path of the variable."""
        return self.prefix + self.name.removeprefix(NOT_COORDINATE)

    @property
    def is_variable(self) -> bool:
        """Whether it is readable and not only a dimension."""
        return not self.facts.pure and dtype_of(self.datatype) is not None and not self.left_out

    @property
    def left_out(self) -> bool:
        """Whether it has rows that are not read: multi-dimensional or external."""
        return self.datatype.category == ROWS and (len(self.space.shape) != 1 or self.is_external)


@dataclass(frozen=True, slots=True)
class DescribedVariable:
    """Variable: item number, path, dimensions (None: unnamed) and lengths.

    ``joined``: whether characters are joined to text along the last dimension; ``read``: whether a scan reads the values if it
    is a coordinate; ``scopes``: paths of the groups that define the dimensions, if names alone are ambiguous.
    """

    number: int
    path: str
    dimensions: tuple[str | None, ...]
    lengths: tuple[int, ...]
    joined: bool
    read: bool
    scopes: tuple[str, ...] | None = None


class Contents(NamedTuple):
    """Variables, lengths of dimensions and skipped items of a file.

    ``nameless``: whether dimensions have no names; ``rows``: whether there are variable-length variables; ``external_files``:
    paths of the variables with values in other files.
    """

    variables: tuple[DescribedVariable, ...]
    sizes: Mapping[str, int]
    skipped: tuple[tuple[str, str], ...]
    nameless: bool
    rows: bool
    external_files: tuple[str, ...]


@dataclass(slots=True, eq=False)
class _Dimension:
    """Dimension with its netCDF-4 number and whether that is stored."""

    prefix: str
    name: str
    number: int
    has_number: bool
    length: int
    unlimited: bool


_Axes = tuple[_Dimension | None, ...]


@lru_cache(maxsize=256)
def contents_of(items: tuple[DatasetItem, ...]) -> Contents:
    """Return the contents of a file with these datasets."""
    dimensions = _dimensions(items)
    variables = [(number, item) for number, item in enumerate(items) if item.is_variable]
    axes = [_axes(dimensions, number, item) for number, item in variables]
    for (_, item), of_item in zip(variables, axes, strict=True):
        for d, n, limit in zip(of_item, item.space.shape, item.space.most, strict=True):
            if d is not None and d.unlimited and limit == -1:
                d.length = max(d.length, n)
    spans = {item.path: tuple(None if d is None else d.name for d in ds) for (_, item), ds in zip(variables, axes, strict=True)}
    require(len(spans) == len(axes), "duplicate name")
    ordered = sorted(dimensions.values(), key=lambda d: d.number)
    scopes = {(d.prefix[:-1], d.name) for d in ordered}
    # Names are resolved from the group of the variable upwards.
    hidden = any(
        d is not None and nearest_scope(scopes, item.prefix[:-1], d.name) != d.prefix[:-1]
        for (_, item), ds in zip(variables, axes, strict=True)
        for d in ds
    )
    types = [(i.prefix + i.name, refusal(i.datatype.type_name)) for i in items if not i.facts.pure and not i.is_variable]
    described = tuple(_describe(number, item, ds, spans, hidden) for (number, item), ds in zip(variables, axes, strict=True))
    return Contents(
        described,
        {d.prefix + d.name: d.length for d in ordered},
        (*types, *(skipped for _, item in variables for skipped in skipped_attributes(item.path, item.facts))),
        any(None in d.dimensions for d in described),
        any(item.datatype.category == ROWS for item in items),
        tuple(item.path for _, item in variables if item.is_external),
    )


def skipped_attributes(path: str, attributes: ObjectAttributes) -> list[tuple[str, str]]:
    """Return (name, reason) of skipped attributes, named as in CDL."""
    return [(f"{path}:{name}", attribute_refusal(type_name)) for name, type_name in attributes.left]


def _describe(
    number: int, item: DatasetItem, axes: _Axes, spans: Mapping[str, tuple[str | None, ...]], hidden: bool
) -> DescribedVariable:
    path, shape, most = item.path, item.space.shape, item.space.most
    lengths = tuple(
        d.length if d is not None and d.unlimited and limit == -1 else n for d, n, limit in zip(axes, shape, most, strict=True)
    )
    joined = False
    if is_characters(dtype_of(item.datatype) or np.dtype(object), len(lengths)):
        # An unlimited dimension or one with a coordinate variable is not a string length.
        last = axes[-1]
        is_unlimited = most[-1] == -1 or (last is not None and last.unlimited)
        joined = not is_unlimited and not has_coordinate(path, spans[path][-1], spans)
    scopes = tuple("" if d is None else d.prefix[:-1] for d in axes) if hidden else None
    # promise: external-coordinates-roots
    read = not item.is_external and is_scannable(lengths, item.datatype.size)
    return DescribedVariable(number, path, spans[path], lengths, joined, read, scopes)


def nearest_scope(scopes: Collection[tuple[str, str]], group: str, name: str) -> str | None:
    """Return the nearest group, from a group upwards, that defines a name.

    ``scopes``: all (group, name) pairs.

    >>> nearest_scope({("", "x"), ("a", "x")}, "a/b", "x")
    'a'
    """
    while (group, name) not in scopes:
        if not group:
            return None
        group = group.rpartition("/")[0]
    return group


def with_flags(attrs: Attributes, members: Members, dtype: np.dtype[Any]) -> Attributes:
    """Return attributes with the members of an enumeration as flags (CF 3.5).

    ``dtype``: of the values. White space in names becomes "_". Attributes with flags of their own are unchanged.

    >>> dict(with_flags({}, (("clear sky", 0), ("rain", 2)), np.dtype("i1")))
    {'flag_values': array([0, 2], dtype=int8), 'flag_meanings': 'clear_sky rain'}
    """
    if not members or not attrs.keys().isdisjoint(_FLAGS):
        return attrs
    values = np.array([value for _, value in members], dtype.newbyteorder("="))
    values.flags.writeable = False
    meanings = " ".join("_".join(name.split()) or "_" for name, _ in members)
    return FrozenDict({**attrs, "flag_values": values if len(values) > 1 else values[0], "flag_meanings": meanings})


def dtype_of(datatype: Datatype) -> np.dtype[Any] | None:
    """Return the dtype of values, object for text, None if there is none."""
    if datatype.category == TEXTS:
        return np.dtype(object)
    return datatype.dtype if datatype.category in (PLAIN, CONVERTED, CHARACTERS, ROWS) else None


def _dimensions(items: Sequence[DatasetItem]) -> dict[int, _Dimension]:
    dimensions: dict[int, _Dimension] = {}
    following, numbers = 0, set[int]()
    for position, item in enumerate(items):
        if not item.facts.scale or item.scales is not None:
            continue
        stored_number = item.facts.number
        number = following if stored_number is None else stored_number
        require(number >= 0 and number not in numbers, "invalid dimension number")
        numbers.add(number)
        following = max(following, number + 1)
        # A scale without elements only names the dimension: the variables define its length.
        unlimited = item.space.most[:1] == (-1,)
        length = 0 if unlimited or not item.space.shape else item.space.shape[0]
        name = item.name.removeprefix(NOT_COORDINATE)
        dimensions[position] = _Dimension(item.prefix, name, number, stored_number is not None, length, unlimited)
    return dimensions


def _axes(dimensions: Mapping[int, _Dimension], number: int, item: DatasetItem) -> _Axes:
    facts, rank = item.facts, len(item.space.shape)
    axes: _Axes = (None,) * rank
    if facts.scale and rank == 1 and item.scales is None:
        return (dimensions[number],)
    if facts.numbers is not None and len(facts.numbers) == rank:
        by_number = {d.number: d for d in dimensions.values() if d.has_number}
        require(all(n in by_number for n in facts.numbers), "invalid dimension number")
        axes = tuple(by_number[n] for n in facts.numbers)
    elif facts.scale and rank and item.scales is None:
        axes = (dimensions[number], *axes[1:])
    elif item.scales is not None:
        axes = (*(None if n is None else dimensions.get(n) for n in item.scales[:rank]), *axes[len(item.scales) :])
    return axes


@lru_cache(maxsize=256)
def shared_variables(items: tuple[DatasetItem, ...]) -> tuple[tuple[Variable, ...], frozenset[str]]:
    """Return the variables, and the names of those whose values are scanned.

    All attributes must lie in the headers.
    """
    return variables_of(items, [item.facts.shown for item in items])


def variables_of(
    items: tuple[DatasetItem, ...], attributes: Sequence[Attributes]
) -> tuple[tuple[Variable, ...], frozenset[str]]:
    """Return the variables, and the names of those whose values are scanned."""
    variables = []
    for d in contents_of(items).variables:
        item = items[d.number]
        # A dataset without a dataspace is an array without elements.
        lengths, dimensions = ((0,), (None,)) if item.space.empty else (d.lengths, d.dimensions)
        dtype = dtype_of(item.datatype) or np.dtype(object)
        attrs = with_flags(attributes[d.number], item.datatype.members, dtype)
        variable = stored_variable(d.path, dtype, lengths, dimensions, attrs, d.joined)
        if d.scopes is not None and not item.space.empty:
            variable = replace(variable, scopes=d.scopes[: len(variable.dimensions)])
        variables.append(variable)
    return tuple(variables), frozenset(scan_values(variables))
