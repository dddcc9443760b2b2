"""Codecs of the chunks and shards of Zarr stores (version 3)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, BinaryIO

import numpy as np

from aggarray.output.chunks import Position
from aggarray.output.compression import BLOSC, NONE, Compression

#: A codec as the metadata of an array state it.
CodecMetadata = Mapping[str, Any]
#: Checksum of the encoded bytes.
CRC32C: CodecMetadata = {"name": "crc32c"}
#: Order of the bytes of numbers.
LITTLE_ENDIAN: CodecMetadata = {"name": "bytes", "configuration": {"endian": "little"}}
#: Offset and size of a chunk that a shard does not have.
_ABSENT = 2**64 - 1


def compressors_of(compression: Compression, itemsize: int) -> list[CodecMetadata]:
    """Return the codec of a compression, if any."""
    name, level = compression.name, compression.level
    if not level:
        return []
    if name in BLOSC:
        settings = {"typesize": itemsize, "cname": BLOSC[name], "clevel": level, "shuffle": "shuffle", "blocksize": 0}
        return [{"name": "blosc", "configuration": settings}]
    if name == "zlib":
        return [{"name": "gzip", "configuration": {"level": level}}]
    return [{"name": name, "configuration": {"level": level, "checksum": False}}]


def compression_of(codecs: Sequence[CodecMetadata]) -> Compression:
    """Return the compression of the codecs of `compressors_of`.

    >>> str(compression_of(compressors_of(Compression("blosc_lz4", 5), 4))), str(compression_of([CRC32C]))
    ('blosc_lz4:5', 'none')
    """
    for codec in codecs:
        settings = codec.get("configuration", {})
        if codec["name"] == "blosc":
            names = {cname: name for name, cname in BLOSC.items()}
            return Compression(names[settings["cname"]], settings["clevel"])
        if codec["name"] in ("gzip", "zstd"):
            return Compression("zlib" if codec["name"] == "gzip" else "zstd", settings["level"])
    return Compression(NONE, 0)


def sharding(chunk: Sequence[int], codecs: Sequence[CodecMetadata]) -> CodecMetadata:
    """Return the codec of shards of chunks; ``codecs``: all those of a chunk."""
    settings = {"chunk_shape": chunk, "codecs": codecs, "index_codecs": [LITTLE_ENDIAN, CRC32C], "index_location": "end"}
    return {"name": "sharding_indexed", "configuration": settings}


def write_shard(file: BinaryIO, grid: Sequence[int], chunks: Iterable[tuple[Position, bytes]]) -> None:
    """Write encoded chunks and their index; ``grid``: shape in chunks."""
    index, offset = np.full((*grid, 2), _ABSENT, "<u8"), 0
    for position, chunk in chunks:
        file.write(chunk)
        index[position] = offset, len(chunk)
        offset += len(chunk)
    file.write(_crc32c(index, {}))


def encode(values: np.ndarray, codecs: Sequence[CodecMetadata]) -> Any:
    """Return the bytes of a chunk, little-endian and in C order, after codecs.

    ``codecs``: those of `compressors_of`, and `CRC32C`. Without any, the result may share the memory of ``values``. Blosc uses
    one thread if the caller is not the main thread; several would make the order of its blocks undefined.
    """
    encoded: Any = np.ascontiguousarray(values, values.dtype.newbyteorder("<"))
    for codec in codecs:
        encoded = _ENCODERS[codec["name"]](encoded, codec.get("configuration", {}))
    return encoded.reshape(-1).view(np.uint8) if isinstance(encoded, np.ndarray) else encoded


def _blosc(values: Any, settings: Mapping[str, Any]) -> bytes:
    from numcodecs.blosc import Blosc

    return bytes(Blosc(settings["cname"], settings["clevel"], Blosc.SHUFFLE).encode(values))


def _gzip(values: Any, settings: Mapping[str, Any]) -> bytes:
    import deflate

    return bytes(deflate.gzip_compress(values.reshape(-1).view(np.uint8), settings["level"]))


def _zstd(values: Any, settings: Mapping[str, Any]) -> bytes:
    from numcodecs.zstd import Zstd

    return bytes(Zstd(settings["level"]).encode(values))


def _crc32c(encoded: Any, _settings: Mapping[str, Any]) -> bytes:
    import google_crc32c  # zarr-python needs it too

    packed = bytes(encoded)
    return packed + int(google_crc32c.value(packed)).to_bytes(4, "little")


_ENCODERS = {"blosc": _blosc, "gzip": _gzip, "zstd": _zstd, "crc32c": _crc32c}
