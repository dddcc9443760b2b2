"""Memory maps of file parts: shared by readers, closed with the last view."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from weakref import WeakValueDictionary

from aggarray.errors import MemoryAccessError
from aggarray.memory.block import READ_ONLY, Block
from aggarray.options import open_file_limit


class MappedFile:
    """The bytes ``begin`` to ``end`` of a file, mapped read-only.

    They stay valid when the file is closed, renamed or removed. If another process truncates the file, access to them
    terminates this process.
    """

    __slots__ = ("begin", "buffer", "end", "path")

    path: str
    begin: int
    end: int
    #: The bytes. The map cannot be closed while this view exists.
    buffer: memoryview

    def __init__(self, path: str, begin: int, end: int, file: int) -> None:
        self.path, self.begin, self.end = path, begin, end
        # A map starts at a multiple of the page size.
        first = begin - begin % mmap.ALLOCATIONGRANULARITY
        pages = mmap.mmap(file, end - first, access=mmap.ACCESS_READ, offset=first)
        self.buffer = memoryview(pages)[begin - first :]

    def facts(self) -> Iterator[tuple[str, str]]:
        """Yield file, offset and length."""
        yield "file", self.path
        yield "offset", str(self.begin)
        yield "length", str(self.end - self.begin)


#: The blocks of present maps, by file and position; weak references.
_mapped: WeakValueDictionary[tuple[int, ...], Block] = WeakValueDictionary()


def map_file(path: str, begin: int, nbytes: int) -> Block:
    """Return the block of some bytes of a file, the existing one if mapped.

    ``nbytes``: at least one. Raises OSError or ValueError if the file does not open or does not have these bytes, and
    MemoryAccessError if the limit of maps is reached, which leaves descriptors for open files.
    """
    file = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    try:
        status = os.fstat(file)
        # The inode of a mapped file is not reused as long as the entry exists.
        key = (status.st_dev, status.st_ino, status.st_size, begin, nbytes)
        block = _mapped.get(key)
        if block is None:
            # Most of the descriptors are left to open files.
            limit = max(1, open_file_limit() * 3 // 8)
            if len(_mapped) >= limit:
                what = f"{limit} parts of files are mapped already, and each keeps a file open"
                raise MemoryAccessError(what, hint="delete some of the views")
            # If another thread maps the bytes at the same time, both blocks are valid.
            owner = MappedFile(os.path.abspath(path), begin, begin + nbytes, file)
            block = _mapped[key] = Block("memmap", owner, READ_ONLY, nbytes)
    finally:
        os.close(file)
    return block
