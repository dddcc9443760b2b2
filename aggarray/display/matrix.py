"""SVG picture of the partition matrix of an array, made without a library.

No file is read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from aggarray.display import palette
from aggarray.display.cells import (
    IN_MEMORY,
    MISSING,
    cells_of,
    displayed_dimensions,
    is_drawn_upwards,
    spans,
    spans_of,
    times_of,
    virtual_count,
)
from aggarray.display.markup import escaped, sizes
from aggarray.display.ownership import COLOURS
from aggarray.errors import counted
from aggarray.partition.file_names import file_count

#: Up to this number, files are coloured in their order, otherwise by their position.
_FEW = 16
#: The least width and height of cells in pixels.
_LEAST = 5


def partition_words(array: Any) -> str:
    """Return the numbers of partitions, files and missing parts in words."""
    matrix = array._matrix
    files = file_count(matrix)
    facts = [
        f"partitions: {sizes(array.pmdimensions, array.pmshape)}",
        counted(files, "file") if files else "in memory",
    ]
    for count, what in ((virtual_count(matrix), "virtual"), (int((matrix.refs < 0).sum()), "missing")):
        facts += [f"{count} {what}"] if count else []
    return ", ".join(facts)


def svg(array: Any, width: int = 600, most: int = 96, gaps: Sequence[tuple[float, float]] = ()) -> str:
    """Return the partition matrix as SVG, at most ``most`` pixels high.

    ``gaps``: begins and ends along a time axis, in units of its coordinate, drawn as red lines above.

    White lines across mark virtual partitions, crossed red frames missing ones; times are drawn to scale. If there are too many
    partitions, neighbours share a cell. Dimensions beyond two are shown at their first partition.
    """
    # The partitions of a ragged array are those of its samples.
    array = getattr(array, "flat", array)
    across, up = (*displayed_dimensions(array), None, None)[:2]
    axes = [None if d is None else array.dimensions.index(d) for d in (across, up)]
    limits = [{axes[0]: width // _LEAST, axes[1]: most // _LEAST}.get(axis, n) for axis, n in enumerate(array._matrix.cells)]
    plane = cells_of(array, limits).plane(axes[0], axes[1])
    row = min(max(most / max(len(plane.files), 1), _LEAST), 24.0)
    begin, end = (ends * width for ends in _ends(array, across, plane.starts[1]))
    upward = up is not None and is_drawn_upwards(array, up)
    colours = colours_of(plane.files)
    shapes: dict[str, list[str]] = {}
    for j, i in np.ndindex(*plane.files.shape):
        top = row * (len(plane.files) - 1 - j if upward else j)
        left, across_ = float(begin[i]), max(float(end[i] - begin[i]), 0.5)
        place = left, top, max(across_ - 1, across_ * 0.8), max(row - 1, row * 0.8)
        if plane.files[j, i] != MISSING:
            colour = palette.MEMORY if plane.files[j, i] == IN_MEMORY else COLOURS[colours[j, i]]
            shapes.setdefault(f'fill="{colour}"', []).append(_box(*place))
            if plane.virtual[j, i]:
                shapes.setdefault(f'stroke="{palette.VIRTUAL}"', []).append(palette.hatch(*place))
        if plane.holes[j, i]:
            crossed = palette.hatch(*place) + palette.hatch(*place, rising=False)
            shapes.setdefault(f'stroke="{palette.HOLE}" fill="none"', []).append(_box(*place) + crossed)
    if gaps and across is not None:
        places = _places(array, across, gaps) * width
        shapes[f'fill="{palette.GAP}"'] = [_box(first, 0.0, max(last - first, 2.0), 3.0) for first, last in places.tolist()]
    # Lines come last, above the colours.
    drawn = [f'<path {style} d="{"".join(shapes[style])}"/>' for style in sorted(shapes, key=lambda s: s.startswith("stroke"))]
    height = row * len(plane.files)
    size = f'width="{width}" height="{height:g}" viewBox="0 0 {width} {height:g}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{escaped(partition_words(array))}">'
    return "\n".join([head, *drawn, "</svg>"])


def colours_of(files: np.ndarray) -> np.ndarray:
    """Return the colour number of each cell of a plane, one per file.

    Neighbours have different colours if possible.

    >>> colours_of(np.array([[7, 7, 9], [8, 9, 9]])).tolist()
    [[0, 0, 1], [2, 1, 1]]
    """
    distinct, positions, codes = np.unique(files, return_index=True, return_inverse=True)
    codes = codes.reshape(files.shape)
    if len(distinct) <= _FEW:
        colours = np.argsort(np.argsort(np.where(distinct < 0, files.size, positions))) % len(COLOURS)
    else:
        up, across = np.divmod(positions, max(files.shape[1], 1))
        colours = (across + 3 * up) % len(COLOURS)
    sides = [(codes[:, :-1], codes[:, 1:]), (codes[:-1], codes[1:])]
    pairs = np.concatenate([np.stack([a.ravel(), b.ravel()], 1) for a, b in sides])
    pairs = pairs[(distinct[pairs[:, 0]] >= 0) & (distinct[pairs[:, 1]] >= 0) & (pairs[:, 0] != pairs[:, 1])]
    if (colours[pairs[:, 0]] == colours[pairs[:, 1]]).any():
        _recolour(colours, pairs)
    by_cell: np.ndarray = colours[codes]
    return by_cell


def _recolour(colours: np.ndarray, pairs: np.ndarray) -> None:
    """Give neighbours in ``pairs`` different colours, the rarest free ones."""
    neighbours: dict[int, set[int]] = defaultdict(set)
    for first, second in pairs.tolist():
        neighbours[first].add(second)
        neighbours[second].add(first)
    used = np.bincount(colours, minlength=len(COLOURS))
    for file in sorted(neighbours):
        taken = colours[list(neighbours[file])]
        free = np.setdiff1d(np.arange(len(COLOURS)), taken)
        if colours[file] in taken and len(free):
            used[colours[file]] -= 1
            colours[file] = free[used[free].argmin()]
            used[colours[file]] += 1


def _ends(array: Any, dimension: str | None, starts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if dimension is None or not len(starts):
        return np.zeros(len(starts)), np.ones(len(starts))
    begin, end = spans_of(array, dimension, starts, times_of(array, dimension))
    length = max(end[-1] - begin[0], 1e-9)
    return (begin - begin[0]) / length, (end - begin[0]) / length


def _places(array: Any, dimension: str, gaps: Sequence[tuple[float, float]]) -> np.ndarray:
    """Return where gaps begin and end along an axis, between 0 and 1."""
    begin, end = spans(array._matrix.edges[array.dimensions.index(dimension)], times_of(array, dimension)).limits()
    places: np.ndarray = (np.array(gaps) - begin) / max(end - begin, 1e-9)
    return places


def _box(left: float, top: float, width: float, height: float) -> str:
    return f"M{left:.1f} {top:.1f}h{width:.1f}v{height:.1f}h{-width:.1f}z"
