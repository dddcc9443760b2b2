"""Tests of the chunk indexes of Zarr stores against zarr-python."""

import contextlib
import json
import os
import warnings
from pathlib import Path
from typing import Any

import google_crc32c
import numcodecs
import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st

import aggarray as aa
from aggarray import formats
from aggarray.errors import AggarrayError, FormatError
from aggarray.formats.base import full_box
from aggarray.formats.zarr import chunk_keys
from tests.support.chunk_indexes import assembled, known, table_of

NUMBERS = ["bool", "i1", "u1", "<i2", ">i2", "<u4", ">u4", "<i8", "<f2", "<f4", ">f4", "<f8", ">f8", "<c8", ">c16"]
SECOND = [None, numcodecs.BZ2(), numcodecs.Zlib(), numcodecs.GZip(), numcodecs.Zstd(), numcodecs.Blosc("lz4"), numcodecs.LZ4()]
THIRD = [[], ["zstd"], ["gzip"], ["blosc"], ["zstd", "crc32c"], ["crc32c"]]
LAYERS = {
    "zstd": zarr.codecs.ZstdCodec,
    "gzip": zarr.codecs.GzipCodec,
    "blosc": zarr.codecs.BloscCodec,
    "crc32c": zarr.codecs.Crc32cCodec,
}


