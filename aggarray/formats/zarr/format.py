"""Reader of Zarr stores of version 2 and 3.

Stores are groups, nested or not, consolidated or not, or single arrays. The structure is read from the JSON metadata, which is
faster than opening every array. Values are read by the chunk index of an array. Without one, zarr-python reads them. Missing
chunks have the fill value. Pickled objects are never decoded.
"""

from __future__ import annotations

import os
import struct
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from aggarray.cf.attributes import basename
from aggarray.cf.encoding import decode_text, plain_text
from aggarray.codecs import known
from aggarray.dataclass import replace
from aggarray.errors import LIBRARY_ERRORS, FormatError, NotFoundError
from aggarray.formats.base import (
    Box,
    Structure,
    Variable,
    full_box,
    has_coordinate,
    is_characters,
    naming_errors,
    stored_values,
    stored_variable,
    with_values,
)
from aggarray.formats.limits import is_scannable
from aggarray.formats.partial_scan import PartialScan, PartialScanRequest, select_partial
from aggarray.formats.zarr.chunk_index import chunk_index_of, of_complete_files
from aggarray.formats.zarr.chunk_keys import MOST, ArrayLayout, parse_dtype
from aggarray.formats.zarr.nodes import Node, files_of, load_all, lost_arrays, nodes_of
from aggarray.partition.chunk_index import ChunkIndex
from aggarray.storage.state import one_version
from aggarray.storage.urls import carrier, is_remote, join, stem

#: Largest number of dimensions in NumPy, and largest depth of nested attributes that are kept.
_MOST_AXES, _DEEPEST = 64, 16

#: Attributes of other software with dimensions and bookkeeping.
_DIMENSIONS = "_ARRAY_DIMENSIONS"
_BOOKKEEPING = ("_nczarr", "_NCZARR")

_NUMBERS = {
    "bool",
    *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)),
    *("float16", "float32", "float64", "complex64", "complex128"),
}


def dtype_of(node: Node) -> np.dtype[Any] | str:
    """Return the stored dtype, or the reason why the array cannot be read."""
    meta = node.meta or {}
    if _uses_pickle(meta):
        return "pickled objects; reading them could run foreign code"
    stated = meta.get("dtype" if node.version == 2 else "data_type")
    try:
        dtype = parse_dtype(stated) if node.version == 2 else _dtype_v3(stated)
        if dtype is not None and dtype.kind == "O" and any(f.get("id") == "vlen-utf8" for f in meta.get("filters") or ()):
            dtype = np.dtypes.StringDType()
    except LIBRARY_ERRORS:
        dtype = None
    if dtype is None or dtype.kind not in "biufcmMSUT":
        return f"values of type {stated!r:.60}; aggarray reads numbers and text"
    return dtype


def _dtype_v3(stated: Any) -> np.dtype[Any] | None:
    name, settings = (stated["name"], stated.get("configuration") or {}) if isinstance(stated, dict) else (stated, {})
    if name in _NUMBERS:
        return np.dtype(name)
    if name == "string":
        return np.dtypes.StringDType()
    if name in ("numpy.datetime64", "numpy.timedelta64"):
        return np.dtype(f"<{'M' if 'date' in name else 'm'}8[{settings.get('scale_factor', 1)}{settings['unit']}]")
    if name == "null_terminated_bytes":
        return np.dtype(f"S{settings['length_bytes']}")
    if name == "fixed_length_utf32":
        return np.dtype(f"<U{settings['length_bytes'] // 4}")
    return None


def _uses_pickle(meta: Any) -> bool:
    if isinstance(meta, dict):
        codec = meta.get("id", meta.get("name"))
        return (isinstance(codec, str) and codec.endswith("pickle")) or any(
            _uses_pickle(v) for k, v in meta.items() if k not in ("attributes", "consolidated_metadata")
        )
    return isinstance(meta, list) and any(_uses_pickle(v) for v in meta)


