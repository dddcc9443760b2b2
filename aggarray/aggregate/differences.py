"""Differences between arrays: labels, and refusals of separate groups.

Groups of one identity whose signatures differ are not joined. Each group is explained against its nearest relative, the one
from which it differs in the fewest entries: along a minimum spanning tree, so that n groups give n - 1 refusals.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np

from aggarray.aggregate.rules import COLUMN_ORDER, FACETS, IMPLIED_BY, Refusal, facets_in
from aggarray.arrays.master import MasterArray
from aggarray.partition.file_names import common_folder

if TYPE_CHECKING:
    from aggarray.aggregate.candidate import Candidate

#: Of more groups than this, only neighbours in the order of their signatures are compared.
MANY_GROUPS = 1000

#: Attributes that distinguish arrays best.
DISTINGUISHING = ("units", "calendar", "standard_name", "cell_methods", "long_name")

#: Attributes that differ in every file, without information for labels.
UNINFORMATIVE = ("history", "tracking_id", "creation_date", "date_created", "date_modified", "uuid", "id")

#: Maximum length of an attribute in a label, and maximum number of attributes.
MAX_LENGTH, MAX_ATTRIBUTES = 40, 3


def refusal(separate: Candidate, relative: Candidate, rule: str, reason: str, hint: str | None = None) -> Refusal:
    """Return the refusal of a candidate; both files follow the reason."""
    both = (relative,) if separate is relative else (relative, separate)
    files = tuple(dict.fromkeys(candidate.uri for candidate in both if candidate.uri))
    where = ", ".join(short_paths(files))
    names = tuple(candidate.array.name or "" for candidate in both)
    located = f"{reason}: {where}" if where else reason
    return Refusal(names, files, rule, located if hint is None else f"{located}; {hint}")


def short_paths(uris: Sequence[str]) -> list[str]:
    """Return file names, or paths from the common folder if names repeat.

    >>> short_paths(["/data/a/tas.nc", "/data/b/tas.nc"]), short_paths(["/data/a/tas.nc", "/data/b/pr.nc"])
    (['a/tas.nc', 'b/tas.nc'], ['tas.nc', 'pr.nc'])
    """
    names = [os.path.basename(uri.rstrip("/")) for uri in uris]
    if len(set(names)) == len(set(uris)):
        return names
    folder = common_folder(uris)
    return [os.path.relpath(uri, folder) for uri in uris] if folder else list(uris)


def labels(arrays: Sequence[MasterArray]) -> list[str]:
    """Return the differences of each array from others of its name, or ""."""
    words: list[list[str]] = [[] for _ in arrays]
    for describe in (_by_facets, _by_attributes, _by_files):
        groups: dict[tuple[str | None, ...], list[int]] = defaultdict(list)
        for row, array in enumerate(arrays):
            groups[array.name, *words[row]].append(row)
        for rows in groups.values():
            if len(rows) > 1:
                for row, added in zip(rows, describe([arrays[row] for row in rows]), strict=True):
                    words[row] += added
    return [", ".join(parts) for parts in words]


def facets_of(array: MasterArray) -> dict[str, str]:
    """Return the facets of an array, from its file's attributes or its own."""
    return {name: value for name, value in facets_in(array, FACETS).items() if value is not None}


def differing_facets(arrays: Sequence[MasterArray]) -> list[tuple[str, list[str | None]]]:
    """Return differing facets in the order of `FACETS`, a value per array."""
    all_facets = [facets_of(array) for array in arrays]
    return _differing(FACETS, lambda name: [facets.get(name) for facets in all_facets])


def distinguishing_facets(arrays: Sequence[MasterArray]) -> list[tuple[str, list[str | None]]]:
    """Return the differing facets without those that others imply.

    Of CMIP6, these are source_id, experiment_id, variant_label, table_id and grid_label; ``institution_id``, ``frequency`` and
    the like only where arrays of one name differ in nothing else. A facet that some arrays lack differs if the others differ,
    or arrays of one name do.
    """
    differing = dict(differing_facets(arrays))
    present = set.intersection(*(set(facets_of(array)) for array in arrays)) if differing else set()
    values = {name: len({v for v in values if v is not None}) for name, values in differing.items()}
    kept = {name for name in differing if values[name] > 1 and not present.intersection(IMPLIED_BY.get(name, ()))}
    for name in differing:
        known = {(a.name, *(differing[k][n] for k in kept)) for n, a in enumerate(arrays)}
        finer = {(a.name, *(differing[k][n] for k in kept), differing[name][n]) for n, a in enumerate(arrays)}
        kept |= {name} if len(finer) > len(known) else set()
    return [(name, differing[name]) for name in dict.fromkeys((*COLUMN_ORDER, *differing)) if name in kept]


def differing_attributes(arrays: Sequence[MasterArray]) -> list[tuple[str, list[str | None]]]:
    """Return other short attributes that differ; units and calendar first."""
    names = dict.fromkeys(key for array in arrays for key in (*array.attrs, *array.file_attrs))
    keys = [key for key in dict.fromkeys((*DISTINGUISHING, *names)) if key not in FACETS and key not in UNINFORMATIVE]

    return _differing(keys, lambda key: [attribute_text(array, key) for array in arrays])


