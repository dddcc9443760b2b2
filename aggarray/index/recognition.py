"""Which files are indexes, of aggarray and of other programs.

`stored_generation` checks every file that is opened. It imports the modules that read indexes only for an index.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, closing, suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from aggarray.errors import LIBRARY_ERRORS, IndexFileError
from aggarray.index import GROUP, HEAD, end_of_hdf5
from aggarray.index.uris import NOWHERE, PathMap
from aggarray.storage.byte_source import open_source
from aggarray.storage.files import is_file

if TYPE_CHECKING:
    from aggarray.formats.base import Structure
    from aggarray.formats.hdf5.metadata.lookup import H5File
    from aggarray.index.conventions.foreign import Convention, ForeignArrays, Values

#: Beginnings of the names of attributes that mark an aggregation file in any convention.
MARKS = ("aggregated_", "cfa_", "nca_", "cf_role")


class _Ours:
    """Indexes that `save` wrote, in any convention."""

    name = GROUP
    marks: Sequence[str] = ()

    def recognises(self, structure: Structure) -> bool:
        return find_convention(structure) is self

    def read(self, structure: Structure, values: Values, path_map: PathMap = NOWHERE) -> ForeignArrays:
        """Raise IndexFileError: `load` reads such a file."""
        raise IndexFileError("is an index of aggarray", path=structure.uri, hint="open it on its own")


OURS = _Ours()


def find_convention(structure: Structure) -> Convention | None:
    """Return the convention of an index, None for plain data."""
    if "schema" in structure.groups.get(GROUP, {}):
        return OURS
    if not any(_is_marked(tuple(variable.attrs)) for variable in structure.variables):
        return None  # without importing the conventions
    from aggarray.index.conventions.foreign import convention_of

    return convention_of(structure)


@lru_cache(maxsize=4096)
def _is_marked(names: tuple[str, ...]) -> bool:
    return any(name.startswith(MARKS) for name in names)


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
