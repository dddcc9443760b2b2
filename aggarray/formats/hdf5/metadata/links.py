"""Where do the links of an HDF5 file lead? Soft links are followed inside the file, links into other files are not."""

from aggarray.formats.hdf5.links import parts
from aggarray.formats.hdf5.metadata.data import UNDEFINED, Data
from aggarray.formats.hdf5.metadata.groups import links_of
from aggarray.formats.hdf5.metadata.headers import Header, header_at
from aggarray.formats.hdf5.metadata.messages import Link
from aggarray.formats.hdf5.refusals import DANGLING, MOST_FOLLOWED, OUTSIDE


class Links:
    """The links of the groups of one file, read once each."""

    def __init__(self, data: Data, root: int):
        self._data, self._root = data, root
        self._groups: dict[int, tuple[Link, ...]] = {}
        self._names: dict[int, dict[bytes, Link]] = {}

    def of(self, address: int, header: Header) -> tuple[Link, ...]:
        """Return the links of the group at an address, in order."""
        found = self._groups.get(address)
        if found is None:
            found = self._groups[address] = links_of(self._data, header)
        return found

    def _named(self, address: int) -> dict[bytes, Link]:
        """Return the links of the object at an address by name, none for what is no group."""
        found = self._names.get(address)
        if found is None:
            header = header_at(self._data, address)
            links = self.of(address, header) if header.is_group else ()
            found = self._names[address] = {link.name: link for link in links}
        return found

    def resolve(self, group: int, path: bytes) -> int | str:
        """Return the address of the object that a path from a group leads to, or why it leads to none."""
        at, left, followed = group, parts(path), 0
        while left:
            link = self._named(at).get(left.pop())
            if link is None or followed > MOST_FOLLOWED:
                return DANGLING
            if link.target is not None:
                followed += 1
                target = link.target.rstrip(b"\0")
                at = self._root if target.startswith(b"/") else at
                left += parts(target)
            elif link.address == UNDEFINED:
                return OUTSIDE
            else:
                at = link.address
        return at
