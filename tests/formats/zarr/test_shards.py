"""Tests of nested shards with transposes and codecs between them, against zarr-python."""

import json
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st

import aggarray as aa
from aggarray.formats import open_file
from tests.support.chunk_indexes import known, table_of

TYPES = ["<i1", "<i2", ">i4", "<f4", ">f8", "bool"]
COMPRESSORS: list[Any] = [zarr.codecs.ZstdCodec(), zarr.codecs.GzipCodec(), zarr.codecs.BloscCodec(), zarr.codecs.Crc32cCodec()]


def assert_values(path: Path, expected: np.ndarray) -> None:
    """Compare values, read directly or by zarr-python: all of them, and a part."""
    part = tuple(slice(n // 3, n - n // 4, 1) for n in expected.shape)
    array, handle = aa.open(path)["v"], open_file(path)
    for box in (tuple(slice(0, n, 1) for n in expected.shape), part):
        np.testing.assert_array_equal(handle.read("v", box), expected[box])
        np.testing.assert_array_equal(array[box], expected[box])


@st.composite
def codec(draw: st.DrawFn, chunk: tuple[int, ...], dtype: str, levels: int, plain: bool) -> tuple[list[Any], tuple[int, ...]]:
    """Draw the codecs of a sharded array, and the shape of a shard. ``chunk``: shape of the innermost chunks."""
    codecs: list[Any] = [zarr.codecs.BytesCodec(endian="big" if dtype.startswith(">") else "little")]
    codecs += draw(st.lists(st.sampled_from(COMPRESSORS), max_size=2))
    for _ in range(levels):
        if not plain and draw(st.booleans()):
            order = tuple(draw(st.permutations(range(len(chunk)))))
            codecs = [zarr.codecs.TransposeCodec(order=order), *codecs]
            # Shape of the chunk after the transpose.
            chunk = tuple(chunk[order.index(axis)] for axis in range(len(chunk)))
        index = [zarr.codecs.BytesCodec(endian=draw(st.sampled_from(["little", "big"])))]
        index += [zarr.codecs.Crc32cCodec()] if draw(st.booleans()) else []
        where = draw(st.sampled_from(["start", "end"]))
        codecs = [zarr.codecs.ShardingCodec(chunk_shape=chunk, codecs=codecs, index_codecs=index, index_location=where)]
        codecs += [draw(st.sampled_from(COMPRESSORS))] if not plain and draw(st.booleans()) else []
        chunk = tuple(side * draw(st.integers(1, 2)) for side in chunk)
    return codecs, chunk


@pytest.mark.filterwarnings("ignore:Combining a `sharding_indexed` codec")
@given(st.data(), st.booleans())
def test_nested_shards(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, plain: bool) -> None:
    path = tmp_path_factory.mktemp("s") / "v"
    dtype = data.draw(st.sampled_from(TYPES))
    chunk = tuple(data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=3)))
    (serializer, *rest), shard = data.draw(codec(chunk, dtype, data.draw(st.integers(1, 3)), plain))
    shape = tuple(data.draw(st.integers(1, 2 * side)) for side in shard)
    how = {"serializer": serializer, "compressors": rest or None, "fill_value": 1}
    made = zarr.create_array(path, shape=shape, dtype=dtype, chunks=shard, **how)
    box = tuple(slice(*sorted(data.draw(st.tuples(st.integers(0, n), st.integers(0, n))))) for n in shape)
    if all(s.stop > s.start for s in box):
        made[box] = np.random.default_rng(1).integers(0, 100, tuple(s.stop - s.start for s in box)).astype(dtype)
    assert_values(path, np.asarray(made[...]))
    if plain:
        assert known(path).chunk == chunk


def nested(path: Path, values: np.ndarray, *chunks: tuple[int, ...], **inner: Any) -> Any:
    """Write values in nested shards. ``chunks``: shapes, the innermost first."""
    serializer: Any = zarr.codecs.BytesCodec()
    rest = [zarr.codecs.GzipCodec()]
    for chunk in chunks[:-1]:
        serializer = zarr.codecs.ShardingCodec(chunk_shape=chunk, codecs=[serializer, *rest], **inner)
        rest = []
    how = {"serializer": serializer, "compressors": None, "fill_value": 0}
    with zarr.config.set({"array.write_empty_chunks": False}):  # cubed sets it to True when it is imported
        made = zarr.create_array(path, shape=values.shape, dtype=values.dtype, chunks=chunks[-1], **how)
        made[...] = values
    return made


