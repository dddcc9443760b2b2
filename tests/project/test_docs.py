"""The documentation builds without warnings, its links resolve, and it describes every public name."""

import base64
import importlib
import inspect
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

import aggarray
from tests.support.browser import Browser, browser
from tests.support.pages import ROOT

DOCS = ROOT / "docs"
#: Modules whose public names the reference describes.
PUBLIC = ("aggarray", "aggarray.dap", "aggarray.memory", "aggarray.mpi")


def names() -> Iterator[str]:
    """Yield every public name and the public members of classes, by public module."""
    for module in PUBLIC:
        home = importlib.import_module(module)
        for name in home.__all__:
            yield f"{module}.{name}"
            result = getattr(home, name)
            if inspect.isclass(result) and not issubclass(result, Exception):
                members = (member for member in vars(result) if not member.startswith("_"))
                yield from (f"{module}.{name}.{member}" for member in members)
    yield from ("aggarray.exchange.halo_widths", "aggarray.exchange.broadcast_groups")


@pytest.mark.parametrize("module", PUBLIC)
def test_the_public_names_of_a_module_are_listed_before_their_import(module: str) -> None:
    script = "import importlib, sys; print(*dir(importlib.import_module(sys.argv[1])))"
    done = subprocess.run([sys.executable, "-c", script, module], cwd=ROOT, capture_output=True, text=True, check=True)
    assert set(importlib.import_module(module).__all__) <= set(done.stdout.split())


def build(source: Path, target: Path) -> "subprocess.CompletedProcess[str]":
    """Build pages as ``make docs`` does."""
    pytest.importorskip("furo", reason="no Sphinx: the extra 'docs'")
    pytest.importorskip("myst_parser", reason="no MyST: the extra 'docs'")
    words = ["-m", "sphinx", "-b", "html", "-n", "-W", "--keep-going", "-q", str(source), str(target)]
    return subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the pages, which build without warnings."""
    path = tmp_path_factory.mktemp("docs")
    done = build(DOCS, path)
    assert done.returncode == 0, done.stderr
    return path


@pytest.mark.heavy
@pytest.mark.heavy
def test_the_documentation_builds_and_describes_everything(pages: Path) -> None:
    from sphinx.util.inventory import InventoryFile

    with (pages / "objects.inv").open("rb") as file:
        inventory: Any = InventoryFile.load(file, "", lambda *parts: "/".join(parts))
    kinds = getattr(inventory, "data", inventory)  # newer and older versions of Sphinx
    described = {name for kind, result in kinds.items() if kind.startswith("py:") for name in result}
    assert sorted(set(names()) - described) == []
    for page in DOCS.rglob("*.md"):
        assert (pages / page.relative_to(DOCS)).with_suffix(".html").is_file(), page
    assert aggarray.__version__ in (pages / "index.html").read_text(encoding="utf-8")


@pytest.mark.heavy
@pytest.mark.heavy
def test_the_reference_has_tables_of_parameters_and_no_private_ones(pages: Path) -> None:
    rows: dict[str, int] = {}
    for page in (pages / "reference").glob("*.html"):
        text = page.read_text(encoding="utf-8")
        for entry in re.split(r'<dt class="sig sig-object py" id="', text)[1:]:
            name, signature = entry.partition('"')[0], re.sub(r"<[^>]+>", "", entry.partition("</dt>")[0].partition(">")[2])
            assert not re.search(r"[(, *]_\w|&lt;factory|object at 0x", signature), f"{name}: {signature}"
            if found := re.search(r'<table class="[^"]*parameters.*?</table>', entry, re.DOTALL):
                cells = re.findall(r"<td>(.*?)</td>", found[0], re.DOTALL)
                meanings = [re.sub(r"<[^>]+>|\s", "", cell) for cell in cells[1::2]]
                assert all(meanings), f"{name}: {cells[0::2][meanings.index('')]}: describe it in the docstring: ``name``: ..."
                rows[name] = len(meanings)
    assert rows["aggarray.open"] == len(inspect.signature(aggarray.open).parameters)
    assert rows["aggarray.Rules"] == len(inspect.signature(aggarray.Rules).parameters)
    assert {"aggarray.MasterArray.sel", "aggarray.Aggregation.save", "aggarray.mpi.reduce", "aggarray.dap.Block"} <= set(rows)


class _Links(HTMLParser):
    """Addresses that a page names, and its anchors."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.anchors: set[str] = set()
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("href", "src") and tag != "link":
                self.links.add(value or "")
            elif name == "id":
                self.anchors.add(value or "")


