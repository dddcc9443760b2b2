"""Where do the links of an HDF5 file lead? Soft links are followed inside the file, links into other files are not."""

from aggarray.formats._h5.data import UNDEFINED, Data
from aggarray.formats._h5.groups import links_of
from aggarray.formats._h5.headers import Header, header_at
from aggarray.formats._h5.messages import Link
from aggarray.formats._hdf5_links import DANGLING, MOST_FOLLOWED, OUTSIDE, parts


class Links:
    """The links of the groups of one file, read once each."""

    def __init__(self, data: Data, root: int):
        self._data, self._root = data, root
        self._groups: dict[int, dict[bytes, Link]] = {}

    def of(self, address: int, header: Header) -> dict[bytes, Link]:
        """Return the links of the group at an address by name, in order."""
        found = self._groups.get(address)
        if found is None:
            found = self._groups[address] = {link.name: link for link in links_of(self._data, header)}
        return found

    def resolve(self, group: int, path: bytes) -> int | str:
        """Return the address of the object that a path from a group leads to, or why it leads to none."""
        at, left, followed = group, parts(path), 0
        while left:
            name = left.pop()
            header = header_at(self._data, at)
            link = self.of(at, header).get(name) if header.is_group else None
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
