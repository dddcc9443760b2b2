"""How does a Zarr store (version 3) say what its chunks hold? In a few words of JSON, written after them."""

import base64
import json
import os
from collections.abc import Mapping
from typing import Any

import numcodecs
import numpy as np

from aggarray.export.extract.layout import ExtractLayout, Variable
from aggarray.export.extract.pieces import write_whole

#: Kinds of data types that a store holds.
KINDS = "biufcT"
_LEVEL = 5


def encode(values: np.ndarray) -> bytes:
    """Encode a chunk: little-endian, its bytes by their place, compressed by zstd, a checksum (CRC32C) behind them.

    In a thread that is not the main one, where Blosc works alone: several of its threads would store blocks in any order.
    """
    little = values.astype(values.dtype.newbyteorder("<"), copy=False)
    return _checked(bytes(numcodecs.Blosc("zstd", _LEVEL, numcodecs.Blosc.SHUFFLE).encode(little)))


def _checked(packed: bytes) -> bytes:
    """Return a chunk and its checksum: values that hardly get smaller are stored as they are, and nothing else tells damage."""
    import google_crc32c  # zarr-python needs it too

    return packed + int(google_crc32c.value(packed)).to_bytes(4, "little")


def finish(layout: ExtractLayout, folder: str, spare: str) -> None:
    """Write what is left below ``folder``, once all chunks are there: small arrays and all metadata."""
    known = {v.name: _metadata(v) for v in layout.variables}
    for variable in layout.variables:
        own = os.path.join(folder, variable.name)
        if variable.chunks is None and variable.source.size:
            path = os.path.join(own, "c", *["0"] * len(variable.shape))
            os.makedirs(os.path.dirname(path), exist_ok=True)
            write_whole(path, _whole(variable), spare)
        os.makedirs(own, exist_ok=True)
        write_whole(os.path.join(own, "zarr.json"), _json(known[variable.name]), spare)
    # Consolidated, as xarray asks for: what opens the store reads one file.
    inline = {"kind": "inline", "must_understand": False, "metadata": known}
    group = {**_head("group"), "attributes": _plain(layout.attributes), "consolidated_metadata": inline}
    write_whole(os.path.join(folder, "zarr.json"), _json(group), spare)


def _whole(variable: Variable) -> bytes:
    """Return all values of a variable, not compressed, and their checksum."""
    values = variable.values(...)
    if variable.dtype.kind == "T":
        return _checked(bytes(numcodecs.VLenUTF8().encode(np.asarray(values, object).ravel())))
    return _checked(values.astype(values.dtype.newbyteorder("<"), copy=False).tobytes())


def _metadata(variable: Variable) -> dict[str, Any]:
    text, dtype = variable.dtype.kind == "T", variable.dtype
    chunks = variable.chunks if variable.chunks is not None else tuple(max(n, 1) for n in variable.shape)
    little = {"name": "bytes", "configuration": {"endian": "little"}} if dtype.itemsize > 1 else {"name": "bytes"}
    codecs: list[dict[str, Any]] = [{"name": "vlen-utf8"} if text else little]
    if variable.chunks is not None:
        settings = {"typesize": dtype.itemsize, "cname": "zstd", "clevel": _LEVEL, "shuffle": "shuffle", "blocksize": 0}
        codecs.append({"name": "blosc", "configuration": settings})
    # promise: zarr-extract-checksum
    codecs.append({"name": "crc32c"})
    fill = dtype.type(0 if variable.fill is None else variable.fill) if not text else ""
    return {
        **_head("array"),
        "attributes": {**_plain(variable.attributes), **_fill_attribute(variable)},
        "shape": variable.shape,
        "data_type": "string" if text else str(dtype.newbyteorder("=")),
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunks}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": fill if text else _scalar(fill),
        "codecs": codecs,
        "dimension_names": variable.dimensions,
        "storage_transformers": [],
    }


def _fill_attribute(variable: Variable) -> dict[str, Any]:
    """Return ``_FillValue`` as xarray reads and writes it: floating values by their bytes, so that none is rounded."""
    if variable.fill is None or variable.dtype.kind != "f":
        return {}
    exact = np.float64(variable.fill).astype("<f8").tobytes()
    return {"_FillValue": base64.standard_b64encode(exact).decode()}


def _head(kind: str) -> dict[str, Any]:
    return {"zarr_format": 3, "node_type": kind}


def _plain(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return attributes as JSON has them."""
    return {name: _unwrapped(value) for name, value in attributes.items()}


def _unwrapped(value: Any) -> Any:
    item = value.tolist() if isinstance(value, np.ndarray | np.generic) else value
    if isinstance(item, list):
        return [_scalar(v) for v in item]
    return _scalar(item)


def _scalar(value: Any) -> Any:
    """Return a scalar as the specification writes it: what JSON has no number for, as text."""
    item = value.item() if isinstance(value, np.generic) else value
    if isinstance(item, complex):
        return [_scalar(item.real), _scalar(item.imag)]
    if isinstance(item, float) and not np.isfinite(item):
        return "NaN" if np.isnan(item) else "Infinity" if item > 0 else "-Infinity"
    return item


def _json(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, indent=2, allow_nan=False).encode()
