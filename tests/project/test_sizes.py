"""Modules, functions and first lines of docstrings are short."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.paths import ROOT

#: Lines of a module and of a function, and characters of the first line of a docstring.
MODULE, FUNCTION, FIRST_LINE = 400, 40, 72


def oversized(path: Path) -> Iterator[str]:
    """Yield what is too long in a module, with its line."""
    source = path.read_text(encoding="utf-8")
    if (count := len(source.splitlines())) > MODULE:
        yield f"{path.name}: {count} lines"
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        first, line = (ast.get_docstring(node) or "").partition("\n")[0], getattr(node, "lineno", 1)
        if len(first) > FIRST_LINE:
            yield f"{path.name}:{line}: a docstring that begins with {len(first)} characters"
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (node.end_lineno or line) - line >= FUNCTION:
            yield f"{path.name}:{line}: {node.name} has {(node.end_lineno or line) - line + 1} lines"


def test_the_package() -> None:
    assert [fault for path in sorted((ROOT / "aggarray").rglob("*.py")) for fault in oversized(path)] == []


@pytest.mark.parametrize(
    ("code", "count"),
    [("\n" * 400, 0), ("\n" * 401, 1), ("def f():\n" + "    pass\n" * 39, 0), ("def f():\n" + "    pass\n" * 40, 1)]
    + [(f'class A:\n    """{"x" * length}\n\n    {"y" * 100}"""\n', length - 72) for length in (72, 73)],
)
def test_long_ones_are_found(tmp_path: Path, code: str, count: int) -> None:
    (tmp_path / "module.py").write_text(code)
    assert len(list(oversized(tmp_path / "module.py"))) == count
