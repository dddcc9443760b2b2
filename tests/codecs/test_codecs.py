"""Tests of codecs with data that other libraries encoded, and with damaged data.

The first tests run over all codecs: `ENCODERS` encodes by name. Others compare with files of h5py and zarr, and with numcodecs
and imagecodecs.
"""

import bz2
import gzip
import importlib.util
import os
import struct
import subprocess
import sys
import threading
import tracemalloc
import zlib
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import google_crc32c
import h5py
import numcodecs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggarray import codecs
from aggarray.codecs import Filter, before_shuffle, decode, known
from aggarray.codecs import _decompressors as decompressing
from aggarray.codecs import deflate as inflating
from aggarray.codecs import shuffle as shuffling
from aggarray.codecs.bitshuffle import unshuffle_bits
from aggarray.codecs.fletcher32 import fletcher32
from aggarray.codecs.shuffle import unshuffle_into
from aggarray.codecs.streams import decode_streams
from tests.support.paths import ROOT

pytestmark = pytest.mark.quick

imagecodecs = pytest.importorskip("imagecodecs")

SIZES = (1, 2, 3, 4, 8, 16)


def shuffled(data: bytes, itemsize: int) -> bytes:
    """Return data as encoded by HDF5's shuffle filter, with trailing bytes unchanged."""
    end = len(data) // itemsize * itemsize
    return np.frombuffer(data[:end], "u1").reshape(-1, itemsize).T.tobytes() + data[end:]


def lz4_hdf5(data: bytes, block: int = 1 << 12) -> bytes:
    """Return data in the framing of HDF5's LZ4 filter."""
    decoded = struct.pack(">QI", len(data), block)
    for start in range(0, len(data), block):
        part = data[start : start + block]
        packed = numcodecs.LZ4().encode(part)[4:]
        packed = part if len(packed) >= len(part) else packed
        decoded += struct.pack(">I", len(packed)) + packed
    return decoded


def bitshuffled(data: bytes, itemsize: int, compress: Callable[[bytes], bytes] | None = None, block: int = 64) -> bytes:
    """Return data in the framing of HDF5's bitshuffle filter, blocks of ``block`` elements."""
    width, end = block * itemsize, len(data) // (8 * itemsize) * 8 * itemsize
    decoded = b"" if compress is None else struct.pack(">QI", len(data), width)
    for start in range(0, end, width):
        part = bytes(imagecodecs.bitshuffle_encode(data[start : min(start + width, end)], itemsize=itemsize, blocksize=block))
        packed = part if compress is None else compress(part)
        decoded += packed if compress is None else struct.pack(">I", len(packed)) + packed
    return decoded + data[end:]


def szipped(data: bytes) -> bytes:
    return struct.pack("<I", len(data)) + bytes(imagecodecs.szip_encode(data, *SZIP, header=False))


SZIP = (141, 8, 8, 64)
ENCODERS: dict[str, tuple[tuple[Any, ...], Callable[[bytes], bytes]]] = {
    "shuffle": ((4,), lambda d: shuffled(d, 4)),
    "deflate": ((4,), zlib.compress),
    "gzip": ((4,), gzip.compress),
    "bz2": ((9,), bz2.compress),
    "fletcher32": ((), lambda d: bytes(numcodecs.Fletcher32().encode(d)) if d else bytes(4)),
    "crc32c": ((), lambda d: d + struct.pack("<I", google_crc32c.value(d))),
    "crc32": (("start",), lambda d: bytes(numcodecs.CRC32().encode(np.frombuffer(d, "u1")))),
    "adler32": (("end",), lambda d: bytes(numcodecs.Adler32("end").encode(np.frombuffer(d, "u1")))),
    "zstd": ((3,), lambda d: bytes(numcodecs.Zstd(3).encode(d))),
    "blosc": ((), lambda d: bytes(numcodecs.Blosc("lz4", 5, 1).encode(np.frombuffer(d, "u1")))),
    "lz4": ((), lambda d: bytes(numcodecs.LZ4().encode(d))),
    "lz4_hdf5": ((), lz4_hdf5),
    "lzf": ((), lambda d: bytes(imagecodecs.lzf_encode(d))),
    "bitshuffle": ((4, 64, 2), lambda d: bitshuffled(d, 4, lambda b: numcodecs.LZ4().encode(b)[4:])),
    "szip": (SZIP, szipped),
}
SMOOTH = np.arange(5000, dtype="<u4").tobytes() + b"abc"
NOISE = np.random.default_rng(1).integers(0, 256, 3001, "u1").tobytes()
#: Codecs without a checksum, which may decode damaged bytes to other data of the same size.
UNCHECKED = {"shuffle", "bitshuffle", "lz4", "lz4_hdf5", "lzf", "blosc", "zstd", "szip"}

