"""Pickled streams between a scan and its worker processes.

Each distinct part is sent once. Files of an archive share most texts, attributes and coordinates. One pickler writes and one
unpickler reads all objects of a stream, so that repeated objects are sent as references; `Interner` makes equal parts
identical first. Both ends clear their memos regularly to limit memory.
"""

from __future__ import annotations

import pickle
import time
from typing import IO, Any

import numpy as np

from aggarray.dataclass import fields
from aggarray.formats.base import Attributes, Structure, Variable
from aggarray.storage.blake2 import blake2b

#: Start of a stream of objects; anything that a process writes before it is skipped.
MARK = b"\n\x93aggarray scan 1\n"
#: Largest number of bytes before the mark.
_MOST_BEFORE = 1 << 20
#: Both ends clear their memos after this many objects.
_FORGET = 256
#: Least seconds between two writes while more objects follow: for each, the reader must wait for the interpreter lock.
_WAIT = 0.05
#: Arrays of at least this many bytes are shared between files.
SHARED_BYTES = 128


class Sender:
    """Writer of a stream of objects."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self._pickler, self._count, self._written = stream, pickle.Pickler(stream, 5), 0, time.monotonic()
        self._interner = Interner()

    def send(self, item: Any, more: bool = False) -> None:
        """Write one object; raise errors of pickling, OSError once it is closed.

        ``more``: others follow; it waits for them if the last write was less than `_WAIT` seconds ago.
        """
        self._pickler.dump(_Packed(self._row(item)) if isinstance(item, Structure) else item)
        now = time.monotonic()
        if not more or now - self._written > _WAIT:
            self._stream.flush()
            self._written = now
        self._count += 1
        if self._count % _FORGET == 0:
            self._pickler.clear_memo()
            self._interner = Interner()

    def _row(self, structure: Structure) -> tuple[Any, ...]:
        """Return the fields of a structure, variables as tuples, parts sent once."""
        shared = self._interner
        rows = {"attrs": shared.attrs(structure.attrs), "variables": tuple(map(shared.row, structure.variables))}
        return tuple(rows.get(name, getattr(structure, name)) for name in _FIELDS)


_FIELDS = tuple(f.name for f in fields(Structure))


class _Packed(tuple[tuple[Any, ...]]):
    __slots__ = ()

    def __new__(cls, row: tuple[Any, ...]) -> _Packed:
        return super().__new__(cls, (row,))

    def __reduce__(self) -> tuple[Any, ...]:
        return _Packed, (self[0],)


class Receiver:
    """Reader of the objects that a `Sender` wrote."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self._unpickler = stream, pickle.Unpickler(stream)
        self._count = 0
        self._variables: dict[int, tuple[Any, Variable]] = {}

    def receive(self) -> Any:
        """Return the next object; EOFError at the end, or errors of unpickling."""
        item = self._unpickler.load()
        if isinstance(item, _Packed):
            row = dict(zip(_FIELDS, item[0], strict=True))
            item = Structure(**{**row, "variables": tuple(map(self._variable, row["variables"]))})
        self._count += 1
        if self._count % _FORGET == 0:
            self._unpickler = pickle.Unpickler(self._stream)  # an unpickler does not read ahead
            self._variables.clear()
        return item

    def _variable(self, row: tuple[Any, ...]) -> Variable:
        # Holding the row keeps its id unique.
        stored = self._variables.get(id(row))
        if stored is None:
            stored = self._variables[id(row)] = (row, Variable(*row))
            if stored[1].values is not None:
                stored[1].values.flags.writeable = False
        return stored[1]


def skip_to_mark(stream: IO[bytes]) -> None:
    """Read up to and including the mark. Raises EOFError if there is none."""
    window = b""
    for _ in range(_MOST_BEFORE):
        byte = stream.read(1)
        if not byte:
            break
        window = (window + byte)[-len(MARK) :]
        if window == MARK:
            return
    raise EOFError("no mark")


class Interner:
    """Interner of attributes, arrays, and rows of variables."""

    def __init__(self) -> None:
        self._arrays: dict[tuple[Any, ...], np.ndarray] = {}
        self._attrs: dict[tuple[Any, ...], Attributes] = {}
        self._texts: dict[str, str] = {}
        self._rows: dict[tuple[Any, ...], tuple[Any, ...]] = {}

    def row(self, variable: Variable) -> tuple[Any, ...]:
        """Return the fields of a variable, interned."""
        v, attrs = variable, self.attrs(variable.attrs)
        values = None if v.values is None else self.array(v.values, 0)
        # A stored row keeps its attributes and values alive, so that their ids identify them.
        key = v.name, v.dtype.str, v.shape, v.dimensions, id(attrs), id(values), v.scopes
        return self._rows.setdefault(key, (v.name, v.dtype, v.shape, v.dimensions, attrs, values, v.scopes))

    def attrs(self, attrs: Attributes) -> Attributes:
        """Return interned attributes."""
        text = self._texts.setdefault
        key = tuple([(k, v if type(v) is str else _key(v)) for k, v in attrs.items()])
        interned = self._attrs.get(key)
        if interned is None:
            interned = {text(k, k): text(v, v) if type(v) is str else v for k, v in attrs.items()}
            self._attrs[key] = interned
        return interned

    def array(self, values: np.ndarray, least: int = SHARED_BYTES) -> np.ndarray:
        """Return an interned array; only numeric ones of ``least`` bytes or more."""
        if values.nbytes < least or values.dtype.kind not in "iuf":
            return values
        values.flags.writeable = False
        digest = blake2b(np.ascontiguousarray(values).data, digest_size=16).digest()
        return self._arrays.setdefault((values.shape, values.dtype, digest), values)


def _key(value: Any) -> Any:
    """Return a key, equal for bitwise equal values, unique for other types."""
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "iufcb":
        return type(value), value.shape, value.dtype.str, value.tobytes()
    if type(value) is list and all(type(v) is str for v in value):
        return tuple(value)
    return object()
