"""Which arrays are one array? `aggregate` joins what belongs together and says why of everything that stays apart.

signature -> candidates -> divide until joinable -> join. A variable of one file is a master array of one partition, and joining
master arrays gives master arrays, so that opening and joining again are one operation.
"""

import os
from collections import Counter, defaultdict
from collections.abc import Sequence

from aggarray.aggregate.candidate import Candidate, Signature, candidate, describe_difference, identity_of
from aggarray.aggregate.group import Joinable, split
from aggarray.aggregate.join import Frame, join
from aggarray.aggregate.rules import Refusal, Rules
from aggarray.errors import AggarrayError
from aggarray.formats.base import basename
from aggarray.master import MasterArray

__all__ = ["aggregate"]


def aggregate(arrays: Sequence[MasterArray], rules: Rules) -> tuple[list[MasterArray], list[Refusal]]:
    """Join arrays by the rules; return the joined arrays, in the order of their first members, and the refusals."""
    found = [candidate(array, number, rules.separate_by) for number, array in enumerate(arrays)]
    by_identity: dict[str, list[Candidate]] = defaultdict(list)
    for one in found:
        by_identity[identity_of(one.array)].append(one)
    results: list[tuple[int, MasterArray]] = []
    refusals: list[Refusal] = []
    for members in by_identity.values():
        groups = _by_signature(members)
        refusals += _between(groups)
        for group in groups:
            results += _join_group(group, rules, refusals)
    refusals += _named_alike(by_identity)
    results.sort(key=lambda r: r[0])
    return [array for _, array in results], refusals


def _by_signature(members: Sequence[Candidate]) -> list[list[Candidate]]:
    """Group arrays of one identity by signature; where one file has several alike, names tell them apart."""
    groups = _grouped(members)
    alike = Counter((one.uri, number) for number, group in enumerate(groups) for one in group)
    if max(alike.values(), default=0) > 1:
        for one in members:
            one.signature["name"] = basename(one.array.name or "")
        groups = _grouped(members)
    return groups


def _grouped(members: Sequence[Candidate]) -> list[list[Candidate]]:
    groups: dict[tuple[object, ...], list[Candidate]] = defaultdict(list)
    for one in members:
        groups[tuple(sorted(one.signature.items(), key=lambda item: item[0]))].append(one)
    return list(groups.values())


def _between(groups: Sequence[list[Candidate]]) -> list[Refusal]:
    """Explain why arrays of one identity are not even candidates: each against its neighbour in order of signature."""

    def weight(signature: Signature) -> list[str]:
        return [repr(v) for v in signature.values()]

    ordered = sorted(groups, key=lambda g: weight(g[0].signature))
    found = []
    for before, after in zip(ordered, ordered[1:], strict=False):
        found.append(_refusal(after[0], before[0], *describe_difference(before[0], after[0])))
    return found


def _named_alike(by_identity: dict[str, list[Candidate]]) -> list[Refusal]:
    """Explain why arrays of one name but different identities stay apart."""
    first: dict[str, tuple[str, Candidate]] = {}
    found = []
    for identity, members in by_identity.items():
        for name in dict.fromkeys(one.array.name or "" for one in members):
            one = next(m for m in members if (m.array.name or "") == name)
            known, relative = first.setdefault(name, (identity, one))
            if known != identity:
                found.append(_refusal(one, relative, "identity", f"identity (standard_name, else long_name, else name) differs: {known!r} and {identity!r}"))
    return found


def _refusal(apart: Candidate, relative: Candidate, rule: str, reason: str) -> Refusal:
    files = tuple(u for u in (relative.uri, apart.uri) if u)
    where = ", ".join(os.path.basename(u.rstrip("/")) for u in files)
    return Refusal((relative.array.name or "", apart.array.name or ""), files, rule, f"{reason}: {where}" if where else reason)


def _join_group(group: list[Candidate], rules: Rules, refusals: list[Refusal]) -> list[tuple[int, MasterArray]]:
    """Join the arrays of one signature; what cannot be joined after all stays apart with the reason."""
    results = []

    def refuse(apart: Candidate, relative: Candidate, rule: str, reason: str) -> None:
        refusals.append(_refusal(apart, relative, rule, reason))

    for joinable in split(group, rules, refuse):
        number = min(one.number for one in joinable.found)
        try:
            results.append((number, _joined(joinable, rules)))
        except AggarrayError as error:
            first = joinable.found[0]
            results += [(one.number, one.array) for one in joinable.found]
            for one in joinable.found[1:]:
                refuse(one, first, "join", str(error))
    return results


def _joined(joinable: Joinable, rules: Rules) -> MasterArray:
    if len(joinable.found) == 1 and not rules.units and not rules.directions:
        return joinable.found[0].array
    frame = joinable.frame if len(joinable.found) > 1 else Frame({}, {}, {})
    return join(joinable.found, frame, rules)
