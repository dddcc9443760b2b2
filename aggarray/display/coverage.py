"""Plot of the files of an array with matplotlib, which is imported on use."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from aggarray.display import palette
from aggarray.display.cells import (
    IN_MEMORY,
    MISSING,
    Cells,
    cells_of,
    coordinate_of,
    displayed_dimensions,
    is_drawn_upwards,
    spans_of,
    times_of,
)
from aggarray.display.markup import counted, printable, shortened, without_credentials
from aggarray.display.matrix import colours_of
from aggarray.display.ownership import COLOURS
from aggarray.errors import AggarrayError, AggregationError, install_command
from aggarray.partition.file_names import file_count

#: The most partitions along one dimension that the eye can distinguish.
MOST = 300
#: The most files with a row each, for partitions along one dimension, and the longest names.
_MOST_ROWS, _LONGEST = 40, 40


def plot_coverage(array: Any, ax: Any = None) -> Any:
    """Draw the partition matrix of a master array; return the axes.

    Each file has a colour; white lines across mark virtual partitions, crossed red frames missing ones. The x axis is a time,
    as dates and to scale, with gaps; without a time it is the last partitioned dimension. Up to 40 files along one dimension
    have a row each, with their names; otherwise the y axis is the next dimension. Further dimensions are shown at their first
    partition. If there are more than `MOST` partitions along a dimension, neighbours share a cell, and the title says so. No
    file is read. Raises AggregationError if matplotlib is not installed.
    """
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise AggregationError("plot_coverage needs matplotlib", hint=install_command("plot")) from error
    if ax is None:
        ax = pyplot.figure(figsize=(10, 4), layout="constrained").add_subplot()
    across, up = (*displayed_dimensions(array), None, None)[:2]
    axes = [None if d is None else array.dimensions.index(d) for d in (across, up)]
    shape = array._matrix.cells
    plane = cells_of(array, [MOST if axis in axes else n for axis, n in enumerate(shape)]).plane(axes[0], axes[1])
    left, right = _positions(array, across, plane.starts[1])
    low, high = _positions(array, up, plane.starts[0])
    files = np.unique(plane.files[plane.files >= 0])
    rows = files.tolist() if up is None and 1 < len(files) <= _MOST_ROWS else []
    high = high * max(len(rows), 1)
    _draw(ax, plane, (left, right, low, high), rows)
    drawn = [n for axis, n in enumerate(shape) if axis in axes]
    shared = int(np.prod([-(-n // MOST) for n in drawn], dtype=int))
    title = f"{printable(array.name or 'array')}: {counted(file_count(array._matrix), 'file')}"
    ax.set_title(title + (f", up to {shared} partitions share a cell" if shared > 1 else ""), parse_math=False)
    ax.set(xlim=_limits(left, right), ylim=_limits(low, high))
    uris = [str(array._matrix.references.uris[row]) for row in rows]
    _label(
        ax,
        array,
        (across, up),
        [shortened(printable(os.path.basename(without_credentials(uri).rstrip("/"))), _LONGEST) for uri in uris],
    )
    return ax


def _draw(ax: Any, plane: Cells, positions: tuple[np.ndarray, ...], rows: list[int]) -> None:
    """Draw the cells of a plane; ``rows``: the files with a row each."""
    from matplotlib.patches import Rectangle

    left, right, low, high = positions
    colours = colours_of(plane.files)
    for i, j in np.ndindex(plane.files.T.shape):
        file = int(plane.files[j, i])
        bottom, top = (rows.index(file), rows.index(file) + 1) if file in rows else (float(low[j]), float(high[j]))
        missing = file == MISSING
        colour = "none" if missing else palette.MEMORY if file == IN_MEMORY else COLOURS[colours[j, i]]
        virtual = palette.VIRTUAL_HATCH if plane.virtual[j, i] else None
        style: dict[str, Any] = {"edgecolor": palette.VIRTUAL, "linewidth": 0.5, "hatch": virtual}
        if plane.holes[j, i]:
            style = {"edgecolor": palette.HOLE, "linewidth": 1, "hatch": palette.HOLE_HATCH, "zorder": 1.5}
        ax.add_patch(Rectangle((float(left[i]), bottom), float(right[i] - left[i]), top - bottom, facecolor=colour, **style))


def _positions(array: Any, dimension: str | None, starts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return begins and ends of cells: dates for times, else positions."""
    if dimension is None:
        return np.zeros(1), np.ones(1)
    return spans_of(array, dimension, starts, _dates(array, dimension))


def _dates(array: Any, dimension: str) -> Any:
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
    """Return the limits of an axis, which must differ."""
    low, high = (begin[0], end[-1]) if len(begin) else (0, 0)
    return low, high if high > low else low + 1


def _label(ax: Any, array: Any, dimensions: tuple[str | None, ...], names: list[str]) -> None:
    """Label the axes; ``names``: those of rows, from below."""
    for dimension, axis in zip(dimensions, (ax.xaxis, ax.yaxis), strict=True):
        if dimension is not None:
            axis.set_label_text(printable(dimension), parse_math=False)
            if _dates(array, dimension) is not None:
                axis.axis_date()
    if names:
        ax.set_yticks(np.arange(len(names)) + 0.5, names, fontsize="small", parse_math=False)
        ax.yaxis.set_inverted(True)
    elif dimensions[1] is None:
        ax.yaxis.set_visible(False)
    elif not is_drawn_upwards(array, dimensions[1]) and coordinate_of(array, dimensions[1]) is not None:
        ax.yaxis.set_inverted(True)
