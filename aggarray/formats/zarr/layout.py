"""Layout of a Zarr store: chunks, shards and codecs, from its metadata."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from aggarray.formats.base import naming_errors
from aggarray.formats.partial_scan import FileLayout, MetadataLayout, VariableLayout
from aggarray.formats.zarr.chunk_keys import ArrayLayout, codec_steps, outer_chunk, parse_named_configuration
from aggarray.formats.zarr.format import NO_NODE, dtype_of, shape_of, structure_of
from aggarray.formats.zarr.nodes import Node, json_in, nodes_of
from aggarray.storage.urls import stem

#: Settings of codecs that are not part of their text: other software sets them, or they repeat the name.
_LEFT_OUT = ("id", "name", "typesize", "checksum", "elementsize")


def scan_layout(path: str) -> FileLayout:
    """Return the layout of a store."""
    nodes = nodes_of(path)
    root = json_in(path, "zarr.json")
    is_consolidated = json_in(path, ".zmetadata") is not None if root is None else bool(root.get("consolidated_metadata"))
    # A store of one array has one document.
    is_consolidated = is_consolidated or set(nodes) == {""}
    return layout_of_nodes(path, f"Zarr{next(iter(nodes.values()), NO_NODE).version}", nodes, is_consolidated)


def layout_of_nodes(path: str, format_name: str, nodes: Mapping[str, Node], consolidated: bool) -> FileLayout:
    """Return the layout that the metadata of arrays describe."""
    variables = {}
    for name, node in nodes.items():
        if node.meta is None:
            continue
        # A single array is named by its folder.
        variable = name or stem(path)
        with naming_errors(path, variable):
            dtype = dtype_of(node)
            if not isinstance(dtype, str):
                variables[variable] = _variable_layout(ArrayLayout(node.version, node.meta, shape_of(node), dtype))
    nbytes = sum(len(json.dumps([node.meta, node.attrs], default=str)) for node in nodes.values())
    return FileLayout(path, structure_of(path, format_name, nodes), variables, MetadataLayout(nbytes, 0, consolidated))


def _variable_layout(layout: ArrayLayout) -> VariableLayout:
    chunk, shard, steps = outer_chunk(layout), None, codec_steps(layout)
    while len(steps) == 1 and steps[0][0] == "sharding_indexed":
        settings = steps[0][1]
        shard = shard or chunk
        chunk = tuple(settings["chunk_shape"])
        steps = [parse_named_configuration(step) for step in settings.get("codecs") or ()]
    filters = tuple(_filter_text(name, settings) for name, settings in steps if name != "bytes")
    dtype = layout.dtype
    if ("bytes", {"endian": "big"}) in steps:
        dtype = dtype.newbyteorder(">")
    return VariableLayout(dtype if dtype.kind in "biufc" else None, layout.shape, chunk, shard, filters)


def _filter_text(name: str, settings: Mapping[str, Any]) -> str:
    """Return a codec and its settings as text.

    >>> _filter_text("numcodecs.zlib", {"id": "zlib", "level": 4}), _filter_text("blosc", {"cname": "lz4", "clevel": 5})
    ('zlib 4', 'blosc lz4 5')
    """
    values = (str(v) for k, v in settings.items() if k not in _LEFT_OUT)
    return " ".join([name.removeprefix("numcodecs."), *values])
