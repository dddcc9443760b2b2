"""Broadcast, sum-reduce and all-sum-reduce between process groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from aggarray.errors import ExchangeError
from aggarray.maps.fields import short_repr
from aggarray.mpi.groups import ProcessGrid, ProcessGroup, as_dimensions
from aggarray.mpi.movement import Movement
from aggarray.mpi.schedule.groups import broadcast_groups, kept_groups
from aggarray.mpi.text import broadcast_text
from aggarray.mpi.transport.trees import broadcast_tree, reduce_tree


def shape_of(group: ProcessGroup) -> tuple[int, ...]:
    """Return the shape of a grid; a group without one has one dimension."""
    return group.shape if isinstance(group, ProcessGrid) else (group.size,)


class Broadcast(Movement):
    """Broadcast from each process of ``P_x`` to its group in ``P_y``.

    The shape of ``P_x`` is left-padded with ones; each dimension then equals that of ``P_y``, or is 1. ``transpose_src``,
    ``transpose_dest``: reverse the dimensions of the grid. The groups may be disjoint, overlap or be equal. The adjoint is the
    sum-reduce over the same groups. ``P_send``, ``P_recv``: the groups in which this process sends and receives, as ranks in
    the root group with the root first, or None. Collective over the root group; raises ExchangeError on all processes.

    >>> with ProcessGroup.serial() as group:
    ...     move = Broadcast(group.grid((1,)), group.grid((1, 1)))
    ...     move.P_send, move([1.0, 2.0]).tolist(), move.adjoint([3.0]).tolist()
    ([0], [1.0, 2.0], [3.0])
    """

    def __init__(self, P_x: ProcessGroup, P_y: ProcessGroup, transpose_src: bool = False, transpose_dest: bool = False) -> None:
        super().__init__(P_x, P_y)
        self._roots, self._leaves = P_x, P_y
        transposed = bool(transpose_src), bool(transpose_dest)
        groups = self._plan_on_all(
            lambda: broadcast_groups(P_x.ranks, shape_of(P_x), P_y.ranks, shape_of(P_y), *transposed), *transposed
        )
        # Ascending roots, as the tree algorithms require.
        self._tree_groups = sorted(groups)
        self._group_of_leaf = {r: n for n, group in enumerate(self._tree_groups) for r in group[:1] if r in P_y.ranks}
        self._group_of_leaf |= {r: n for n, group in enumerate(self._tree_groups) for r in group[1:]}
        rank = self._link.rank
        self.P_send = next((g for g in self._tree_groups if g[0] == rank), None)
        self.P_recv = self._tree_groups[self._group_of_leaf[rank]] if rank in self._group_of_leaf else None

    def __call__(self, x: Any) -> np.ndarray:
        """Return the array of the root of this process's group, or an empty one."""
        values, offers, dtype = self._exchange_offers("copies", x, self._roots.active)
        rank, result = self._link.rank, np.empty(0, dtype)
        for number, group in enumerate(self._tree_groups):
            if rank not in group:
                continue
            shape = offers[group[0]].shape or ()
            if dtype.kind == "T":
                buffer = broadcast_text(self._link, group, values if rank == group[0] else None, shape)
            else:
                buffer = np.array(values, dtype, order="C", copy=True) if rank == group[0] else np.empty(shape, dtype)
                broadcast_tree(self._link, group, buffer)
            if self._group_of_leaf.get(rank) == number:
                result = buffer
        return result

    def adjoint(self, y: Any) -> np.ndarray:
        """Return the sum of the arrays of the members of this process's group.

        The result has size 0 on a process that is not a root. A root that is not a member of the group adds nothing.
        """
        values, offers, dtype = self._exchange_offers("adds", y, self._leaves.active)
        rank, result = self._link.rank, np.empty(0, dtype)
        leaves = [[r for r in group if self._group_of_leaf.get(r) == n] for n, group in enumerate(self._tree_groups)]
        shapes = [self._shape(offers, ranks) for ranks in leaves]
        for number, group in enumerate(self._tree_groups):
            if rank not in group:
                continue
            own = rank in leaves[number]
            buffer = np.array(values, dtype, order="C", copy=True) if own else np.zeros(shapes[number], dtype)
            reduce_tree(self._link, group, buffer)
            if rank == group[0]:
                result = buffer
        return result


class SumReduce(Broadcast):
    """Sum-reduce from ``P_x`` to ``P_y``, the adjoint of `Broadcast`.

    The adjoint is the broadcast over the same groups. Arguments and attributes are those of `Broadcast`, with the shape of
    ``P_y`` left-padded with ones: each dimension equals that of ``P_x``, or is 1.

    >>> with ProcessGroup.serial() as group:
    ...     SumReduce(group, group)(2).item()
    2
    """

    def __init__(self, P_x: ProcessGroup, P_y: ProcessGroup, transpose_src: bool = False, transpose_dest: bool = False) -> None:
        super().__init__(P_y, P_x, transpose_dest, transpose_src)
        self.P_send, self.P_recv = self.P_recv, self.P_send

    def __call__(self, x: Any) -> np.ndarray:
        """Return the sum of the arrays of this process's group."""
        return super().adjoint(x)

    def adjoint(self, y: Any) -> np.ndarray:
        """Return a copy of the array of the root of this process's group."""
        return super().__call__(y)


class AllSumReduce(Movement):
    """Sum over axes of a grid; every process gets the sum of its group.

    A group has equal coordinates along all other axes. Give exactly one of ``axes_reduce`` and ``axes_keep``; negative axes
    count from the end. Reducing no axes copies the array. Self-adjoint. Collective over the root group; raises ExchangeError on
    all processes.

    >>> with ProcessGroup.serial() as group:
    ...     AllSumReduce(group.grid((1, 1)), axes_reduce=(-1,))([1, 2]).tolist()
    [1, 2]
    """

    def __init__(
        self, P: ProcessGroup, axes_reduce: Sequence[int] | None = None, axes_keep: Sequence[int] | None = None
    ) -> None:
        super().__init__(P)
        self._group = P

        def plan() -> tuple[int, ...]:
            if (axes_reduce is None) == (axes_keep is None):
                reason = f"axes_reduce={short_repr(axes_reduce)}, axes_keep={short_repr(axes_keep)}"
                raise ExchangeError(reason, hint="give exactly one")
            count = len(shape_of(P))
            if axes_keep is not None:
                return as_dimensions(axes_keep, count, "axes_keep")
            reduced = as_dimensions(axes_reduce, count, "axes_reduce")
            return tuple(d for d in range(count) if d not in reduced)

        kept = self._plan_on_all(plan, short_repr(axes_reduce), short_repr(axes_keep))
        groups = kept_groups(P.ranks, shape_of(P), kept) if P.active else []
        self._own_group = next((g for g in groups if self._link.rank in g), None)
        # Processes of other sub-grids have other groups: gather all of them.
        self._all_groups = [g for g in self._link.allgather(self._own_group) if g is not None]
        from aggarray.mpi.node import node_of

        node_of(self._link)

    def __call__(self, x: Any) -> np.ndarray:
        """Return the sum over this process's group, of size 0 outside the grid."""
        values, offers, dtype = self._exchange_offers("adds", x, self._group.active)
        for group in self._all_groups:
            self._shape(offers, group)
        if self._own_group is None:
            return np.empty(0, dtype)
        result = np.array(values, dtype, order="C", copy=True)
        from aggarray.mpi.sums import allreduce

        allreduce(self._link, self._own_group, result)
        return result

    adjoint = __call__
