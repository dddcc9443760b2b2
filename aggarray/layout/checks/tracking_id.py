"""Identifiers of files that are missing, repeated or malformed."""

import re
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from aggarray.layout.base import Archive, Check, Finding
from aggarray.layout.remedies import with_attribute

_ATTRIBUTE = "tracking_id"


def _remedy(archive: Archive, path: str, settings: Mapping[str, Any]) -> str | None:
    """Return the line that gives a file an identifier of its own."""
    known = (str(file.structure.attrs.get(_ATTRIBUTE, "")) for file in archive.files)
    usual = next((text for text in known if re.fullmatch(settings["pattern"], text)), "")
    # The same for every run, so that the line is the same.
    new = str(uuid.UUID(bytes=uuid.uuid5(uuid.NAMESPACE_URL, path).bytes, version=4))
    value = f"{settings.get('prefix') or usual[: usual.rfind('/') + 1]}{new}"
    is_netcdf = any(file.uri == path and file.structure.format.startswith("netCDF") for file in archive.files)
    return with_attribute(path, "global", _ATTRIBUTE, value) if is_netcdf else None


def find(archive: Archive, settings: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield missing, repeated and malformed identifiers."""
    known = {file.uri: file.structure.attrs.get(_ATTRIBUTE) for file in archive.files}
    values = {uri: str(value) for uri, value in known.items() if value is not None}
    faults: dict[str, list[str]] = {}
    for uri in known:
        if uri not in values and (values or settings["required"]):
            faults.setdefault("missing", []).append(uri)
    users: dict[str, list[str]] = {}
    for uri, text in values.items():
        # An extract has a line for each file that it was made of.
        lines = text.split("\n")
        for line in lines:
            users.setdefault(line, []).append(uri)
        if not all(re.fullmatch(settings["pattern"], line) for line in lines):
            faults.setdefault("malformed", []).append(uri)
    repeated = {text: own[1:] for text, own in users.items() if len(own) > 1}
    faults |= {"repeated": [uri for own in repeated.values() for uri in own]} if repeated else {}
    examples = {
        "repeated": next(iter(repeated), ""),
        "malformed": values[faults["malformed"][0]] if "malformed" in faults else "",
    }
    for fault, files in faults.items():
        example = f" ({examples[fault]!r})" if fault in examples else ""
        remedy = _remedy(archive, files[0], settings)
        note = "" if remedy else "give each file an identifier of its own"
        yield Finding(f"{_ATTRIBUTE} {fault}{example}", tuple(dict.fromkeys(files)), len(known), remedy, note)


CHECK = Check("tracking_id", {"required": bool, "pattern": str, "prefix": str}, find, ("prefix",))
