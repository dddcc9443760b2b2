"""Which arrays are one array? `aggregate` joins what belongs together and says why of everything that stays apart.

signature -> candidates -> divide until joinable -> join. A variable of one file is a master array of one partition, and joining
master arrays gives master arrays, so that opening and joining again are one operation.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace

from aggarray.aggregate.apart import between, refusal
from aggarray.aggregate.candidate import Candidate, candidate, identity_of, uri_of
from aggarray.aggregate.group import Joinable, split
from aggarray.aggregate.join import Frame, join
from aggarray.aggregate.rules import Refusal, Rules
from aggarray.errors import AggarrayError, UnitsError
from aggarray.formats.base import basename
from aggarray.master import MasterArray

__all__ = ["aggregate"]

#: An array with what it is sorted by: its first file and its place among the arrays given.
Result = tuple[tuple[str, int], MasterArray]


def aggregate(arrays: Sequence[MasterArray], rules: Rules) -> tuple[list[MasterArray], list[Refusal]]:
    """Join arrays by the rules; return the joined arrays, ordered by their first file and place in it, and the refusals."""
    results: list[Result] = []
    refusals: list[Refusal] = []
    by_identity: dict[str, list[Candidate]] = defaultdict(list)
    for number, array in enumerate(arrays):
        try:
            one = candidate(array, number, rules.separate_by)
        except AggarrayError as error:  # a coordinate that cannot be read spoils nobody else
            uri = uri_of(array)
            results.append(((uri, number), array))
            refusals.append(Refusal((array.name or "",), (uri,) if uri else (), "unreadable", str(error)))
            continue
        by_identity[identity_of(array)].append(one)
    for members in by_identity.values():
        groups = _by_signature(members)
        refusals += between(groups)
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
    groups: dict[tuple[tuple[str, object], ...], list[Candidate]] = defaultdict(list)
    for one in members:
        groups[tuple(sorted(one.signature.items()))].append(one)
    return list(groups.values())


def _named_alike(by_identity: dict[str, list[Candidate]]) -> list[Refusal]:
    """Explain why arrays of one name but different identities stay apart."""
    first: dict[str, tuple[str, Candidate]] = {}
    found = []
    for identity, members in by_identity.items():
        for name in dict.fromkeys(one.array.name or "" for one in members):
            one = next(m for m in members if (m.array.name or "") == name)
            known, relative = first.setdefault(name, (identity, one))
            if known != identity:
                text = f"identity (standard_name, else long_name, else name) differs: {known!r} and {identity!r}"
                found.append(refusal(one, relative, "identity", text))
    return found


def _join_group(group: list[Candidate], rules: Rules, refusals: list[Refusal]) -> list[Result]:
    """Join the arrays of one signature; what cannot be joined after all stays apart with the reason."""
    results: list[Result] = []

    def refuse(apart: Candidate, relative: Candidate, rule: str, reason: str) -> None:
        refusals.append(refusal(apart, relative, rule, reason))

    for joinable in split(group, rules, refuse):
        first, place = joinable.found[0], min((one.uri, one.number) for one in joinable.found)
        try:
            try:
                results.append((place, _joined(joinable, rules)))
            except UnitsError as error:  # the units wished for are no reason not to join
                results.append((place, _joined(joinable, replace(rules, units={}))))
                refuse(first, first, "units", str(error))
        except AggarrayError as error:
            results += [((one.uri, one.number), one.array) for one in joinable.found]
            for one in joinable.found[1:] or [first]:
                refuse(one, first, "join", str(error))
    return results


def _joined(joinable: Joinable, rules: Rules) -> MasterArray:
    if len(joinable.found) == 1 and not rules.units and not rules.directions:
        return joinable.found[0].array
    frame = joinable.frame if len(joinable.found) > 1 else Frame({}, {}, {})
    return join(joinable.found, frame, rules)
