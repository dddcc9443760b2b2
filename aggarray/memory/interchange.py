"""Exchange of memory with other libraries without a copy.

The protocols: PEP 3118 (`memoryview`), ``__array_interface__`` and ``__array__`` (NumPy), ``__dlpack__`` (tensor libraries).
NumPy keeps the object with the interface alive, so that the memory lives as long as the last NumPy view of it. The object
offers no writable buffer, so that a read-only view cannot be made writable again.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from aggarray.errors import MemoryAccessError

if TYPE_CHECKING:
    from aggarray.memory.arrays import Array

#: The device "CPU" of DLPack.
_CPU = (1, 0)
#: Advice for data that no buffer can carry, by the kind of the dtype.
_NO_BUFFER = {
    "T": "text lies outside any buffer: pass offsets and UTF-8 bytes, those of Ragged.from_text(values)",
    "M": "the protocol has no times: pass .view('i8') of the NumPy array, and the unit separately",
    "m": "the protocol has no times: pass .view('i8') of the NumPy array, and the unit separately",
}
#: The largest floats of DLPack in bytes: IEEE 754 without padding.
_MOST_BYTES = {"f": 8, "c": 16}


def _dlpack_hint(values: np.ndarray, options: Mapping[str, Any]) -> str:
    kind, size = values.dtype.kind, values.dtype.itemsize
    if options["dl_device"] not in (None, _CPU):
        return "request CPU memory, dl_device=(1, 0), or no device"
    if kind in "iub" or size <= _MOST_BYTES.get(kind, 0):
        return "pass aligned(), a native, aligned, writable copy"
    if kind in "fc":
        return "pass float64 or complex128: numpy.asarray(...).astype"
    return _NO_BUFFER.get(kind, "pass numbers: its fields or bytes, by numpy.asarray(...)")


class NoInterfaceError(MemoryAccessError, AttributeError):
    """Interface that an array does not have; ``hasattr`` returns False then."""


class Interchange:
    """Object that exports memory by PEP 3118, DLPack and NumPy's protocols.

    Nothing is copied unless the consumer requests a copy. Raises MemoryAccessError (a BufferError), with advice, for data that
    a protocol cannot carry.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def memory(self) -> Array:
        """The memory, as `aggarray.memory` models it."""

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """Return NumPy's array interface, version 3, read-only if the memory is."""
        return self.memory.interface()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Return the values; a copy if NumPy requests one or the dtype differs."""
        return np.array(self.memory.numpy(), dtype=dtype, copy=copy)

    def memoryview(self) -> memoryview:
        """Return the values (PEP 3118); raise MemoryAccessError for text, times."""
        values = self.memory.numpy()
        try:
            return memoryview(cast(Any, values))
        except (ValueError, TypeError, BufferError) as error:
            what = f"no buffer of {values.dtype}"
            raise MemoryAccessError(what, hint=_NO_BUFFER.get(values.dtype.kind, "give numbers")) from error

    def __dlpack__(
        self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: bool | None = None
    ) -> Any:
        """Return a DLPack capsule over the memory of the values.

        Raises MemoryAccessError (a BufferError) for data that DLPack cannot describe: another byte order, unaligned values,
        text, times, records, other devices, and read-only values if the consumer supports only versions before 1.0. With
        ``copy`` the copy is native and aligned.
        """
        values = self.memory.numpy()
        if copy and values.dtype.kind in "iufcb":
            values = values.astype(values.dtype.newbyteorder("="), order="C")
        options = {"stream": stream, "max_version": max_version, "dl_device": dl_device, "copy": copy}
        try:
            if not (values.flags.aligned and values.dtype.isnative):
                raise BufferError("the values are not aligned, or not in the machine's byte order")
            return values.__dlpack__(**{name: value for name, value in options.items() if value is not None})
        except BufferError as error:
            what = f"no DLPack of {self.memory.type}: {str(error).rstrip('.')}"
            raise MemoryAccessError(what, hint=_dlpack_hint(values, options)) from error

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return the device "CPU" of DLPack."""
        return _CPU
