"""Identifiers of files that are missing, repeated or malformed."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from aggarray.formats.partial_scan import FileLayout
from aggarray.layout.base import Archive, Check, Finding
from aggarray.layout.remedies import NCO, is_netcdf, with_identifier

_ATTRIBUTE = "tracking_id"
#: Prefixes of identifiers by ``mip_era``.
_PREFIXES = {"CMIP6": "hdl:21.14100/", "CMIP7": "hdl:21.14107/"}


def _lines(files: Mapping[str, FileLayout], chosen: Iterable[str], settings: Mapping[str, Any]) -> dict[str, str]:
    """Return the lines that give files identifiers of their own."""
    known = (str(file.structure.attrs.get(_ATTRIBUTE, "")) for file in files.values())
    usual = next((text for text in known if re.fullmatch(settings["pattern"], text)), None)
    lines = {}
    for path in chosen:
        own = _PREFIXES.get(str(files[path].structure.attrs.get("mip_era")), "")
        prefix = settings.get("prefix") or (own if usual is None else usual[: usual.rfind("/") + 1])
        if is_netcdf(files[path]) and re.fullmatch(settings["pattern"], f"{prefix}{uuid.uuid4()}"):
            lines[path] = with_identifier(path, _ATTRIBUTE, prefix)
    return lines


def find(archive: Archive, settings: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield missing, repeated and malformed identifiers."""
    layouts = {file.uri: file for file in archive.files}
    known = {uri: file.structure.attrs.get(_ATTRIBUTE) for uri, file in layouts.items()}
    values = {uri: str(value) for uri, value in known.items() if value is not None}
    faults: dict[str, list[str]] = {}
    for uri in known:
        if uri not in values and (values or settings["required"]):
            faults.setdefault("missing", []).append(uri)
    users: dict[str, list[str]] = {}
    for uri, text in values.items():
        # An extract has a line for each file that it was made of.
        identifiers = text.split("\n")
        for identifier in identifiers:
            users.setdefault(identifier, []).append(uri)
        if not all(re.fullmatch(settings["pattern"], identifier) for identifier in identifiers):
            faults.setdefault("malformed", []).append(uri)
    repeated = {text: own[1:] for text, own in users.items() if len(own) > 1}
    faults |= {"repeated": [uri for own in repeated.values() for uri in own]} if repeated else {}
    examples = {
        "repeated": next(iter(repeated), ""),
        "malformed": values[faults["malformed"][0]] if "malformed" in faults else "",
    }
    for fault, files in faults.items():
        example = f" ({examples[fault]!r})" if fault in examples else ""
        lines = _lines(layouts, files, settings)
        note = "" if len(lines) == len({*files}) else f"give each file an identifier of its own where {NCO}"
        yield Finding(f"{_ATTRIBUTE} {fault}{example}", tuple(dict.fromkeys(files)), len(known), lines, note)


CHECK = Check("tracking_id", {"required": bool, "pattern": str, "prefix": str}, find, ("prefix",))
