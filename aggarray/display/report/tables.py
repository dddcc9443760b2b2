"""Tables and lists of a page as HTML with escaped texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aggarray.display.markup import breakable, escaped, shortened

#: The most rows of one table, and the longest texts.
MOST_ROWS, LONGEST = 200, 400


def table(head: Sequence[str], rows: Sequence[Sequence[Any]], caption: str) -> str:
    """Return an HTML table, labelled ``caption``."""
    top = "".join(f'<th scope="col">{escaped(name)}</th>' for name in head)
    cut = [[breakable(shortened(cell, LONGEST)) for cell in row] for row in rows[:MOST_ROWS]]
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>\n" for row in cut)
    more = f"<p>... and {len(rows) - MOST_ROWS:,} more</p>\n" if len(rows) > MOST_ROWS else ""
    return (
        f'<div class="wide" role="region" aria-label="{escaped(caption)}" tabindex="0">\n'
        f"<table><thead><tr>{top}</tr></thead><tbody>\n{body}</tbody></table></div>\n{more}"
    )


def details_table(title: str, head: Sequence[str], rows: Sequence[Sequence[Any]], kind: str = "", is_open: bool = False) -> str:
    """Return a table that opens on a click, "" without rows."""
    if not rows:
        return ""
    mark = f' class="{kind}"' * bool(kind) + " open" * is_open
    return f"<details{mark}><summary>{escaped(title)}</summary>\n{table(head, rows, title)}</details>\n"


def table_section(anchor: str, title: str, head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return a section with a table that opens on a click, "" without rows."""
    text = details_table(f"{title} ({len(rows):,})", head, rows)
    return f'<section id="{anchor}">{text}</section>' if rows else ""
