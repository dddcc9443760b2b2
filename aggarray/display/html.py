"""HTML of arrays and aggregations for notebooks, with a small picture.

The HTML and SVG load nothing; text and lines have the colours of the surrounding page. No file is read: unknown values are not
shown.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from aggarray.display.cells import IN_MEMORY, MISSING, cells_of, displayed_dimensions, is_drawn_upwards, spans_of, times_of
from aggarray.display.markup import escaped, shortened, sizes
from aggarray.display.ownership import COLOURS

#: Up to this number, files are coloured in their order, otherwise by their position.
_FEW = 16
#: The least width and height of cells in pixels.
_LEAST = 5
#: The most rows of arrays, reasons and attributes, and the longest values; the rest is cut.
_MOST_ROWS, _LONGEST = 50, 300
#: Text has the colours of the notebook, light or dark.
_STYLE = """<style>
.aggarray-shown { color: var(--jp-content-font-color0, var(--vscode-editor-foreground, inherit)); line-height: 1.5; }
.aggarray-shown table { border-collapse: collapse; margin: .3em 0; }
.aggarray-shown th, .aggarray-shown td { text-align: left; padding: .1em .8em .1em 0; border: 0; background: none;
  color: inherit; vertical-align: top; overflow-wrap: anywhere; }
.aggarray-shown thead th { border-bottom: 1px solid #8888; font-weight: 600; }
.aggarray-shown summary { cursor: pointer; }
.aggarray-shown svg { display: block; max-width: 100%; height: auto; margin: .3em 0; }
</style>"""


def array_html(array: Any) -> str:
    """Return the HTML of a master array without reading a file."""
    lines = [
        f"<b>{escaped(array.name or 'array')}</b> {escaped(words(array))}",
        svg(array),
        escaped(partition_words(array)),
        _details(f"Coordinates ({len(array.coords)})", [(n, words(c)) for n, c in array.coords.items()]),
        _details(f"Attributes ({len(array.attrs)})", list(array.attrs.items())),
        _details(f"Attributes of the files ({len(array.file_attrs)})", list(array.file_attrs.items())),
    ]
    return _wrapped(lines)


def aggregation_html(arrays: Sequence[Any], which: Sequence[str], refusals: Sequence[Any], skipped: Sequence[Any]) -> str:
    """Return the HTML of an aggregation without reading a file.

    ``which``: text that distinguishes arrays of the same name.
    """
    rows = [
        f"<tr><td><b>{escaped(a.name or 'array')}</b>{f'<br>{escaped(label)}' if label else ''}</td>"
        f"<td>{escaped(words(a))}<br>{escaped(partition_words(a))}</td><td>{svg(a, 240, 40)}</td></tr>"
        for a, label in zip(arrays[:_MOST_ROWS], which, strict=False)
    ]
    more = len(arrays) - len(rows)
    lines = [
        f"<b>{len(arrays)} array{'s' * (len(arrays) != 1)}</b>",
        f"<table><tbody>{''.join(rows)}</tbody></table>" if rows else "",
        f"... and {more} more" if more > 0 else "",
        _details(f"Not joined ({len(refusals)})", [(r.rule, r.reason) for r in refusals]),
        _details(f"Skipped ({len(skipped)})", [(s.variable or "file", f"{s.file}: {s.reason}") for s in skipped]),
    ]
    return _wrapped(lines)


def _wrapped(lines: Sequence[str]) -> str:
    return f'<div class="aggarray-shown">{_STYLE}{"".join(f"<div>{line}</div>" for line in lines if line)}</div>'


def _details(title: str, pairs: Sequence[tuple[Any, Any]]) -> str:
    if not pairs:
        return ""
    rows = [
        f"<tr><td>{escaped(name)}</td><td>{escaped(shortened(value, _LONGEST))}</td></tr>" for name, value in pairs[:_MOST_ROWS]
    ]
    rows += [f"<tr><td></td><td>... and {len(pairs) - _MOST_ROWS} more</td></tr>"] * (len(pairs) > _MOST_ROWS)
    return f"<details><summary>{escaped(title)}</summary><table><tbody>{''.join(rows)}</tbody></table></details>"


def words(array: Any) -> str:
    """Return dimensions, type and units of an array in one line.

    >>> from aggarray import MasterArray, SubArray
    >>> s = SubArray.from_array([[1.0, 2.0]], dimensions=("y", "x"), units="K")
    >>> words(MasterArray.from_subarrays([([(0, 1), (0, 2)], s)], dimensions=("y", "x")))
    '(y: 1, x: 2) float64 K'
    """
    sizes = ", ".join(f"{d}: {n}" for d, n in zip(array.dimensions, array.shape, strict=True))
    return " ".join(str(w) for w in (f"({sizes})", array.dtype, array.units, array.calendar) if w)


def partition_words(array: Any) -> str:
    """Return the numbers of partitions, files and missing parts in words."""
    cells = cells_of(array)
    files = np.unique(cells.files[cells.files >= 0]).size
    facts = [
        f"partitions: {sizes(array.pmdimensions, array.pmshape)}",
        f"{files} file{'s' * (files != 1)}" if files else "in memory",
    ]
    for count, what in ((int(cells.virtual.sum()), "virtual"), (int(cells.holes.sum()), "missing")):
        facts += [f"{count} {what}"] if count else []
    return ", ".join(facts)


def svg(array: Any, width: int = 600, most: int = 96) -> str:
    """Return the partition matrix as SVG, at most ``most`` pixels high.

    White lines mark virtual partitions, crosses missing ones; times are drawn to scale, with gaps. If there are too many
    partitions, neighbours share a cell. Dimensions beyond two are shown at their first partition.
    """
    # The partitions of a ragged array are those of its samples.
    array = getattr(array, "flat", array)
    across, up = (*displayed_dimensions(array), None, None)[:2]
    axes = [None if d is None else array.dimensions.index(d) for d in (across, up)]
    limits = [{axes[0]: width // _LEAST, axes[1]: most // _LEAST}.get(axis, n) for axis, n in enumerate(array._matrix.cells)]
    plane = cells_of(array).fewer(limits).plane(axes[0], axes[1])
    row = min(max(most / max(len(plane.files), 1), _LEAST), 24.0)
    begin, end = (ends * width for ends in _ends(array, across, plane.starts[1]))
    upward = up is not None and is_drawn_upwards(array, up)
    colours = colours_of(plane.files)
    shapes: dict[str, list[str]] = {}
    for j, i in np.ndindex(*plane.files.shape):
        top = row * (len(plane.files) - 1 - j if upward else j)
        box, rising, falling = _paths(float(begin[i]), top, max(end[i] - begin[i], 0.5), row)
        if plane.files[j, i] != MISSING:
            colour = "#888" if plane.files[j, i] == IN_MEMORY else COLOURS[colours[j, i]]
            shapes.setdefault(f'fill="{colour}"', []).append(box)
            if plane.virtual[j, i]:
                shapes.setdefault('stroke="#fff"', []).append(rising)
        if plane.holes[j, i]:
            shapes.setdefault('stroke="#888" fill="none"', []).append(f"{box}{rising}{falling}")
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


def _paths(left: float, top: float, across: float, down: float) -> tuple[str, str, str]:
    """Return a cell as SVG paths: a box and its two diagonals."""
    width, height = max(across - 1, across * 0.8), max(down - 1, down * 0.8)
    box = f"M{left:.1f} {top:.1f}h{width:.1f}v{height:.1f}h{-width:.1f}z"
    rising = f"M{left:.1f} {top + height:.1f}l{width:.1f} {-height:.1f}"
    return box, rising, f"M{left:.1f} {top:.1f}l{width:.1f} {height:.1f}"
