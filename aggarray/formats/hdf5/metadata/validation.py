"""Validation of a file before the HDF5 library opens it.

The library does not validate all structures: a damaged file can make it crash or loop endlessly. All structures that lead to
values are checked: objects, links, attributes with variable-length elements, and chunk indexes. Unsupported structures are
skipped.
"""

from __future__ import annotations

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
from aggarray.formats.hdf5.metadata.headers import header_at, root_address
from aggarray.formats.hdf5.metadata.heaps import heap_object, text_at
from aggarray.formats.hdf5.metadata.messages import CHUNKED
from aggarray.formats.hdf5.metadata.types import TEXTS
from aggarray.formats.hdf5.metadata.values import check_storage
from aggarray.storage.byte_source import ByteSource, open_source
from aggarray.storage.lru_cache import LRUCache

#: Results for the latest files, by path and state.
_results = LRUCache(lambda: 4096, lambda _: 1)


@contextmanager
def _skip_unsupported() -> Iterator[None]:
    try:
        yield
    except UnsupportedError as error:
        if is_invalid(error):
            raise


def is_damaged(path: str) -> bool:
    """Return whether the library must not open the file in this process.

    Raises FormatError if the library would return wrong values.
    """
    try:
        with open_source(path) as file:
            key = path, file.state
            result: bool | None = _results.get(key)
            if result is None:
                result = False
                try:
                    _check_file(file)
                except UNREADABLE as error:
                    refuse(error, path)
                    result = is_invalid(error)
                _results.keep(key, result)
            return result
    except OSError:
        return False


def validate(path: str) -> None:
    """Raise InvalidError for a file that is invalid or without a root group."""
    with open_source(path) as file:
        _check_file(file)


def _check_file(file: ByteSource) -> None:
    data = Data(file)
    try:
        root = root_address(data)
    except UnsupportedError as error:
        if is_invalid(error):
            raise
        raise InvalidError(str(error)) from error
    seen = {root}
    waiting = [root]
    while waiting:
        # Beyond the limit on metadata, the remaining objects are skipped.
        with _skip_unsupported():
            children = _check_object(data, waiting.pop()) - seen
            seen |= children
            waiting += children


def _check_object(data: Data, address: int) -> set[int]:
    """Check an object and return the addresses of its children."""
    header = header_at(data, address, lenient=True)
    with _skip_unsupported():
        for attribute in attributes_of(data, header):
            for element in attribute.elements:
                if attribute.category == TEXTS:
                    # promise: hdf5-damaged-text-heap
                    text_at(data, *element)
                elif any(element):
                    heap_object(data, *element[1:])
    if header.link_index is not None or header.symbols is not None:
        return {link.address for link in links_of(data, header) if link.address != UNDEFINED}
    layout, space, datatype = header.layout, header.space, header.datatype
    if layout is not None and space is not None and datatype is not None:
        check_storage(data, layout, datatype.size * space.count)
        if layout.form == CHUNKED:
            with _skip_unsupported():
                # promise: hdf5-damaged-chunk-index
                check_index(data, layout, space, bool(header.filters))
    if header.virtual is not None and header.virtual[0] != UNDEFINED:
        # The list of sources ends with a checksum.
        # promise: hdf5-virtual-checksum
        verify(heap_object(data, *header.virtual))
    return set()
