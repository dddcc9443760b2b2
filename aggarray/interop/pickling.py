"""Pickled form of master arrays, and fingerprints of their values.

An array of an index is pickled as its path, generation and selection. A task that reads a block of any other array carries
only the pieces that the block needs.
"""

import pickle
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from aggarray.dataclass import dataclass
from aggarray.storage.urls import is_remote

Key = tuple[slice, ...]


def from_index(array: Any) -> bool:
    """Return whether an array is pickled as a reference to an index."""
    return array._origin is not None and array._origin.describes(array._witness)


def bare(array: Any) -> Any:
    """Return an array in its smallest pickled form.

    An array of an index is returned as it is. Other arrays lose the attributes and coordinates, which reading does not need.
    """
    if from_index(array):
        return array
    matrix = replace(array._matrix, references=replace(array._matrix.references, tables=None))
    return replace(array, attrs={}, file_attrs={}, coords={}, _matrix=matrix)


def read_threads(array: Any) -> int | None:
    """Return the threads of a read, None for the option.

    Tasks of dask run in several threads already: each reads local files by itself, which takes less memory.
    """
    import threading

    uris = array._matrix.references.uris
    in_task = threading.current_thread() is not threading.main_thread()
    return 1 if in_task and not (len(uris) and is_remote(str(uris[0]))) else None


@dataclass(frozen=True, slots=True)
class LazyBlock:
    """Block of an array that is read later, with a small pickle."""

    array: Any
    key: Key

    def read(self) -> np.ndarray:
        """Return the values of the block."""
        return np.asarray(self.array.read(self.key, threads=read_threads(self.array)))

    def __reduce__(self) -> tuple[Any, ...]:
        if from_index(self.array):
            return _lazy_block, (pickle.dumps(self.array), self.key)
        return LazyBlock, (bare(self.array).lazy[self.key], (slice(None),) * self.array.ndim)


def read_block(block: LazyBlock) -> np.ndarray:
    """Return the values of a block: the function of each task of dask."""
    return block.read()


def _lazy_block(array: bytes, key: Key) -> LazyBlock:
    return LazyBlock(_load_array(array), key)


@lru_cache(maxsize=16)
def _load_array(array: bytes) -> Any:
    return pickle.loads(array)


def fingerprint(array: Any) -> tuple[Any, ...]:
    """Return a key of the values of an array, the same in every process.

    No value is read. An array of an index is identified by the path and generation of the index, any other array by its files,
    in the state in which they were scanned, and by its values in memory.
    """
    from hashlib import sha256

    if from_index(array):
        origin = array._origin
        return ("index", *origin.place, origin.steps)
    digest = sha256()
    for part in _parts(array):
        digest.update(part)
        digest.update(b"\0")
    return "files", digest.hexdigest()


def _parts(array: Any) -> Iterator[bytes]:
    """Yield, as bytes, everything that determines the values of an array."""
    matrix = array._matrix.compact()
    references, parts = matrix.references, matrix.parts
    yield repr((array.dtype, array.units, array.calendar, array.fill_value, matrix.dimensions, matrix.directions)).encode()
    yield repr([replace(template, assumed=None) for template in references.templates]).encode()
    yield "\0".join(map(str, (*references.uris, "", *references.variables))).encode("utf-8", "surrogateescape")
    columns = [*matrix.edges, matrix.refs, references.uri, references.variable, references.template, references.stamps]
    columns += [column for axes in (parts.starts, parts.steps) for name in sorted(axes) for column in (name, axes[name])]
    values_and_mask = () if array._known is None else array._known
    for column in (*columns, *parts.picks, *references.memory, *values_and_mask):
        yield _bytes(column)


def _bytes(column: Any) -> bytes:
    if not isinstance(column, np.ndarray):
        return repr(column).encode()
    # str(dtype) is slow, and dtype.str lacks only the fields of structured types.
    head = f"{column.dtype if column.dtype.kind == 'V' else column.dtype.str} {column.shape} ".encode()
    return head + (repr(column.tolist()).encode() if column.dtype.hasobject or column.dtype.kind == "T" else column.tobytes())
