"""Sections of the page as HTML: arrays, refusals, files and problems."""

from collections.abc import Sequence
from typing import Any

from aggarray.aggregate.differences import facets_of, labels
from aggarray.aggregate.report import Problem, Report, duplicate_problems, gap_problems, hole_problems, skipped_problems
from aggarray.arrays.master import MasterArray
from aggarray.display.facts import conformed, file_count, time_range
from aggarray.display.html import partition_words, words
from aggarray.display.markup import escaped, shortened
from aggarray.errors import AggarrayError
from aggarray.opening.aggregation import Aggregation

#: The most rows of one table, and the longest texts.
_MOST_ROWS, _LONGEST = 500, 400


def known_report(agg: Aggregation) -> Report:
    """Return the problems that are known without opening files."""
    problems: list[Problem] = []
    for array in agg:
        for find in (gap_problems, hole_problems):
            try:
                problems += find(array)
            except AggarrayError as error:
                problems.append(Problem("unreadable", None, f"{array.name}: {error}"))
    problems += duplicate_problems(agg.duplicates, agg.arrays)
    problems += skipped_problems(agg.skipped)
    return Report(not problems, tuple(problems))


def body(agg: Aggregation, report: Report, shown: int, folder: str) -> str:
    """Return the body of the page; ``shown``: the number of arrays."""
    where = f'<p class="note">Files in {escaped(shortened(folder, _LONGEST))}</p>' if folder else ""
    parts = [_summary(agg, report), where, "<main>", _SEARCH]
    labelled = zip(agg.arrays[:shown], labels(agg.arrays), strict=False)
    parts += [_section(number, array, label) for number, (array, label) in enumerate(labelled)]
    if len(agg) > shown:
        parts.append(f"<p>... and {len(agg) - shown} more arrays: select fewer variables to see them.</p>")
    refusals = [(" and ".join(dict.fromkeys(r.arrays)), r.rule, r.reason) for r in agg.refusals]
    skipped = [(s.file, s.variable or "(all)", s.reason) for s in agg.skipped]
    parts += [
        '<p id="none" hidden>Nothing on this page matches.</p>',
        _listed("problems", "Problems", ("kind", "what"), [(p.kind, p.message) for p in report.problems]),
        _listed("refusals", "Not joined", ("arrays", "rule", "why"), refusals),
        _listed("skipped", "Skipped", ("file", "variable", "why"), skipped),
        "</main>",
    ]
    return "\n".join(part for part in parts if part)


_SEARCH = (
    '<noscript><p class="note">The pictures are drawn by a script, which this browser does not run.</p></noscript>\n'
    '<form role="search" id="search" hidden><label for="query">Search</label>\n'
    '<input id="query" type="search" autocomplete="off" spellcheck="false" placeholder="name, attribute, file">\n'
    '<output id="count" for="query"></output></form>'
)


def _summary(agg: Aggregation, report: Report) -> str:
    counts = [
        ("", len(agg), "array", "arrays"),
        ("", file_count(agg), "file", "files"),
        ("problems", len(report.problems), "problem", "problems"),
        ("refusals", len(agg.refusals), "not joined", "not joined"),
        ("skipped", len(agg.skipped), "skipped", "skipped"),
    ]
    items = []
    for anchor, number, singular, plural in counts:
        text = f"<b>{number:,}</b> {singular if number == 1 else plural}"
        items.append(f'<li><a href="#{anchor}">{text}</a></li>' if anchor and number else f"<li>{text}</li>")
    return f'<ul class="summary">{"".join(items)}</ul>'


def _section(number: int, array: MasterArray, label: str) -> str:
    times = " to ".join(dict.fromkeys(time_range(array) or ()))
    facts = [words(array), partition_words(array), times]
    lines = "".join(f"<li>{escaped(fact)}</li>" for fact in facts if fact)
    name = escaped(shortened(array.name or "array", _LONGEST))
    which = f' <span class="which">{escaped(shortened(label, _LONGEST))}</span>' if label else ""
    about = escaped(f"Partitions of {array.name or 'array'}: {partition_words(array)}")
    return (
        f'<section class="array" data-array="{number}" aria-labelledby="array-{number}">\n'
        f'<h2 id="array-{number}">{name}{which}</h2>\n<ul class="facts">{lines}</ul>\n'
        f'<figure hidden><div class="planes"></div><canvas tabindex="0" role="img" aria-label="{about}"></canvas>'
        '<figcaption class="legend"></figcaption></figure>\n'
        f"{_details(array)}</section>"
    )


def _details(array: MasterArray) -> str:
    """Return conversions on reading, coordinates and attributes as HTML."""
    rows = [(c.kind, c.found, c.master, f"{c.count:,}", c.example or "(in memory)") for c in conformed(array)]
    head = ("what", "in the file", "in the array", "sub-arrays", "such as")
    coords = [(name, words(c), c.attrs.get("standard_name", "")) for name, c in array.coords.items()]
    own, facets = list(array.attrs.items()), facets_of(array)
    files = sorted(array.file_attrs.items(), key=lambda item: item[0] not in facets)
    return (
        _folded(f"Conformed on reading ({len(rows)})", head, rows, "conformed")
        + _folded(f"Coordinates ({len(coords)})", ("name", "what", "standard name"), coords)
        + _folded(f"Attributes ({len(own)})", ("name", "value"), own)
        + _folded(f"Attributes of the files ({len(files)})", ("name", "value"), files)
    )


def _folded(title: str, head: Sequence[str], rows: Sequence[Sequence[Any]], kind: str = "") -> str:
    if not rows:
        return ""
    mark = f' class="{kind}"' if kind else ""
    return f"<details{mark}><summary>{escaped(title)}</summary>\n{_table(head, rows, title)}</details>\n"


def _listed(anchor: str, title: str, head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    if not rows:
        return ""
    return f'<section id="{anchor}"><h2>{escaped(title)} ({len(rows):,})</h2>\n{_table(head, rows, title)}</section>'


def _table(head: Sequence[str], rows: Sequence[Sequence[Any]], caption: str) -> str:
    """Return an HTML table of escaped texts, labelled ``caption``."""
    top = "".join(f'<th scope="col">{escaped(name)}</th>' for name in head)
    cut = [[escaped(shortened(cell, _LONGEST)) for cell in row] for row in rows[:_MOST_ROWS]]
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>\n" for row in cut)
    more = f"<p>... and {len(rows) - _MOST_ROWS:,} more</p>\n" if len(rows) > _MOST_ROWS else ""
    return (
        f'<div class="wide" role="region" aria-label="{escaped(caption)}" tabindex="0">\n'
        f"<table><thead><tr>{top}</tr></thead><tbody>\n{body}</tbody></table></div>\n{more}"
    )
