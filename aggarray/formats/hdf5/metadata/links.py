"""Resolution of links in an HDF5 file; links into other files are not followed."""

from aggarray.formats.hdf5.links import parts
from aggarray.formats.hdf5.metadata.data import UNDEFINED, Data
from aggarray.formats.hdf5.metadata.groups import links_of
from aggarray.formats.hdf5.metadata.headers import Header, header_at
from aggarray.formats.hdf5.metadata.messages import Link
from aggarray.formats.hdf5.refusals import DANGLING, MOST_FOLLOWED, OUTSIDE


class Links:
    """Links of the groups of one file; each group is read once."""

    def __init__(self, data: Data, root: int):
        self._data, self._root = data, root
        self._groups: dict[int, tuple[Link, ...]] = {}
        self._names: dict[int, dict[bytes, Link]] = {}

    def of(self, address: int, header: Header) -> tuple[Link, ...]:
        """Return the links of the group at an address in order."""
        links = self._groups.get(address)
        if links is None:
            links = self._groups[address] = links_of(self._data, header)
        return links

    def _by_name(self, address: int) -> dict[bytes, Link]:
        """Return the links of the object at an address by name, none if it is not a group."""
        by_name = self._names.get(address)
        if by_name is None:
            header = header_at(self._data, address)
            links = self.of(address, header) if header.is_group else ()
            by_name = self._names[address] = {link.name: link for link in links}
        return by_name

    def resolve(self, group: int, path: bytes) -> int | str:
        """Return the address of the object at a path relative to a group, or the reason why there is none."""
        address, remaining, followed = group, parts(path), 0
        while remaining:
            link = self._by_name(address).get(remaining.pop())
            if link is None or followed > MOST_FOLLOWED:
                return DANGLING
            if link.target is not None:
                followed += 1
                target = link.target.rstrip(b"\0")
                address = self._root if target.startswith(b"/") else address
                remaining += parts(target)
            elif link.address == UNDEFINED:
                return OUTSIDE
            else:
                address = link.address
        return address
