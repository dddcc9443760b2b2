"""The examples of the README and of other pages run as they stand, and give what their comments say."""

import ast
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("README.md", "docs/distributed-arrays.md")
_TOPICS = ("parallel", "remote", "kerchunk", "xarray", "memory", "ragged")
PYTHON = dict.fromkeys(PAGES, 6) | {f"docs/{topic}.md": 6 for topic in _TOPICS} | {"docs/command-line.md": 1}


def blocks(page: str, language: str) -> list[str]:
    """Return the fenced code blocks of a language."""
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), flags=re.DOTALL)


def is_expression(code: str) -> bool:
    """Tell whether a line is an expression by itself."""
    try:
        ast.parse(code, mode="eval")
    except SyntaxError:
        return False
    return True


def promised(comment: str) -> Any:
    """Return the literal that a comment begins with, or None where it is prose."""
    for end in range(len(comment), 0, -1):
        try:
            return ast.literal_eval(comment[:end].strip())
        except (SyntaxError, ValueError):
            continue
    return None


@pytest.mark.parametrize("page", PYTHON)
def test_python_examples_give_what_their_comments_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page: str) -> None:
    (tmp_path / "sample_data").symlink_to(ROOT / "sample_data")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    compared = 0
    for block in blocks(page, "python"):
        exec(compile(block, page, "exec"), names)
        for line in block.splitlines():
            code, _, comment = line.partition("#")
            if not comment or not is_expression(code.strip()):
                continue
            expected = promised(comment.strip())
            if expected is not None:
                found = eval(code, names)
                assert np.array_equal(found, expected) if isinstance(found, np.ndarray) else found == expected, line
                compared += 1
    assert compared >= PYTHON[page]


@pytest.mark.parametrize("page", (*PAGES, "docs/command-line.md"))
def test_shell_examples_run(tmp_path: Path, page: str) -> None:
    (tmp_path / "sample_data").symlink_to(ROOT / "sample_data")
    for block in blocks(page, "toml"):
        (tmp_path / "job.toml").write_text(block)
    commands = [
        shlex.split(line, comments=True)
        for block in blocks(page, "sh")
        for line in block.splitlines()
        if line.startswith("aggarray ")
    ]
    assert len(commands) >= 2
    for command in commands:
        done = subprocess.run(
            [sys.executable, "-m", "aggarray.cli", *command[1:]], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0 and re.search("tas|no problems|0 problems|rank|would be", done.stdout), done.stderr
