"""HTML of arrays and aggregations for notebooks, with a small picture.

The HTML and SVG load nothing; text and lines have the colours of the surrounding page. No file is read: unknown values are not
shown.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from aggarray.aggregate.rules import Refusal, Skipped
from aggarray.arrays.ragged import flat_of
from aggarray.cf.units.recognition import is_reference_time
from aggarray.display import palette
from aggarray.display.cells import (
    IN_MEMORY,
    MISSING,
    cells_of,
    coordinate_of,
    displayed_dimensions,
    is_drawn_upwards,
    spans,
    spans_of,
    times_of,
)
from aggarray.display.markup import breakable, escaped, shortened, sizes
from aggarray.display.overview import HEIGHT, WIDTH, Overview, Row, bar_paths, overview_of, period
from aggarray.display.ownership import COLOURS
from aggarray.display.timeline import Span, Timeline, time_gaps, timeline
from aggarray.errors import AggarrayError
from aggarray.scan.progress import amount

#: Up to this number, files are coloured in their order, otherwise by their position.
_FEW = 16
#: The least width and height of cells in pixels.
_LEAST = 5
#: The most rows of arrays, reasons and attributes, and the longest values; the rest is cut.
_MOST_ROWS, _LONGEST = 50, 300
_LONGEST_CELL, _MOST_DATASETS = 40, 100
#: The most gaps that are named.
_MOST_GAPS = 3
#: The rows of an aggregation that are shown at first.
_FIRST_ROWS = 12
#: Width and height of the bar of a dataset.
_BAR = (260, 12)
#: Text has the colours of the notebook, light or dark.
_STYLE = """<style>
.aggarray-shown { color: var(--jp-content-font-color0, var(--vscode-editor-foreground, inherit)); line-height: 1.4; }
.aggarray-shown table { border-collapse: collapse; margin: .2em 0; font-size: inherit; }
.aggarray-shown th, .aggarray-shown td { text-align: left; padding: .05em .9em .05em 0; border: 0; background: none;
  color: inherit; vertical-align: top; overflow-wrap: break-word; }
