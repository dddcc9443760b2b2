"""Fuzz target: any stored bytes decode to the expected size of a chunk, or are refused.

An input is one line of JSON, ``[[[name, parameter, ...], ...], size, mask]``, followed by the stored bytes.
"""

import json
import random
import zlib
from typing import Any

import numpy as np

from aggarray.codecs import Filter, codecs, decode, decode_all, known
from aggarray.codecs.fletcher32 import fletcher32
from tests.fuzz.target import Target, check
from tests.fuzz.trees import ODD, loaded

#: Largest size of a chunk in bytes; larger ones add no coverage.
_MOST = 1 << 16
_NUMBERS = np.random.default_rng(5).integers(0, 50, 64).astype("<i4").tobytes()


def _parsed(data: bytes) -> tuple[tuple[Filter, ...], int, int, bytes] | None:
    """Return filters, size, mask and stored bytes; None for invalid input."""
    line, _, stored = data.partition(b"\n")
    result = loaded(line)
    if not isinstance(result, list) or len(result) != 3 or not isinstance(result[0], list):
        return None
    names, size, mask = result
    if not (type(size) is int and type(mask) is int and 0 <= size <= _MOST and 0 <= mask < 1 << 32) or len(names) > 6:
        return None
    if not all(isinstance(n, list) and n and all(type(p) in (int, str, bool) for p in n) and type(n[0]) is str for n in names):
        return None
    return tuple(Filter(name, tuple(parameters)) for name, *parameters in names), size, mask, stored


def run(data: bytes) -> bool:
    """Decode a chunk, alone and in a batch."""
    parsed = _parsed(data)
    if parsed is None:
        return False
    filters, size, mask, stored = parsed
    known(filters)
    try:
        result = decode(filters, stored, size, mask)
    except ValueError:
        return False
    check(result.dtype == np.uint8 and result.shape == (size,), f"{result.dtype} {result.shape}, not {size} bytes")
    for before in (0, 255):
        # Unwritten elements would keep the value.
        out = np.full(size, before, np.uint8)
        check(decode(filters, stored, size, mask, out) is out, "not what was given to be filled")
        check((out == result).all(), "other bytes where there is a place for them")
    if not mask:
        rows = np.empty((2, size), np.uint8)
        decode_all(filters, [stored, stored], rows)
        check((rows == result).all(), "other bytes among several chunks")
    if [f.name for f in filters if f.name] == ["deflate"] and not mask & 1 and size:
        check(zlib.decompressobj().decompress(stored) == result.tobytes(), "other bytes than zlib's")
    return True


def _encoded(filters: list[list[Any]], data: bytes) -> bytes:
    """Return data encoded by the filters; only filters used by seeds."""
    import numcodecs

    for name, *parameters in filters:
        if name == "shuffle":
            data = np.frombuffer(data, np.uint8).reshape(-1, parameters[0]).T.tobytes()
        elif name == "deflate":
            data = zlib.compress(data)
        elif name == "fletcher32":
            data += fletcher32(np.frombuffer(data, np.uint8)).to_bytes(4, "little")
        elif name == "crc32c":
            import google_crc32c

            data += google_crc32c.value(data).to_bytes(4, "little")
        elif name in ("gzip", "zstd", "lz4", "blosc"):
            data = bytes(numcodecs.get_codec({"id": name}).encode(data))
        else:
            data = _by_imagecodecs(name, parameters, data)
    return data


def _by_imagecodecs(name: str, parameters: list[Any], data: bytes) -> bytes:
    import imagecodecs

    size = len(data)
    if name == "lzf":
        return bytes(imagecodecs.lzf_encode(data))
    if name == "szip":
        return size.to_bytes(4, "little") + bytes(imagecodecs.szip_encode(data, *parameters, header=False))
    if name == "lz4_hdf5":
        block = bytes(imagecodecs.lz4_encode(data))
        return size.to_bytes(8, "big") + size.to_bytes(4, "big") + len(block).to_bytes(4, "big") + block
    planes = bytes(imagecodecs.bitshuffle_encode(data, itemsize=parameters[0]))
    if not parameters[2]:
        return planes
    block = bytes((imagecodecs.lz4_encode if parameters[2] == 2 else imagecodecs.zstd_encode)(planes))
    return size.to_bytes(8, "big") + size.to_bytes(4, "big") + len(block).to_bytes(4, "big") + block


