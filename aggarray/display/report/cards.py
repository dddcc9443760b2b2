"""Cards of a page: the facts of one array, its picture, lines to copy."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from aggarray.aggregate.differences import facets_of
from aggarray.arrays.master import MasterArray
from aggarray.display.facts import conformed
from aggarray.display.html import words
from aggarray.display.markup import breakable, escaped, shortened
from aggarray.display.matrix import partition_words
from aggarray.display.notebook.array import facts_of
from aggarray.display.report.lines import Lines
from aggarray.display.report.tables import LONGEST, details_table
from aggarray.display.timeline import Timeline


def card(number: int, array: MasterArray, which: str, line: Timeline | None, lines: Lines, shared: Collection[str]) -> str:
    """Return the card of an array.

    ``which``: text that distinguishes arrays of one name; ``line``: its timeline; ``shared``: names of file attributes that
    all arrays share.
    """
    pairs = [("shape", words(array)), *facts_of(array, line)]
    facts = "".join(f"<div><dt>{escaped(what)}</dt> <dd>{breakable(text)}</dd></div>" for what, text in pairs)
    name = escaped(shortened(array.name or "array", LONGEST))
    label = f' <span class="which">{escaped(shortened(which, LONGEST))}</span>' if which else ""
    about = escaped(f"Partitions of {array.name or 'array'}: {partition_words(array)}")
    return (
        f'<section class="array" data-array="{number}" aria-labelledby="array-{number}">\n'
        f'<h2 id="array-{number}">{name}{label}</h2>\n<dl class="facts">{facts}</dl>\n'
        f'<figure hidden><div class="planes"></div><canvas tabindex="0" role="img" aria-label="{about}"></canvas>'
        '<figcaption class="legend"></figcaption></figure>\n'
        f"{copied('Python', lines.python)}{copied('Shell', lines.shell)}{_details(array, shared)}</section>"
    )


def copied(what: str, line: str) -> str:
    """Return a line that a button copies as HTML, "" without one."""
    return f'<div class="line"><span>{what}</span> <code tabindex="0">{escaped(line)}</code></div>\n' if line else ""


def _details(array: MasterArray, shared: Collection[str]) -> str:
    """Return conversions on reading, coordinates and attributes as HTML."""
    rows = [(c.kind, c.found, c.master, f"{c.count:,}", c.example or "(in memory)") for c in conformed(array)]
    head = ("what", "in the file", "in the array", "sub-arrays", "such as")
    coords = [(name, words(c), c.attrs.get("standard_name", "")) for name, c in array.coords.items()]
    own, facets = list(array.attrs.items()), facets_of(array)
    files: list[Any] = [item for item in array.file_attrs.items() if item[0] not in shared]
    files.sort(key=lambda item: item[0] not in facets)
    return (
        details_table(f"Conformed on reading ({len(rows)})", head, rows, "conformed")
        + details_table(f"Coordinates ({len(coords)})", ("name", "what", "standard name"), coords)
        + details_table(f"Attributes ({len(own)})", ("name", "value"), own)
        + details_table(f"Attributes of the files ({len(files)})", ("name", "value"), files)
    )
