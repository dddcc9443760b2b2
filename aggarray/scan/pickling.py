"""How do objects travel between a scan and its helper processes? Pickled, each distinct part once.

Files of an archive are alike: the same texts, attributes and coordinates come again and again. One pickler writes all objects
of a stream and one unpickler reads them, so that what was sent before travels as its number; `Interner` makes equal parts one
object first. From time to time both forget, so that neither holds everything that ever went through.
"""

import hashlib
import pickle
from dataclasses import fields
from typing import IO, Any

import numpy as np

from aggarray.formats.base import Attributes, Structure, Variable

#: What a stream of objects begins with; whatever a process writes before that is passed over.
MARK = b"\n\x93aggarray scan 1\n"
#: So much may come before the mark.
_MOST_BEFORE = 1 << 20
#: Both ends forget after so many objects.
_FORGET = 4096
#: Arrays of at least this many bytes are held once, however many files have them.
SHARED_BYTES = 128


class Sender:
    """Writes objects to a stream."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self._pickler, self._count = stream, pickle.Pickler(stream, 5), 0
        self._sharer = Interner()

    def send(self, item: Any) -> None:
        """Write one object. Raises whatever pickling it raises, and OSError where nobody listens."""
        self._pickler.dump(_Packed(self._row(item)) if isinstance(item, Structure) else item)
        self._stream.flush()
        self._count += 1
        if self._count % _FORGET == 0:
            self._pickler.clear_memo()
            self._sharer = Interner()

    def _row(self, structure: Structure) -> tuple[Any, ...]:
        """Return the fields of a structure, variables as tuples: what came before is the same object as then."""
        shared = self._sharer
        rows = {"attrs": shared.attrs(structure.attrs), "variables": tuple(map(shared.row, structure.variables))}
        return tuple(rows.get(name, getattr(structure, name)) for name in _FIELDS)


_FIELDS = tuple(f.name for f in fields(Structure))


class _Packed(tuple[tuple[Any, ...]]):
    """The fields of a structure on their way."""

    __slots__ = ()

    def __new__(cls, row: tuple[Any, ...]) -> "_Packed":
        """Hold one row."""
        return super().__new__(cls, (row,))

    def __reduce__(self) -> tuple[Any, ...]:
        return _Packed, (self[0],)


class Receiver:
    """Reads the objects that a `Sender` wrote."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self._unpickler = stream, pickle.Unpickler(stream)
        self._count = 0
        self._variables: dict[int, tuple[Any, Variable]] = {}

    def receive(self) -> Any:
        """Return the next object; EOFError at the end, and whatever unpickling raises over something else."""
        found = self._unpickler.load()
        if isinstance(found, _Packed):
            row = dict(zip(_FIELDS, found[0], strict=True))
            found = Structure(**{**row, "variables": tuple(map(self._variable, row["variables"]))})
        self._count += 1
        if self._count % _FORGET == 0:
            self._unpickler = pickle.Unpickler(self._stream)  # it has read no byte more than its objects took
            self._variables.clear()
        return found

    def _variable(self, row: tuple[Any, ...]) -> Variable:
        # The row is held too, so that no other object gets its number.
        known = self._variables.get(id(row))
        if known is None:
            known = self._variables[id(row)] = (row, Variable(*row))
            if known[1].values is not None:
                known[1].values.flags.writeable = False
        return known[1]


def skip_to_mark(stream: IO[bytes]) -> None:
    """Read until the mark has gone by; EOFError where none comes."""
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
    """Gives for attributes, arrays and variables the first object that was equal to them."""

    def __init__(self) -> None:
        self._arrays: dict[tuple[Any, ...], np.ndarray] = {}
        self._attrs: dict[tuple[Any, ...], Attributes] = {}
        self._texts: dict[str, str] = {}
        self._rows: dict[tuple[Any, ...], tuple[Any, ...]] = {}

    def row(self, variable: Variable) -> tuple[Any, ...]:
        """Return the fields of a variable."""
        v, attrs = variable, self.attrs(variable.attrs)
        values = None if v.values is None else self.array(v.values, 0)
        # Attributes and values of a row are alive as long as it is: their identity will do.
        key = v.name, v.dtype.str, v.shape, v.dimensions, id(attrs), id(values), v.scopes
        return self._rows.setdefault(key, (v.name, v.dtype, v.shape, v.dimensions, attrs, values, v.scopes))

    def attrs(self, attrs: Attributes) -> Attributes:
        """Return attributes."""
        text = self._texts.setdefault
        key = tuple([(k, v if type(v) is str else _key(v)) for k, v in attrs.items()])
        known = self._attrs.get(key)
        if known is None:
            known = {text(k, k): text(v, v) if type(v) is str else v for k, v in attrs.items()}
            self._attrs[key] = known
        return known

    def array(self, values: np.ndarray, least: int = SHARED_BYTES) -> np.ndarray:
        """Return an array; ``least``: bytes that make it worth a comparison. Only numbers are compared."""
        if values.nbytes < least or values.dtype.kind not in "iuf":
            return values
        values.flags.writeable = False
        digest = hashlib.blake2b(np.ascontiguousarray(values).data, digest_size=16).digest()
        return self._arrays.setdefault((values.shape, values.dtype, digest), values)


def _key(value: Any) -> Any:
    """Return what is equal for values that are the same to the last bit, type included; else an object equal to no other."""
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "iufcb":
        return type(value), value.shape, value.dtype.str, value.tobytes()
    if type(value) is list and all(type(v) is str for v in value):
        return tuple(value)
    return object()