def test_many_nested_shards(tmp_path: Path) -> None:
    values = np.zeros((60, 70), "i4")
    values[5:9, 60:] = values[41:43] = 7
    nested(tmp_path / "v", values, (2, 1), (4, 5), (8, 10), (16, 20))
    assert_values(tmp_path / "v", values)
    table = known(tmp_path / "v")
    assert table.chunk == (2, 1) and 0 < (table.offsets >= 0).sum() < table.offsets.size // 10


def test_text_in_nested_shards(tmp_path: Path) -> None:
    texts = np.array(["a", "bc", "", "ü" * 9, "x", "y"], np.dtypes.StringDType())
    text = [zarr.codecs.VLenUTF8Codec(), zarr.codecs.ZstdCodec()]
    inner = zarr.codecs.ShardingCodec(chunk_shape=(1,), codecs=text)
    outer = zarr.codecs.ShardingCodec(chunk_shape=(2,), codecs=[inner])
    made = zarr.create_array(tmp_path / "v", shape=(6,), dtype=texts.dtype, chunks=(4,), serializer=outer, compressors=None)
    made[...] = texts
    assert aa.open(tmp_path / "v")["v"].read().tolist() == texts.tolist()


@pytest.mark.parametrize("where", ["start", "end"])
def test_damaged_nested_shards(tmp_path: Path, where: str) -> None:
    values = np.arange(64.0)
    nested(tmp_path / "v", values, (2,), (8,), (32,), index_location=where)
    array, file = aa.open(tmp_path / "v")["v"], tmp_path / "v" / "c" / "0"
    stored = file.read_bytes()
    for at in range(0, len(stored), 7):
        file.write_bytes(stored[:at] + bytes([stored[at] ^ 0x10]) + stored[at + 1 :])
        try:
            decoded = array.read()
        except aa.FormatError as error:
            assert str(tmp_path / "v") in str(error)
        else:
            assert decoded.tolist() == values.tolist()  # a byte without meaning, such as the time in a gzip header
        file.write_bytes(stored[:at])
        with pytest.raises(aa.FormatError, match="v"):
            array.read()


def test_declared_nested_shards_are_bounded(tmp_path: Path) -> None:
    """All entries of each index overlap. Memory and time stay in proportion to the file."""
    inner: dict[str, Any] = {"name": "bytes", "configuration": {"endian": "little"}}
    sides = [1 << 8 * n for n in range(7)]
    for side in sides[:-1]:
        settings = {"chunk_shape": [side], "codecs": [inner], "index_codecs": [{"name": "bytes"}], "index_location": "end"}
        settings["index_codecs"] = [{"name": "bytes", "configuration": {"endian": "little"}}]
        inner = {"name": "sharding_indexed", "configuration": settings}
    nested(tmp_path / "v", np.zeros(4, "u1"), (1,), (4,))
    meta = json.loads((tmp_path / "v" / "zarr.json").read_text())
    grid = {"name": "regular", "configuration": {"chunk_shape": [sides[-1]]}}
    (tmp_path / "v" / "zarr.json").write_text(json.dumps({**meta, "shape": [sides[-1]], "chunk_grid": grid, "codecs": [inner]}))
    (tmp_path / "v" / "c").mkdir(exist_ok=True)
    (tmp_path / "v" / "c" / "0").write_bytes(b"".join(struct.pack("<QQ", n, 4096 - n) for n in range(256)))
    assert table_of(tmp_path / "v") is None
    with pytest.raises(aa.FormatError, match=r"overlap|cannot reshape"):
        aa.open(tmp_path / "v")["v"][5]


def test_chunk_that_overlaps_index(tmp_path: Path) -> None:
    """zarr-python, which reads transposed chunks, does not read a chunk of the size and offset of the index as the index."""
    made = nested(tmp_path / "v", np.arange(8.0), (2,), (8,), index_location="start")
    meta = json.loads((tmp_path / "v" / "zarr.json").read_text())
    meta["codecs"][0]["configuration"]["codecs"].insert(0, {"name": "transpose", "configuration": {"order": [0]}})
    (tmp_path / "v" / "zarr.json").write_text(json.dumps(meta))
    assert table_of(tmp_path / "v") is None and open_file(tmp_path / "v").read("v", (slice(6, 8, 1),)).tolist() == [6, 7]
    file = tmp_path / "v" / "c" / "0"
    size = 4 * 16 + 4
    swollen = zlib.compressobj(9, zlib.DEFLATED, 31)
    much = swollen.compress(bytes(1 << 17)) + swollen.flush()
    index = struct.pack("<QQ", 0, size) * 4
    import google_crc32c

    file.write_bytes(index + struct.pack("<I", google_crc32c.value(index)) + much)
    with pytest.raises(aa.FormatError, match="overlaps the index"):
        open_file(tmp_path / "v").read("v", (slice(0, 1, 1),))
    del made
