"""Which addresses may be gone to, and with which credentials? What holds while an array is opened or read.

Formats are given a path and nothing else: what goes with it is set around their work by `with_access`, for this thread and for
those that `in_threads` starts. Nothing of it is ever shown.
"""

import contextvars
import hashlib
import pickle
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from aggarray.errors import AggregationError

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

#: So many objects are looked at together.
TOGETHER = 16


class StorageOptions:
    """Options for the file systems of fsspec, credentials among them: never shown, equal where they say the same.

    >>> Storage({"s3": {"secret": "x"}}), Storage({"anon": True}).of("s3"), Storage({"http": {"block_size": 1}}).of("s3")
    (Storage(...), {'anon': True}, {})
    """

    __slots__ = ("_key", "_options")

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        if options is not None and not (isinstance(options, Mapping) and all(isinstance(name, str) for name in options)):
            raise AggregationError("storage_options=...: give a dictionary of options for fsspec, or one of these per protocol")
        self._options = dict(options or {})
        try:
            self._key = hashlib.blake2b(pickle.dumps(self._options), digest_size=16).digest()
        except (pickle.PickleError, TypeError, AttributeError):
            # Objects that do not travel are who they are.
            self._key = str(id(self._options)).encode()

    def of(self, protocol: str) -> dict[str, Any]:
        """Return the options for a protocol: what is given for it alone, or else for all."""
        if self._options and all(isinstance(v, Mapping) and _is_protocol(name) for name, v in self._options.items()):
            own = self._options.get(protocol)
            if own is None and protocol in _ALIKE:
                own = self._options.get(_ALIKE[protocol])
            return dict(own or {})
        return dict(self._options)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StorageOptions) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        return "Storage(...)" if self._options else "Storage()"

    def __reduce__(self) -> tuple[Any, ...]:
        return StorageOptions, (self._options,)


_ALIKE = {"http": "https", "https": "http", "s3": "s3a", "s3a": "s3", "gs": "gcs", "gcs": "gs", "az": "abfs", "abfs": "az"}
#: Protocols that options are given for by name; those that are not installed are protocols too.
_KNOWN = {*_ALIKE, "memory", "zip", "tar", "ftp", "sftp", "webdav", "adl", "oss", "hf", "github", "gdrive", "dav"}


def _is_protocol(name: str) -> bool:
    library = sys.modules.get("fsspec")
    return name in _KNOWN or (library is not None and name in library.available_protocols())


@dataclass(frozen=True, slots=True)
class RemoteAccess:
    """How to get to remote files; ``allowed``: the only addresses, or beginnings of them, that are gone to, None = any."""

    storage: StorageOptions
    allowed: tuple[str, ...] | None = None


_ANYTHING = RemoteAccess(StorageOptions())
_reach: contextvars.ContextVar[RemoteAccess] = contextvars.ContextVar("aggarray_reach", default=_ANYTHING)


def current_access() -> RemoteAccess:
    """Return what holds here."""
    return _reach.get()


@contextmanager
def with_access(reach: RemoteAccess) -> Iterator[None]:
    """Let this hold for the length of a block."""
    token = _reach.set(reach)
    try:
        yield
    finally:
        _reach.reset(token)


def in_threads(work: Callable[[_Item], _Result], items: Sequence[_Item]) -> Iterator[_Result]:
    """Yield what work gives for each item, in order, several at a time: for what waits rather than computes."""
    if len(items) < 2:
        yield from map(work, items)
        return
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(min(TOGETHER, len(items)), "aggarray remote") as pool:
        waiting = [pool.submit(contextvars.copy_context().run, work, item) for item in items]
        try:
            for future in waiting:
                yield future.result()
        finally:
            for future in waiting:
                future.cancel()
