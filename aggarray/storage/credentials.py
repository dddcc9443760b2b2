"""Readable addresses and their credentials, during an open or a read.

Formats receive only a path: `with_access` sets the rest for this thread and for the threads of `in_threads`. Options are never
shown.
"""

from __future__ import annotations

import contextvars
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from aggarray.dataclass import dataclass
from aggarray.errors import AggregationError
from aggarray.storage import relocated_roots

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

#: Objects processed concurrently.
TOGETHER = 16


class StorageOptions:
    """Options of fsspec file systems; credentials are never shown.

    >>> StorageOptions({"s3": {"secret": "x"}})
    StorageOptions(...)
    >>> StorageOptions({"anon": True}).of("s3"), StorageOptions({"http": {"block_size": 1}}).of("s3")
    ({'anon': True}, {})
    """

    __slots__ = ("_key", "_options")

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        if options is not None and not (isinstance(options, Mapping) and all(isinstance(name, str) for name in options)):
            hint = "give a dictionary of options for fsspec, or one of these per protocol"
            raise AggregationError("storage_options=... is not a dictionary with text as keys", hint=hint)
        self._options = dict(options or {})
        for own in (self._options, *self._options.values()):
            if isinstance(own, Mapping) and "provider" in own:
                from aggarray.storage.providers import check_provider

                check_provider(own["provider"])
        self._key = self._digest() if self._options else b""

    def _digest(self) -> bytes:
        import pickle

        from aggarray.storage.blake2 import blake2b

        try:
            return blake2b(pickle.dumps(self._pickled()), digest_size=16).digest()
        except (pickle.PickleError, TypeError, AttributeError):
            # Options that do not pickle are compared by identity.
            return str(id(self._options)).encode()

    def of(self, protocol: str) -> dict[str, Any]:
        """Return the options of a protocol: its own, or else those given for all.

        Raises AggregationError if a provider fails, or an environment variable is not set.
        """
        if not self._options:
            return {}
        from aggarray.storage.providers import resolved

        return resolved(self._given(protocol))

    def masked(self, text: str) -> str:
        """Return a message without the secrets among the options."""
        if not self._options:
            return text
        from aggarray.storage.masking import masked

        return masked(text, self._options)

    def _given(self, protocol: str) -> Mapping[str, Any]:
        library = sys.modules.get("fsspec")
        known = {*_KNOWN, *(library.available_protocols() if library is not None else ())}
        if all(isinstance(own, Mapping) and name in known for name, own in self._options.items()):
            own = self._options.get(protocol)
            if own is None and protocol in _ALIKE:
                own = self._options.get(_ALIKE[protocol])
            return own or {}
        return self._options

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StorageOptions) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        # Fingerprints of extracts contain the form without options.
        return "StorageOptions(...)" if self._options else "Storage()"

    def __reduce__(self) -> tuple[Any, ...]:
        return StorageOptions, (self._pickled(),)

    def _pickled(self) -> dict[str, Any]:
        if not any("provider" in own for own in (self._options, *self._options.values()) if isinstance(own, Mapping)):
            return self._options
        from aggarray.storage.providers import named

        return named(self._options)  # cloudpickle pickles functions of a program with their code


_ALIKE = {"http": "https", "https": "http", "s3": "s3a", "s3a": "s3", "gs": "gcs", "gcs": "gs", "az": "abfs", "abfs": "az"}
#: Protocols with options of their own; they need not be installed.
_KNOWN = {*_ALIKE, "memory", "zip", "tar", "ftp", "sftp", "webdav", "adl", "oss", "hf", "github", "gdrive", "dav"}


@dataclass(frozen=True, slots=True)
class RemoteAccess:
    """Access to remote files; ``allowed``: addresses or prefixes, None: any."""

    storage: StorageOptions
    allowed: tuple[str, ...] | None = None

    def __setstate__(self, state: list[Any]) -> None:
        object.__setattr__(self, "storage", state[0])
        object.__setattr__(self, "allowed", relocated_roots(state[1]))


_ANYTHING = RemoteAccess(StorageOptions())
#: The access of this thread, see `with_access`.
access_in_force: contextvars.ContextVar[RemoteAccess] = contextvars.ContextVar("aggarray_reach", default=_ANYTHING)


@contextmanager
def with_access(reach: RemoteAccess) -> Iterator[None]:
    """Put an access in force for the length of a block."""
    token = access_in_force.set(reach)
    try:
        yield
    finally:
        access_in_force.reset(token)


def in_threads(work: Callable[[_Item], _Result], items: Sequence[_Item]) -> Iterator[_Result]:
    """Yield the result of ``work`` for each item, in order, using threads."""
    if len(items) < 2:
        yield from map(work, items)
        return
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(min(TOGETHER, len(items)), "aggarray remote") as pool:
        contexts = [contextvars.copy_context() for _ in items]
        yield from pool.map(lambda context, item: context.run(work, item), contexts, items)
