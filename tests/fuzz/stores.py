"""Fuzz targets: kerchunk references and Zarr metadata with any JSON content are read or refused."""

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from aggarray import formats
from aggarray.arrays.subarray import SubArray
from aggarray.storage.access import Access
from tests.fuzz.target import Target, home, read_some, refusing, written
from tests.fuzz.trees import dumped, loaded, mutator

_NAMES = """
    .zarray .zgroup .zattrs zarr.json .zmetadata v/.zarray v/0.0 v/c/0/0 v/zarr.json refs gen templates version shape
    chunks dtype <i4 <f8 |S3 |O <M8[ns] compressor filters zlib zstd blosc gzip order C F fill_value NaN zarr_format
    dimension_separator node_type group array data_type float32 chunk_grid regular chunk_shape chunk_key_encoding default
    codecs bytes endian crc32c sharding_indexed transpose index_codecs index_location attributes dimension_names
    consolidated_metadata _ARRAY_DIMENSIONS base64:AAAA {{u}} {{f(c='x')}} dimensions stop shuffle delta fixedscaleoffset
    pickle vlen-utf8 json2 a.bin id name configuration key url
"""
_WORDS: tuple[Any, ...] = (
    *_NAMES.split(),
    *("{{i * 8}}",),
)


def _read_all(path: str) -> bool:
    """Scan a store and read its small arrays."""
    with refusing() as refused:
        structure = formats.scan(path)
        access = Access(roots=(str(home()),))
        for variable in structure.variables:
            with refusing(), access.reach():
                if all(map(access_ok(access), _elsewhere(path, variable.name))):
                    read_some(SubArray.from_file(path, variable.name))
    return not refused


def access_ok(access: Access) -> Any:
    """Return a predicate of files in the folder of this process; targets open no others."""

    def ok(uri: str) -> bool:
        with refusing() as refused:
            access.check(uri)
        return not refused

    return ok


def _elsewhere(path: str, name: str) -> list[str]:
    handle = formats.open_file(path)
    try:
        return list(handle.external_files(name))
    finally:
        handle.close()


# Kerchunk


def run_kerchunk(data: bytes) -> bool:
    """Read references to files in the folder of this process."""
    other = home() / "a.bin"
    if not other.exists():
        other.write_bytes(np.arange(8, dtype="<f8").tobytes())
    with written(data, ".json") as path:
        return _read_all(path)


def _array(shape: list[int], dtype: str, **more: Any) -> dict[str, Any]:
    result = {"zarr_format": 2, "shape": shape, "chunks": shape, "dtype": dtype, "compressor": None, "filters": None}
    return {**result, "fill_value": 0, "order": "C", **more}


def _inline(values: np.ndarray) -> str:
    return f"base64:{base64.b64encode(values.tobytes()).decode()}"


def seeds_kerchunk() -> dict[str, bytes]:
    """Return references of both versions: inline, to a file, with templates and generators, of Zarr 3."""
    attrs = {"_ARRAY_DIMENSIONS": ["t", "x"], "units": "K"}
    plain = {
        ".zgroup": json.dumps({"zarr_format": 2}),
        "v/.zarray": json.dumps(_array([4, 2], "<f8", chunks=[2, 2])),
        "v/.zattrs": json.dumps(attrs),
        "v/0.0": ["a.bin", 0, 32],
        "v/1.0": ["a.bin", 32, 32],
        "t/.zarray": json.dumps(_array([4], "<i4")),
        "t/.zattrs": json.dumps({"_ARRAY_DIMENSIONS": ["t"], "units": "days since 2000-01-01"}),
        "t/0": _inline(np.arange(4, dtype="<i4")),
    }
    entry = {"key": "v/{{i}}.0", "url": "{{u}}", "offset": "{{i * 32}}", "length": "32", "dimensions": {"i": {"stop": 2}}}
    generated = {
        "version": 1,
        "templates": {"u": "a.bin", "f": "{{c}}.bin"},
        "gen": [entry, {**entry, "url": "{{f(c='a')}}", "dimensions": {"i": [0, 1]}}],
        "refs": {k: v for k, v in plain.items() if not k.startswith("v/") or "." in k[2:3]},
    }
    packed = {
        **plain,
        "v/.zarray": json.dumps(_array([4], "<i4", compressor={"id": "zlib", "level": 1}, filters=[{"id": "shuffle"}])),
    }
    three = {"zarr.json": _V3["zarr.json"], "v/zarr.json": _V3["v/zarr.json"], "v/c/0": _inline(np.arange(4, dtype="<f4"))}
    three = {k: v if isinstance(v, str) else json.dumps(v) for k, v in three.items()}
    return {
        "plain": dumped(plain),
        "version1": dumped({"version": 1, "refs": plain}),
        "generated": dumped(generated),
        "packed": dumped({"version": 1, "refs": packed}),
        "three": dumped({"version": 1, "refs": three}),
    }


