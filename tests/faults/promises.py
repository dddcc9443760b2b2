"""Promises of the documentation, each with its guard in the package and the test that fails without the guard."""

import re
import tomllib
from pathlib import Path
from typing import NamedTuple

_CONDITION = re.compile(r"(if|elif|while) .*:")


class Promise(NamedTuple):
    """A promise of the documentation.

    The line below ``# promise: ID`` in the package is its guard. ``instead`` replaces that line: ``never`` or ``always`` for
    the condition of an ``if`` or ``while``, otherwise source text. ``test``: a file below ``tests``; ``only``: pytest's ``-k``.
    """

    id: str
    area: str
    says: str
    instead: str
    test: str
    only: str


class Guard(NamedTuple):
    """The line of a module that keeps a promise, counted from 0; ``code``: path of the module below the package."""

    code: str
    line: int


def promises() -> list[Promise]:
    """Return the promises listed in promises.toml."""
    listed = tomllib.loads((Path(__file__).parent / "promises.toml").read_text(encoding="utf-8"))["promise"]
    return [Promise(**one) for one in listed]


def guards(package: Path) -> dict[str, Guard]:
    """Return the guard of each promise marked in a package. Raises ValueError if an identifier marks two lines."""
    marked: dict[str, Guard] = {}
    for path in sorted(package.rglob("*.py")):
        for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):
            name = line.strip().removeprefix("# promise: ")
            if name == line.strip():
                continue
            if name in marked:
                raise ValueError(f"promise {name!r} marks two lines: {marked[name].code} and {path.relative_to(package)}")
            marked[name] = Guard(path.relative_to(package).as_posix(), number)
    return marked


def without_guard(source: str, line: int, instead: str) -> str:
    """Replace the guard, a line counted from 0, in source text. Raises ValueError if it has no condition to replace."""
    lines = source.split("\n")
    guard = lines[line].lstrip()
    indent = lines[line][: len(lines[line]) - len(guard)]
    if instead in ("never", "always"):
        condition = _CONDITION.fullmatch(guard)
        if condition is None:
            raise ValueError(f"line {line + 1} has no condition: {guard!r}")
        instead = f"{condition[1]} {instead == 'always'}:"
    lines[line] = "\n".join(indent + each for each in instead.split("\n"))
    return "\n".join(lines)
