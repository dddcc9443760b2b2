"""Which file covers which part of an array? Drawn with matplotlib, which is imported only here and only when used."""

from itertools import pairwise, product
from typing import Any

import numpy as np

from aggarray.errors import AggregationError

#: More partitions than this along one dimension are not told apart by the eye.
MOST = 300


def plot_coverage(array: Any, ax: Any = None) -> Any:
    """Draw the partition matrix of a master array: one colour per file, hatched where missing; returns the axes.

    The first partitioned dimension runs along x where it is a time (as dates), the second along y; without a time the other
    way round, as on a map. Further dimensions are shown at their first partition. Of more than `MOST` partitions along a
    dimension every second, third, ... is drawn, and the title says so. AggregationError where matplotlib is not installed.
    """
    try:
        from matplotlib import pyplot
        from matplotlib.patches import Rectangle
    except ImportError as error:
        raise AggregationError("plot_coverage needs matplotlib: pip install 'aggarray[plot]'") from error
    if ax is None:
        ax = pyplot.figure(figsize=(10, 4), layout="constrained").add_subplot()
    shown = (*array.pmdimensions, *(d for d in array.dimensions if d not in array.pmdimensions))[:2]
    if len(array.pmdimensions) > 1 and shown[0] != "time" and _times(array, shown[0]) is None:
        shown = shown[::-1]
    counts = dict(zip(array.pmdimensions, array.pmshape, strict=True))
    strides = [-(-counts.get(d, 1) // MOST) for d in (*shown, None, None)[:2]]
    across, up = (_thinned(_positions(array, d), n) for d, n in zip((*shown, None, None), strides, strict=False))
    files: dict[Any, int] = {}
    colours = pyplot.get_cmap("tab20")
    for (i, (left, right)), (j, (low, high)) in product(enumerate(pairwise(across)), enumerate(pairwise(up))):
        index = dict(zip(shown, (i * strides[0], j * strides[1]), strict=False))
        data = array.partitions[tuple(index.get(d, 0) for d in array.pmdimensions)].data
        colour = "none" if data is None else colours(files.setdefault(data.uri, len(files)) % 20)
        style = {"hatch": "///", "edgecolor": "grey"} if data is None else {"edgecolor": "white", "linewidth": 0.5}
        ax.add_patch(Rectangle((left, low), right - left, high - low, facecolor=colour, **style))
    title = f"{array.name or 'array'}: {len(files.keys() - {None})} files"
    title += f", one of {strides[0] * strides[1]} partitions drawn" if max(strides) > 1 else ""
    ax.set(xlim=(across[0], across[-1]), ylim=(up[0], up[-1]), title=title)
    _label(ax, array, shown)
    return ax


def _thinned(edges: Any, stride: int) -> Any:
    """Keep every so many edges, and the last."""
    return np.append(edges[:-1:stride], edges[-1:])


def _positions(array: Any, dimension: str | None) -> Any:
    """Return where the edges of the partitions of a dimension lie on an axis: dates for times, else positions."""
    if dimension is None:
        return np.array([0, 1])
    edges = array.partitions.edges[array.dimensions.index(dimension)]
    times = _times(array, dimension)
    if times is None or len(times) < 2:
        return edges
    from matplotlib import dates

    number: Any = dates.date2num  # matplotlib ships no types for it
    starts = number(times[np.minimum(edges[:-1], len(times) - 1)])
    return np.append(starts, number(times[-1] + (times[-1] - times[-2])))


def _times(array: Any, dimension: str) -> Any:
    """Return the dates of a dimension where matplotlib can draw them, else None."""
    coordinate = array.coords.get(dimension)
    if coordinate is None or not coordinate.calendar:
        return None
    times = coordinate.datetimes()
    return times if times.dtype.kind == "M" and not np.isnat(times).any() else None


def _label(ax: Any, array: Any, shown: tuple[str, ...]) -> None:
    for dimension, axis in zip(shown, (ax.xaxis, ax.yaxis), strict=False):
        axis.set_label_text(dimension)
        if _times(array, dimension) is not None and array.shape[array.dimensions.index(dimension)] > 1:
            axis.axis_date()
    if len(shown) < 2:
        ax.yaxis.set_visible(False)
