"""What is a variable of an open file: where is its object header, and what shape has it?

Only what leads to the variable is looked at: the groups that it is in, and the other datasets along its unlimited dimensions.
"""

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from aggarray.formats.hdf5.metadata.conventions import ObjectAttributes, attributes_at
from aggarray.formats.hdf5.metadata.data import UNDEFINED, Data, UnsupportedError, require, require_supported
from aggarray.formats.hdf5.metadata.dimensions import NOT_COORDINATE
from aggarray.formats.hdf5.metadata.groups import links_of
from aggarray.formats.hdf5.metadata.headers import Header, header_at
from aggarray.formats.hdf5.metadata.heaps import GlobalHeap
from aggarray.formats.hdf5.metadata.links import Links
from aggarray.formats.hdf5.metadata.superblock import root_address
from aggarray.storage.byte_source import open_source
from aggarray.storage.lru_cache import LRUCache

_T = TypeVar("_T")

#: Links of groups are kept by path and state of the file, so many, but one group's at least; and as many lengths of dimensions.
_KEPT = 1 << 18
_groups = LRUCache(lambda: _KEPT, lambda kept: min(8 + (len(kept[0]) if type(kept) is tuple else 0), _KEPT))
_lengths = LRUCache(lambda: _KEPT, lambda _: 1)


class H5File:
    """An open file. Its methods raise one of `data.UNREADABLE` where it is left to the libraries, as does opening it.

    A file is opened for each variable that is read: what is in its groups is kept until it changes.
    """

    __slots__ = ("_at", "_file", "_links", "data", "heap", "root")

    def __init__(self, path: str):
        self._file = open_source(path)
        try:
            self.data = Data(self._file)
            self.heap = GlobalHeap(self.data)
            self._at = root_address(self.data)
            self.root = header_at(self.data, self._at)
            self._links: dict[str, dict[bytes, int]] = {}
            self._group("")
        except BaseException:
            self.close()
            raise

    def holds(self, name: str) -> bool:
        """Tell whether there is something of a name at the top, be it a link to elsewhere."""
        return any(link.name == name.encode() for link in links_of(self.data, self.root))

    def has(self, path: str) -> bool:
        """Tell whether a group has something of a name, which may be stored under another."""
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
        """Return the header of the dataset of a variable, which is another where it is named like a dimension."""
        prefix, slash, name = path.rpartition("/")
        other = f"{NOT_COORDINATE}{name}"
        return self.dataset(f"{prefix}{slash}{other}" if other.encode() in self._group(prefix) else path)

    def _group(self, path: str) -> dict[bytes, int]:
        """Return what is in a group, by name."""
        found = self._links.get(path)
        if found is None:
            found = self._links[path] = self._kept(_groups, path, partial(self._read_group, path))
        return found

    def _kept(self, cache: LRUCache, what: str | int, read: Callable[[], _T]) -> _T:
        """Return what a cache has of the file, else what reading gives, which is kept; so is an UnsupportedError."""
        # promise: hdf5-name-cache
        key = (self._file.path, self._file.state, what)
        kept: tuple[_T] | UnsupportedError | None = cache.get(key)
        if kept is None:
            try:
                kept = (read(),)
            except UnsupportedError as error:
                kept = type(error)(str(error))
            cache.keep(key, kept)
        if isinstance(kept, UnsupportedError):
            raise type(kept)(str(kept))
        return kept[0]

    def _read_group(self, path: str) -> dict[bytes, int]:
        at, header = self._at, self.root
        if path:
            prefix, _, name = path.rpartition("/")
            address = self._group(prefix).get(name.encode()) if name not in ("", ".") else None
            require_supported(address is not None, "no such group")
            at, header = address or 0, header_at(self.data, address or 0)
        links, found = Links(self.data, self._at), {}
        for link in links.of(at, header):
            target = link.address if link.target is None else links.resolve(at, link.name)
            if isinstance(target, int) and target != UNDEFINED:
                found[link.name] = target
        return found

    def facts(self, header: Header) -> ObjectAttributes:
        """Return what the attributes of an object say."""
        return attributes_at(self.data, header)

    def shape(self, header: Header) -> tuple[int, ...]:
        """Return the shape of a variable: along unlimited dimensions that of the longest one which has them.

        netCDF-4 lets one variable lengthen a dimension without touching the others.
        """
        space = header.space
        if space is None or space.empty:
            raise UnsupportedError("dataset without a shape")
        unlimited = [axis for axis, most in enumerate(space.most) if most == -1]
        if not unlimited:
            return space.shape
        facts, shape = self.facts(header), list(space.shape)
        if facts.listed is None:
            if facts.scale:
                require_supported(unlimited == [0], "dimension scale with another unlimited dimension")
                return (max(shape[0], self._longest(header, facts)), *shape[1:])
            # Dimensions known by number alone: nothing leads to the other variables that have them.
            require_supported(facts.numbers is None, "dimensions identified by number")
            return space.shape
        require(len(facts.listed) == len(shape), "malformed list of dimension scales")
        for axis in unlimited:
            count, address, number = facts.listed[axis]
            packed = self.heap.get(address, number) if count else b""
            require(len(packed) == 8 * count and packed[:8] != bytes(8), "malformed reference")
            if count:
                scale = int.from_bytes(packed[:8], "little")
                shape[axis] = max(shape[axis], self._kept(_lengths, scale, partial(self._scale_length, scale)))
        return tuple(shape)

    def _scale_length(self, address: int) -> int:
        header = header_at(self.data, address)
        return self._longest(header, self.facts(header))

    def _longest(self, scale: Header, facts: ObjectAttributes) -> int:
        """Return the length of the unlimited dimension of a scale: that of the longest variable which has it."""
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
        """Close the file; twice does no harm."""
        self._file.close()


def _is_dataset(header: Header) -> bool:
    there = header.space is not None and header.datatype is not None and header.layout is not None
    return there and header.link_index is None and header.symbols is None
