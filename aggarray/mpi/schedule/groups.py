"""Members of groups and grids, and the groups of broadcasts and sums.

A group is a tuple of ranks, a grid a group with a shape in C order. Ranks count in the root group, that of the communicator.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from aggarray.errors import ExchangeError


def neighbours(shape: Sequence[int], periodic: Sequence[bool], index: Sequence[int]) -> list[tuple[int | None, int | None]]:
    """Return the left and right neighbour's rank in the grid per dimension.

    None stands for a neighbour beyond an edge.

    >>> neighbours((2, 3), (False, True), (0, 0))
    [(None, 3), (2, 1)]
    """

    def rank_beside(d: int, coordinate: int) -> int | None:
        if not (periodic[d] or 0 <= coordinate < shape[d]):
            return None
        return rank_at(shape, [*index[:d], coordinate % shape[d], *index[d + 1 :]])

    return [(rank_beside(d, index[d] - 1), rank_beside(d, index[d] + 1)) for d in range(len(shape))]


def rank_at(shape: Sequence[int], index: Sequence[int]) -> int:
    """Return the rank at coordinates of a grid, in C order."""
    rank = 0
    for size, coordinate in zip(shape, index, strict=True):
        rank = rank * size + coordinate
    return rank


def broadcast_groups(
    x_ranks: Sequence[int],
    x_shape: Sequence[int],
    y_ranks: Sequence[int],
    y_shape: Sequence[int],
    transpose_src: bool = False,
    transpose_dest: bool = False,
) -> list[list[int]]:
    """Return the broadcast groups from grid ``x`` to grid ``y``, root first.

    There is one group per process of ``x``. ``x_shape`` is left-padded with ones to the number of dimensions of ``y_shape``;
    each dimension is then equal in both, or 1 in ``x``. The members after the root are the processes of ``y``, in its order,
    with the same index along the equal dimensions. ``transpose_src``, ``transpose_dest``: reverse the dimensions of the grid,
    and the index of each process. Raises ExchangeError where the shapes do not broadcast or do not fit the ranks.

    >>> broadcast_groups([1, 2, 3], (1, 3, 1), range(12), (2, 3, 2))
    [[1, 0, 6, 7], [2, 3, 8, 9], [3, 4, 5, 10, 11]]
    """
    source, dest = as_grid(x_ranks, x_shape, "source"), as_grid(y_ranks, y_shape, "destination")
    source, dest = source.T if transpose_src else source, dest.T if transpose_dest else dest
    fits = source.ndim <= dest.ndim
    padded = source.reshape((1,) * (dest.ndim - source.ndim) + source.shape) if fits else source
    if not fits or any(n not in (1, m) for n, m in zip(padded.shape, dest.shape, strict=True)):
        reason = f"a grid of shape {source.shape} does not broadcast to one of shape {dest.shape}"
        raise ExchangeError(reason, hint="make each dimension, from the last on, equal in both grids, or 1 in the source")
    # The source of each destination, by the broadcasting rules of NumPy.
    roots = np.broadcast_to(padded, dest.shape).ravel()
    members: dict[int, list[int]] = {int(root): [] for root in x_ranks}
    for root, member in zip(roots.tolist(), dest.ravel().tolist(), strict=True):
        members[root].append(member)
    return [[root, *(m for m in group if m != root)] for root, group in members.items()]


def as_grid(ranks: Sequence[int], shape: Sequence[int], what: str) -> np.ndarray:
    """Return ranks in a shape; ExchangeError if their number differs."""
    numbers = np.array(list(ranks), np.int64)
    if any(n < 1 for n in shape) or prod(shape) != len(numbers):
        reason = f"{what}: a grid of shape {tuple(shape)} does not fit {len(numbers)} processes"
        raise ExchangeError(reason, hint=f"give sizes whose product is {len(numbers)}")
    if len(set(numbers.tolist())) < len(numbers):
        raise ExchangeError(f"{what}: ranks {numbers.tolist()} repeat", hint="give each rank once")
    return numbers.reshape(tuple(shape))


def kept_groups(ranks: Sequence[int], shape: Sequence[int], keep: Sequence[int]) -> list[list[int]]:
    """Return the groups of ranks with equal coordinates along ``keep``.

    Groups and members are in C order.

    >>> kept_groups(range(12), (2, 3, 2), (1,))
    [[0, 1, 6, 7], [2, 3, 8, 9], [4, 5, 10, 11]]
    """
    grid = as_grid(ranks, shape, "grid")
    others = [d for d in range(grid.ndim) if d not in keep]
    groups: list[list[int]] = grid.transpose([*keep, *others]).reshape(prod(shape[d] for d in keep), -1).tolist()
    return groups
