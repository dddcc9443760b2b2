"""Halo widths of stencils, and the slabs that neighbours exchange.

Dimensions are exchanged one after the other. A slab includes the halos of the dimensions already exchanged, and excludes those
of the following dimensions, so that corners arrive with two messages per dimension.
"""

from __future__ import annotations

from operator import index

from aggarray.dataclass import NamedTuple
from aggarray.errors import ExchangeError
from aggarray.maps import Block, Distribution
from aggarray.mpi.schedule.groups import rank_at
from aggarray.mpi.schedule.overlap import Box, PlannedMessage


class HaloStep(NamedTuple):
    """The exchange along one dimension: slabs to send, halos to fill.

    ``is_contiguous``: whether the slabs of this process and of its neighbours are contiguous in arrays in C order.
    """

    sent: tuple[PlannedMessage, ...]
    filled: tuple[PlannedMessage, ...]
    is_contiguous: bool


def halo_widths(
    size: int, nprocs: int, kernel_size: int, stride: int = 1, padding: int = 0, dilation: int = 1
) -> list[tuple[int, int]]:
    """Return the left and right halo widths of the processes of a dimension.

    The outputs of a kernel, floor((size + 2 padding - dilation (kernel_size - 1) - 1) / stride) + 1, are distributed evenly, as
    the ``size`` inputs are. There are no elements beyond the ends of the dimension; a process without outputs needs no halo. A
    width may exceed the block of a neighbour, which Block rejects. Raises ExchangeError for invalid numbers.

    >>> halo_widths(10, 3, 3, padding=1)
    [(0, 1), (1, 1), (1, 0)]
    >>> halo_widths(11, 3, 2, stride=2)
    [(0, 0), (0, 0), (0, 0)]
    """
    arguments = {"size": size, "nprocs": nprocs, "kernel_size": kernel_size, "stride": stride}
    arguments |= {"padding": padding, "dilation": dilation}
    for name, value in arguments.items():
        least = 0 if name in ("size", "padding") else 1
        if isinstance(value, bool) or not hasattr(value, "__index__") or index(value) < least:
            raise ExchangeError(f"invalid {name}={value!r}", hint=f"give an integer of at least {least}")
    # Python integers: NumPy's may overflow below.
    size, nprocs, kernel_size, stride, padding, dilation = (index(value) for value in arguments.values())
    reach = dilation * (kernel_size - 1)
    outputs = max((size + 2 * padding - reach - 1) // stride + 1, 0)
    ins, outs = Block.even(size, nprocs).bounds, Block.even(outputs, nprocs).bounds
    widths = []
    for rank in range(nprocs):
        x0, x1, y0, y1 = (int(cut) for cut in (ins[rank], ins[rank + 1], outs[rank], outs[rank + 1]))
        low = max(0, stride * y0 - padding)
        high = min(size - 1, stride * (y1 - 1) + reach - padding)
        widths.append((max(0, x0 - low), max(0, high - (x1 - 1))) if y0 < y1 else (0, 0))
    return widths


def halo_steps(distribution: Distribution, rank: int) -> list[HaloStep]:
    """Return the exchanges of a process, one for each dimension with padding."""
    coords = distribution.coords(rank)
    owned = distribution.owned_slices(rank)
    extents = distribution.local_shape(rank)
    steps = []
    for d, (map_, coordinate) in enumerate(zip(distribution.maps, coords, strict=True)):
        ends = ((map_.owned_slice(p), map_.extent(p)) for p in range(map_.nprocs))
        widths = [(own.start, extent - own.stop) for own, extent in ends]  # of the communication padding
        if not any(map(any, widths)):
            continue

        def slab(other: int, direction: int, low: int, count: int, d: int = d) -> PlannedMessage:
            other_coords = [*coords[:d], other % distribution.grid[d], *coords[d + 1 :]]
            region = (*(slice(0, n) for n in extents[:d]), slice(low, low + count), *owned[d + 1 :])
            box = Box(region, region, tuple(s.stop - s.start for s in region))
            return PlannedMessage(rank_at(distribution.grid, other_coords), (box,), direction)

        left, right = widths[coordinate]
        right_needs, left_needs = widths[(coordinate + 1) % map_.nprocs][0], widths[coordinate - 1][1]
        begin, end = owned[d].start, owned[d].stop
        sent = [slab(coordinate + 1, 0, end - right_needs, right_needs), slab(coordinate - 1, 1, begin, left_needs)]
        filled = [slab(coordinate - 1, 0, 0, left), slab(coordinate + 1, 1, end, right)]
        is_contiguous = all(n == 1 for n in extents[:d]) and owned[d + 1 :] == tuple(slice(0, n) for n in extents[d + 1 :])
        sent_slabs, filled_slabs = (tuple(m for m in slabs if all(m.boxes[0].shape)) for slabs in (sent, filled))
        steps.append(HaloStep(sent_slabs, filled_slabs, is_contiguous))
    return steps
