"""Secrets of storage options, which messages must not contain.

Secret are values under names such as ``secret`` and ``headers``, those of environment variables and providers, and passwords
and signatures within addresses and connection strings under any name.
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote, unquote

from aggarray.errors import is_credential
from aggarray.storage.providers import PROVIDER, provided_before

_SECRET = re.compile(
    r"(?i)secret|token|passw|passphrase|key|credential|auth|signature|account|connection_string|cookie|sas|headers|params|login"
    r"|jwt|pwd|cert|username"
)
#: A name with its value in a connection string or a query, and a password in an address.
_PAIR = re.compile(r"(?:^|[?&;,\s])\s*([\w.-]+)\s*=\s*([^&;,\s]+)")
_PASSWORD = re.compile(r"://[^/\s@:]*:([^/\s]*)@")
#: Shorter values are not looked for in messages: they occur in other words.
_SHORTEST = 4
#: Depth of nested options and objects.
_DEEPEST = 6


def masked(text: str, options: Mapping[str, Any]) -> str:
    """Return a message without the secrets among options.

    >>> masked("wrong key: abcdef", {"key": "abcdef"})
    'wrong key: ...'
    >>> masked("no proxy me:swordfish@host", {"proxy": "http://me:swordfish@host"})
    'no proxy me:...@host'
    """
    for secret in sorted(set(_forms(_secrets(options, False, 0))), key=len, reverse=True):
        text = text.replace(secret, "...")
    return text


def _forms(secrets: Iterator[str]) -> Iterator[str]:
    """Yield the forms in which libraries may write secrets."""
    for secret in secrets:
        escaped = secret.encode("unicode_escape").decode()
        forms = (secret, *secret.split(), escaped, quote(secret), quote(secret, safe=""), unquote(secret))
        yield from (form for form in forms if len(form) >= _SHORTEST)


def _secrets(value: Any, is_secret: bool, depth: int) -> Iterator[str]:
    """Yield the texts that messages must not contain."""
    if depth > _DEEPEST:
        return
    if isinstance(value, Mapping):
        for name, item in value.items():
            if name == PROVIDER:
                yield from _secrets(provided_before(item) if callable(item) or isinstance(item, str) else item, True, depth + 1)
            elif name == "env" and len(value) == 1:
                yield from _secrets(os.environ.get(str(item), ""), True, depth + 1)
            else:
                yield from _secrets(item, is_secret or _SECRET.search(str(name)) is not None, depth + 1)
    elif isinstance(value, list | tuple | set | frozenset):
        for item in value:
            yield from _secrets(item, is_secret, depth + 1)
        if is_secret and len(value) == 2 and all(isinstance(item, str) for item in value):
            yield base64.b64encode(":".join(value).encode()).decode()  # as in the header of basic authentication
    elif isinstance(value, bytes | bytearray):
        yield from _secrets(bytes(value).decode("utf-8", "replace"), is_secret, depth + 1)
        yield from _secrets(repr(bytes(value))[2:-1], is_secret, depth + 1)
    elif isinstance(value, str):
        yield from _secrets_in(value, is_secret)
    elif is_secret and isinstance(value, int | float) and not isinstance(value, bool):
        yield str(value)
    elif not callable(value):
        yield from _secrets(getattr(value, "__dict__", {}), is_secret, depth + 3)


def _secrets_in(text: str, is_secret: bool) -> Iterator[str]:
    if is_secret:
        yield text
    yield from _PASSWORD.findall(text)
    for name, value in _PAIR.findall(text):
        if is_credential(name) or _SECRET.search(name) is not None:
            yield value
