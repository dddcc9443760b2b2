"""How does memory travel into other libraries without a copy, and what does it say to those it cannot travel to?

PEP 3118 (`memoryview`), ``__array_interface__`` and ``__array__`` for NumPy, ``__dlpack__`` for frameworks of tensors. NumPy
holds on to whoever has the interface, so that the memory lives as long as the last of NumPy's views of it; and it finds no
buffer there that may be written to, so that nobody makes a read-only view writable again.
"""

from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from aggarray.errors import MemoryAccessError

if TYPE_CHECKING:
    from aggarray.memory.arrays import Array

#: The processor's own memory, as DLPack numbers it.
_PROCESSOR = (1, 0)
#: What no buffer can carry, by the kind of the dtype, and the way out.
_NO_BUFFER = {
    "T": "text lies outside any buffer: hand on offsets and UTF-8 bytes, those of Ragged.from_text(values)",
    "M": "the protocol has no times: hand on .view('i8') of the NumPy array, with the unit beside it",
    "m": "the protocol has no times: hand on .view('i8') of the NumPy array, with the unit beside it",
}


#: What DLPack says of numbers; it has no others, and of floats only those of IEEE 754 without gaps.
_MOST_BYTES = {"f": 8, "c": 16}


def _way(values: np.ndarray, wanted: Mapping[str, Any]) -> str:
    """Return the way out for what DLPack cannot carry."""
    kind, size = values.dtype.kind, values.dtype.itemsize
    if wanted["dl_device"] not in (None, _PROCESSOR):
        return "ask for the processor's memory, dl_device=(1, 0), or none"
    if kind in "iub" or size <= _MOST_BYTES.get(kind, 0):
        return "hand on aligned(), a native, aligned, writable copy"
    if kind in "fc":
        return "hand on float64 or complex128: numpy.asarray(...).astype"
    return _NO_BUFFER.get(kind, "hand on numbers: the fields or bytes of it, by numpy.asarray(...)")


class NoInterfaceError(MemoryAccessError, AttributeError):
    """An interface that an array does not have, to those too who ask by ``hasattr``."""


class Interchange:
    """What has memory to hand on: by PEP 3118, ``__array_interface__``, ``__array__`` and ``__dlpack__``.

    Nothing is copied unless NumPy asks for that. What a protocol cannot carry is an MemoryAccessError, also a BufferError,
    which names the way out.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def memory(self) -> "Array":
        """The memory, as `aggarray.memory` models it."""

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """Return NumPy's array interface, version 3: read-only where the memory is."""
        return self.memory.interface()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Return the values, a copy where NumPy asks for one or the type differs."""
        return np.array(self.memory.numpy(), dtype=dtype, copy=copy)

    def memoryview(self) -> memoryview:
        """Return the values by PEP 3118, read-only where they are; MemoryAccessError for text and times."""
        values = self.memory.numpy()
        try:
            return memoryview(cast(Any, values))
        except (ValueError, TypeError, BufferError) as error:
            way = _NO_BUFFER.get(values.dtype.kind, "give numbers")
            raise MemoryAccessError(f"no buffer of {values.dtype}: {way}") from error

    def __dlpack__(
        self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: bool | None = None
    ) -> Any:
        """Return a DLPack capsule of the values, which are this one's memory.

        MemoryAccessError (a BufferError) for what DLPack cannot say: another byte order, unaligned values, text, times,
        records, other devices; read-only ones where the consumer knows no version from 1.0 on. A copy, where ``copy`` asks for
        one, is native and aligned.
        """
        values = self.memory.numpy()
        if copy and values.dtype.kind in "iufcb":
            values = values.astype(values.dtype.newbyteorder("="), order="C")
        wanted = {"stream": stream, "max_version": max_version, "dl_device": dl_device, "copy": copy}
        try:
            if not (values.flags.aligned and values.dtype.isnative):
                raise BufferError("the values are not aligned, or not in the machine's byte order")
            return values.__dlpack__(**{name: value for name, value in wanted.items() if value is not None})
        except BufferError as error:
            raise MemoryAccessError(
                f"no DLPack of {self.memory.type}: {str(error).rstrip('.')}; {_way(values, wanted)}"
            ) from error

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return the processor's own memory, as DLPack numbers it."""
        return _PROCESSOR
