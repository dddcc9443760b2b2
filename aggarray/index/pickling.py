"""Pickled arrays of an index: its path, its generation, their number."""

import functools
from collections.abc import Sequence

from aggarray.arrays.master import MasterArray
from aggarray.errors import IndexFileError
from aggarray.index import Opening


@functools.lru_cache(maxsize=4)
def _arrays(path: str, generation: int, how: Opening) -> Sequence[MasterArray]:
    from aggarray.index.loading import load

    loaded = load(path, how)
    if loaded.generation != generation:
        what = f"saved again since the array was pickled (generation {loaded.generation} now, {generation} then)"
        raise IndexFileError(what, path=path, hint="open it again")
    return loaded.arrays


def array_of_index(path: str, generation: int, number: int, how: Opening) -> MasterArray:
    """Return an array of an index by number, for unpickling."""
    return _arrays(path, generation, how)[number]._with_origin(array_of_index, path, generation, number, how)
