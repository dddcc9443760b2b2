"""How is the text of a type read? By the notation that `types` prints, element by element from the left."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from aggarray.errors import MemoryAccessError
from aggarray.memory.types import ENCODINGS, STRIDED, VAR, Type

_TOKEN = re.compile(r"\s*(?:(\d+)|([A-Za-z_]\w*)|'((?:[^'\\]|\\.)*)'|(.))", re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_FLOATS = {f"float{8 * np.dtype(code).itemsize}": np.dtype(code) for code in "efdg"}
_COMPLEX = {f"float{4 * np.dtype(code).itemsize}": np.dtype(code) for code in "FDG"}
_PLAIN = {
    **{np.dtype(code).name: np.dtype(code) for code in ("?", *("i1", "i2", "i4", "i8"), *("u1", "u2", "u4", "u8"))},
    **_FLOATS,
    **{dtype.name: dtype for dtype in _COMPLEX.values()},
}
_CHARACTERS = {"A": "S", "ascii": "S", "U32": "U", "utf32": "U"}
#: A type may be nested in another so deep.
_DEEPEST = 32


def parse_type(text: str) -> Type:
    """Return the type that a text says; ``str`` of it is the text again. MemoryAccessError says where it is none.

    >>> parse_type("12 * ?int16")
    Type(dims=(12,), dtype=dtype('int16'), option=True, unaligned=False)
    >>> str(parse_type("40*var * unaligned[ byteswap[float64] ]"))
    '40 * var * unaligned[byteswap[float64]]'
    """
    reader = _Reader(text)
    found = reader.whole(0)
    reader.expect("")
    return found


class _Reader:
    """What is left of a text, token by token."""

    def __init__(self, text: str) -> None:
        if not isinstance(text, str):
            raise MemoryAccessError(f"{type(text).__name__} is no text of a type: give one such as '12 * 73 * float32'")
        self.text, self.at, self.start, self.stop = text, 0, 0, len(text.rstrip())
        self.kind, self.token = "", ""
        self.advance()

    def advance(self) -> str:
        """Step to the next token; return the one before."""
        before = self.token
        # promise: type-text-linear
        found = _TOKEN.match(self.text, self.at) if self.at < self.stop else None
        if found is None:
            self.kind, self.token, self.start = "end", "", len(self.text)
        else:
            self.kind = ("number", "name", "quoted", "sign")[(found.lastindex or 1) - 1]
            self.token, self.at, self.start = found[found.lastindex or 1], found.end(), found.start()
        return before

    def fail(self, wanted: str) -> MemoryAccessError:
        return MemoryAccessError(f"type {self.text!r}: {wanted} should be at position {self.start}, as in '12 * 73 * float32'")

    def expect(self, sign: str) -> None:
        """Step over a sign, "" for the end."""
        if self.token != sign or self.kind != ("sign" if sign else "end"):
            raise self.fail(repr(sign) if sign else "the end")
        self.advance()

    def has(self, sign: str) -> bool:
        """Step over a sign if it is there."""
        there = self.kind == "sign" and self.token == sign
        if there:
            self.advance()
        return there

    def take(self, kind: str, what: str) -> str:
        """Step over a token of a kind and return it."""
        if self.kind != kind:
            raise self.fail(what)
        return self.advance()

    def whole(self, depth: int) -> Type:
        """Read dimensions and element."""
        if depth > _DEEPEST:
            raise MemoryAccessError(f"a type nested more than {_DEEPEST} deep: give one that is not")
        dims: list[int | str] = []
        while self.kind == "number" or self.token in (VAR, STRIDED):
            dims.append(int(self.advance()) if self.kind == "number" else self.advance())
            self.expect("*")
        option = self.has("?")
        unaligned = self.kind == "name" and self.token == "unaligned"
        if unaligned:
            self.advance()
            self.expect("[")
        dtype = self.element(depth)
        if unaligned:
            self.expect("]")
        return Type(tuple(dims), dtype, option, unaligned)

    def element(self, depth: int) -> np.dtype[Any]:
        """Read an element."""
        if self.has("{"):
            return self.record(depth)
        name = self.take("name", "a type")
        if name == "byteswap":
            self.expect("[")
            inner = self.element(depth)
            self.expect("]")
            if inner.kind == "T":
                raise MemoryAccessError(f"type {self.text!r}: string has no byte order: give string alone")
            swapped: np.dtype[Any] = inner.newbyteorder("S")
            return swapped
        if name in _READERS:
            return _READERS[name](self)
        if name not in _PLAIN:
            raise MemoryAccessError(
                f"type {self.text!r}: {name!r} is none that is known, such as {', '.join(list(_PLAIN)[:10])}, string"
            )
        return _PLAIN[name]

    def record(self, depth: int) -> np.dtype[Any]:
        """Read the fields of a record; they lie without gaps."""
        fields: list[Any] = []
        while not self.has("}"):
            if fields:
                self.expect(",")
            name = _ESCAPED.sub(r"\1", self.advance()) if self.kind == "quoted" else self.take("name", "the name of a field")
            self.expect(":")
            inner = self.whole(depth + 1)
            if not all(isinstance(n, int) for n in inner.dims) or inner.option or inner.unaligned or inner.dtype.kind == "T":
                raise MemoryAccessError(f"type {self.text!r}: field {name!r} is {inner}: fields have a fixed size, and values")
            fields.append((name, inner.dtype, inner.dims))
        try:
            return np.dtype(fields)
        except ValueError as error:
            raise MemoryAccessError(f"type {self.text!r}: {error}; give every field its own name") from error


def _string(reader: _Reader) -> np.dtype[Any]:
    if not reader.has("["):
        return np.dtypes.StringDType()
    length = reader.take("number", "the number of characters")
    reader.expect(",")
    encoding = reader.take("quoted", "an encoding, 'A' or 'U32',")
    reader.expect("]")
    if encoding not in _CHARACTERS:
        known = ", ".join(repr(one) for one in ENCODINGS.values())
        raise MemoryAccessError(
            f"type {reader.text!r}: encoding {encoding!r} of fixed length: give one of {known}, or string alone"
        )
    return np.dtype(f"{_CHARACTERS[encoding]}{_length(reader, length)}")


def _bytes(reader: _Reader) -> np.dtype[Any]:
    reader.expect("[")
    length = reader.take("number", "the number of bytes")
    reader.expect("]")
    return np.dtype(f"V{_length(reader, length)}")


def _length(reader: _Reader, length: str) -> int:
    if len(length) > 9 or int(length) < 1:
        raise MemoryAccessError(
            f"type {reader.text!r}: {length} bytes or characters: give at least one, and fewer than a thousand million"
        )
    return int(length)


def _complex(reader: _Reader) -> np.dtype[Any]:
    reader.expect("[")
    part = reader.take("name", "float32 or float64")
    reader.expect("]")
    if part not in _COMPLEX:
        raise MemoryAccessError(f"type {reader.text!r}: complex[{part}]: give one of {', '.join(_COMPLEX)}")
    return _COMPLEX[part]


def _time(reader: _Reader, code: str) -> np.dtype[Any]:
    if not reader.has("["):
        return np.dtype(code)
    if reader.take("name", "unit=") != "unit":
        raise reader.fail("unit=")
    reader.expect("=")
    unit = reader.take("quoted", "a unit such as 'ns'")
    reader.expect("]")
    try:
        return np.dtype(f"{code}[{unit}]")
    except (TypeError, ValueError) as error:
        raise MemoryAccessError(
            f"type {reader.text!r}: unit {unit!r} is none of NumPy's times: give one such as 'ns', 's' or 'D'"
        ) from error


_READERS: dict[str, Callable[[_Reader], np.dtype[Any]]] = {
    "string": _string,
    "bytes": _bytes,
    "complex": _complex,
    "datetime": lambda reader: _time(reader, "M8"),
    "timedelta": lambda reader: _time(reader, "m8"),
}
