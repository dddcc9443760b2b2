"""How does text that comes from files get into HTML, or onto a terminal, without doing anything there?"""

import html
from collections.abc import Iterable
from typing import Any

from aggarray.errors import printable as printable


def escaped(text: Any) -> str:
    """Return text as HTML shows it, in content and in quoted attributes.

    >>> escaped("<b>'\\n")
    '&lt;b&gt;&#x27;\\\\n'
    """
    return html.escape(printable(text))


def shortened(text: Any, most: int) -> str:
    """Return the text, with its end left out where it is longer than ``most`` characters.

    >>> shortened("temperature", 6)
    'tempe…'
    """
    found = str(text)
    return found if len(found) <= most else f"{found[: most - 1]}…"


def table(head: Iterable[Any], rows: Iterable[Iterable[Any]], caption: str) -> str:
    """Return an HTML table of escaped texts; ``caption`` names it for those who do not see it."""
    top = "".join(f'<th scope="col">{escaped(name)}</th>' for name in head)
    body = "".join(f"<tr>{''.join(f'<td>{escaped(cell)}</td>' for cell in row)}</tr>\n" for row in rows)
    return (
        f'<div class="wide" role="region" aria-label="{escaped(caption)}" tabindex="0">\n'
        f"<table><thead><tr>{top}</tr></thead><tbody>\n{body}</tbody></table></div>\n"
    )
