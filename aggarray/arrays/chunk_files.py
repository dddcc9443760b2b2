"""Files of each chunk of a master array: `MasterArray.files_for`."""

from __future__ import annotations

from functools import reduce
from itertools import pairwise
from typing import Any

import numpy as np

from aggarray.errors import SelectionError
from aggarray.partition.matrix import References

#: The cells of a chunk along a dimension, and the number of its positions in each.
_Span = tuple[slice, np.ndarray]


def files_for(array: Any, chunks: Any) -> np.ndarray:
    """Return the files of each chunk: see `MasterArray.files_for`."""
    matrix = array._matrix
    spans = [_spans(edges, sizes) for edges, sizes in zip(matrix.edges, _checked(array, chunks), strict=True)]
    refs = matrix.refs.reshape(matrix.cells) if array._known is None else np.full(matrix.cells, -1)
    files = np.empty(tuple(map(len, spans)), object)
    for block in np.ndindex(files.shape):
        own = [span[number] for span, number in zip(spans, block, strict=True)]
        rows = np.ravel(refs[tuple(cells for cells, _ in own)])
        counts = np.ravel(reduce(np.multiply.outer, (count for _, count in own), np.ones((), np.int64)))
        files[block] = _named(matrix.references, rows, counts)
    return files


def _checked(array: Any, chunks: Any) -> list[np.ndarray]:
    hint = "give tuples of sizes that add up to its size, one per dimension, such as chunks_for(nbytes) or .chunks of dask"
    try:
        sizes = [np.asarray(along) for along in chunks]
        fits = [s.ndim == 1 and s.dtype.kind in "iu" and (s >= 0).all() and s.sum() for s in sizes]
    except (TypeError, ValueError):
        fits = []
    if fits != list(array.shape):
        raise SelectionError(f"chunks={chunks!r:.200} for an array of shape {array.shape}", hint=hint)
    return sizes


def _spans(edges: np.ndarray, sizes: np.ndarray) -> list[_Span]:
    cuts = np.concatenate([[0], np.cumsum(sizes)])
    first, last = np.searchsorted(edges, cuts[:-1], "right") - 1, np.searchsorted(edges, cuts[1:], "left")
    return [
        (slice(a, max(a, b)), np.diff(np.clip(edges[a : max(a, b) + 1], start, stop)))
        for a, b, (start, stop) in zip(first.tolist(), last.tolist(), pairwise(cuts.tolist()), strict=True)
    ]


def _named(references: References, rows: np.ndarray, counts: np.ndarray) -> tuple[str, ...]:
    codes = np.where(rows < 0, -1, references.uri[rows]) if len(references) else np.full(len(rows), -1)
    used = (codes >= 0) & (counts > 0)
    distinct, first, which = np.unique(codes[used], return_index=True, return_inverse=True)
    order = np.lexsort((first, -np.bincount(which, counts[used], len(distinct))))
    return tuple(str(references.uris[code]) for code in distinct[order].tolist())
