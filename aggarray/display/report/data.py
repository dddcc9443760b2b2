"""Data of the page, from which its script draws partition matrices.

The data are plain lists. Names of files and texts are stored once; cells refer to them by number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from aggarray.arrays.conversions import differences
from aggarray.arrays.master import MasterArray
from aggarray.arrays.ragged import flat_of
from aggarray.cf.units import is_reference_time
from aggarray.cf.units.calendars import dates
from aggarray.display.cells import Cells, cells_of, coordinate_of, displayed_dimensions, is_drawn_upwards, spans_of, times_of
from aggarray.display.facts import MATTERS, conformed
from aggarray.display.markup import printable, shortened, without_credentials
from aggarray.display.matrix import colours_of
from aggarray.display.ownership import COLOURS
from aggarray.display.timeline import Timeline
from aggarray.errors import AggarrayError
from aggarray.partition.file_names import common_folder, files_at

#: The most cells of one array, and of all arrays of a page.
MOST_CELLS, ALL_CELLS = 120_000, 200_000
#: The longest text of a coordinate or part, and the most gaps that are marked.
_LONGEST, _MOST_GAPS = 60, 1000


def page_data(arrays: Sequence[MasterArray], lines: Sequence[Timeline | None]) -> dict[str, Any]:
    """Return the data of a page: the files of all arrays, and each array.

    ``lines``: the timelines of the arrays.
    """
    files: dict[str, int] = {}
    most = min(MOST_CELLS, max(ALL_CELLS // max(len(arrays), 1), 200))
    drawn = [_array(array, line, files, most) for array, line in zip(arrays, lines, strict=False)]
    names = list(map(without_credentials, files))
    folder = common_folder(names)
    cut = len(folder) + 1 if folder and len(folder) > 1 else 0
    names = [printable(name[cut:]) for name in names]
    return {"folder": printable(folder) if cut else "", "files": names, "colours": COLOURS, "arrays": drawn}


def _array(array: MasterArray, line: Timeline | None, files: dict[str, int], most: int) -> dict[str, Any]:
    """Return the data of one array; adds its files to ``files``."""
    array = flat_of(array)
    shape, uris = array._matrix.cells, array._matrix.references.uris
    cells = cells_of(array, _limits(shape, most))
    codes, inverse = np.unique(cells.files, return_inverse=True)
    # The codes of missing and in memory are unchanged.
    numbers = codes.copy()
    numbers[codes >= 0] = [files.setdefault(uri, len(files)) for uri in files_at(uris, codes[codes >= 0])]
    order = [array.dimensions.index(d) for d in displayed_dimensions(array)]
    rows = {(c.kind, c.found, c.master): number for number, c in enumerate(conformed(array))}
    variables = [shortened(printable(v), _LONGEST) for v in array._matrix.references.variables]
    # One colour per file, chosen in the planes that are drawn.
    planes = (*(axis for axis in range(array.ndim) if axis not in order[:2]), *order[1::-1])
    drawn = cells.files.transpose(planes)
    colours = colours_of(drawn.reshape(-1, drawn.shape[-1] if planes else 1)).reshape(drawn.shape)
    merged = cells.files.shape != shape
    return {
        "name": shortened(printable(array.name or "array"), _LONGEST),
        "shape": cells.files.shape,
        "files": numbers[inverse].ravel().tolist(),
        "marks": (cells.virtual + 2 * cells.holes).ravel().tolist(),
        "colours": [int(c) for c in colours.transpose(np.argsort(planes)).ravel()],
        "templates": cells.templates.ravel().tolist(),
        "conforms": [[rows[d] for d in differences(t, array) if d in rows] for t in array._matrix.references.templates],
        "matters": [number for (kind, *_), number in rows.items() if kind in MATTERS],
        "variables": [name for name in variables if name != array.name],
        "parts": {} if merged else _parts(array, cells),
        "axes": [_axis(array, axis, cells.starts[axis], line) for axis in range(array.ndim)],
        "order": order,
    }


def _limits(shape: tuple[int, ...], most: int) -> tuple[int, ...]:
    """Return the number of cells along each dimension, at most ``most``."""
    limits = list(shape)
    while np.prod(limits, dtype=float) > most:
        longest = limits.index(max(limits))
        limits[longest] = -(-limits[longest] // 2)
    return tuple(limits)


def _parts(array: MasterArray, cells: Cells) -> dict[int, str]:
    """Return the part of its sub-array that each virtual cell shows."""
    matrix = array._matrix
    parts = {}
    for cell in np.flatnonzero(cells.virtual.ravel()).tolist():
        template = matrix.references.template_of(int(matrix.refs[cell]))
        index = dict(zip(matrix.dimensions, np.unravel_index(cell, matrix.cells), strict=True))
        words = []
        for name, size in zip(template.dimensions, template.shape, strict=True):
            edges = matrix.edges[matrix.axis(name)] if name in index else np.array([0, 1])
            position = int(index.get(name, 0))
            extent = int(edges[position + 1] - edges[position])
            start, step = matrix.parts.at(name, cell)
            if extent != size:
                shown = f"{start}:{start + step * (extent - 1) + 1}{f':{step}' if step > 1 else ''}"
                words.append(f"{name} {shown if step > 0 else f'{extent} picked'} of {size}")
        parts[cell] = shortened(printable(", ".join(words)), 4 * _LONGEST)
    return parts


def _axis(array: MasterArray, axis: int, starts: np.ndarray, line: Timeline | None) -> dict[str, Any]:
    """Return the positions, coordinates and labels of cells along an axis."""
    name = array.dimensions[axis]
    edges = array.partitions.edges[axis]
    times = times_of(array, name)
    begin, end = spans_of(array, name, starts, times)
    cuts = np.append(edges[starts], edges[-1:])
    labels = _labels(array, name, np.concatenate([cuts[:-1], np.maximum(cuts[1:] - 1, 0)])) if cuts[-1] else []
    return {
        "name": shortened(printable(name), _LONGEST),
        "time": times is not None,
        "up": is_drawn_upwards(array, name),
        "cuts": cuts.tolist(),
        "partitions": len(edges) - 1,
        "places": [] if times is None else [begin.tolist(), end.tolist()],
        "labels": [labels[: len(starts)], labels[len(starts) :]] if labels else [],
        "gaps": [[g.begin, g.end, g.text] for g in line.steps[:_MOST_GAPS]] if line and line.dimension == name else [],
    }


def _labels(array: MasterArray, dimension: str, positions: np.ndarray) -> list[str]:
    """Return coordinate values at positions as text, [] if unknown."""
    coordinate = coordinate_of(array, dimension)
    if coordinate is None:
        return []
    try:
        if is_reference_time(coordinate.units):
            return dates(coordinate.datetimes(positions))
        values = coordinate[...][positions].tolist()
    except AggarrayError:
        return []
    return [f"{v:.6g}" if isinstance(v, float | int) else shortened(printable(v), _LONGEST) for v in values]
