"""Relocation of addresses by ``AGGARRAY_RELOCATE``.

Set the variable on machines that mount the same files at other paths. It applies to addresses in indexes, references and
pickles, not to paths that the caller passes.
"""

from __future__ import annotations

import functools
import json
import os
import re
from urllib.parse import quote, unquote

from aggarray.errors import AggarrayError, AggregationError
from aggarray.storage.urls import RELOCATE, WEB, canonical, is_remote, scheme_of, split

#: Ends of pairs: line ends, and colons before the old prefix of another pair. Other colons belong to addresses.
_ENDS = re.compile(r"\n|:(?=(?:[A-Za-z][A-Za-z0-9+.-]+://|/(?!/))[^=\n]*=)")
_USER = re.compile(r"//[^/@]*@")
_SAFE = "/!$&'()*+,;=:@~-._"
_HINT = 'set it to OLD=NEW pairs separated by \':\', or to a JSON object {"OLD": "NEW"}, with absolute paths or URLs'


def pairs_in_force() -> tuple[tuple[str, str], ...]:
    """Return the pairs (old, new) of the variable, longest old first.

    Raises AggregationError if the variable is malformed.
    """
    return parse(os.environ.get(RELOCATE, ""))


@functools.lru_cache(maxsize=8)
def parse(text: str) -> tuple[tuple[str, str], ...]:
    """Return the pairs of a value of the variable, longest old first.

    >>> parse("/data=/mnt/my archive:/data/new=/local:s3://b=https://h:80/d")
    (('/data/new', '/local'), ('s3://b', 'https://h:80/d'), ('/data', '/mnt/my archive'))
    >>> parse('{"/a=b": "/c:d"}')
    (('/a=b', '/c:d'),)
    """
    if text.lstrip().startswith("{"):
        pairs = _json_pairs(text)
    else:
        items = [item for item in _ENDS.split(text.strip().rstrip(":")) if item.strip()]
        for item in items:
            if "=" not in item:
                raise AggregationError(f"{RELOCATE} is malformed: {_shown(item)} is not OLD=NEW", hint=_HINT)
        pairs = [(old, new) for old, _, new in (item.partition("=") for item in items)]
    distinct = dict[str, str]()
    for old, new in pairs:
        old, new = _prefix(old), _prefix(new)
        if distinct.setdefault(old, new) != new:
            raise AggregationError(f"{RELOCATE} is malformed: {_shown(old)} has two replacements", hint=_HINT)
    return tuple(sorted(distinct.items(), key=lambda pair: -len(pair[0])))


def _json_pairs(text: str) -> list[tuple[str, str]]:
    try:
        pairs = json.loads(text, object_pairs_hook=list)
    except (ValueError, RecursionError) as error:
        raise AggregationError(f"{RELOCATE} is malformed: invalid JSON ({_shown(text)})", hint=_HINT) from error
    return [(old, new if isinstance(new, str) else "") for old, new in pairs]


def _shown(text: str) -> str:
    """Return a part of the value for an error, without credentials."""
    return f"{_USER.sub('//...@', text)!r:.200}"


def _prefix(text: str) -> str:
    try:
        address = canonical(text)
    except AggarrayError as error:
        # The value is not repeated: it may contain a password.
        raise AggregationError(f"{RELOCATE} is malformed: {error.what}", hint=_HINT) from error
    if address is not None:
        return address if address.endswith("://") else address.rstrip("/")
    path = unquote(text[7:], errors="surrogateescape") if text.lower().startswith("file:///") else os.path.expanduser(text)
    if not os.path.isabs(path) or "\0" in path:
        what = f"{RELOCATE} is malformed: {_shown(text)} is not an absolute path or URL"
        raise AggregationError(what, hint=_HINT)
    return os.path.normpath(path)


def relocate(address: str) -> str:
    """Return an address with the first matching prefix replaced, once.

    A prefix ends where the name of a folder ends. Of a member of an archive, the address of the archive is compared.
    """
    member, archive = split(address)
    if archive:
        path = relocate(archive.removeprefix("file://"))
        return f"{scheme_of(address)}://{member}::{path if is_remote(path) else f'file://{path}'}"
    for old, new in pairs_in_force():
        if is_below(address, old):
            # The address was relocated before if the new prefix lies below the old one.
            return address if is_below(new, old) and is_below(address, new) else _joined(old, new, address[len(old) :])
    return address


def is_below(address: str, prefix: str) -> bool:
    """Return whether an address is a prefix, or lies below it.

    >>> is_below("/data/a.nc", "/data"), is_below("/data2/a.nc", "/data"), is_below("s3://b/a.nc", "s3://")
    (True, False, True)
    """
    return address == prefix or address.startswith(prefix if prefix.endswith("/") else f"{prefix}/")


def _joined(old: str, new: str, rest: str) -> str:
    encoded, encode = scheme_of(old) in WEB, scheme_of(new) in WEB
    if encoded and not encode:
        rest = unquote(rest.partition("?")[0], errors="surrogateescape")
    elif encode and not encoded:
        rest = quote(rest, safe=_SAFE, errors="surrogateescape")
    if not rest:
        return new
    return f"{new}{rest.lstrip('/')}" if new.endswith("/") else f"{new}/{rest.lstrip('/')}"


def relocate_roots(roots: tuple[str, ...]) -> tuple[str, ...]:
    """Return readable locations, and those that their files are relocated to."""
    here = [relocate(root) for root in roots]
    here += [new for old, new in pairs_in_force() if any(is_below(old, root) for root in roots)]
    return tuple(dict.fromkeys([*roots, *map(_real, here)]))


def _real(path: str) -> str:
    return path if is_remote(path) else os.path.realpath(path)
