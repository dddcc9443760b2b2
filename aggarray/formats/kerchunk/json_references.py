"""kerchunk references in a JSON file.

Version 0 is a plain mapping. Version 1 has templates and generators.
"""

import json
from collections.abc import Mapping
from typing import Any

from aggarray.errors import FormatError
from aggarray.formats.kerchunk.references import (
    FileNames,
    ReferenceTable,
    base_folder,
    build_table,
    decode_inline,
    group_by_array,
    is_metadata,
    parse_reference,
    reference_error,
)
from aggarray.formats.kerchunk.templates import MOST, generate, render
from aggarray.formats.zarr.chunk_keys import Numbering
from aggarray.formats.zarr.nodes import Node, nodes_in


class JSONReferences:
    """References in one JSON file. Raises FormatError for invalid references."""

    def __init__(self, path: str, data: bytes | memoryview) -> None:
        self._path, self._names = path, FileNames(base_folder(path))
        entries = _entries(path, _object(path, data))
        self.nodes: Mapping[str, Node] = nodes_in(_metadata(path, entries), path)
        if not self.nodes:
            what = "not kerchunk references: the JSON has no metadata of arrays"
            raise FormatError(what, path=path, hint="name the data files")
        arrays = [name for name, node in self.nodes.items() if node.meta is not None]
        keys = group_by_array((key for key in entries if not is_metadata(key)), arrays)
        if arrays == [""]:
            keys = {"": [key for key in entries if not is_metadata(key)]}
        self._references = {name: [(key, entries[key]) for key in own] for name, own in keys.items()}

    def table(self, name: str, numbering: Numbering) -> ReferenceTable:
        """Return the references of an array."""
        start = len(name) + 1 if name else 0
        numbered = ((numbering.number(key[start:]), key, entry) for key, entry in self._references.get(name, ()))
        return build_table(
            (number, parse_reference(self._path, key, entry, self._names))
            for number, key, entry in numbered
            if number is not None
        )


def _object(path: str, data: bytes | memoryview) -> dict[str, Any]:
    try:
        content = json.loads(bytes(data))
    except (ValueError, RecursionError) as error:
        raise FormatError(f"damaged JSON ({error})", path=path, hint="write the references again") from error
    if not isinstance(content, dict):
        raise FormatError("not kerchunk references: the JSON is not an object", path=path, hint="name the data files")
    return content


def _entries(path: str, content: dict[str, Any]) -> dict[str, Any]:
    """Return the references by key, with templates and generators expanded."""
    if not ("refs" in content or "gen" in content or type(content.get("version")) is int):
        return content
    if content.get("version", 1) not in (0, 1):
        what = f"unknown version {content['version']!r:.20} of references"
        raise FormatError(what, path=path, hint="write the references again in version 0 or 1")
    refs: Any = content.get("refs") or {}
    templates: Any = content.get("templates") or {}
    gen: Any = content.get("gen") or []
    texts = isinstance(templates, dict) and all(isinstance(text, str) for text in templates.values())
    if not isinstance(refs, dict) or not isinstance(gen, list) or not texts:
        what = "damaged references: refs, templates or gen has a wrong type"
        raise FormatError(what, path=path, hint="write the references again")
    entries = {key: _expand(path, key, entry, templates) for key, entry in refs.items()} if templates else dict(refs)
    count = 0
    for number, entry in enumerate(gen):
        try:
            if not isinstance(entry, dict):
                raise ValueError("an entry is not an object")
            for key, reference in generate(entry, templates, MOST - count):
                entries[key] = reference
                count += 1
        except (ValueError, TypeError) as error:
            raise reference_error(path, f"gen[{number}]", str(error)) from error
    return entries


def _expand(path: str, key: str, entry: Any, templates: Mapping[str, str]) -> Any:
    """Return a reference with the templates of its file name expanded."""
    if not isinstance(entry, list) or not entry or not isinstance(entry[0], str):
        return entry
    try:
        return [render(entry[0], {}, templates), *entry[1:]]
    except (ValueError, TypeError) as error:
        raise reference_error(path, key, str(error)) from error


def _metadata(path: str, entries: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata among the references as objects by key."""
    objects = {}
    for key, entry in entries.items():
        if not is_metadata(key):
            continue
        if isinstance(entry, str):
            try:
                entry = json.loads(decode_inline(path, key, entry.encode("utf-8", "surrogateescape")))
            except (ValueError, RecursionError) as error:
                if isinstance(error, FormatError):
                    raise
                raise reference_error(path, key, f"damaged JSON ({error})") from error
        if not isinstance(entry, dict):
            raise reference_error(path, key, "metadata must be objects in the references themselves")
        objects[key] = entry
    consolidated = objects.pop(".zmetadata", None)
    return objects or dict((consolidated or {}).get("metadata") or {})
