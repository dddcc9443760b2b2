"""Section of a ragged array in one process: samples and counts per row."""

from __future__ import annotations

from typing import Any

import numpy as np

from aggarray.arrays.local import LocalArray
from aggarray.dataclass import replace
from aggarray.errors import ProtocolError, SelectionError
from aggarray.maps import Distribution
from aggarray.maps.block import Block
from aggarray.maps.fields import NEWEST
from aggarray.memory import Array
from aggarray.memory.ragged import Ragged
from aggarray.memory.rows import Rows, offsets_of
from aggarray.memory.types import VAR, Type


class LocalRagged:
    """Rows of a ragged array in one process, read lazily.

    ``a.local(distribution, rank)`` makes it. ``samples``: a LocalArray over all samples in the order of rows, an irregular
    block; ``counts``: a LocalArray of the number of samples per instance, distributed as the instances are. Both export the
    Distributed Array Protocol; the array itself exports its samples. ``offsets``: of the rows of this process, from 0.
    """

    __slots__ = ("counts", "distribution", "rank", "samples")

    distribution: Distribution
    rank: int
    samples: LocalArray
    counts: LocalArray

    def __init__(self, source: Any, distribution: Distribution, rank: int, copy: bool | None = True) -> None:
        """Make a section; raise ProtocolError unless instances are in blocks."""
        rows: Rows = source._rows
        self.distribution, self.rank = distribution, rank
        self.samples = LocalArray(Samples(source, rows), sample_distribution(distribution, rows.offsets), rank, copy)
        self.counts = LocalArray(InMemory(rows.counts), distribution, rank)

    @property
    def offsets(self) -> np.ndarray:
        """Offsets of rows in this process's samples: int64, one more than rows."""
        return offsets_of(self.counts.buffer)

    @property
    def ragged(self) -> Ragged:
        """Rows of this process, read on first use, shared with ``samples``."""
        return Ragged(self.samples.buffer, self.offsets)

    def __distarray__(self, version: str = NEWEST) -> dict[str, Any]:
        """Return the DAP export of the samples; ``counts`` exports the rows."""
        return self.samples.__distarray__(version)

    def __datashape__(self) -> Type:
        samples = self.samples.__datashape__()
        return replace(samples, dims=(len(self.counts.buffer), VAR))

    def __memory__(self) -> Array | str:
        return "rows of different lengths; .ragged returns them"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        hint = "use section.samples.buffer, or section.ragged"
        raise SelectionError("rows of different lengths cannot form a NumPy array", hint=hint)

    def __repr__(self) -> str:
        return f"<aggarray.LocalRagged {len(self.counts.buffer)} rows, samples {self.samples!r}>"


def sample_distribution(distribution: Distribution, offsets: np.ndarray) -> Distribution:
    """Return the distribution of samples for a block distribution of rows.

    Raises ProtocolError for other distributions.

    >>> sample_distribution(Distribution.regular((3,), "b", (2,)), np.array([0, 5, 5, 9])).maps[0].bounds.tolist()
    [0, 5, 9]
    """
    rows = distribution.maps[0] if isinstance(distribution, Distribution) and len(distribution.maps) == 1 else None
    if not isinstance(rows, Block) or rows.size != len(offsets) - 1:
        what = f"the distribution is not one of {len(offsets) - 1} instances in blocks, as a ragged array needs"
        raise ProtocolError(what, hint="give one such as Distribution.from_partitions(a, nprocs)")
    if any(rows.num_owned(rank) != len(rows.indices(rank)) for rank in range(rows.nprocs)):
        raise ProtocolError("rows of a ragged array cannot be padded", hint="give blocks without padding")
    return Distribution((Block(offsets[rows.bounds]),))


class InMemory:
    """Values in memory as the source of a section."""

    __slots__ = ("dtype", "shape", "values")

    def __init__(self, values: np.ndarray) -> None:
        self.values, self.shape, self.dtype = values, values.shape, values.dtype

    def read(self, key: Any, copy: bool | None = True) -> np.ndarray:
        """Return a selection, a copy."""
        return np.array(self.values[key])


class Samples:
    """Samples of a ragged array in row order, as the source of a section."""

    __slots__ = ("dimensions", "dtype", "rows", "shape", "source")

    def __init__(self, source: Any, rows: Rows) -> None:
        self.source, self.rows = source, rows
        self.shape, self.dtype, self.dimensions = (int(rows.offsets[-1]),), source.dtype, source.flat.dimensions

    def __datashape__(self) -> Type:
        datashape: Type = self.source.__datashape__()
        return replace(datashape, dims=self.shape)

    def read(self, key: tuple[slice], copy: bool | None = True) -> np.ndarray:
        """Return the samples of consecutive rows; the key begins and ends at rows."""
        first, last = np.searchsorted(self.rows.offsets, [key[0].start, key[0].stop])
        samples: np.ndarray = self.source.read(slice(int(first), int(last)), copy=copy).flat
        return samples