def shape_of(node: Node) -> tuple[int, ...]:
    """Return the shape in an array's metadata, or raise ValueError."""
    shape = (node.meta or {}).get("shape")
    # promise: zarr-shape-bound
    if not isinstance(shape, list) or not all(type(n) is int and 0 <= n < MOST for n in shape) or len(shape) > _MOST_AXES:
        raise ValueError(f"damaged metadata: shape {shape!r:.60}")
    return tuple(shape)


def _dimensions(node: Node, rank: int) -> list[str | None]:
    names = (node.meta or {}).get("dimension_names") if node.version == 3 else None
    names = names or node.attrs.get(_DIMENSIONS)
    if names is None:
        own = node.attrs.get("_nczarr_array") or node.attrs.get("_NCZARR_ARRAY") or {}
        names = own.get("dimension_references") or own.get("dimrefs") if isinstance(own, dict) else None
    if not isinstance(names, list) or len(names) != rank:
        return [None] * rank
    return [basename(n) if isinstance(n, str) and n else None for n in names]


def _attributes(attrs: Mapping[str, Any]) -> dict[str, Any]:
    own = {k: v for k, v in attrs.items() if k != _DIMENSIONS and not k.startswith(_BOOKKEEPING)}
    # promise: zarr-attribute-depth
    return {plain_text(k): _attribute(v) for k, v in own.items() if not _is_deeper(v, _DEEPEST)}


def _is_deeper(value: Any, most: int) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return bool(inner) and (not most or any(_is_deeper(v, most - 1) for v in inner))


