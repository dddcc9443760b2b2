"""Hostile Zarr stores and references: decompression bombs, metadata, nesting and names."""

import bz2
import gzip
import json
import lzma
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from numcodecs import zstd

import aggarray as aa
from tests.faults.hostile import looked_at, unborne

MUCH = 1 << 26
ARRAY = {"zarr_format": 2, "shape": [4], "chunks": [4], "dtype": "<f8", "compressor": None, "fill_value": 0, "order": "C"}
BYTES = {"name": "bytes", "configuration": {"endian": "little"}}
#: A Blosc frame that states two billion decoded bytes.
FRAME = bytes([2, 1, 1, 8]) + struct.pack("<III", 0x7FFFFFE0, 1 << 20, 116) + bytes(100)


def second(folder: Path, chunk: bytes = b"", attrs: str = '{"_ARRAY_DIMENSIONS": ["v"]}', raw: str = "", **changes: Any) -> str:
    """Write a version 2 store whose array ``v`` is a coordinate, which a scan reads."""
    (folder / "v").mkdir(parents=True)
    (folder / ".zgroup").write_text('{"zarr_format": 2}')
    (folder / "v" / ".zarray").write_text(raw or json.dumps({**ARRAY, "filters": None, **changes}))
    (folder / "v" / ".zattrs").write_text(attrs)
    if chunk:
        (folder / "v" / "0").write_bytes(chunk)
    return str(folder)


def third(folder: Path, chunk: bytes = b"", raw: str = "", **changes: Any) -> str:
    """Write a version 3 store like that of `second`."""
    (folder / "v" / "c").mkdir(parents=True)
    (folder / "zarr.json").write_text('{"zarr_format": 3, "node_type": "group", "attributes": {}}')
    about = {
        **{"zarr_format": 3, "node_type": "array", "shape": [4], "data_type": "float64", "fill_value": 0, "attributes": {}},
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [4]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        **{"codecs": [BYTES], "dimension_names": ["v"]},
    }
    (folder / "v" / "zarr.json").write_text(raw or json.dumps({**about, **changes}))
    if chunk:
        (folder / "v" / "c" / "0").write_bytes(chunk)
    return str(folder)


def sharded(*codecs: Any, inner: list[Any], size: int = 4) -> dict[str, Any]:
    settings = {"chunk_shape": inner, "codecs": list(codecs), "index_codecs": [BYTES], "index_location": "end"}
    grid = {"name": "regular", "configuration": {"chunk_shape": [size]}}
    return {"shape": [size], "chunk_grid": grid, "codecs": [{"name": "sharding_indexed", "configuration": settings}]}


def shard(chunk: bytes) -> bytes:
    return chunk + struct.pack("<QQ", 0, len(chunk))


ZLIB, TEXT = {"id": "zlib", "level": 1}, {"dtype": "|O", "filters": [{"id": "vlen-utf8"}]}
BLOSC = {"id": "blosc", "cname": "lz4", "clevel": 1, "shuffle": 0, "blocksize": 0}
GZIP = {"name": "gzip", "configuration": {"level": 1}}
#: Chunks with this codec are read by zarr-python.
TURNED = {"name": "transpose", "configuration": {"order": [0]}}
ZSTD = {"name": "zstd", "configuration": {"level": 1, "checksum": False}}


def bombs(folder: Path) -> dict[str, str]:
    zeros = bytes(MUCH)
    return {
        "zlib": second(folder / "0", zlib.compress(zeros, 9), compressor=ZLIB),
        "gzip": second(folder / "1", gzip.compress(zeros), compressor={"id": "gzip", "level": 1}),
        "bz2": second(folder / "2", bz2.compress(zeros), compressor={"id": "bz2", "level": 1}),
        "lzma": second(folder / "3", lzma.compress(zeros, preset=0), compressor={"id": "lzma"}),
        "zstd": second(folder / "4", zstd.compress(zeros, 1), compressor={"id": "zstd", "level": 1}),
        "lz4": second(folder / "5", struct.pack("<i", 0x7FFFFFFF) + bytes(99), compressor={"id": "lz4", "acceleration": 1}),
        "blosc": second(folder / "6", FRAME, compressor=BLOSC),
        "text in blosc": second(folder / "7", FRAME, compressor=BLOSC, **TEXT),
        "number of texts": second(folder / "8", struct.pack("<I", 0x7FFFFFFF) + bytes(64), **TEXT),
        "type of a filter": second(folder / "9", bytes(32), filters=[{"id": "delta", "dtype": "|S99999999", "astype": "<i1"}]),
        "gzip of version 3": third(folder / "a", gzip.compress(zeros), codecs=[BYTES, GZIP]),
        "zstd of version 3": third(folder / "b", zstd.compress(zeros, 1), codecs=[BYTES, ZSTD]),
        "a shard": third(folder / "c", shard(gzip.compress(zeros)), **sharded(BYTES, GZIP, inner=[4])),
        "a transposed shard": third(folder / "f", shard(gzip.compress(zeros)), **sharded(TURNED, BYTES, GZIP, inner=[4])),
        "shards in shards": third(folder / "d", bytes(99), **sharded(sharded(BYTES, inner=[2])["codecs"][0], inner=[4])),
        "references": references(folder / "e.json", "base64:", zlib.compress(zeros, 9)),
    }


