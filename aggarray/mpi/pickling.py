"""Pickled form of an aggregation that one process opened, for the others.

It includes where the stored chunks of an index lie, which other pickles leave out. The receivers then read values without
opening the index, and without parsing the metadata of data files.
"""

from __future__ import annotations

import io
import pickle
from typing import Any

from aggarray.arrays.master import MasterArray
from aggarray.dataclass import fields, replace
from aggarray.index.chunk_tables import StoredChunkIndexes
from aggarray.mpi.unpickling import relocated_columns
from aggarray.opening.aggregation import Aggregation
from aggarray.partition.chunk_tables import ChunkTables
from aggarray.partition.matrix import References
from aggarray.partition.stored_sizes import JoinedChunkIndexes

#: Most bytes of chunk tables that are sent: 16 for each of four million chunks. Every process holds all of them, although it
#: reads some chunks only; with more chunks, each process parses the metadata of the files that it reads.
MOST_BYTES = 64 << 20


class _Pickler(pickle.Pickler):
    """Pickler that includes chunk tables, each once."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, protocol=5)
        self._included: dict[int, bool] = {}
        self._remaining = MOST_BYTES

    def reducer_override(self, item: Any) -> Any:
        """Return the reduced form of sub-arrays and chunk tables."""
        if isinstance(item, References) and self._includes(item.tables):
            return relocated_columns, (References, *(getattr(item, f.name) for f in fields(References)))
        return (
            (relocated_columns, (ChunkTables, *item.load().__reduce__()[1]))
            if isinstance(item, StoredChunkIndexes)
            else NotImplemented
        )

    def _includes(self, tables: Any) -> bool:
        if isinstance(tables, JoinedChunkIndexes):
            return all(map(self._includes, tables.members))
        if not isinstance(tables, StoredChunkIndexes):
            return False
        if id(tables) not in self._included:
            size = tables.load().nbytes
            self._included[id(tables)] = size <= self._remaining
            self._remaining -= size if self._included[id(tables)] else 0
        return self._included[id(tables)]


def dumps(aggregation: Aggregation) -> bytes:
    """Return the pickled form of an aggregation.

    Raises IndexFileError if its index is damaged.
    """
    # A pickled array of an index refers to the index, which the receiver would have to open.
    provenance = aggregation._provenance
    options = provenance.rules, provenance.variables, provenance.selections, provenance.access, provenance.fixes
    arrays = tuple(map(_without_origin, aggregation.arrays))
    # The function and arguments that restore an unchanged array of an index.
    known = ((a, a._origin) for a in aggregation.arrays)
    origins = [(o.find, o.place) if o is not None and not o.steps and o.describes(a._witness) else None for a, o in known]
    content = io.BytesIO()
    _Pickler(content).dump((arrays, origins, (aggregation.refusals, aggregation.skipped, aggregation.duplicates), options))
    return content.getvalue()


def _without_origin(array: MasterArray) -> MasterArray:
    coords = {name: _without_origin(c) for name, c in array.coords.items()}
    return replace(array, coords=coords, _origin=None)
