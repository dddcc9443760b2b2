"""Lookup of variables in an open file: object header and shape.

Only the groups above the variable and the other datasets along its unlimited dimensions are read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

from aggarray.formats.hdf5.metadata.attributes import ObjectAttributes, shown_attributes
from aggarray.formats.hdf5.metadata.data import UNDEFINED, Data, UnsupportedError, require, require_supported
from aggarray.formats.hdf5.metadata.dimensions import NOT_COORDINATE
from aggarray.formats.hdf5.metadata.groups import attributes_at, links_of, parts
from aggarray.formats.hdf5.metadata.headers import Header, header_at, root_address
from aggarray.formats.hdf5.metadata.heaps import heap_object
from aggarray.formats.hdf5.metadata.messages import Link
from aggarray.formats.hdf5.refusals import DANGLING, MOST_FOLLOWED, OUTSIDE
from aggarray.storage.byte_source import open_source
from aggarray.storage.lru_cache import LRUCache

_T = TypeVar("_T")

#: Size of the caches by path and state of the file: of links of groups, and of lengths of dimensions.
_CACHE_SIZE = 1 << 18
_groups = LRUCache(lambda: _CACHE_SIZE, lambda kept: min(8 + (len(kept[0]) if type(kept) is tuple else 0), _CACHE_SIZE))
_lengths = LRUCache(lambda: _CACHE_SIZE, lambda _: 1)


class H5File:
    """Open file that raises `data.UNREADABLE` if only the library reads it.

    A file is opened for each variable that is read, so the names in its groups are cached until it changes. ``address``: of the
    root group.
    """

    __slots__ = ("_file", "_groups", "_links", "_names", "address", "data", "root")

    def __init__(self, path: str, data: type[Data] = Data):
        self._file = open_source(path)
        self._links: dict[int, tuple[Link, ...]] = {}
        self._names: dict[int, dict[bytes, Link]] = {}
        self._groups: dict[str, dict[bytes, int]] = {}
        try:
            self.data = data(self._file)
            self.address = root_address(self.data)
            self.root = header_at(self.data, self.address)
        except BaseException:
            self.close()
            raise

    def links_at(self, address: int, header: Header) -> tuple[Link, ...]:
        """Return the links of a group in order; each group is read once."""
        links = self._links.get(address)
        if links is None:
            links = self._links[address] = links_of(self.data, header)
        return links

    def resolve(self, group: int, path: bytes) -> int | str:
        """Return the address at a path, or the reason why there is none."""
        address, remaining, followed = group, parts(path), 0
        while remaining:
            links = self._names.get(address)
            if links is None:
                header = header_at(self.data, address)
                listed = self.links_at(address, header) if header.is_group else ()
                links = self._names[address] = {link.name: link for link in listed}
            link = links.get(remaining.pop())
            if link is None or followed > MOST_FOLLOWED:
                return DANGLING
            if link.target is not None:
                followed += 1
                target = link.target.rstrip(b"\0")
                address = self.address if target.startswith(b"/") else address
                remaining += parts(target)
            elif link.address == UNDEFINED:
                return OUTSIDE
            else:
                address = link.address
        return address

    def has(self, path: str) -> bool:
        """Return whether a path exists, perhaps under its stored name."""
        prefix, _, name = path.rpartition("/")
        names = self._group(prefix)
        return name.encode() in names or f"{NOT_COORDINATE}{name}".encode() in names

    def dataset(self, path: str) -> Header:
        """Return the header of a dataset by its path."""
        prefix, _, name = path.rpartition("/")
        names = self._group(prefix)
        address = names.get(name.encode())
        require_supported(address is not None and name not in ("", "."), "no such dataset")
        header = header_at(self.data, address or 0)
        require_supported(_is_dataset(header), "not a dataset")
        return header

    def variable(self, path: str) -> Header:
        """Return the header of a variable's dataset, perhaps of another name."""
        prefix, slash, name = path.rpartition("/")
        other = f"{NOT_COORDINATE}{name}"
        return self.dataset(f"{prefix}{slash}{other}" if other.encode() in self._group(prefix) else path)

    def _group(self, path: str) -> dict[bytes, int]:
        addresses = self._groups.get(path)
        if addresses is None:
            addresses = self._groups[path] = self._cached(_groups, path, partial(self._read_group, path))
        return addresses

    def _cached(self, cache: LRUCache, item: str | int, read: Callable[[], _T]) -> _T:
        """Return the cached result of ``read``, or its cached UnsupportedError."""
        # promise: hdf5-name-cache
        key = (self._file.path, self._file.state, item)
        cached: tuple[_T] | UnsupportedError | None = cache.get(key)
        if cached is None:
            try:
                cached = (read(),)
            except UnsupportedError as error:
                cached = type(error)(str(error))
            cache.keep(key, cached)
        if isinstance(cached, UnsupportedError):
            raise type(cached)(str(cached))
        return cached[0]

    def _read_group(self, path: str) -> dict[bytes, int]:
        at, header = self.address, self.root
        if path:
            prefix, _, name = path.rpartition("/")
            address = self._group(prefix).get(name.encode()) if name not in ("", ".") else None
            require_supported(address is not None, "no such group")
            at, header = address or 0, header_at(self.data, address or 0)
        addresses = {}
        for link in self.links_at(at, header):
            target = link.address if link.target is None else self.resolve(at, link.name)
            if isinstance(target, int) and target != UNDEFINED:
                addresses[link.name] = target
        return addresses

    def attributes(self, group: str) -> Mapping[str, Any]:
        """Return the attributes of a group at the root."""
        address = self._group("").get(group.encode())
        require(address is not None, "no such group in the file itself")
        return shown_attributes(attributes_at(self.data, header_at(self.data, address or 0)), self.data)

    def shape(self, header: Header) -> tuple[int, ...]:
        """Return the shape, with the full lengths of unlimited dimensions.

        netCDF-4 lets one variable lengthen a dimension without extending the others along it.
        """
        _, space, _ = header.dataset
        require_supported(not space.empty, "dataset without a shape")
        unlimited = [axis for axis, most in enumerate(space.most) if most == -1]
        if not unlimited:
            return space.shape
        facts, shape = attributes_at(self.data, header), list(space.shape)
        if facts.listed is None:
            if facts.scale:
                require_supported(unlimited == [0], "dimension scale with another unlimited dimension")
                return (max(shape[0], self._longest(header, facts)), *shape[1:])
            # Dimensions identified by number alone: there is no reference to the other variables along them.
            require_supported(facts.numbers is None, "dimensions identified by number")
            return space.shape
        require(len(facts.listed) == len(shape), "malformed list of dimension scales")
        for axis in unlimited:
            count, address, number = facts.listed[axis]
            packed = heap_object(self.data, address, number) if count else b""
            require(len(packed) == 8 * count and packed[:8] != bytes(8), "malformed reference")
            if count:
                scale = int.from_bytes(packed[:8], "little")
                shape[axis] = max(shape[axis], self._cached(_lengths, scale, partial(self._scale_length, scale)))
        return tuple(shape)

    def _scale_length(self, address: int) -> int:
        header = header_at(self.data, address)
        return self._longest(header, attributes_at(self.data, header))

    def _longest(self, scale: Header, facts: ObjectAttributes) -> int:
        """Return the greatest length along the unlimited dimension of a scale."""
        require_supported(_is_dataset(scale) and facts.scale, "not a dimension scale")
        longest = 0 if facts.pure or scale.space is None else scale.space.shape[0]
        for address, axis in facts.users:
            space = header_at(self.data, address).space
            if space is None or not 0 <= axis < len(space.shape):
                raise UnsupportedError("malformed reference")
            if space.most[axis] == -1:
                longest = max(longest, space.shape[axis])
        return longest

    def close(self) -> None:
        """Close the file; it may be closed already."""
        self._file.close()


def _is_dataset(header: Header) -> bool:
    complete = header.space is not None and header.datatype is not None and header.layout is not None
    return complete and header.link_index is None and header.symbols is None
