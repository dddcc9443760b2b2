"""What does an array hold, in one line? Types as text: ``12 * 73 * 144 * float32``, printed here and read by `typetext`.

The notation is that of datashape, as DyND had it: dimensions by size, ``var`` for a ragged one, ``strided`` where the size is
told elsewhere; then the element. ``?`` says that values may be missing, ``byteswap[...]`` that bytes are not in the machine's
order, ``unaligned[...]`` that they begin anywhere.
"""

from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np

from aggarray.errors import MemoryAccessError

#: Dimensions without one size: each element its own (ragged), or told by the array's metadata.
VAR, STRIDED = "var", "strided"
_BYTES_OF_CHARACTER = {"S": 1, "U": 4}
ENCODINGS = {"S": "A", "U": "U32"}


@dataclass(frozen=True, slots=True)
class Type:
    """A type: ``dims`` (sizes, ``VAR`` or ``STRIDED``), the elements' dtype, whether they may be missing, and are unaligned.

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
        element(self.dtype)  # for the error of what has no name

    @classmethod
    def of(cls, values: np.ndarray) -> "Type":
        """Return the type of NumPy's array."""
        return cls(values.shape, values.dtype, unaligned=not values.flags.aligned)

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.dims)

    def strided(self) -> "Type":
        """Return the type without sizes, as the document of DyND writes it where these are listed beside it."""
        return replace(self, dims=tuple(STRIDED if isinstance(n, int) else n for n in self.dims))

    def __str__(self) -> str:
        inner = element(self.dtype)
        inner = f"unaligned[{inner}]" if self.unaligned else inner
        return " * ".join([*map(str, self.dims), f"?{inner}" if self.option else inner])


@runtime_checkable
class SupportsDatashape(Protocol):
    """What tells itself what it holds."""

    def __datashape__(self) -> Type:
        """Return the type of the values that reading gives."""


def element(dtype: np.dtype[Any]) -> str:
    """Return the notation of one element; MemoryAccessError for Python objects.

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
        raise MemoryAccessError(f"{dtype}: Python objects have no type in memory; give numbers, text or times")
    return plain(dtype) if dtype.isnative else f"byteswap[{plain(dtype)}]"


def plain(dtype: np.dtype[Any]) -> str:
    """Return the notation of an element in the machine's byte order."""
    kind = dtype.kind
    if kind == "c":
        return f"complex[float{dtype.itemsize * 4}]"
    if kind in "mM":
        unit, count = np.datetime_data(dtype)
        given = "" if unit == "generic" else f"[unit='{count if count > 1 else ''}{unit}']"
        return f"{'datetime' if kind == 'M' else 'timedelta'}{given}"
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