def edit(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def fills(dtype: str) -> list[Any]:
    return {"f": [0, 1.5, np.nan, np.inf, -np.inf], "c": [0, 1 + 2j], "b": [False, True]}.get(np.dtype(dtype).kind, [0, 7])


def check(path: Path, made: Any, dtype: str, box: tuple[slice, ...]) -> None:
    if all(s.stop > s.start for s in box):
        made[box] = np.random.default_rng(1).integers(0, 100, tuple(s.stop - s.start for s in box)).astype(dtype)
    values = np.asarray(made[...])
    table = known(path, "deep/v")
    assert table.dtype.newbyteorder("=") == np.dtype(dtype).newbyteorder("=")
    result = assembled(path, table)
    np.testing.assert_array_equal(result, values)
    handle = formats.open_file(path)
    np.testing.assert_array_equal(handle.read("deep/v", full_box(values.shape)), values)
    np.testing.assert_array_equal(handle.read("deep/v", box), values[box])


def drawn(data: st.DataObject) -> tuple[tuple[int, ...], tuple[int, ...], tuple[slice, ...], str, Any]:
    shape = tuple(data.draw(st.lists(st.integers(0, 7), max_size=3)))
    chunks = tuple(data.draw(st.integers(1, 3)) for _ in shape)
    box = tuple(slice(*sorted((data.draw(st.integers(0, n)), data.draw(st.integers(0, n))))) for n in shape)
    dtype = data.draw(st.sampled_from(NUMBERS))
    return shape, chunks, box, dtype, data.draw(st.sampled_from(fills(dtype)))


@given(data=st.data())
def test_version_2_equals_zarr(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = tmp_path_factory.mktemp("chunks") / "store"
    shape, chunks, box, dtype, fill = drawn(data)
    item = np.dtype(dtype).itemsize
    filters = data.draw(st.sampled_from([[], [numcodecs.Shuffle(item)], [numcodecs.Fletcher32()]]))
    group = zarr.open_group(path, mode="w", zarr_format=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = group.create_array(
            "deep/v",
            shape=shape,
            dtype=dtype,
            chunks=chunks,
            fill_value=data.draw(st.sampled_from([fill, None])),
            filters=filters,
            compressors=data.draw(st.sampled_from(SECOND)),
            chunk_key_encoding={"name": "v2", "separator": data.draw(st.sampled_from(["/", "."]))},
        )
    check(path, made, dtype, box)


@given(data=st.data())
def test_version_3_equals_zarr(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = tmp_path_factory.mktemp("chunks") / "store"
    shape, chunks, box, dtype, fill = drawn(data)
    compressors = [LAYERS[name]() for name in data.draw(st.sampled_from(THIRD))]
    options: dict[str, Any] = {"compressors": compressors}
    serializer: Any = zarr.codecs.BytesCodec(endian="big" if dtype.startswith(">") else "little")
    if shape and data.draw(st.booleans()):
        shards = tuple(c * data.draw(st.integers(1, 3)) for c in chunks)
        index = [zarr.codecs.BytesCodec(), *([zarr.codecs.Crc32cCodec()] if data.draw(st.booleans()) else [])]
        serializer = zarr.codecs.ShardingCodec(
            chunk_shape=chunks,
            codecs=[serializer, *compressors],
            index_codecs=index,
            index_location=data.draw(st.sampled_from(["start", "end"])),
        )
        options, chunks = {"compressors": None}, shards
    group = zarr.open_group(path, mode="w", zarr_format=3)
    made = group.create_array(
        "deep/v",
        shape=shape,
        dtype=dtype,
        chunks=chunks,
        fill_value=fill,
        serializer=serializer,
        chunk_key_encoding={
            "name": data.draw(st.sampled_from(["default", "v2"])),
            "separator": data.draw(st.sampled_from(["/", "."])),
        },
        **options,
    )
    check(path, made, dtype, box)


def array(path: Path, version: Any, **options: Any) -> Any:
    options = {"shape": (4, 6), "chunks": (2, 3), "dtype": "f4", "compressors": None, **options}
    made = zarr.create_array(path, zarr_format=version, **options)
    made[...] = np.arange(24).reshape(4, 6)
    return made


@pytest.mark.parametrize("version", [2, 3])
def test_store_of_one_array(tmp_path: Path, version: Any) -> None:
    array(tmp_path / "v", version)
    table = known(tmp_path / "v")
    assert table.names is not None
    assert table.names(1) == ("0.1" if version == 2 else "c/0/1")
    assert table.sizes.tolist() == [24] * 4
    assert assembled(tmp_path / "v", table).tolist() == np.arange(24).reshape(4, 6).tolist()


@pytest.mark.parametrize("options", [{"order": "F"}, {"filters": [numcodecs.Delta("f4")]}, {"compressors": numcodecs.LZMA()}])
def test_version_2_read_by_zarr(tmp_path: Path, options: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        array(tmp_path / "v", 2, **options)
    assert table_of(tmp_path / "v") is None


@pytest.mark.parametrize("dtype", ["U3", "S2", "datetime64[s]"])
def test_text_and_times_are_read_by_zarr(tmp_path: Path, dtype: str) -> None:
    zarr.create_array(tmp_path / "v", zarr_format=2, shape=(4,), dtype=dtype)
    assert table_of(tmp_path / "v") is None


BYTES = {"name": "bytes", "configuration": {"endian": "little"}}
INNER = {"chunk_shape": [1, 3], "codecs": [BYTES], "index_codecs": [BYTES], "index_location": "end"}


def sharding(**changes: Any) -> dict[str, Any]:
    return {"codecs": [{"name": "sharding_indexed", "configuration": {**INNER, **changes}}]}


@pytest.mark.parametrize(
    "changes",
    [
        {"codecs": [{"name": "transpose", "configuration": {"order": [1, 0]}}, BYTES]},
        {"codecs": [BYTES, {"name": "numcodecs.lzma"}]},
        {"codecs": [BYTES, {"name": "numcodecs.crc32c", "configuration": {"location": "middle"}}]},
        {"codecs": [{"name": "vlen-utf8"}]},
        {"codecs": []},
        {"chunk_grid": {"name": "rectangular", "configuration": {"chunk_shape": [[2, 2], 3]}}},
        {"chunk_key_encoding": {"name": "suffix"}},
        {"storage_transformers": ["other"]},
        {"fill_value": "0xzz"},
        sharding(index_codecs=[BYTES, {"name": "zstd"}]),
        sharding(index_codecs=[{"name": "bytes", "configuration": {"endian": "middle"}}]),
        sharding(index_location="middle"),
        sharding(codecs=[{"name": "transpose", "configuration": {"order": [1, 0]}}, BYTES]),
        {"codecs": [*sharding()["codecs"], {"name": "zstd"}]},
    ],
)
def test_version_3_read_by_zarr(tmp_path: Path, changes: dict[str, Any]) -> None:
    array(tmp_path / "v", 3)
    edit(tmp_path / "v/zarr.json", **changes)
    assert table_of(tmp_path / "v") is None


@pytest.mark.parametrize(
    "changes",
    [
        {"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [0, 3]}}},
        {"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [-2, 3]}}},
        {"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2]}}},
        {"chunk_grid": {"name": "regular"}},
        {"chunk_grid": 5},
        {"codecs": [7]},
        {"codecs": 7},
        sharding(chunk_shape=[1, 2]),
        sharding(chunk_shape=["a", 3]),
    ],
)
def test_damaged_metadata(tmp_path: Path, changes: dict[str, Any]) -> None:
    array(tmp_path / "v", 3)
    edit(tmp_path / "v/zarr.json", **changes)
    with pytest.raises(FormatError, match=r"variable 'v'"):
        table_of(tmp_path / "v")


@given(data=st.data(), version=st.sampled_from([2, 3]))
def test_any_metadata(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, version: Any) -> None:
    path = tmp_path_factory.mktemp("any") / "v"
    array(path, version, **({"shards": (4, 6)} if version == 3 else {}))
    meta = path / (".zarray" if version == 2 else "zarr.json")
    result = json.loads(meta.read_text())
    junk = st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=5), lambda s: st.lists(s, max_size=3))
    place: Any = result
    while isinstance(place, dict | list) and place:
        key = data.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
        if not isinstance(place[key], dict | list) or data.draw(st.booleans()):
            place[key] = data.draw(junk)
            break
        place = place[key]
    meta.write_text(json.dumps(result))
    with contextlib.suppress(AggarrayError):
        table_of(path)


def test_damaged_shards(tmp_path: Path) -> None:
    array(tmp_path / "v", 3, shards=(4, 6))
    shard = tmp_path / "v/c/0/0"
    content = shard.read_bytes()
    assert len(known(tmp_path / "v").offsets) == 4
    shard.write_bytes(content[:20])
    with pytest.raises(FormatError, match=r"truncated: the index of a shard has 68 bytes, the shard 20 .*c/0/0"):
        table_of(tmp_path / "v")
    shard.write_bytes(content[:-30] + bytes([content[-30] ^ 1]) + content[-29:])
    with pytest.raises(FormatError, match=r"damaged: checksum.*c/0/0"):
        table_of(tmp_path / "v")
    edit(tmp_path / "v/zarr.json", **sharding(chunk_shape=[2, 3]))
    for pair in ([2**63, 24], [0, 2**64 - 1], [530, 24]):
        shard.write_bytes(content[:-4] + np.array([pair] * 24, "<u8").tobytes())
        with pytest.raises(FormatError, match=r"damaged: a chunk of \d+ bytes at offset \d+ in a shard of \d+ bytes .*c/0/0"):
            known(tmp_path / "v")


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("compressors", [None, "auto"])
def test_unread_chunks_take_no_memory(tmp_path: Path, version: Any, compressors: Any) -> None:
    shape = (10**6, 10**6)
    made = zarr.create_array(
        tmp_path / "v", zarr_format=version, shape=shape, chunks=(1, 10), dtype="f4", compressors=compressors, fill_value=7
    )
    made[10**5, 10**5 - 5 : 10**5 + 5] = np.arange(10, 20)
    table = known(tmp_path / "v")
    assert len(table.offsets) == 10**11 and table.offsets.strides == table.sizes.strides == (0,)
    result = aa.open(tmp_path / "v")["v"][10**5 - 1 : 10**5 + 1, 10**5 - 5 : 10**5 + 6]
    absent = np.nan if version == 2 else 7  # in version 2 the fill value says what is missing
    np.testing.assert_array_equal(result, [[absent] * 11, [*range(10, 20), absent]])


@pytest.mark.parametrize("version", [2, 3])
def test_chunk_count_out_of_range_is_read_by_zarr(tmp_path: Path, version: Any) -> None:
    zarr.create_array(tmp_path / "v", zarr_format=version, shape=(2**61, 2**61), chunks=(1, 1), dtype="f4")
    assert table_of(tmp_path / "v") is None


def test_folders_that_are_links(tmp_path: Path) -> None:
    made = array(tmp_path / "v", 3)
    (tmp_path / "v/c/1").rename(tmp_path / "elsewhere")
    (tmp_path / "v/c/1").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere/2").symlink_to(tmp_path / "v")  # round in circles, and no chunk
    np.testing.assert_array_equal(assembled(tmp_path / "v", known(tmp_path / "v")), made[...])
    array(tmp_path / "w", 3, shards=(4, 6))
    (tmp_path / "w/c/0").rename(tmp_path / "other")
    (tmp_path / "w/c/0").symlink_to(tmp_path / "other")
    assert table_of(tmp_path / "w") is None  # whose index would have to be looked for


def test_folders_are_not_chunks(tmp_path: Path) -> None:
    path = tmp_path / "v"
    zarr.create_array(path, shape=(6,), chunks=(2,), dtype="f4", fill_value=7)[:] = np.arange(6)
    (path / "c/1").unlink()
    (path / "c/1").mkdir()
    (path / "c/0").unlink()
    np.testing.assert_array_equal(aa.open(path)["v"][...], zarr.open_array(path)[...])
    os.mkfifo(path / "c/0")
    with pytest.raises(FormatError, match=r"not a file.*c/0"):
        aa.open(path)["v"][...]


def test_declared_chunks_of_shards_are_bounded(tmp_path: Path) -> None:
    made = zarr.create_array(tmp_path / "v", shape=(10**9, 10**9), chunks=(10, 10), shards=(10, 10), dtype="f4")
    made[0, 0] = 1
    assert table_of(tmp_path / "v") is None
    meta = json.loads((tmp_path / "v/zarr.json").read_text())
    meta["chunk_grid"]["configuration"]["chunk_shape"] = [10**9, 10**9]
    (tmp_path / "v/zarr.json").write_text(json.dumps(meta))
    assert table_of(tmp_path / "v") is None


def rewritten_index(shard: Path, place: int, pair: tuple[int, int]) -> None:
    """Replace an entry of the index of a shard, with a valid checksum."""
    content = shard.read_bytes()
    entries = np.frombuffer(content[-68:-4], "<u8").reshape(4, 2).copy()
    entries[place] = pair
    index = entries.tobytes()
    shard.write_bytes(content[:-68] + index + google_crc32c.value(index).to_bytes(4, "little"))


@pytest.mark.parametrize("compressors", [None, "auto"])
def test_empty_chunk_in_shard_raises_format_error(tmp_path: Path, compressors: Any) -> None:
    array(tmp_path / "v", 3, shards=(4, 6), compressors=compressors)
    rewritten_index(tmp_path / "v/c/0/0", 2, (0, 0))
    with pytest.raises(FormatError, match="damaged: a chunk of 0 bytes at offset 0"):
        table_of(tmp_path / "v")
    with pytest.raises(FormatError):
        aa.open(tmp_path / "v")["v"][...]


def test_chunk_of_wrong_size_in_shard(tmp_path: Path) -> None:
    array(tmp_path / "v", 3, shards=(4, 6))
    rewritten_index(tmp_path / "v/c/0/0", 1, (0, 12))
    with pytest.raises(FormatError, match="a chunk of 12 bytes in a shard, 24 expected"):
        table_of(tmp_path / "v")
    with pytest.raises(FormatError, match="a chunk of 12 bytes in a shard, 24 expected"):
        aa.open(tmp_path / "v")["v"][...]


@pytest.mark.parametrize("rank", [31, 32])
def test_many_dimensions(tmp_path: Path, rank: int) -> None:
    made = zarr.create_array(tmp_path / "v", shape=(2, *[1] * (rank - 1)), chunks=(1,) * rank, dtype="f4")
    made[...] = np.arange(2).reshape(made.shape)
    assert aa.open(tmp_path / "v")["v"][...].ravel().tolist() == [0, 1]


def test_missing_chunk_takes_no_memory(tmp_path: Path) -> None:
    zarr.create_array(tmp_path / "v", shape=(2**20, 2**20), chunks=(2**20, 2**20), dtype="f4", fill_value=3)
    assert aa.open(tmp_path / "v")["v"][5:7, 9].tolist() == [3, 3]


def test_path_of_each_file_is_computed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = zarr.create_array(tmp_path / "v", shape=(2, 300, 300), chunks=(1, 300, 300), dtype="f4", compressors=None)
    made[...] = np.arange(made.size).reshape(made.shape)
    opened, named, name = aa.open(tmp_path / "v")["v"], [], chunk_keys.Paths.__call__
    monkeypatch.setattr(chunk_keys.Paths, "__call__", lambda self, number: named.append(number) or name(self, number))
    np.testing.assert_array_equal(opened[:, ::7, ::9], made[:, ::7, ::9])
    np.testing.assert_array_equal(opened[::-1, :, [250, 3]], made[...][::-1, :, [250, 3]])
    assert len(named) < 20
