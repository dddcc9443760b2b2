"""Storage options that each process looks up, so that none is pickled.

``{"env": "NAME"}`` in place of a value is the environment variable of that name. The option ``provider`` names a function,
"package.module:function", that returns a dictionary of more options.
"""

import importlib
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

from aggarray.errors import AggregationError

#: Option that names a function.
PROVIDER = "provider"
_NAME = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
_SECRET = re.compile(r"(?i)secret|token|passw|passphrase|key|credential|auth|signature|account|connection_string|cookie|sas")
#: Shorter values are not looked for in messages: they occur in other words.
_SHORTEST = 4


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
    elif not isinstance(provider, str) or not _NAME.fullmatch(provider):
        raise AggregationError(f"storage_options: provider={provider!r:.80} is invalid", hint=hint)


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


def _called(provider: str | Callable[[], Any]) -> dict[str, Any]:
    name = provider if isinstance(provider, str) else f"{provider.__module__}:{provider.__qualname__}"
    try:
        options = _function(provider)() if isinstance(provider, str) else provider()
    except Exception as error:
        what = f"storage_options: the provider {name} fails ({type(error).__name__})"
        raise AggregationError(what, hint="correct it in every process that reads the files") from error
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


def masked(text: str, options: Mapping[str, Any]) -> str:
    """Return a message without the secrets among options.

    >>> masked("wrong key: abcdef", {"key": "abcdef"})
    'wrong key: ...'
    """
    for secret in sorted(set(_secrets(options, False)), key=len, reverse=True):
        text = text.replace(secret, "...")
    return text


def _secrets(value: Any, is_secret: bool) -> Iterator[str]:
    """Yield the texts that messages must not contain."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            if name == PROVIDER:
                yield from _secrets(_Results.by_provider.get(item, {}), True)
            elif name == "env" and len(value) == 1:
                yield from _secrets(os.environ.get(str(item), ""), True)
            else:
                yield from _secrets(item, is_secret or _SECRET.search(str(name)) is not None)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _secrets(item, is_secret)
    elif isinstance(value, str) and is_secret:
        yield from (part for part in (value, *value.split()) if len(part) >= _SHORTEST)
