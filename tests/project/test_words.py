"""Identifiers use the words of the glossary in docs/contributing.md, and none of those that it replaced."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.paths import ROOT

#: Words that the glossary replaced, and others that only the authors of earlier versions understood.
REPLACED = {
    *("sheaf", "sheaves", "crew", "stretch", "stretches", "wish", "wishes", "glimpse", "glimpses", "glimpsed"),
    *("ears", "parcel", "parcels", "crates", "journey", "trip", "apart", "alike", "settle", "settled", "settling", "guessed"),
    *("judge", "judges", "judged", "sharer", "survey", "surveyed", "believable", "unbelievable", "swelling", "elsewhere"),
    *("borrowed", "borrows", "borrowing", "dealing", "dealt", "fans", "telling", "told", "tells", "handing", "taking"),
    *("carrying", "hear", "said", "whoever", "nobody", "modelled", "doubtful"),
}
#: Attributes that pickles of earlier versions name.
KEPT = {"interop/dask.py": "_told"}


def identifiers(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield (identifier, line) of whatever a module names: functions, classes, parameters, variables, attributes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            yield node.id, node.lineno
        elif isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
            yield node.attr, node.lineno
        elif isinstance(node, ast.alias) and node.asname:
            yield node.asname, node.lineno


def words(identifier: str) -> set[str]:
    """Return the words of an identifier, in lower case."""
    return set(re.findall(r"[a-z]+", re.sub(r"([A-Z])", r"_\1", identifier).lower()))


def replaced_words(path: Path) -> Iterator[str]:
    """Yield the identifiers of a module that contain a replaced word, with their lines."""
    kept = KEPT.get(path.relative_to(ROOT / "aggarray").as_posix(), "") if path.is_relative_to(ROOT) else ""
    for identifier, line in [(path.stem, 1), *identifiers(ast.parse(path.read_text(encoding="utf-8")))]:
        if words(identifier) & REPLACED and identifier != kept:
            yield f"{path.name}:{line} {identifier}"


def test_identifiers_use_the_words_of_the_glossary() -> None:
    assert [fault for path in sorted((ROOT / "aggarray").rglob("*.py")) for fault in replaced_words(path)] == []


@pytest.mark.parametrize(
    "code", ["class Sheaf: ...", "def f(told): ...", "crew_size = 1", "self.is_doubtful = 1", "import a as crew"]
)
def test_replaced_words_are_found(tmp_path: Path, code: str) -> None:
    path = tmp_path / "module.py"
    path.write_text(code)
    assert len(list(replaced_words(path))) == 1
    path.write_text("def read_ranges(path, ranges): ...")
    assert list(replaced_words(path)) == []
