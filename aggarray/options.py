"""Options: threads, open files and bytes of cache.

`set_options` sets them for the process, or for a ``with`` block. A change takes effect with the next read.
"""

from __future__ import annotations

import os
import sys
from _thread import allocate_lock
from types import TracebackType

from aggarray.dataclass import dataclass, fields, replace
from aggarray.errors import AggregationError


def open_file_limit() -> int:
    """Return the greatest number of open files of this process."""
    limit = os.sysconf("SC_OPEN_MAX") if hasattr(os, "sysconf") else -1  # not on Windows
    return sys.maxsize if limit < 0 else limit


@dataclass(frozen=True, slots=True)
class Options:
    """Current numbers of threads and of open files, and size of the cache.

    ``cache_bytes`` is the limit of the cache of decoded data. By default at most 128 files are kept open, and at most a quarter
    of the limit of the process.
    """

    threads: int = max(1, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    # Two caches keep that number each, and descriptors remain for other uses.
    open_files: int = max(4, min(128, open_file_limit() // 4))
    cache_bytes: int = 0


_LEAST = {"threads": 1, "open_files": 1, "cache_bytes": 0}
_lock = allocate_lock()
_current = Options()


def get_options() -> Options:
    """Return the current options."""
    return _current


class set_options:  # noqa: N801 - used as a function; a class for the `with` statement
    """Set options for the process, or in a ``with`` block.

    Parameters are integers: ``threads`` >= 1, ``open_files`` >= 1, ``cache_bytes`` >= 0. Raises AggregationError (a
    ValueError) for other values.

    >>> with set_options(threads=1):
    ...     get_options().threads
    1
    """

    def __init__(self, *, threads: int | None = None, open_files: int | None = None, cache_bytes: int | None = None):
        global _current
        options = {"threads": threads, "open_files": open_files, "cache_bytes": cache_bytes}
        changes = {name: value for name, value in options.items() if value is not None}
        for name, value in changes.items():
            if isinstance(value, bool) or not isinstance(value, int) or value < _LEAST[name]:
                hint = f"give an integer of at least {_LEAST[name]}"
                raise AggregationError(f"invalid option {name}={value!r}", hint=hint)
        with _lock:
            self._before = {f.name: getattr(_current, f.name) for f in fields(Options) if f.name in changes}
            _current = replace(_current, **changes)

    def __enter__(self) -> set_options:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        global _current
        with _lock:
            _current = replace(_current, **self._before)
