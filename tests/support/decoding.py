"""Counting of the stored chunks that reads decode."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from aggarray.read import chunk_blocks


@contextmanager
def decoded() -> Iterator[list[int]]:
    """Count the stored chunks that this process decodes, in a list of one."""
    count, lock = [0], threading.Lock()  # several threads read

    def counting(decode: Callable[..., Any], each: Callable[[Any], int]) -> Callable[..., Any]:
        def counted(filters: Any, parts: Any, *rest: Any) -> Any:
            with lock:
                count[0] += each(parts) if filters else 0
            return decode(filters, parts, *rest)

        return counted

    with (
        mock.patch.object(chunk_blocks, "decode", counting(chunk_blocks.decode, lambda part: 1)),
        mock.patch.object(chunk_blocks, "decode_all", counting(chunk_blocks.decode_all, len)),
    ):
        yield count
