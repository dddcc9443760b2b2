"""How many threads, open files and bytes of cache may aggarray use?

`set_options` sets them for the process, or inside a ``with`` block. Values are read when work starts, so a change
holds from the next read on.
"""

import os
import threading
from dataclasses import dataclass, fields, replace
from types import TracebackType

from aggarray.errors import AggregationError


def _few_enough() -> int:
    """Return how many files are kept open: two caches keep so many each, and others need descriptors too."""
    try:
        import resource
    except ImportError:  # not on Windows
        return 128
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 128 if limit < 0 else max(4, min(128, limit // 4))


@dataclass(frozen=True, slots=True)
class Options:
    """The settings in force: reading threads, files kept open, bytes of decoded data kept.

    Unless set, at most 128 files are kept open, and no more than a quarter of what the process may open.
    """

    threads: int = max(1, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    open_files: int = _few_enough()
    cache_bytes: int = 0


_LEAST = {"threads": 1, "open_files": 1, "cache_bytes": 0}
_lock = threading.Lock()
_current = Options()


def get_options() -> Options:
    """Return the options in force."""
    return _current


class set_options:  # noqa: N801 - a function to its users, a class only to serve `with`
    """Set options for the process, or for a block when used as a context manager.

    Parameters are whole numbers: ``threads`` >= 1, ``open_files`` >= 1, ``cache_bytes`` >= 0. AggregationError (a
    ValueError) for others.

    >>> with set_options(threads=1):
    ...     get_options().threads
    1
    """

    def __init__(self, *, threads: int | None = None, open_files: int | None = None, cache_bytes: int | None = None):
        global _current
        wanted = {"threads": threads, "open_files": open_files, "cache_bytes": cache_bytes}
        changes = {name: value for name, value in wanted.items() if value is not None}
        for name, value in changes.items():
            if isinstance(value, bool) or not isinstance(value, int) or value < _LEAST[name]:
                raise AggregationError(f"option {name}={value!r}: give a whole number of at least {_LEAST[name]}")
        with _lock:
            self._before = {f.name: getattr(_current, f.name) for f in fields(Options) if f.name in changes}
            _current = replace(_current, **changes)

    def __enter__(self) -> "set_options":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        global _current
        with _lock:
            _current = replace(_current, **self._before)
