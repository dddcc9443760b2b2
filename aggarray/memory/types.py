"""Types of arrays and their notation, such as ``12 * 73 * 144 * float32``.

The notation is that of DyND's datashape; `type_parser` reads it. Dimensions come first: a size, ``var`` for a ragged dimension,
``strided`` where the metadata has the size. Then comes the element. ``?`` means that values may be missing, ``byteswap[...]``
that they are not in native byte order, ``unaligned[...]`` that they are not aligned.
"""

from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np

from aggarray.errors import MemoryAccessError

#: The advice of errors about dtypes without a type.
SUPPORTED = "give numbers, text or times"
#: Dimensions without one size: of its own per element (ragged), or in the metadata of the array.
VAR, STRIDED = "var", "strided"
_BYTES_OF_CHARACTER = {"S": 1, "U": 4}
ENCODINGS = {"S": "A", "U": "U32"}


@dataclass(frozen=True, slots=True)
class Type:
    """Type of an array: ``dims`` (sizes, ``VAR`` or ``STRIDED``) and ``dtype`` of the elements.

    ``option``: elements may be missing; ``unaligned``: they are not aligned. Raises MemoryAccessError for Python objects.

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
    def of(cls, values: np.ndarray) -> "Type":
        """Return the type of a NumPy array."""
        return cls(values.shape, values.dtype, unaligned=not values.flags.aligned)

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.dims)

    def strided(self) -> "Type":
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
    """Return the notation of one element; raises MemoryAccessError for Python objects.

    >>> element(np.dtype("c8")), element(np.dtype("M8[ns]")), element(np.dtype("S4"))
    ('complex[float32]', "datetime[unit='ns']", "string[4,'A']")
    """
    kind = dtype.kind
    if dtype.names is not None:
        fields = ((name, dtype.fields[name][0]) for name in dtype.names) if dtype.fields is not None else ()
        return f"{{{', '.join(f'{_name(name)}: {_field(inner)}' for name, inner in fields)}}}"
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
    if kind in ENCODINGS:
        return f"string[{dtype.itemsize // _BYTES_OF_CHARACTER[kind]},'{ENCODINGS[kind]}']"
    return dtype.name


def _name(name: str) -> str:
    if name.isidentifier() and name.isascii():
        return name
    return "'" + name.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _field(dtype: np.dtype[Any]) -> str:
    base, shape = dtype.subdtype or (dtype, ())
    return str(Type(shape, base))