def references(path: Path, kind: str, data: bytes) -> str:
    from base64 import b64encode

    refs = {
        ".zgroup": '{"zarr_format": 2}',
        "v/.zattrs": '{"_ARRAY_DIMENSIONS": ["v"]}',
        "v/0": kind + b64encode(data).decode(),
    }
    path.write_text(json.dumps({"version": 1, "refs": {**refs, "v/.zarray": json.dumps({**ARRAY, "compressor": ZLIB})}}))
    return str(path)


def test_decompression_bombs_are_refused(tmp_path: Path) -> None:
    files = bombs(tmp_path)
    result = looked_at(files, tmp_path)
    assert unborne(result, 32 << 20) == {}
    opened = {name: one.steps[0] for name, one in result.items()}
    assert {name: step for name, step in opened.items() if step[1] != "FormatError" or files[name] not in step[2]} == {}


def test_ordinary_stores_are_read(tmp_path: Path) -> None:
    """Chunks with and without shards, and those that zarr-python decodes: strings, transposes, filters, unknown codecs."""
    group = zarr.open_group(tmp_path / "s.zarr", mode="w")
    values = np.arange(1.0, 41.0)
    group.create_array("a", data=values, chunks=(5,), shards=(20,), dimension_names=["a"])
    group.create_array("b", data=values.astype("f4"), chunks=(7,), compressors=None, dimension_names=["b"])
    group.create_array("c", data=np.array(["x", "ü" * 99, ""], np.dtypes.StringDType()), dimension_names=["c"])
    group.create_array("d", data=np.arange(1 << 10), chunks=(1 << 10,), shards=(1 << 11,), dimension_names=["d"])
    turned = [zarr.codecs.TransposeCodec(order=(0,))]
    group.create_array("h", data=values, chunks=(5,), shards=(20,), filters=turned, dimension_names=["h"])
    agg = aa.open(tmp_path / "s.zarr")
    assert agg["h"][...].tolist() == values.tolist()
    assert agg["a"][...].tolist() == agg["b"][...].tolist() == values.tolist()
    assert agg["c"][...].tolist() == ["x", "ü" * 99, ""] and agg["d"][...].tolist() == list(range(1 << 10))
    scanned = {v.name: v.values.tolist() for s in agg._provenance.structures() for v in s.variables if v.values is not None}
    assert set(scanned) == {*"abcdh"} and scanned["a"] == scanned["h"] == values.tolist()
    old = zarr.open_group(tmp_path / "t.zarr", mode="w", zarr_format=2)
    from numcodecs import BZ2, Delta, FixedScaleOffset

    old.create_array("e", data=values, filters=[Delta("f8")], compressors=BZ2(), attributes={"_ARRAY_DIMENSIONS": ["e"]})
    scaled = [FixedScaleOffset(0, 10, "f8", "i2")]
    old.create_array("f", data=values, filters=scaled, attributes={"_ARRAY_DIMENSIONS": ["f"]})
    agg = aa.open(tmp_path / "t.zarr")
    assert agg["e"][...].tolist() == agg["f"][...].tolist() == values.tolist()


SHAPES: dict[str, Any] = {
    **{"negative": [-4], "broken": [4.5], "float": [4.0], "text": ["4"], "nested": [[4]], "null": None, "object": {"a": 1}},
    **{"2^70": [1 << 70], "2^62": [1 << 62], "product": [1 << 31] * 4, "truth": [True], "many": [1] * 70, "zero": [0]},
    **{"infinite": [float("inf")], "2^40": [1 << 40]},
}


