"""Does a file that is left to the libraries contradict itself? They believe what it says, and crash or run for ever.

Everything is looked at that leads to values, but for the values: objects and what is in them, texts and other elements of
variable length of attributes, indexes of chunks. What is not modelled is passed over.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from aggarray.formats.hdf5.metadata.chunks import check_index
from aggarray.formats.hdf5.metadata.data import (
    UNDEFINED,
    UNREADABLE,
    Data,
    InvalidError,
    UnsupportedError,
    is_invalid,
    refuse,
    verify,
)
from aggarray.formats.hdf5.metadata.groups import attributes_of, links_of
from aggarray.formats.hdf5.metadata.headers import Header, header_at
from aggarray.formats.hdf5.metadata.heaps import GlobalHeap
from aggarray.formats.hdf5.metadata.messages import CHUNKED
from aggarray.formats.hdf5.metadata.superblock import root_address
from aggarray.formats.hdf5.metadata.types import TEXTS
from aggarray.formats.hdf5.metadata.values import check_storage, text_at
from aggarray.storage.byte_source import ByteSource, open_source
from aggarray.storage.lru_cache import LRUCache

#: What was found of the latest files, by path and state.
_known = LRUCache(lambda: 4096, lambda _: 1)


def is_damaged(path: str) -> bool:
    """Tell whether a file is damaged so that libraries are not to be asked for it in this process.

    FormatError where they would give other values.
    """
    try:
        with open_source(path) as file:
            key = path, file.state
            known: bool | None = _known.get(key)
            if known is None:
                known = _is_doubtful(path, file)
                _known.keep(key, known)
            return known
    except OSError:
        return False


def validate(path: str) -> None:
    """Raise InvalidError for a file that contradicts itself, or of which is not known where its root group is."""
    with open_source(path) as file:
        _check_file(file)


def _is_doubtful(path: str, file: ByteSource) -> bool:
    try:
        _check_file(file)
    except UNREADABLE as error:
        refuse(error, path)
        return is_invalid(error)
    return False


def _check_file(file: ByteSource) -> None:
    data = Data(file)
    try:
        root = root_address(data)
    except UnsupportedError as error:
        if is_invalid(error):
            raise
        raise InvalidError(str(error)) from error
    _validate(data, root)


def _validate(data: Data, root: int) -> None:
    heap = GlobalHeap(data)
    seen = {root}
    waiting = [root]
    while waiting:
        # Of a file with more metadata than are read here, what comes last is passed over as well.
        with _passing_over():
            inside = _check_object(data, heap, waiting.pop()) - seen
            seen |= inside
            waiting += inside


def _check_object(data: Data, heap: GlobalHeap, address: int) -> set[int]:
    """Look at an object; return the addresses of those in it."""
    header = header_at(data, address, lenient=True)
    _check_attributes(data, heap, header)
    if header.link_index is not None or header.symbols is not None:
        return {link.address for link in links_of(data, header) if link.address != UNDEFINED}
    _check_storage(data, header)
    if header.virtual is not None and header.virtual[0] != UNDEFINED:
        # The list ends with a checksum.
        # promise: hdf5-virtual-checksum
        verify(heap.get(*header.virtual))
    return set()


@contextmanager
def _passing_over() -> Iterator[None]:
    """Go on after the block over what is not modelled."""
    try:
        yield
    except UnsupportedError as error:
        if is_invalid(error):
            raise


def _check_attributes(data: Data, heap: GlobalHeap, header: Header) -> None:
    """Follow what attributes have in a heap."""
    with _passing_over():
        for attribute in attributes_of(data, header):
            for element in attribute.elements:
                if attribute.category == TEXTS:
                    # promise: hdf5-damaged-text-heap
                    text_at(heap, *element)
                elif any(element):
                    heap.get(*element[1:])


def _check_storage(data: Data, header: Header) -> None:
    """Hold the place of a dataset's values against the file."""
    layout, space, datatype = header.layout, header.space, header.datatype
    if layout is None or space is None or datatype is None:
        return
    check_storage(data, layout, datatype.size * space.count)
    if layout.form == CHUNKED:
        with _passing_over():
            # promise: hdf5-damaged-chunk-index
            check_index(data, layout, space, bool(header.filters))