.aggarray-shown th { font-weight: 600; white-space: nowrap; }
.aggarray-shown .aggarray-rows td { white-space: nowrap; vertical-align: middle; }
.aggarray-shown .nb { white-space: nowrap; }
.aggarray-shown .aggarray-number { text-align: right; }
.aggarray-shown .aggarray-scroll { overflow-x: auto; }
.aggarray-shown summary { cursor: pointer; }
.aggarray-shown svg { display: block; max-width: 100%; height: auto; margin: .3em 0; }
.aggarray-shown .aggarray-rows svg { max-width: none; margin: 0; }
</style>"""


def array_html(array: Any) -> str:
    """Return the HTML of a master array without reading a file."""
    facts = "".join(
        f"<tr><th>{escaped(name)}</th><td>{breakable(text)}</td></tr>" for name, text in facts_of(array, timeline(flat_of(array)))
    )
    lines = [
        f"<b>{escaped(array.name or 'array')}</b> {escaped(words(array))}",
        f"<table><tbody>{facts}</tbody></table>",
        svg(array),
        _details(f"Coordinates ({len(array.coords)})", [(n, words(c)) for n, c in array.coords.items()]),
        _details(f"Attributes ({len(array.attrs)})", list(array.attrs.items())),
        _details(f"Attributes of the files ({len(array.file_attrs)})", list(array.file_attrs.items())),
    ]
    return _wrapped(lines)


def facts_of(array: Any, line: Timeline | None) -> list[tuple[str, str]]:
    """Return time range, coordinates, chunks, gaps and size as named texts.

    ``line``: the timeline of the array. No file is read: what is not known is left out.
    """
    facts = []
    if line is not None:
        facts.append(("time", " to ".join(dict.fromkeys(line.dates))))
    facts.append(("coordinates", ", ".join(filter(None, (_extent(array, d) for d in array.dimensions)))))
    facts.append(("partitions", partition_words(array).removeprefix("partitions: ")))
    chunk = stored_chunk(array)
    if chunk is not None:
        facts.append(("stored chunks", f"({', '.join(f'{d}: {n}' for d, n in chunk)})"))
    if line is not None and line.covered[0][0] < line.covered[-1][1]:
        more = [f"{len(line.steps) - _MOST_GAPS} more"] * (len(line.steps) > _MOST_GAPS)
        facts.append(("gaps", "; ".join([*(gap.text for gap in line.steps[:_MOST_GAPS]), *more]) or "none"))
    facts.append(("size", amount(int(array.nbytes), "bytes")))
    return [(name, text) for name, text in facts if text]


def _extent(array: Any, dimension: str) -> str:
    """Return the first and last value of a coordinate that is no time, or ""."""
    coordinate = coordinate_of(array, dimension)
    if coordinate is None or not coordinate.size or is_reference_time(coordinate.units):
        return ""
    try:
        first, last = coordinate[[0, -1]].tolist()
    except AggarrayError:
        return ""
    ends = [f"{v:.6g}" if isinstance(v, int | float) else shortened(v, 20) for v in (first, last)]
    units = {"degrees_north": "°N", "degrees_east": "°E"}.get(str(coordinate.units), f" {coordinate.units or ''}").rstrip()
    return f"{dimension} {' to '.join(dict.fromkeys(ends))}{units}"


def stored_chunk(array: Any) -> list[tuple[str, int]] | None:
    """Return the chunk shape of the first file, None unless an index has it."""
    references, refs = array._matrix.references, array._matrix.refs
    row = next(iter(refs[refs >= 0][:1].tolist()), None)
    stamp = None if row is None else references.stamp_of(row)
    if row is None or references.tables is None or stamp is None:
        return None
    variable = references.variables[int(references.variable[row])]
    index = references.tables.find(references.uri_of(row), variable, (stamp[1], stamp[0]))
    names = references.template_of(row).dimensions
    return None if index is None or len(index.chunk) != len(names) else list(zip(names, index.chunk, strict=True))


def aggregation_html(
    arrays: Sequence[Any], refusals: Sequence[Refusal], skipped: Sequence[Skipped], is_expected: Callable[[str], bool]
) -> str:
    """Return the HTML of an aggregation without reading a file.

    ``is_expected``: whether a rule keeps different datasets apart, so that its refusals are of no interest.
    """
    shown = overview_of(arrays[:_MOST_DATASETS], refusals)
    rows = [_dataset(array, row, shown) for array, row in zip(arrays, shown.rows, strict=False)]
    first, rest = rows[:_FIRST_ROWS], rows[_FIRST_ROWS:]
    more = f"<p>... and {len(arrays) - len(rows)} more</p>" if len(arrays) > len(rows) else ""
    surprising = [(r.rule, r.reason) for r in refusals if not is_expected(r.rule)]
    count = f"<b>{len(arrays)} array{'s' * (len(arrays) != 1)}</b>"
    lines = [
        f"{count}, {amount(sum(int(a.nbytes) for a in arrays), 'bytes')} of values" if arrays else count,
        _datasets(shown, first) if first else "",
        f"<details><summary>{len(rest)} more</summary>{_datasets(shown, rest)}{more}</details>" if rest else more,
        _details(f"Not joined ({len(surprising)})", surprising),
        _details(f"Skipped ({len(skipped)})", [(s.variable or "file", f"{s.file}: {s.reason}") for s in skipped]),
    ]
    return _wrapped(lines)


def _datasets(shown: Overview, rows: Sequence[str]) -> str:
    """Return rows of datasets as a table, under the ends of their axis."""
    names = "".join(f"<th>{escaped(shortened(name, _LONGEST_CELL))}</th>" for name in shown.names)
    dates = [row.timeline.dates for row in shown.rows if row.timeline]
    ends = period(min(d[0] for d in dates), max(d[1] for d in dates)).split(" to ") if dates else []
    axis = f'<svg width="{_BAR[0]}" height="15">'
    for end, (x, anchor) in zip(ends, ((0, "start"), (_BAR[0], "end")), strict=False):
        axis += f'<text x="{x}" y="12" text-anchor="{anchor}" font-size="12" fill="currentColor">{end}</text>'
    head = f'<thead><tr>{names}<th>{axis}</svg></th><th>time</th><th colspan="3">size</th></tr></thead>'
    return f'<div class="aggarray-scroll"><table class="aggarray-rows">{head}<tbody>{"".join(rows)}</tbody></table></div>'


def _dataset(array: Any, row: Row, shown: Overview) -> str:
    """Return the row of a dataset: its bar, or its matrix without times."""
    cells = "".join(f"<td>{escaped(shortened(cell, _LONGEST_CELL))}</td>" for cell in row.cells)
    bar = _bar(row, shown.limits) if shown.limits and row.timeline else svg(array, _BAR[0], 2 * _BAR[1])
    files = f"{row.files:,} file{'s' * (row.files != 1)}" if row.files else "in memory"
    numbers = "".join(f'<td class="aggarray-number">{text}</td>' for text in (files, amount(row.nbytes, "bytes")))
    what = shortened(words(array), 3 * _LONGEST_CELL)
    return f"<tr>{cells}<td>{bar}</td><td>{escaped(row.describe())}</td>{numbers}<td>{escaped(what)}</td></tr>"


def _bar(row: Row, limits: Span) -> str:
    """Return where a dataset lies on the shared axis, as SVG."""
    colours = {"data": palette.DATA, "overlap": palette.OVERLAP, "hole": palette.HOLE, "gap": palette.GAP}
    style = 'stroke-width="1" vector-effect="non-scaling-stroke"'
    paths = bar_paths(row.parts, limits).items()
    drawn = "".join(f'<path fill="{colours[kind]}" stroke="{colours[kind]}" {style} d="{d}"/>' for kind, d in paths)
    size = f'width="{_BAR[0]}" height="{_BAR[1]}" viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{escaped(row.describe())}">{drawn}</svg>'


def _wrapped(lines: Sequence[str]) -> str:
    return f'<div class="aggarray-shown">{_STYLE}{"".join(f"<div>{line}</div>" for line in lines if line)}</div>'


def _details(title: str, pairs: Sequence[tuple[Any, Any]]) -> str:
    if not pairs:
        return ""
    rows = [
        f"<tr><td>{escaped(name)}</td><td>{breakable(shortened(value, _LONGEST))}</td></tr>" for name, value in pairs[:_MOST_ROWS]
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

    White lines across mark virtual partitions, crossed red frames missing ones; times are drawn to scale, with gaps. If there
    are too many partitions, neighbours share a cell. Dimensions beyond two are shown at their first partition.
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
    if across is not None:
        boxes = (_box(float(b * width), 0.0, max(float((e - b) * width), 2.0), 3.0) for b, e in _gap_ends(array, across))
        shapes[f'fill="{palette.GAP}"'] = list(boxes)
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


def _gap_ends(array: Any, dimension: str) -> list[tuple[float, float]]:
    """Return where the gaps along an axis lie, between 0 and 1."""
    values = times_of(array, dimension)
    if values is None:
        return []
    begin, end = spans(array._matrix.edges[array.dimensions.index(dimension)], values)
    length = max(end[-1] - begin[0], 1e-9)
    return [((gap.begin - begin[0]) / length, (gap.end - begin[0]) / length) for gap in time_gaps(array, dimension)]


def _box(left: float, top: float, width: float, height: float) -> str:
    return f"M{left:.1f} {top:.1f}h{width:.1f}v{height:.1f}h{-width:.1f}z"
