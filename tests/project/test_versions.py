"""Documentation of several tags: each is built from its own files, and all have one menu."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.browser import browser
from tests.support.paths import ROOT


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the pages of a repository with two tags, the second of which adds a page."""
    pytest.importorskip("furo", reason="no Sphinx: the extra 'docs'")
    folder = tmp_path_factory.mktemp("repository")
    (folder / "docs").mkdir()
    for name in ("conf.py", "notebook_pages.py", "parameters.py", "versions.py"):
        shutil.copy(ROOT / "docs" / name, folder / "docs" / name)
    shutil.copytree(ROOT / "docs" / "static", folder / "docs" / "static")
    (folder / "docs" / "index.md").write_text("# First\n", encoding="utf-8")
    git(folder, "init", "-q")
    release(folder, "v0.9.0")
    (folder / "docs" / "index.md").write_text("# Second\n\n```{toctree}\nmore/page\n```\n", encoding="utf-8")
    (folder / "docs" / "more").mkdir()
    (folder / "docs" / "more" / "page.md").write_text("# Page\n", encoding="utf-8")
    release(folder, "v0.10.0")
    build(folder)
    return folder / "pages"


def git(folder: Path, *words: str) -> None:
    subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", folder, *words], check=True)


def release(folder: Path, tag: str) -> None:
    """Commit and tag what a repository holds."""
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", tag)
    git(folder, "tag", tag)


def build(folder: Path) -> None:
    subprocess.run([sys.executable, "docs/versions.py", "pages"], cwd=folder, check=True)


def test_each_tag_has_its_pages(target: Path) -> None:
    first, second = ((target / tag / "index.html").read_text(encoding="utf-8") for tag in ("v0.9.0", "v0.10.0"))
    assert "First" in first and "aggarray v0.9.0" in first and "Second" in second and "aggarray v0.10.0" in second
    pages = json.loads(re.match(r"const VERSIONS = (.*);\n", (target / "versions.js").read_text(encoding="utf-8"))[1])
    assert list(pages) == ["v0.10.0", "v0.9.0"] and "more/page.html" in pages["v0.10.0"]
    assert "more/page.html" not in pages["v0.9.0"]
    assert "url=v0.10.0/index.html" in (target / "index.html").read_text(encoding="utf-8")


def test_built_tags_are_kept(target: Path) -> None:
    times = {path: path.stat().st_mtime_ns for path in target.rglob("*.html") if path.parent != target}
    build(target.parent)
    assert {path: path.stat().st_mtime_ns for path in times} == times


def test_the_menu_leads_to_the_same_page_or_the_front_page(target: Path) -> None:
    with browser() as page:
        menu = "document.querySelector('select')"
        for start, tag, end in (
            ("v0.9.0/index.html", "v0.10.0", "v0.10.0/index.html"),
            ("v0.10.0/more/page.html", "v0.9.0", "v0.9.0/index.html"),
        ):
            page.call("Page.navigate", url=(target / start).as_uri())
            page.until(f"location.href.endsWith({start!r}) && document.readyState === 'complete'")
            assert page.run(f"{menu}.value") == start.partition("/")[0]
            assert page.run("document.querySelectorAll('select option').length") == 2
            # Later, since a page that is left does not answer.
            page.run(f"setTimeout(() => {{{menu}.value = {tag!r}; {menu}.dispatchEvent(new Event('change'))}})")
            page.until(f"location.href.endsWith({end!r})")
