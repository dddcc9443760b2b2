"""What does a netCDF-4 file hold, read by no library?

The structure is the one that netCDF4 would give: dimensions are scales, found by their number or through references; a
variable is as long as its dimensions; names, order and attributes are as netCDF-C sees them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from aggarray.formats._h5.data import Data, UnmodelledError, modelled, require
from aggarray.formats._h5.dimensions import Item, described, dtype_of, shared_variables, variables_of
from aggarray.formats._h5.facts import Facts, facts_of, shown_attributes
from aggarray.formats._h5.groups import attributes_of, links_of
from aggarray.formats._h5.headers import Header, header_at
from aggarray.formats._h5.heaps import GlobalHeap
from aggarray.formats._h5.superblock import root_address
from aggarray.formats._h5.values import check_storage, values_of
from aggarray.formats.base import Structure, Variable, stored_values, with_values
from aggarray.formats.places import File

#: netCDF-C cuts longer names.
_LONGEST_NAME = 255
#: Groups within groups.
_DEEPEST = 64


@dataclass(frozen=True, slots=True)
class _Dataset:
    """A dataset: the path of its group with a slash at the end, its name, its header, what its attributes say."""

    prefix: str
    name: str
    header: Header
    facts: Facts


@dataclass(slots=True)
class _Found:
    """What a walk through a file has found, in order: groups by path, datasets by address; ``seen``: both."""

    data: Data
    heap: GlobalHeap
    groups: dict[str, Facts] = field(default_factory=dict)
    datasets: dict[int, _Dataset] = field(default_factory=dict)
    seen: set[int] = field(default_factory=set)


def scan(path: str) -> Structure:
    """Return the structure of a netCDF-4 file as netCDF4 shows it; one of `data.LEFT` where it is left to the libraries."""
    with File(path) as file:
        return _structure(path, file)


def _structure(path: str, file: File) -> Structure:
    data = Data(file)
    found = _Found(data, GlobalHeap(data))
    root = root_address(data)
    _walk(found, root, header_at(data, root), "")
    items, prefixes = _items(found), tuple(found.groups)
    every, sizes = described(items, prefixes)
    modelled(bool(sizes) or found.groups[""].stamped, "a file that is no netCDF-4")
    variables, wanted = _variables(found, items, prefixes)
    places = {d.path: d for d in every}
    headers = [dataset.header for dataset in found.datasets.values()]

    def read(variable: Variable) -> np.ndarray:
        """Return the values of a variable."""
        place = places[variable.name]
        modelled(len(place.lengths) < 2 or place.growing < 2, "two unlimited dimensions")
        values = values_of(data, found.heap, headers[place.number], place.lengths)
        return stored_values(values, variable.attrs, place.joined).astype(variable.dtype, copy=False)

    filled = with_values(variables, read, wanted)
    attrs = {prefix[:-1]: shown_attributes(facts, found.heap) for prefix, facts in found.groups.items()}
    return Structure(path, "netCDF4", attrs.pop(""), filled, attrs, (), sizes=dict(sizes))


def _walk(found: _Found, address: int, header: Header, prefix: str) -> None:
    """Collect the datasets of a group, then what is in the groups in it, as netCDF-C does."""
    require(address not in found.seen and prefix.count("/") <= _DEEPEST, "groups that run in a circle")
    found.seen.add(address)
    found.groups[prefix] = facts_of(attributes_of(found.data, header))
    inner = []
    for link in links_of(found.data, header):
        modelled(len(link.name) <= _LONGEST_NAME and b"/" not in link.name, "an odd name")
        name = link.name.decode("utf-8")
        item = header_at(found.data, link.address)
        if item.link_index is not None or item.symbols is not None:
            inner.append((link.address, item, f"{prefix}{name}/"))
        else:
            modelled(link.address not in found.seen, "a dataset that is there twice")
            found.seen.add(link.address)
            found.datasets[link.address] = _Dataset(prefix, name, item, facts_of(attributes_of(found.data, item)))
    for group in inner:
        _walk(found, *group)


def _items(found: _Found) -> tuple[Item, ...]:
    """Return what is known of the datasets without their addresses."""
    positions = {address: position for position, (address, d) in enumerate(found.datasets.items()) if d.facts.scale}
    items = []
    for dataset in found.datasets.values():
        kind, space = dataset.header.kind, dataset.header.space
        if kind is None or space is None or dataset.header.layout is None or space.empty:
            raise UnmodelledError("neither a group nor an ordinary dataset")
        modelled(dataset.header.committed is None, "a type of users")
        dtype_of(kind)
        check_storage(found.data, dataset.header.layout, kind.size * space.count)
        facts = dataset.facts
        scales = None
        if facts.listed is not None and facts.numbers is None and not facts.scale:
            scales = tuple(positions[_referred(found, *element)] for element in facts.listed)
        items.append(Item(dataset.prefix, dataset.name, space, kind, facts, scales))
    return tuple(items)


def _referred(found: _Found, count: int, address: int, number: int) -> int:
    """Return the address of the only scale of a dimension."""
    modelled(count == 1, "dimensions with several names")
    packed = found.heap.get(address, number)
    require(len(packed) == 8, "an odd reference")
    return int.from_bytes(packed, "little")


def _variables(found: _Found, items: tuple[Item, ...], prefixes: Sequence[str]) -> tuple[tuple[Variable, ...], frozenset[str]]:
    if all(item.facts.shareable for item in items):
        return shared_variables(items, tuple(prefixes))
    return variables_of(items, tuple(prefixes), [shown_attributes(item.facts, found.heap) for item in items])