def attribute_text(array: MasterArray, name: str) -> str | None:
    """Return an attribute of an array or its file in one line of text."""
    own = getattr(array, name) if name in ("units", "calendar") else array.attrs.get(name, array.file_attrs.get(name))
    return None if own is None else " ".join(str(own).split())


def _differing(keys: Iterable[str], values_of: Callable[[str], list[str | None]]) -> list[tuple[str, list[str | None]]]:
    values = ((key, values_of(key)) for key in keys)
    return [(k, v) for k, v in values if len(set(v)) > 1 and all(text is None or len(text) < MAX_LENGTH for text in v)]


def _by_facets(arrays: Sequence[MasterArray]) -> list[list[str]]:
    """Return the differing facets of each array, without redundant ones."""
    distinct: dict[tuple[int, ...], tuple[str, list[str | None]]] = {}
    for key, values in distinguishing_facets(arrays):
        distinct.setdefault(tuple(map(values.index, values)), (key, values))
    return [[f"{key}: {values[n]}" for key, values in distinct.values() if values[n] is not None] for n in range(len(arrays))]


def _by_attributes(arrays: Sequence[MasterArray]) -> list[list[str]]:
    differing = differing_attributes(arrays)[:MAX_ATTRIBUTES]
    return [[f"{key}: {values[n] or 'none'}" for key, values in differing] for n in range(len(arrays))]


def _by_files(arrays: Sequence[MasterArray]) -> list[list[str]]:
    """Return the folder of each array's files, or the first file if equal."""
    what, names = folders_or_files(arrays)
    return [[f"{'in' if what == 'folder' else 'from'} {name}"] if name else [] for name in names]


def folders_or_files(arrays: Sequence[MasterArray]) -> tuple[str, list[str]]:
    """Return "folder" and the folder of each array's files if they differ.

    Otherwise "file" and the name of the first file of each.
    """
    files = [sorted(str(uri) for uri in array._matrix.references.uris if uri) for array in arrays]
    folders = [common_folder(uris) for uris in files]
    if len(set(folders)) > 1:
        return "folder", folders
    return "file", [os.path.basename(uris[0].rstrip("/")) if uris else "" for uris in files]


def refusals_between(groups: Sequence[list[Candidate]]) -> list[Refusal]:
    """Return the refusals of groups of one identity, by nearest relative."""
    from aggarray.aggregate.candidate import describe_difference

    firsts = sorted((min(g, key=attrgetter("order")) for g in groups), key=attrgetter("order"))
    if len(firsts) > MANY_GROUPS:
        firsts.sort(key=lambda one: [repr(v) for v in one.signature.values()])
        pairs: Iterable[tuple[int, int]] = pairwise(range(len(firsts)))
    else:
        pairs = _spanning_tree(firsts)
    return [refusal(firsts[b], firsts[a], *describe_difference(firsts[a], firsts[b])) for a, b in pairs]


def _spanning_tree(firsts: Sequence[Candidate]) -> Iterator[tuple[int, int]]:
    """Yield edges (known, new) of a minimum spanning tree of signatures."""
    if len(firsts) < 2:
        return
    columns = []
    for key in sorted({key for one in firsts for key in one.signature}):
        numbers: dict[object, int] = {}
        columns.append([numbers.setdefault(one.signature.get(key), len(numbers)) for one in firsts])
    codes = np.array(columns, np.int64).T  # the number of each entry's value, by candidate
    distances = (codes != codes[0]).sum(axis=1)
    nearest = np.zeros(len(firsts), np.int64)
    waiting = np.ones(len(firsts), bool)
    waiting[0] = False
    while waiting.any():
        new = int(np.where(waiting, distances, codes.shape[1] + 1).argmin())
        yield int(nearest[new]), new
        waiting[new] = False
        distance = (codes != codes[new]).sum(axis=1)
        closer = distance < distances
        distances[closer], nearest[closer] = distance[closer], new


def distinguishing_text(arrays: Sequence[MasterArray]) -> str:
    """Describe the attributes in which arrays differ, facets first.

    Where facets distinguish all arrays, only attributes such as units follow.
    """
    facets, others = distinguishing_facets(arrays), differing_attributes(arrays)
    if len(set(zip(*(values for _, values in facets), strict=True))) == len(arrays):
        others = [(key, values) for key, values in others if key in DISTINGUISHING]
    texts = []
    for differing in (facets, others):
        for key, values in differing:
            distinct = sorted({v for v in values if v is not None}) + ["none"] * (None in values)
            texts.append(f"{key}: {', '.join(distinct[:8])}{', ...' if len(distinct) > 8 else ''}")
    if texts:
        return "they differ in " + "; ".join(texts[:4])
    return f"their shapes are {', '.join(str(a.shape) for a in arrays[:8])}"
