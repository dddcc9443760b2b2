"""Reading of variables by their chunk index, with the decoders of other packages."""

import os
from collections.abc import Callable
from typing import Any

import imagecodecs
import numcodecs
import numpy as np
import pytest

from aggarray import formats
from aggarray.codecs import Filter
from aggarray.partition.chunk_index import ChunkIndex


def without_crc32c(data: bytes) -> bytes:
    import google_crc32c

    assert google_crc32c.value(data[:-4]) == int.from_bytes(data[-4:], "little")
    return data[:-4]


DECODERS: dict[str, Callable[..., Any]] = {
    "deflate": lambda data, size: numcodecs.Zlib().decode(data),
    "gzip": lambda data, size: numcodecs.GZip().decode(data),
    "zstd": lambda data, size: numcodecs.Zstd().decode(data),
    "blosc": lambda data, size: numcodecs.Blosc().decode(data),
    "bz2": lambda data, size: numcodecs.BZ2().decode(data),
    "lz4": lambda data, size: numcodecs.LZ4().decode(data),
    "fletcher32": lambda data, size: numcodecs.Fletcher32().decode(data),
    "lzf": lambda data, size: imagecodecs.lzf_decode(data, out=size),
    "shuffle": lambda data, size, item: unshuffled(data, item),
    "crc32c": lambda data, size: without_crc32c(data),
}


def unshuffled(data: bytes, item: int) -> bytes:
    size = len(data) // item * item
    planes = np.frombuffer(data[:size], np.uint8).reshape(item, -1)
    return planes.T.tobytes() + data[size:]


def decoded(filters: tuple[Filter, ...], data: bytes, size: int, mask: int = 0) -> bytes:
    """Decode one chunk: undo its filters in reverse order."""
    for position in range(len(filters) - 1, -1, -1):
        if not mask >> position & 1:
            data = bytes(DECODERS[filters[position].name](data, size, *filters[position].parameters))
    return data


def assembled(path: str | os.PathLike[str], table: ChunkIndex) -> np.ndarray:
    """Return the values of a variable, read chunk by chunk."""
    # Without a fill value all chunks are stored.
    out = np.full(table.shape, 0 if table.fill is None else table.fill, table.dtype)
    size = int(np.prod(table.chunk)) * table.dtype.itemsize
    for number, at in enumerate(np.ndindex(table.grid)):
        offset, length = int(table.offsets[number]), int(table.sizes[number])
        if offset < 0:
            continue
        name = os.fspath(path) if table.names is None else os.path.join(path, table.names(number))
        if table.names is not None and not os.path.exists(name):
            continue
        with open(name, "rb") as file:
            file.seek(offset)
            data = file.read(length or -1)
        data = decoded(table.filters, data, size, 0 if table.masks is None else int(table.masks[number]))
        assert len(data) == size
        box = tuple(slice(i * n, min((i + 1) * n, most)) for i, n, most in zip(at, table.chunk, table.shape, strict=True))
        part = tuple(slice(0, s.stop - s.start) for s in box)
        out[box] = np.frombuffer(data, table.dtype).reshape(table.chunk)[part]
    return out


def table_of(path: str | os.PathLike[str], variable: str = "v") -> ChunkIndex | None:
    """Return the chunk index of a variable, None if it has none."""
    handle = formats.open_file(path)
    try:
        return handle.chunks(variable)
    finally:
        handle.close()


def known(path: str | os.PathLike[str], variable: str = "v") -> ChunkIndex:
    """Return the chunk index of a variable; the test fails without one."""
    table = table_of(path, variable)
    if table is None:
        pytest.fail(f"{variable}: not described")
    return table
