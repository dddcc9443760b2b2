"""Consistency of the project: existing commands, files that refer only to the project."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.paths import ROOT

pytestmark = pytest.mark.quick

SKIP = {".git", ".venv", "__pycache__", "build", "dist", "archive", "tiles", "corpus", "kept"}
TEXT = {".py", ".md", ".toml", ".txt", ".cfg", ".yml", ".yaml", ".json", ".html", ".css", ".ipynb", ".sh", ""}

#: Words of the environment in which the project is written, which mean nothing to users. The pattern does not match itself.
FOREIGN = re.compile(
    r"\bissues?\s+#?\d+"
    r"|(?<![\w.-])/(?:work|root)/"
    r"|\b(?:pypi|pythonhosted|anaconda)\.(?:org|com)\b",
    re.IGNORECASE,
)


def texts(folder: Path = ROOT) -> Iterator[Path]:
    """Yield the handwritten text files of the project, without folders made by tools."""
    for path in sorted(folder.iterdir()):
        if path.name in SKIP or path.name.endswith((".egg-info", "_cache")) or path.name == ".hypothesis":
            continue
        if path.is_dir():
            yield from texts(path)
        elif path.suffix in TEXT:
            yield path


def targets() -> set[str]:
    """Return the targets of the Makefile."""
    return set(re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


def project() -> dict[str, object]:
    """Return the project table of pyproject.toml."""
    table: dict[str, object] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return table


@pytest.mark.parametrize("page", ["README.md", "docs/contributing.md"])
def test_commands_exist(page: str) -> None:
    named = set(re.findall(r"\bmake ([a-z][a-z-]*)\b(?= *(?:#|`|$))", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE))
    assert {"demo", "test"} <= named or page != "README.md"
    assert named <= targets()


def test_programs_of_the_makefile_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    modules = set(re.findall(r"-m ((?:sample_data|tests|paper)[\w.]*)", makefile))
    assert modules == {"sample_data.demo", "tests.bench", "tests.fuzz", "paper.figures"}
    for module in modules:
        path = ROOT / module.replace(".", "/")
        assert path.with_suffix(".py").is_file() or (path / "__main__.py").is_file(), f"make runs {module}, which is not there"


def test_extras_are_complete() -> None:
    extras = project()["optional-dependencies"]
    assert isinstance(extras, dict)
    assert extras["all"] == [f"aggarray[{','.join(n for n in extras if n not in ('all', 'test', 'bench', 'docs', 'fuzz'))}]"]


PAGES = ["README.md", "sample_data/README.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md")))]


@pytest.mark.parametrize("page", PAGES)
def test_links_resolve(page: str) -> None:
    path = ROOT / page
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", path.read_text(encoding="utf-8"))
    assert [link for link in links if not (path.parent / link).exists()] == []


def test_files_refer_only_to_the_project() -> None:
    result = []
    for path in texts():
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if match := FOREIGN.search(line):
                result.append(f"{path.relative_to(ROOT)}:{number} {match.group()!r}")
    assert not result, "\n".join(result)


@pytest.mark.parametrize("text", ["see issue " + "12", "open('/" + "work/main/x')", "https://pypi" + ".org/simple"])
def test_the_scan_finds(text: str) -> None:
    assert FOREIGN.search(text)


def test_commands_that_install_extras_work() -> None:
    """Those of pages are for a copy of the repository; those of errors for any folder: the package is installed already."""
    named = re.compile(r"pip install [^\n]*?\[(\w+(?:,\w+)*)\]")
    extras = project()["optional-dependencies"]
    assert isinstance(extras, dict)
    sources = {"aggarray": ("'aggarray[",), "tests": ("'.[", "'aggarray[")}
    for path in texts():
        if path.suffix in (".py", ".md"):
            allowed = sources.get(path.relative_to(ROOT).parts[0], ("'.[",))
            for match in named.finditer(path.read_text(encoding="utf-8")):
                right = any(source in match[0] for source in allowed) and set(match[1].split(",")) <= set(extras)
                assert right, f"{path.relative_to(ROOT)}: {match[0]}"
