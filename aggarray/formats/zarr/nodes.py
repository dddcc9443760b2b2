"""Which arrays and groups are in a Zarr store, and what does their metadata say?

Metadata are JSON, one file per node or consolidated in one file, of version 2 or 3. What is no object where one should be is
damage.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from aggarray.errors import FormatError
from aggarray.formats.base import basename
from aggarray.storage.files import contents, folders_in
from aggarray.storage.remote import is_remote, join

#: What chunks are called, or the folder that they are in.
_CHUNK = re.compile(r"c|(c\.)?\d+(\.\d+)*")


@dataclass(frozen=True, slots=True)
class Node:
    """An array or a group as its metadata describes it; ``meta`` is None for a group."""

    version: Literal[2, 3]
    meta: Mapping[str, Any] | None
    attrs: Mapping[str, Any]


def json_in(folder: str, name: str) -> dict[str, Any] | None:
    """Return the object in a JSON file of a folder, None where there is no such file."""
    path = join(folder, name)
    data = contents([path])[0]
    return None if data is None else _parsed(path, data)


def _parsed(path: str, data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{path}: damaged JSON ({error}); write the store's metadata again") from error
    return _object(found, path)


def _object(found: Any, path: str) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise FormatError(f"{path}: damaged JSON (an object is wanted, not {found!r:.40}); write the store's metadata again")
    return found


def load(folder: str) -> Node | None:
    """Return the node in a folder, None where there is none."""
    return load_all([folder])[0]


def load_all(folders: Sequence[str], version: int | None = None) -> list[Node | None]:
    """Return the nodes in folders, None where there is none.

    ``version``: that of the store, if known: of a remote one nothing else is asked for, and all at once.
    """
    known: dict[str, bytes | None] = {}
    if any(map(is_remote, folders)):
        paths = [join(folder, name) for folder in folders for name in _FILES[version or 0]]
        known = dict(zip(paths, contents(paths), strict=True))
    return [_node(folder, known) for folder in folders]


#: The metadata of a node in each version, or in one of them.
_FILES = {0: ("zarr.json", ".zarray", ".zgroup", ".zattrs"), 2: (".zarray", ".zgroup", ".zattrs"), 3: ("zarr.json",)}


def _node(folder: str, known: Mapping[str, bytes | None]) -> Node | None:
    def parsed(name: str) -> dict[str, Any] | None:
        path = join(folder, name)
        data = known.get(path) if known else contents([path])[0]
        return None if data is None else _parsed(path, data)

    third = parsed("zarr.json")
    if third is not None:
        return _third(third, folder)
    meta = parsed(".zarray")
    return None if meta is None and parsed(".zgroup") is None else Node(2, meta, parsed(".zattrs") or {})


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
        return dict(_walk([path], [""]))
    wanted = ("", *names)
    loaded = load_all([join(path, *name.split("/")) for name in wanted], None if third is None else 3)
    return {name: node for name, node in zip(wanted, loaded, strict=True) if node is not None}


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


def _walk(folders: Sequence[str], names: Sequence[str], version: int | None = None) -> Iterator[tuple[str, Node]]:
    """Yield the nodes in folders of one level, each followed by those below it."""
    for folder, name, node in zip(folders, names, load_all(folders, version), strict=True):
        if node is None:
            continue
        yield name, node
        if node.meta is None:
            # An array's folder is not listed: it may hold a million chunks.
            below = folders_in(folder)
            yield from _walk([join(folder, b) for b in below], [f"{name}/{b}" if name else b for b in below], node.version)


def lost_arrays(path: str, nodes: Mapping[str, Node]) -> list[str]:
    """Return the folders of a local store that have chunks, but no metadata any more."""
    if is_remote(path):
        return []
    found = []
    for group in (name for name, node in nodes.items() if node.meta is None):
        folder = os.path.join(path, group)
        for name in folders_in(folder) if os.path.isdir(folder) else ():
            whole = f"{group}/{name}" if group else name
            if whole not in nodes and any(map(_CHUNK.fullmatch, os.listdir(os.path.join(folder, name)))):
                # promise: zarr-lost-metadata
                found.append(whole)
    return found


def files_of(node: Node) -> dict[str, bytes]:
    """Return the metadata of an array as files of a store have them, by name."""
    if node.version == 3:
        return {"zarr.json": json.dumps(node.meta).encode()}
    return {".zarray": json.dumps(node.meta).encode(), ".zattrs": json.dumps(node.attrs).encode()}
