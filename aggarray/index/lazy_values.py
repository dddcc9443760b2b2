"""Values of coordinates in an index, read on first use."""

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

import numpy as np

from aggarray.arrays.values import KnownValues
from aggarray.index.store import Reader


class LazyValues(Sequence[Any]):
    """Pair (values, mask or None), as a scan returns it, read on first use."""

    __slots__ = ("_dtype", "_pair", "_reader", "_shape", "_spec")

    def __init__(self, reader: Reader, spec: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self._reader, self._spec, self._shape, self._dtype = reader, spec, shape, dtype
        self._pair: KnownValues | None = None

    def load(self) -> KnownValues:
        """Return values and mask. Raises IndexFileError if the index was removed or saved again."""
        if self._pair is None:
            with self._reader.opened():
                values = self._reader.value(self._spec[0])
                mask = None
                if self._spec[1] is not None:
                    bits = self._reader.value(self._spec[1])
                    if len(bits) != -(-prod(self._shape) // 8):
                        raise ValueError(f"mask of {len(bits)} bytes for values of shape {self._shape}")
                    mask = np.unpackbits(bits, count=prod(self._shape)).reshape(self._shape).astype(bool)
                if values.shape != self._shape or values.dtype != self._dtype:
                    actual = f"{values.dtype} of shape {values.shape}"
                    raise ValueError(f"values are {actual}, not {self._dtype} of shape {self._shape}")
            self._pair = (values, mask)
        return self._pair

    def __len__(self) -> int:
        return 2

    def __getitem__(self, item: Any) -> Any:
        return self.load()[item]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.load())
