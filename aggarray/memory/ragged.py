"""How are rows of different lengths held? As offsets over one flat array: `Ragged`; text as its UTF-8 bytes likewise."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from aggarray.errors import AggregationError, SelectionError
from aggarray.memory.arrays import Array
from aggarray.memory.creation import array_of
from aggarray.memory.rows import Rows, offsets_of
from aggarray.memory.selection import Range, normalise
from aggarray.memory.types import VAR, Type


class Ragged:
    """Rows of samples: row i is ``flat[offsets[i]:offsets[i + 1]]``.

    ``flat``: 1-d, any dtype, a masked array too; ``offsets``: int64, one more than rows, from 0 to the number of samples.
    Nothing is copied; rows, and slices of rows without a step, are views. AggregationError for offsets that do not fit.

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
            raise AggregationError(f"flat samples of shape {values.shape}: give a 1-d array")
        if cuts.ndim != 1 or not len(cuts) or cuts.dtype.kind not in "iu":
            raise AggregationError(
                f"offsets of {cuts.dtype} and shape {cuts.shape}: give integers, one more than there are rows, from 0"
            )
        if (falls := np.flatnonzero(cuts[1:] < cuts[:-1])).size:
            raise AggregationError(f"offsets run backwards at row {falls[0]}: {cuts[falls[0]]} to {cuts[falls[0] + 1]}")
        if cuts[0] != 0 or cuts[-1] != len(values):
            raise AggregationError(f"offsets from {cuts[0]} to {cuts[-1]} over {len(values)} samples: give them from 0 to all")
        own = cuts.astype(np.int64, copy=False).view()
        own.flags.writeable = False
        object.__setattr__(self, "flat", values)
        object.__setattr__(self, "offsets", own)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{name} of a Ragged is what it is: make another one")

    @classmethod
    def from_rows(cls, rows: Sequence[Any], dtype: Any = None) -> "Ragged":
        """Return rows given one by one, copied; ``dtype`` None: that of all together, float64 of no rows.

        What is masked stays so. AggregationError for a row that is not 1-d.

        >>> Ragged.from_rows([[1, 2], [], [3]]).flat
        array([1, 2, 3])
        """
        arrays = [np.asanyarray(row, dtype) for row in rows]
        wrong = next(((n, a.shape) for n, a in enumerate(arrays) if a.ndim != 1), None)
        if wrong is not None:
            raise AggregationError(f"row {wrong[0]} of shape {wrong[1]}: give each as a 1-d array or list")
        # Of an empty list NumPy says that it is of float64, which says nothing.
        there = [a for a in arrays if a.size] or arrays[:1]
        join = np.ma.concatenate if any(np.ma.isMaskedArray(a) for a in there) else np.concatenate
        flat = join(there) if there else np.zeros(0, dtype)
        return cls(flat, offsets_of(np.array([a.size for a in arrays], np.int64)))

    @classmethod
    def from_masked(cls, values: Any) -> "Ragged":
        """Return the rows of a 2-d array without the samples that are missing: masked, or NaN where nothing is masked.

        So an incomplete multidimensional array (CF section 9.3.2), read with ``masked=True``, becomes ragged.

        >>> Ragged.from_masked(np.ma.masked_equal([[1, 2, -1], [3, -1, -1]], -1)).tolist()
        [[1, 2], [3]]
        """
        found = np.asanyarray(values)
        if found.ndim != 2:
            raise AggregationError(f"an array of shape {found.shape}: give a 2-d one, a row per instance")
        if np.ma.isMaskedArray(found):
            data, there = np.ma.getdata(found), ~np.ma.getmaskarray(found)
        else:
            data, there = found, ~np.isnan(found) if found.dtype.kind in "fc" else np.ones(found.shape, bool)
        return cls(data[there], offsets_of(there.sum(axis=1)))

    @classmethod
    def from_text(cls, values: Any) -> "Ragged":
        """Return each text as a row of its UTF-8 bytes, uint8: what buffers, exports and messages can carry.

        ``values``: text of any dtype and shape, in C order. `to_text` makes text of it again.

        >>> r = Ragged.from_text(np.array(["a", "", "né"], np.dtypes.StringDType()))
        >>> r.offsets.tolist(), bytes(r.flat), r.to_text().tolist()
        ([0, 1, 1, 4], b'an\\xc3\\xa9', ['a', '', 'né'])
        """
        given = np.asarray(values)
        if given.dtype.kind not in "TUS":
            raise AggregationError(f"values of {given.dtype} are no text: give strings")
        if any(not isinstance(w, str | bytes) for w in given.ravel().tolist()):
            raise AggregationError(
                "text that is missing has no bytes: put a word in its place, and keep which is missing beside"
            )
        words = [w if isinstance(w, bytes) else str(w).encode() for w in given.ravel().tolist()]
        flat = np.frombuffer(b"".join(words), np.uint8)
        return cls(flat, offsets_of(np.fromiter(map(len, words), np.int64, len(words))))

    def to_text(self) -> np.ndarray:
        """Return rows of UTF-8 bytes as text, StringDType, 1-d; AggregationError for rows of anything else."""
        if self.flat.dtype != np.uint8:
            raise AggregationError(f"rows of {self.flat.dtype} are no text: give UTF-8 bytes, uint8")
        data, cuts = self.flat.tobytes(), self.offsets.tolist()
        try:
            words = [data[a:b].decode() for a, b in pairwise(cuts)]
        except UnicodeDecodeError as error:
            raise AggregationError(f"bytes that are no UTF-8 ({error}): give those of Ragged.from_text") from error
        return np.array(words, np.dtypes.StringDType())

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the samples."""
        return self.flat.dtype

    @property
    def counts(self) -> np.ndarray:
        """How many samples each row has, int64."""
        return np.diff(self.offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __iter__(self) -> Iterator[np.ndarray]:
        cuts = self.offsets.tolist()
        return (self.flat[a:b] for a, b in pairwise(cuts))

    def __getitem__(self, key: Any) -> Any:
        """Return a row by its number, a view; other keys (slices, masks, index arrays) give a Ragged of these rows."""
        (chosen,) = normalise(key, (len(self),), ("row",))
        if isinstance(chosen, int):
            return self.flat[int(self.offsets[chosen]) : int(self.offsets[chosen + 1])]
        if isinstance(chosen, Range) and chosen.step == 1:
            cuts = self.offsets[chosen.start : chosen.start + chosen.count + 1]
            return Ragged(self.flat[int(cuts[0]) : int(cuts[-1])], cuts - cuts[0])
        rows = Rows(self.offsets[:-1], self.counts).take(chosen)
        return Ragged(self.flat[rows.places()], rows.offsets)

    def tolist(self) -> list[list[Any]]:
        """Return the rows as lists."""
        return [row.tolist() for row in self]

    def to_awkward(self) -> Any:
        """Return the rows as an array of awkward (the extra ``ragged``), on the same memory.

        Copied are only values that awkward has no form for: text, and bytes not in the machine's order.
        """
        try:
            from awkward import Array as AwkwardArray
            from awkward import contents, index
        except ImportError as error:
            raise AggregationError(f"to_awkward needs awkward: {error}; pip install 'aggarray[ragged]'") from error
        flat = np.ma.getdata(self.flat)
        if flat.dtype.kind in "TUS":
            letters = Ragged.from_text(flat)
            inner: Any = contents.ListOffsetArray(
                index.Index64(letters.offsets),
                contents.NumpyArray(letters.flat, parameters={"__array__": "char"}),
                parameters={"__array__": "string"},
            )
        elif flat.dtype.kind not in "biufcmM":
            raise AggregationError(f"samples of {flat.dtype}: awkward has no form for them: use .flat and .offsets")
        else:
            inner = contents.NumpyArray(flat.astype(flat.dtype.newbyteorder("="), copy=False))
        if np.ma.isMaskedArray(self.flat):
            inner = contents.ByteMaskedArray(index.Index8(np.ma.getmaskarray(self.flat).view(np.int8)), inner, valid_when=False)
        return AwkwardArray(contents.ListOffsetArray(index.Index64(self.offsets), inner))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        raise SelectionError("rows of different lengths are no NumPy array: use .flat and .offsets, r[i], or .to_awkward()")

    def __datashape__(self) -> Type:
        return Type((len(self), VAR), self.dtype, np.ma.isMaskedArray(self.flat))

    def __memory__(self) -> Array | str:
        return "a masked array is two arrays" if np.ma.isMaskedArray(self.flat) else array_of(self.flat)

    def __reduce__(self) -> tuple[Any, ...]:
        return Ragged, (self.flat, np.array(self.offsets))

    def __repr__(self) -> str:
        return f"<aggarray.memory.Ragged {self.__datashape__()}, {len(self.flat)} samples>"
