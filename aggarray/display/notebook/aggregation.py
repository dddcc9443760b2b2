"""HTML of an aggregation for notebooks: datasets on one time axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from aggarray.aggregate.rules import Refusal, Skipped
from aggarray.display import palette
from aggarray.display.html import details, words, wrapped
from aggarray.display.markup import escaped, shortened
from aggarray.display.matrix import svg
from aggarray.display.overview import HEIGHT, WIDTH, Overview, Row, bar_paths, overview_of, period
from aggarray.display.timeline import Span
from aggarray.errors import counted
from aggarray.scan.progress import amount

#: The most datasets, those that are shown at first, and the longest texts of a column.
_MOST_DATASETS, _FIRST_ROWS, _LONGEST_CELL = 100, 12, 40
#: Width and height of the bar of a dataset.
_BAR = (260, 12)


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
    count = f"<b>{counted(len(arrays), 'array')}</b>"
    lines = [
        f"{count}, {amount(sum(int(a.nbytes) for a in arrays), 'bytes')} of values" if arrays else count,
        _datasets(shown, first) if first else "",
        f"<details><summary>{len(rest)} more</summary>{_datasets(shown, rest)}{more}</details>" if rest else more,
        details(f"Not joined ({len(surprising)})", surprising),
        details(f"Skipped ({len(skipped)})", [(s.variable or "file", f"{s.file}: {s.reason}") for s in skipped]),
    ]
    return wrapped(lines)


def _datasets(shown: Overview, rows: Sequence[str]) -> str:
    """Return rows of datasets as a table, under the ends of their axis."""
    names = "".join(f"<th>{escaped(shortened(name, _LONGEST_CELL))}</th>" for name in shown.names)
    dates = [row.timeline.dates for row in shown.rows if row.timeline]
    ends = period(min(d[0] for d in dates), max(d[1] for d in dates)).split(" to ") if dates else []
    axis = f'<svg width="{_BAR[0]}" height="15">'
    for end, (x, anchor) in zip(ends, ((0, "start"), (_BAR[0], "end")), strict=False):
        axis += f'<text x="{x}" y="12" text-anchor="{anchor}" font-size="12" fill="currentColor">{end}</text>'
    head = f"<thead><tr>{names}<th>{axis}</svg></th><th>time</th><th>files</th><th>size</th><th>shape</th></tr></thead>"
    return f'<div class="aggarray-scroll"><table class="aggarray-rows">{head}<tbody>{"".join(rows)}</tbody></table></div>'


def _dataset(array: Any, row: Row, shown: Overview) -> str:
    """Return the row of a dataset: its bar, or its matrix without times."""
    cells = "".join(f"<td>{escaped(shortened(cell, _LONGEST_CELL))}</td>" for cell in row.cells)
    bar = _bar(row, shown.limits) if shown.limits and row.timeline else svg(array, _BAR[0], 2 * _BAR[1])
    files = counted(row.files, "file") if row.files else "in memory"
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
