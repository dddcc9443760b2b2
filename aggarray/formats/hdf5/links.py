"""Which links of an open HDF5 file lead out of it? Which datasets are nothing but dimensions, or have values in other files?

Nothing is opened to find out that a link leads out of a file: opening a pipe or a device would already do harm.
"""

from typing import Any

from aggarray.formats.hdf5.refusals import DANGLING, MOST_FOLLOWED, OUTSIDE

_HERE = (b"", b".")

#: What HDF5 writes into the attribute CLASS of a dimension scale.
_SCALE = b"DIMENSION_SCALE\0"
#: How netCDF-4 marks a dimension scale that stands for no variable.
_PURE_DIMENSION = b"This is a netCDF dimension but not a netCDF variable"


def parts(path: bytes) -> list[bytes]:
    """Return the names in a path, the last one first."""
    return [name for name in reversed(path.split(b"/")) if name not in _HERE]


def leads_outside(file: Any, path: str | bytes) -> str:
    """Return why a path from the top of an open file is not followed: it leaves the file, or runs in a circle; else "".

    ``file``: of h5py, or its ``FileID``. What is not there leads nowhere.
    """
    import h5py

    root = h5py.h5g.open(file.id if isinstance(file, h5py.File) else file, b"/")
    left = parts(path.encode("utf-8", "surrogateescape") if isinstance(path, str) else path)
    way: list[bytes] = []
    followed = 0
    while left:
        way.append(left.pop())
        kind = _kind(root, b"/".join(way))
        if kind == h5py.h5l.TYPE_SOFT:
            followed += 1
            target = root.links.get_val(b"/".join(way))
            way = [] if target.startswith(b"/") else way[:-1]
            left += parts(target)
        elif kind is None:
            return ""
        if kind not in (h5py.h5l.TYPE_HARD, h5py.h5l.TYPE_SOFT):
            return OUTSIDE
        if followed > MOST_FOLLOWED:
            return DANGLING
    return ""


def _kind(group: Any, path: bytes) -> int | None:
    """Return which kind of link a path ends in, all before it being hard links; None where there is nothing."""
    try:
        return int(group.links.get_info(path).type)
    except (KeyError, RuntimeError, ValueError):
        return None


def is_scale(dataset: Any) -> bool:
    """Tell whether a dataset (of h5py) is a dimension scale.

    The library's own answer is not asked for: HDF5 2.0 frees memory twice over other classes whose names are as long.
    """
    import h5py

    if not h5py.h5a.exists(dataset.id, b"CLASS"):
        return False
    kind = h5py.h5a.open(dataset.id, b"CLASS").get_type()
    if not isinstance(kind, h5py.h5t.TypeStringID) or kind.is_variable_str() or kind.get_size() != len(_SCALE):
        return False
    return kind.get_strpad() == h5py.h5t.STR_NULLTERM and bytes(dataset.attrs["CLASS"]) == _SCALE.rstrip(b"\0")


def is_pure_dimension(dataset: Any) -> bool:
    """Tell whether a dataset is a dimension of netCDF-4 without a variable."""
    if not is_scale(dataset) or "NAME" not in dataset.attrs:
        return False
    name = dataset.attrs["NAME"]
    return (name.encode() if isinstance(name, str) else bytes(name)).startswith(_PURE_DIMENSION)


def is_external(dataset: Any) -> bool:
    """Tell whether the values of a dataset (h5py's ``DatasetID``) lie, or may lie, in other files."""
    import h5py

    how = dataset.get_create_plist()
    return bool(how.get_external_count()) or how.get_layout() == h5py.h5d.VIRTUAL
