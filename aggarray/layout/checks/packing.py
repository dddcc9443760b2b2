"""Types, packing and units that differ between the files of an array."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from aggarray.errors import counted
from aggarray.layout.base import Archive, Check, Extract, Finding, Member, compare, differing, value_text

#: Attributes that give stored values their meaning (CF sections 2.5.1, 3.1 and 8.1).
ATTRIBUTES = ("scale_factor", "add_offset", "_FillValue", "missing_value", "_Unsigned", "units", "calendar")


def _value(member: Member, item: str) -> str:
    """Return the dtype or an attribute as text, "none" if absent."""
    if item == "dtype":
        dtype = member.layout.dtype
        order = "big-endian " if dtype is not None and dtype.newbyteorder(">") == dtype and dtype.itemsize > 1 else ""
        return "no number" if dtype is None else f"{order}{dtype.newbyteorder('=').name}"
    return value_text(member.variable.attrs.get(item))


def find(archive: Archive, settings: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield the arrays with files of another dtype, packing or fill value."""
    for array in archive.arrays:
        for item in ("dtype", *ATTRIBUTES):
            values = compare((member.file.uri, _value(member, item)) for member in array.members)
            for value, more, files in differing(values):
                note = f"{values.usual} in {counted(values.number, 'file')}"
                yield Finding(f"{array.name}: {item} {value}{more}", tuple(files), values.examined, Extract(array.number), note)


CHECK = Check("packing", {}, find)
