"""Which part of which file is memory? `map_file` maps it, once however many ask; it closes when the last view goes."""

import mmap
import os
import sys
from collections.abc import Iterator
from weakref import WeakValueDictionary

from aggarray.errors import MemoryAccessError
from aggarray.memory.block import READ_ONLY, Block


class MappedFile:
    """The bytes ``begin`` to ``end`` of a file, mapped for reading: nothing in this process can write to them.

    They stay valid when the file is closed, renamed or removed. Where another process truncates it, using them ends this one.
    """

    __slots__ = ("begin", "buffer", "end", "path")

    path: str
    begin: int
    end: int
    #: The bytes. The map stays as long as this does: it cannot be closed behind anybody's back.
    buffer: memoryview

    def __init__(self, path: str, begin: int, end: int, file: int) -> None:
        self.path, self.begin, self.end = path, begin, end
        # A map starts at a multiple of the page size.
        first = begin - begin % mmap.ALLOCATIONGRANULARITY
        whole = mmap.mmap(file, end - first, access=mmap.ACCESS_READ, offset=first)
        self.buffer = memoryview(whole)[begin - first :]

    def facts(self) -> Iterator[tuple[str, str]]:
        """Yield file, offset and length."""
        yield "file", self.path
        yield "offset", str(self.begin)
        yield "length", str(self.end - self.begin)


#: What is mapped at present, by file and place; entries go with the blocks.
_mapped: "WeakValueDictionary[tuple[int, ...], Block]" = WeakValueDictionary()


def map_file(path: str, begin: int, nbytes: int) -> Block:
    """Return the block of some bytes of a file, at least one; that of those who have mapped the same bytes already.

    Raises OSError or ValueError where the file does not open, or does not have them, MemoryAccessError where so many are mapped
    that no files could be opened any more.
    """
    file = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    try:
        status = os.fstat(file)
        # A file that is mapped keeps its number: as long as the entry is there, the number is no other file's.
        key = (status.st_dev, status.st_ino, status.st_size, begin, nbytes)
        block = _mapped.get(key)
        if block is None:
            if len(_mapped) >= (most := _most()):
                raise MemoryAccessError(
                    f"{most} parts of files are mapped already, of which each keeps its file open: let some go"
                )
            # Should another thread do so at the same time, both blocks are good.
            owner = MappedFile(os.path.abspath(path), begin, begin + nbytes, file)
            block = _mapped[key] = Block("memmap", owner, READ_ONLY, nbytes)
    finally:
        os.close(file)
    return block


def _most() -> int:
    """Return how many maps there may be, each with a descriptor; half of all are left to files that are kept open."""
    try:
        import resource
    except ImportError:  # not on Windows
        return sys.maxsize
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return sys.maxsize if limit < 0 else max(1, limit * 3 // 8)
