"""Lines of the shell that mend a file in place."""

from __future__ import annotations

import shlex
from typing import Any

import numpy as np

from aggarray.formats.partial_scan import FileLayout

#: Where the lines of NCO do not apply, in words.
NCO = "no tool of NCO writes"

#: Types of attributes in NCO, by kind and size of the dtype.
_TYPES = {"f4": "f", "f8": "d", "i1": "b", "i2": "s", "i4": "l", "i8": "ll", "u1": "ub", "u2": "us", "u4": "ul", "u8": "ull"}


def repacked(path: str, *options: str) -> str:
    """Return the line that repacks an HDF5 file in place.

    >>> repacked("a b.nc", "-S", "PAGE")
    "h5repack -S PAGE 'a b.nc' 'a b.nc.part' && mv 'a b.nc.part' 'a b.nc'"
    """
    part = f"{path}.part"
    return f"{shlex.join(['h5repack', *options, path, part])} && {shlex.join(['mv', part, path])}"


def is_netcdf(file: FileLayout) -> bool:
    """Return whether the tools of NCO write a file."""
    return file.structure.format.startswith("netCDF")


def with_attribute(path: str, variable: str, name: str, value: Any) -> str:
    """Return the line that sets an attribute, or deletes it (None).

    ``variable``: "global" for the file, or a path with groups. The result is "" for values that NCO does not write.

    >>> with_attribute("a.nc", "global", "frequency", "day"), with_attribute("a.nc", "tas", "comment", None)
    ('ncatted -h -O -a frequency,global,o,c,day a.nc', 'ncatted -h -O -a comment,tas,d,, a.nc')
    """
    if value is None:
        change = "d,,"
    elif isinstance(value, str):
        change = "o,c," + value.replace("\\", "\\\\")  # NCO reads escapes
    else:
        array = np.atleast_1d(np.asarray(value))
        code = _TYPES.get(f"{array.dtype.kind}{array.dtype.itemsize}")
        if code is None:
            return ""
        change = f"o,{code},{','.join(str(v) for v in array.tolist())}"
    owner = f"/{variable}" if "/" in variable else variable
    return shlex.join(["ncatted", "-h", "-O", "-a", f"{name},{owner},{change}", path])


def with_identifier(path: str, name: str, prefix: str) -> str:
    """Return the line that sets an attribute of a file to a new UUID.

    Each run makes another UUID, of version 4.

    >>> with_identifier("a.nc", "tracking_id", "hdl:21.14107/")
    "ncatted -h -O -a tracking_id,global,o,c,hdl:21.14107/$(python3 -c 'import uuid; print(uuid.uuid4())') a.nc"
    """
    made = "$(python3 -c 'import uuid; print(uuid.uuid4())')"
    return f"ncatted -h -O -a {shlex.quote(f'{name},global,o,c,{prefix}')}{made} {shlex.quote(path)}"
