"""Is all of an open HDF5 file in it, and each group at one place? Which datasets are nothing but dimensions?

Nothing is opened to find out that a link leads out of a file: opening a pipe or a device would already do harm. netCDF-C
follows every link, and ends the process over groups that hold themselves: it is given files alone that are `plain`.
"""

from typing import Any

#: Groups within groups; those further down are left out.
DEEPEST = 64
#: netCDF-C ends the process over more groups than these in one file.
_MOST_GROUPS = 1 << 15
#: So many soft links are followed on the way to one thing.
_MOST_FOLLOWED = 16
_HERE = (b"", b".")

#: How netCDF-4 marks a dimension scale that stands for no variable.
_PURE_DIMENSION = b"This is a netCDF dimension but not a netCDF variable"


def _parts(path: bytes) -> list[bytes]:
    """Return the names in a path, the last one first."""
    return [name for name in reversed(path.split(b"/")) if name not in _HERE]


def leads_outside(file: Any, path: str | bytes) -> bool:
    """Tell whether a path from the top of an open file runs through a link into another file, or through too many to tell.

    ``file``: of h5py, or its ``FileID``. What is not there leads nowhere.
    """
    import h5py

    root = h5py.h5g.open(file.id if isinstance(file, h5py.File) else file, b"/")
    left = _parts(path.encode("utf-8", "surrogateescape") if isinstance(path, str) else path)
    way: list[bytes] = []
    followed = 0
    while left:
        way.append(left.pop())
        kind = _kind(root, b"/".join(way))
        if kind == h5py.h5l.TYPE_SOFT:
            followed += 1
            target = root.links.get_val(b"/".join(way))
            way = [] if target.startswith(b"/") else way[:-1]
            left += _parts(target)
        elif kind is None:
            return False
        if kind not in (h5py.h5l.TYPE_HARD, h5py.h5l.TYPE_SOFT) or followed > _MOST_FOLLOWED:
            return True
    return False


def _kind(group: Any, path: bytes) -> int | None:
    """Return which kind of link a path ends in, all before it being hard links; None where there is nothing."""
    try:
        return int(group.links.get_info(path).type)
    except (KeyError, RuntimeError, ValueError):
        return None


def is_pure_dimension(dataset: Any) -> bool:
    """Tell whether a dataset is a dimension of netCDF-4 without a variable."""
    import h5py

    if not h5py.h5ds.is_scale(dataset.id) or "NAME" not in dataset.attrs:
        return False
    name = dataset.attrs["NAME"]
    return (name.encode() if isinstance(name, str) else bytes(name)).startswith(_PURE_DIMENSION)


def borrows(dataset: Any) -> bool:
    """Tell whether the values of a dataset (h5py's ``DatasetID``) lie, or may lie, in other files."""
    import h5py

    how = dataset.get_create_plist()
    return bool(how.get_external_count()) or how.get_layout() == h5py.h5d.VIRTUAL


def is_plain(file: Any) -> bool:
    """Tell whether an open file holds all of its values, links are hard, and every group is there once, above `DEEPEST`.

    Files of more groups than netCDF-C bears are not plain, either.
    """
    import h5py

    root = h5py.h5g.open(file.id, b"/")
    seen = {h5py.h5o.get_info(root).addr}
    waiting = [(root, 0)]
    while waiting:
        group, depth = waiting.pop()
        for kind, name in _links(group):
            if kind != h5py.h5l.TYPE_HARD:
                return False
            info = h5py.h5o.get_info(group, name)
            if info.type == h5py.h5o.TYPE_DATASET and borrows(h5py.h5d.open(group, name)):
                return False
            if info.type == h5py.h5o.TYPE_GROUP:
                if info.addr in seen or depth == DEEPEST or len(seen) >= _MOST_GROUPS:
                    return False
                seen.add(info.addr)
                waiting.append((h5py.h5g.open(group, name), depth + 1))
    return True


def _links(group: Any) -> list[tuple[int, bytes]]:
    """Return the links of a group: which kind each is of, and its name."""
    found: list[tuple[int, bytes]] = []

    def note(name: bytes, info: Any) -> None:
        """Take down one link."""
        found.append((int(info.type), name))

    group.links.iterate(note, info=True)
    return found