_CHAINS: tuple[list[list[Any]], ...] = (
    *([["deflate"]], [["shuffle", 4], ["deflate"]], [["shuffle", 4], ["deflate"], ["fletcher32"]], [["fletcher32"]]),
    *([["gzip"]], [["zstd"]], [["lz4"]], [["blosc"]], [["shuffle", 2]], [["crc32c"]], [["zstd"], ["crc32c"]], [["lzf"]], []),
    *([["bitshuffle", 4, 0, 0]], [["bitshuffle", 4, 0, 2]], [["bitshuffle", 4, 0, 3]], [["lz4_hdf5"]]),
    *([["szip", 141, 8, 8, 64]], [["szip", 141, 8, 32, 50]], [["shuffle", 4], ["lzf"]]),
)


def seeds() -> dict[str, bytes]:
    """Return a chunk of 64 integers in every installed encoding."""
    result = {}
    for number, chain in enumerate(_CHAINS):
        if known([Filter(name, tuple(parameters)) for name, *parameters in chain]):
            head = json.dumps([chain, len(_NUMBERS), 0]).encode()
            result["_".join([str(number), *(name for name, *_ in chain)])] = head + b"\n" + _encoded(chain, _NUMBERS)
    return result


def mutate(data: bytes, longest: int, seed: int) -> bytes:
    """Change the filters, the size or the bytes; usually restore the surrounding checksums and streams."""
    chance = random.Random(seed)
    line, _, stored = data.partition(b"\n")
    head = loaded(line)
    if not isinstance(head, list) or len(head) != 3 or not isinstance(head[0], list):
        head = [[], 0, 0]
    if chance.random() < 0.2:
        _change_head(head, chance)
    names = [n[0] for n in head[0] if isinstance(n, list) and n]
    kind = chance.random()
    if kind < 0.5 and names and names[-1] in ("fletcher32", "crc32c", "deflate"):
        # Decode, mutate the content, and encode again.
        try:
            inner = bytes(decode((Filter(names[-1]),), stored, _inner_size(names[-1], stored)))
            stored = _encoded([[names[-1]]], _bytes(inner, chance))
        except (ValueError, zlib.error):
            stored = _bytes(stored, chance)
    elif kind < 0.9:
        stored = _bytes(stored, chance)
    return (json.dumps(head).encode() + b"\n" + stored)[:longest]


def _inner_size(name: str, stored: bytes) -> int:
    """Return the size of the content of a checksum filter or stream."""
    return len(zlib.decompressobj().decompress(stored, 4 * _MOST)) if name == "deflate" else max(len(stored) - 4, 0)


def _change_head(head: list[Any], chance: random.Random) -> None:
    kind = chance.random()
    if kind < 0.3:
        head[1] = chance.choice((0, 1, 2, 3, 255, 256, 257, 1000, _MOST, chance.randint(0, 600)))
    elif kind < 0.4:
        head[2] = chance.choice((0, 1, 2, 3, 4, 5))
    elif kind < 0.7 and head[0]:
        one = chance.choice(head[0])
        if isinstance(one, list) and len(one) > 1:
            one[chance.randrange(1, len(one))] = chance.choice((*(o for o in ODD if type(o) in (int, str)), 3, 4, 5, 8, 16, 64))
    elif kind < 0.85:
        name = chance.choice(sorted(codecs()))
        head[0].insert(chance.randint(0, len(head[0])), [name, *chance.choice(([], [4], [1], [255], [4, 0, 2], [4, 64, 3]))])
    elif head[0]:
        del head[0][chance.randrange(len(head[0]))]


def _bytes(data: bytes, chance: random.Random) -> bytes:
    """Return bytes with some changed, removed or repeated, or with replaced numbers near the start."""
    made = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 4, 16))):
        at = chance.randint(0, len(made))
        if chance.random() < 0.3:
            at = min(at, chance.randint(0, 24))
        kind = chance.random()
        if kind < 0.4 and at < len(made):
            made[at] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, made[at] ^ 1 << chance.randint(0, 7), chance.randint(0, 255)))
        elif kind < 0.6:
            value = chance.choice((0, 1, 255, 256, 257, 65536, 2**31 - 1, 2**31, 2**32 - 1, chance.randint(0, 600)))
            made[at : at + 4] = value.to_bytes(4, chance.choice(("little", "big")))
        elif kind < 0.75:
            del made[at : at + chance.choice((1, 2, 4, 8, 100))]
        elif kind < 0.9:
            start = chance.randint(0, len(made))
            made[at:at] = made[start : start + chance.choice((1, 4, 8, 64))]
        else:
            made[at:at] = chance.randbytes(chance.choice((1, 2, 4, 16)))
    return bytes(made)


TARGETS = (Target("chunks", run, seeds, mutate, 4096),)
