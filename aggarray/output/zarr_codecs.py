"""Codecs of the chunks of Zarr stores (version 3): metadata and encoding."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from aggarray.output.compression import Compression

#: A codec as the metadata of an array state it.
CodecMetadata = Mapping[str, Any]
#: Checksum of the encoded bytes.
CRC32C: CodecMetadata = {"name": "crc32c"}


def compressors_of(compression: Compression, itemsize: int) -> list[CodecMetadata]:
    """Return the codec of a compression, if any."""
    level = compression.level
    settings: dict[str, dict[str, Any]] = {
        "blosc": {"typesize": itemsize, "cname": "zstd", "clevel": level, "shuffle": "shuffle", "blocksize": 0},
        "zlib": {"level": level},
        "zstd": {"level": level, "checksum": False},
    }
    name = {"zlib": "gzip"}.get(compression.name, compression.name)
    return [{"name": name, "configuration": settings[compression.name]}] if level else []


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

    return bytes(Blosc("zstd", settings["clevel"], Blosc.SHUFFLE).encode(values))


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
