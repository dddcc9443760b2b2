"""Recognition of the convention of an aggregation file."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from aggarray.errors import IndexFileError
from aggarray.formats.base import Structure
from aggarray.index.generation import GROUP
from aggarray.index.uris import NOWHERE, PathMap

if TYPE_CHECKING:
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
