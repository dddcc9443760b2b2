"""Join of ragged arrays: the instances of equal arrays follow each other.

Instances have no positions to sort by: files are ordered by name, or as given where the rules say so. Counts and indices
of later files are shifted; samples are not read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np

from aggarray.aggregate.candidate import Candidate, Signature, describe_difference, describe_values, plain_attribute
from aggarray.aggregate.identity import identity_of, uri_of
from aggarray.aggregate.join import assemble, same_values
from aggarray.aggregate.rules import Rules, facets_in
from aggarray.arrays.master import MasterArray
from aggarray.arrays.ragged import RaggedMasterArray, ragged
from aggarray.arrays.row_geometry import Geometry, Part
from aggarray.cf.attributes import basename
from aggarray.errors import AggregationError


def describe_ragged(candidate: Candidate, facets: Sequence[str]) -> None:
    """Describe a ragged candidate; raise FormatError if its rows do not fit."""
    array: Any = candidate.array
    geometry = array._instances
    if all(part.known for part in geometry.parts):
        geometry.rows(array._access)
    signature: Signature = {
        **facets_in(array, facets),
        "group": (array.name or "").rpartition("/")[0],
        "dimensions": (*array.dimensions, *array._matrix.dimensions),
        "identity": identity_of(array),
        **describe_values(array),
        "coordinates": tuple(sorted(array.coords)),
    }
    for name, coordinate in sorted(array.coords.items()):
        signature |= {f"{name}: identity": identity_of(coordinate), **describe_values(coordinate, f"{name}: ")}
        along = coordinate.dimensions if isinstance(coordinate, RaggedMasterArray) else coordinate._matrix.dimensions
        joined = (*array.dimensions, *(along[:1] if _is_of_samples(coordinate, array) else ()))
        sizes = tuple(n for d, n in zip(along, coordinate.shape, strict=True) if d not in joined)
        signature[f"{name}: dimensions"] = f"{coordinate._matrix.dimensions} of {sizes or 'instances'}"
        if set(joined).isdisjoint(along) and coordinate._known is not None:
            signature[f"{name}: values"] = plain_attribute(coordinate._known[0])
    candidate.signature = signature


def _is_of_samples(coordinate: MasterArray, array: MasterArray) -> bool:
    """Return whether a coordinate has dimensions after the samples (bounds)."""
    return not isinstance(coordinate, RaggedMasterArray) and coordinate._matrix.dimensions[:1] == array._matrix.dimensions


def join_ragged(candidates: Sequence[Candidate], rules: Rules) -> MasterArray:
    """Join ragged arrays of one signature, or raise AggregationError."""
    arrays = [c.array for c in candidates if isinstance(c.array, RaggedMasterArray)]
    first, geometries = arrays[0], [a._instances for a in arrays]
    if len(arrays) == 1 and not rules.units:
        return first
    if any(g.chosen is not None for g in geometries):
        hint = "join the arrays first, then select"
        raise AggregationError("a selection of rows cannot be joined", variable=first.name, hint=hint)
    along = partial(_along, rules=rules)
    # Adjacent parts of one representation become one part.
    groups = groupby(
        (part for geometry in geometries for part in geometry.parts),
        lambda p: (p.counts is None, p.index is None, [basename(a.name or "") for a in p.present]),
    )
    geometry = Geometry(geometries[0].dimension, tuple(_part(list(group), along) for _, group in groups))
    coords: dict[str, MasterArray] = {}
    runs: Geometry | None = None
    for name, coordinate in first.coords.items():
        pieces = [a.coords[name] for a in arrays]
        if not isinstance(coordinate, RaggedMasterArray):
            is_joined = first.dimensions[0] in coordinate.dimensions or _is_of_samples(coordinate, first)
            coords[name] = along(pieces) if is_joined else coordinate
            continue
        same_samples = coordinate._matrix.dimensions == first._matrix.dimensions
        if not same_samples and runs is None:
            runs = Geometry(geometry.dimension, tuple(part.of_runs() for part in geometry.parts))
        joined = along([p._samples({}) for p in pieces if isinstance(p, RaggedMasterArray)])
        coords[name] = ragged(joined, geometry if same_samples or runs is None else runs, {})
    return ragged(along([a._samples({}) for a in arrays]), geometry, coords)


def concat_ragged(arrays: Sequence[MasterArray], dimension: str) -> MasterArray:
    """Join ragged arrays in the given order, or raise AggregationError."""
    candidates = []
    for number, array in enumerate(arrays):
        if not isinstance(array, RaggedMasterArray):
            what = f"array {number} ({array.name or 'nameless'}) is not ragged, others are"
            raise AggregationError(what, hint="join ragged arrays separately")
        if array.dimensions != (dimension,):
            raise AggregationError(
                f"array {number} ({array.name or 'nameless'}): a ragged array is joined along its instances "
                f"({array.dimensions[0]!r}), not along {dimension!r}"
            )
        candidates.append(Candidate(array, uri_of(array), number))
        describe_ragged(candidates[-1], ())
    for other in candidates[1:]:
        if other.signature != candidates[0].signature:
            raise AggregationError(f"array 0 and array {other.number}: {describe_difference(candidates[0], other)[1]}")
    return join_ragged(candidates, Rules())


def without_duplicates(group: Sequence[Candidate]) -> tuple[list[Candidate], list[tuple[Candidate, Candidate]]]:
    """Return ragged arrays without duplicates, and (duplicate, kept) pairs."""
    kept: list[Candidate] = []
    duplicates: list[tuple[Candidate, Candidate]] = []
    by_key: dict[object, list[Candidate]] = defaultdict(list)
    for candidate in group:
        array = candidate.array
        known = [(name, c._known[0]) for name, c in sorted(array.coords.items()) if c._known is not None]
        texts = [(name, values.tolist() if values.dtype.kind == "T" else values.tobytes()) for name, values in known]
        similar = by_key[array.shape, array._matrix.shape, array.units, repr(texts)]
        first = next((other for other in similar if _equal(array, other.array)), None)
        if first is None:
            similar.append(candidate)
            kept.append(candidate)
        else:
            duplicates.append((candidate, first))
    return kept, duplicates


def _equal(one: MasterArray, other: MasterArray) -> bool:
    if isinstance(one, RaggedMasterArray) and isinstance(other, RaggedMasterArray):
        if not np.array_equal(one.offsets, other.offsets) or not same_values(one.read().flat, other.read().flat):
            return False
    elif not same_values(one.read(), other.read()):
        return False
    return all(_equal(c, other.coords[name]) for name, c in one.coords.items())


def _part(parts: Sequence[Part], along: Callable[[Sequence[MasterArray]], MasterArray]) -> Part:
    cuts, before = [np.zeros((1, 3), np.int64)], np.zeros(3, np.int64)
    for part in parts:
        cuts.append(part.cuts[1:] + before)
        before = cuts[-1][-1]
    counts, index = [p.counts for p in parts if p.counts is not None], [p.index for p in parts if p.index is not None]
    present = tuple(along(list(pieces)) for pieces in zip(*(p.present for p in parts), strict=True))
    return Part(np.concatenate(cuts), along(counts) if counts else None, along(index) if index else None, present)


def _along(pieces: Sequence[MasterArray], rules: Rules) -> MasterArray:
    """Return arrays joined along their first dimension, without empty ones."""
    sizes = [a._matrix.shape[0] for a in pieces]
    used = [n for n, size in enumerate(sizes) if size] or [0]
    ends = np.cumsum([sizes[n] for n in used])
    shape = pieces[used[0]]._matrix.shape
    boxes = np.zeros((len(used), len(shape), 2), np.int64)
    boxes[:, :, 1] = shape
    boxes[:, 0, 1] = ends
    boxes[1:, 0, 0] = ends[:-1]
    return assemble([pieces[n] for n in used], boxes, rules, [uri_of(pieces[n]) for n in used])


def by_ragged_signature(members: Sequence[Candidate], rules: Rules) -> list[list[Candidate]]:
    """Group ragged arrays by signature, each group in its order."""
    groups: dict[object, list[Candidate]] = defaultdict(list)
    for member in members:
        groups[frozenset(member.signature.items())].append(member)
    results = []
    for group in groups.values():
        names = [basename(member.array.name or "") for member in group]
        # Several arrays of one file are distinguished by name.
        unambiguous = len({member.uri for member in group}) == len(group) or len(set(names)) == 1
        for name in [None] if unambiguous else dict.fromkeys(names):
            part = [member for member, own in zip(group, names, strict=True) if name in (None, own)]
            dimension = part[0].array.dimensions[0]
            results.append(part if rules.order.get(dimension) == "given" else sorted(part, key=lambda c: c.uri))
    return results
