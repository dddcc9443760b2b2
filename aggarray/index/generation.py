"""Which files are indexes, and the generation of each.

This is asked of every file that is opened: files that are none are told apart without the modules that read indexes.
"""

from __future__ import annotations

from contextlib import ExitStack, closing, suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from aggarray.errors import LIBRARY_ERRORS, IndexFileError
from aggarray.index.superblock import HEAD, end_of_hdf5
from aggarray.storage.byte_source import open_source
from aggarray.storage.files import is_file

if TYPE_CHECKING:
    from aggarray.formats.hdf5.metadata.lookup import H5File

#: The group of an index file that holds the aggregation.
GROUP = "aggarray"
#: Advice in the error for a damaged index.
SAVE_AGAIN = "save it again from the data files"


def stored_generation(path: str) -> int | None:
    """Return the generation of an index of aggarray, None for other files."""
    if not is_file(path):  # opening a pipe would block
        return None
    try:
        with open_source(path) as source:
            end = end_of_hdf5(source.pread(HEAD, 0)) if source.size else None
            if end is not None and end < source.size:
                from aggarray.index.directory import IndexFile

                with closing(IndexFile(path, end)) as file:
                    if file.directory is not None:
                        return file.directory.generation
    except LIBRARY_ERRORS:
        return None
    return _generation_in_metadata(path)


def _generation_in_metadata(path: str) -> int | None:
    from aggarray.formats.hdf5.metadata.data import UNREADABLE, InvalidError
    from aggarray.formats.library_errors import error_text

    try:
        file = _metadata_of(path)
        if file is None:
            return None
        with closing(file):
            attributes = file.attributes(GROUP)
            return number_in(attributes["generation"]) if "schema" in attributes else None
    except (InvalidError, KeyError) as error:
        # promise: index-damaged
        hint = "restore the index, or save it again"
        raise IndexFileError(f"damaged: {error_text(error)}", path=path, hint=hint) from error
    except UNREADABLE:
        return None


def _metadata_of(path: str) -> H5File | None:
    """Return metadata of a file with the group of an index, else None.

    Only a few bytes of a file that is not HDF5 are read.
    """
    from aggarray.formats.hdf5 import FORMAT, SIGNATURE
    from aggarray.formats.hdf5.metadata.data import UNREADABLE
    from aggarray.formats.hdf5.metadata.lookup import H5File

    with open_source(path) as source:
        # A device has no size and may have no end: reading it could block.
        if not source.size or not FORMAT.recognises(path, source.pread(len(SIGNATURE), 0)):
            return None
        with suppress(*UNREADABLE), ExitStack() as stack:
            file = stack.enter_context(closing(H5File(path)))
            if GROUP.encode() in [link.name for link in file.links_at(file.address, file.root)]:
                stack.pop_all()
                return file
    return None


def number_in(value: Any) -> int:
    """Return an attribute of one integer; netCDF writes arrays of one."""
    return int(np.asarray(value).item())
