"""Small files that claim large contents take neither memory nor time, and raise errors of aggarray.

Cases run in processes with limited memory (`tests.faults.hostile_child`): exceeding the limit is a fault.
"""

import bz2
import gzip
import lzma
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import zarr
from numcodecs import BZ2, CRC32, LZMA, Adler32, Delta, Shuffle, Zlib

import aggarray as aa
from aggarray.codecs import Filter, check_size, decode, decode_at_most, most_decoded
from aggarray.formats import open_file
from tests.faults.hostile import ROOT, looked_at, unborne
from tests.faults.test_hostile_zarr import BLOSC, BYTES, FRAME, GZIP, ZLIB, second, shard, sharded, third

TERA = 10**12
SMALL = bytes(1 << 20)
PACKED = zlib.compress(SMALL, 9)


def frame(size: int) -> bytes:
    """Return a Zstandard frame of five bytes that states another decoded size."""
    return b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", size) + struct.pack("<I", 1 | 5 << 3)[:3] + b"hello"


CHUNKS: dict[str, tuple[bytes, dict[str, Any]]] = {
    "zlib": (PACKED, {"compressor": ZLIB}),
    "zlib twice": (zlib.compress(PACKED), {"compressor": ZLIB, "filters": [ZLIB]}),
    "gzip": (gzip.compress(SMALL), {"compressor": {"id": "gzip", "level": 1}}),
    "zstd": (frame(8 * TERA), {"compressor": {"id": "zstd", "level": 1}}),
    "zstd of 100 GB": (frame(10**11), {"compressor": {"id": "zstd", "level": 1}}),
    "lz4": (struct.pack("<i", 0x7FFFFFFF) + bytes(99), {"compressor": {"id": "lz4", "acceleration": 1}}),
    "blosc": (FRAME, {"compressor": BLOSC}),
    "bz2": (bz2.compress(SMALL), {"compressor": {"id": "bz2", "level": 1}}),
    "lzma": (lzma.compress(SMALL), {"compressor": {"id": "lzma"}}),
    "delta": (PACKED, {"compressor": ZLIB, "filters": [{"id": "delta", "dtype": "<f8"}]}),
    "text": (PACKED, {"compressor": ZLIB, "dtype": "|O", "filters": [{"id": "vlen-utf8"}]}),
    "as it is": (bytes(1000), {}),
}


def stores(folder: Path) -> dict[str, str]:
    result = {}
    for number, (name, (chunk, how)) in enumerate(CHUNKS.items()):
        for side, shape in ((4, 4), (TERA, 4), (TERA, TERA)):
            where = folder / f"{number}-{side}-{shape}"
            result[f"{name}, {shape} in chunks of {side}"] = second(where, chunk, **{**how, "shape": [shape], "chunks": [side]})
    large = {**sharded(BYTES, GZIP, inner=[TERA], size=TERA), "shape": [4]}
    inner = sharded(BYTES, GZIP, inner=[TERA], size=TERA)["codecs"][0]
    nested = {**sharded(inner, inner=[TERA], size=TERA), "shape": [4]}
    swollen = shard(shard(gzip.compress(bytes(1 << 26))))
    big = {"name": "bytes", "configuration": {"endian": "big"}}
    turned = {"name": "transpose", "configuration": {"order": [0]}}
    result["a shard"] = third(folder / "s0", shard(gzip.compress(SMALL)), **large)
    result["a shard in a shard"] = third(folder / "s1", shard(shard(gzip.compress(SMALL))), **nested)
    small = sharded(sharded(BYTES, GZIP, inner=[4])["codecs"][0], inner=[4])
    result["a chunk that swells in a shard in a shard"] = third(folder / "s2", swollen, **small)
    whole = sharded(BYTES, GZIP, inner=[4])
    result["shards that swell"] = third(
        folder / "s3", gzip.compress(bytes(1 << 26)), **{**whole, "codecs": [*whole["codecs"], GZIP]}
    )
    result["a transposed shard"] = third(
        folder / "s4", shard(gzip.compress(bytes(1 << 26))), **{**whole, "codecs": [turned, *whole["codecs"]]}
    )
    settings = {**whole["codecs"][0]["configuration"], "index_codecs": [big]}
    chunk = gzip.compress(bytes(1 << 26))
    codecs = [{"name": "sharding_indexed", "configuration": settings}]
    result["an index of big-endian numbers"] = third(
        folder / "s5", chunk + struct.pack(">QQ", 0, len(chunk)), **{**whole, "codecs": codecs}
    )
    return result


