"""Profiles: which checks of a layout apply, and their limits.

A profile is a TOML file: a table per check, with its settings and the ``source`` of its figures. ``base`` names the profile
that it changes (default: ``default``; ``none``: none), and ``NAME = false`` leaves a check out.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from aggarray.dataclass import dataclass
from aggarray.errors import AggregationError, MissingFileError, names_hint

#: Settings that are regular expressions, or lists of them.
_PATTERNS = ("variable", "file", "pattern", "may_differ", "variable_may_differ")
_TYPES = {int: "a whole number of at least 0", float: "a number of at least 0", bool: "true or false", str: "a text"}
#: Bases after bases.
_DEEPEST = 8


@dataclass(frozen=True, slots=True)
class Profile:
    """Checks with their settings.

    ``checks``: settings by name of the check, with the ``source`` of the figures; ``repack``: remedies repack single files
    where they can, instead of extracting the array.
    """

    name: str
    title: str
    checks: Mapping[str, Mapping[str, Any]]
    repack: bool = False

    @property
    def limits(self) -> tuple[int, int]:
        """The least and most bytes of a chunk that remedies aim at; 0: no limit."""
        sizes = self.checks.get("chunk_size") or load_profile(None).checks["chunk_size"]
        return sizes["least"], sizes.get("most", 0)


def profile_names() -> list[str]:
    """Return the names of the profiles of this package.

    >>> profile_names()
    ['cloud', 'cmip7', 'default']
    """
    return sorted(entry.name.removesuffix(".toml") for entry in files(__name__).iterdir() if entry.name.endswith(".toml"))


def load_profile(name: str | os.PathLike[str] | None) -> Profile:
    """Return a profile by its name, or from a TOML file; None: ``default``.

    Raises MissingFileError, or AggregationError for an unknown name and for invalid contents.

    >>> load_profile("cmip7").checks["chunk_size"]["least"]
    4194304
    """
    return _load("default" if name is None else os.fspath(name), 0)


def _load(name: str, depth: int) -> Profile:
    own = profile_names()
    is_own = name in own
    if depth > _DEEPEST:
        raise AggregationError("base= leads back to the profile itself", path=name, hint="give another base")
    tables = _tables(name, is_own, own)
    inner = tables.pop("base", "none" if is_own else "default")
    if not isinstance(inner, str):
        raise AggregationError(f"base = {inner!r} is not a text", path=name, hint=f"give {', '.join(own)} or none")
    if inner not in (*own, "none"):
        inner = os.path.join(os.path.dirname(name), inner)
    base = Profile("", "", {}) if inner == "none" else _load(inner, depth + 1)
    title, repack = tables.pop("title", base.title or name), tables.pop("repack", base.repack)
    if not isinstance(title, str) or not isinstance(repack, bool):
        what = f"title = {title!r}, repack = {repack!r}"
        raise AggregationError(f"{what} is invalid", path=name, hint="title is a text, repack true or false")
    return Profile(name, title, _merged(base.checks, tables, name), repack)


def _tables(name: str, is_own: bool, own: list[str]) -> dict[str, Any]:
    import tomllib

    if is_own:
        return tomllib.loads(files(__name__).joinpath(f"{name}.toml").read_text(encoding="utf-8"))
    if not name.endswith(".toml"):
        raise AggregationError(
            f"no profile {name!r}", hint=f"{names_hint(name, own, 'the profiles are')}; or give a .toml file"
        )
    try:
        with open(name, "rb") as file:
            return tomllib.load(file)
    except FileNotFoundError as error:
        raise MissingFileError("no such file", path=name, hint="check the path of the profile") from error
    except OSError as error:
        raise AggregationError(f"cannot be read: {error.strerror}", path=name, hint="check the profile") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise AggregationError(f"not a valid TOML file ({error})", path=name, hint="correct it") from error


def _merged(base: Mapping[str, Mapping[str, Any]], tables: Mapping[str, Any], path: str) -> dict[str, Mapping[str, Any]]:
    """Return the checks of a base with changes; AggregationError if invalid."""
    from aggarray.layout.checks import checks

    known, merged = checks(), dict(base)
    for name, table in tables.items():
        if name not in known:
            hint = names_hint(name, list(known), "the checks are")
            raise AggregationError(f"{name!r} is not a check", path=path, hint=hint)
        if table is False:
            merged.pop(name, None)
            continue
        if not isinstance(table, dict):
            raise AggregationError(f"{name} = {table!r} is invalid", path=path, hint="give a table of settings, or false")
        settings = {"source": str, **known[name].settings}
        for key, value in table.items():
            if key not in settings:
                hint = names_hint(key, list(settings), "the settings are")
                raise AggregationError(f"[{name}] has no setting {key!r}", path=path, hint=hint)
            _check_setting(f"[{name}] {key} = {value!r:.80}", key, value, settings[key], path)
        own = {**merged.get(name, {}), **table}
        lacking = [key for key in known[name].required if key not in own]
        if lacking:
            raise AggregationError(f"[{name}] lacks {', '.join(lacking)}", path=path, hint=f"give a value of {lacking[0]}")
        merged[name] = own
    return merged


def _check_setting(text: str, key: str, value: Any, expected: type, path: str) -> None:
    if expected is list:
        is_valid = isinstance(value, list) and all(isinstance(item, str) for item in value)
    elif expected in (int, float):
        is_valid = isinstance(value, (int, float) if expected is float else int) and not isinstance(value, bool) and value >= 0
    else:
        is_valid = isinstance(value, expected)
    if not is_valid:
        hint = f"give {_TYPES.get(expected, 'a list of texts')}"
        raise AggregationError(f"{text} is invalid", path=path, hint=hint)
    for pattern in (value if isinstance(value, list) else [value]) if key in _PATTERNS else ():
        try:
            re.compile(pattern)
        except (re.error, RecursionError) as error:
            raise AggregationError(f"{text}: not a regular expression ({error})", path=path, hint="correct it") from error
