"""Deprecation of public names and arguments.

A deprecated name or argument works, and warns once per place of the call, in the release ``since`` and the next minor version.
The release ``removal`` removes it: a test fails until then.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def warn_deprecated(what: str, use: str, *, since: str, removal: str, depth: int = 1) -> None:
    """Warn of a deprecated name: DeprecationWarning.

    ``what``: the name as a user writes it; ``use``: its replacement. ``depth``: callers between the code of the user and this
    function; 1 is right for the module ``__getattr__`` of a renamed object.

    >>> warnings.simplefilter("error")
    >>> warn_deprecated("aggarray.Cell", "aggarray.Partition", since="0.2", removal="0.4")
    Traceback (most recent call last):
    DeprecationWarning: aggarray.Cell is deprecated since aggarray 0.2 and will be removed in 0.4; use aggarray.Partition
    """
    text = f"{what} is deprecated since aggarray {since} and will be removed in {removal}; use {use}"
    warnings.warn(text, DeprecationWarning, stacklevel=depth + 2)


def deprecated(use: str, *, since: str, removal: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator of a deprecated function or method.

    >>> @deprecated("MasterArray.sel", since="0.2", removal="0.4")
    ... def select(label): return label
    >>> with warnings.catch_warnings(action="ignore"):
    ...     select(5)
    5
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def call(*arguments: P.args, **named: P.kwargs) -> R:
            warn_deprecated(f"{function.__qualname__}()", use, since=since, removal=removal)
            return function(*arguments, **named)

        return call

    return decorate


def renamed_argument(old: str, new: str, *, since: str, removal: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator of a function that had another name for an argument.

    The value of ``old`` is passed as ``new``. Raises TypeError if a call has both.

    >>> @renamed_argument("nearest", "method", since="0.2", removal="0.4")
    ... def select(method=None): return method
    >>> with warnings.catch_warnings(action="ignore"):
    ...     select(nearest="pad")
    'pad'
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def call(*arguments: P.args, **named: P.kwargs) -> R:
            if old in named:
                name = function.__qualname__
                warn_deprecated(f"argument {old!r} of {name}()", repr(new), since=since, removal=removal)
                if new in named:
                    raise TypeError(f"{name}() has both {new!r} and {old!r}, its former name; use {new!r}")
                named[new] = named.pop(old)
            return function(*arguments, **named)

        return call

    return decorate
