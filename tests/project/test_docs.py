"""The documentation builds without warnings, its links resolve, and it describes every public name."""

import importlib
import inspect
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import aggarray
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
    for name in ("conf.py", "parameters.py"):
        (tmp_path / name).write_bytes((DOCS / name).read_bytes())
    shutil.copytree(DOCS / "static", tmp_path / "static")
    (tmp_path / "index.md").write_text(f"# Page\n\n{page}\n", encoding="utf-8")
    done = build(tmp_path, tmp_path / "build")
    assert done.returncode != 0 and warning in done.stderr
