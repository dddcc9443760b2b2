"""What does a Zarr store hold, and what are the values of a box?

Stores of version 2 and 3: groups nested or not, consolidated or not, and single arrays. The structure is read
from the JSON metadata, which takes a fraction of the time that opening every array takes; values come through zarr-python.
A chunk that is not there holds the fill value. Pickled objects are never decoded.
"""

import base64
import os
import struct
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import Any

import numpy as np

from aggarray.cf.encoding import decode_text, plain_text
from aggarray.errors import FormatError, NotFoundError
from aggarray.formats.base import (
    LIBRARY_ERRORS,
    Box,
    ChunkIndex,
    Handle,
    Structure,
    Variable,
    basename,
    has_coordinate,
    is_characters,
    naming_errors,
    stored_values,
    stored_variable,
    whole,
    with_values,
)
from aggarray.formats.limits import is_scannable
from aggarray.formats.partial_scan import PartialScan, PartialScanRequest, select_partial
from aggarray.formats.zarr.chunk_index import chunk_index_of
from aggarray.formats.zarr.chunk_keys import MOST, ArrayLayout, stated_dtype
from aggarray.formats.zarr.nodes import Node, files_of, load, lost_arrays, nodes_of
from aggarray.storage.files import store_mark
from aggarray.storage.remote import carrier, is_remote, join
from aggarray.storage.versions import one_version

#: NumPy knows so many dimensions, and attributes that nest deeper say nothing that CF knows.
_MOST_AXES, _DEEPEST = 64, 16
_MARKS = ("zarr.json", ".zgroup", ".zarray", ".zmetadata")

#: Attributes that other software uses to note dimensions and its own bookkeeping.
_DIMENSIONS = "_ARRAY_DIMENSIONS"
_BOOKKEEPING = ("_nczarr", "_NCZARR")

_NUMBERS = {
    "bool",
    *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)),
    *("float16", "float32", "float64", "complex64", "complex128"),
}


def dtype_of(node: Node) -> np.dtype[Any] | str:
    """Return the stored dtype, or why the array cannot be read."""
    meta = node.meta or {}
    if _names_pickle(meta):
        return "pickled objects; reading them could run foreign code"
    given = meta.get("dtype") if node.version == 2 else meta.get("data_type")
    try:
        dtype = _dtype_2(given, meta) if node.version == 2 else _dtype_3(given)
    except LIBRARY_ERRORS:
        dtype = None
    if dtype is None or dtype.kind not in "biufcmMSUT":
        return f"values of type {given!r:.60}; aggarray reads numbers and text"
    return dtype


def _dtype_2(given: Any, meta: Mapping[str, Any]) -> np.dtype[Any] | None:
    dtype = stated_dtype(given) if isinstance(given, str) else None
    if dtype is not None and dtype.kind == "O":
        text = any(f.get("id") == "vlen-utf8" for f in meta.get("filters") or ())
        return np.dtypes.StringDType() if text else None
    return dtype


def _dtype_3(given: Any) -> np.dtype[Any] | None:
    name, settings = (given["name"], given.get("configuration") or {}) if isinstance(given, dict) else (given, {})
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


def _names_pickle(meta: Any) -> bool:
    """Tell whether a codec of the metadata, at any depth, unpickles what it reads."""
    if isinstance(meta, dict):
        codec = meta.get("id", meta.get("name"))
        return (isinstance(codec, str) and codec.endswith("pickle")) or any(
            _names_pickle(v) for k, v in meta.items() if k not in ("attributes", "consolidated_metadata")
        )
    return isinstance(meta, list) and any(_names_pickle(v) for v in meta)


def shape_of(node: Node) -> tuple[int, ...]:
    """Return the shape that the metadata of an array claim; ValueError for one that no array has."""
    shape = (node.meta or {}).get("shape")
    # promise: zarr-shape-bound
    if not isinstance(shape, list) or not all(type(n) is int and 0 <= n < MOST for n in shape) or len(shape) > _MOST_AXES:
        raise ValueError(f"damaged metadata: shape {shape!r:.60}")
    return tuple(shape)


def _dimensions(node: Node, rank: int) -> list[str | None]:
    """Return the names of an array's dimensions, None for those that have none."""
    names = (node.meta or {}).get("dimension_names") if node.version == 3 else None
    names = names or node.attrs.get(_DIMENSIONS)
    if names is None:
        own = node.attrs.get("_nczarr_array") or node.attrs.get("_NCZARR_ARRAY") or {}
        names = own.get("dimension_references") or own.get("dimrefs") if isinstance(own, dict) else None
    if not isinstance(names, list) or len(names) != rank:
        return [None] * rank
    return [basename(n) if isinstance(n, str) and n else None for n in names]


