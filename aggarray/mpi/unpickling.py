"""Received aggregations; sending them is in `aggarray.mpi.pickling`."""

from __future__ import annotations

import pickle
from typing import Any

from aggarray.dataclass import replace
from aggarray.opening.aggregation import Aggregation
from aggarray.opening.provenance import Provenance
from aggarray.storage import relocated_all


def loads(content: bytes) -> Aggregation:
    """Return the aggregation of its pickled form, without its index."""
    arrays, origins, (refusals, skipped, duplicates), (*options, fixes) = pickle.loads(content)
    restored = (a if o is None else a._with_origin(o[0], *o[1]) for a, o in zip(arrays, origins, strict=True))
    return Aggregation(tuple(restored), refusals, skipped, duplicates, replace(Provenance(*options), fixes=fixes))


def relocated_columns(kind: Any, files: Any, *columns: Any) -> Any:
    """Return columns with files as they are called in this process."""
    return kind(relocated_all(files), *columns)
