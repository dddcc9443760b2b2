"""Mappings of virtual datasets of HDF5 to their sources.

A mapping has two selections of equally many elements, which correspond in C order. `mappings_of` reads them, with h5py; the
other functions are pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

from aggarray.dataclass import NamedTuple

#: Runs of a mapping with gaps that are always separate pieces, and elements of one that make it worth a piece.
_FEW, _LARGE = 32, 1024


class Hyperslab(NamedTuple):
    """Selection along a dimension: blocks of elements, a stride apart.

    ``blocks``: their number, ``block``: their size; None: unlimited.
    """

    start: int
    stride: int
    blocks: int | None
    block: int | None

    @property
    def is_unlimited(self) -> bool:
        """Whether it reaches to the end of the dimension."""
        return self.blocks is None or self.block is None

    @property
    def is_contiguous(self) -> bool:
        """Whether it has no gaps."""
        return self.blocks == 1 or self.block is None or self.block == self.stride

    def size(self, length: int) -> int:
        """Return the number of selected elements of a dimension.

        >>> Hyperslab(1, 4, None, 2).size(10), Hyperslab(1, 4, 9, 2).size(10), Hyperslab(3, 1, 1, None).size(10)
        (5, 18, 7)
        """
        if self.block is None:
            return max(0, length - self.start)
        if self.blocks is not None:
            return self.blocks * self.block
        begun = max(0, -(-(length - self.start) // self.stride))
        return begun and (begun - 1) * self.block + min(self.block, length - self.start - (begun - 1) * self.stride)

    def span(self, length: int) -> tuple[int, int]:
        """Return start and end of what lies in a dimension."""
        if self.blocks is None or self.block is None:
            return min(self.start, length), length
        return min(self.start, length), min(self.start + (self.blocks - 1) * self.stride + self.block, length)


Selection = tuple[Hyperslab, ...]


class VirtualMapping(NamedTuple):
    """Selections of a virtual dataset and of a source, () for all elements.

    ``file``, ``dataset``: as stored, with ``%b`` for the number of a block. ``is_regular``: otherwise the selections are of
    another form, and these are their bounds.
    """

    file: str
    dataset: str
    selection: Selection
    part: Selection
    is_regular: bool = True


class VirtualLayout(NamedTuple):
    """Shape and mappings of a virtual dataset."""

    shape: tuple[int, ...]
    mappings: list[VirtualMapping]


class MappedRuns(NamedTuple):
    """Contiguous runs of a virtual dataset, and their positions in a source.

    ``runs``: per dimension of the virtual dataset (start, positions along the dimension of the source); ``dimensions``: the
    dimension of the virtual dataset along each of the source, None for one of size 1 that it lacks, of which ``starts`` has the
    position.
    """

    runs: tuple[list[tuple[int, range]], ...]
    dimensions: tuple[int | None, ...]
    starts: tuple[int, ...]


def mappings_of(dataset: Any) -> list[VirtualMapping]:
    """Return the mappings of an h5py dataset, none if it is not virtual.

    The library's lock must be held.
    """
    mappings = []
    for source in dataset.virtual_sources() if dataset.is_virtual else ():
        own, part = _selection(source.vspace), _selection(source.src_space)
        if own is not None and part is not None:
            mappings.append(VirtualMapping(source.file_name, source.dset_name, own[0], part[0], own[1] and part[1]))
    return mappings


def _selection(space: Any) -> tuple[Selection, bool] | None:
    """Return a selection and whether it is regular, None without elements."""
    from h5py import h5s

    kind = space.get_select_type()
    if kind == h5s.SEL_NONE:
        return None
    if kind == h5s.SEL_ALL:
        return (), True
    if kind != h5s.SEL_HYPERSLABS or not space.is_regular_hyperslab():
        first, last = space.get_select_bounds()
        return tuple(Hyperslab(int(a), 1, 1, int(b - a + 1)) for a, b in zip(first, last, strict=True)), False
    columns = zip(*space.get_regular_hyperslab(), strict=True)
    limited = ([None if n == h5s.UNLIMITED else int(n) for n in numbers] for numbers in columns)
    return tuple(Hyperslab(start or 0, stride or 1, count, block) for start, stride, count, block in limited), True


def numbered(text: str, number: int | None) -> str:
    """Return a name with the number of a block.

    >>> numbered("f-%b.h5", 3), numbered("100%%", None)
    ('f-3.h5', '100%')
    """
    parts = text.split("%%")
    return "%".join(parts if number is None else [part.replace("%b", str(number)) for part in parts])


def selections_of(mapping: VirtualMapping, shape: Sequence[int]) -> Iterator[tuple[int | None, Selection]]:
    """Yield the selections of a mapping, with the numbers of blocks.

    There is one selection for each block if names have numbers, else one with number None.
    """
    own = mapping.selection
    unlimited = [d for d, slab in enumerate(own) if slab.is_unlimited]
    if len(unlimited) != 1 or all(numbered(text, 0) == numbered(text, None) for text in (mapping.file, mapping.dataset)):
        yield None, own
        return
    (d,) = unlimited
    start, stride, _, block = own[d]
    for number, first in enumerate(range(start, shape[d], stride)):
        yield number, (*own[:d], Hyperslab(first, 1, 1, block), *own[d + 1 :])


def bounds_of(selection: Selection, shape: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Return start and end of a selection along each dimension."""
    return tuple(slab.span(n) for slab, n in zip(selection, shape, strict=True)) or tuple((0, n) for n in shape)


