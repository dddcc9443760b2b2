"""Which arrays and groups are in a Zarr store, and what does their metadata say?

Metadata are JSON, one file per node or consolidated in one file, of version 2 or 3. What is no object where one should be is
damage.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from aggarray.errors import FormatError
from aggarray.formats.base import basename


@dataclass(frozen=True, slots=True)
class Node:
    """An array or a group as its metadata describes it; ``meta`` is None for a group."""

    version: Literal[2, 3]
    meta: Mapping[str, Any] | None
    attrs: Mapping[str, Any]


def json_in(*parts: str) -> dict[str, Any] | None:
    """Return the object in a JSON file, None where there is no such file."""
    path = os.path.join(*parts)
    try:
        with open(path, "rb") as file:
            found = json.load(file)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{path}: damaged JSON ({error}); write the store's metadata again") from error
    return _object(found, path)


def _object(found: Any, path: str) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise FormatError(f"{path}: damaged JSON (an object is wanted, not {found!r:.40}); write the store's metadata again")
    return found


def load(folder: str) -> Node | None:
    """Return the node in a folder, None where there is none."""
    third = json_in(folder, "zarr.json")
    if third is not None:
        return _third(third, folder)
    meta = json_in(folder, ".zarray")
    if meta is None and json_in(folder, ".zgroup") is None:
        return None
    return Node(2, meta, json_in(folder, ".zattrs") or {})


def _third(found: Any, path: str) -> Node:
    found = _object(found, path)
    if found.get("node_type") not in ("array", "group"):
        raise FormatError(f"{path}: damaged metadata (neither array nor group); write the store's metadata again")
    attrs = _object(found.get("attributes") or {}, path)
    return Node(3, found if found.get("node_type") == "array" else None, attrs)


def nodes_of(path: str, names: Sequence[str] | None = None) -> dict[str, Node]:
    """Return every node of a store by its path in it, the root under the empty name.

    ``names``: of those wanted beside the root; others may be left out.
    """
    third = json_in(path, "zarr.json")
    inline = None if third is None else third.get("consolidated_metadata")
    if third is not None and isinstance(inline, dict):
        members = _object(inline.get("metadata"), path)
        return {"": _third(third, path), **{name: _third(member, path) for name, member in members.items()}}
    second = None if third is not None else json_in(path, ".zmetadata")
    if second is not None:
        return _consolidated(_object(second.get("metadata"), path), path)
    if names is None:
        return dict(_walk(path, ""))
    loaded = {name: load(os.path.join(path, *name.split("/"))) for name in ("", *names)}
    return {name: node for name, node in loaded.items() if node is not None}


def nodes_in(entries: Mapping[str, Any], path: str) -> dict[str, Node]:
    """Return every node that metadata describe, of either version: ``entries``: objects by the names of their files."""
    third = {key.rpartition("/")[0]: _third(value, path) for key, value in entries.items() if basename(key) == "zarr.json"}
    return {**_consolidated(entries, path), **third}


def _consolidated(entries: Mapping[str, Any], path: str) -> dict[str, Node]:
    found = {}
    for key, value in entries.items():
        name, _, kind = key.rpartition("/")
        if kind in (".zarray", ".zgroup"):
            attrs = _object(entries.get(f"{name}/.zattrs" if name else ".zattrs") or {}, path)
            found[name] = Node(2, _object(value, path) if kind == ".zarray" else None, attrs)
    return found


def _walk(folder: str, name: str) -> Iterator[tuple[str, Node]]:
    node = load(folder)
    if node is None:
        return
    yield name, node
    if node.meta is None:
        # An array's folder is not listed: it may hold a million chunks.
        for child in sorted(entry.name for entry in os.scandir(folder) if entry.is_dir()):
            yield from _walk(os.path.join(folder, child), f"{name}/{child}" if name else child)
