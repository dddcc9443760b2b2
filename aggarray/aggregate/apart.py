"""Why are arrays of one identity not even candidates for one array?

Their signatures differ. Each group of equal signatures is explained against its nearest relative, the one from which it
differs in the fewest entries: along a minimum spanning tree, so that n groups give n - 1 refusals.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import numpy as np

from aggarray.aggregate.candidate import Candidate, describe_difference
from aggarray.aggregate.rules import Refusal

#: With more groups than this, only neighbours in the order of their signatures are compared.
MANY_GROUPS = 1000


def refusal(apart: Candidate, relative: Candidate, rule: str, reason: str) -> Refusal:
    """Return why a candidate stayed apart from its relative; the reason also names the files."""
    files = tuple(u for u in (relative.uri, apart.uri) if u)
    where = ", ".join(os.path.basename(u.rstrip("/")) for u in files)
    return Refusal((relative.array.name or "", apart.array.name or ""), files, rule, f"{reason}: {where}" if where else reason)


def between(groups: Sequence[list[Candidate]]) -> list[Refusal]:
    """Explain why groups of one identity stay apart: each against its nearest relative."""
    firsts = sorted((min(g, key=_file) for g in groups), key=_file)
    if len(firsts) > MANY_GROUPS:
        firsts.sort(key=lambda one: [repr(v) for v in one.signature.values()])
        pairs: Iterable[tuple[int, int]] = pairwise(range(len(firsts)))
    else:
        pairs = _tree(firsts)
    return [refusal(firsts[b], firsts[a], *describe_difference(firsts[a], firsts[b])) for a, b in pairs]


def _file(one: Candidate) -> tuple[str, int]:
    return one.uri, one.number


def _tree(firsts: Sequence[Candidate]) -> Iterator[tuple[int, int]]:
    """Yield the edges (known, new) of a minimum spanning tree of signatures, distance = number of entries that differ."""
    if len(firsts) < 2:
        return
    codes = _coded(firsts)
    best = (codes != codes[0]).sum(axis=1)
    near = np.zeros(len(firsts), np.int64)
    waiting = np.ones(len(firsts), bool)
    waiting[0] = False
    while waiting.any():
        new = int(np.where(waiting, best, codes.shape[1] + 1).argmin())
        yield int(near[new]), new
        waiting[new] = False
        distance = (codes != codes[new]).sum(axis=1)
        closer = distance < best
        best[closer], near[closer] = distance[closer], new


def _coded(firsts: Sequence[Candidate]) -> np.ndarray:
    """Number the values of every signature entry: int64 (candidates, entries)."""
    keys = sorted({key for one in firsts for key in one.signature})
    columns = []
    for key in keys:
        numbers: dict[object, int] = {}
        columns.append([numbers.setdefault(one.signature.get(key), len(numbers)) for one in firsts])
    return np.array(columns, np.int64).reshape(len(keys), len(firsts)).T
