"""Rows of different lengths as offsets over one flat array; UTF-8 text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from aggarray.errors import AggregationError, SelectionError, counted, install_command
from aggarray.memory.arrays import Array
from aggarray.memory.creation import array_of
from aggarray.memory.rows import Rows, offsets_of
from aggarray.memory.selection import Range, normalise
from aggarray.memory.types import VAR, Type


class Ragged:
    """Rows of samples: row i is ``flat[offsets[i]:offsets[i + 1]]``.

    ``flat``: 1-d, any dtype, may be masked; ``offsets``: int64, one more than rows, from 0 to the number of samples.
    Nothing is copied; rows, and slices of rows without a step, are views. Raises AggregationError for invalid offsets.

    >>> r = Ragged(np.array([1.0, 2.0, 3.0]), [0, 2, 2, 3])
    >>> len(r), r[0].tolist(), r[-2:].tolist(), r[[True, False, True]].offsets.tolist()
    (3, [1.0, 2.0], [[], [3.0]], [0, 2, 3])
    """

    __slots__ = ("flat", "offsets")

    flat: np.ndarray
    offsets: np.ndarray

    def __init__(self, flat: Any, offsets: Any) -> None:
        values = flat.numpy() if isinstance(flat, Array) else np.asanyarray(flat)
        cuts = np.asarray(offsets)
        if values.ndim != 1:
            raise AggregationError(f"flat samples have shape {values.shape}", hint="give a 1-d array")
        if cuts.ndim != 1 or not len(cuts) or cuts.dtype.kind not in "iu":
            hint = "give 1-d integers, one more than rows, from 0"
            raise AggregationError(f"offsets have dtype {cuts.dtype} and shape {cuts.shape}", hint=hint)
        if (falls := np.flatnonzero(cuts[1:] < cuts[:-1])).size:
            raise AggregationError(f"offsets decrease at row {falls[0]}: {cuts[falls[0]]} to {cuts[falls[0] + 1]}")
        if cuts[0] != 0 or cuts[-1] != len(values):
            what = f"offsets run from {cuts[0]} to {cuts[-1]} over {len(values)} samples"
            raise AggregationError(what, hint=f"give offsets from 0 to {len(values)}")
        cuts = cuts.astype(np.int64, copy=False).view()
        cuts.flags.writeable = False
        object.__setattr__(self, "flat", values)
        object.__setattr__(self, "offsets", cuts)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{name} of a Ragged is read-only: make another one")

    @classmethod
    def from_rows(cls, rows: Sequence[Any], dtype: Any = None) -> Ragged:
        """Return a copy of a list of rows.

        ``dtype`` None: the common dtype, float64 without rows. Masked samples stay masked. Raises AggregationError for a row
        that is not 1-d.

        >>> Ragged.from_rows([[1, 2], [], [3]]).flat
        array([1, 2, 3])
        """
        arrays = [np.asanyarray(row, dtype) for row in rows]
        wrong = next(((n, a.shape) for n, a in enumerate(arrays) if a.ndim != 1), None)
        if wrong is not None:
            raise AggregationError(f"row {wrong[0]} has shape {wrong[1]}", hint="give each row as a 1-d array or list")
        # Empty lists are float64 in NumPy: they must not determine the dtype.
        filled = [a for a in arrays if a.size] or arrays[:1]
        join = np.ma.concatenate if any(np.ma.isMaskedArray(a) for a in filled) else np.concatenate
        flat = join(filled) if filled else np.zeros(0, dtype)
        return cls(flat, offsets_of(np.array([a.size for a in arrays], np.int64)))

    @classmethod
    def from_masked(cls, values: Any) -> Ragged:
        """Return the rows of a 2-d array without masked samples, or without NaN.

        This converts an incomplete multidimensional array (CF section 9.3.2) that was read with ``masked=True``.

        >>> Ragged.from_masked(np.ma.masked_equal([[1, 2, -1], [3, -1, -1]], -1)).tolist()
        [[1, 2], [3]]
        """
        values = np.asanyarray(values)
        if values.ndim != 2:
            raise AggregationError(f"the array has shape {values.shape}", hint="give a 2-d array, a row per instance")
        if np.ma.isMaskedArray(values):
            data, valid = np.ma.getdata(values), ~np.ma.getmaskarray(values)
        else:
            data, valid = values, ~np.isnan(values) if values.dtype.kind in "fc" else np.ones(values.shape, bool)
        return cls(data[valid], offsets_of(valid.sum(axis=1)))

    @classmethod
    def from_text(cls, values: Any) -> Ragged:
        """Return each text as a row of its UTF-8 bytes, uint8.

        ``values``: text of any dtype and shape, in C order. `to_text` is the inverse.

        >>> r = Ragged.from_text(np.array(["a", "", "né"], np.dtypes.StringDType()))
        >>> r.offsets.tolist(), bytes(r.flat), r.to_text().tolist()
        ([0, 1, 1, 4], b'an\\xc3\\xa9', ['a', '', 'né'])
        """
        values = np.asarray(values)
        if values.dtype.kind not in "TUS":
            raise AggregationError(f"values of {values.dtype} are not text", hint="give strings")
        strings = values.ravel().tolist()
        if any(not isinstance(s, str | bytes) for s in strings):
            raise AggregationError("missing text has no bytes", hint="replace it, and keep a mask separately")
        encoded = [s if isinstance(s, bytes) else str(s).encode() for s in strings]
        flat = np.frombuffer(b"".join(encoded), np.uint8)
        return cls(flat, offsets_of(np.fromiter(map(len, encoded), np.int64, len(encoded))))

    def to_text(self) -> np.ndarray:
        """Return UTF-8 rows as 1-d text; raises AggregationError for other rows."""
        if self.flat.dtype != np.uint8:
            raise AggregationError(f"rows of {self.flat.dtype} are not text", hint="give UTF-8 bytes, uint8")
        data, cuts = self.flat.tobytes(), self.offsets.tolist()
        try:
            strings = [data[a:b].decode() for a, b in pairwise(cuts)]
        except UnicodeDecodeError as error:
            raise AggregationError(f"the bytes are not UTF-8 ({error})", hint="give those of Ragged.from_text") from error
        return np.array(strings, np.dtypes.StringDType())

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the samples."""
        return self.flat.dtype

    @property
    def counts(self) -> np.ndarray:
        """The number of samples of each row, int64."""
        return np.diff(self.offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __iter__(self) -> Iterator[np.ndarray]:
        cuts = self.offsets.tolist()
        return (self.flat[a:b] for a, b in pairwise(cuts))

    def __getitem__(self, key: Any) -> Any:
        """Return a row as a view; for slices, masks and index arrays a Ragged."""
        (selector,) = normalise(key, (len(self),), ("row",))
        if isinstance(selector, int):
            return self.flat[int(self.offsets[selector]) : int(self.offsets[selector + 1])]
        if isinstance(selector, Range) and selector.step == 1:
            cuts = self.offsets[selector.start : selector.start + selector.count + 1]
            return Ragged(self.flat[int(cuts[0]) : int(cuts[-1])], cuts - cuts[0])
        rows = Rows(self.offsets[:-1], self.counts).take(selector)
        return Ragged(self.flat[rows.positions()], rows.offsets)

    def tolist(self) -> list[list[Any]]:
        """Return the rows as lists."""
        return [row.tolist() for row in self]

    def to_awkward(self) -> Any:
        """Return the rows as an Awkward array on the same memory.

        It needs the extra ``ragged``. Only text and values in non-native byte order are copied. Raises AggregationError for
        dtypes that Awkward does not support.
        """
        try:
            from awkward import Array as AwkwardArray
            from awkward import contents, index
        except ImportError as error:
            raise AggregationError(f"to_awkward needs awkward: {error}", hint=install_command("ragged")) from error
        flat = np.ma.getdata(self.flat)
        if flat.dtype.kind in "TUS":
            letters = Ragged.from_text(flat)
            inner: Any = contents.ListOffsetArray(
                index.Index64(letters.offsets),
                contents.NumpyArray(letters.flat, parameters={"__array__": "char"}),
                parameters={"__array__": "string"},
            )
        elif flat.dtype.kind not in "biufcmM":
            raise AggregationError(f"Awkward does not support samples of {flat.dtype}", hint="use .flat and .offsets")
        else:
            inner = contents.NumpyArray(flat.astype(flat.dtype.newbyteorder("="), copy=False))
        if np.ma.isMaskedArray(self.flat):
            inner = contents.ByteMaskedArray(index.Index8(np.ma.getmaskarray(self.flat).view(np.int8)), inner, valid_when=False)
        return AwkwardArray(contents.ListOffsetArray(index.Index64(self.offsets), inner))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        hint = "use .flat and .offsets, r[i], or .to_awkward()"
        raise SelectionError("rows of different lengths cannot form a NumPy array", hint=hint)

    def __datashape__(self) -> Type:
        return Type((len(self), VAR), self.dtype, np.ma.isMaskedArray(self.flat))

    def __memory__(self) -> Array | str:
        return "a masked array is two arrays" if np.ma.isMaskedArray(self.flat) else array_of(self.flat)

    def __reduce__(self) -> tuple[Any, ...]:
        return Ragged, (self.flat, np.array(self.offsets))

    def __repr__(self) -> str:
        return f"<aggarray.memory.Ragged {self.__datashape__()}, {counted(len(self.flat), 'sample')}>"
