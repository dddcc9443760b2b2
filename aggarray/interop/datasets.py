"""Which arrays of an aggregation make one dataset, and where they do not, what tells the datasets apart?

All arrays are one dataset where their names differ and they share their grid. Otherwise the arrays of one model run, table and
so on (the facets in which they differ) go together, then those of one grid. Nothing is left out.
"""

from collections.abc import Sequence

from aggarray.aggregate.differences import differing_attributes, differing_facets, labels
from aggarray.arrays import MasterArray
from aggarray.arrays.ragged_variables import flatten_ragged
from aggarray.interop.dataset import DatasetGroup, grouped, variable_name

#: The path of the only dataset, or of that in no group of its file.
ROOT = "/"


def datasets(arrays: Sequence[MasterArray]) -> dict[str, DatasetGroup]:
    """Return the groups of arrays that make a dataset each, by their path in a tree; one at ``/`` where that is enough.

    >>> from aggarray import MasterArray, SubArray
    >>> a, b = (SubArray.from_array([1.0] * n) for n in (2, 3))
    >>> def array(piece, name):
    ...     return MasterArray.from_subarrays([([(0, piece.shape[0])], piece)], dimensions=("x",), name=name)
    >>> list(datasets([array(a, "tas"), array(a, "pr")])), list(datasets([array(a, "tas"), array(b, "pr")]))
    (['/'], ['tas', 'pr'])
    """
    found: dict[str, DatasetGroup] = {}
    arrays = [flatten_ragged(array) for array in arrays]
    for folder, inside in _sorted(arrays, [(a.name or "").rpartition("/")[0] for a in arrays]).items():
        for path, group in _of_folder(inside).items():
            found[_unused("/".join(part for part in (folder, path) if part) or ROOT, found)] = group
    return found or {ROOT: DatasetGroup()}


def _sorted(arrays: Sequence[MasterArray], keys: Sequence[str]) -> dict[str, list[MasterArray]]:
    found: dict[str, list[MasterArray]] = {}
    for array, key in zip(arrays, keys, strict=True):
        found.setdefault(key, []).append(array)
    return found


def _of_folder(arrays: Sequence[MasterArray]) -> dict[str, DatasetGroup]:
    """Split the arrays of one group of the files."""
    whole = grouped(arrays)
    if len(whole) == 1:
        return {"": whole[0]}
    found: dict[str, DatasetGroup] = {}
    for path, inside in _sorted(arrays, _facets(arrays)).items():
        groups = grouped(inside)
        names = _names(groups) if len(groups) > 1 else [""]
        for name, group in zip(names, groups, strict=True):
            found[_unused("/".join(part for part in (path, name) if part), found)] = group
    return found


def _facets(arrays: Sequence[MasterArray]) -> list[str]:
    """Return of every array the facets that differ, as a path; of those that tell the same arrays apart the first."""
    once = {tuple(map(values.index, values)): values for _, values in reversed(differing_facets(arrays))}
    parts = list(once.values())[::-1]
    return ["/".join(_plain(values[n] or "none") for values in parts) for n in range(len(arrays))]


def _names(groups: Sequence[DatasetGroup]) -> list[str]:
    """Name groups of the same facets: by an attribute that tells arrays of one name apart, else by their variables."""
    common = set.intersection(*({variable_name(a) for a in group.arrays} for group in groups))
    if not common:
        names = ["-".join(sorted(variable_name(a) for a in group.arrays)[:3]) for group in groups]
        return names if len(set(names)) == len(names) else [variable_name(group.arrays[0]) for group in groups]
    alike = [next(a for a in group.arrays if variable_name(a) == min(common)) for group in groups]
    for _, values in differing_attributes(alike):
        if len(set(values)) == len(values):
            return [_plain(value or "none") for value in values]
    return [_plain(label or variable_name(array)) for label, array in zip(labels(alike), alike, strict=True)]


def _plain(text: str) -> str:
    """Return a text as one part of a path."""
    return text.replace("/", "_").strip(". ") or "none"


def _unused(path: str, used: dict[str, DatasetGroup]) -> str:
    """Return a path that no other group has: with a number where one has it."""
    number, found = 2, path
    while found in used:
        number, found = number + 1, f"{path}_{number}"
    return found
