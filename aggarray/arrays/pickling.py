"""Pickled form of master arrays, and fingerprints of their values.

An array of an index is pickled as its path, generation and selection, which each task carries. The matrix of other arrays is
sent once per worker, as an `ArrayReference` that tasks share. A task of an array with many values in memory carries only the
pieces that its block needs.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from functools import lru_cache
from threading import Lock
from typing import Any
from zlib import compress, decompress

import numpy as np

from aggarray.dataclass import dataclass, replace
from aggarray.storage.urls import is_remote

Key = tuple[slice, ...]

#: Bytes of a pickled array up to which each task carries it.
SMALL = 4096


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


class ArrayReference:
    """Pickled array that a process loads when it first reads it.

    Processes that only pass it on, such as a scheduler, load nothing and open no index. ``small`` (at most `SMALL` bytes):
    every task can carry it.
    """

    def __init__(self, array: Any = None, payload: bytes = b"") -> None:
        self._array, self._payload, self._lock = array, payload, Lock()

    @property
    def small(self) -> bool:
        """Whether the array is a short address in an index."""
        return from_index(self.load()) and len(self.payload()) <= SMALL

    def payload(self) -> bytes:
        """Return the pickled array, compressed; a small one is kept."""
        if self._payload:
            return self._payload
        payload = compress(pickle.dumps(bare(self._array)), 1)
        if len(payload) <= SMALL:
            self._payload = payload
        return payload

    def load(self) -> Any:
        """Return the array; equal small references of a process share one."""
        with self._lock:
            if self._array is None:
                small = len(self._payload) <= SMALL
                self._array = _shared_array(self._payload) if small else _loaded_array(self._payload)
        return self._array

    def __reduce__(self) -> tuple[Any, ...]:
        return ArrayReference, (None, self.payload())


@dataclass(frozen=True, slots=True)
class LazyBlock:
    """Block of an array that is read later, with a small pickle.

    ``array``: a master array, or an `ArrayReference`.
    """

    array: Any
    key: Key

    def read(self) -> np.ndarray:
        """Return the values of the block."""
        array = self.array.load() if isinstance(self.array, ArrayReference) else self.array
        return np.asarray(array.read(self.key, threads=read_threads(array)))

    def __reduce__(self) -> tuple[Any, ...]:
        if isinstance(self.array, ArrayReference):
            return LazyBlock, (self.array, self.key)
        if from_index(self.array):
            return LazyBlock, (ArrayReference(self.array), self.key)
        return LazyBlock, (bare(self.array).lazy[self.key], (slice(None),) * self.array.ndim)


def read_block(block: LazyBlock) -> np.ndarray:
    """Return the values of a block: the function of each task of dask."""
    return block.read()


def read_shared(array: ArrayReference, key: Key) -> np.ndarray:
    """Return a block of an array that several tasks share."""
    return LazyBlock(array, key).read()


def _lazy_block(array: bytes, key: Key) -> LazyBlock:
    """Return a block that an earlier release pickled."""
    return LazyBlock(ArrayReference(payload=array), key)


_loading = Lock()


def _shared_array(payload: bytes) -> Any:
    """Return an array that all threads share."""
    with _loading:
        return _cached_array(payload)


@lru_cache(maxsize=16)
def _cached_array(payload: bytes) -> Any:
    return _loaded_array(payload)


def _loaded_array(payload: bytes) -> Any:
    # No pickle begins with an x, as compressed bytes do; those of earlier releases are not compressed.
    return pickle.loads(decompress(payload) if payload.startswith(b"x") else payload)


def has_large_values(array: Any) -> bool:
    """Return whether more than `SMALL` bytes of values are in memory."""
    known = () if array._known is None else array._known
    values = (*array._matrix.compact().references.memory, *known)
    return sum(column.nbytes for column in values if isinstance(column, np.ndarray)) > SMALL


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
