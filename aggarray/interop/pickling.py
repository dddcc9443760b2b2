"""What does another process need of an array, and which name tells its values from those of any other array?

A task that reads a block carries an array of an index as its place there, and of any other array no more than the pieces that
the block needs.
"""

import pickle
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import sha256
from typing import Any

import numpy as np

Key = tuple[slice, ...]


def from_index(array: Any) -> bool:
    """Tell whether an array travels as its place in an index."""
    return array._origin is not None and array._origin.describes(array._witness)


def bare(array: Any) -> Any:
    """Return an array as it is pickled best: as its place in an index, else with nothing but what reading needs."""
    if from_index(array):
        return array
    matrix = replace(array._matrix, references=replace(array._matrix.references, tables=None))
    return replace(array, attrs={}, file_attrs={}, coords={}, _matrix=matrix)


@dataclass(frozen=True, slots=True)
class LazyBlock:
    """A block of an array that is yet to be read; pickled, it holds what this block needs and nothing else."""

    array: Any
    key: Key

    def read(self) -> np.ndarray:
        """Return the values."""
        return np.asarray(self.array.read(self.key))

    def __reduce__(self) -> tuple[Any, ...]:
        if from_index(self.array):
            return _lazy_block, (pickle.dumps(self.array), self.key)
        return LazyBlock, (bare(self.array).lazy[self.key], (slice(None),) * self.array.ndim)


def _lazy_block(array: bytes, key: Key) -> LazyBlock:
    return LazyBlock(_again(array), key)


@lru_cache(maxsize=16)
def _again(array: bytes) -> Any:
    """Return an array that travelled to this process: made once for all its blocks."""
    return pickle.loads(array)


def fingerprint(array: Any) -> tuple[Any, ...]:
    """Return what tells the values of an array from those of others: the same in every process, without reading any.

    Arrays of an index are told by its path and generation, others by their files, as these were when they were scanned, and
    by what lies in memory.
    """
    if from_index(array):
        origin = array._origin
        return ("index", *origin.place, origin.steps)
    digest = sha256()
    for part in _parts(array):
        digest.update(part)
        digest.update(b"\0")
    return "files", digest.hexdigest()


def _parts(array: Any) -> Iterator[bytes]:
    """Yield, as bytes, all that the values of an array follow from."""
    matrix = array._matrix.compact()
    references, parts = matrix.references, matrix.parts
    yield repr((array.dtype, array.units, array.calendar, array.fill_value, matrix.dimensions, matrix.directions)).encode()
    yield repr([replace(template, assumed=None) for template in references.templates]).encode()
    yield "\0".join(map(str, (*references.uris, "", *references.variables))).encode("utf-8", "surrogateescape")
    columns = [*matrix.edges, matrix.refs, references.uri, references.variable, references.template, references.stamps]
    columns += [column for axes in (parts.starts, parts.steps) for name in sorted(axes) for column in (name, axes[name])]
    known = () if array._known is None else array._known
    for column in (*columns, *parts.picks, *references.memory, *known):
        yield _bytes(column)


def _bytes(column: Any) -> bytes:
    if not isinstance(column, np.ndarray):
        return repr(column).encode()
    # The name of a dtype is slow to make, and short of nothing else but its fields.
    head = f"{column.dtype if column.dtype.kind == 'V' else column.dtype.str} {column.shape} ".encode()
    return head + (repr(column.tolist()).encode() if column.dtype.hasobject or column.dtype.kind == "T" else column.tobytes())
