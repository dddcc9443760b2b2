"""Indexes of other programs, read through their convention."""

from __future__ import annotations

import numpy as np

from aggarray.dataclass import replace
from aggarray.formats import open_file
from aggarray.formats.base import Structure, full_box
from aggarray.index import Opening
from aggarray.index.conventions.foreign import Convention, ForeignArrays
from aggarray.index.notice import without_notice
from aggarray.index.uris import check_roots
from aggarray.memory.texts import Texts


def read_foreign(structure: Structure, convention: Convention, how: Opening) -> ForeignArrays:
    """Read an index of another program, without opening its fragments.

    Raises IndexFileError with the variable and the invalid value, and for files outside the roots.
    """

    def values(name: str) -> np.ndarray | Texts:
        variable = next(v for v in structure.variables if v.name == name)
        handle = open_file(structure.uri)
        try:
            # Values of the index may be stored in other files, to which the roots apply too.
            for path in getattr(handle, "external_files", lambda name: ())(name):
                # promise: foreign-index-roots
                how.access.check_named(path, structure.uri)
            # The method is optional in handles of other packages and formats.
            column = getattr(handle, "column", lambda variable: None)(variable)
            return handle.read(name, full_box(variable.shape)) if column is None else column
        finally:
            handle.close()

    structure = replace(structure, attrs=without_notice(structure.attrs))
    arrays = convention.read(structure, values, how.path_map)
    if how.access.roots is not None:
        for matrix in arrays.matrices.values():
            check_roots(matrix.references.uris, how.access.roots, structure.uri)
    return arrays
