"""HTML of arrays and aggregations for notebooks, with small pictures.

The HTML and SVG load nothing; text and lines have the colours of the surrounding page. No file is read: unknown values are not
shown. The modules import the arrays that they show, so arrays find them as plug-ins.
"""

from __future__ import annotations

from typing import Any


def array_html(array: Any) -> str:
    """Return the HTML of a master array without reading a file."""
    from aggarray.display import notebook
    from aggarray.plugins import own_objects

    (html_of,) = own_objects(notebook, "ARRAY_HTML")
    return str(html_of(array))
