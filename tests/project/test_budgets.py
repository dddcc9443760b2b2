"""Budgets of function calls: how many functions of how many modules a simple operation runs through."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import aggarray as aa
from tests.support.netcdf import cube, write


def functions_of(call: Callable[[], object]) -> set[tuple[str, str]]:
    """Return (module, function) of the named functions of aggarray that a call runs; comprehensions do not count."""
    found: set[tuple[str, str]] = set()

    def note(frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event == "call" and "/aggarray/" in code.co_filename and not code.co_name.startswith("<"):
            found.add((code.co_filename.rpartition("/aggarray/")[2], code.co_qualname))

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return found


def modules_of(functions: set[tuple[str, str]]) -> set[str]:
    return {module for module, _ in functions}


def test_opening_one_file(tmp_path: Path) -> None:
    path = write(tmp_path / "a.nc", cube(range(40)))
    aa.open(path)
    functions = functions_of(lambda: aa.open(path))
    assert len(functions) <= 150 and len(modules_of(functions)) <= 35, sorted(functions)
