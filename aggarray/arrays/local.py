"""Section of a distributed array in one process.

It is read on first use and exported without a copy. A `LocalArray` reads from any object with ``shape``, ``dtype`` and
``read``, by one selection per dimension: ranges for blocks, strides for cyclic dimensions, index arrays for unstructured ones.
Or it holds the buffer of another exporter of the Distributed Array Protocol.
"""

from __future__ import annotations

import threading
from itertools import accumulate, product
from typing import Any, Self

import numpy as np

from aggarray.dataclass import replace
from aggarray.errors import AggregationError, ProtocolError
from aggarray.maps import Distribution
from aggarray.maps.dim_data import FaultList, map_of, read_export
from aggarray.maps.fields import NEWEST, check_exported, version_of
from aggarray.memory.arrays import Array
from aggarray.memory.creation import array_of, owned, shared
from aggarray.memory.interchange import Interchange
from aggarray.memory.selection import Range
from aggarray.memory.types import SupportsDatashape, Type
from aggarray.read import COPY_HINT


class LocalArray(Interchange):
    """Section of a distributed array in one process (DAP 0.10.0, 1.5).

    ``a.local(distribution, rank)`` and `from_distarray` make sections. A section is pickled as array, distribution and rank,
    and read again after unpickling: changes of the buffer are not pickled, except those of imported sections. The buffer is
    exported to NumPy, through PEP 3118 and through DLPack, without a copy.
    """

    __slots__ = ("__weakref__", "_buffer", "_copy", "_lock", "distribution", "rank", "source")

    distribution: Distribution
    rank: int
    #: The array that the section is read from; None for imported and computed sections.
    source: Any

    def __init__(self, source: Any, distribution: Distribution, rank: int, copy: bool | None = True) -> None:
        """Make a section of ``source`` without reading.

        Raises ProtocolError if the distribution or the rank does not fit.
        """
        if not isinstance(distribution, Distribution):
            raise ProtocolError(
                f"{type(distribution).__name__} is not a Distribution", hint="give one, such as Distribution.regular"
            )
        if not (copy is None or isinstance(copy, bool)):
            raise AggregationError(f"invalid copy={copy!r}", hint=COPY_HINT)
        distribution.coords(rank)
        if len(distribution.maps) != len(source.shape):
            what = f"the distribution has shape {distribution.shape}, but the array has shape {source.shape}"
            raise ProtocolError(what, hint="give a distribution of the array's shape")
        for d, (m, size) in enumerate(zip(distribution.maps, source.shape, strict=True)):
            if not m.fits(size):
                what = f"dimension {d}: a map of {m.size} elements for a dimension of size {size}"
                what += f" (shapes {distribution.shape} and {source.shape})"
                raise ProtocolError(what, hint="give indices within the array")
        self._set(source, distribution, int(rank), copy, None)

    def _set(self, source: Any, distribution: Distribution, rank: int, copy: bool | None, buffer: np.ndarray | None) -> None:
        self.source, self.distribution, self.rank, self._copy, self._buffer = source, distribution, rank, copy, buffer
        self._lock = threading.Lock()

    @classmethod
    def holding(cls, buffer: np.ndarray, distribution: Distribution, rank: int, source: Any = None) -> Self:
        """Return a section with its values, read from the array ``source``."""
        section = cls.__new__(cls)
        section._set(source, distribution, rank, True, buffer)
        return section

    @classmethod
    def from_distarray(cls, obj: Any) -> LocalArray:
        """Import an object with ``__distarray__``, or the dictionary it returns.

        Nothing is copied: the buffer is the memory of the exporter, and is writable only if that is. The section knows only
        what this dictionary states about other processes. Raises ProtocolError with every fault of the export.

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
            buffer = shared(buffer)  # a flag alone does not prevent writing
        return cls.holding(buffer, distribution, rank)

    @property
    def buffer(self) -> np.ndarray:
        """The values, padding included; read once, on first use; thread-safe.

        Raises the errors of `MasterArray.read`.
        """
        if self._buffer is None:
            with self._lock:
                if self._buffer is None:
                    values = self._read()
                    # Fresh memory belongs to this section; views have a block already.
                    self._buffer = owned(values) if values.flags.owndata else values
        return self._buffer

    @property
    def memory(self) -> Array:
        """The buffer as an array in memory, with type, block and access."""
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
        if all(len(along) == 1 for along in segments):
            return self._read_part(tuple(along[0] for along in segments), copy=self._copy)
        if self._copy is False:
            raise AggregationError("no view without a copy: the padding wraps", hint="read with copy=None or copy=True")
        result = np.empty(self.shape, self.source.dtype)
        targets = []
        for along in segments:
            ends = list(accumulate(map(len, along), initial=0))
            targets.append([(s, slice(a, b)) for s, a, b in zip(along, ends[:-1], ends[1:], strict=True)])
        for combination in product(*targets):
            self._read_part(tuple(s for s, _ in combination), out=result[tuple(target for _, target in combination)])
        return result

    def _read_part(self, selectors: tuple[Range | np.ndarray, ...], **options: Any) -> np.ndarray:
        key = tuple(s.as_slice() if isinstance(s, Range) else s for s in selectors)
        values: np.ndarray = self.source.read(key, **options)
        return values

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the buffer, padding included; known without reading."""
        return self.distribution.local_shape(self.rank)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Data type of the buffer, known before reading (except byte order)."""
        dtype: np.dtype[Any] = self.source.dtype if self._buffer is None else self._buffer.dtype
        return dtype

    @property
    def owned(self) -> np.ndarray:
        """A view of the buffer without communication padding."""
        key: Any = (..., *self.distribution.owned_slices(self.rank))  # with an Ellipsis, a 0-d result is a view
        values: np.ndarray = self.buffer[key]
        return values

    @property
    def global_indices(self) -> tuple[np.ndarray, ...]:
        """The global indices of the buffer along each dimension, padding included."""
        return self.distribution.indices(self.rank)

    @property
    def partitions(self) -> tuple[Any, ...]:
        """Partitions that overlap the section, in C order; () if imported."""
        matrix = getattr(self.source, "partitions", None)
        if matrix is None:
            return ()
        segments = self.distribution.segments(self.rank)
        touched = [_cells(edges, along) for edges, along in zip(matrix.edges, segments, strict=True)]
        if not all(len(cells) for cells in touched):
            return ()
        partitioned = [cells.tolist() for cells, edges in zip(touched, matrix.edges, strict=True) if len(edges) > 2]
        return tuple(matrix[index] for index in product(*partitioned))

    def __distarray__(self, version: str = NEWEST) -> dict[str, Any]:
        """Return version, buffer and dim_data of this process (DAP).

        The buffer is not copied. Raises ProtocolError if the version cannot describe the distribution, or the values have no
        buffer (text, times).
        """
        version = version_of(version)
        dim_data = self.distribution.dim_data(self.rank, version)
        buffer: Any = self.buffer
        check_exported(buffer)
        return {"__version__": version, "buffer": buffer, "dim_data": dim_data}

    def aligned(self) -> LocalArray:
        """Return the section with a native, aligned, writable, C-ordered buffer.

        Message passing and compiled code need this; imported and memory-mapped buffers may be different. The buffer is copied
        only where needed.
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
    """Return the numbers of the cells that contain any of the positions."""
    cells = [np.zeros(0, np.int64)]
    for segment in segments:
        if isinstance(segment, Range) and segment.step == 1 and segment.count:
            first, last = np.searchsorted(edges, [segment.start, segment.last], side="right") - 1
            cells.append(np.arange(first, last + 1))
        else:
            indices = segment.indices() if isinstance(segment, Range) else segment
            cells.append(np.searchsorted(edges, indices, side="right") - 1)
    return np.unique(np.concatenate(cells))
