"""Division of an aggregation into datasets.

All arrays are one dataset if their names differ and they share their grid. Otherwise each combination of the facets in which
they differ (model, run, table, ...) is a dataset, divided further by grid. No array is left out.
"""

from __future__ import annotations

from collections.abc import Sequence

from aggarray.aggregate.differences import differing_attributes, differing_facets, labels
from aggarray.arrays.master import MasterArray
from aggarray.arrays.ragged_variables import flatten_ragged
from aggarray.output.dataset import ROOT, DatasetGroup, grouped, variable_name


def datasets(arrays: Sequence[MasterArray]) -> dict[str, DatasetGroup]:
    """Return the groups of arrays that form a dataset each, by path in a tree.

    A single dataset has the path ``/``.

    >>> from aggarray import MasterArray, SubArray
    >>> a, b = (SubArray.from_array([1.0] * n) for n in (2, 3))
    >>> def array(piece, name):
    ...     return MasterArray.from_subarrays([([(0, piece.shape[0])], piece)], dimensions=("x",), name=name)
    >>> list(datasets([array(a, "tas"), array(a, "pr")])), list(datasets([array(a, "tas"), array(b, "pr")]))
    (['/'], ['tas', 'pr'])
    """
    by_path: dict[str, DatasetGroup] = {}
    arrays = [flatten_ragged(array) for array in arrays]
    for folder, inside in _group_by(arrays, [(a.name or "").rpartition("/")[0] for a in arrays]).items():
        for path, group in _divide_folder(inside).items():
            by_path[_unused("/".join(part for part in (folder, path) if part) or ROOT, by_path)] = group
    return by_path or {ROOT: DatasetGroup()}


def _group_by(arrays: Sequence[MasterArray], keys: Sequence[str]) -> dict[str, list[MasterArray]]:
    groups: dict[str, list[MasterArray]] = {}
    for array, key in zip(arrays, keys, strict=True):
        groups.setdefault(key, []).append(array)
    return groups


def _divide_folder(arrays: Sequence[MasterArray]) -> dict[str, DatasetGroup]:
    ungrouped = grouped(arrays)
    if len(ungrouped) == 1:
        return {"": ungrouped[0]}
    divided: dict[str, DatasetGroup] = {}
    for path, members in _group_by(arrays, _facets(arrays)).items():
        groups = grouped(members)
        names = _names(groups) if len(groups) > 1 else [""]
        for name, group in zip(names, groups, strict=True):
            divided[_unused("/".join(part for part in (path, name) if part), divided)] = group
    return divided


def _facets(arrays: Sequence[MasterArray]) -> list[str]:
    """Return the differing facets of each array as a path."""
    distinct = {tuple(map(values.index, values)): values for _, values in reversed(differing_facets(arrays))}
    columns = list(distinct.values())[::-1]
    return ["/".join(_path_component(values[n] or "none") for values in columns) for n in range(len(arrays))]


def _names(groups: Sequence[DatasetGroup]) -> list[str]:
    """Return a name for each group of the same facets."""
    common = set.intersection(*({variable_name(a) for a in group.arrays} for group in groups))
    if not common:
        names = ["-".join(sorted(variable_name(a) for a in group.arrays)[:3]) for group in groups]
        return names if len(set(names)) == len(names) else [variable_name(group.arrays[0]) for group in groups]
    namesakes = [next(a for a in group.arrays if variable_name(a) == min(common)) for group in groups]
    for _, values in differing_attributes(namesakes):
        if len(set(values)) == len(values):
            return [_path_component(value or "none") for value in values]
    return [_path_component(label or variable_name(array)) for label, array in zip(labels(namesakes), namesakes, strict=True)]


def _path_component(text: str) -> str:
    return text.replace("/", "_").strip(". ") or "none"


def _unused(path: str, used: dict[str, DatasetGroup]) -> str:
    number, candidate = 2, path
    while candidate in used:
        number, candidate = number + 1, f"{path}_{number}"
    return candidate