@pytest.mark.heavy
def test_links_resolve(pages: Path) -> None:
    found = {page: _Links(page) for page in pages.rglob("*.html")}
    broken = []
    for page, links in found.items():
        for link in links.links:
            parts = urlsplit(link)
            if parts.scheme:  # addresses of other hosts are not requested
                right = (
                    parts.scheme in ("https", "http", "data") and " " not in link and (parts.netloc or parts.scheme == "data")
                )
            else:
                path = (page.parent / unquote(parts.path)).resolve() if parts.path else page
                anchored = path not in found or not parts.fragment or unquote(parts.fragment) in found[path].anchors
                right = path.is_file() and anchored
            if not right:
                broken.append(f"{page.relative_to(pages)}: {link}")
    assert broken == []


def test_figures_of_the_front_page_are_measured() -> None:
    measured = (DOCS / "performance.md").read_text(encoding="utf-8").replace("\n", " ")
    front = (DOCS / "index.md").read_text(encoding="utf-8")
    found = re.findall(r"^- \*\*([\d.]+) times\*\*", front, re.MULTILINE)
    assert len(found) == 3
    for figure in found:
        assert re.search(rf"(?<![\d.]){re.escape(figure)} \([\d.]+\) times as fast", measured), figure


@pytest.mark.heavy
def test_pages_in_a_browser(pages: Path) -> None:
    kinds = ["index", "gallery", "comparison", "cheat-sheet", "howto/faq", "howto/migrating"]
    kinds += ["performance-data", "reference/opening"]
    with browser() as page:
        for width, dark in ((1400, True), (390, False)):
            for name in kinds:
                visit(page, (pages / f"{name}.html").as_uri(), width, dark)
                assert page.run("document.documentElement.scrollWidth") <= width, f"{name} is wider than {width}"
        visit(page, (pages / "search.html").as_uri() + "?q=halo", 1400)
        page.until("document.querySelectorAll('#search-results li a').length > 2")
        found = page.run("[...document.querySelectorAll('#search-results li a')].map((link) => link.textContent)")
        assert "aggarray.mpi.HaloExchange" in found, found
        visit(page, (pages / "cheat-sheet.html").as_uri(), 1000)
        printed = base64.b64decode(page.call("Page.printToPDF", preferCSSPageSize=True)["data"])
        sizes = {tuple(map(float, box.split())) for box in re.findall(rb"/MediaBox \[([^]]+)\]", printed)}
        assert len(re.findall(rb"/Type /Page\b", printed)) == 1 and len(sizes) == 1
        assert sizes.pop()[2:] == pytest.approx((595, 842), abs=1.5)  # A4


def visit(page: Browser, address: str, width: int, dark: bool = False) -> None:
    """Open a page at a width, on a light or dark screen."""
    page.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    page.call("Emulation.setEmulatedMedia", features=[scheme])
    page.call("Page.navigate", url=address)
    page.until(f"location.href === {address!r} && document.readyState === 'complete'")


@pytest.mark.parametrize(
    ("page", "warning"),
    [
        ("[away](nowhere.md)", "nowhere.md"),
        ("[away](index.md#nothing)", "nothing"),
        ("```{eval-rst}\n.. autofunction:: aggarray.nothing\n```", "'nothing'"),
        ("![picture](images/none.svg)", "none.svg"),
    ],
)
def test_broken_links_raise(tmp_path: Path, page: str, warning: str) -> None:
    for name in ("conf.py", "notebook_pages.py", "parameters.py"):
        (tmp_path / name).write_bytes((DOCS / name).read_bytes())
    shutil.copytree(DOCS / "static", tmp_path / "static")
    (tmp_path / "index.md").write_text(f"# Page\n\n{page}\n", encoding="utf-8")
    done = build(tmp_path, tmp_path / "build")
    assert done.returncode != 0 and warning in done.stderr
