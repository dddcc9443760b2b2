"""When values of one array fall between values of another, can both be cut into runs that share a dimension?

They can where no hole comes of it, and where such files exist: times, members and levels interleave, horizontal
coordinates that do so are different grids.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise, product

import numpy as np

from aggarray.aggregate.candidate import Candidate, candidate
from aggarray.aggregate.divide import covered
from aggarray.aggregate.equal import is_horizontal
from aggarray.aggregate.positions import Layout
from aggarray.aggregate.view import View
from aggarray.errors import AggregationError
from aggarray.selection import Range


def cut(view: View) -> list[Candidate] | None:
    """Return the group with interleaved arrays cut into runs of consecutive positions; None where none is, or must not be."""
    keys = [k for k in view.varying if not all(map(view.layouts[k].contiguous, range(len(view.layouts[k].positions))))]
    if not keys or any(_never(c, k) for c in view.group for k in keys):
        return None
    pieces = [piece for row, one in enumerate(view.group) for piece in _pieces(one, row, keys, view)]
    again = View(pieces, view.rules)
    try:
        whole = again.broken is None and covered(again, list(again.varying)) == 1.0
    except AggregationError:
        return None
    return pieces if whole else None


def _never(one: Candidate, key: str) -> bool:
    place = one.places[key]
    return place.coordinate is None or not place.monotonic or place.scalar or is_horizontal(place.coordinate)


def _pieces(one: Candidate, row: int, keys: list[str], view: View) -> Iterator[Candidate]:
    """Yield the runs of a candidate; itself where it has one."""
    stretches = [_stretches(view.layouts[k], row) for k in keys]
    if all(len(s) <= 1 for s in stretches):
        yield one
        return
    for combination in product(*stretches):
        chosen = {}
        for key, (start, stop) in zip(keys, combination, strict=True):
            place = one.places[key]
            first = place.size - stop if place.flipped else start
            chosen[place.name] = Range(first, stop - start)
        array = one.array._chosen(chosen)
        run = candidate(array, one.number, ())
        for key in keys:  # a run of one value has no direction of its own
            run.places[key].flipped = one.places[key].flipped
        yield replace(run, uri=one.uri, signature=one.signature, rank=one.rank, whole=one.whole or one)


def _stretches(layout: Layout, row: int) -> list[tuple[int, int]]:
    """Return (start, stop) of the stretches of consecutive positions of a candidate, in its ascending elements."""
    positions = layout.positions[layout.classes[row]]
    cuts = [0, *(np.flatnonzero(np.diff(positions) != 1) + 1).tolist(), len(positions)]
    return list(pairwise(cuts))