def _without_surrogates(value: Any) -> Any:
    """Return a value without surrogates, which JSON may escape."""
    if isinstance(value, dict):
        return {plain_text(k): _without_surrogates(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_without_surrogates(v) for v in value]
    return plain_text(value) if isinstance(value, str) else value


def _attribute(value: Any) -> Any:
    if isinstance(value, list) and len(value) == 1:
        return _attribute(value[0])
    numbers = value if isinstance(value, list) else [value]
    if not numbers or not all(isinstance(v, int | float) and not isinstance(v, bool) for v in numbers):
        return _without_surrogates(value)
    array = np.array(value)
    # Integers beyond 64 bits stay Python objects.
    return value if array.dtype.kind == "O" else array[()]


def _variable(name: str, node: Node, stored: np.dtype[Any], spans: Mapping[str, list[str | None]]) -> Variable:
    shape, dimensions = shape_of(node), spans[name]
    attrs = _attributes(node.attrs)
    # The fill value means missing in version 2. In version 3 only the attribute does.
    fill = node.attrs.get("_FillValue", (node.meta or {}).get("fill_value") if node.version == 2 else None)
    if fill is not None and (fill != "" or "_FillValue" in attrs):
        attrs["_FillValue"] = _fill_value(fill, stored)
    real = is_characters(stored, len(shape)) and has_coordinate(name, dimensions[-1], spans)
    return stored_variable(name, stored, shape, dimensions, attrs, joined=not real)


def _fill_value(value: Any, dtype: np.dtype[Any]) -> Any:
    """Return a fill value of the array's dtype; an invalid one as it is.

    Floats may be numbers, ``"NaN"``, ``"Infinity"``, or base64 of a little-endian double (xarray).

    >>> _fill_value("AAAAAAAA+H8=", np.dtype("f4")), _fill_value(-1, np.dtype("i2"))
    (np.float32(nan), np.int16(-1))
    """
    try:
        if dtype.kind == "f":
            return dtype.type(_real(value))
        if dtype.kind == "c":
            return dtype.type(complex(*map(_real, value)) if isinstance(value, list) else value)
        if dtype.kind == "S":
            return decode_text(_from_base64(value)).rstrip("\x00")
        if dtype.kind in "mM":
            return np.int64(np.iinfo(np.int64).min if value == "NaT" else value).view(dtype)
        return dtype.type(value) if dtype.kind in "biu" else value
    except LIBRARY_ERRORS:
        return value


def _real(value: Any) -> float:
    if isinstance(value, str) and value not in ("NaN", "Infinity", "-Infinity"):
        return float(struct.unpack("<d", _from_base64(value))[0])
    return float(value)


def _from_base64(text: Any) -> bytes:
    import base64

    return base64.b64decode(text, validate=True)


# Values


class ZarrHandle:
    """An open Zarr store. Each array is opened once.

    ``nodes``: nodes of the store that were read.
    """

    lasting = True

    def __init__(self, path: str, nodes: Mapping[str, Node] | None = None):
        self._path = path
        self._nodes = dict(nodes or {})
        #: Chunk indexes by which values are read.
        self._readable: dict[str, ChunkIndex] = {}
        self._arrays: dict[str, tuple[Any, Mapping[str, Any]]] = {}

    def _layout(self, variable: str) -> tuple[str, Node, ArrayLayout]:
        within, node = self._find(variable)
        if node is None or node.meta is None:
            arrays = [name or _stem(self._path) for name, other in self._all_nodes().items() if other.meta is not None]
            raise NotFoundError(
                f"no variable {variable!r}", path=self._path, variable=variable, hint=f"it holds {', '.join(arrays)}"
            )
        dtype = dtype_of(node)
        if isinstance(dtype, str):
            raise FormatError(dtype, path=self._path, variable=variable)
        return within, node, ArrayLayout(node.version, node.meta, shape_of(node), dtype)

    def _all_nodes(self) -> Mapping[str, Node]:
        return nodes_of(self._path)

    def _find(self, variable: str) -> tuple[str, Node | None]:
        """Return folder and node of a variable; a single array is at the root."""
        within = "" if (self._load("", variable) or NO_NODE).meta is not None else variable
        # promise: zarr-path-escape
        node = None if {"", ".", ".."} & set(variable.split("/")) else self._load(within)
        return within, node

    def _load(self, within: str, prefetch: str = "") -> Node | None:
        """Return a node; ``prefetch``: another folder to fetch with it."""
        if not is_remote(self._path):
            return self._nodes.get(within) or load_all([join(self._path, *within.split("/"))])[0]
        if not {within, prefetch} <= set(self._nodes):
            self._nodes |= nodes_of(self._path, [name for name in (within, prefetch) if name])
        return self._nodes.get(within)

    def _open_array(self, variable: str, as_bytes: bool = False) -> tuple[Any, Mapping[str, Any]]:
        """Return array and attributes; ``as_bytes``: text stays undecoded."""
        import zarr

        from aggarray.formats.zarr.decoded_sizes import BytesOfText, checked_store

        within, node, layout = self._layout(variable)
        # promise: zarr-chunk-decoded-size
        store = checked_store(self._stored(within, node), self._path, layout)
        if not as_bytes:
            return zarr.open_array(store, mode="r", zarr_format=node.version), node.attrs
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # zarr-python calls the type unstable
            return zarr.open_array(BytesOfText(store), mode="r", zarr_format=node.version), node.attrs

    def _stored(self, within: str, node: Node) -> Any:
        import zarr

        if is_remote(self._path):
            from aggarray.formats.zarr.stores import RemoteStore

            return RemoteStore(join(self._path, *within.split("/")), files_of(node))
        return zarr.storage.LocalStore(os.path.join(self._path, within), read_only=True)

    def values(self, variable: str, box: Box) -> np.ndarray:
        """Return the stored values of a box; errors are not converted."""
        index = self._readable_index(variable)
        if index is not None:
            from aggarray.formats.zarr.chunk_values import read_box

            return read_box(self._path, index, box)
        if variable not in self._arrays:
            self._arrays[variable] = self._open_array(variable)
        array, attrs = self._arrays[variable]
        joined = len(box) < array.ndim
        if joined:
            box = (*box, slice(0, array.shape[-1], 1))
        with one_version():
            try:
                values = np.asarray(array[box])
            except UnicodeDecodeError:
                values = np.asarray(self._open_array(variable, as_bytes=True)[0][box])
        return stored_values(values, attrs, joined, f"{self._path}, variable {variable!r}")

    def _readable_index(self, variable: str) -> ChunkIndex | None:
        """Return the chunk index that reads values, None: zarr-python does."""
        index = self._readable.get(variable)
        if index is None and variable not in self._arrays:
            index = self.chunks(variable)
            if index is None or not known(index.filters):
                return None
            index = of_complete_files(index)
            if index.versions is None:
                self._readable[variable] = index
        return index

    def all_values(self, variable: Variable) -> np.ndarray | None:
        """Return all values, None if they are too large for a scan."""
        with naming_errors(self._path, variable.name):
            layout = self._layout(variable.name)[2]
            scannable = is_scannable(layout.shape, layout.dtype.itemsize)
            return self.values(variable.name, full_box(variable.shape)) if scannable else None

    def read(self, variable: str, box: Box) -> np.ndarray:
        """Return the stored values of a box."""
        with naming_errors(self._path, variable):
            return self.values(variable, box)

    def mapped(self, variable: str) -> np.ndarray | None:
        """Return None: chunked values are not contiguous."""
        return None

    def chunks(self, variable: str) -> ChunkIndex | None:
        """Return the chunk index, None for text, times and unknown codecs."""
        with naming_errors(self._path, variable):
            within, _, layout = self._layout(variable)
            return chunk_index_of(self._path, within, layout)

    def external_files(self, variable: str) -> Sequence[str]:
        """Return the targets of links in the folder of a variable."""
        if is_remote(self._path):
            return ()
        with naming_errors(self._path, variable):
            folder = os.path.join(self._path, self._layout(variable)[0])
            entries = (os.path.join(at, name) for at, folders, files in os.walk(folder) for name in (*folders, *files))
            return [os.path.realpath(p) for p in (folder, *entries) if os.path.islink(p)]

    def close(self) -> None:
        """Drop the opened arrays."""
        self._arrays.clear()
        self._readable.clear()


NO_NODE = Node(2, None, {})


def _stem(path: str) -> str:
    """Return the name of a store, or of its archive, without the suffix."""
    if is_remote(path):
        member = path.partition("://")[2].partition("::")[0].partition("?")[0]
        path = member.rstrip("/") or carrier(path)
    return stem(path)


def structure_of(path: str, format_name: str, nodes: Mapping[str, Node]) -> Structure:
    """Return the structure in the metadata of a store, without values."""
    root = nodes.get("", NO_NODE)
    arrays = {name or _stem(path): node for name, node in nodes.items() if node.meta is not None}
    spans: dict[str, list[str | None]] = {}
    for variable, node in arrays.items():
        with naming_errors(path, variable):
            spans[variable] = _dimensions(node, len(shape_of(node)))
    skipped, variables = [], []
    for variable, node in arrays.items():
        with naming_errors(path, variable):
            stored = dtype_of(node)
            if isinstance(stored, str):
                skipped.append((variable, stored))
            else:
                variables.append(_variable(variable, node, stored, spans))
    groups = {name: _attributes(node.attrs) for name, node in nodes.items() if name and node.meta is None}
    attrs = _attributes(root.attrs) if root.meta is None else {}
    return Structure(path, format_name, attrs, tuple(variables), groups, tuple(skipped))


def scan(path: str) -> Structure:
    """Read metadata and coordinates; a single array is named by its folder."""
    nodes = nodes_of(path)
    version = next(iter(nodes.values()), NO_NODE).version
    structure = structure_of(path, f"Zarr{version}", nodes)
    variables = with_values(structure.variables, ZarrHandle(path, nodes).all_values)
    reason = "chunks without metadata (.zarray, zarr.json); restore the metadata"
    lost = [(name, reason) for name in lost_arrays(path, nodes)]
    return replace(structure, variables=variables, skipped=(*structure.skipped, *lost))


def scan_partially(path: str, request: PartialScanRequest) -> PartialScan | None:
    """Return the requested part of a store."""
    nodes, variables = nodes_of(path, list(request.coordinates)), []
    root = nodes.get("", NO_NODE)
    for name in request.coordinates if root.meta is None else ():
        node = nodes.get(name, NO_NODE)
        stored = dtype_of(node) if node.meta is not None else ""
        if not isinstance(stored, str):
            with naming_errors(path, name):
                variables.append(_variable(name, node, stored, {name: _dimensions(node, len(shape_of(node)))}))
    return select_partial(path, _attributes(root.attrs), variables, request, ZarrHandle(path, nodes).all_values)
