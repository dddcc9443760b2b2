"""Aggregations that are served, each as a Zarr store below its name."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from hashlib import blake2b
from threading import Lock
from typing import Any
from urllib.parse import quote, urlsplit

from aggarray.arrays.pickling import fingerprint
from aggarray.display.markup import escaped
from aggarray.errors import AggregationError
from aggarray.export.zarr_view.contents import ViewArray, ViewContents
from aggarray.export.zarr_view.layout import group_paths
from aggarray.opening.aggregation import Aggregation
from aggarray.output.chunks import Position
from aggarray.output.compression import NONE, Compression, parse_compression

#: Stands for the URL of an archive, which depends on the request.
_BASE = "http://archive.invalid/"
#: Names of the server itself.
_RESERVED = ("health", "arrays")


class Archive:
    """Aggregation served below a name; ``contents``: its Zarr view."""

    def __init__(self, name: str, agg: Aggregation, chunks: Mapping[str, int] | None, compression: Compression) -> None:
        self.name, self.agg, self.compression = name, agg, compression
        self.contents = ViewContents(agg.arrays, chunks, compression)
        self._identities: dict[ViewArray, bytes] = {}
        self._lock = Lock()

    def page(self, base: str) -> bytes:
        """Return the HTML page of the arrays; ``base``: the URL of the server."""
        return self._page.replace(escaped(_BASE), escaped(f"{base}{quote(self.name)}/")).encode()

    @cached_property
    def _page(self) -> str:
        from aggarray.display.report import page
        from aggarray.display.report.lines import Lines

        paths = zip(self.agg, group_paths(self.agg.arrays), strict=True)
        lines = [Lines(_line(str(array.name), path)) for array, path in paths]
        return page(self.agg, title=self.name, lines=lines)

    def tag(self, array: ViewArray, position: Position) -> str:
        """Return the entity tag of a chunk, for which no value is read.

        It changes with the files as they were scanned, and with the form of the chunks.
        """
        with self._lock:
            identity = self._identities.get(array)
            if identity is None:
                parts = (fingerprint(array.variable.source), array.chunk_shape, array.codecs, str(array.variable.fill))
                identity = self._identities[array] = repr(parts).encode()
        return entity_tag(identity, repr(position).encode())

    def listing(self, base: str) -> list[dict[str, Any]]:
        """Return the facts of each array; ``base``: the URL of the server."""
        return [_facts(f"{base}{quote(self.name)}/", path, array) for path, array in self.contents.arrays.items()]


def _line(name: str, path: str) -> str:
    """Return the line of Python that opens an array of a store."""
    group = f", group={path!r}" if path else ""
    return f"import xarray as xr; xr.open_zarr({_BASE!r}{group}, zarr_format=3)[{name!r}]"


def entity_tag(*parts: bytes) -> str:
    """Return a strong entity tag of some bytes, with its quotes."""
    digest = blake2b(digest_size=12)
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return f'"{digest.hexdigest()}"'


def open_archives(
    sources: Sequence[Any], chunks: Mapping[str, int] | None, compressor: str | None, options: Mapping[str, Any]
) -> dict[str, Archive]:
    """Return archives by name.

    ``sources``: paths, aggregations, or pairs of a name and an aggregation.
    """
    from aggarray.opening.sources import open

    if not sources:
        raise AggregationError("no index is given", hint="give the paths of indexes")
    compression = parse_compression(NONE if compressor is None else compressor, ".zarr")
    archives: dict[str, Archive] = {}
    for source in sources:
        name, agg = source if isinstance(source, tuple) else (None, source)
        if not isinstance(agg, Aggregation):
            name, agg = name_of(agg), open(agg, **options)
        name = (name or f"aggregation{len(archives) + 1}").replace("/", "_")
        if name in archives or name in _RESERVED:
            reason = "is the name of two indexes" if name in archives else "is an address of the server"
            raise AggregationError(f"{name!r} {reason}", hint="rename the index: it is served below the stem of its name")
        archives[name] = Archive(name, agg, chunks, compression)
    return archives


def name_of(source: Any) -> str:
    """Return the stem of a path, as an address has it.

    >>> name_of("/data/tas_day.nca"), name_of("archive/"), name_of("https://host/a.nca?sig=b/c.d")
    ('tas_day', 'archive', 'a')
    """
    text = os.fspath(source)
    path = os.path.normpath(urlsplit(text).path if "://" in text else text)
    return os.path.splitext(os.path.basename(path))[0] or "index"


def _facts(address: str, path: str, array: ViewArray) -> dict[str, Any]:
    variable = array.variable
    attributes = {k: variable.attributes.get(k) for k in ("units", "standard_name", "long_name")}
    return {
        "path": path,
        "url": f"{address}{quote(path)}",
        "dimensions": list(variable.dimensions),
        "shape": list(variable.shape),
        "chunks": list(array.chunk_shape),
        "dtype": "string" if variable.dtype.kind == "T" else str(variable.dtype),
        **{name: str(value) for name, value in attributes.items() if value is not None},
    }
