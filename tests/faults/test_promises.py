"""Each promise has one marked guard and one row in the documentation. `tests.faults.breaking` breaks the guards."""

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

from tests.faults.breaking import ROOT, broken, main, table
from tests.faults.promises import Guard, Promise, guards, promises, without_guard

PAGE = ROOT / "docs" / "reliability.md"


#: Names that a replacement may introduce.
_BROUGHT = {"ZeroDivisionError", "None", "True", "False", "pass", "return", "never", "always", "_"} | {
    *("write_bytes", "mmap", "__import__", "list", "str", "strip")
}
_MARKED = guards(ROOT / "aggarray")


def test_each_promise_has_one_guard() -> None:
    assert sorted(p.id for p in promises()) == sorted(_MARKED)


@pytest.mark.parametrize("promise", promises(), ids=lambda p: p.id)
def test_a_guard_can_be_broken(promise: Promise) -> None:
    guard = _MARKED[promise.id]
    source = (ROOT / "aggarray" / guard.code).read_text(encoding="utf-8")
    without = without_guard(source, guard.line, promise.instead)
    assert ast.dump(ast.parse(without)) != ast.dump(ast.parse(source))
    assert set(re.findall(r"[^\W\d]\w*", promise.instead)) <= {*re.findall(r"[^\W\d]\w*", source), *_BROUGHT}
    assert (ROOT / "tests" / promise.test).is_file() and promise.says.endswith(".")


def test_a_guard_is_the_line_below_its_mark(tmp_path: Path) -> None:
    code = tmp_path / "sums.py"
    code.write_text("def add(a, b):\n    # promise: sums\n    if a > b:\n        return b + a\n    return a + b\n")
    assert guards(tmp_path) == {"sums": Guard("sums.py", 2)}
    for instead, line in (("never", "    if False:"), ("always", "    if True:"), ("x\ny", "    x\n    y")):
        assert f"# promise: sums\n{line}\n        return" in without_guard(code.read_text(), 2, instead)
    with pytest.raises(ValueError, match="no condition"):
        without_guard(code.read_text(), 4, "never")
    (tmp_path / "more.py").write_text("# promise: sums\npass\n")
    with pytest.raises(ValueError, match=r"two lines: more\.py and sums\.py"):
        guards(tmp_path)


def test_every_promise_is_in_the_documentation_once() -> None:
    written = PAGE.read_text(encoding="utf-8")
    counted = Counter(p.says for p in promises())
    assert max(counted.values()) == 1
    assert [says for says in counted if written.count(f"| {says} |") != 1] == []
    rows = [row for row in table(promises()) if ".py` | " in row]
    assert len(rows) == len(counted) and [row for row in rows if row not in written.splitlines()] == []
    assert written.count("\n| ") - written.count("\n| ---") >= len(counted)


@pytest.mark.heavy
def test_missing_guard_is_detected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "aggarray").mkdir()
    (tmp_path / "tests").mkdir()
    (tmp_path / "aggarray" / "__init__.py").touch()  # takes precedence over an installed package
    code = tmp_path / "aggarray" / "sums.py"
    code.write_text("def add(a, b):\n    # promise: sums\n    return a + b\n")
    (tmp_path / "tests" / "test_sums.py").write_text(
        "from aggarray.sums import add\n\ndef test_add():\n    assert add(1, 2) == 3\n\ndef test_none():\n    assert add\n"
    )
    promise = Promise("sums", "Sums", "Sums are right.", "return a - b", "test_sums.py", "add")
    guard = Guard("sums.py", 2)
    assert broken(promise, guard, tmp_path) == "fails"
    assert broken(promise._replace(only="none"), guard, tmp_path) == "PASSES WITHOUT IT"
    assert broken(promise._replace(only="nothing"), guard, tmp_path).startswith("DOES NOT RUN")
    assert "a + b" in code.read_text()
    assert main(["--table"]) == 0 and "| promise |" in capsys.readouterr().out
