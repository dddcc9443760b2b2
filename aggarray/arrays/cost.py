"""What does it cost to read the partitions of an array? The bytes that their files store, as far as an index knows them."""

import numpy as np

from aggarray.partition.matrix import Matrix
from aggarray.partition.stored_sizes import stored_bytes


def slab_costs(matrix: Matrix) -> tuple[np.ndarray, ...]:
    """Return per dimension the cost of each slab of partitions across it, int64 bytes.

    A partition that shows a part of its sub-array costs that part. Where nobody knows what is stored, the bytes of the values
    count; partitions that are missing cost nothing. No file is opened, and all processes that have the array find the same.
    """
    references = matrix.references
    sizes = np.array([max(int(np.prod(t.shape, dtype=np.int64)), 1) for t in references.templates], np.int64)
    widths = np.array([t.encoding.stored.itemsize for t in references.templates], np.int64)
    stored = stored_bytes(references)
    each = widths[references.template].astype(float)  # bytes of one element
    known = stored >= 0
    each[known] = stored[known] / sizes[references.template[known]]
    elements = np.ones(1)
    for edge in matrix.edges:
        elements = np.multiply.outer(elements, np.diff(edge)).ravel()
    costs = np.where(matrix.refs >= 0, np.append(each, 0.0)[matrix.refs] * elements, 0.0)
    table = np.rint(costs).astype(np.int64).reshape(matrix.cells)
    axes = range(table.ndim)
    return tuple(table.sum(axis=tuple(a for a in axes if a != axis)) for axis in axes)
