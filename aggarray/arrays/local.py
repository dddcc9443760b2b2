"""What does one process hold of an array? Its section, read when it is first used, and handed on without copying.

A `LocalArray` reads from anything that has ``shape``, ``dtype`` and ``read``, by one selection per dimension: ranges for
blocks, strides for cyclic dimensions, index arrays for unstructured ones, which the read plan sorts, and puts back into their
order what it has read. Or it holds what another exporter of the Distributed Array Protocol has.
"""

import threading
from dataclasses import replace
from itertools import accumulate, product
from typing import Any, Self

import numpy as np

from aggarray.errors import AggregationError, ProtocolError
from aggarray.maps import Distribution
from aggarray.maps.dim_data import FaultList, map_of
from aggarray.maps.export import read_export
from aggarray.maps.fields import NEWEST, check_exported, version_of
from aggarray.memory.arrays import Array
from aggarray.memory.creation import array_of, owned, shared
from aggarray.memory.interchange import Interchange
from aggarray.memory.selection import Range
from aggarray.memory.types import SupportsDatashape, Type


class LocalArray(Interchange):
    """The section of a distributed array that one process holds (DAP 0.10.0, section 1.5).

    Made by ``a.local(distribution, rank)``, or `from_distarray`. It pickles as array, distribution and rank, to be read again
    where it arrives: changes of its buffer stay behind, unless it came from another exporter. The buffer goes to NumPy, and by
    PEP 3118 and DLPack to others, without a copy.
    """

    __slots__ = ("__weakref__", "_buffer", "_copy", "_lock", "distribution", "rank", "source")

    distribution: Distribution
    rank: int
    #: What the section is read from; None for what another exporter has, or was computed.
    source: Any

    def __init__(self, source: Any, distribution: Distribution, rank: int, copy: bool | None = True) -> None:
        """Take a section of ``source``; nothing is read yet. ProtocolError where distribution or rank do not fit."""
        if not isinstance(distribution, Distribution):
            raise ProtocolError(f"{type(distribution).__name__} is no Distribution: give one, say by Distribution.regular")
        if not (copy is None or isinstance(copy, bool)):
            raise AggregationError(f"copy={copy!r}: give True, None (a view where possible) or False (a view or an error)")
        distribution.coords(rank)
        if len(distribution.maps) != len(source.shape):
            raise ProtocolError(f"a distribution of shape {distribution.shape} for an array of shape {source.shape}")
        for d, (one, size) in enumerate(zip(distribution.maps, source.shape, strict=True)):
            if not one.fits(size):
                raise ProtocolError(
                    f"dimension {d}: a map of {one.size} elements for a dimension of size {size} "
                    f"(shapes {distribution.shape} and {source.shape}): its indices must be positions of the array"
                )
        self._set(source, distribution, int(rank), copy, None)

    def _set(self, source: Any, distribution: Distribution, rank: int, copy: bool | None, buffer: np.ndarray | None) -> None:
        self.source, self.distribution, self.rank, self._copy, self._buffer = source, distribution, rank, copy, buffer
        self._lock = threading.Lock()

    @classmethod
    def holding(cls, buffer: np.ndarray, distribution: Distribution, rank: int, source: Any = None) -> Self:
        """Return a section whose values are there already; ``source``: what they were read from."""
        found = cls.__new__(cls)
        found._set(source, distribution, rank, True, buffer)
        return found

    @classmethod
    def from_distarray(cls, obj: Any) -> "LocalArray":
        """Take in what another library exports: an object with ``__distarray__``, or the dictionary that this returns.

        Nothing is copied: the buffer is the exporter's memory, writable where that is, and only there. Of other processes it
        knows nothing but what the dictionary of this one says. ProtocolError names every fault of the export.

        >>> export = {"__version__": "0.10.0", "buffer": bytearray(b"abc"), "dim_data": ({},)}
        >>> local = LocalArray.from_distarray(export)
        >>> local.buffer[0] = 65
        >>> export["buffer"], local.distribution.shape
        (bytearray(b'Abc'), (3,))
        """
        faults = FaultList()
        export = read_export(obj, faults)
        faults.raise_any()
        parts = [part for part in export.parts if part is not None] if export is not None else []
        distribution = Distribution(tuple(map_of(kind, part) for kind, part in parts))
        rank = 0
        for _, part in parts:
            rank = rank * part.nprocs + part.rank
        buffer = np.empty(0) if export is None else export.buffer
        if not buffer.flags.writeable and not buffer.dtype.hasobject:
            buffer = shared(buffer)  # a flag alone keeps nobody from writing
        return cls.holding(buffer, distribution, rank)

    @property
    def buffer(self) -> np.ndarray:
        """The values, padding included; read on first use, once, whichever thread asks. Errors as those of reading."""
        if self._buffer is None:
            with self._lock:
                if self._buffer is None:
                    found = self._read()
                    # What was read into fresh memory is this section's own; views have a block of theirs.
                    self._buffer = owned(found) if found.flags.owndata else found
        return self._buffer

    @property
    def memory(self) -> Array:
        """The buffer as an array in memory: its type, its block, and what may be done with it."""
        return array_of(self.buffer)

    def __memory__(self) -> Array | str:
        return "not read yet; its buffer is read when it is first used" if self._buffer is None else self.memory

    def __datashape__(self) -> Type:
        option = self.source.__datashape__().option if isinstance(self.source, SupportsDatashape) else False
        if self._buffer is None:
            return Type(self.shape, self.dtype, option)
        return replace(Type.of(self._buffer), option=option)

    def _read(self) -> np.ndarray:
        segments = self.distribution.segments(self.rank)
        if all(len(one) == 1 for one in segments):
            return self._part(tuple(one[0] for one in segments), copy=self._copy)
        if self._copy is False:
            raise AggregationError("no view without a copy: its padding wraps; read with copy=None or copy=True")
        result = np.empty(self.shape, self.source.dtype)
        placed = []
        for one in segments:
            ends = list(accumulate(map(len, one), initial=0))
            placed.append([(s, slice(a, b)) for s, a, b in zip(one, ends[:-1], ends[1:], strict=True)])
        for combination in product(*placed):
            self._part(tuple(s for s, _ in combination), out=result[tuple(place for _, place in combination)])
        return result

    def _part(self, selectors: tuple[Range | np.ndarray, ...], **how: Any) -> np.ndarray:
        key = tuple(s.as_slice() if isinstance(s, Range) else s for s in selectors)
        found: np.ndarray = self.source.read(key, **how)
        return found

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the buffer, padding included; known without reading."""
        return self.distribution.local_shape(self.rank)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Data type of the buffer; known without reading, but for the byte order of a view."""
        found: np.dtype[Any] = self.source.dtype if self._buffer is None else self._buffer.dtype
        return found

    @property
    def owned(self) -> np.ndarray:
        """A view of the buffer without communication padding."""
        key: Any = (..., *self.distribution.owned_slices(self.rank))  # without dimensions, too, this is a view
        found: np.ndarray = self.buffer[key]
        return found

    @property
    def global_indices(self) -> tuple[np.ndarray, ...]:
        """The global indices of the buffer along each dimension, padding included."""
        return self.distribution.indices(self.rank)

    @property
    def partitions(self) -> tuple[Any, ...]:
        """The partitions of the master array that the section has elements of, in C order; () for imported sections."""
        matrix = getattr(self.source, "partitions", None)
        if matrix is None:
            return ()
        segments = self.distribution.segments(self.rank)
        touched = [_cells(edges, one) for edges, one in zip(matrix.edges, segments, strict=True)]
        if not all(len(cells) for cells in touched):
            return ()
        several = [cells.tolist() for cells, edges in zip(touched, matrix.edges, strict=True) if len(edges) > 2]
        return tuple(matrix[index] for index in product(*several))

    def __distarray__(self, version: str = NEWEST) -> dict[str, Any]:
        """Return version, buffer and dim_data of this process; the buffer is this one's memory.

        ProtocolError where the version cannot say how the array is distributed, or the values have no buffer (text, times).
        """
        version = version_of(version)
        dim_data = self.distribution.dim_data(self.rank, version)
        buffer: Any = self.buffer
        check_exported(buffer)
        return {"__version__": version, "buffer": buffer, "dim_data": dim_data}

    def aligned(self) -> "LocalArray":
        """Return the section with a buffer in native byte order, aligned, writable and in C order: itself where it has one.

        This is what message passing and compiled code take; imported and memory-mapped buffers may be anything else.
        """
        flags = self.buffer.flags
        if flags.c_contiguous and flags.aligned and flags.writeable and self.buffer.dtype.isnative:
            return self
        values = np.array(self.buffer, self.buffer.dtype.newbyteorder("="), order="C")
        return LocalArray.holding(owned(values), self.distribution, self.rank, self.source)

    def __reduce__(self) -> tuple[Any, ...]:
        if self.source is None:
            return LocalArray.holding, (self.buffer, self.distribution, self.rank)
        return LocalArray, (self.source, self.distribution, self.rank, self._copy)

    def __repr__(self) -> str:
        state = "not read yet" if self._buffer is None else "in memory"
        types = "".join(m.dist_type for m in self.distribution.maps)
        where = f"rank {self.rank} of {self.distribution.nprocs}"
        return f"<aggarray.LocalArray {self.shape} of {self.distribution.shape} {types!r} {self.dtype}, {where}, {state}>"


def _cells(edges: np.ndarray, segments: list[Range | np.ndarray]) -> np.ndarray:
    """Return the numbers of the cells between edges that have any of the positions."""
    found = [np.zeros(0, np.int64)]
    for one in segments:
        if isinstance(one, Range) and one.step == 1 and one.count:
            first, last = np.searchsorted(edges, [one.start, one.last], side="right") - 1
            found.append(np.arange(first, last + 1))
        else:
            indices = one.indices() if isinstance(one, Range) else one
            found.append(np.searchsorted(edges, indices, side="right") - 1)
    return np.unique(np.concatenate(found))
