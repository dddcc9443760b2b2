"""Pickled items of an index: its path, its generation, and what to take.

The process that unpickles them opens the index where AGGARRAY_RELOCATE says it lies.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from aggarray.arrays.master import MasterArray
from aggarray.errors import IndexFileError, MissingFileError
from aggarray.index import Opening
from aggarray.storage import relocated
from aggarray.storage.urls import RELOCATE

if TYPE_CHECKING:
    from aggarray.formats.base import Structure
    from aggarray.index.loading import LoadedIndex


@functools.lru_cache(maxsize=4)
def _loaded(path: str, generation: int, how: Opening) -> LoadedIndex:
    from aggarray.index.loading import load

    try:
        loaded = load(path, how)
    except MissingFileError as error:
        error.hint = f"restore it, or set {RELOCATE} if it lies elsewhere in this process"
        raise
    if loaded.generation != generation:
        what = f"saved again since the array was pickled (generation {loaded.generation} now, {generation} then)"
        raise IndexFileError(what, path=path, hint="open it again")
    return loaded


def array_of_index(path: str, generation: int, number: int, how: Opening) -> MasterArray:
    """Return an array of an index by number, for unpickling."""
    array = _loaded(relocated(path), generation, how).arrays[number]
    return array._with_origin(array_of_index, path, generation, number, how)


def structures_of_index(path: str, generation: int, how: Opening) -> Sequence[Structure]:
    """Return the scanned structures that an index stores."""
    return _loaded(relocated(path), generation, how).structures()


def others_of_index(path: str, generation: int, how: Opening) -> list[MasterArray]:
    """Return the arrays of an index that come without a scanned file."""
    return _loaded(relocated(path), generation, how).others()
