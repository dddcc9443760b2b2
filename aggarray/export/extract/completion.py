"""Files that get their name when they are complete."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO


@contextmanager
def created_complete(path: str, spare: str) -> Iterator[BinaryIO]:
    """Give a file that gets its name after a block, complete and on the disk.

    ``spare``: a folder of the same file system.
    """
    temporary = os.path.join(spare, f"{threading.get_ident()}.tmp")
    with open(temporary, "wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def write_complete(path: str, content: bytes, spare: str) -> None:
    """Write a file atomically; ``spare``: a folder of the same file system."""
    with created_complete(path, spare) as file:
        file.write(content)
