"""What does one process hold of a ragged array? Its rows: samples to be exported as a block, and their offsets beside them."""

from dataclasses import replace
from typing import Any

import numpy as np

from aggarray.arrays.local import LocalArray
from aggarray.errors import ProtocolError, SelectionError
from aggarray.maps import Distribution
from aggarray.maps.block import Block
from aggarray.maps.fields import NEWEST
from aggarray.memory import Array
from aggarray.memory.ragged import Ragged
from aggarray.memory.rows import Rows, offsets_of
from aggarray.memory.types import VAR, Type


class LocalRagged:
    """The rows of a ragged array that one process holds; made by ``a.local(distribution, rank)``, nothing read yet.

    ``samples``: a LocalArray over all samples in the order of rows, an irregular block; ``counts``: a LocalArray of the number
    of samples per instance, distributed as the instances are. Both are exports of the Distributed Array Protocol; the array
    itself exports its samples. ``offsets`` of the own rows, from 0.
    """

    __slots__ = ("counts", "distribution", "rank", "samples")

    distribution: Distribution
    rank: int
    samples: LocalArray
    counts: LocalArray

    def __init__(self, source: Any, distribution: Distribution, rank: int, copy: bool | None = True) -> None:
        """Take rows of ``source``, a ragged array; ProtocolError unless the distribution is one of its instances, in blocks."""
        rows: Rows = source._rows
        self.distribution, self.rank = distribution, rank
        self.samples = LocalArray(Samples(source, rows), samples_of(distribution, rows.offsets), rank, copy)
        self.counts = LocalArray(InMemory(rows.counts), distribution, rank)

    @property
    def offsets(self) -> np.ndarray:
        """Where the own rows begin among the own samples: int64, one more than rows, from 0."""
        return offsets_of(self.counts.buffer)

    @property
    def ragged(self) -> Ragged:
        """The own rows; samples are read on first use, and shared with ``samples``."""
        return Ragged(self.samples.buffer, self.offsets)

    def __distarray__(self, version: str = NEWEST) -> dict[str, Any]:
        """Return the export of the samples, an irregular block; that of ``counts`` says which belong together."""
        return self.samples.__distarray__(version)

    def __datashape__(self) -> Type:
        samples = self.samples.__datashape__()
        return replace(samples, dims=(len(self.counts.buffer), VAR))

    def __memory__(self) -> Array | str:
        return "rows of different lengths; what is read of them is .ragged"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        raise SelectionError("rows of different lengths are no NumPy array: use section.samples.buffer, or section.ragged")

    def __repr__(self) -> str:
        return f"<aggarray.LocalRagged {len(self.counts.buffer)} rows, samples {self.samples!r}>"


def samples_of(distribution: Distribution, offsets: np.ndarray) -> Distribution:
    """Return how samples are distributed where rows are, by blocks. ProtocolError for padding and other types.

    >>> samples_of(Distribution.regular((3,), "b", (2,)), np.array([0, 5, 5, 9])).maps[0].bounds.tolist()
    [0, 5, 9]
    """
    one = distribution.maps[0] if isinstance(distribution, Distribution) and len(distribution.maps) == 1 else None
    if not isinstance(one, Block) or one.size != len(offsets) - 1:
        raise ProtocolError(
            f"a ragged array of {len(offsets) - 1} instances: give a distribution of these in blocks, "
            "such as Distribution.from_partitions(a, nprocs)"
        )
    if any(one.num_owned(rank) != len(one.indices(rank)) for rank in range(one.nprocs)):
        raise ProtocolError("padding of a ragged array: rows have no neighbours; give blocks without padding")
    return Distribution((Block(offsets[one.bounds]),))


class InMemory:
    """Values in memory as what a section is read from."""

    __slots__ = ("dtype", "shape", "values")

    def __init__(self, values: np.ndarray) -> None:
        self.values, self.shape, self.dtype = values, values.shape, values.dtype

    def read(self, key: Any, copy: bool | None = True) -> np.ndarray:
        """Return a selection, a copy."""
        return np.array(self.values[key])


class Samples:
    """The samples of a ragged array in the order of its rows, as what a section is read from."""

    __slots__ = ("dimensions", "dtype", "rows", "shape", "source")

    def __init__(self, source: Any, rows: Rows) -> None:
        self.source, self.rows = source, rows
        self.shape, self.dtype, self.dimensions = (int(rows.offsets[-1]),), source.dtype, source.flat.dimensions

    def __datashape__(self) -> Type:
        kind: Type = self.source.__datashape__()
        return replace(kind, dims=self.shape)

    def read(self, key: tuple[slice], copy: bool | None = True) -> np.ndarray:
        """Return samples from one row's begin to another's end."""
        first, last = np.searchsorted(self.rows.offsets, [key[0].start, key[0].stop])
        found: np.ndarray = self.source.read(slice(int(first), int(last)), copy=copy).flat
        return found
