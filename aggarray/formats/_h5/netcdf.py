"""What does a netCDF-4 file hold, read by no library?

The structure is the one that netCDF4 would give: dimensions are scales, found by their number or through references; a
variable is as long as its dimensions; names, order and attributes are as netCDF-C sees them.
"""

import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from aggarray.formats._h5.data import Data, UnmodelledError, require
from aggarray.formats._h5.facts import Facts, facts_of, shown_attributes
from aggarray.formats._h5.groups import attributes_of, links_of
from aggarray.formats._h5.headers import Header, header_at
from aggarray.formats._h5.heaps import GlobalHeap
from aggarray.formats._h5.superblock import root_address
from aggarray.formats._h5.types import CHARACTERS, PLAIN, TEXTS
from aggarray.formats._h5.values import values_of
from aggarray.formats.base import (
    LIBRARY_ERRORS,
    Structure,
    Variable,
    has_coordinate,
    is_characters,
    stored_values,
    stored_variable,
    with_values,
)

_NOT_COORDINATE = "_nc4_non_coord_"
_PHONY = "phony_dim_"

#: netCDF-C cuts longer names.
_LONGEST_NAME = 255
#: Groups within groups.
_DEEPEST = 64


@dataclass(frozen=True, slots=True)
class _Dataset:
    """A dataset: the path of its group with a slash at the end, its name, the address of its header, what it says."""

    prefix: str
    name: str
    address: int
    header: Header
    facts: Facts
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def path(self) -> str:
        """Path of the variable."""
        return self.prefix + self.name.removeprefix(_NOT_COORDINATE)


@dataclass(slots=True)
class _Dimension:
    """A dimension: the path of its group, its name, netCDF's number, its length, whether it grows."""

    prefix: str
    name: str
    number: int
    noted: bool
    length: int
    grows: bool


@dataclass(slots=True)
class _Found:
    """What a walk through a file has found, in order."""

    data: Data
    heap: GlobalHeap
    groups: dict[str, Facts] = field(default_factory=dict)
    datasets: list[_Dataset] = field(default_factory=list)
    dimensions: dict[int, _Dimension] = field(default_factory=dict)
    seen: set[int] = field(default_factory=set)
    next_number: int = 0


def scan(path: str) -> Structure | None:
    """Return the structure of a netCDF-4 file as netCDF4 shows it, None where it is left to the libraries."""
    descriptor = -1
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        return _structure(path, descriptor)
    except (UnmodelledError, struct.error, *LIBRARY_ERRORS):
        return None
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def _structure(path: str, descriptor: int) -> Structure:
    data = Data(descriptor)
    found = _Found(data, GlobalHeap(data))
    root = root_address(data)
    _walk(found, root, header_at(data, root), "")
    require(bool(found.dimensions) or found.groups[""].stamped, "a file that is no netCDF-4")
    variables, datasets = _variables(found)

    def read(variable: Variable) -> np.ndarray:
        dataset, lengths, growing = datasets[variable.name]
        require(len(lengths) < 2 or growing < 2, "two unlimited dimensions")
        values = values_of(data, found.heap, dataset.header, lengths)
        joined = len(variable.shape) < len(lengths)
        return stored_values(values, variable.attrs, joined).astype(variable.dtype, copy=False)

    filled = with_values(variables, read)
    attrs = {prefix[:-1]: shown_attributes(facts, found.heap) for prefix, facts in found.groups.items()}
    dimensions = sorted(found.dimensions.values(), key=lambda d: d.number)
    sizes = {d.prefix + d.name: d.length for prefix in found.groups for d in dimensions if d.prefix == prefix}
    return Structure(path, "netCDF4", attrs.pop(""), filled, attrs, (), sizes=sizes)


# Walking


def _walk(found: _Found, address: int, header: Header, prefix: str) -> None:
    """Collect the datasets of a group, then what is in the groups in it, as netCDF-C does."""
    require(address not in found.seen and prefix.count("/") <= _DEEPEST, "groups that run in a circle")
    found.seen.add(address)
    found.groups[prefix] = facts_of(attributes_of(found.data, header))
    inner = []
    for link in links_of(found.data, header):
        require(len(link.name) <= _LONGEST_NAME and b"/" not in link.name, "an odd name")
        name = link.name.decode("utf-8")
        item = header_at(found.data, link.address)
        if item.link_index is not None or item.symbols is not None:
            inner.append((link.address, item, f"{prefix}{name}/"))
        else:
            _add(found, _dataset(found, link.address, item, prefix, name))
    for group in inner:
        _walk(found, *group)


