"""Join of arrays with known positions into one master array.

The first array (lowest along the sorted dimensions, then by URI) gives units, calendar, dimension order, names, directions
and missing value. Coordinates that span a joined dimension are joined the same way; the others are the first's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from aggarray.aggregate.candidate import Candidate
from aggarray.aggregate.identity import identity_of
from aggarray.aggregate.orientation import in_memory, oriented, unmatched_names
from aggarray.aggregate.rules import Rules
from aggarray.arrays.build import common_dtype
from aggarray.arrays.lazy import bounds_names, with_step
from aggarray.arrays.master import MasterArray
from aggarray.cf.encoding import items_of
from aggarray.cf.units import normal_calendar
from aggarray.cf.units.compatibility import conversion_between
from aggarray.dataclass import dataclass, field, replace
from aggarray.partition.conform import convert, fill_for
from aggarray.partition.matrix import Matrix, Parts, Step
from aggarray.partition.reference_builder import ReferenceBuilder
from aggarray.partition.tiling import Cells, gather, tile


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """The positions of candidates along the joined axes.

    ``sizes``: {identity: size of the union}; ``starts``, ``stops``: {identity: int64 per candidate}; ``tied``: {identity of a
    scalar coordinate: axis along which it changes}.
    """

    sizes: Mapping[str, int]
    starts: Mapping[str, np.ndarray]
    stops: Mapping[str, np.ndarray]
    tied: Mapping[str, str] = field(default_factory=dict)


def join(candidates: Sequence[Candidate], frame: Frame, rules: Rules) -> MasterArray:
    """Join candidates at the positions of a frame.

    Raises AggregationError if they overlap or need too large a matrix.
    """
    layout = _Layout(candidates, frame, rules)
    dimensions = list(layout.order.values())
    pieces = [oriented(c, own, dimensions, layout.increasing) for c, own in zip(candidates, layout.names, strict=True)]
    master = assemble(pieces, layout.boxes(pieces, range(len(pieces))), rules, [c.uri for c in candidates])
    return replace(master, coords=layout.coordinates(rules, master))


def assemble(
    pieces: Sequence[MasterArray],
    boxes: np.ndarray,
    rules: Rules,
    files: Sequence[str],
    file_attrs: Mapping[str, Any] | None = None,
) -> MasterArray:
    """Return the master of oriented arrays at boxes, without coordinates.

    ``files``: the name of each piece in errors; ``file_attrs`` of the master, None to compare those of the pieces.
    """
    first = pieces[0]
    name = Counter(p.name for p in pieces).most_common(1)[0][0]
    step = _step(pieces, rules, (name, first.name, identity_of(first)))
    shape = tuple(int(n) for n in boxes[:, :, 1].max(axis=0))
    matrices = []
    for p in pieces:
        own = p._step
        has_step = own == step or all(t.last_step == own and not t.unresolved for t in p._matrix.references.templates)
        matrices.append(p._matrix if has_step else with_step(p, step)._matrix)
    cells, origin = _cells(matrices, boxes)
    matrix = tile(cells, shape, overlap=rules.overlap, name=lambda cell: files[origin[cell]])
    declared = any(t.encoding.fill_value is not None for t in first._matrix.references.templates)
    fill = fill_for(step.dtype, first.fill_value if declared or first.dtype == step.dtype else None)
    known = _known_values(pieces, boxes, shape, step, fill, rules.overlap)
    attrs = common_attributes([p.attrs for p in pieces], ("standard_name", "long_name", "cell_methods"))
    file_attrs = common_attributes([p.file_attrs for p in pieces]) if file_attrs is None else file_attrs
    parameters = step.dtype, step.units, step.calendar, fill
    return MasterArray(name, *parameters, matrix, attrs, file_attrs, {}, known, first._access)


def _cells(matrices: Sequence[Matrix], boxes: np.ndarray) -> tuple[Cells, np.ndarray]:
    """Return the cells of matrices at their boxes, and the matrix of each."""
    if any(len(m.refs) != 1 or len(m.references) != 1 or m.refs[0] or m.parts.starts or m.parts.steps for m in matrices):
        return gather(matrices, boxes[:, :, 0])
    builder, first = ReferenceBuilder(), matrices[0]
    rows = np.array([builder.extend(m.references) for m in matrices], np.int32)
    return Cells(first.dimensions, first.directions, boxes, rows, Parts(), builder.build()), np.arange(len(matrices))


def _step(pieces: Sequence[MasterArray], rules: Rules, names: Sequence[str | None]) -> Step:
    """Return units and dtype of a master; ``names``: for the rules on units."""
    first = pieces[0]
    units = next((rules.units[n] for n in names if n is not None and n in rules.units), first.units)
    calendar = first.calendar if units == first.units else normal_calendar(units, first.calendar)
    distinct = {(p.units, p.calendar, id(p.attrs)): p for p in pieces}
    steps = dict.fromkeys(p._step for p in distinct.values())
    kinds = {step.temperature for step in steps}
    target = replace(first._step, units=units, calendar=calendar, temperature=kinds.pop() if len(kinds) == 1 else None)
    changes = [conversion_between(step, target) for step in steps]
    step = replace(target, dtype=common_dtype(list({p.dtype: None for p in pieces}), changes))
    # Converted values that do not fit the dtype need int64.
    wide = replace(step, dtype=np.dtype(np.int64))
    for piece in pieces if step.dtype.kind in "iu" and step.dtype.itemsize < 8 else ():
        if piece._known is None or (piece.units, piece.calendar) == (step.units, step.calendar):
            continue
        values, mask = convert(*piece._known, piece._step, wide)
        valid = values if mask is None else values[~mask]
        limits = np.iinfo(step.dtype)
        if valid.size and not limits.min <= valid.min() <= valid.max() <= limits.max:
            return wide
    return step


def _known_values(
    pieces: Sequence[MasterArray], boxes: np.ndarray, shape: tuple[int, ...], step: Step, fill: Any, overlap: str
) -> tuple[np.ndarray, np.ndarray | None] | None:
    """Return the joined values of scanned coordinates, None if any is unknown."""
    parts = [p._known for p in pieces if p._known is not None]
    if len(parts) < len(pieces):
        return None
    values, mask = np.full(shape, fill, step.dtype), np.ones(shape, bool)
    for row in range(len(pieces)) if overlap == "last" else reversed(range(len(pieces))):
        piece = pieces[row]
        where = tuple(slice(low, high) for low, high in boxes[row].tolist())
        block, absent = parts[row]
        if (piece.units, piece.calendar, piece.dtype) != (step.units, step.calendar, step.dtype):
            block, absent = convert(block, absent, piece._step, step)
        values[where] = block if absent is None else np.where(absent, fill, block)
        mask[where] = False if absent is None else absent
    values.flags.writeable = False
    return values, (mask if mask.any() else None)


def common_attributes(all_attrs: Sequence[Mapping[str, Any]], first_keys: Sequence[str] = ()) -> dict[str, Any]:
    """Return the attributes that are equal everywhere.

    Attributes named in ``first_keys`` are the first's.

    >>> common_attributes([{"a": 1, "title": "x", "long_name": "p"}, {"a": 1, "title": "y", "long_name": "q"}], ["long_name"])
    {'a': 1, 'long_name': 'p'}
    """
    first = all_attrs[0]
    common = dict(first)
    for attrs in {id(a): a for a in all_attrs}.values():
        # Set intersection is fast for the many attributes that are equal and hashable.
        try:
            different = dict(common.items() - attrs.items())
        except TypeError:  # arrays are not hashable
            different = common
        for key in [k for k, v in different.items() if not same_attribute(v, attrs.get(k))]:
            del common[key]
    return {k: v for k, v in first.items() if k in common or k in first_keys}


def same_attribute(a: Any, b: Any) -> bool:
    """Return whether two attribute values are equal; NaN equals NaN."""
    if isinstance(a, str) or isinstance(b, str):
        return bool(isinstance(a, str) and isinstance(b, str) and a == b)
    if a is None or b is None:
        return a is b
    return same_values(items_of(a), items_of(b))


def same_values(one: np.ndarray, other: np.ndarray) -> bool:
    """Return whether two arrays have equal shapes and values; NaN equals NaN."""
    return np.array_equal(one, other, equal_nan=one.dtype.kind in "fc" and other.dtype.kind in "fc")


def _spanned(first: Candidate, name: str, frame: Frame) -> list[str]:
    """Return the joined axes that a coordinate spans or is tied to."""
    own = {p.name: key for key, p in first.axes.items()}
    spanned = [own[d] for d in first.array.coords[name].dimensions if own.get(d) in frame.sizes]
    parent = next((n for n, bounds in first.bounds.items() if bounds == name), name)
    key = own.get(parent)
    if spanned or key is None or not first.axes[key].scalar:
        return spanned
    key = frame.tied.get(key, key)
    return [key] if key in frame.sizes else []


def match_coordinates(first: Candidate, other: Candidate) -> dict[str, str]:
    """Return {coordinate of the first: the same coordinate of the other}."""
    if other.identities is first.identities or (other.identities == first.identities and other.bounds == first.bounds):
        return {name: name for name in first.identities}
    # Of several with one identity, those of equal names belong together.
    keys, others = ({n: (i, n in c.bounds) for n, i in c.identities.items()} for c in (first, other))
    matches = {name: name for name, key in keys.items() if others.get(name) == key}
    free: dict[tuple[str, bool], list[str]] = {}
    for name, key in others.items():
        if name not in matches:
            free.setdefault(key, []).append(name)
    for name, key in keys.items():
        if name not in matches:
            matches[name] = free[key].pop(0) if free.get(key) else name
    for name, bounds in first.bounds.items():
        matches[bounds] = other.bounds.get(matches[name], bounds)
    return matches


def same_vertices(piece: MasterArray, before: Sequence[MasterArray]) -> MasterArray:
    """Reverse pairs of bounds that run against those of the first piece."""
    for axis, d in enumerate(piece.dimensions if before else ()):
        if piece.directions[axis] != before[0].directions[axis]:
            piece = piece.flip(d)
    return piece


class _Layout:
    """Dimensions of a master of candidates at the positions of a frame.

    ``order``: {identity: name}; ``increasing``: by name; ``names``: {own name: master's} of the axes of each candidate.
    """

    def __init__(self, candidates: Sequence[Candidate], frame: Frame, rules: Rules) -> None:
        self.candidates, self.frame, first = candidates, frame, candidates[0]
        own = {p.name: key for key, p in first.axes.items() if not p.scalar}
        # Joined scalar coordinates lead.
        leading = {key: p.name for key, p in first.axes.items() if p.scalar and key in frame.sizes}
        self.order = {**leading, **{own[d]: d for d in first.array.dimensions}}
        self.increasing = {}
        for key, d in self.order.items():
            axis, requested = first.axes[key], rules.directions.get(d, rules.directions.get(key))
            has_values = axis.coordinate is not None or axis.scalar
            increases = not axis.flipped if has_values else first.array.directions[first.array.dimensions.index(axis.name)]
            self.increasing[d] = increases if requested is None else bool(requested)
        self.names = [{p.name: self.order[key] for key, p in c.axes.items() if key in self.order} for c in candidates]

    def boxes(self, pieces: Sequence[MasterArray], rows: Sequence[int]) -> np.ndarray:
        """Return boxes of pieces of ``rows``: int64 (pieces, dimensions, 2)."""
        frame, keys = self.frame, {self.order[k]: k for k in self.frame.sizes if k in self.order}
        boxes = np.zeros((len(pieces), pieces[0].ndim, 2), np.int64)
        boxes[:, :, 1] = pieces[0].shape
        for axis, dimension in enumerate(pieces[0].dimensions):
            if dimension in keys:
                key = keys[dimension]
                size, starts, stops = frame.sizes[key], frame.starts[key][rows], frame.stops[key][rows]
                span = [starts, stops] if self.increasing[dimension] else [size - stops, size - starts]
                boxes[:, axis] = np.stack(span, axis=-1)
        return boxes

    def coordinates(self, rules: Rules, master: MasterArray) -> dict[str, MasterArray]:
        """Return the coordinates of a master, joined along joined dimensions.

        Others are those of the first. Bounds take the units of the master or of the coordinate that they belong to.
        """
        first = self.candidates[0]
        matches = [match_coordinates(first, c) for c in self.candidates]
        parents = {bounds: name for name, bounds in first.bounds.items()}
        master_bounds = bounds_names(first.array)
        coords: dict[str, MasterArray] = {}
        for name in sorted(first.array.coords, key=lambda n: n in parents or n in master_bounds):
            own_rules = rules
            if name in parents or name in master_bounds:
                parent = coords[parents[name]] if name in parents else master
                own, units = first.array.coords[name], parent.units
                own_rules = replace(rules, units={} if units is None or own.units == units else {str(own.name): units})
            coords[name] = self._coordinate(name, [m[name] for m in matches], own_rules, master.file_attrs)
        return {name: coords[name] for name in first.array.coords}

    def _coordinate(self, name: str, names: Sequence[str], rules: Rules, file_attrs: Mapping[str, Any]) -> MasterArray:
        """Join one coordinate, its ``names`` per candidate, at distinct positions."""
        frame, rows = self.frame, [0]
        spanned = _spanned(self.candidates[0], name, frame)
        if spanned:
            columns = np.stack([c[k] for k in spanned for c in (frame.starts, frame.stops)], axis=-1)
            rows = sorted(np.unique(columns, axis=0, return_index=True)[1].tolist())
        pieces: list[MasterArray] = []
        own = self.candidates[0].array.coords[name].dimensions
        # Joined axes of which it was a scalar lead.
        dimensions = (*(self.order[k] for k in spanned if self.order[k] not in own), *own)
        for row in rows:
            candidate, renamed = self.candidates[row], self.names[row]
            coordinate = candidate.array.coords[names[row]]
            if coordinate.dimensions != dimensions:
                renamed = {**unmatched_names(candidate, coordinate, dimensions), **renamed}
            piece = same_vertices(oriented(candidate, renamed, dimensions, self.increasing, coordinate), pieces)
            for key in spanned:
                axis, extent = dimensions.index(self.order[key]), int(frame.stops[key][row] - frame.starts[key][row])
                if piece.shape[axis] == 1 < extent:
                    values, mask = (None if k is None else np.repeat(k, extent, axis) for k in piece._values_and_mask())
                    piece = in_memory(piece, np.asarray(values), mask)
            pieces.append(piece)
        if not spanned and not rules.units:
            return pieces[0]
        own_rules = replace(rules, overlap="first" if rules.overlap == "refuse" else rules.overlap)
        in_files = all(len(p._matrix.references.uris) for p in pieces)
        known_attrs = file_attrs if spanned and in_files and len(rows) == len(self.candidates) else None
        return assemble(pieces, self.boxes(pieces, rows), own_rules, [self.candidates[r].uri for r in rows], known_attrs)
