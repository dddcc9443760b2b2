"""Which file covers which part of an array? Drawn with matplotlib, which is imported only here and only when used."""

import os
from typing import Any

import numpy as np

from aggarray.display.cells import INSIDE, MISSING, Cells, cells_of, coordinate_of, runs_up, shown, spans, times_of
from aggarray.display.html import colours_of
from aggarray.display.markup import printable, shortened
from aggarray.display.ownership import COLOURS
from aggarray.errors import AggarrayError, AggregationError

#: More partitions than this along one dimension are not told apart by the eye.
MOST = 300
#: Up to so many files have a row each, where partitions lie along one dimension; names are cut.
_MOST_ROWS, _LONGEST = 40, 40


def plot_coverage(array: Any, ax: Any = None) -> Any:
    """Draw the partition matrix of a master array: one colour per file, hatched where missing; returns the axes.

    A time runs along x, as dates and to scale, so that gaps stay free; without a time the last partitioned dimension does. Up
    to 40 files along one dimension have a row each, by name; else the next dimension runs along y. Further dimensions are
    shown at their first partition. Of more than `MOST` partitions along a dimension neighbours share a cell, and the title
    says so. No file is read. AggregationError where matplotlib is not installed.
    """
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise AggregationError("plot_coverage needs matplotlib: pip install 'aggarray[plot]'") from error
    if ax is None:
        ax = pyplot.figure(figsize=(10, 4), layout="constrained").add_subplot()
    across, up = (*shown(array), None, None)[:2]
    axes = [None if d is None else array.dimensions.index(d) for d in (across, up)]
    whole = cells_of(array)
    plane = whole.fewer([MOST if axis in axes else n for axis, n in enumerate(whole.files.shape)]).plane(axes[0], axes[1])
    left, right = _places(array, across, plane.starts[1])
    low, high = _places(array, up, plane.starts[0])
    files = np.unique(plane.files[plane.files >= 0])
    rows = files.tolist() if up is None and 1 < len(files) <= _MOST_ROWS else []
    high = high * max(len(rows), 1)
    _draw(ax, plane, (left, right, low, high), rows)
    drawn = [n for axis, n in enumerate(whole.files.shape) if axis in axes]
    shared = int(np.prod([-(-n // MOST) for n in drawn], dtype=int))
    title = f"{printable(array.name or 'array')}: {np.unique(whole.files[whole.files >= 0]).size} files"
    ax.set_title(title + (f", up to {shared} partitions share a cell" if shared > 1 else ""), parse_math=False)
    ax.set(xlim=_limits(left, right), ylim=_limits(low, high))
    names = [_name(array, row) for row in rows]
    _label(ax, array, (across, up), names)
    return ax


def _draw(ax: Any, plane: Cells, places: tuple[np.ndarray, ...], rows: list[int]) -> None:
    """Draw the cells of a plane (up, across); ``rows``: the files that have a row each."""
    from matplotlib.patches import Rectangle

    left, right, low, high = places
    colours = colours_of(plane.files)
    for i, j in np.ndindex(plane.files.T.shape):
        file = int(plane.files[j, i])
        bottom, top = (rows.index(file), rows.index(file) + 1) if file in rows else (float(low[j]), float(high[j]))
        missing = file == MISSING
        colour = "none" if missing else "#888888" if file == INSIDE else COLOURS[colours[j, i]]
        style = {"hatch": "///", "edgecolor": "grey"} if missing else {"edgecolor": "white", "linewidth": 0.5}
        ax.add_patch(Rectangle((float(left[i]), bottom), float(right[i] - left[i]), top - bottom, facecolor=colour, **style))


def _places(array: Any, dimension: str | None, starts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return where cells begin and end on an axis: dates for times, else positions."""
    if dimension is None:
        return np.zeros(1), np.ones(1)
    dates = _dates(array, dimension)
    begin, end = spans(array.partitions.edges[array.dimensions.index(dimension)], dates)
    return begin[starts], end[np.append(starts[1:], len(end)) - 1]


def _dates(array: Any, dimension: str) -> Any:
    """Return the times of a dimension as matplotlib's numbers, where it can draw them as dates, else None."""
    if times_of(array, dimension) is None:
        return None
    try:
        times = coordinate_of(array, dimension).datetimes()
    except AggarrayError:
        return None
    from matplotlib import dates

    number: Any = dates.date2num  # matplotlib ships no types for it
    return number(times) if times.dtype.kind == "M" and len(times) > 1 else None


def _limits(begin: np.ndarray, end: np.ndarray) -> tuple[float, float]:
    """Return the ends of an axis, apart even where there is nothing between them."""
    low, high = (begin[0], end[-1]) if len(begin) else (0, 0)
    return low, high if high > low else low + 1


def _name(array: Any, file: int) -> str:
    return shortened(printable(os.path.basename(str(array._matrix.references.uris[file]).rstrip("/"))), _LONGEST)


def _label(ax: Any, array: Any, shown: tuple[str | None, ...], names: list[str]) -> None:
    """Name the axes; ``names``: those of rows, from below."""
    for dimension, axis in zip(shown, (ax.xaxis, ax.yaxis), strict=True):
        if dimension is not None:
            axis.set_label_text(printable(dimension), parse_math=False)
            if _dates(array, dimension) is not None:
                axis.axis_date()
    if names:
        ax.set_yticks(np.arange(len(names)) + 0.5, names, fontsize="small", parse_math=False)
        ax.yaxis.set_inverted(True)
    elif shown[1] is None:
        ax.yaxis.set_visible(False)
    elif not runs_up(array, shown[1]) and coordinate_of(array, shown[1]) is not None:
        ax.yaxis.set_inverted(True)