def _dataset(found: _Found, address: int, header: Header, prefix: str, name: str) -> _Dataset:
    require(address not in found.seen, "a dataset that is there twice")
    found.seen.add(address)
    kind, space = header.kind, header.space
    if kind is None or space is None or header.layout is None or space.empty:
        raise UnmodelledError("neither a group nor an ordinary dataset")
    dtype = np.dtype(object) if kind.name == TEXTS else kind.dtype
    known = kind.name in (PLAIN, TEXTS) or (kind.name == CHARACTERS and kind.size == 1)
    if dtype is None or not known:
        raise UnmodelledError("a type that is not modelled")
    return _Dataset(prefix, name, address, header, facts_of(attributes_of(found.data, header)), space.shape, dtype)


def _add(found: _Found, dataset: _Dataset) -> None:
    """Note a dataset: as a dimension, as a variable, as both."""
    facts = dataset.facts
    if facts.scale:
        space = dataset.header.space
        name, number = dataset.name, facts.number
        if space is None or not space.shape or name.startswith((_NOT_COORDINATE, _PHONY)):
            raise UnmodelledError("an odd dimension")
        if number is None:
            number = found.next_number
        require(number >= 0 and all(number != d.number for d in found.dimensions.values()), "an odd number of a dimension")
        found.next_number = max(found.next_number, number + 1)
        grows = space.most[0] == -1
        length = 0 if grows else space.shape[0]
        found.dimensions[dataset.address] = _Dimension(dataset.prefix, name, number, facts.number is not None, length, grows)
    if not facts.pure:
        found.datasets.append(dataset)


# Dimensions


def _axes(found: _Found, dataset: _Dataset) -> tuple[_Dimension, ...]:
    """Return the dimensions of a variable; UnmodelledError where netCDF-C would make some up."""
    facts, rank = dataset.facts, len(dataset.shape)
    if facts.scale and rank == 1:
        return (found.dimensions[dataset.address],)
    if facts.numbers is not None:
        noted = {d.number: d for d in found.dimensions.values() if d.noted}
        axes = tuple(noted[n] for n in facts.numbers)
    elif not rank:
        axes = ()
    else:
        require(not facts.scale and facts.listed is not None, "dimensions without names")
        axes = tuple(found.dimensions[_referred(found, *element)] for element in facts.listed or ())
    require(len(axes) == rank and all(dataset.prefix.startswith(d.prefix) for d in axes), "odd dimensions")
    return axes


def _referred(found: _Found, count: int, address: int, number: int) -> int:
    """Return the address of the only scale of a dimension."""
    require(count == 1, "dimensions with several names")
    packed = found.heap.get(address, number)
    require(len(packed) == 8, "an odd reference")
    return int.from_bytes(packed, "little")


def _variables(found: _Found) -> tuple[list[Variable], dict[str, tuple[_Dataset, tuple[int, ...], int]]]:
    """Return the variables, and by name: dataset, lengths of its dimensions, how many of them grow."""
    axes = [_axes(found, dataset) for dataset in found.datasets]
    for dataset, dimensions in zip(found.datasets, axes, strict=True):
        for d, n in zip(dimensions, dataset.shape, strict=True):
            if d.grows:
                d.length = max(d.length, n)
            require(n == d.length or d.grows, "a variable that is not as long as its dimension")
    named: dict[str, dict[str, _Dimension]] = {prefix: {} for prefix in found.groups}
    for d in found.dimensions.values():
        named[d.prefix][d.name] = d
    spans = {dataset.path: tuple(d.name for d in ds) for dataset, ds in zip(found.datasets, axes, strict=True)}
    require(len(spans) == len(axes), "a name that is there twice")
    variables: list[Variable] = []
    datasets = {}
    for dataset, dimensions in zip(found.datasets, axes, strict=True):
        # netCDF4 looks for dimensions by name, from the group of the variable upwards.
        require(all(_nearest(named, dataset.prefix, d.name) is d for d in dimensions), "a dimension behind another")
        name = dataset.path
        attrs = shown_attributes(dataset.facts, found.heap)
        lengths = tuple(d.length for d in dimensions)
        joined = not (is_characters(dataset.dtype, len(lengths)) and _has_real_end(name, dimensions, spans))
        variables.append(stored_variable(name, dataset.dtype, lengths, spans[name], attrs, joined))
        datasets[name] = (dataset, lengths, sum(d.grows for d in dimensions))
    return variables, datasets


def _has_real_end(name: str, dimensions: tuple[_Dimension, ...], spans: Mapping[str, tuple[str, ...]]) -> bool:
    """Tell whether the last dimension of single characters is no string length: it can grow or has a coordinate."""
    return dimensions[-1].grows or has_coordinate(name, spans[name][-1], spans)


def _nearest(named: Mapping[str, Mapping[str, _Dimension]], prefix: str, name: str) -> _Dimension | None:
    """Return the dimension of a name in the group of a path or the first group above it that has one."""
    while name not in named[prefix] and prefix:
        prefix = prefix[:-1].rpartition("/")[0]
        prefix += "/" if prefix else ""
    return named[prefix].get(name)
