"""How does an aggregation look to readers of kerchunk references: which keys, which files, which ranges?

Arrays stay in their files; coordinates, and arrays in memory, are held in the references. Version 2 of Zarr's metadata, version
1 of kerchunk's JSON, or Parquet tables as fsspec reads them.
"""

import base64
import json
import math
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from aggarray.arrays import MasterArray
from aggarray.arrays.lazy import bounds_names
from aggarray.arrays.ragged_variables import flatten_ragged
from aggarray.cf.encoding import Encoding
from aggarray.codecs import Filter, codecs
from aggarray.errors import AggregationError, IndexFileError
from aggarray.export.kerchunk_grid import ChunkGrid, check_missing_pieces, chunk_places, layout_of, refuse
from aggarray.formats.base import basename
from aggarray.index.container import attributes_of, common_attributes, coordinates_attribute, in_memory
from aggarray.index.generation import replace_index
from aggarray.storage.atomic import replace_atomically, write_errors

#: What numcodecs calls the codecs that it undoes as HDF5 and Zarr mean them; shuffle is told its size.
_CODECS: Mapping[str, Mapping[str, Any]] = {
    "deflate": {"id": "zlib", "level": 1},
    "gzip": {"id": "gzip", "level": 1},
    "zstd": {"id": "zstd", "level": 1},
    "blosc": {"id": "blosc"},
    "lz4": {"id": "lz4"},
    "bz2": {"id": "bz2", "level": 1},
    "fletcher32": {"id": "fletcher32"},
}
#: References in a Parquet table, as kerchunk has it.
RECORD = 10_000
#: Coordinates of more bytes stay in their files, if they can.
_LARGE = 1 << 20

#: What the references of an array are, by key within it: text, or file, offset and size.
Refs = dict[str, Any]


def references_of(arrays: Sequence[MasterArray]) -> dict[str, Any]:
    """Return kerchunk references (version 1) to arrays and their coordinates.

    AggregationError, naming array, partition and reason, where the values cannot stay as they are in their files.
    """
    refs: Refs = {".zgroup": _text({"zarr_format": 2}), ".zattrs": _text(_plain(common_attributes(arrays)))}
    written: dict[str, tuple[MasterArray, Refs]] = {}
    flat = list(map(flatten_ragged, arrays))
    known = {name: one for array in flat for name, one in array.coords.items()}
    for array in flat:
        for name, one in {**array.coords, array.name or "": array}.items():
            own = _array(one if one is array else _with_bounds(one, known), coordinate=one is not array)
            before = written.get(name)
            if not _is_key(name) or (before is not None and before[1] != own):
                raise AggregationError(_clash(name, array, before))
            if before is None:
                written[name] = one, own
                refs.update(_groups(name))
                refs.update({f"{name}/{key}": value for key, value in own.items()})
    _check_sizes([one for one, _ in written.values()])
    return {"version": 1, "refs": refs}


def _with_bounds(coordinate: MasterArray, known: Mapping[str, MasterArray]) -> MasterArray:
    """Return a coordinate with its bounds beside it, so that its attributes name them."""
    bounds = {name: known[name] for name in bounds_names(coordinate) if name in known}
    return replace(coordinate, coords=bounds) if bounds else coordinate


def _is_key(name: str) -> bool:
    """Tell whether a name is one in a Zarr store: no part of it is empty, or hidden, or leads elsewhere."""
    return all(part and not part.startswith(".") for part in name.split("/"))


def _clash(name: str, array: MasterArray, before: tuple[MasterArray, Refs] | None) -> str:
    if before is None:
        return f"{array.name}: {name!r} is no name in a Zarr store: no kerchunk reference; give it another"
    text = f"{array.name}: another {name!r} than that of shape {before[0].shape}"
    return f"{text}: one set of references has one of a name: select one of the arrays"


def _check_sizes(arrays: Sequence[MasterArray]) -> None:
    sizes: dict[str, tuple[int, str]] = {}
    for array in arrays:
        for dimension, size in zip(array.dimensions, array.shape, strict=True):
            known, other = sizes.setdefault(dimension, (size, array.name or ""))
            if known != size:
                text = f"{array.name}: {size} of dimension {dimension!r}, of which {other} has {known}"
                raise AggregationError(f"{text}: one set of references has one size: select one of the arrays")


def _groups(name: str) -> Refs:
    """Return the groups above a name with slashes."""
    parts = name.split("/")[:-1]
    return {f"{'/'.join(parts[: i + 1])}/.zgroup": _text({"zarr_format": 2}) for i in range(len(parts))}


