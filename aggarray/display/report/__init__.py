"""What does an aggregation look like? `page` draws it on one HTML page that needs nothing else, `write` keeps it.

The page holds what is known of every array (`_sections`) as plain HTML, and the partition matrices as data (`_data`) that a
script of the page draws. Its policy allows that script and that style sheet alone, and no request to anywhere.
"""

import base64
import hashlib
import json
import os
import zlib
from importlib.resources import files
from pathlib import Path
from typing import Any

from aggarray.aggregate.report import Report
from aggarray.display.markup import escaped
from aggarray.display.report.data import packed
from aggarray.display.report.sections import body, known_report
from aggarray.errors import AggarrayError
from aggarray.opening import Aggregation
from aggarray.storage.atomic import replace_atomically
from aggarray.storage.locks import LockError, unlock

_START = "<!doctype html>\n"
#: More arrays than this on one page are counted only.
MOST_ARRAYS = 300
#: What is found in a page that was made here: such a file may be replaced.
_MARK = '<meta name="generator" content="aggarray">'


def page(agg: Aggregation, title: str | None = None, report: Report | None = None) -> str:
    """Return an HTML page about an aggregation: its arrays with their partitions drawn, what stayed apart, what is wrong.

    ``title``: None = the number of arrays; ``report``: what `agg.check()` found, None = what can be said without a look at the
    files. No values of data are read, and the same aggregation always gives the same page. Up to `MOST_ARRAYS` arrays are
    shown, and no more cells than the page can hold in 3 MB: neighbours then share one, and the page says so.

    >>> from aggarray import MasterArray, SubArray
    >>> a = MasterArray.from_subarrays([([(0, 2)], SubArray.from_array([1.0, 2.0]))], dimensions=("x",), name="tas")
    >>> page(Aggregation((a,)), title="Two values").splitlines()[:2]
    ['<!doctype html>', '<html lang="en">']
    """
    with agg._provenance.access.reach():
        found = known_report(agg) if report is None else report
        data = packed(agg.arrays[:MOST_ARRAYS])
        heading = escaped(title or f"{len(agg)} array{'s' * (len(agg) != 1)}")
        content = f"<h1>{heading}</h1>\n{body(agg, found, MOST_ARRAYS, data['folder'])}"
    style, script = _text("page.css"), _text("page.js")
    policy = f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; base-uri 'none'; form-action 'none'"
    head = (
        f'<meta charset="utf-8">\n<meta http-equiv="Content-Security-Policy" content="{policy}">\n{_MARK}\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta name="color-scheme" content="light dark">\n<title>{heading}</title>\n<style>{style}</style>'
    )
    scripts = f'<script type="application/octet-stream" id="data">{_wrapped(data)}</script>\n<script>{script}</script>'
    return f'{_START}<html lang="en">\n<head>\n{head}\n</head>\n<body>\n{content}\n{scripts}\n</body>\n</html>\n'


def write(text: str, path: str | os.PathLike[str]) -> bool:
    """Keep a page under a name; return whether anything changed. Written beside and renamed: no half page is ever there.

    AggarrayError where the name is that of something which is no such page, or the folder cannot be written to.
    """
    target = Path(path)
    if is_there(text, target):
        # promise: page-stale-lock
        unlock(os.path.realpath(target))
        return False
    try:
        with replace_atomically(os.path.realpath(target)) as made:
            # promise: page-replaced-atomically
            Path(made).write_bytes(text.encode())
    except LockError as error:
        raise AggarrayError(f"{target}: cannot be written: {error}") from error
    except OSError as error:
        raise AggarrayError(f"{target}: cannot be written: {error.strerror}; check the folder and its space") from error
    return True


def is_there(text: str, path: str | os.PathLike[str]) -> bool:
    """Tell whether a page is what a file holds already; AggarrayError for a file that is something else than a page."""
    if not os.path.lexists(path):
        return False
    try:
        found = Path(path).read_bytes()
    except OSError as error:
        raise AggarrayError(f"{path}: cannot be read: {error.strerror}; give another name") from error
    if _MARK.encode() not in found[:2000]:
        raise AggarrayError(f"{path}: is there, and no page made by aggarray: give another name, or remove it")
    return found == text.encode()


def is_page(path: str) -> bool:
    """Tell whether a file is a page that aggarray has made."""
    try:
        with open(path, "rb") as file:
            return _MARK.encode() in file.read(2000)
    except OSError:
        return False


def _text(name: str) -> str:
    return files(__name__).joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """Return how a policy names an inline script or style sheet."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _wrapped(data: Any) -> str:
    """Return data as text that means nothing in HTML: deflated, in base64."""
    plain = json.dumps(data, separators=(",", ":"), allow_nan=False).encode()
    return base64.b64encode(zlib.compress(plain, 9)).decode()