def runs_of(selection: Selection, part: Selection, shape: Sequence[int], source_shape: Sequence[int]) -> MappedRuns | None:
    """Return the runs of two selections, None unless they fit in few runs."""
    own = selection or tuple(Hyperslab(0, 1, 1, n) for n in shape)
    part = part or tuple(Hyperslab(0, 1, 1, n) for n in source_shape)
    if len(part) != len(source_shape):
        return None
    given, taken = (
        [s.size(n) for s, n in zip(slabs, sizes, strict=True)] for slabs, sizes in ((own, shape), (part, source_shape))
    )
    growing = [[d for d, slab in enumerate(slabs) if slab.is_unlimited] for slabs in (own, part)]
    if [len(dimensions) for dimensions in growing] == [1, 1]:
        # The virtual dataset is as long as the source.
        (d,), (axis,) = growing
        given[d] = taken[axis] = min(given[d], taken[axis])
    dimensions = _matched(given, taken)
    ends = zip((*own, *part), (*shape, *source_shape), strict=True)
    fits = all(s.is_unlimited or s.start + ((s.blocks or 1) - 1) * s.stride + (s.block or 0) <= n for s, n in ends)
    if dimensions is None or not fits:
        return None
    along = {d: part[axis] for axis, d in enumerate(dimensions) if d is not None}
    one = Hyperslab(0, 1, 1, 1)
    counts = [_count(slab, along.get(d, one), n) for d, (slab, n) in enumerate(zip(own, given, strict=True))]
    if prod(counts) > _FEW and prod(given) < _LARGE * prod(counts):
        return None
    runs = tuple(list(_runs(slab, along.get(d, one), n)) for d, (slab, n) in enumerate(zip(own, given, strict=True)))
    return MappedRuns(runs, dimensions, tuple(slab.start for slab in part))


def _count(own: Hyperslab, part: Hyperslab, size: int) -> int:
    """Return a bound on the number of runs."""
    cuts = 0 if own.is_contiguous else size // (own.block or 1)
    return 1 + cuts + (0 if part.is_contiguous or part.block == 1 else size // (part.block or 1))


def _runs(own: Hyperslab, part: Hyperslab, size: int) -> Iterator[tuple[int, range]]:
    """Yield the start and the positions of each run of corresponding elements.

    >>> list(_runs(Hyperslab(0, 3, 2, 2), Hyperslab(5, 1, 1, 4), 4))
    [(0, range(5, 7)), (3, range(7, 9))]
    >>> list(_runs(Hyperslab(0, 1, 1, 3), Hyperslab(1, 4, None, 1), 3))
    [(0, range(1, 10, 4))]
    """
    done = 0
    while done < size:
        start, rest = _at(own, done)
        first, left = _at(part, done)
        step = 1
        if part.block == 1 and not part.is_contiguous:
            left, step = rest, part.stride
        length = min(size - done, rest, left)
        yield start, range(first, first + (length - 1) * step + 1, step)
        done += length


def _at(slab: Hyperslab, number: int) -> tuple[int, int]:
    """Return the position of an element, and how many follow without a gap."""
    if slab.is_contiguous or slab.block is None:
        return slab.start + number, 1 << 62
    block, within = divmod(number, slab.block)
    return slab.start + block * slab.stride + within, slab.block - within


def _matched(own: Sequence[int], part: Sequence[int]) -> tuple[int | None, ...] | None:
    """Return the dimension of a box along each of a part of as many elements.

    >>> _matched([1, 3, 4], [3, 4]), _matched([3, 4], [1, 3, 4]), _matched([12], [3, 4])
    ((1, 2), (None, 0, 1), None)
    """
    if list(own) == list(part):
        return tuple(range(len(part)))
    long = [d for d, n in enumerate(own) if n != 1]
    if [own[d] for d in long] != [n for n in part if n != 1]:
        return None
    following = iter(long)
    return tuple(None if n == 1 else next(following) for n in part)
