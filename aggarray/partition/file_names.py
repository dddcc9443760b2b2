"""Files that tables of sub-arrays name, as columns where they can be.

The URIs of an index are columns (`aggarray.index.indexed_files.Files`): they know their number among all files of the index,
and which of a few paths are among them. Any other URIs are texts.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np

from aggarray.partition.matrix import Matrix, References, are_used


def common_folder(uris: Sequence[str]) -> str:
    """Return the deepest folder that holds all files; "" where there is none.

    >>> common_folder(["/data/a/tas.nc", "/data/b/tas.nc"])
    '/data'
    """
    # Many files have few folders.
    heads = {uri[: uri.rstrip("/").rfind("/") + 1] for uri in uris}
    try:
        return os.path.commonpath([os.path.dirname(f"{head}-") for head in heads])
    except ValueError:  # no paths, or relative and absolute ones
        return ""


def paths_among(tables: Iterable[References], paths: Collection[str]) -> set[str]:
    """Return the given paths that tables of sub-arrays name.

    >>> from aggarray.partition.matrix import NO_REFERENCES
    >>> paths_among([NO_REFERENCES], ["a.nc"])
    set()
    """
    wanted, named = set(paths), set[str]()
    for uris in {id(table.uris): table.uris for table in tables if wanted}.values():
        find = getattr(uris, "rows_of", None)
        named |= wanted.intersection(map(str, uris)) if find is None else find(wanted).keys()
    return named


def count_files(tables: Iterable[tuple[References, np.ndarray]]) -> int:
    """Return the number of files of tables of sub-arrays.

    Each has a column of whether each of its URIs counts.

    >>> from aggarray.partition.matrix import NO_REFERENCES
    >>> count_files([(NO_REFERENCES, np.zeros(0, bool))])
    0
    """
    tables = list(tables)
    bases = {id(getattr(table.uris, "base", None)): getattr(table.uris, "base", None) for table, _ in tables}
    base: Any = next(iter(bases.values()), None)
    if base is None or len(bases) > 1:
        return len({str(table.uris[code]) for table, counted in tables for code in np.flatnonzero(counted).tolist()})
    used = np.zeros(len(base), bool)
    for table, counted in tables:
        numbers: Any = getattr(table.uris, "numbers", None)
        if numbers is None or isinstance(numbers, range):  # without columns of numbers
            first = 0 if numbers is None else numbers.start
            used[first : first + len(counted)] |= counted
        else:
            used[numbers[counted]] = True
    return int(np.count_nonzero(used))


def files_at(uris: Sequence[str], rows: np.ndarray) -> Iterable[str]:
    """Return the files in some rows.

    Those of an index are resolved together.

    >>> list(files_at(["a.nc", "b.nc"], np.array([1])))
    ['b.nc']
    """
    take: Any = getattr(uris, "take", None)
    return (str(uris[row]) for row in rows.tolist()) if take is None else take(rows)


def file_codes(matrix: Matrix) -> np.ndarray:
    """Return the numbers of the URIs that the cells of a matrix use, sorted."""
    return np.flatnonzero(used_files(matrix))


def file_count(matrix: Matrix) -> int:
    """Return the number of files that the cells of a matrix use."""
    return int(np.count_nonzero(used_files(matrix)))


def used_files(matrix: Matrix) -> np.ndarray:
    """Return whether the cells of a matrix use each URI."""
    references, used = matrix.references, matrix.used
    return are_used(references.uri if used.all() else references.uri[used], len(references.uris))
