"""Storage options that each process looks up, so that none is pickled.

``{"env": "NAME"}`` in place of a value is the environment variable of that name. The option ``provider`` names a function,
"package.module:function", that returns a dictionary of more options.
"""

from __future__ import annotations

import importlib
import os
import re
import threading
import traceback
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from aggarray.errors import AggregationError

#: Option that names a function.
PROVIDER = "provider"
_NAME = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


class _Results:
    """What providers have returned in this process."""

    lock = threading.RLock()  # the module of a provider may itself open files when it is imported
    by_provider: ClassVar[dict[Any, dict[str, Any]]] = {}


def _unlock() -> None:
    _Results.lock = threading.RLock()  # a thread of the parent may hold the other one


os.register_at_fork(after_in_child=_unlock)


def check_provider(provider: Any) -> None:
    """Raise AggregationError unless this is a function or the name of one."""
    hint = 'give the name of a function that every process can import, "package.module:function"'
    if callable(provider):
        if "<" in getattr(provider, "__qualname__", "<"):
            raise AggregationError("storage_options: provider is a local function, which other processes lack", hint=hint)
    elif not isinstance(provider, str):  # it may be the options themselves
        raise AggregationError(f"storage_options: provider is invalid (a {type(provider).__name__})", hint=hint)
    elif not _NAME.fullmatch(provider):
        raise AggregationError(f"storage_options: provider={provider!r:.80} is invalid", hint=hint)


def provider_name(provider: str | Callable[[], Any]) -> str:
    """Return the name of a provider, by which other processes find it."""
    return provider if isinstance(provider, str) else f"{provider.__module__}:{provider.__qualname__}"


def named(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options with names of functions, whose pickles contain no code."""
    items = {n: named(value) if isinstance(value, Mapping) else value for n, value in options.items()}
    return items | {PROVIDER: provider_name(options[PROVIDER])} if callable(options.get(PROVIDER)) else items


def resolved(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options with the values of this process."""
    own = {name: _with_environment(value) for name, value in options.items() if name != PROVIDER}
    return {**_provided(options[PROVIDER]), **own} if PROVIDER in options else own


def _with_environment(value: Any) -> Any:
    if isinstance(value, Mapping):
        if set(value) == {"env"} and isinstance(value["env"], str):
            return _variable(value["env"])
        return {name: _with_environment(item) for name, item in value.items()}
    return type(value)(map(_with_environment, value)) if type(value) in (list, tuple) else value


def _variable(name: str) -> str:
    if name not in os.environ:
        hint = "set it in every process that reads the files"
        raise AggregationError(f"storage_options: the environment variable {name!r} is not set", hint=hint)
    return os.environ[name]


def _provided(provider: str | Callable[[], Any]) -> dict[str, Any]:
    """Return what a provider returns; it is called once in a process."""
    with _Results.lock:
        if provider not in _Results.by_provider:
            _Results.by_provider[provider] = _called(provider)
        return _Results.by_provider[provider]


def provided_before(provider: Any) -> dict[str, Any]:
    """Return what a provider has returned in this process, or nothing."""
    return _Results.by_provider.get(provider, {})


def _called(provider: str | Callable[[], Any]) -> dict[str, Any]:
    name = provider_name(provider)
    try:
        options = _function(provider)() if isinstance(provider, str) else provider()
    except Exception as error:
        what = f"storage_options: the provider {name} fails ({_failure(error)})"
        # The error itself is not shown: its text may contain secrets.
        raise AggregationError(what, hint="correct it in every process that reads the files") from None
    if not isinstance(options, Mapping) or not all(isinstance(key, str) for key in options):
        what = f"storage_options: the provider {name} returns a {type(options).__name__}"
        raise AggregationError(what, hint="return a dictionary of options for fsspec")
    return dict(options)


def _function(name: str) -> Callable[[], Any]:
    module, _, path = name.partition(":")
    function: Any = importlib.import_module(module)
    for attribute in path.split("."):
        function = getattr(function, attribute)
    return function  # type: ignore[no-any-return]


def _failure(error: Exception) -> str:
    """Return the type of an error and the line that raises it."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename not in (__file__, importlib.__file__)]
    frames = [f for f in frames if not f.filename.startswith("<frozen")]
    where = f" in {os.path.basename(frames[-1].filename)}, line {frames[-1].lineno}" if frames else ""
    return type(error).__name__ + where