def _array(array: MasterArray, coordinate: bool) -> Refs:
    by_value = in_memory(array._matrix) or (coordinate and array.nbytes <= _LARGE)
    if coordinate and not by_value:
        with suppress(AggregationError):
            return _located(array)
    return _held(array) if by_value or coordinate else _located(array)


# Arrays that stay in their files


def _located(array: MasterArray) -> Refs:
    layout = layout_of(array)
    _check_filters(array, layout)
    refs = _metadata(array, layout.dtype, (layout.chunk, layout.filters), layout.fill, _packing(layout.encoding))
    for piece in layout.pieces:
        refs.update(_places(array, layout, piece))
    return refs


def _check_filters(array: MasterArray, layout: ChunkGrid) -> None:
    """Refuse filters that numcodecs does not undo, or not in this order.

    numcodecs shuffles whole elements only. HDF5 leaves the bytes of an incomplete last one in place.
    """
    first = layout.pieces[0]
    size: int | None = math.prod(first.table.chunk) * first.table.dtype.itemsize
    for position, step in enumerate(layout.filters):
        if step.name != "shuffle" and step.name not in _CODECS:
            refuse(array, first, f"stored with {step.name}, for which references have no codec")
        # promise: kerchunk-filter-order
        if step.name == "shuffle" and (size is None or size % int(step.parameters[0])):
            before = ", ".join(f.name for f in layout.filters[:position]) or "no filter"
            what = f"shuffle of elements of {step.parameters[0]} bytes after {before}"
            left = "a varying number of" if size is None else size
            refuse(array, first, f"{what}, which leaves {left} bytes: numcodecs shuffles whole elements only")
        size = None if size is None else codecs()[step.name].grown(size, step.parameters)


def _places(array: MasterArray, layout: ChunkGrid, piece: Any) -> Refs:
    """Return the references of one partition; chunks of a store that are not there are not stored."""
    table, found = piece.table, Refs()
    for place, number, offset, size in chunk_places(layout, piece):
        key = ".".join(map(str, place)) or "0"
        if table.inline and number in table.inline:
            found[key] = _base64(table.inline[number])
            continue
        uri = piece.uri
        if table.names is not None:
            name = table.names(number)
            uri = name if name.startswith("/") or "://" in name else f"{piece.uri}/{name}"
            if uri is not name and "://" not in uri and not os.path.exists(uri):
                check_missing_pieces(array, layout, piece)
                continue
        found[key] = [uri] if (offset, size) == (0, 0) else [uri, offset, size]
    return found


def _packing(encoding: Encoding) -> dict[str, Any]:
    """Return the attributes that say how stored values are decoded, but for the fill value."""
    missing = [*encoding.missing[1:], *([np.nan] if encoding.missing_nan and encoding.missing else [])]
    bounds = encoding.valid if encoding.valid != (None, None) else encoding.valid_unpacked
    unsigned = None if encoding.viewed == encoding.stored else str(encoding.viewed.kind == "u").lower()
    found = {
        "scale_factor": encoding.scale_factor,
        "add_offset": encoding.add_offset,
        "missing_value": missing or None,
        "valid_min": bounds[0],
        "valid_max": bounds[1],
        "_Unsigned": unsigned,
    }
    return {name: value for name, value in found.items() if value is not None}


# Arrays that the references hold


def _held(array: MasterArray) -> Refs:
    values, mask = array._values_and_mask()
    values = np.asarray(values)
    if values.dtype.kind == "T":
        width = max((len(v) for v in values.ravel().tolist()), default=1)
        values = values.astype(f"<U{max(width, 1)}")
    absent = mask is not None and bool(np.any(mask))
    fill = _free(array, values[~mask]) if mask is not None and absent and values.dtype.kind in "iufc" else None
    if mask is not None and absent and values.dtype.kind in "biufc":
        values = np.where(mask, array.fill_value if fill is None else fill, values).astype(values.dtype)
    refs = _metadata(array, values.dtype, (tuple(max(n, 1) for n in values.shape), ()), fill, {})
    if values.size:
        refs[".".join("0" * values.ndim) or "0"] = _base64(np.ascontiguousarray(values).tobytes())
    return refs


def _free(array: MasterArray, real: np.ndarray) -> Any:
    """Return a value for missing that no other element has: the array's own if it can be."""
    if array.dtype.kind not in "iu" or not (real == array.fill_value).any():
        return array.fill_value
    limits = np.iinfo(array.dtype)
    taken = set(np.unique(real).tolist())
    free = next((v for v in range(limits.max, limits.min - 1, -1) if v not in taken), None)
    if free is None:
        text = f"all values of {array.dtype} occur, and none is left to mean missing"
        raise AggregationError(f"{array.name}: {text}: no kerchunk reference; read it with astype('float64')")
    return array.dtype.type(free)