Made = Callable[[h5py.File], None]


def chunk_of(payload: bytes, shape: tuple[int, ...], side: int, dtype: str, **how: Any) -> Made:
    def make(file: h5py.File) -> None:
        made = file.create_dataset("v", shape, dtype, chunks=(side,), maxshape=(None,), **how)
        made.id.write_direct_chunk((0,), payload)

    return make


def filtered(payload: bytes, code: int, *values: int) -> Made:
    """Return a writer of a chunk of a billion numbers with a plugin filter, whose library may be absent."""

    def make(file: h5py.File) -> None:
        made = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        made.set_chunk((10**9 // 4,))
        made.set_filter(code, h5py.h5z.FLAG_OPTIONAL, values)
        space = h5py.h5s.create_simple((4,), (h5py.h5s.UNLIMITED,))
        h5py.h5d.create(file.id, b"v", h5py.h5t.IEEE_F64LE, space, made).write_direct_chunk((0,), payload)

    return make


FILES: dict[str, Made] = {
    "deflate": chunk_of(PACKED, (4,), 10**9 // 4, "f8", compression="gzip"),
    "shuffle": chunk_of(PACKED, (4,), 10**9 // 4, "f8", compression="gzip", shuffle=True),
    "lzf": chunk_of(b"\x1f\xff" * 400, (4,), 10**9 // 4, "f8", compression="lzf"),
    "szip": chunk_of(b"\xff" * 400, (4,), 10**9 // 4, "f8", compression="szip"),
    "lz4": filtered(struct.pack(">QI", 1 << 40, 1 << 30) + bytes(99), 32004),
    "bitshuffle": filtered(struct.pack(">QI", 2 * 10**9, 1 << 30) + bytes(99), 32008, 0, 4, 8, 0, 2),
    "zstd": filtered(frame(2 * 10**9), 32015),
    "bz2": filtered(bz2.compress(SMALL), 307, 9),
    "never written": lambda file: file.create_dataset("v", (TERA,), "f8", fillvalue=3),
    "hardly any chunk": chunk_of(PACKED, (TERA,), 1 << 20, "f8", compression="gzip"),
}


def files(folder: Path) -> dict[str, str]:
    result = {}
    for number, (name, make) in enumerate(FILES.items()):
        result[name] = str(folder / f"{number}.h5")
        with h5py.File(result[name], "w", libver="latest") as file:
            make(file)
    return result


@pytest.mark.parametrize("make", [stores, files])
def test_claims_take_no_memory(make: Callable[[Path], dict[str, str]], tmp_path: Path) -> None:
    cases = make(tmp_path)
    result = looked_at(cases, tmp_path)
    assert unborne(result, 64 << 20) == {}
    said = {name: " ".join(one.texts) for name, one in result.items()}
    claims = [name for name in said if name not in ("never written", "as it is, 4 in chunks of 1000000000000")]
    assert {name for name in claims if cases[name] not in said[name]} == set()


PROGRAM = """
import resource, sys
import aggarray as aa
array = aa.open(sys.argv[1])["v"]
array[0:1]
with open("/proc/self/status") as file:
    taken = int(next(line for line in file if line.startswith("VmSize")).split()[1]) << 10
resource.setrlimit(resource.RLIMIT_AS, (taken + int(sys.argv[2]),) * 2)
try:
    values, mask = array.read(masked=True).data, True
    print("read", values.size)
except aa.AggarrayError as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize(
    ("name", "side", "stored", "said"),
    [
        ("the mask does not fit", 1 << 29, b"", "SelectionError 536870912 values and their mask do not fit into memory"),
        ("the chunk does not fit", 1 << 28, bytes(1 << 20), "FormatError"),
        ("all is fill value", 1 << 27, b"", "read 134217728"),
    ],
)
def test_out_of_memory_raises(name: str, side: int, stored: bytes, said: str, tmp_path: Path) -> None:
    """Values and mask fit in memory, or an error says what does not; fill values take no more memory."""
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        dataset = file.create_dataset(
            "v", (side if not stored else 16,), "u1", chunks=(side,), maxshape=(None,), compression="gzip"
        )
        dataset.attrs["_FillValue"] = np.uint8(0)
        if stored:
            machine = zlib.compressobj(1)
            parts = [machine.compress(stored) for _ in range(side // len(stored))]
            dataset.id.write_direct_chunk((0,), b"".join(parts) + machine.flush())
    room = {"the mask does not fit": 3 << 28, "the chunk does not fit": 1 << 26, "all is fill value": 3 << 27}[name]
    # The first read decodes a chunk, which succeeds without a limit.
    text = PROGRAM.replace("array[0:1]\n", "") if stored else PROGRAM
    command = [sys.executable, "-c", text, str(path), str(room)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.startswith(said), done.stderr[-2000:]
    if stored:
        assert str(path) in done.stdout and "'v'" in done.stdout and f"{side} bytes" in done.stdout


def test_impossible_decoded_sizes() -> None:
    both = (Filter("shuffle", (8,)), Filter("deflate"))
    assert most_decoded(both, 1000) == 1000 * 1032 + (1 << 16) and most_decoded((Filter("secret"),), 1) is None
    assert most_decoded((Filter("deflate"), Filter("deflate")), 1000, mask=2) == most_decoded((Filter("deflate"),), 1000)
    check_size(both, 1000, 1 << 20)
    with pytest.raises(ValueError, match=r"1000 bytes cannot decode to 10000000"):
        check_size(both, 1000, 10**7)
    with pytest.raises(ValueError, match=r"deflate: 11 bytes cannot decode to 10000000"):
        decode((Filter("deflate"),), zlib.compress(b"abc"), 10**7)
    assert decode_at_most((Filter("zstd"),), frame(5), 10**9).tobytes() == b"hello"
    with pytest.raises(ValueError, match="decodes to 6 bytes"):
        decode_at_most((Filter("zstd"),), frame(6), 5)


def test_zstandard_frames_without_a_size() -> None:
    """Frames of any length, within filters whose output is no longer than the values."""
    stored = b"\x28\xb5\x2f\xfd\x00\x58" + struct.pack("<I", 1 | 3 << 3)[:3] + b"abc"
    assert decode_at_most((Filter("zstd"),), stored, 1000).tobytes() == b"abc"
    inner = b"\x28\xb5\x2f\xfd\x00\x58" + struct.pack("<I", 1 | len(stored) << 3)[:3] + stored
    assert decode((Filter("zstd"), Filter("zstd")), inner, 3).tobytes() == b"abc"


def test_zarr_python_decodes_only_checked_chunks(tmp_path: Path) -> None:
    """For any sequence of codecs: checked up to the first unknown one."""
    values = np.arange(1.0, 4001.0)
    filters: dict[str, list[Any]] = {
        "a": [Zlib()],
        "b": [Delta("f8"), Zlib()],
        "c": [Zlib(), CRC32(location="end"), Adler32("start")],
        "d": [Shuffle(8), BZ2()],
        "e": [LZMA()],
    }
    for name, steps in filters.items():
        group = zarr.open_group(tmp_path / f"{name}.zarr", mode="w", zarr_format=2)
        how: dict[str, Any] = {"filters": steps, "compressors": Zlib(), "attributes": {"_ARRAY_DIMENSIONS": ["v"]}}
        group.create_array("v", data=values, chunks=(4000,), **how)
        box = (slice(0, 4000, 1),)
        assert open_file(tmp_path / f"{name}.zarr").read("v", box).tolist() == values.tolist()
        assert aa.open(tmp_path / f"{name}.zarr")["v"].read().tolist() == values.tolist()
    # A compression ratio of a thousand is legitimate.
    many = zarr.open_group(tmp_path / "many.zarr", mode="w", zarr_format=2)
    many.create_array("v", data=np.ones(1 << 20), chunks=(1 << 20,), filters=[Delta("f8")], compressors=Zlib(9))
    assert (aa.open(tmp_path / "many.zarr")["v"].read() == 1).all()
