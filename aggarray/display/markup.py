"""Escaping of text from files for HTML and terminals."""

from collections.abc import Iterable
from typing import Any

from aggarray.errors import printable as printable


def escaped(text: Any) -> str:
    """Return text escaped for HTML content and quoted attributes.

    >>> escaped("<b>'\\n")
    '&lt;b&gt;&#x27;\\\\n'
    """
    import html

    return html.escape(printable(text))


def shortened(text: Any, most: int) -> str:
    """Return text cut to ``most`` characters.

    >>> shortened("temperature", 6)
    'tempe…'
    """
    text = str(text)
    return text if len(text) <= most else f"{text[: most - 1]}…"


def counted(number: int, what: str) -> str:
    """Return a number with its noun.

    >>> counted(1, "file"), counted(0, "file"), counted(2, "new file")
    ('1 file', '0 files', '2 new files')
    """
    return f"{number} {what}{'s' * (number != 1)}"


def sizes(dimensions: Iterable[str], shape: Iterable[int]) -> str:
    """Return the sizes of dimensions in words.

    >>> sizes(("time", "lat"), (12, 2)), sizes((), ())
    ('12 time x 2 lat', '1')
    """
    return " x ".join(f"{n} {d}" for d, n in zip(dimensions, shape, strict=True)) or "1"
