"""Body of the page: summary, problems, overview, refusals, skipped items."""

from __future__ import annotations

from collections.abc import Sequence

from aggarray.aggregate.differences import labels
from aggarray.aggregate.report import Report
from aggarray.arrays.master import MasterArray
from aggarray.display.facts import file_count
from aggarray.display.markup import breakable, escaped, shortened
from aggarray.display.overview import Overview
from aggarray.display.refusals import dataset_count, divide
from aggarray.display.report.cards import card, copied
from aggarray.display.report.lines import Lines
from aggarray.display.report.problems import Entry, entries
from aggarray.display.report.rows import overview_section
from aggarray.display.report.tables import LONGEST, MOST_ROWS, table_section
from aggarray.opening.aggregation import Aggregation
from aggarray.scan.progress import amount

#: The problems that are listed at the top; the others are folded.
_MOST_ENTRIES = 6
#: The most characters of all cards; further arrays have none.
MOST_CARDS = 1_500_000


def body(
    agg: Aggregation,
    overview: Overview,
    reports: tuple[Report | None, Report | None],
    cards: int,
    folder: str,
    lines: Sequence[Lines],
) -> str:
    """Return the body of the page.

    ``reports``: of the problems and of the layout; ``cards``: the number of arrays with cards.
    """
    report, layout = reports
    found = entries(agg, report)
    where = f'<p class="note">Files in {breakable(shortened(folder, LONGEST))}</p>' if folder else ""
    shared = shared_attributes(agg.arrays)
    made = _Cards(agg, overview, cards, lines, shared)
    refusals = [
        (" and ".join(dict.fromkeys(r.arrays)), r.rule, r.reason) for r in agg.refusals if agg._provenance.separates(r.rule)
    ]
    skipped = [(s.file, s.variable or "(all)", s.reason) for s in agg.skipped]
    parts = [
        _summary(agg, found),
        where,
        "<main>",
        _problems(found, overview),
        _layout(layout),
        _SEARCH,
        overview_section(overview, made.card, found, len(agg) - len(overview.rows)) if len(agg) else "",
        '<p id="none" hidden>Nothing on this page matches.</p>',
        table_section("refusals", "Separate datasets, and why", ("arrays", "rule", "why"), refusals),
        table_section("skipped", "Skipped", ("file", "variable", "why"), skipped),
        table_section("shared", "Attributes of all files", ("name", "value"), sorted(shared.items())),
        "</main>",
    ]
    return "\n".join(part for part in parts if part)


class _Cards:
    """Cards of arrays, as long as there is room."""

    def __init__(self, agg: Aggregation, overview: Overview, most: int, lines: Sequence[Lines], shared: dict[str, str]) -> None:
        self.arrays, self.rows, self.most, self.shared, self.left = agg.arrays, overview.rows, most, shared, MOST_CARDS
        self.labels, self.lines = labels(agg.arrays), lines

    def card(self, number: int) -> str:
        """Return the card of an array, "" without room."""
        if number >= self.most or self.left <= 0:
            return ""
        text = card(
            number, self.arrays[number], self.labels[number], self.rows[number].timeline, self.lines[number], self.shared
        )
        self.left -= len(text)
        return text


def shared_attributes(arrays: Sequence[MasterArray]) -> dict[str, str]:
    """Return the file attributes that several arrays share, as text."""
    if len(arrays) < 2:
        return {}
    texts = [{name: str(value) for name, value in array.file_attrs.items()} for array in arrays]
    return {name: text for name, text in texts[0].items() if all(other.get(name) == text for other in texts[1:])}


_SEARCH = (
    '<noscript><p class="note">A script draws the pictures of partitions; this browser does not run it.</p></noscript>\n'
    '<form role="search" id="search" hidden><label>Search\n'
    '<input id="query" type="search" autocomplete="off" spellcheck="false" placeholder="name, attribute, file"></label>\n'
    '<output id="count" for="query"></output></form>'
)


def _summary(agg: Aggregation, found: Sequence[Entry]) -> str:
    _, between = divide(agg.refusals, agg._provenance.rules.separate_by)
    counts = [
        ("", len(agg), "array", "arrays"),
        ("", file_count(agg), "file", "files"),
        ("problems", len(found), "problem", "problems"),
        ("refusals", dataset_count(between, agg.arrays) if between else 0, "separate dataset", "separate datasets"),
        ("skipped", len(agg.skipped), "skipped", "skipped"),
    ]
    items = []
    for anchor, number, singular, plural in counts:
        text = f"<b>{number:,}</b> {singular if number == 1 else plural}"
        items.append(f'<li><a href="#{anchor}">{text}</a></li>' if anchor and number else f"<li>{text}</li>")
    items.insert(2, f"<li><b>{amount(sum(int(array.nbytes) for array in agg), 'bytes')}</b> of values</li>")
    return f'<ul class="summary">{"".join(items)}</ul>'


def _problems(found: Sequence[Entry], overview: Overview) -> str:
    """Return the problems, the first of them unfolded, with links to rows."""
    if not found:
        return ""
    items = [f"<li>{_entry(entry, overview)}</li>" for entry in found[:MOST_ROWS]]
    return f'<section id="problems"><h2>Problems ({len(found):,})</h2>\n{_folded(items, len(found))}</section>'


def _folded(items: Sequence[str], total: int) -> str:
    """Return list items, the first unfolded; ``total``: with those left out."""
    more = f"<p>... and {total - len(items):,} more</p>" if total > len(items) else ""
    rest = "".join(items[_MOST_ENTRIES:])
    others = f"<details><summary>{total - _MOST_ENTRIES:,} more</summary><ul>{rest}</ul>{more}</details>" if rest else ""
    return f"<ul>{''.join(items[:_MOST_ENTRIES])}</ul>{others}"


def _layout(report: Report | None) -> str:
    """Return the findings of a layout, with the lines that mend them."""
    if report is None:
        return ""
    items = [
        f'<li><b class="kind">{escaped(problem.kind.replace("_", " "))}</b> {breakable(shortened(problem.message, LONGEST))}'
        f"{copied('Remedy', problem.remedy or '')}</li>"
        for problem in report.problems[:MOST_ROWS]
    ]
    if not items:
        return '<section id="layout"><h2>Layout</h2><p>The files are as the profile wants.</p></section>'
    number = len(report.problems)
    return f'<section id="layout"><h2>Layout ({number:,})</h2>\n{_folded(items, number)}</section>'


def _entry(entry: Entry, overview: Overview) -> str:
    shown = [number for number in entry.arrays if number < len(overview.rows)][:3]
    links = "".join(
        f' <a href="#array-{n}">{escaped(shortened(" ".join(filter(None, overview.rows[n].cells)), 60))}</a>' for n in shown
    )
    return f'<b class="kind">{escaped(entry.kind.replace("_", " "))}</b> {breakable(shortened(entry.text, LONGEST))}{links}'
