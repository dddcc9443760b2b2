"""Broadcast, sum-reduce and all-sum-reduce between process groups."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from aggarray.errors import ExchangeError
from aggarray.maps.fields import short_repr
from aggarray.mpi.groups import ProcessGrid, ProcessGroup, dimensions_of
from aggarray.mpi.movement import Movement, nothing
from aggarray.mpi.schedule import broadcast_groups, kept_groups
from aggarray.mpi.text import copy_text_down
from aggarray.mpi.transport import allreduce_tree, broadcast_tree, reduce_tree


def shape_of(group: ProcessGroup) -> tuple[int, ...]:
    """Return the shape of a grid; a group without one has one dimension."""
    return group.shape if isinstance(group, ProcessGrid) else (group.size,)


class _Fan(Movement):
    """Collective over groups of a root and leaves, from two grids."""

    def __init__(self, few: ProcessGroup, many: ProcessGroup, turned_few: bool, turned_many: bool) -> None:
        super().__init__(few, many)
        self._few, self._many = few, many
        turned = bool(turned_few), bool(turned_many)
        groups = self._planned(lambda: broadcast_groups(few.ranks, shape_of(few), many.ranks, shape_of(many), *turned), *turned)
        # Ascending roots, as the tree algorithms require.
        self._fan = sorted(groups)
        self._leaf = {rank: n for n, group in enumerate(self._fan) for rank in group[:1] if rank in many.ranks}
        self._leaf |= {rank: n for n, group in enumerate(self._fan) for rank in group[1:]}
        mine = self._link.rank
        self._as_root = next((g for g in self._fan if g[0] == mine), None)
        self._as_leaf = self._fan[self._leaf[mine]] if mine in self._leaf else None

    def _copy(self, x: Any) -> np.ndarray:
        """Copy the array of each root to its leaves."""
        values, offers = self._agreed("copies", x, _anything if self._few.active else None)
        dtype, mine = self._dtype(offers), self._link.rank
        result = nothing(dtype)
        for number, group in enumerate(self._fan):
            if mine not in group:
                continue
            shape = offers[group[0]].shape or ()
            if dtype.kind == "T":
                carried = copy_text_down(self._link, group, values if mine == group[0] else None, shape)
            else:
                carried = np.array(values, dtype, order="C", copy=True) if mine == group[0] else np.empty(shape, dtype)
                broadcast_tree(self._link, group, carried)
            if self._leaf.get(mine) == number:
                result = carried
        return result

    def _total(self, y: Any) -> np.ndarray:
        """Sum the arrays of the leaves of each root.

        A root that is not one of its leaves adds nothing.
        """
        values, offers = self._agreed("adds", y, _anything if self._many.active else None)
        dtype, mine = self._dtype(offers), self._link.rank
        leaves = [[r for r in group if self._leaf.get(r) == n] for n, group in enumerate(self._fan)]
        shapes = [self._shape(offers, ranks) for ranks in leaves]
        result = nothing(dtype)
        for number, group in enumerate(self._fan):
            if mine not in group:
                continue
            own = mine in leaves[number]
            carried = np.array(values, dtype, order="C", copy=True) if own else np.zeros(shapes[number], dtype)
            reduce_tree(self._link, group, carried)
            if mine == group[0]:
                result = carried
        return result


class Broadcast(_Fan):
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

    def __init__(
        self,
        P_x: ProcessGroup,  # noqa: N803
        P_y: ProcessGroup,  # noqa: N803
        transpose_src: bool = False,
        transpose_dest: bool = False,
    ) -> None:
        super().__init__(P_x, P_y, transpose_src, transpose_dest)
        self.P_send, self.P_recv = self._as_root, self._as_leaf

    def __call__(self, x: Any) -> np.ndarray:
        """Return a copy of the array of the root of this process's group.

        The result has size 0 outside ``P_y``.
        """
        return self._copy(x)

    def adjoint(self, y: Any) -> np.ndarray:
        """Return the sum of the arrays of the members of this process's group.

        The result has size 0 outside ``P_x``.
        """
        return self._total(y)


class SumReduce(_Fan):
    """Sum-reduce from ``P_x`` to ``P_y``, the adjoint of `Broadcast`.

    The adjoint is the broadcast over the same groups. Arguments and attributes are those of `Broadcast`, with the shape of
    ``P_y`` left-padded with ones: each dimension equals that of ``P_x``, or is 1.

    >>> with ProcessGroup.serial() as group:
    ...     SumReduce(group, group)(2).item()
    2
    """

    def __init__(
        self,
        P_x: ProcessGroup,  # noqa: N803
        P_y: ProcessGroup,  # noqa: N803
        transpose_src: bool = False,
        transpose_dest: bool = False,
    ) -> None:
        super().__init__(P_y, P_x, transpose_dest, transpose_src)
        self.P_send, self.P_recv = self._as_leaf, self._as_root

    def __call__(self, x: Any) -> np.ndarray:
        """Return the sum of the arrays of the members of this process's group.

        The result has size 0 outside ``P_y``.
        """
        return self._total(x)

    def adjoint(self, y: Any) -> np.ndarray:
        """Return a copy of the array of the root of this process's group.

        The result has size 0 outside ``P_x``.
        """
        return self._copy(y)


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
        self,
        P: ProcessGroup,  # noqa: N803
        axes_reduce: Sequence[int] | None = None,
        axes_keep: Sequence[int] | None = None,
    ) -> None:
        super().__init__(P)
        self._group = P

        def plan() -> tuple[int, ...]:
            if (axes_reduce is None) == (axes_keep is None):
                raise ExchangeError(
                    f"axes_reduce={short_repr(axes_reduce)}, axes_keep={short_repr(axes_keep)}: give exactly one"
                )
            count = len(shape_of(P))
            if axes_keep is not None:
                return dimensions_of(axes_keep, count, "axes_keep")
            reduced = dimensions_of(axes_reduce, count, "axes_reduce")
            return tuple(d for d in range(count) if d not in reduced)

        kept = self._planned(plan, short_repr(axes_reduce), short_repr(axes_keep))
        groups = kept_groups(P.ranks, shape_of(P), kept) if P.active else []
        self._mine = next((g for g in groups if self._link.rank in g), None)
        # Processes of other sub-grids have other groups: gather all of them.
        self._all = [g for g in self._link.allgather(self._mine) if g is not None]

    def __call__(self, x: Any) -> np.ndarray:
        """Return the sum over this process's group, of size 0 outside the grid."""
        values, offers = self._agreed("adds", x, _anything if self._group.active else None)
        dtype = self._dtype(offers)
        for group in self._all:
            self._shape(offers, group)
        if self._mine is None:
            return nothing(dtype)
        result = np.array(values, dtype, order="C", copy=True)
        allreduce_tree(self._link, self._mine, result)
        return result

    adjoint = __call__


def _anything(values: np.ndarray) -> None:
    """Accept arrays of any shape."""
