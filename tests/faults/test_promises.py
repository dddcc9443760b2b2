"""Is each promise in the documentation, and the code that keeps it where the list of promises says? Nothing is broken here."""

from collections import Counter
from pathlib import Path

import pytest

from tests.faults.breaking import ROOT, broken, main
from tests.faults.promises import Promise, promises

PAGE = ROOT / "docs" / "reliability.md"


def test_guards_are_where_the_list_says() -> None:
    for p in promises():
        code = (ROOT / "aggarray" / p.code).read_text(encoding="utf-8")
        assert code.count(p.guard) == 1 and p.guard != p.instead, p.says
        assert (ROOT / "tests" / p.test).is_file() and p.says.endswith("."), p.says


def test_every_promise_is_in_the_documentation_once() -> None:
    written = PAGE.read_text(encoding="utf-8")
    counted = Counter(p.says for p in promises())
    assert max(counted.values()) == 1
    assert [says for says in counted if written.count(f"| {says} |") != 1] == []
    assert written.count("\n| ") - written.count("\n| ---") >= len(counted)


def test_a_guard_that_is_gone_is_noticed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "aggarray").mkdir()
    (tmp_path / "tests").mkdir()
    (tmp_path / "aggarray" / "__init__.py").touch()  # else a package installed elsewhere comes first
    code = tmp_path / "aggarray" / "sums.py"
    code.write_text("def add(a, b):\n    return a + b\n")
    (tmp_path / "tests" / "test_sums.py").write_text(
        "from aggarray.sums import add\n\ndef test_add():\n    assert add(1, 2) == 3\n\ndef test_none():\n    assert add\n"
    )
    promise = Promise("Sums", "Sums are right.", "sums.py", "a + b", "a - b", "test_sums.py", "add")
    assert broken(promise, tmp_path) == "fails"
    assert broken(promise._replace(only="none"), tmp_path) == "PASSES WITHOUT IT"
    assert broken(promise._replace(only="nothing"), tmp_path).startswith("DOES NOT RUN")
    assert "a + b" in code.read_text()
    assert main(["--table"]) == 0 and "| promise |" in capsys.readouterr().out
