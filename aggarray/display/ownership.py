"""SVG picture of the owners of elements, made without a library."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from aggarray.errors import ProtocolError
from aggarray.maps import Distribution, Map

#: The most elements along a dimension that the eye can distinguish.
MOST = 64
#: Side of an element, gap between rows, width of the column of names, in pixels.
_CELL, _GAP, _NAMES = 24, 8, 72
#: Distinguishable from each other, and from a light and a dark page.
COLOURS = ("#4e79a7", "#f28e2b", "#59a14f", "#b07aa1", "#e15759", "#76b7b2", "#9c755f", "#edc948")


def picture(distribution: Distribution | Map) -> str:
    """Return a picture of a distribution (1-d, 2-d) or map as SVG text.

    One dimension: the owner of each element, and below it the buffer of each process, one cell per element with its global
    index, pale for communication padding. Two dimensions: the rank that owns each element. Raises ProtocolError for more
    dimensions, or more than 64 elements along one.

    >>> picture(Distribution.regular((6,), "b", (2,)))[:4]
    '<svg'
    """
    d = Distribution((distribution,)) if isinstance(distribution, Map) else distribution
    if not 1 <= len(d.maps) <= 2 or max(d.shape, default=0) > MOST or (len(d.maps) == 1 and d.nprocs > MOST):
        what = f"shape {d.shape} is too large for a picture: it has one or two dimensions of up to {MOST} elements"
        raise ProtocolError(what, hint="take a part")
    shapes = list(_strips(d.maps[0]) if len(d.maps) == 1 else _plane(d))
    width = max([x + (_NAMES if rank is None else _CELL) for x, _, rank, *_ in shapes], default=0) + 2
    height = max([y + _CELL for _, y, *_ in shapes], default=0) + 2
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="11" text-anchor="middle">',
        '<rect width="100%" height="100%" fill="white"/>',
        *(_shape_svg(*shape) for shape in shapes),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


#: Left, top, rank of the colour (None: a name without a box), pale, text.
_Shape = tuple[int, int, int | None, bool, str]


def _strips(m: Map) -> Iterator[_Shape]:
    labels = np.unique(np.concatenate([m.owned(rank) for rank in range(m.nprocs)]))
    yield 0, 0, None, False, "owner"
    for column, owner in enumerate(m.owner(labels).tolist()):
        yield _NAMES + column * _CELL, 0, owner, False, str(owner)
    for rank in range(m.nprocs):
        top = (rank + 1) * (_CELL + _GAP)
        yield 0, top, None, False, f"process {rank}"
        owned = m.owned_slice(rank)
        for column, index in enumerate(m.indices(rank).tolist()):
            padding = not owned.start <= column < owned.stop
            yield _NAMES + column * _CELL, top, rank, padding, str(index)


def _plane(d: Distribution) -> Iterator[_Shape]:
    rows, columns = d.shape
    owners = d.owner(tuple(np.indices(d.shape))) if rows and columns else np.zeros(d.shape, int)
    for (i, j), owner in np.ndenumerate(owners):
        yield j * _CELL, i * _CELL, int(owner), False, str(owner)


def _shape_svg(x: int, y: int, rank: int | None, pale: bool, text: str) -> str:
    where = f'x="{x + (_NAMES if rank is None else _CELL) // 2}" y="{y + _CELL // 2 + 4}"'
    if rank is None:
        return f"<text {where}>{text}</text>"
    opacity = ' fill-opacity=".25"' if pale else ""
    style = f'fill="{COLOURS[rank % len(COLOURS)]}"{opacity} stroke="white"'
    box = f'<rect x="{x + 1}" y="{y + 1}" width="{_CELL}" height="{_CELL}" {style}/>'
    return f'{box}<text {where} fill="{"#555" if pale else "white"}">{text}</text>'