# Zarr


def _files(found: Any) -> dict[str, bytes] | None:
    """Return the files of a store: JSON values, or base64 for bytes; None for invalid input."""
    if not isinstance(found, dict) or not 0 < len(found) <= 16:
        return None
    made: dict[str, bytes] = {}
    for name, content in found.items():
        parts = Path(name).parts
        if not parts or Path(name).is_absolute() or ".." in parts or "\0" in name or len(name) > 100 or not name.isascii():
            return None
        if any(Path(other) in Path(name).parents or Path(name) in (Path(other), *Path(other).parents) for other in made):
            return None
        if isinstance(content, str) and content.startswith("base64:"):
            try:
                made[name] = base64.b64decode(content[7:])
            except ValueError:
                made[name] = content.encode("utf-8", "surrogateescape")
        else:
            made[name] = dumped(content)
    return made


def run_zarr(data: bytes) -> bool:
    """Read a store whose files are the members of a document."""
    files = _files(loaded(data))
    if files is None:
        return False
    with written(files, ".zarr") as path:
        return _read_all(path)


_BYTES = {"name": "bytes", "configuration": {"endian": "little"}}
_V3: Mapping[str, Any] = {
    "zarr.json": {"zarr_format": 3, "node_type": "group", "attributes": {}},
    "v/zarr.json": {
        "zarr_format": 3,
        "node_type": "array",
        "shape": [4],
        "data_type": "float32",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [4]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 0,
        "codecs": [_BYTES],
        "attributes": {"units": "K"},
        "dimension_names": ["t"],
    },
}


def _sharded() -> dict[str, Any]:
    """Return a store with one shard of two chunks."""
    import google_crc32c

    values, index = np.arange(4, dtype="<f4").tobytes(), np.array([[0, 8], [8, 8]], "<u8").tobytes()
    inner = {"chunk_shape": [2], "codecs": [_BYTES], "index_codecs": [_BYTES, {"name": "crc32c"}], "index_location": "end"}
    array = {**_V3["v/zarr.json"], "codecs": [{"name": "sharding_indexed", "configuration": inner}]}
    shard = values + index + google_crc32c.value(index).to_bytes(4, "little")
    return {**_V3, "v/zarr.json": array, "v/c/0": _inline(np.frombuffer(shard, np.uint8))}


def seeds_zarr() -> dict[str, bytes]:
    """Return small stores: versions 2 and 3, consolidated, sharded, strings."""
    values = np.arange(4, dtype="<i4")
    two = {
        ".zgroup": {"zarr_format": 2},
        "v/.zarray": _array([4], "<i4", chunks=[2], filters=[{"id": "shuffle", "elementsize": 4}]),
        "v/.zattrs": {"_ARRAY_DIMENSIONS": ["t"], "units": "K", "scale_factor": 2.0},
        "v/0": _inline(values[:2]),
        "v/1": _inline(values[2:]),
    }
    names = [k for k in two if k.rpartition("/")[2].startswith(".z")]
    entries = {"zarr_consolidated_format": 1, "metadata": {k: two[k] for k in names}}
    text = {".zarray": _array([2], "|S3", fill_value=None), "0": _inline(np.array([b"ab", b"c"], "S3"))}
    result = {
        "two": two,
        "consolidated": {**two, ".zmetadata": entries},
        "text": text,
        "three": {**_V3, "v/c/0": _inline(np.arange(4, dtype="<f4"))},
        "sharded": _sharded(),
    }
    return {name: dumped(store) for name, store in result.items()}


TARGETS = (
    Target("kerchunk", run_kerchunk, seeds_kerchunk, mutator(_WORDS), 1 << 13, trees=True),
    Target("zarr", run_zarr, seeds_zarr, mutator(_WORDS), 1 << 13, trees=True),
)
