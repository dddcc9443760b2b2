"""What references does a JSON file of kerchunk hold, of version 0 (a plain mapping) or 1 (with templates and generators)?"""

import json
from collections.abc import Mapping
from typing import Any

from aggarray.errors import FormatError
from aggarray.formats.kerchunk.references import (
    FileNames,
    PlacedChunks,
    by_array,
    checked,
    decoded,
    home_of,
    is_metadata,
    placed_of,
    wrong,
)
from aggarray.formats.kerchunk.templates import MOST, generated, rendered
from aggarray.formats.zarr.chunk_keys import Numbering
from aggarray.formats.zarr.nodes import Node, nodes_in


class JSONReferences:
    """The references in one JSON file; FormatError where they make no sense."""

    def __init__(self, path: str, data: bytes | memoryview) -> None:
        self._path, self._names = path, FileNames(home_of(path))
        entries = _entries(path, _object(path, data))
        self.nodes: Mapping[str, Node] = nodes_in(_metadata(path, entries), path)
        if not self.nodes:
            raise FormatError(f"{path}: JSON without the metadata of any array: no kerchunk references; name the data files")
        arrays = [name for name, node in self.nodes.items() if node.meta is not None]
        keys = by_array((key for key in entries if not is_metadata(key)), arrays)
        if arrays == [""]:
            keys = {"": [key for key in entries if not is_metadata(key)]}
        self._references = {name: [(key, entries[key]) for key in own] for name, own in keys.items()}

    def placed(self, name: str, numbering: Numbering) -> PlacedChunks:
        """Return where the chunks of an array are."""
        start = len(name) + 1 if name else 0
        numbered = ((numbering.number(key[start:]), key, given) for key, given in self._references.get(name, ()))
        return placed_of(
            (number, checked(self._path, key, given, self._names)) for number, key, given in numbered if number is not None
        )


def _object(path: str, data: bytes | memoryview) -> dict[str, Any]:
    try:
        found = json.loads(bytes(data))
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{path}: damaged JSON ({error}); write the references again") from error
    if not isinstance(found, dict):
        raise FormatError(f"{path}: no kerchunk references: JSON that is no object; name the data files")
    return found


def _entries(path: str, found: dict[str, Any]) -> dict[str, Any]:
    """Return the references by key, templates and generators expanded."""
    if not ("refs" in found or "gen" in found or type(found.get("version")) is int):
        return found
    if found.get("version", 1) not in (0, 1):
        raise FormatError(f"{path}: references of version {found['version']!r:.20}; 0 and 1 are understood: write it again")
    refs: Any = found.get("refs") or {}
    templates: Any = found.get("templates") or {}
    gen: Any = found.get("gen") or []
    if not isinstance(refs, dict) or not isinstance(gen, list) or not _are_texts(templates):
        raise FormatError(f"{path}: damaged references: refs, templates or gen is not what it should be; write it again")
    entries = {key: _filled(path, key, given, templates) for key, given in refs.items()} if templates else dict(refs)
    count = 0
    for number, entry in enumerate(gen):
        try:
            if not isinstance(entry, dict):
                raise ValueError("an entry is an object")
            for key, reference in generated(entry, templates, MOST - count):
                entries[key] = reference
                count += 1
        except (ValueError, TypeError) as error:
            raise wrong(path, f"gen[{number}]", str(error)) from error
    return entries


def _are_texts(templates: Any) -> bool:
    return isinstance(templates, dict) and all(isinstance(text, str) for text in templates.values())


def _filled(path: str, key: str, given: Any, templates: Mapping[str, str]) -> Any:
    """Return a reference with the templates in the name of its file filled in."""
    if not isinstance(given, list) or not given or not isinstance(given[0], str):
        return given
    try:
        return [rendered(given[0], {}, templates), *given[1:]]
    except (ValueError, TypeError) as error:
        raise wrong(path, key, str(error)) from error


def _metadata(path: str, entries: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata among the references, as objects by key."""
    found = {}
    for key, given in entries.items():
        if not is_metadata(key):
            continue
        if isinstance(given, str):
            try:
                given = json.loads(decoded(path, key, given.encode("utf-8", "surrogateescape")))
            except (ValueError, RecursionError) as error:
                if isinstance(error, FormatError):
                    raise
                raise wrong(path, key, f"damaged JSON ({error})") from error
        if not isinstance(given, dict):
            raise wrong(path, key, "metadata are objects, and stand in the references themselves")
        found[key] = given
    whole = found.pop(".zmetadata", None)
    return found or dict((whole or {}).get("metadata") or {})