every = pytest.mark.parametrize("name", sorted(codecs.codecs()))


def encoded(name: str, data: bytes = SMOOTH) -> tuple[Filter, bytes]:
    parameters, encode = ENCODERS[name]
    return Filter(name, parameters), encode(data)


@every
@pytest.mark.parametrize("data", [SMOOTH, NOISE, b"x" * 9, b"xy" * 50_001], ids=["smooth", "noise", "short", "long"])
def test_round_trip(name: str, data: bytes) -> None:
    if name == "lzf" and data in (NOISE, b"x" * 9):
        pytest.skip("LZF does not encode incompressible data: HDF5 skips the filter")
    step, stored = encoded(name, data)
    assert known((step,))
    for buffer in (stored, bytearray(stored), memoryview(stored), np.frombuffer(stored, "u1")):
        decoded = decode((step,), buffer, len(data))
        assert decoded.dtype == np.uint8 and decoded.shape == (len(data),)
        assert decoded.tobytes() == data
    out = np.zeros(len(data), "u1")
    assert decode((step,), stored, len(data), 0, out) is out
    assert out.tobytes() == data


@every
def test_wrong_sizes(name: str) -> None:
    step, stored = encoded(name)
    for size in (len(SMOOTH) - 1, len(SMOOTH) + 1, 0, len(SMOOTH) + 100_000):
        with pytest.raises(ValueError, match=name):
            decode((step,), stored, size)
        with pytest.raises(ValueError, match=name):
            decode((step,), stored, size, 0, np.zeros(size, "u1"))


