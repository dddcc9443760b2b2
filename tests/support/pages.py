"""Execution of the examples of a page, block by block, in one folder and with shared names.

- ``python`` is executed; an expression whose comment begins with a literal must have that value. A block that begins with
  ``# NAME.py`` is a program: it is written to that file.
- ``pycon`` is a session: its output must match the page (``...`` matches anything).
- ``sh`` is a list of commands, and ``console`` a session of them: ``$ command``, then its output. ``# status 1`` after a
  command is its expected exit status. ``aggarray serve`` is stopped once it serves; it uses a free port, and prints 8000.
- ``bash`` is a script: it is written to the file that its second line, ``# NAME.sh: ...``, names. ``sbatch NAME.sh`` runs it.
- Languages of `_SHOWN_ONLY` are not executed; a ``toml`` block that begins with ``# NAME.toml`` is written to that file.

Any other language is an error. A page with a line ``<!-- needs: NAME -->`` is skipped if the library is not installed.
"""

import ast
import doctest
import importlib
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.mpi import ROOT, rank_environment, run_mpi
from tests.support.slurm import run_batch

#: Pages with examples, as paths from the root of the project.
PAGES = ("README.md", *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md")))

_SHOWN = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
#: Languages of blocks that are not executed.
_SHOWN_ONLY = ("text", "toml", "py", "js", "julia", "r", "ini")
#: Commands that prepare a machine are not run.
_PREPARING = ("pip install ", "make ", "python -m venv ", ".venv/bin/python ", "eval ")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of a page, with the number of its first line."""

    language: str
    text: str
    line: int

    @property
    def file(self) -> str | None:
        """The file that the block is written to; None if it is not written."""
        result = re.match(r"(?:#!.*\n)?# (\S+\.(?:py|toml|sh))(?::.*)?\n", self.text)
        return result and result[1]


def blocks(page: str) -> list[Block]:
    """Return the blocks of a page (its text) that name a language; directives of the documentation name none."""
    result = re.finditer(r"^(`{3,})([^\n`]*)\n(.*?)^\1 *$", page, flags=re.DOTALL | re.MULTILINE)
    return [Block(m[2], m[3], page[: m.start()].count("\n") + 2) for m in result if not m[2].startswith("{")]


def needed(page: str) -> list[str]:
    """Return the libraries that a page requires."""
    return re.findall(r"<!-- needs: (\w+) -->", page)


def run_page(page: str, name: str, folder: Path) -> int:
    """Run the examples of a page (its text) in a folder, the current one; return the number of compared results."""
    for library in needed(page):
        try:
            importlib.import_module(library)
        except (ImportError, RuntimeError, OSError) as error:
            pytest.skip(f"{name} needs {library}: {error}")
    for shared in ("sample_data", "examples"):
        (folder / shared).symlink_to(ROOT / shared)
    names: dict[str, Any] = {"__name__": "__main__"}
    compared = 0
    for block in blocks(page):
        where = f"{name}, line {block.line}"
        if block.file is not None:
            (folder / block.file).write_text(block.text, encoding="utf-8")
        elif block.language == "python":
            compared += run_python(block.text, where, names)
        elif block.language == "pycon":
            compared += run_session(block.text, where, names)
        elif block.language == "sh":
            for command in block.text.splitlines():
                run_command(command, where, folder)
        elif block.language == "console":
            compared += run_console(block.text, where, folder)
        else:
            assert block.language in _SHOWN_ONLY, f"{where}: a block of {block.language or 'no language'}"
    return compared


def run_python(code: str, where: str, names: dict[str, Any]) -> int:
    """Execute a block; return the number of lines with an expected result."""
    compared = 0
    exec(compile(code, where, "exec"), names)
    for line in code.splitlines():
        expression, _, comment = line.partition("#")
        expected = promised(comment.strip())
        if expected is None or not is_expression(expression.strip()):
            continue
        found = eval(expression, names)
        equal = np.array_equal(found, expected) if isinstance(found, np.ndarray) else found == expected
        assert equal, f"{where}: {line}\ngives {found!r}"
        compared += 1
    return compared


def is_expression(code: str) -> bool:
    """Return whether a line is an expression."""
    try:
        ast.parse(code, mode="eval")
    except SyntaxError:
        return False
    return True


def promised(comment: str) -> Any:
    """Return the literal at the start of a comment, or None for prose."""
    for end in range(len(comment), 0, -1):
        try:
            return ast.literal_eval(comment[:end].strip())
        except (SyntaxError, ValueError):
            continue
    return None


def run_session(text: str, where: str, names: dict[str, Any]) -> int:
    """Run a Python session; return the number of its inputs."""
    examples = doctest.DocTestParser().get_examples(text, where)
    test = doctest.DocTest(examples, names, where, None, None, text)
    test.globs = names
    told: list[str] = []
    failed, tried = doctest.DocTestRunner(optionflags=_SHOWN, verbose=False).run(test, out=told.append, clear_globs=False)
    assert not failed, f"{where}: " + "".join(told)
    return tried


def run_command(line: str, where: str, folder: Path) -> str:
    """Run a command of a page; return its output."""
    status = re.search(r"# status (\d)", line)
    command = shlex.split(line, comments=True)
    if not command or line.startswith(_PREPARING):
        return ""
    if command[0] == "mpiexec":
        assert command[1] == "-n" and command[3:6] == ["python", "-m", "mpi4py"], f"{where}: {line}"
        return run_mpi(int(command[2]), *command[6:], folder=folder)
    if command[0] == "sbatch":
        return run_batch(folder / command[1], command[2:], folder)
    assert command[0] in ("aggarray", "python"), f"{where}: {line}: which program is this?"
    if command[:2] == ["aggarray", "serve"]:
        return run_server(command[1:], where, folder)
    words = ["-m", "aggarray", *command[1:]] if command[0] == "aggarray" else command[1:]
    done = subprocess.run(
        [sys.executable, "-W", "error", *words],
        cwd=folder,
        env=rank_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == (int(status[1]) if status else 0), f"{where}: {line}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def run_server(words: list[str], where: str, folder: Path) -> str:
    """Start a server on a free port, and stop it when it serves; return its first line, with port 8000."""
    command = [sys.executable, "-W", "error", "-m", "aggarray", *words, "--port", "0"]
    with subprocess.Popen(
        command, cwd=folder, env=rank_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        process.terminate()
        errors = process.communicate(timeout=60)[1]
    assert first.startswith("Serving ") and process.returncode == 0, f"{where}: {first}{errors}"
    return re.sub(r"(http://[\d.]+):\d+/", r"\1:8000/", first)


def run_console(text: str, where: str, folder: Path) -> int:
    """Run a session of commands; return their number."""
    parts = re.split(r"^\$ (.*)\n", text, flags=re.MULTILINE)
    assert not parts[0].strip(), f"{where}: a session begins with '$ command'"
    for command, expected in zip(parts[1::2], parts[2::2], strict=True):
        result = run_command(command, where, folder)
        same = doctest.OutputChecker().check_output(expected, result, _SHOWN)
        assert same, f"{where}: {command}\nprints\n{result}\ninstead of\n{expected}"
    return len(parts) // 2
