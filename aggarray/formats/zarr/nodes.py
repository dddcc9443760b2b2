"""Arrays and groups of a Zarr store, and their metadata.

Metadata are JSON objects of version 2 or 3, in one file per node or consolidated in one file. Other JSON is damaged.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

from aggarray.dataclass import dataclass
from aggarray.errors import FormatError
from aggarray.storage.files import contents, folders_in
from aggarray.storage.urls import is_remote, join

#: Name of a chunk, or of a folder of chunks.
_CHUNK = re.compile(r"c|(c\.)?\d+(\.\d+)*")
_HINT = "write the store's metadata again"


@dataclass(frozen=True, slots=True)
class Node:
    """An array, or a group; ``meta``: JSON object, None for a group."""

    version: Literal[2, 3]
    meta: Mapping[str, Any] | None
    attrs: Mapping[str, Any]


def _content(path: str) -> bytes | None:
    return contents([path])[0]


def json_in(folder: str, name: str, read: Callable[[str], bytes | None] = _content) -> dict[str, Any] | None:
    """Return the object in a JSON file, None if there is no such file."""
    path = join(folder, name)
    data = read(path)
    try:
        return None if data is None else _object(json.loads(data), path)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"damaged JSON ({error})", path=path, hint=_HINT) from error


def _object(value: Any, path: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise FormatError(f"damaged JSON ({value!r:.40} is not an object)", path=path, hint=_HINT)
    return value


def load_all(folders: Sequence[str], version: int | None = None) -> list[Node | None]:
    """Return the node in each folder, None if there is none.

    ``version``: format version of the store, if known. Remote metadata are fetched at once, and only files of this version.
    """
    read: Callable[[str], bytes | None] = _content
    if any(map(is_remote, folders)):
        paths = [join(folder, name) for folder in folders for name in _FILES[version or 0]]
        read = dict(zip(paths, contents(paths), strict=True)).get
    return [_node(folder, read) for folder in folders]


#: Metadata files of a node by format version; 0: any version.
_FILES = {0: ("zarr.json", ".zarray", ".zgroup", ".zattrs"), 2: (".zarray", ".zgroup", ".zattrs"), 3: ("zarr.json",)}


def _node(folder: str, read: Callable[[str], bytes | None]) -> Node | None:
    meta_v3 = json_in(folder, "zarr.json", read)
    if meta_v3 is not None:
        return _node_v3(meta_v3, folder)
    meta = json_in(folder, ".zarray", read)
    if meta is None and json_in(folder, ".zgroup", read) is None:
        return None
    return Node(2, meta, json_in(folder, ".zattrs", read) or {})


def _node_v3(value: Any, path: str) -> Node:
    meta = _object(value, path)
    if meta.get("node_type") not in ("array", "group"):
        raise FormatError("damaged metadata (neither array nor group)", path=path, hint=_HINT)
    attrs = _object(meta.get("attributes") or {}, path)
    return Node(3, meta if meta.get("node_type") == "array" else None, attrs)


def nodes_of(path: str, names: Sequence[str] | None = None) -> dict[str, Node]:
    """Return the nodes of a store by path, which is empty for the root.

    ``names``: nodes to return besides the root, None for all. Other nodes may be returned too.
    """
    root = json_in(path, "zarr.json")
    inline = None if root is None else root.get("consolidated_metadata")
    if root is not None and isinstance(inline, dict):
        members = _object(inline.get("metadata"), path)
        return {"": _node_v3(root, path), **{name: _node_v3(member, path) for name, member in members.items()}}
    consolidated = None if root is not None else json_in(path, ".zmetadata")
    if consolidated is not None:
        return nodes_in(_object(consolidated.get("metadata"), path), path)
    if names is None:
        return dict(_walk([path], [""]))
    requested = ("", *names)
    loaded = load_all([join(path, *name.split("/")) for name in requested], None if root is None else 3)
    return {name: node for name, node in zip(requested, loaded, strict=True) if node is not None}


def nodes_in(entries: Mapping[str, Any], path: str) -> dict[str, Node]:
    """Return nodes in metadata; ``entries``: objects by file name."""
    nodes: dict[str, Node] = {}
    for key, value in entries.items():
        name, _, file = key.rpartition("/")
        if file == "zarr.json":
            nodes[name] = _node_v3(value, path)
        elif file in (".zarray", ".zgroup"):
            attrs = _object(entries.get(f"{name}/.zattrs" if name else ".zattrs") or {}, path)
            nodes.setdefault(name, Node(2, _object(value, path) if file == ".zarray" else None, attrs))
    return nodes


def _walk(folders: Sequence[str], names: Sequence[str], version: int | None = None) -> Iterator[tuple[str, Node]]:
    """Yield nodes in folders of one level, each before the nodes below it."""
    for folder, name, node in zip(folders, names, load_all(folders, version), strict=True):
        if node is None:
            continue
        yield name, node
        if node.meta is None:
            # Folders of arrays are not listed: they may hold a million chunks.
            below = folders_in(folder)
            yield from _walk([join(folder, b) for b in below], [f"{name}/{b}" if name else b for b in below], node.version)


def lost_arrays(path: str, nodes: Mapping[str, Node]) -> list[str]:
    """Return the folders of a local store that have chunks but no metadata."""
    if is_remote(path):
        return []
    lost = []
    for group in (name for name, node in nodes.items() if node.meta is None):
        folder = os.path.join(path, group)
        for name in folders_in(folder) if os.path.isdir(folder) else ():
            array = f"{group}/{name}" if group else name
            if array not in nodes and any(map(_CHUNK.fullmatch, os.listdir(os.path.join(folder, name)))):
                # promise: zarr-lost-metadata
                lost.append(array)
    return lost


def files_of(node: Node) -> dict[str, bytes]:
    """Return the metadata files of an array by name."""
    if node.version == 3:
        return {"zarr.json": json.dumps(node.meta).encode()}
    return {".zarray": json.dumps(node.meta).encode(), ".zattrs": json.dumps(node.attrs).encode()}
