"""Overview of a page: a row per dataset on one axis, which opens its card."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from aggarray.display.markup import escaped, shortened
from aggarray.display.overview import HEIGHT, WIDEST, WIDTH, Overview, bar_paths, natural_key, period
from aggarray.display.report.problems import Entry
from aggarray.display.timeline import Span, ticks, united_parts
from aggarray.errors import counted
from aggarray.scan.progress import amount

#: Percent of an axis at each end whose labels are not centred.
_END = 3
#: The longest texts in characters.
_LONGEST = 80
#: The most rows whose groups are open at first, and whose cards are.
_MOST_OPEN, _FEW = 100, 3
#: A long number of datasets.
_COUNT = "123 datasets"
#: The parts of a bar in the order of drawing, and what they mean.
_DRAWN = ("data", "overlap", "hole", "gap")
_MEANINGS = {
    "data": "data",
    "gap": "gap: steps are missing",
    "overlap": "overlap: not joined, because another array has the same times",
    "hole": "no file covers a part of the array",
}


def widths(overview: Overview) -> list[int]:
    """Return the width of each column in characters."""
    columns = zip(overview.names, zip(*(row.cells for row in overview.rows), strict=True), strict=False)
    return [min(max(len(name), *(len(cell) for cell in cells)), WIDEST) for name, cells in columns]


def style(overview: Overview) -> str:
    """Return the widths of the columns as CSS; a grouping column is hidden."""
    own, hidden = widths(overview), overview.groups()
    total = sum(width + 1.5 for n, width in enumerate(own) if n != hidden)
    # A group has the name, the value and the number of datasets in the place of all columns.
    least = [len(name) + min(width, WIDEST) + len(_COUNT) + 3 for name, width in zip(overview.names, own, strict=False)]
    values = "".join(f" --w{n}: {width + 0.5:g}ch; --g{n}: {least[n]}ch;" for n, width in enumerate(own))
    total = max(total, 14 if hidden is None else least[hidden])
    when = max((len(row.period) for row in overview.rows), default=0)
    rules = [f".f{n} {{ width: var(--w{n}); }}" for n in range(len(own))]
    return "\n".join([f":root {{{values} --facets: {total:g}ch; --when: {when + 0.5:g}ch; }}", *rules])


def overview_section(overview: Overview, cards: Callable[[int], str], entries: Sequence[Entry], left_out: int) -> str:
    """Return the overview as HTML.

    ``cards``: returns the card of an array, "" without; ``left_out``: the number of arrays that are not shown.
    """
    flags = Counter(number for entry in entries for number in entry.arrays)
    order = sorted(range(len(overview.rows)), key=lambda n: natural_key(overview.rows[n].cells))
    rows = {n: _row(place, n, overview, cards(n), flags) for place, n in enumerate(order)}
    column = overview.groups()
    content = "\n".join(rows.values() if column is None else _groups(overview, column, rows, flags))
    hidden = "" if column is None else f' data-group="{column}"'
    more = f"<p>... and {left_out:,} more arrays: select fewer to see them.</p>" if left_out else ""
    return (
        f'<section id="overview" aria-label="Datasets">\n{_head(overview, bool(flags))}\n'
        f'<div id="rows"{hidden}>\n{content}\n</div>\n{_legend(overview)}{more}</section>'
    )


def _head(overview: Overview, flagged: bool) -> str:
    hidden = overview.groups()
    names = "".join(
        f'<span class="f{n}"{" hidden" * (n == hidden)}>{escaped(name)}</span>' for n, name in enumerate(overview.names)
    )
    flag = '<span class="flag"></span>' if flagged else ""
    numbers = '<span class="when">time</span><span class="files">files</span><span class="bytes">size</span>'
    return (
        f'<div class="head" aria-hidden="true"><span class="facets">{names}</span>{_axis(overview.limits)}{flag}{numbers}</div>'
    )


def _axis(limits: Span | None) -> str:
    """Return the shared axis; its text is not stretched."""
    marks = ""
    for number, (x, text) in enumerate(ticks(limits) if limits else ()):
        percent = _percent(x, limits) if limits else 0
        place, minor = f"{percent:.4g}%", ' class="minor"' if number % 2 else ""
        # Labels at the ends do not reach into the columns beside the axis.
        anchor = ' class="first"' if percent < _END else ' class="last"' if percent > 100 - _END else ""
        label = f'<text{anchor} x="{place}" y="11">{text}</text>'
        marks += f'<g{minor}><line x1="{place}" x2="{place}" y1="14" y2="18"/>{label}</g>'
    return f'<svg class="axis">{marks}</svg>'


def _percent(x: float, limits: Span) -> float:
    return 100 * (x - limits[0]) / max(limits[1] - limits[0], 1e-9)


def bar(parts: dict[str, tuple[Span, ...]], limits: Span | None, words: str) -> str:
    """Return the bar of a row as SVG, stretched to the width that there is."""
    if limits is None:
        return '<svg class="bar" aria-hidden="true"></svg>'
    grid = "".join(f"M{_percent(x, limits) * WIDTH / 100:.4g} 0v{HEIGHT}" for x, _ in ticks(limits))
    drawn = "".join(f'<path class="{kind}" d="{d}"/>' for kind, d in bar_paths(parts, limits).items())
    about = f'role="img" aria-label="{escaped(words)}"' if words else 'aria-hidden="true"'
    box = f'viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none"'
    return f'<svg class="bar" {box} {about}><path class="grid" d="{grid}"/>{drawn}</svg>'


def _row(place: int, number: int, overview: Overview, card: str, flags: Counter[int]) -> str:
    """Return the row of an array; ``place``: in the order of the page."""
    row, hidden = overview.rows[number], overview.groups()
    cells = " ".join(
        f'<span class="f{n}"{" hidden" * (n == hidden)}{_title(cell)}>{escaped(shortened(cell, _LONGEST))}</span>'
        for n, cell in enumerate(row.cells)
    )
    summary = f'<span class="facets">{cells}</span> {bar(row.parts, overview.limits, row.describe())}'
    summary += _flag(flags[number], flags) + _numbers(row.period, row.files, row.nbytes)
    start = row.timeline.limits[0] if row.timeline else 0.0
    keys = f'data-sort="{place} {start:.4f} {row.files} {row.nbytes} {flags[number]}"'
    if not card:
        return f'<div class="row" id="array-{number}" {keys}>{summary}</div>'
    is_open = " open" * (len(overview.rows) <= _FEW)
    return f'<details class="row" {keys}{is_open}><summary>{summary}</summary>\n{card}\n</details>'


def _title(cell: str) -> str:
    return f' title="{escaped(shortened(cell, 400))}"' if len(cell) > WIDEST else ""


def _flag(count: int, flags: Counter[int]) -> str:
    text = counted(count, "problem") if count else ""
    return f'<span class="flag">{text}</span> ' if flags else ""


def _numbers(when: str, files: int, nbytes: int) -> str:
    count = counted(files, "file") if files else "in memory"
    return (
        f'<span class="when">{escaped(when)}</span> <span class="files">{count}</span> '
        f'<span class="bytes">{amount(nbytes, "bytes")}</span>'
    )


def _groups(overview: Overview, column: int, rows: Mapping[int, str], flags: Counter[int]) -> list[str]:
    """Return the rows in groups of one value of a column."""
    members: dict[str, list[int]] = {}
    for number in rows:
        members.setdefault(overview.rows[number].cells[column], []).append(number)
    return [
        _group(
            f"{escaped(overview.names[column])} <b>{escaped(shortened(value or 'none', _LONGEST))}</b>",
            overview,
            members[value],
            rows,
            flags,
        )
        for value in sorted(members)
    ]


def _group(name: str, overview: Overview, numbers: Sequence[int], rows: Mapping[int, str], flags: Counter[int]) -> str:
    own = [overview.rows[n] for n in numbers]
    parts = {kind: united_parts([span for row in own for span in row.parts.get(kind, ())]) for kind in _DRAWN}
    dates = [row.timeline.dates for row in own if row.timeline]
    when = period(min(d[0] for d in dates), max(d[1] for d in dates)) if dates else ""
    count = f'<span class="count">{counted(len(own), "dataset")}</span>'
    summary = f'<span class="facets"><span>{name}</span> {count}</span>{bar(parts, overview.limits, "")}'
    flag = f'<span class="flag">{"problems" * any(flags[n] for n in numbers)}</span> ' if flags else ""
    summary += flag + _numbers(when, sum(r.files for r in own), sum(r.nbytes for r in own))
    is_open = " open" * (len(rows) <= _MOST_OPEN)
    content = "\n".join(rows[n] for n in numbers)
    return f'<details class="group"{is_open}><summary>{summary}</summary>\n{content}\n</details>'


def _legend(overview: Overview) -> str:
    kinds = {kind for row in overview.rows for kind, spans in row.parts.items() if spans}
    if not kinds:
        return ""
    box = f'<svg class="bar" viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none" aria-hidden="true">'
    swatches = {kind: bar_paths({kind: [(0.0, 1.0)]}, (0.0, 1.0))[kind] for kind in _MEANINGS}
    items = [
        f'<span>{box}<path class="{kind}" d="{swatches[kind]}"/></svg>{meaning}</span>'
        for kind, meaning in _MEANINGS.items()
        if kind in kinds
    ]
    return f'<p class="legend">{"".join(items)}</p>\n'