@every
def test_truncated(name: str) -> None:
    step, stored = encoded(name)
    for size in {0, 1, 3, 4, 5, 8, 12, 15, 16, 17, len(stored) // 2, len(stored) - 9, len(stored) - 1}:
        if name == "szip" and size == len(stored) - 1:
            # The last bytes are padding.
            assert decode((step,), stored[:size], len(SMOOTH)).tobytes() == SMOOTH
            continue
        with pytest.raises(ValueError, match=name):
            decode((step,), stored[:size], len(SMOOTH))


@every
@given(data=st.data())
def test_damage_is_detected_or_harmless(name: str, data: st.DataObject) -> None:
    step, stored = encoded(name)
    broken = bytearray(stored)
    for _ in range(data.draw(st.integers(1, 4))):
        broken[data.draw(st.integers(0, min(len(broken), 200) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        decoded = decode((step,), bytes(broken), len(SMOOTH))
    except ValueError as error:
        assert str(error).startswith(name)
    else:
        assert decoded.size == len(SMOOTH)
        assert name in UNCHECKED or decoded.tobytes() == SMOOTH


@every
@given(noise=st.binary(max_size=300), size=st.integers(0, 400))
def test_noise(name: str, noise: bytes, size: int) -> None:
    try:
        decoded = decode((Filter(name, ENCODERS[name][0]),), noise, size)
    except ValueError as error:
        assert str(error).startswith(name)
    else:
        assert decoded.size == size


@every
def test_declared_huge_sizes_take_no_memory(name: str) -> None:
    step, _ = encoded(name)
    with pytest.raises(ValueError, match=name):
        decode((step,), b"\xff" * 64, 1000)


@every
def test_threads(name: str) -> None:
    step, stored = encoded(name)
    decoded: list[bool] = []

    def work() -> None:
        decoded.append(all(decode((step,), stored, len(SMOOTH)).tobytes() == SMOOTH for _ in range(20)))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert decoded == [True] * 4


def test_every_codec_is_tested() -> None:
    assert set(ENCODERS) == set(codecs.codecs())


@pytest.mark.parametrize("itemsize", [*SIZES, 255, 256, 300])
@given(data=st.data())
def test_shuffle(itemsize: int, data: st.DataObject) -> None:
    size = data.draw(st.one_of(st.integers(0, 5 * itemsize), st.integers(0, 70_000), st.just(1_100_001)))
    values = np.random.default_rng(size).integers(0, 256, size, "u1").tobytes()
    stored = shuffled(values, itemsize)
    out = np.zeros(size, "u1")
    unshuffle_into(np.frombuffer(stored, "u1"), itemsize, out)
    assert out.tobytes() == values
    assert decode((Filter("shuffle", (itemsize,)),), stored, size).tobytes() == values
    if size % itemsize == 0 and size and itemsize < 256:
        assert bytes(numcodecs.Shuffle(itemsize).encode(values)) == stored


@given(st.binary(max_size=3000), st.sampled_from([0, 1, 2, 255]), st.integers(0, 5000))
def test_fletcher32_equals_numcodecs(data: bytes, fill: int, more: int) -> None:
    data += bytes([fill]) * more
    stored = imagecodecs.h5checksum_fletcher32(data) if data else 0
    assert fletcher32(np.frombuffer(data, "u1")) == stored
    if len(data) and len(data) % 2 == 0:
        assert bytes(numcodecs.Fletcher32().encode(data))[-4:] == struct.pack("<I", stored)


@pytest.mark.parametrize("fill", [0, 255, 1])
def test_fletcher32_of_long_data(fill: int) -> None:
    data = np.full((1 << 27) + 4099, fill, "u1")
    assert fletcher32(data) == imagecodecs.h5checksum_fletcher32(data.tobytes())


def test_fletcher32_in_the_old_byte_order() -> None:
    step, stored = encoded("fletcher32")
    a, b, c, d = stored[-4:]
    assert decode((step,), stored[:-4] + bytes([b, a, d, c]), len(SMOOTH)).tobytes() == SMOOTH
    with pytest.raises(ValueError, match="checksum"):
        decode((step,), stored[:-4] + bytes([d, c, b, a]), len(SMOOTH))


def chunks_of(dataset: h5py.Dataset) -> list[tuple[Any, int, bytes]]:
    """Return offset, filter mask and bytes of every stored chunk."""
    decoded: list[Any] = []
    dataset.id.chunk_iter(decoded.append)
    return [(f.chunk_offset, *dataset.id.read_direct_chunk(f.chunk_offset)) for f in decoded]


HDF5 = [
    ({"compression": "gzip"}, ("deflate",)),
    ({"compression": "gzip", "shuffle": True}, ("shuffle", "deflate")),
    ({"compression": "gzip", "shuffle": True, "fletcher32": True}, ("shuffle", "deflate", "fletcher32")),
    ({"shuffle": True}, ("shuffle",)),
    ({"fletcher32": True}, ("fletcher32",)),
    ({"compression": "lzf", "shuffle": True}, ("shuffle", "lzf")),
    ({"compression": "szip"}, ("szip",)),
    ({"compression": "szip", "shuffle": True, "fletcher32": True}, ("shuffle", "szip", "fletcher32")),
]
TYPES = ["i1", "<i2", ">i2", "<f4", ">f4", "<f8", "c16", np.dtype([("a", "u1"), ("b", "<u2")])]


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize(("options", "names"), HDF5, ids=lambda x: "-".join(x) if isinstance(x, tuple) else "")
def test_files_of_h5py(tmp_path: Path, dtype: Any, options: dict[str, Any], names: tuple[str, ...]) -> None:
    dtype = np.dtype(dtype)
    if "szip" in names and (dtype.itemsize in (3, 16) or not h5py.h5z.filter_avail(h5py.h5z.FILTER_SZIP)):
        pytest.skip("HDF5 does not write szip for it")
    rng = np.random.default_rng(3)
    values = np.zeros((64, 40), dtype)
    values[::2] = rng.integers(0, 99, (32, 40)) if dtype.names is None else np.array((3, 700), dtype)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        dataset = file.create_dataset("x", data=values, chunks=(24, 25), **options)
        plist = dataset.id.get_create_plist()
        decoded = {plist.get_filter(i)[0]: plist.get_filter(i)[2] for i in range(plist.get_nfilters())}
        filters = tuple(Filter(n, decoded[h5py.h5z.FILTER_SZIP] if n == "szip" else (dtype.itemsize,)) for n in names)
        stored = chunks_of(dataset)
        assert len(stored) == 6
        for (row, column), mask, data in stored:
            chunk = decode(filters, data, 24 * 25 * dtype.itemsize, mask).view(dtype).reshape(24, 25)
            part = values[row : row + 24, column : column + 25]
            assert np.array_equal(chunk[: part.shape[0], : part.shape[1]], part)


@given(st.integers(0, 7), st.binary(min_size=600, max_size=600))
def test_masks_skip_filters(mask: int, values: bytes) -> None:
    filters = (Filter("shuffle", (4,)), Filter("deflate"), Filter("fletcher32"))
    stored = values
    for i, name in enumerate(("shuffle", "deflate", "fletcher32")):
        stored = stored if mask >> i & 1 else ENCODERS[name][1](stored)
    assert decode(filters, stored, 600, mask).tobytes() == values
    planes = before_shuffle(filters)
    assert planes == filters[1:]
    assert decode(planes, stored, 600, mask >> 1).tobytes() == (values if mask & 1 else shuffled(values, 4))


@given(st.lists(st.sampled_from(sorted(set(ENCODERS) - {"lzf", "szip", "bitshuffle"})), max_size=4), st.binary(max_size=2000))
def test_filters_in_any_order(names: list[str], values: bytes) -> None:
    stored = values
    for name in names:
        # These encoders do not encode empty data.
        if not stored and name in ("blosc", "lz4", "zstd", "lz4_hdf5"):
            return
        stored = ENCODERS[name][1](stored)
    filters = tuple(Filter(n, ENCODERS[n][0]) for n in names)
    assert decode(filters, stored, len(values)).tobytes() == values


def test_empty() -> None:
    assert decode((), b"", 0).size == 0
    for name in ("shuffle", "deflate", "gzip", "fletcher32", "crc32c", "zstd"):
        step, stored = encoded(name, b"")
        assert decode((step,), stored, 0).size == 0


def test_no_filters_no_copy() -> None:
    data = np.arange(9, dtype="u1")
    assert np.shares_memory(decode((), data, 9), data)
    with pytest.raises(ValueError, match="9 bytes stored, 8 expected"):
        decode((), data, 8)


def test_unknown_codec() -> None:
    assert known(()) and not known((Filter("deflate"), Filter("secret")))
    for wrong in (Filter("shuffle"), Filter("shuffle", (0,)), Filter("bitshuffle", (4, 3, 0)), Filter("szip", (1, 2))):
        assert not known((wrong,))
        with pytest.raises(ValueError, match=wrong.name):
            decode((wrong,), b"abcd", 4)
    with pytest.raises(ValueError, match="secret"):
        decode((Filter("secret"),), b"", 0)
    assert before_shuffle(()) is None and before_shuffle((Filter("deflate"), Filter("shuffle", (2,)))) is None


@pytest.mark.parametrize("compressor", ["blosclz", "lz4", "lz4hc", "zlib", "zstd"])
@pytest.mark.parametrize("shuffle", [0, 1, 2])
@pytest.mark.parametrize("itemsize", SIZES)
def test_blosc_of_numcodecs(compressor: str, shuffle: int, itemsize: int) -> None:
    values = np.arange(16 * 1003, dtype="<u4").view("u1")[: itemsize * 4001].reshape(-1, itemsize)
    typed = values.copy().view(f"V{itemsize}").ravel()
    stored = numcodecs.Blosc(compressor, 5, shuffle).encode(typed)
    assert np.array_equal(decode((Filter("blosc"),), stored, values.size), values.ravel())


@pytest.mark.parametrize("itemsize", SIZES)
@given(st.integers(0, 5000), st.sampled_from([0, 8, 64, 1024]), st.sampled_from([0, 2, 3]))
def test_bitshuffle_of_imagecodecs(itemsize: int, count: int, block: int, compressor: int) -> None:
    values = np.random.default_rng(count).integers(0, 9, count * itemsize, "u1").tobytes()
    pack = {0: None, 2: lambda b: numcodecs.LZ4().encode(b)[4:], 3: lambda b: bytes(numcodecs.Zstd(1).encode(b))}[compressor]
    stored = bitshuffled(values, itemsize, pack, block or max(8192 // itemsize // 8 * 8, 128))
    assert decode((Filter("bitshuffle", (itemsize, block, compressor)),), stored, len(values)).tobytes() == values
    if not compressor:
        whole = bytes(imagecodecs.bitshuffle_encode(values, itemsize=itemsize, blocksize=block)) if values else b""
        out = np.zeros(len(values), "u1")
        unshuffle_bits(np.frombuffer(whole, "u1"), itemsize, block or max(8192 // itemsize // 8 * 8, 128), out)
        assert out.tobytes() == values


@given(st.binary(max_size=4000), st.integers(1, 4000))
def test_lz4_of_imagecodecs(data: bytes, block: int) -> None:
    if data:
        stored = imagecodecs.lz4h5_encode(data, blocksize=block)
        assert decode((Filter("lz4_hdf5"),), stored, len(data)).tobytes() == data


@pytest.mark.parametrize("name", ["blosc", "lz4", "zstd", "lz4_hdf5", "bitshuffle", "shuffle"])
def test_decoding_without_functions_of_c(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decompressing, "_function", lambda name: None)
    monkeypatch.setattr(shuffling, "_LOAD", 0)
    for data in (SMOOTH, NOISE, b"x" * 9, b"xy" * 50_001):
        step, stored = encoded(name, data)
        assert decode((step,), stored, len(data)).tobytes() == data
    test_wrong_sizes(name)
    test_truncated(name)
    test_zstd_without_a_size()


def test_functions_of_c_need_no_import_of_numcodecs() -> None:
    """Another process has not imported numcodecs; a library that does not load, or lacks the function, is None."""
    script = """
import sys, numpy as np
from aggarray.codecs import _decompressors as own
assert None not in map(own._function, own._FUNCTIONS)
for module in ("absent", "numcodecs.absent", "numcodecs.compat_ext"):
    own._FUNCTIONS["other"] = module, [], None
    assert own._function.__wrapped__("other") is None
assert not [name for name in sys.modules if name.startswith("numcodecs")]
sys.modules["numcodecs"] = None
assert own._function.__wrapped__("ZSTD_decompress") is None
"""
    subprocess.run([sys.executable, "-c", script], check=True, cwd=ROOT)


@pytest.mark.parametrize(
    "decompress", [decompressing.decompress_blosc, decompressing.decompress_lz4, decompressing.decompress_zstd]
)
def test_strided_and_read_only_buffers_are_refused(decompress: Callable[..., Any]) -> None:
    data = np.frombuffer(bytes(numcodecs.Blosc().encode(b"x" * 99)), np.uint8)
    for stored, out in ((data, np.empty(198, np.uint8)[::2]), (np.repeat(data, 2)[::2], np.empty(99, np.uint8))):
        with pytest.raises(ValueError, match="not contiguous"):
            decompress(stored, out)
    out = np.zeros(99, np.uint8)
    out.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        decompress(data, out)


def test_zstd_without_a_size() -> None:
    step = Filter("zstd")
    frame = bytes.fromhex("28b52ffd 0058 61 00 00".replace(" ", ""))
    stored = frame[:4] + b"\x00\x58" + struct.pack("<I", 1 | 5 << 3)[:3] + b"hello"
    assert decode((step,), stored, 5).tobytes() == b"hello"
    for size in (4, 6):
        with pytest.raises(ValueError, match="zstd"):
            decode((step,), stored, size)


@pytest.mark.parametrize("absent", [(), ("deflate",), ("deflate", "isal")], ids=["all", "no libdeflate", "zlib alone"])
def test_inflating_without_some_library(absent: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in absent:
        monkeypatch.setitem(sys.modules, name, None)
        if name == "isal":
            monkeypatch.setitem(sys.modules, "isal.isal_zlib", None)
    for function in (inflating._library, inflating._zlib):
        function.cache_clear()
    try:
        for name in ("deflate", "gzip"):
            test_round_trip(name, SMOOTH)
            test_round_trip(name, NOISE)
            test_wrong_sizes(name)
            test_truncated(name)
            step, stored = encoded(name, b"")
            assert decode((step,), stored, 0).size == 0
        twice = gzip.compress(SMOOTH[:999]) + gzip.compress(SMOOTH[999:])
        assert decode((Filter("gzip"),), twice, len(SMOOTH)).tobytes() == SMOOTH
        assert decode((Filter("deflate"),), zlib.compress(SMOOTH) + b"rest", len(SMOOTH)).tobytes() == SMOOTH
    finally:
        for function in (inflating._library, inflating._zlib):
            function.cache_clear()


@pytest.mark.parametrize("size", [33_000, 100_003])
def test_large_chunks_are_inflated_into_the_output(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    data = ((SMOOTH + NOISE) * 5)[:size]
    filled: list[bool] = []
    inflate = decompressing.inflate_into
    monkeypatch.setattr(decompressing, "inflate_into", lambda *both: filled.append(inflate(*both)) or filled[-1])
    monkeypatch.setattr(inflating, "_inflated", 0)
    step, stored, out = Filter("deflate"), zlib.compress(data), np.empty(size, np.uint8)
    assert decode((step,), stored, size, out=out).tobytes() == data and not filled  # not worth it yet
    monkeypatch.setattr(inflating, "_inflated", inflating._LOAD)
    for rest in (b"", b"rest"):
        out[:] = 0
        assert decode((step,), stored + rest, size, out=out) is out and out.tobytes() == data
    assert filled == [True, True]
    damaged = bytearray(stored)
    damaged[len(damaged) // 2] ^= 0x55
    for wrong, asked in ((bytes(damaged), size), (stored[:-9], size), (stored, size - 1), (stored, size + 1)):
        with pytest.raises(ValueError, match=r"^deflate: "):
            decode((step,), wrong, asked, out=np.empty(asked, np.uint8))
    assert filled[2:] == [False] * 4
    monkeypatch.setattr(decompressing, "_function", lambda name: None)
    assert not decompressing._Inflater().inflate_into(np.frombuffer(stored, np.uint8), out)


def test_streams_after_one_that_is_too_long_are_not_decoded() -> None:
    stored = np.frombuffer(gzip.compress(bytes(11)) + gzip.compress(bytes(1 << 26)), np.uint8)
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="longer than 10 bytes"):
            decode_streams(stored, 10, lambda: zlib.decompressobj(31), zlib.error)
        assert tracemalloc.get_traced_memory()[1] < 1 << 22
    finally:
        tracemalloc.stop()


ZARR = ["zlib", "gzip", "zstd", "blosc", "lz4", "shuffle"]


@pytest.mark.parametrize("name", ZARR)
def test_stores_of_zarr(name: str, tmp_path: Path) -> None:
    zarr = importlib.import_module("zarr")
    values = np.arange(6000, dtype="<f8").reshape(60, 100)
    made = {"zlib": numcodecs.Zlib(), "gzip": numcodecs.GZip(), "zstd": numcodecs.Zstd(), "lz4": numcodecs.LZ4()}
    compressor = made.get(name, numcodecs.Blosc(shuffle=2) if name == "blosc" else numcodecs.Zlib())
    array = zarr.create_array(
        store=str(tmp_path / "a"), shape=values.shape, chunks=(60, 100), dtype="<f8", zarr_format=2,
        compressors=compressor, filters=[numcodecs.Shuffle(8)] if name == "shuffle" else None,
    )  # fmt: skip
    array[...] = values
    steps = {"zlib": ("deflate",), "shuffle": ("shuffle", "deflate")}.get(name, (name,))
    stored = (tmp_path / "a" / "0.0").read_bytes()
    decoded = decode(tuple(Filter(s, (8,)) for s in steps), stored, values.nbytes)
    assert np.array_equal(decoded.view("<f8").reshape(values.shape), values)


def test_chunks_without_filters_are_joined_if_they_fit() -> None:
    out = np.zeros((2, 3, 4), np.uint8)[:, 1]  # rows that are not adjacent
    codecs.decode_all((), [b"abcd", b"efgh"], out)
    assert out.tobytes() == b"abcdefgh"
    with pytest.raises(ValueError, match="3 bytes stored, 4 expected"):
        codecs.decode_all((), [b"abcd", b"efg"], out)


@every
def test_modules_are_named_like_their_codec(name: str) -> None:
    """A filter of a file imports the module of its name only."""
    assert importlib.import_module(f"aggarray.codecs.{name}").CODEC.name == name


@pytest.mark.parametrize("name", ["base", "_blosc_frame", "streams", "../errors", "os", "", "CODEC", "deflate.x", "ü"])
def test_other_names_are_no_codecs(name: str) -> None:
    assert not codecs.known((codecs.Filter(name),))


def forget_codecs() -> None:
    codecs._foreign_codecs.cache_clear()
    codecs._steps.cache_clear()
    codecs._known.cache_clear()


def test_other_packages_may_register(monkeypatch: pytest.MonkeyPatch) -> None:
    class Secret:
        name = "secret"

        def usable(self, parameters: codecs.Parameters) -> bool:
            return True

        def grown(self, size: int, parameters: codecs.Parameters) -> int:
            return size

        def decode(self, data: np.ndarray, size: int, parameters: codecs.Parameters, out: np.ndarray | None) -> np.ndarray:
            return data ^ np.uint8(42)

    class Entry:
        name, value = "secret", "package:CODEC"

        def __init__(self, loaded: Any) -> None:
            self.loaded = loaded

        def load(self) -> Any:
            if self.loaded is None:
                raise ImportError("no library")
            return self.loaded

    monkeypatch.setattr(metadata, "entry_points", lambda group: [Entry(Secret()), Entry(3)])
    forget_codecs()
    try:
        assert decode((Filter("secret"), Filter("deflate")), zlib.compress(b"*"), 1).tobytes() == b"\0"
        monkeypatch.setattr(metadata, "entry_points", lambda group: [Entry(None)])
        forget_codecs()
        with pytest.warns(RuntimeWarning, match="secret .* does not load: no library"):
            assert not known((Filter("secret"),))
    finally:
        forget_codecs()


_BY_PLUGINS = """
import sys
import h5py, hdf5plugin, numpy as np
plugins = {
    "lz4": hdf5plugin.LZ4(nbytes=4096), "zstd": hdf5plugin.Zstd(), "blosc": hdf5plugin.Blosc(cname="zstd", shuffle=2),
    "bits": hdf5plugin.Bitshuffle(cname="none"), "bits_lz4": hdf5plugin.Bitshuffle(nelems=64, cname="lz4"),
    "bits_zstd": hdf5plugin.Bitshuffle(cname="zstd"),
}
values = np.random.default_rng(5).integers(0, 300, (100, 101)).astype("<f4")
with h5py.File(sys.argv[1], "w") as file:
    for name, options in plugins.items():
        file.create_dataset(name, data=values, chunks=(100, 101), shuffle=name == "zstd", **options)
"""


def test_real_files_of_every_filter(tmp_path: Path) -> None:
    """Files of HDF5's own plugins, if installed. Another process writes them: plugins stay in the process that imports them."""
    if importlib.util.find_spec("hdf5plugin") is None:
        pytest.skip("no hdf5plugin")
    environment = {name: value for name, value in os.environ.items() if name != "HDF5_PLUGIN_PATH"}  # netCDF4 sets it
    subprocess.run([sys.executable, "-c", _BY_PLUGINS, tmp_path / "a.h5"], check=True, timeout=120, env=environment)
    values = np.random.default_rng(5).integers(0, 300, (100, 101)).astype("<f4")
    cases: dict[str, tuple[Filter, ...]] = {
        "lz4": (Filter("lz4_hdf5"),),
        "zstd": (Filter("shuffle", (4,)), Filter("zstd")),
        "blosc": (Filter("blosc"),),
        "bits": (Filter("bitshuffle", (4, 0, 0)),),
        "bits_lz4": (Filter("bitshuffle", (4, 64, 2)),),
        "bits_zstd": (Filter("bitshuffle", (4, 0, 3)),),
    }
    with h5py.File(tmp_path / "a.h5") as file:
        for name, filters in cases.items():
            ((_, mask, stored),) = chunks_of(file[name])
            assert np.array_equal(decode(filters, stored, values.nbytes, mask).view("<f4").reshape(100, 101), values)


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
@pytest.mark.parametrize("line", [64, 50, 8])
@pytest.mark.parametrize("mask", [141, 141 + 32, 128 + 16 + 4])
def test_szip_in_every_layout(bits: int, line: int, mask: int) -> None:
    """Oracle: imagecodecs, which does not detect a truncated stream of padded lines."""
    parameters = (mask, 8, bits, line)
    for count in (8, 77, 1000):
        data = (np.arange(count * 8) % 23).astype("<i8").tobytes()
        stream = bytes(imagecodecs.szip_encode(data, *parameters, header=False))
        expected = bytes(imagecodecs.szip_decode(stream, *parameters, header=False, out=len(data)))
        assert expected == data
        stored = struct.pack("<I", len(data)) + stream
        decoded = decode((Filter("szip", parameters),), stored, len(data))
        assert decoded.tobytes() == data
        for size in range(4, len(stored) - 8, max(1, len(stored) // 40)):
            with pytest.raises(ValueError, match="szip"):
                decode((Filter("szip", parameters),), stored[:size], len(data))
    assert not known((Filter("szip", (mask, 64, bits, 8)),))
    # HDF5 writes only blocks of an even number of pixels.
    assert not known((Filter("szip", (mask, 5, bits, line)),))