def test_hostile_metadata(tmp_path: Path) -> None:
    files = {f"shape {name}": second(tmp_path / f"s{name}", shape=s, chunks=s) for name, s in SHAPES.items()}
    files |= {f"chunks {name}": second(tmp_path / f"c{name}", chunks=s) for name, s in SHAPES.items()}
    files |= {f"shape {name}, third": third(tmp_path / f"t{name}", shape=s) for name, s in SHAPES.items()}
    lists, objects = "[" * 100_000 + "]" * 100_000, '{"a":' * 100_000 + "1" + "}" * 100_000
    files |= {
        "array of lists": second(tmp_path / "m0", raw=lists),
        "array of objects": second(tmp_path / "m1", raw=objects),
        "attribute of lists": second(tmp_path / "m2", attrs=f'{{"a": {lists}}}'),
        "attribute 450 deep": second(tmp_path / "m3", attrs='{"units":' + '{"x":' * 450 + "1" + "}" * 451),
        "filters 900 deep": second(tmp_path / "m4", raw=json.dumps(ARRAY)[:-1] + ', "filters": ' + "[" * 900 + "]" * 900 + "}"),
        "a number of digits": second(tmp_path / "m5", attrs='{"a": ' + "9" * 5000 + "}"),
        "third of objects": third(tmp_path / "m6", raw=f'{{"attributes": {objects}}}'),
        "many shards": third(tmp_path / "m7", bytes(99), **sharded(BYTES, inner=[1], size=1 << 40)),
        "long texts": second(tmp_path / "m8", dtype="|S2147483647"),
        "texts of long characters": second(tmp_path / "m9", dtype="|S1", shape=[4, 1 << 40], chunks=[4, 1 << 20]),
        "texts of 2^40 bytes": third(
            tmp_path / "ma", data_type={"name": "null_terminated_bytes", "configuration": {"length_bytes": 1 << 40}}
        ),
        "unknown codec": second(tmp_path / "mb", b"x", compressor={"id": "os:system"}),
        "objects": second(tmp_path / "mc", b"[1, 2, 3, 4]", dtype="|O", filters=[{"id": "json2"}]),
        "messages": second(tmp_path / "md", b"\xdd\xff\xff\xff\xff", dtype="|O", filters=[{"id": "msgpack2"}]),
        "type of digits": second(tmp_path / "mf", dtype="9" * 5000 + ","),
        "type of nothing": second(tmp_path / "mg", dtype=","),
        "filter of a type": second(tmp_path / "mh", filters=[{"id": "delta", "dtype": "f4,("}]),
        "wild names": third(tmp_path / "me", dimension_names=["a\x1b[2J\u202e\n"]),
    }
    assert unborne(looked_at(files, tmp_path)) == {}


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    """Also not through a filter preceded by others."""
    mark = tmp_path / "mark"
    code = f"cos\nsystem\n(S'touch {mark}'\ntR.".encode()
    pickle = {"id": "pickle", "protocol": 5}
    files = {
        "filter": second(tmp_path / "0", code, dtype="|O", filters=[pickle]),
        "compressor": second(tmp_path / "1", code, compressor=pickle),
        "third": third(tmp_path / "2", code, codecs=[BYTES, {"name": "numcodecs.pickle", "configuration": {}}]),
        "shard": third(tmp_path / "3", shard(code), **sharded(BYTES, {"name": "numcodecs.pickle"}, inner=[4])),
    }
    assert unborne(looked_at(files, tmp_path)) == {} and not mark.exists()


def test_names_in_consolidated_metadata_stay_inside(tmp_path: Path) -> None:
    second(tmp_path / "secret", np.full(4, 77.0).tobytes())
    entries = {
        f"{way}/v/.zarray": ARRAY for way in ("../secret", str(tmp_path / "secret"), "a/../../secret", "/".join("g" * 500))
    }
    (tmp_path / "s.zarr").mkdir()
    content = {"zarr_consolidated_format": 1, "metadata": {".zgroup": {"zarr_format": 2}, **entries}}
    (tmp_path / "s.zarr" / ".zmetadata").write_text(json.dumps(content))
    agg = aa.open(tmp_path / "s.zarr")
    for array in agg:
        with pytest.raises(aa.NotFoundError):
            array[...]


def test_cyclic_folders(tmp_path: Path) -> None:
    (tmp_path / "s.zarr").mkdir()
    second(tmp_path / "s.zarr" / "g")
    (tmp_path / "s.zarr" / ".zgroup").write_text('{"zarr_format": 2}')
    for name in "ab":
        (tmp_path / "s.zarr" / name).symlink_to(".", target_is_directory=True)
    assert unborne(looked_at({"links": str(tmp_path / "s.zarr")}, tmp_path)) == {}


@pytest.mark.parametrize("trust", ["verify", "assume"])
@pytest.mark.parametrize("where", ["tas", "time", "."])
def test_nested_list_attributes(where: str, trust: str, tmp_path: Path) -> None:
    """JSON permits nested lists of different lengths."""
    names = ("_FillValue", "missing_value", "valid_range", "scale_factor", "units", "calendar", "standard_name", "cell_methods")
    names += ("coordinates", "bounds", "flag_values", "axis", "positive", "ancillary_variables", "_Unsigned", "frequency")
    for number in range(2):
        group = zarr.open_group(tmp_path / f"{number}.zarr", mode="w", zarr_format=2)
        for name, units in (("time", "days since 2000-01-01"), ("tas", "K")):
            array = group.create_array(name, shape=(3,), dtype="f8", chunks=(3,))
            array[...] = np.arange(3) + 3 * number + 1
            array.attrs.update({"_ARRAY_DIMENSIONS": ["time"], "units": units})
        (group if where == "." else group[where]).attrs.update({name: [[1], [2, 3]] for name in names if name != "units"})
    agg = aa.open(tmp_path, rules=aa.Rules(trust=trust))
    result = sorted(value for array in agg for value in array[...].tolist())
    assert result == [1, 2, 3, 4, 5, 6] or {s.variable for s in agg.skipped} == {where}
    agg.save(tmp_path / "i.nca")
    assert repr(aa.open(tmp_path / "i.nca")) == repr(agg) and agg.check() is not None
