"""Types of arrays and their notation, such as ``12 * 73 * 144 * float32``.

The notation is that of DyND's datashape; `parse_type` reads it. Dimensions come first: a size, ``var`` for a ragged dimension,
``strided`` where the metadata has the size. Then comes the element. ``?`` means that values may be missing, ``byteswap[...]``
that they are not in native byte order, ``unaligned[...]`` that they are not aligned.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import numpy as np

from aggarray.dataclass import dataclass, replace
from aggarray.errors import MemoryAccessError

#: The advice of errors about dtypes without a type.
SUPPORTED = "give numbers, text or times"
#: Dimensions without one size: of its own per element (ragged), or in the metadata of the array.
VAR, STRIDED = "var", "strided"
_BYTES_OF_CHARACTER = {"S": 1, "U": 4}
_ENCODINGS = {"S": "A", "U": "U32"}
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
#: The greatest depth of nested types.
_MOST_NESTED = 32


@dataclass(frozen=True, slots=True)
class Type:
    """Type of an array: ``dims`` and ``dtype`` of the elements.

    ``dims``: sizes, ``VAR`` or ``STRIDED``; ``option``: elements may be missing; ``unaligned``: elements may be unaligned.
    Raises MemoryAccessError for Python objects.

    >>> print(Type((40, VAR), np.dtype("f8")))
    40 * var * float64
    >>> print(Type((), np.dtype(">f8"), unaligned=True))
    unaligned[byteswap[float64]]
    """

    dims: tuple[int | str, ...]
    dtype: np.dtype[Any]
    option: bool = False
    unaligned: bool = False

    def __post_init__(self) -> None:
        element(self.dtype)  # raises the error of dtypes without notation

    @classmethod
    def of(cls, values: np.ndarray) -> Type:
        """Return the type of a NumPy array."""
        return cls(values.shape, values.dtype, unaligned=not values.flags.aligned)

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.dims)

    def strided(self) -> Type:
        """Return the type without sizes, as DyND writes it beside a list of sizes."""
        return replace(self, dims=tuple(STRIDED if isinstance(n, int) else n for n in self.dims))

    def __str__(self) -> str:
        inner = element(self.dtype)
        inner = f"unaligned[{inner}]" if self.unaligned else inner
        return " * ".join([*map(str, self.dims), f"?{inner}" if self.option else inner])


@runtime_checkable
class SupportsDatashape(Protocol):
    """Object that knows its type."""

    def __datashape__(self) -> Type:
        """Return the type of the values that reading returns."""


def element(dtype: np.dtype[Any]) -> str:
    """Return an element's notation; raise MemoryAccessError for objects.

    >>> element(np.dtype("c8")), element(np.dtype("M8[ns]")), element(np.dtype("S4"))
    ('complex[float32]', "datetime[unit='ns']", "string[4,'A']")
    """
    kind = dtype.kind
    if dtype.names is not None:
        fields = []
        for name in dtype.names:
            base, shape = dtype[name].subdtype or (dtype[name], ())
            quoted = "'" + name.replace("\\", "\\\\").replace("'", "\\'") + "'"
            fields.append(f"{name if name.isidentifier() and name.isascii() else quoted}: {Type(shape, base)}")
        return f"{{{', '.join(fields)}}}"
    if kind == "T":
        return "string"
    if kind == "V":
        return f"bytes[{dtype.itemsize}]"
    if kind not in "?biufcmMSU":
        raise MemoryAccessError(f"Python objects ({dtype}) have no type in memory", hint=SUPPORTED)
    return plain(dtype) if dtype.isnative else f"byteswap[{plain(dtype)}]"


def plain(dtype: np.dtype[Any]) -> str:
    """Return the notation of an element in native byte order."""
    kind = dtype.kind
    if kind == "c":
        return f"complex[float{dtype.itemsize * 4}]"
    if kind in "mM":
        unit, count = np.datetime_data(dtype)
        suffix = "" if unit == "generic" else f"[unit='{count if count > 1 else ''}{unit}']"
        return f"{'datetime' if kind == 'M' else 'timedelta'}{suffix}"
    if kind in _ENCODINGS:
        return f"string[{dtype.itemsize // _BYTES_OF_CHARACTER[kind]},'{_ENCODINGS[kind]}']"
    return dtype.name


def parse_type(text: str) -> Type:
    """Parse a type in datashape notation; ``str`` of it is the text again.

    Raises MemoryAccessError, with the position, for text that is not a type.

    >>> parse_type("12 * ?int16")
    Type(dims=(12,), dtype=dtype('int16'), option=True, unaligned=False)
    >>> str(parse_type("40*var * unaligned[ byteswap[float64] ]"))
    '40 * var * unaligned[byteswap[float64]]'
    """
    reader = _Reader(text)
    datashape = reader.datashape(0)
    reader.expect("")
    return datashape


class _Reader:
    """Tokens of a text, read from the left."""

    def __init__(self, text: str) -> None:
        if not isinstance(text, str):
            raise MemoryAccessError(f"a type is text, not {type(text).__name__}", hint="give text such as '12 * 73 * float32'")
        self.text, self.at, self.start, self.stop = text, 0, 0, len(text.rstrip())
        self.kind, self.token = "", ""
        self.advance()

    def advance(self) -> str:
        """Step to the next token; return the one before."""
        before = self.token
        # promise: type-text-linear
        match = _TOKEN.match(self.text, self.at) if self.at < self.stop else None
        if match is None:
            self.kind, self.token, self.start = "end", "", len(self.text)
        else:
            self.kind = ("number", "name", "quoted", "sign")[(match.lastindex or 1) - 1]
            self.token, self.at, self.start = match[match.lastindex or 1], match.end(), match.start()
        return before

    def error(self, what: str, hint: str) -> MemoryAccessError:
        return MemoryAccessError(f"type {self.text!r}: {what}", hint=hint)

    def expected(self, token: str) -> MemoryAccessError:
        return self.error(f"expected {token} at position {self.start}", "write it as in '12 * 73 * float32'")

    def expect(self, sign: str) -> None:
        """Skip a sign; "" is the end. Raises MemoryAccessError for another token."""
        if self.token != sign or self.kind != ("sign" if sign else "end"):
            raise self.expected(repr(sign) if sign else "the end")
        self.advance()

    def skip(self, sign: str) -> bool:
        """Skip a sign if it is next; return whether it was."""
        is_next = self.kind == "sign" and self.token == sign
        if is_next:
            self.advance()
        return is_next

    def take(self, kind: str, what: str) -> str:
        if self.kind != kind:
            raise self.expected(what)
        return self.advance()

    def datashape(self, depth: int) -> Type:
        """Read dimensions and element."""
        if depth > _MOST_NESTED:
            raise MemoryAccessError(f"the type is nested more than {_MOST_NESTED} deep")
        dims: list[int | str] = []
        while self.kind == "number" or self.token in (VAR, STRIDED):
            dims.append(int(self.advance()) if self.kind == "number" else self.advance())
            self.expect("*")
        option = self.skip("?")
        unaligned = self.kind == "name" and self.token == "unaligned"
        if unaligned:
            self.advance()
            self.expect("[")
        dtype = self.element(depth)
        if unaligned:
            self.expect("]")
        return Type(tuple(dims), dtype, option, unaligned)

    def element(self, depth: int) -> np.dtype[Any]:
        if self.skip("{"):
            return self.record(depth)
        name = self.take("name", "a type")
        if name == "byteswap":
            self.expect("[")
            inner = self.element(depth)
            self.expect("]")
            if inner.kind == "T":
                raise self.error("string has no byte order", "give string alone")
            swapped: np.dtype[Any] = inner.newbyteorder("S")
            return swapped
        if name in _READERS:
            return _READERS[name](self)
        if name not in _PLAIN:
            raise self.error(f"unknown element {name!r}", f"give one such as {', '.join(list(_PLAIN)[:10])}, string")
        return _PLAIN[name]

    def record(self, depth: int) -> np.dtype[Any]:
        fields: list[Any] = []
        while not self.skip("}"):
            if fields:
                self.expect(",")
            name = _ESCAPED.sub(r"\1", self.advance()) if self.kind == "quoted" else self.take("name", "the name of a field")
            self.expect(":")
            inner = self.datashape(depth + 1)
            if not all(isinstance(n, int) for n in inner.dims) or inner.option or inner.unaligned or inner.dtype.kind == "T":
                raise self.error(f"field {name!r} is {inner}", "give fields of fixed size, without missing values")
            fields.append((name, inner.dtype, inner.dims))
        try:
            return np.dtype(fields)
        except ValueError as error:
            raise self.error(str(error), "give every field its own name") from error


def _string(reader: _Reader) -> np.dtype[Any]:
    if not reader.skip("["):
        return np.dtypes.StringDType()
    length = reader.take("number", "the number of characters")
    reader.expect(",")
    encoding = reader.take("quoted", "an encoding, 'A' or 'U32',")
    reader.expect("]")
    if encoding not in _CHARACTERS:
        names = ", ".join(map(repr, _ENCODINGS.values()))
        raise reader.error(f"no encoding {encoding!r} of fixed length", f"give one of {names}, or string alone")
    return np.dtype(f"{_CHARACTERS[encoding]}{_length(reader, length)}")


def _bytes(reader: _Reader) -> np.dtype[Any]:
    reader.expect("[")
    length = reader.take("number", "the number of bytes")
    reader.expect("]")
    return np.dtype(f"V{_length(reader, length)}")


def _length(reader: _Reader, length: str) -> int:
    if len(length) > 9 or int(length) < 1:
        raise reader.error(f"{length} bytes or characters are out of range", "give 1 to 999999999")
    return int(length)


def _complex(reader: _Reader) -> np.dtype[Any]:
    reader.expect("[")
    part = reader.take("name", "float32 or float64")
    reader.expect("]")
    if part not in _COMPLEX:
        raise reader.error(f"unknown element complex[{part}]", f"give one of {', '.join(_COMPLEX)}")
    return _COMPLEX[part]


def _time(reader: _Reader, code: str) -> np.dtype[Any]:
    if not reader.skip("["):
        return np.dtype(code)
    if reader.take("name", "unit=") != "unit":
        raise reader.expected("unit=")
    reader.expect("=")
    unit = reader.take("quoted", "a unit such as 'ns'")
    reader.expect("]")
    try:
        return np.dtype(f"{code}[{unit}]")
    except (TypeError, ValueError) as error:
        raise reader.error(f"unit {unit!r} is not a unit of NumPy's times", "give one such as 'ns', 's' or 'D'") from error


_READERS: dict[str, Callable[[_Reader], np.dtype[Any]]] = {
    "string": _string,
    "bytes": _bytes,
    "complex": _complex,
    "datetime": lambda reader: _time(reader, "M8"),
    "timedelta": lambda reader: _time(reader, "m8"),
}
