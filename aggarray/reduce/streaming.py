"""Threads that read and fold blocks; segments are merged in order."""

from __future__ import annotations

import contextvars
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import chain, groupby, islice
from math import prod
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from aggarray.arrays.chunk_sizes import axis_cuts
from aggarray.dataclass import NamedTuple, dataclass, replace
from aggarray.options import get_options
from aggarray.read import DISTANT
from aggarray.reduce.accumulators import Shape
from aggarray.reduce.blocks import (
    BLOCK,
    Geometry,
    Interval,
    Key,
    Run,
    elements_of,
    geometry_of,
    joined_keys,
    runs_of,
    shortened,
)
from aggarray.reduce.operations import State, Work
from aggarray.reduce.part import Part, SummedPart
from aggarray.reduce.results import Result, results_of
from aggarray.storage.urls import is_remote

if TYPE_CHECKING:
    from aggarray.arrays.master import MasterArray

#: Bytes that all threads together may need, beside the result.
_IN_FLIGHT = 48 << 20
#: Bytes that decoding needs beside the values.
_DECODING = 2 << 20
#: Bytes that a thread reads at a time. Blocks of larger reads have left the processor's caches before they are folded.
_READ = 6 << 20
Results = dict[str, Result]
#: A factor of weights: numbers of dimensions, and float64 values.
Factor = tuple[tuple[int, ...], np.ndarray]


@dataclass(frozen=True, slots=True, eq=False)
class Reduction:
    """A reduction that was checked: the array, its blocks, and the work.

    ``factors``: dimensions (as numbers) and float64 values of factors, whose outer product is the weight. ``advance``: receives
    the bytes of each block, in any thread.
    """

    array: MasterArray
    geometry: Geometry
    work: Work
    factors: tuple[Factor, ...] = ()
    advance: Callable[[int], None] | None = None

    @classmethod
    def of(
        cls, array: MasterArray, axes: Sequence[int], work: Work, groups: Any, factors: Any, advance: Any = None
    ) -> Reduction:
        """Return the reduction of an array along axes, in blocks."""
        grouped, numbers, count = (None, None, 1) if groups is None else (axes[0], groups.numbers, groups.count)
        geometry = geometry_of(axis_cuts(array), axes, grouped, numbers, count, work.width, array.dtype.itemsize)
        return cls(array, geometry, work, factors, advance)

    @property
    def position(self) -> int | None:
        """Where the groups are among the dimensions of the result."""
        grouped = self.geometry.grouped
        return None if grouped is None else sum(d < grouped for d in self.geometry.kept)

    def shape(self, tile: Sequence[Interval], groups: int) -> Shape:
        """Return the shape of the accumulators of a tile."""
        return Shape(groups, tuple(b - a for a, b in tile), self.position)

    @property
    def limit(self) -> int:
        """Positions of the largest group."""
        geometry, sizes = self.geometry, self.array.shape
        most = prod(sizes[d] for d in geometry.reduced if d != geometry.grouped)
        if geometry.numbers is None:
            return most
        present = geometry.numbers[geometry.numbers >= 0]
        return most * int(np.bincount(present).max(initial=0))