# Metadata


def _metadata(
    array: MasterArray,
    dtype: np.dtype[Any],
    stored: tuple[tuple[int, ...], Sequence[Filter]],
    fill: Any,
    packing: Mapping[str, Any],
) -> Refs:
    chunk, filters = stored
    meta = {
        "zarr_format": 2,
        "shape": list(array.shape),
        "chunks": list(chunk),
        "dtype": dtype.str,
        "fill_value": _fill(fill),
        "order": "C",
        "filters": [_codec(f) for f in filters] or None,
        "dimension_separator": ".",
        "compressor": None,
    }
    attrs = {**attributes_of(array, {n: n for n in array.coords}), **packing}
    if others := coordinates_attribute(array, {n: n for n in array.coords}):
        attrs["coordinates"] = others
    return {".zarray": _text(meta), ".zattrs": _text({**_plain(attrs), "_ARRAY_DIMENSIONS": list(array.dimensions)})}


def _codec(filter_: Filter) -> dict[str, Any]:
    if filter_.name == "shuffle":
        return {"id": "shuffle", "elementsize": filter_.parameters[0]}
    return dict(_CODECS[filter_.name])


def _fill(value: Any) -> Any:
    """Return a fill value as Zarr's JSON has it."""
    found = None if value is None else np.asarray(value).item()
    if isinstance(found, complex):
        return [_fill(found.real), _fill(found.imag)]
    if isinstance(found, float) and not np.isfinite(found):
        return "NaN" if np.isnan(found) else "Infinity" if found > 0 else "-Infinity"
    return found


def _plain(attrs: Mapping[str, Any]) -> dict[str, Any]:
    return {n: v.tolist() if isinstance(v, np.ndarray | np.generic) else _listed(v) for n, v in attrs.items() if v is not None}


def _listed(value: Any) -> Any:
    return [v.item() if isinstance(v, np.generic) else v for v in value] if isinstance(value, list | tuple) else value


def _text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _base64(data: bytes) -> str:
    return f"base64:{base64.b64encode(data).decode()}"


# Files


def write(references: Mapping[str, Any], path: str) -> None:
    """Write references as JSON or, by the name's end (.parq, .parquet), as Parquet; what was there stays until all is."""
    if path.endswith(".json"):
        with replace_index(path, None) as (temporary, _), open(temporary, "w", encoding="utf-8") as file:
            json.dump(references, file)
    elif path.endswith((".parq", ".parquet")):
        _write_tables(references["refs"], os.path.realpath(path))
    else:
        raise AggregationError(f"{path}: give a path that ends in .json, .parq or .parquet")


def _write_tables(refs: Mapping[str, Any], path: str) -> None:
    if os.path.lexists(path) and not os.path.isfile(os.path.join(path, ".zmetadata")):
        raise IndexFileError(f"{path}: there is something that is no set of references: give another path")
    with write_errors(path), replace_atomically(path, folder=True) as temporary:
        _fill_folder(refs, temporary)


def _fill_folder(refs: Mapping[str, Any], folder: str) -> None:
    names = (".zarray", ".zgroup", ".zattrs")
    entries = {key: json.loads(value) for key, value in refs.items() if basename(key) in names}
    own: dict[str, dict[str, Any]] = {}
    for key, value in refs.items():
        if key not in entries:
            name, _, chunk = key.rpartition("/")
            own.setdefault(name, {})[chunk] = value
    for name, chunks in own.items():
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
        raise AggregationError("Parquet needs pyarrow: pip install 'aggarray[kerchunk]', or give a path in .json") from error
    placed = [row if isinstance(row, list) else None for row in rows]
    table = pyarrow.table(
        {
            "path": pyarrow.array([row and row[0] for row in placed], pyarrow.string()),
            "offset": pyarrow.array([row[1] if row and len(row) > 1 else 0 for row in placed], pyarrow.int64()),
            "size": pyarrow.array([row[2] if row and len(row) > 1 else 0 for row in placed], pyarrow.int64()),
            "raw": pyarrow.array([base64.b64decode(r[7:]) if isinstance(r, str) else None for r in rows], pyarrow.binary()),
        }
    )
    with open(path, "wb") as file:  # by itself pyarrow keeps the file open after an error
        # promise: parquet-descriptor-closed
        parquet.write_table(table, file, compression="zstd")
