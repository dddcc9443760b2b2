"""Costs of reading partitions: their stored bytes, as far as an index has them."""

import numpy as np

from aggarray.partition.matrix import Matrix
from aggarray.partition.stored_sizes import stored_bytes


def slab_costs(matrix: Matrix) -> tuple[np.ndarray, ...]:
    """Return the cost of each slab of partitions, per dimension, int64 bytes.

    A partition that shows a part of its sub-array costs that part. If the stored size is unknown, the bytes of the values
    count; missing partitions cost nothing. No file is opened, and all processes get equal costs of the same array.
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
