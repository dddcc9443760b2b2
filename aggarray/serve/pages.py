"""HTML page of several archives."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

from aggarray.display.markup import escaped
from aggarray.errors import counted
from aggarray.serve.archives import Archive

_STYLE = "body{font:16px/1.5 system-ui,sans-serif;max-width:50rem;margin:2rem auto;padding:0 1rem}code{font-size:.9em}"
_STYLE += "@media(prefers-color-scheme:dark){body{background:#16191d;color:#e6e8ea}a{color:#8ab8ff}}"


def list_page(archives: Mapping[str, Archive]) -> str:
    """Return a page that links to the page of each archive."""
    rows = "".join(
        f'<li><a href="{escaped(quote(name))}/">{escaped(name)}</a>: {escaped(counted(len(archive.agg), "array"))}</li>'
        for name, archive in archives.items()
    )
    head = '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    title = escaped(counted(len(archives), "archive"))
    return f"{head}<title>{title}</title><style>{_STYLE}</style><h1>{title}</h1><ul>{rows}</ul></html>"
