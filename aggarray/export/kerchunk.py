"""Kerchunk references to the stored chunks of an aggregation.

Values of data arrays stay in their files; values of coordinates and of arrays in memory are copied into the references. The
metadata is that of Zarr version 2. References are written as JSON (kerchunk, version 1) or as Parquet tables for fsspec.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from aggarray.arrays.lazy import bounds_names
from aggarray.arrays.master import MasterArray
from aggarray.arrays.ragged_variables import flatten_ragged
from aggarray.cf.attributes import basename
from aggarray.codecs import Filter
from aggarray.dataclass import replace
from aggarray.errors import AggregationError, IndexFileError, install_command
from aggarray.export.chunk_grid import GridError, check_filters, find_chunk_grid, located_chunks, packing_attributes
from aggarray.formats.base import Attributes
from aggarray.index.container import attributes_of, common_attributes, coordinates_attribute, in_memory
from aggarray.index.replacement import replace_index
from aggarray.output.zarr_metadata import json_scalar
from aggarray.storage.atomic import replace_atomically, write_errors
from aggarray.storage.urls import unsigned

#: Codecs of numcodecs with the encoding of HDF5 and Zarr, by filter name; shuffle also needs its element size.
_CODECS: Mapping[str, Mapping[str, Any]] = {
    "deflate": {"id": "zlib", "level": 1},
    "gzip": {"id": "gzip", "level": 1},
    "zstd": {"id": "zstd", "level": 1},
    "blosc": {"id": "blosc"},
    "lz4": {"id": "lz4"},
    "bz2": {"id": "bz2", "level": 1},
    "fletcher32": {"id": "fletcher32"},
}
#: References per Parquet table, as in kerchunk.
RECORD = 10_000
#: Coordinates of more bytes stay in their files if possible.
_LARGE = 1 << 20

#: References of an array by key: text, or file, offset and size.
Refs = dict[str, Any]


def references_of(arrays: Sequence[MasterArray]) -> dict[str, Any]:
    """Return kerchunk references (version 1) to arrays and their coordinates.

    Raises AggregationError, with array, partition and reason, if the values cannot be read from their files as stored.
    """
    refs: Refs = {".zgroup": _text({"zarr_format": 2}), ".zattrs": _text(_plain(common_attributes(arrays)))}
    written: dict[str, tuple[MasterArray, Refs]] = {}
    flat = list(map(flatten_ragged, arrays))
    coordinates = {name: one for array in flat for name, one in array.coords.items()}
    for array in flat:
        for name, variable in {**array.coords, array.name or "": array}.items():
            is_data, parts = variable is array, name.split("/")
            if not all(part and not part.startswith(".") for part in parts):
                raise _refusal(array, f"{name!r} is not a valid name in a Zarr store", "rename it")
            # A coordinate is encoded with its bounds beside it, so that its attributes name them.
            bounds = {} if is_data else {n: coordinates[n] for n in bounds_names(variable) if n in coordinates}
            encoded = _array_refs(replace(variable, coords=bounds) if bounds else variable, not is_data)
            previous = written.setdefault(name, (variable, encoded))
            if previous[1] != encoded:
                what = f"{name!r} differs from that of shape {previous[0].shape}"
                raise _refusal(array, what, "names must be unique; select one of the arrays")
            if previous[0] is variable:
                refs.update({f"{'/'.join(parts[:i])}/.zgroup": _text({"zarr_format": 2}) for i in range(1, len(parts))})
                refs.update({f"{name}/{key}": value for key, value in encoded.items()})
    sizes: dict[str, tuple[int, str]] = {}
    for array, _ in written.values():
        for dimension, size in zip(array.dimensions, array.shape, strict=True):
            expected, other = sizes.setdefault(dimension, (size, array.name or ""))
            if expected != size:
                what = f"size {size} of dimension {dimension!r}, which has size {expected} in {other}"
                raise _refusal(array, what, "select one of the arrays")
    return {"version": 1, "refs": refs}


def _array_refs(array: MasterArray, coordinate: bool) -> Refs:
    """Return the references of an array, with small coordinates by value."""
    if in_memory(array._matrix) or (coordinate and array.nbytes <= _LARGE):
        return _inline_refs(array)
    try:
        layout = find_chunk_grid(array)
        check_filters(layout, lambda step: step.name == "shuffle" or step.name in _CODECS)
        packing = packing_attributes(layout.encoding)
        refs = _metadata(array, layout.dtype, layout.chunk, layout.filters, layout.fill, packing)
        for position, _, uri, offset, size, inline in located_chunks(layout):
            key = ".".join(map(str, position)) or "0"
            part = [] if (offset, size) == (0, 0) else [offset, size]
            refs[key] = [unsigned(uri), *part] if inline is None else _base64(inline)
        return refs
    except AggregationError as error:
        if coordinate:
            return _inline_refs(array)
        if isinstance(error, GridError):
            raise _refusal(array, error.what, error.hint) from None
        raise


def _refusal(array: MasterArray, what: str, hint: str | None) -> AggregationError:
    """Return the error for an array without references."""
    return AggregationError(f"no kerchunk references: {what}", variable=array.name, hint=hint)


def _inline_refs(array: MasterArray) -> Refs:
    values, mask = array._values_and_mask()
    values = np.asarray(values)
    if values.dtype.kind == "T":
        width = max((len(v) for v in values.ravel().tolist()), default=1)
        values = values.astype(f"<U{max(width, 1)}")
    absent = mask is not None and bool(np.any(mask))
    fill = _unused_value(array, values[~mask]) if mask is not None and absent and values.dtype.kind in "iufc" else None
    if mask is not None and absent and values.dtype.kind in "biufc":
        values = np.where(mask, array.fill_value if fill is None else fill, values).astype(values.dtype)
    refs = _metadata(array, values.dtype, tuple(max(n, 1) for n in values.shape), (), fill, {})
    if values.size:
        refs[".".join("0" * values.ndim) or "0"] = _base64(np.ascontiguousarray(values).tobytes())
    return refs


def _unused_value(array: MasterArray, real: np.ndarray) -> Any:
    """Return a value for missing elements that no real element has.

    This is the fill value, if possible.
    """
    if array.dtype.kind not in "iu" or not (real == array.fill_value).any():
        return array.fill_value
    limits = np.iinfo(array.dtype)
    taken = set(np.unique(real).tolist())
    unused = next((v for v in range(limits.max, limits.min - 1, -1) if v not in taken), None)
    if unused is None:
        what = f"every value of {array.dtype} occurs, so that none can stand for a missing value"
        raise _refusal(array, what, "convert it with astype('float64')")
    return array.dtype.type(unused)


def _metadata(
    array: MasterArray, dtype: np.dtype[Any], chunk: Sequence[int], filters: Sequence[Filter], fill: Any, packing: Attributes
) -> Refs:
    meta = {"zarr_format": 2, "shape": list(array.shape), "chunks": list(chunk), "dtype": dtype.str}
    meta |= {"fill_value": json_scalar(fill), "order": "C", "filters": list(map(_codec, filters)) or None}
    meta |= {"dimension_separator": ".", "compressor": None}
    names = {name: name for name in array.coords}
    attrs = {**attributes_of(array, names), **packing}
    if others := coordinates_attribute(array, names):
        attrs["coordinates"] = others
    return {".zarray": _text(meta), ".zattrs": _text({**_plain(attrs), "_ARRAY_DIMENSIONS": list(array.dimensions)})}


def _codec(step: Filter) -> Mapping[str, Any]:
    return {"id": "shuffle", "elementsize": step.parameters[0]} if step.name == "shuffle" else _CODECS[step.name]


def _plain(value: Any) -> Any:
    """Return a value that JSON can hold, without the None of mappings."""
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return list(map(_plain, value))
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def _text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _base64(data: bytes) -> str:
    return f"base64:{base64.b64encode(data).decode()}"


def write(references: Mapping[str, Any], path: str) -> None:
    """Write references atomically, as JSON or Parquet by the suffix."""
    if path.endswith(".json"):
        with replace_index(path, None) as (temporary, _), open(temporary, "w", encoding="utf-8") as file:
            json.dump(references, file)
    elif path.endswith((".parq", ".parquet")):
        path = os.path.realpath(path)
        if os.path.lexists(path) and not os.path.isfile(os.path.join(path, ".zmetadata")):
            raise IndexFileError("exists and is not a set of references", path=path, hint="give another path")
        with write_errors(path), replace_atomically(path, folder=True) as temporary:
            _fill_folder(references["refs"], temporary)
    else:
        raise AggregationError("unknown suffix", path=path, hint="give a path that ends in .json, .parq or .parquet")


def _fill_folder(refs: Mapping[str, Any], folder: str) -> None:
    names = (".zarray", ".zgroup", ".zattrs")
    entries = {key: json.loads(value) for key, value in refs.items() if basename(key) in names}
    chunks_of: dict[str, dict[str, Any]] = {}
    for key, value in refs.items():
        if key not in entries:
            name, _, chunk = key.rpartition("/")
            chunks_of.setdefault(name, {})[chunk] = value
    for name, chunks in chunks_of.items():
        meta = entries[f"{name}/.zarray"]
        grid = [-(-n // c) for n, c in zip(meta["shape"], meta["chunks"], strict=True)]
        os.makedirs(os.path.join(folder, name))
        numbers = {int(np.ravel_multi_index([*map(int, c.split("."))], grid)) if grid else 0: v for c, v in chunks.items()}
        for record in sorted({number // RECORD for number in numbers}):
            rows = [numbers.get(number) for number in range(record * RECORD, (record + 1) * RECORD)]
            _write_table(rows, os.path.join(folder, name, f"refs.{record}.parq"))
    with open(os.path.join(folder, ".zmetadata"), "w", encoding="utf-8") as file:
        json.dump({"metadata": entries, "record_size": RECORD}, file)


def _write_table(rows: Sequence[Any], path: str) -> None:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        hint = f"{install_command('kerchunk')}, or give a path that ends in .json"
        raise AggregationError("Parquet needs pyarrow", hint=hint) from error
    # A reference without offset and size is a complete file.
    ranges = [(*row, 0, 0)[:3] if isinstance(row, list) else (None, 0, 0) for row in rows]
    raw = [base64.b64decode(row[7:]) if isinstance(row, str) else None for row in rows]
    types = {"path": pyarrow.string(), "offset": pyarrow.int64(), "size": pyarrow.int64(), "raw": pyarrow.binary()}
    columns = zip(types.items(), [*zip(*ranges, strict=True), raw], strict=True)
    table = pyarrow.table({name: pyarrow.array(column, dtype) for (name, dtype), column in columns})
    with open(path, "wb") as file:  # pyarrow itself does not close the file after an error
        # promise: parquet-descriptor-closed
        parquet.write_table(table, file, compression="zstd")