def _attributes(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Return attributes as the other formats give them: text, lists of texts, NumPy scalars and arrays."""
    kept = {k: v for k, v in attrs.items() if k != _DIMENSIONS and not k.startswith(_BOOKKEEPING)}
    # promise: zarr-attribute-depth
    return {plain_text(k): _attribute(v) for k, v in kept.items() if not _is_deeper(v, _DEEPEST)}


def _is_deeper(value: Any, most: int) -> bool:
    """Tell whether a value of JSON nests more than so deep."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return bool(inner) and (not most or any(_is_deeper(v, most - 1) for v in inner))


def _without_surrogates(value: Any) -> Any:
    """Return a value of JSON, which may escape halves of characters, with plain text in it."""
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
    # Integers beyond 64 bits stay Python's.
    return value if array.dtype.kind == "O" else array[()]


def _variable(name: str, node: Node, stored: np.dtype[Any], spans: Mapping[str, list[str | None]]) -> Variable:
    """Describe an array; ``spans``: the dimensions of every array of the store."""
    shape, dimensions = shape_of(node), spans[name]
    attrs = _attributes(node.attrs)
    # In version 2 the fill value says what is missing; in version 3 the attribute alone does.
    fill = node.attrs.get("_FillValue", (node.meta or {}).get("fill_value") if node.version == 2 else None)
    if fill is not None and (fill != "" or "_FillValue" in attrs):
        attrs["_FillValue"] = _fill_value(fill, stored)
    real = is_characters(stored, len(shape)) and has_coordinate(name, dimensions[-1], spans)
    return stored_variable(name, stored, shape, dimensions, attrs, joined=not real)


def _fill_value(value: Any, dtype: np.dtype[Any]) -> Any:
    """Return a fill value of the array's dtype; what does not decode stays as it is.

    Floats may be numbers, ``"NaN"``, ``"Infinity"``, or, as xarray writes them, base64 of a little-endian double.

    >>> _fill_value("AAAAAAAA+H8=", np.dtype("f4")), _fill_value(-1, np.dtype("i2"))
    (np.float32(nan), np.int16(-1))
    """
    try:
        if dtype.kind == "f":
            return dtype.type(_real(value))
        if dtype.kind == "c":
            return dtype.type(complex(*map(_real, value)) if isinstance(value, list) else value)
        if dtype.kind == "S":
            return decode_text(base64.b64decode(value, validate=True)).rstrip("\x00")
        if dtype.kind in "mM":
            return np.int64(np.iinfo(np.int64).min if value == "NaT" else value).view(dtype)
        return dtype.type(value) if dtype.kind in "biu" else value
    except LIBRARY_ERRORS:
        return value


def _real(value: Any) -> float:
    if isinstance(value, str) and value not in ("NaN", "Infinity", "-Infinity"):
        return float(struct.unpack("<d", base64.b64decode(value, validate=True))[0])
    return float(value)


# Values


class ZarrHandle:
    """An open Zarr store; arrays are opened once."""

    lasting = True

    def __init__(self, path: str, nodes: Mapping[str, Node] | None = None):
        self._path = path
        # Of a remote store what was once fetched.
        self._nodes = dict(nodes or {})
        self._arrays: dict[str, tuple[Any, Mapping[str, Any]]] = {}

    def _node(self, variable: str) -> tuple[str, Node, np.dtype[Any]]:
        """Return the folder of a variable's array within the store, its metadata and its stored dtype."""
        parts = variable.split("/")
        within = "" if (self._load("", variable) or NO_NODE).meta is not None else "/".join(parts)
        # promise: zarr-path-escape
        node = None if {"", ".", ".."} & set(parts) else self._load(within)
        if node is None or node.meta is None:
            raise NotFoundError(f"{self._path}: no variable {variable!r}; it holds {', '.join(_arrays(self._path))}")
        dtype = dtype_of(node)
        if isinstance(dtype, str):
            raise FormatError(f"{self._path}, variable {variable!r}: {dtype}")
        return within, node, dtype

    def _load(self, within: str, ahead: str = "") -> Node | None:
        """Return the node of a folder in the store; ``ahead``: the one that is wanted next."""
        if not is_remote(self._path):
            return load(join(self._path, *within.split("/")))
        if not {within, ahead} <= set(self._nodes):
            self._nodes |= nodes_of(self._path, [name for name in (within, ahead) if name])
        return self._nodes.get(within)

    def _array(self, variable: str) -> tuple[Any, Mapping[str, Any]]:
        """Return a variable's array and its attributes."""
        known = self._arrays.get(variable)
        if known is None:
            self._arrays[variable] = known = self._opened(variable)
        return known

    def _opened(self, variable: str, as_bytes: bool = False) -> tuple[Any, Mapping[str, Any]]:
        """Open a variable's array; ``as_bytes``: text of variable length undecoded."""
        import zarr

        from aggarray.formats.zarr.decoded_sizes import BytesOfText, checked_store

        within, node, dtype = self._node(variable)
        layout = ArrayLayout(node.version, node.meta or {}, shape_of(node), dtype)
        # promise: zarr-chunk-decoded-size
        store = checked_store(self._stored(within, node), self._path, layout)
        if not as_bytes:
            return zarr.open_array(store, mode="r", zarr_format=node.version), node.attrs
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # zarr-python calls the type unstable
            return zarr.open_array(BytesOfText(store), mode="r", zarr_format=node.version), node.attrs

    def _stored(self, within: str, node: Node) -> Any:
        """Return what zarr-python reads the array in a folder from."""
        import zarr

        if is_remote(self._path):
            from aggarray.formats.zarr.remote_store import RemoteStore

            return RemoteStore(join(self._path, *within.split("/")), files_of(node))
        return zarr.storage.LocalStore(os.path.join(self._path, within), read_only=True)

    def values(self, variable: str, box: Box) -> np.ndarray:
        """Return the values of a box as they are, errors too."""
        array, attrs = self._array(variable)
        joined = len(box) < array.ndim
        if joined:
            box = (*box, slice(0, array.shape[-1], 1))
        with one_version():
            try:
                found = np.asarray(array[box])
            except UnicodeDecodeError:
                found = np.asarray(self._opened(variable, as_bytes=True)[0][box])
        return stored_values(found, attrs, joined, f"{self._path}, variable {variable!r}")

    def whole(self, variable: Variable) -> np.ndarray | None:
        """Return all values of a variable, None where a scan takes no such number of bytes; errors name it."""
        with naming_errors(self._path, variable.name):
            _, node, dtype = self._node(variable.name)
            if not is_scannable(shape_of(node), dtype.itemsize):
                return None
            return self.values(variable.name, whole(variable.shape))

    def read(self, variable: str, box: Box) -> np.ndarray:
        """Return the stored values of a box."""
        with naming_errors(self._path, variable):
            return self.values(variable, box)

    def mapped(self, variable: str) -> np.ndarray | None:
        """Return None: values in chunks do not lie in one piece."""
        return None

    def chunks(self, variable: str) -> ChunkIndex | None:
        """Return where the values are stored, None for text, times, and codecs that are not known."""
        with naming_errors(self._path, variable):
            within, node, dtype = self._node(variable)
            return chunk_index_of(self._path, within, ArrayLayout(node.version, node.meta or {}, shape_of(node), dtype))

    def elsewhere(self, variable: str) -> Sequence[str]:
        """Return where links within the folder of a variable lead."""
        if is_remote(self._path):
            return ()
        with naming_errors(self._path, variable):
            folder = os.path.join(self._path, self._node(variable)[0])
            entries = (os.path.join(at, name) for at, folders, files in os.walk(folder) for name in (*folders, *files))
            return [os.path.realpath(p) for p in (folder, *entries) if os.path.islink(p)]

    def close(self) -> None:
        """Forget the arrays."""
        self._arrays.clear()


NO_NODE = Node(2, None, {})


def _arrays(path: str) -> list[str]:
    return [name or _stem(path) for name, node in nodes_of(path).items() if node.meta is not None]


def _stem(path: str) -> str:
    """Return the name of a store, without its suffix; of one that is all of an archive, the archive's."""
    if is_remote(path):
        member = path.partition("://")[2].partition("::")[0].partition("?")[0]
        path = member.rstrip("/") or carrier(path)
    return PurePath(path).stem


def structure_of(
    path: str,
    name: str,
    nodes: Mapping[str, Node],
    read: Callable[[Variable], np.ndarray | None],
    wanted: Collection[str] | None = None,
) -> Structure:
    """Return what metadata describe, ``read`` giving the values of coordinates; ``name``: of the format.

    ``wanted``: which variables' values are read, None for those that a scan reads.
    """
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
    return Structure(path, name, attrs, with_values(variables, read, wanted), groups, tuple(skipped))


class _Zarr:
    """Zarr stores of version 2 and 3 in folders, local or remote."""

    name = "Zarr"

    def recognises(self, path: str, head: bytes) -> bool:
        """Tell whether a folder holds Zarr metadata."""
        return not head and bool(store_mark(path, _MARKS))

    def scan(self, path: str) -> Structure:
        """Read the metadata and the coordinates. A store that is one array is a variable named like its folder."""
        nodes = nodes_of(path)
        version = next(iter(nodes.values()), NO_NODE).version
        found = structure_of(path, f"{self.name}{version}", nodes, ZarrHandle(path, nodes).whole)
        lost = [
            (name, "chunks whose metadata (.zarray, zarr.json) are gone; restore them") for name in lost_arrays(path, nodes)
        ]
        return replace(found, skipped=(*found.skipped, *lost)) if lost else found

    def scan_partially(self, path: str, wanted: PartialScanRequest) -> PartialScan | None:
        """Read the metadata of the root and of the coordinates wanted, and their values."""
        nodes, found = nodes_of(path, list(wanted.coordinates)), []
        root = nodes.get("", NO_NODE)
        for name in wanted.coordinates if root.meta is None else ():
            node = nodes.get(name, NO_NODE)
            stored = dtype_of(node) if node.meta is not None else ""
            if not isinstance(stored, str):
                with naming_errors(path, name):
                    found.append(_variable(name, node, stored, {name: _dimensions(node, len(shape_of(node)))}))
        return select_partial(path, _attributes(root.attrs), found, wanted, ZarrHandle(path, nodes).whole)

    def open(self, path: str) -> Handle:
        """Open for reading values."""
        return ZarrHandle(path)


FORMAT = _Zarr()
