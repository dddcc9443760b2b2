"""Escaping of text from files for HTML and terminals."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from aggarray.errors import counted as counted
from aggarray.errors import printable as printable
from aggarray.errors import without_credentials as without_credentials

#: Longer words may continue on the next line.
_LONG_WORD = 24


def escaped(text: Any) -> str:
    """Return text escaped for HTML content and quoted attributes.

    >>> escaped("<b>'\\n")
    '&lt;b&gt;&#x27;\\\\n'
    """
    import html

    return html.escape(printable(text))


def breakable(text: Any) -> str:
    """Return escaped text that breaks between words only.

    Long paths and names may also break after their separators, dates and short names with hyphens never (the class ``nb``).

    >>> breakable("from 2001-01 in /archive/CMIP6/ScenarioMIP/tas_day.nc")
    'from <span class="nb">2001-01</span> in /archive/<wbr>CMIP6/<wbr>ScenarioMIP/<wbr>tas_day.nc'
    """
    import re

    return "".join(_breakable_word(word) for word in re.split(r"(\s+)", printable(text)))


def _breakable_word(word: str) -> str:
    import re

    names = re.split(r"(?<=\w/)(?=\w)", word) if len(word) > _LONG_WORD else [word]
    parts = [part for name in names for part in (re.split(r"(?<=[_,=])(?=\w)", name) if len(name) > _LONG_WORD else [name])]
    unbroken = [f'<span class="nb">{escaped(p)}</span>' if "-" in p and len(p) <= _LONG_WORD else escaped(p) for p in parts]
    return "<wbr>".join(unbroken)


def shortened(text: Any, most: int) -> str:
    """Return text cut to ``most`` characters.

    >>> shortened("temperature", 6)
    'tempe…'
    """
    text = str(text)
    return text if len(text) <= most else f"{text[: most - 1]}…"


def sizes(dimensions: Iterable[str], shape: Iterable[int]) -> str:
    """Return the sizes of dimensions in words.

    >>> sizes(("time", "lat"), (12, 2)), sizes((), ())
    ('12 time x 2 lat', '1')
    """
    return " x ".join(f"{n} {d}" for d, n in zip(dimensions, shape, strict=True)) or "1"
