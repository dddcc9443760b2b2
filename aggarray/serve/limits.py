"""Limits of a server."""

from __future__ import annotations

import os

from aggarray.dataclass import dataclass, field


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits that bound the memory and the threads of a process.

    ``reads``: chunks read at once; ``waiting``: requests that wait for a read or for memory, before others get status 503;
    ``chunk_bytes``: of the values of one chunk, before a request gets status 413; ``memory``: bytes of chunks that are read or
    sent; ``cache``: bytes of chunks that are kept; ``seconds``: that a client may take to accept a part of a response.
    """

    reads: int = field(default_factory=lambda: max(2, min(32, os.cpu_count() or 2)))
    waiting: int = 1000
    chunk_bytes: int = 1 << 28
    memory: int = 1 << 28
    cache: int = 1 << 27
    seconds: float = 60.0
