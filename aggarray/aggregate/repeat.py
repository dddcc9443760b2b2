"""Which arrays repeat others exactly, and so are used once?

Arrays at the same positions throughout whose coordinates and values are equal, missing ones too, after conforming. Values are
read in blocks, and only as far as they agree.
"""

from collections.abc import Callable, Iterator
from itertools import zip_longest

import numpy as np

from aggarray.aggregate.candidate import Candidate, oriented
from aggarray.aggregate.equal import difference
from aggarray.aggregate.join import match_coordinates
from aggarray.aggregate.view import View
from aggarray.errors import AggarrayError
from aggarray.master import MasterArray

#: Values are compared in blocks of about this many bytes.
BLOCK = 16 << 20
#: Among arrays at the same positions, each is compared with this many different ones.
MOST = 4

Note = Callable[[Candidate, Candidate], None]


def without_repeats(view: View, note: Note, differing: set[tuple[int, int]]) -> list[Candidate] | None:
    """Return the group without exact repeats, told to ``note`` (repeat, kept); None where there are none.

    ``differing``: pairs, by number, known to differ; new ones are added.
    """
    if any(view.group[0].places[k].name in view.rules.order for k in view.layouts):
        return None
    here: dict[tuple[int, ...], list[Candidate]] = {}
    kept = []
    for row, one in enumerate(view.group):
        alike = here.setdefault(tuple(layout.classes[row] for layout in view.layouts.values()), [])
        twin = next((other for other in alike[:MOST] if _repeats(one, other, differing, view.rules.tolerance)), None)
        if twin is None:
            alike.append(one)
            kept.append(one)
        else:
            note(one, twin)
    return kept if len(kept) < len(view.group) else None


def _repeats(one: Candidate, other: Candidate, differing: set[tuple[int, int]], fraction: float) -> bool:
    pair = (one.number, other.number)
    if pair in differing or one.number == other.number:
        return False
    if _same_coordinates(other, one, fraction) and _same_values(other, one):
        return True
    differing.add(pair)
    return False


def _same_coordinates(one: Candidate, other: Candidate, fraction: float) -> bool:
    placed = {p.name for p in one.places.values()}
    matches = match_coordinates(one, other)
    return all(difference(one, other, (n, matches[n]), fraction) is None for n in one.array.coords if n not in placed)


def _same_values(one: Candidate, other: Candidate) -> bool:
    """Compare the values of two arrays, the second in the order, directions and units of the first."""
    names = {p.name: one.places[key].name for key, p in other.places.items()}
    order = list(one.array.dimensions)
    upwards = {p.name: not p.flipped for p in one.places.values() if not p.scalar}
    try:
        a = one.array
        b = oriented(other, names, [d for d in order if d in names.values()], upwards)
        if b.shape != a.shape:
            return False
        if (b.units, b.calendar) != (a.units, a.calendar) and b.units is not None and a.units is not None:
            b = b.to_units(a.units, a.calendar)
        blocks = zip_longest(_blocks(a), _blocks(b))
        return all(_equal(x, y) for x, y in blocks)
    except AggarrayError:
        return False


def _blocks(array: MasterArray) -> Iterator[np.ndarray]:
    """Yield the values in blocks along the first dimension."""
    if not array.ndim:
        yield array.read(masked=True)
        return
    rows = max(1, BLOCK // max(1, array.nbytes // max(1, len(array))))
    for start in range(0, len(array), rows):
        yield array.read(slice(start, start + rows), masked=True)


def _equal(x: np.ndarray, y: np.ndarray) -> bool:
    missing, also = np.ma.getmaskarray(x), np.ma.getmaskarray(y)
    if not np.array_equal(missing, also):
        return False
    a, b = np.ma.getdata(x)[~missing], np.ma.getdata(y)[~also]
    return np.array_equal(a, b, equal_nan=a.dtype.kind in "fc" and b.dtype.kind in "fc")
