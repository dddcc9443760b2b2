"""`concat`: join arrays in the order given, with or without coordinates."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from aggarray.aggregate.candidate import Candidate, CandidateCache, describe, describe_units, quantity_of
from aggarray.aggregate.equality import difference
from aggarray.aggregate.identity import uri_of
from aggarray.aggregate.join import assemble, match_coordinates, same_vertices
from aggarray.aggregate.orientation import oriented, unmatched_names
from aggarray.aggregate.ragged import concat_ragged
from aggarray.aggregate.rules import Rules
from aggarray.arrays.master import MasterArray
from aggarray.arrays.ragged import RaggedMasterArray
from aggarray.cf.units.compatibility import incompatibility
from aggarray.dataclass import replace
from aggarray.errors import AggregationError, UnitsError
from aggarray.memory.selection import Range
from aggarray.partition.tiling import relabel


def concat(arrays: Iterable[MasterArray], dimension: str) -> MasterArray:
    """Join arrays along a dimension, in the order given.

    A dimension that no array has becomes a new leading dimension. Everything else is conformed to the first array: units,
    calendar, dimension order, direction, dtype, missing value. Coordinates that span the dimension, or differ, are joined
    along it; coordinates of other dimensions must be equal. Raises AggregationError for arrays that do not fit together,
    including arrays whose units do not convert.

    >>> from aggarray.arrays.subarray import SubArray
    >>> a, b = (MasterArray.from_subarrays([([(0, 1)], SubArray.from_array([v]))], dimensions=("x",)) for v in (1.0, 2.0))
    >>> concat([a, b], "x")[:].tolist(), concat([a, b], "member").shape
    ([1.0, 2.0], (2, 1))
    """
    if not isinstance(dimension, str):
        raise AggregationError(f"dimension {dimension!r} ({type(dimension).__name__}) is not a name", hint="give a string")
    if not isinstance(arrays, Iterable) or isinstance(arrays, MasterArray):  # type: ignore[unreachable]
        raise AggregationError(f"arrays is not a list but a {type(arrays).__name__}", hint="give a list of MasterArrays")
    cache, masters = CandidateCache(), [require_array(array) for array in arrays]
    if any(isinstance(array, RaggedMasterArray) for array in masters):
        return concat_ragged(masters, dimension)
    candidates = [Candidate(array, uri_of(array), number) for number, array in enumerate(masters)]
    for candidate in candidates:
        describe(candidate, (), cache)
    if not candidates:
        raise AggregationError("no arrays to join", hint="give at least one")
    first = candidates[0]
    key = next((k for c in candidates for k, p in c.axes.items() if p.name == dimension), dimension)
    for other in candidates[1:]:
        _check(first, other, key, dimension)
    leading = [] if dimension in first.array.dimensions else [dimension]
    order = [*leading, *first.array.dimensions]
    join = _Join(candidates, dimension, key, [match_coordinates(first, c) for c in candidates])
    master = join.joined([c.array for c in candidates], order)
    return replace(master, coords=join.coordinates())


def _check(first: Candidate, other: Candidate, key: str, dimension: str) -> None:
    """Raise AggregationError unless two arrays differ along ``key`` alone."""
    pair = f"array 0 ({first.array.name or 'nameless'}) and array {other.number} ({other.array.name or 'nameless'})"
    reason = incompatibility(other.array.units, other.array.calendar, first.array.units, first.array.calendar)
    if reason is None and quantity_of(first.array) != quantity_of(other.array):
        reason = describe_units(first.array, other.array)
    if reason is not None:
        raise AggregationError(f"{pair}: {reason}", hint="give arrays whose units convert")
    sizes, others = ({k: p.size for k, p in c.axes.items() if k != key and not p.scalar} for c in (first, other))
    if sizes.keys() != others.keys():
        text = f"dimensions differ: {sorted(sizes)} and {sorted(others)}"
        raise AggregationError(f"{pair}: {text}, where only {dimension!r} may differ", hint="give arrays of equal dimensions")
    for k, size in sizes.items():
        if others[k] != size:
            text = f"dimension {first.axes[k].name!r} has size {size} and {others[k]}"
            raise AggregationError(f"{pair}: {text}, where only {dimension!r} may differ", hint="give arrays of equal sizes")
        names = (first.axes[k].name, other.axes[k].name)
        if first.axes[k].coordinate is not None and other.axes[k].coordinate is not None:
            reason = difference(first, other, names, Rules().tolerance)
            if reason is not None:
                raise AggregationError(f"{pair}: {reason}", hint="give arrays of equal coordinates")


class _Join:
    """Arrays to be joined along one dimension, and their positions along it."""

    def __init__(self, candidates: list[Candidate], dimension: str, key: str, matches: list[dict[str, str]]) -> None:
        self.candidates, self.dimension, self.key, self.matches = candidates, dimension, key, matches
        sizes = [1 if key not in c.axes or c.axes[key].scalar else c.axes[key].size for c in candidates]
        self.stops = np.cumsum(sizes)
        self.starts = self.stops - sizes
        first = candidates[0]
        self.names = {k: p.name for k, p in first.axes.items() if k != key} | {key: dimension}
        # `_aligned` reverses dimensions without a coordinate, by the directions of their arrays.
        located = {k: p for k, p in first.axes.items() if k != key and not p.scalar and p.coordinate is not None}
        self.increasing = {p.name: not p.flipped for p in located.values()}

    def joined(self, items: Sequence[MasterArray], order: Sequence[str]) -> MasterArray:
        """Join the arrays, or one coordinate of each, under dimensions ``order``."""
        pieces: list[MasterArray] = []
        for candidate, item in zip(self.candidates, items, strict=True):
            own = {p.name: self.names[k] for k, p in candidate.axes.items() if k in self.names}
            piece = oriented(candidate, {**unmatched_names(candidate, item, order), **own}, order, self.increasing, item)
            pieces.append(self._aligned(piece, pieces))
        boxes = np.stack([np.array([[0, n] for n in p.shape], np.int64) for p in pieces])
        axis = pieces[0].dimensions.index(self.dimension)
        boxes[:, axis] = np.stack([self.starts, self.stops], axis=-1)
        return assemble(pieces, boxes, Rules(), [c.uri for c in self.candidates])

    def _aligned(self, piece: MasterArray, before: Sequence[MasterArray]) -> MasterArray:
        """Orient a piece like the first: relabel or reverse its dimensions."""
        for axis, name in enumerate(piece.dimensions if before else ()):
            # promise: concat-directions
            if piece.directions[axis] == before[0].directions[axis]:
                continue
            if name == self.dimension:
                piece = replace(piece, _matrix=relabel(piece._matrix, axis))
            else:
                size = piece.shape[axis]
                piece = piece._turned({name: Range(size - 1, size, -1)})
        return same_vertices(piece, before)

    def coordinates(self) -> dict[str, MasterArray]:
        """Return the coordinates that all arrays have, joined where they differ."""
        first, coords = self.candidates[0], dict[str, MasterArray]()
        for name, coordinate in first.array.coords.items():
            items = [c.array.coords.get(m[name]) for c, m in zip(self.candidates, self.matches, strict=True)]
            present = [i for i in items if i is not None]
            if len(present) < len(items):
                continue
            pairs = zip(self.candidates, present, strict=True)
            try:
                if name != self.dimension and not any(self._spans(candidate, item) for candidate, item in pairs):
                    others = zip(self.candidates[1:], self.matches[1:], strict=True)
                    texts = (difference(first, c, (name, m[name]), Rules().tolerance) for c, m in others)
                    text = next((t for t in texts if t is not None), None)
                    if text is None:
                        coords[name] = coordinate
                        continue
                    if int(self.stops[-1]) != len(items):
                        raise AggregationError(f"coordinates that do not span {self.dimension!r} differ: {text}")
                leading = [] if self.dimension in coordinate.dimensions else [self.dimension]
                coords[name] = self.joined(present, [*leading, *coordinate.dimensions])
            except UnitsError as error:
                raise AggregationError(*error.args, path=error.path, variable=name, hint=error.hint) from error
        return coords

    def _spans(self, candidate: Candidate, coordinate: MasterArray) -> bool:
        own = {p.name: self.names.get(k, p.name) for k, p in candidate.axes.items() if not p.scalar}
        return self.dimension in [own.get(d, d) for d in coordinate.dimensions]


def require_array(item: Any) -> MasterArray:
    """Return the item if it is a MasterArray, else raise AggregationError."""
    if isinstance(item, MasterArray):
        return item
    hint = "give arrays of an aggregation or of MasterArray.from_subarrays"
    raise AggregationError(f"{type(item).__name__} is not a MasterArray", hint=hint)
