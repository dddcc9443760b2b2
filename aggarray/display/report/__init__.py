"""HTML page of an aggregation: `page` returns it, `write` writes it.

The page has an overview of the arrays and the facts of each (`sections`) as plain HTML, and the partition matrices as data
(`data`) that a script of the page draws. Its content security policy allows only that script and style sheet, and no requests.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import zlib
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from aggarray.aggregate.report import Report
from aggarray.display.markup import escaped
from aggarray.display.overview import overview_of
from aggarray.display.report.data import page_data
from aggarray.display.report.lines import Lines, lines_of
from aggarray.display.report.rows import style
from aggarray.display.report.sections import body
from aggarray.errors import AggarrayError, counted
from aggarray.opening.aggregation import Aggregation
from aggarray.storage.atomic import replace_atomically
from aggarray.storage.locks import LockError, unlock

_START = "<!doctype html>\n"
#: The most arrays on one page, and the most that a card describes.
MOST_ARRAYS, MOST_CARDS = 2000, 300
#: The mark of pages of aggarray, which may be replaced.
_MARK = '<meta name="generator" content="aggarray">'


def page(
    agg: Aggregation,
    title: str | None = None,
    report: Report | None = None,
    source: Sequence[str] | None = None,
    group_by: str | None = None,
    lines: Sequence[Lines] | None = None,
    layout: Report | None = None,
) -> str:
    """Return an HTML page about the arrays and problems of an aggregation.

    ``title``: None = the number of arrays; ``report``: the result of `agg.check()`, None = problems that are known without
    opening files; ``source``: the paths that were opened, for the lines that open each array, None = the index;
    ``group_by``: the attribute that groups the datasets, None = chosen; ``lines``: those that open each array, instead;
    ``layout``: the result of `agg.check_layout()`, None = no section about it. No data
    values are read, and equal aggregations give equal pages. Up to `MOST_ARRAYS` arrays are shown, in at most 3 MB:
    neighbouring cells are merged and further arrays have no card if needed, and the page says so.

    >>> from aggarray import MasterArray, SubArray
    >>> a = MasterArray.from_subarrays([([(0, 2)], SubArray.from_array([1.0, 2.0]))], dimensions=("x",), name="tas")
    >>> page(Aggregation((a,)), title="Two values").splitlines()[:2]
    ['<!doctype html>', '<html lang="en">']
    """
    with agg._provenance.access.reach():
        rows = overview_of(agg.arrays[:MOST_ARRAYS], agg.refusals, group_by)
        data = page_data(agg.arrays[:MOST_CARDS], [row.timeline for row in rows.rows])
        lines = lines_of(agg, source) if lines is None else lines
        heading = escaped(title or counted(len(agg), "array"))
        content = f"<h1>{heading}</h1>\n{body(agg, rows, (report, layout), MOST_CARDS, data['folder'], lines)}"
    sheet, script = f"{_text('page.css')}{style(rows)}\n", _text("page.js")
    policy = f"default-src 'none'; style-src {_hash(sheet)}; script-src {_hash(script)}; base-uri 'none'; form-action 'none'"
    head = (
        f'<meta charset="utf-8">\n<meta http-equiv="Content-Security-Policy" content="{policy}">\n{_MARK}\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta name="color-scheme" content="light dark">\n<title>{heading}</title>\n<style>{sheet}</style>'
    )
    # Base64 is safe in HTML.
    packed = base64.b64encode(zlib.compress(json.dumps(data, separators=(",", ":"), allow_nan=False).encode(), 5)).decode()
    scripts = f'<script type="application/octet-stream" id="data">{packed}</script>\n<script>{script}</script>'
    return f'{_START}<html lang="en">\n<head>\n{head}\n</head>\n<body>\n{content}\n{scripts}\n</body>\n</html>\n'


def write(text: str, path: str | os.PathLike[str]) -> bool:
    """Write a page to a file atomically; return whether the file changed.

    Raises AggarrayError if the file exists and is not a page of aggarray, or if it cannot be written.
    """
    target = Path(path)
    if is_up_to_date(text, target):
        # promise: page-stale-lock
        unlock(os.path.realpath(target))
        return False
    try:
        with replace_atomically(os.path.realpath(target)) as made:
            # promise: page-replaced-atomically
            Path(made).write_bytes(text.encode())
    except LockError as error:
        raise AggarrayError(f"cannot be written: {error.what}", path=str(target), hint=error.hint) from error
    except OSError as error:
        hint = "check the folder and its space"
        raise AggarrayError(f"cannot be written: {error.strerror}", path=str(target), hint=hint) from error
    return True


def is_up_to_date(text: str, path: str | os.PathLike[str]) -> bool:
    """Return whether a file holds this page; AggarrayError for other files."""
    if not os.path.lexists(path):
        return False
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise AggarrayError(f"cannot be read: {error.strerror}", path=str(path), hint="give another name") from error
    if _MARK.encode() not in content[:2000]:
        hint = "give another name"
        raise AggarrayError("exists and is not a page of aggarray", path=str(path), hint=hint)
    return content == text.encode()


def is_page(path: str) -> bool:
    """Return whether a file is a page of aggarray."""
    try:
        with open(path, "rb") as file:
            return _MARK.encode() in file.read(2000)
    except OSError:
        return False


def _text(name: str) -> str:
    return files(__name__).joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
