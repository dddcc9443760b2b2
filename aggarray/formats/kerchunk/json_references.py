"""kerchunk references in a JSON file.

Version 0 is a plain mapping. Version 1 has templates and generators.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from aggarray.errors import FormatError
from aggarray.formats.kerchunk.references import MOST_BYTES, Reference, References, ReferenceTable, build_table
from aggarray.formats.kerchunk.templates import MOST, generate, render
from aggarray.formats.zarr.chunk_keys import Numbering
from aggarray.formats.zarr.nodes import nodes_in

_METADATA = (".zarray", ".zgroup", ".zattrs", "zarr.json", ".zmetadata")
_AGAIN, _NAME_FILES = "write the references again", "name the data files"


class JSONReferences(References):
    """References in one JSON file. Raises FormatError for invalid references."""

    def __init__(self, path: str, data: bytes | memoryview) -> None:
        super().__init__(path)
        try:
            content = json.loads(bytes(data))
        except (ValueError, RecursionError) as error:
            raise FormatError(f"damaged JSON ({error})", path=path, hint=_AGAIN) from error
        if not isinstance(content, dict):
            raise FormatError("not kerchunk references: the JSON is not an object", path=path, hint=_NAME_FILES)
        entries = self._entries(content)
        self.nodes = nodes_in(self._metadata(entries), path)
        if not self.nodes:
            what = "not kerchunk references: the JSON has no metadata of arrays"
            raise FormatError(what, path=path, hint=_NAME_FILES)
        self._references = _group_by_array(entries, [name for name, node in self.nodes.items() if node.meta is not None])

    def table(self, name: str, numbering: Numbering) -> ReferenceTable:
        """Return the references of an array."""
        start = len(name) + 1 if name else 0
        numbered = ((numbering.number(key[start:]), key, entry) for key, entry in self._references.get(name, ()))
        return build_table((number, self._parse(key, entry)) for number, key, entry in numbered if number is not None)

    def _parse(self, key: str, reference: Any) -> Reference:
        """Return a reference of JSON, or raise FormatError with file and key."""
        if isinstance(reference, str):
            return self.decode_inline(key, reference.encode("utf-8", "surrogateescape"))
        if not isinstance(reference, list) or len(reference) not in (1, 3) or not isinstance(reference[0], str):
            raise self.error(key, f"{reference!r:.80} is not a reference (text, [file] or [file, offset, size])")
        name, offset, size = reference if len(reference) == 3 else (reference[0], 0, 0)
        if not (type(offset) is type(size) is int and 0 <= offset <= MOST_BYTES and 0 <= size <= MOST_BYTES - offset):
            raise self.error(key, f"{size!r:.30} bytes at offset {offset!r:.30} are not a byte range")
        return self.resolve_name(key, name), offset, size

    def _entries(self, content: dict[str, Any]) -> dict[str, Any]:
        if not ("refs" in content or "gen" in content or type(content.get("version")) is int):
            return content
        if content.get("version", 1) not in (0, 1):
            what = f"unknown version {content['version']!r:.20} of references"
            raise FormatError(what, path=self.path, hint="write the references again in version 0 or 1")
        refs, templates, gen = content.get("refs") or {}, content.get("templates") or {}, content.get("gen") or []
        texts = isinstance(templates, dict) and all(isinstance(text, str) for text in templates.values())
        if not isinstance(refs, dict) or not isinstance(gen, list) or not texts:
            what = "damaged references: refs, templates or gen has a wrong type"
            raise FormatError(what, path=self.path, hint=_AGAIN)
        entries = {key: self._expand(key, entry, templates) for key, entry in refs.items()} if templates else dict(refs)
        count = 0
        for number, entry in enumerate(gen):
            try:
                if not isinstance(entry, dict):
                    raise ValueError("an entry is not an object")
                for key, reference in generate(entry, templates, MOST - count):
                    entries[key] = reference
                    count += 1
            except (ValueError, TypeError) as error:
                raise self.error(f"gen[{number}]", str(error)) from error
        return entries

    def _expand(self, key: str, entry: Any, templates: Mapping[str, str]) -> Any:
        if not isinstance(entry, list) or not entry or not isinstance(entry[0], str):
            return entry
        try:
            return [render(entry[0], {}, templates), *entry[1:]]
        except (ValueError, TypeError) as error:
            raise self.error(key, str(error)) from error

    def _metadata(self, entries: Mapping[str, Any]) -> dict[str, Any]:
        objects = {}
        for key, entry in entries.items():
            if not _is_metadata(key):
                continue
            if isinstance(entry, str):
                try:
                    entry = json.loads(self.decode_inline(key, entry.encode("utf-8", "surrogateescape")))
                except (ValueError, RecursionError) as error:
                    raise self.error(key, f"damaged JSON ({error})") from error
            if not isinstance(entry, dict):
                raise self.error(key, "metadata must be objects in the references themselves")
            objects[key] = entry
        consolidated = objects.pop(".zmetadata", None)
        return objects or dict((consolidated or {}).get("metadata") or {})


def _is_metadata(key: str) -> bool:
    return key.rpartition("/")[2] in _METADATA


def _group_by_array(entries: Mapping[str, Any], arrays: list[str]) -> dict[str, list[tuple[str, Any]]]:
    """Group references of chunks by the innermost array; drop others.

    >>> _group_by_array({"a/.zarray": {}, "a/0.0": 1, "a/c/0": 2, "x/0": 3, "b/0": 4}, ["a", "b"])
    {'a': [('a/0.0', 1), ('a/c/0', 2)], 'b': [('b/0', 4)]}
    """
    groups: dict[str, list[tuple[str, Any]]] = {name: [] for name in arrays}
    for key, entry in entries.items():
        name = None if _is_metadata(key) else key
        while name:
            name = name.rpartition("/")[0]
            if name in groups:
                groups[name].append((key, entry))
                break
    return groups