def reduce_blocks(reduction: Reduction, threads: int | None) -> Results:
    """Read all blocks and return the results.

    Each is read once, unless the accumulators of all groups are larger than the memory: see `Geometry.group_ranges`.
    """
    geometry, array, advance = reduction.geometry, reduction.array, reduction.advance
    ranges = geometry.group_ranges(reduction.work.beside)
    if len(ranges) < 2:
        return _reduced(reduction, threads)
    target = _Target(reduction)
    everything = [(0, array.shape[d]) for d in geometry.kept]
    for number, (first, stop) in enumerate(ranges):
        own = replace(reduction, geometry=geometry.of_groups(first, stop), advance=None)
        target.put(everything, _reduced(own, threads), slice(first, stop))
        if advance is not None:
            advance(array.nbytes * (number + 1) // len(ranges) - array.nbytes * number // len(ranges))
    return target.results


def _reduced(reduction: Reduction, threads: int | None) -> Results:
    geometry, work = reduction.geometry, reduction.work
    with np.errstate(all="ignore"):  # infinite values and overflows are results
        if not reduction.array.size:
            return _results(work, _empty(reduction, [(0, reduction.array.shape[d]) for d in geometry.kept], 1))
        tiles = list(geometry.tiles())
        target = None if len(tiles) == 1 else _Target(reduction)
        for number, states in groupby(_states(reduction, tiles, threads), itemgetter(0)):
            results = _results(work, _merged(reduction, tiles[number], states))
            if target is None:
                return results
            target.put(tiles[number], results)
    return {} if target is None else target.results


def _merged(reduction: Reduction, tile: Sequence[Interval], states: Iterator[tuple[int, bool, State]]) -> State:
    """Return the state of a tile, merged of those of its segments in order."""
    _, is_only, first = next(states)
    if is_only:
        return first
    total = _empty(reduction, tile, reduction.limit)
    total.merge(first)
    for _, _, state in states:
        total.merge(state)
    return total


def _empty(reduction: Reduction, tile: Sequence[Interval], limit: int) -> State:
    groups = reduction.geometry.groups
    return State(reduction.work, reduction.shape(tile, groups), np.arange(groups), limit)


def _results(work: Work, state: State) -> Results:
    return results_of(work, state.shape, state.held)


class _Target:
    """Results of several tiles."""

    def __init__(self, reduction: Reduction) -> None:
        geometry, work = reduction.geometry, reduction.work
        sizes = [(0, reduction.array.shape[d]) for d in geometry.kept]
        shape = reduction.shape(sizes, geometry.groups)
        self._position = reduction.position
        self.results: Results = {}
        for operation in work.operations:
            self.results[operation] = shape.result(shape.full(0, work.result_dtype(operation))), None

    def put(self, tile: Sequence[Interval], results: Results, groups: slice = slice(None)) -> None:
        """Place the results of one tile, or of some groups."""
        key: list[slice] = [slice(*interval) for interval in tile]
        if self._position is not None:
            key.insert(self._position, groups)
        for operation, (values, missing) in results.items():
            into, mask = self.results[operation]
            into[tuple(key)] = values
            if missing is not None:
                if mask is None:
                    mask = np.zeros(into.shape, bool)
                    self.results[operation] = into, mask
                mask[tuple(key)] = missing


class _Segment(NamedTuple):
    """Keys of the blocks of a segment, and the number of its tile.

    ``is_only``: the tile has no other segment.
    """

    tile: int
    is_only: bool
    keys: list[Key]


def _states(
    reduction: Reduction, tiles: Sequence[Sequence[Interval]], threads: int | None
) -> Iterator[tuple[int, bool, State]]:
    """Yield the number of the tile, whether there is no other, and the state.

    That is, for each segment in order, whether it is the only one of its tile.
    """
    segments = _segments(reduction, tiles)
    first = list(islice(segments, 2))
    several = len(first) > 1
    wanted = threads or max(get_options().threads, DISTANT if _reads_remotely(reduction.array) else 1)
    count = max(1, min(wanted, _IN_FLIGHT // _bytes_of(reduction))) if several else 1
    # Few threads read several blocks at a time, and contend less for the interpreter lock.
    largest, dtype = reduction.geometry.largest_block, reduction.array.dtype
    each = dtype.itemsize + (dtype.kind != "f")  # values that are not floating are read with a mask
    spare = _IN_FLIGHT // count - _bytes_of(reduction) - _DECODING if several else 0
    room = max(largest, min(largest * each + spare, _READ) // each)
    work = partial(_fold_segments, reduction, deque(), room, 1 if several else wanted, tiles)
    bundles = _bundles(chain(first, segments), room, 3 * reduction.geometry.partial // each)
    if count == 1:
        for bundle in bundles:
            yield from work(bundle)
        return
    waiting: deque[Future[list[tuple[int, bool, State]]]] = deque()
    with ThreadPoolExecutor(count) as pool:
        try:
            for bundle in bundles:
                if len(waiting) > count:
                    yield from waiting.popleft().result()
                waiting.append(pool.submit(contextvars.copy_context().run, work, bundle))
            while waiting:
                yield from waiting.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)


def _segments(reduction: Reduction, tiles: Iterable[Sequence[Interval]]) -> Iterator[_Segment]:
    for number, tile in enumerate(tiles):
        before: list[Key] | None = None
        is_only = True
        for segment in reduction.geometry.segments(tile):
            if before is not None:
                is_only = False
                yield _Segment(number, False, before)
            before = segment
        if before is not None:
            yield _Segment(number, is_only, before)


def _bundles(segments: Iterable[_Segment], room: int, beside: int) -> Iterator[list[_Segment]]:
    """Yield successive segments whose blocks are read together.

    They need at most ``room`` elements in all; each has its blocks and ``beside``.
    """
    bundle: list[_Segment] = []
    size = 0
    for segment in segments:
        own = sum(map(elements_of, segment.keys)) + beside
        if bundle and size + own > room:
            yield bundle
            bundle, size = [], 0
        bundle.append(segment)
        size += own
    if bundle:
        yield bundle


def _bytes_of(reduction: Reduction) -> int:
    """Return the bytes that one segment needs: values, deviations, result."""
    block = reduction.geometry.largest_block
    deviations = 8 * ("moments" in reduction.work.accumulators)
    return max(1, block * (reduction.array.dtype.itemsize + deviations + 1) + 3 * reduction.geometry.partial + _DECODING)


def _reads_remotely(array: Any) -> bool:
    return array._known is None and any(uri is not None and is_remote(uri) for uri in array._matrix.references.uris[:1])


def _fold_segments(
    reduction: Reduction,
    buffers: deque[np.ndarray],
    room: int,
    threads: int,
    tiles: Sequence[Sequence[Interval]],
    segments: Sequence[_Segment],
) -> list[tuple[int, bool, State]]:
    """Read the blocks of segments; return their states as `_states` does.

    ``room``: elements that are read together, at most.
    """
    geometry, array = reduction.geometry, reduction.array
    states = [_state_of(reduction, tiles[segment.tile], segment) for segment in segments]
    blocks = [(state, key) for state, segment in zip(states, segments, strict=True) for key in segment.keys]
    folded = [(state, own) for state, key in blocks if (own := geometry.trim_to_groups(key)) is not None]
    owners = iter(folded)
    left = array.dtype.itemsize * sum(elements_of(key) for _, key in blocks)
    advance = reduction.advance or (lambda nbytes: None)
    try:
        buffer = buffers.pop()
    except IndexError:
        buffer = np.empty(room, array.dtype)
    with np.errstate(all="ignore"):
        for union, keys in joined_keys([key for _, key in folded], room):
            values = buffer[: elements_of(union)].reshape([s.stop - s.start for s in union])
            mask = _read(array, union, values, threads)
            for state, key in islice(owners, len(keys)):
                at = tuple(slice(s.start - u.start, s.stop - u.start) for s, u in zip(key, union, strict=True))
                _fold_block(reduction, state, key, values[at], None if mask is None else mask[at])
            left -= values.nbytes
            advance(values.nbytes)
    advance(left)
    buffers.append(buffer)
    return [(segment.tile, segment.is_only, state) for segment, state in zip(segments, states, strict=True)]


def _state_of(reduction: Reduction, tile: Sequence[Interval], segment: _Segment) -> State:
    """Return the empty state of a segment, of the groups that it has."""
    geometry = reduction.geometry
    groups = np.arange(geometry.groups)
    if not segment.is_only and geometry.numbers is not None and geometry.grouped is not None:
        numbers = [geometry.numbers[key[geometry.grouped]] for key in segment.keys]
        groups = np.unique(np.concatenate(numbers))
        groups = groups[groups >= 0]
    return State(reduction.work, reduction.shape(tile, len(groups)), groups, reduction.limit)


def _read(array: Any, key: Key, out: np.ndarray, threads: int) -> np.ndarray | None:
    """Read values, and return the mask; None if missing values are NaN."""
    if array.dtype.kind == "f":
        array.read(key, out=out, threads=threads)
        return None
    mask = np.ma.getmask(array.read(key, masked=True, out=out, threads=threads))
    return None if mask is np.ma.nomask else mask


def _fold_block(reduction: Reduction, state: State, key: Key, values: np.ndarray, missing: np.ndarray | None) -> None:
    geometry, shape = reduction.geometry, values.shape
    first = tuple(range(len(geometry.reduced)))
    summed = state.work.is_sum and bool(first) and geometry.reduced == first
    if values.dtype.kind == "f":
        # The maximum is NaN where any value is.
        missing = np.isnan(values) if not summed and np.isnan(values.max()) else None
    elif missing is not None and not missing.any():
        missing = None
    factors = _factors(reduction.factors, key)
    if not geometry.reduced:
        state.add(0, Part(values, missing, (), factors, range(0)))
        return
    axis = geometry.reduced[0] if geometry.grouped is None else geometry.grouped
    positions: Any = range(key[axis].start, key[axis].stop)
    runs, order = [Run(0, 0, shape[axis])], None
    if geometry.numbers is not None and geometry.grouped is not None:
        runs, order = runs_of(geometry.numbers[key[axis]])
    if order is not None:
        values, positions = values.take(order, axis), np.asarray(positions)[order]
        missing = None if missing is None else missing.take(order, axis)
        factors = [factor.take(order, axis) if factor.shape[axis] > 1 else factor for factor in factors]
    for run in shortened(runs, 2 * BLOCK * shape[axis] // values.size):
        at = (slice(None),) * axis + (slice(run.start, run.stop),)
        along = positions[run.start : run.stop]
        if summed:
            state.add(run.group, SummedPart(values[at], geometry.reduced, along))
            continue
        own = [factor[at] if factor.shape[axis] > 1 else factor for factor in factors]
        absent = None if missing is None else missing[at]
        state.add(run.group, Part(values[at], absent, geometry.reduced, own, along))


def _factors(factors: Sequence[Factor], key: Key) -> list[np.ndarray]:
    """Return the factors of a block, of the rank of its values."""
    result = []
    for dimensions, values in factors:
        own = values[tuple(key[d] for d in dimensions)].transpose(np.argsort(dimensions))
        result.append(own.reshape([s.stop - s.start if d in dimensions else 1 for d, s in enumerate(key)]))
    return result
