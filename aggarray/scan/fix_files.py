"""Fixes from TOML files, among them the faults of archives known here."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from aggarray.errors import AggregationError, names_hint, printable
from aggarray.scan.fixes import Fix, make_fix

#: The folder of the known faults, a file for each archive.
_LIBRARY = Path(__file__).parent.parent / "faults"
_HINT = "give a list of aggarray.Fix(...), of TOML files, or of names of known faults"


def collect_fixes(given: Any) -> tuple[Fix, ...]:
    """Return the fixes of a `Fix`, a TOML file or known faults, or a list.

    Raises AggregationError for anything else, and for an invalid file.
    """
    if isinstance(given, Fix | str | os.PathLike):
        given = [given]
    if not isinstance(given, Iterable) or isinstance(given, dict | bytes):
        raise AggregationError(f"fixes={given!r} is invalid", hint=_HINT)
    fixes = list[Fix]()
    for item in given:
        if isinstance(item, Fix):
            fixes.append(item)
        elif isinstance(item, str | os.PathLike):
            fixes += read_fixes(os.fspath(item))
        else:
            raise AggregationError(f"fixes has {item!r}", hint=_HINT)
    return tuple(fixes)


def known_faults() -> list[str]:
    """Return the names of the known faults.

    >>> known_faults()
    ['cmip5', 'cmip6']
    """
    return sorted(path.stem for path in _LIBRARY.glob("*.toml"))


def read_fixes(name: str) -> list[Fix]:
    """Return the fixes of a TOML file, or of known faults by name.

    Its tables ``[[fix]]`` have the keys of `Fix`; ``optional``: whether all of them are. Raises AggregationError for an invalid
    file.
    """
    import tomllib

    path = name
    if not name.endswith(".toml") and "/" not in name and os.sep not in name:
        if name not in known_faults():
            hint = f"{names_hint(name, known_faults(), 'the known faults are')}; a file of fixes ends with .toml"
            raise AggregationError(f"no known faults {name!r}", hint=hint)
        path = str(_LIBRARY / f"{name}.toml")
    try:
        tables = tomllib.loads(Path(path).read_text("utf-8"))
    except OSError as error:
        hint = f"give a TOML file, or {', '.join(known_faults())}"
        raise AggregationError(f"fixes cannot be read: {error.strerror}", path=path, hint=hint) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise AggregationError(f"not TOML: {printable(str(error))}", path=path, hint="write tables [[fix]]") from error
    optional = tables.pop("optional", False)
    return fixes_of(tables, path, optional)


def fixes_of(tables: Any, path: str, optional: bool = False) -> list[Fix]:
    """Return the fixes of tables ``[[fix]]``; errors name file and table."""
    others = [key for key in tables if key != "fix"]
    listed = tables.get("fix", [])
    if others or not isinstance(listed, list) or not all(isinstance(table, dict) for table in listed):
        what = f"unknown key {others[0]!r}" if others else f"fix is {listed!r}"
        raise AggregationError(what, path=path, hint="a file of fixes has tables [[fix]], and optional = true or false")
    fixes = []
    for number, table in enumerate(listed, 1):
        try:
            fixes.append(make_fix({"optional": optional, **table} if optional else table))
        except AggregationError as error:
            raise AggregationError(f"[[fix]] {number}: {error.what}", path=path, hint=error.hint) from error
    return fixes
