"""Figures that the examples of a page draw and the page shows: ``python -m tests.support.figures docs/howto/cookbook.md``.

A page that shows ``images/NAME/figure.svg`` draws ``figure.svg`` in one of its examples. The program runs the examples and
stores the figures, smaller.
"""

import os
import re
import sys
import tempfile
from pathlib import Path

from tests.support.pages import ROOT, run_page

_DRAWN = re.compile(r'savefig\("([\w-]+\.svg)"\)')
_LONG = re.compile(r"\d+\.\d\d+")
_SHOWN = re.compile(r"!\[[^\]]+\]\(([\w./-]+/([\w-]+\.svg))\)")


def figures(page: str, name: str) -> dict[str, Path]:
    """Return where the figures of a page (its text) are stored, by the name of the file that an example writes."""
    drawn = set(_DRAWN.findall(page))
    stored = {name_: (ROOT / name).parent / path for path, name_ in _SHOWN.findall(page) if name_ in drawn}
    assert set(stored) == drawn, f"{name} draws {sorted(drawn - set(stored))} and does not show them"
    return stored


def shrunk(svg: str) -> str:
    """Return a figure of matplotlib without its metadata, with coordinates of one decimal."""
    svg = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->|<\?xml.*?\?>|<!DOCTYPE.*?>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<[^>]+>", lambda tag: _LONG.sub(lambda number: f"{float(number[0]):.1f}".removesuffix(".0"), tag[0]), svg)
    return re.sub(r">\s+<", "><", re.sub(r"\s*\n\s*", " ", svg)).strip() + "\n"


def main(name: str) -> None:
    """Run the examples of a page and store its figures."""
    page = (ROOT / name).read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        run_page(page, name, Path(folder))
        for drawn, path in figures(page, name).items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(shrunk(Path(folder, drawn).read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
