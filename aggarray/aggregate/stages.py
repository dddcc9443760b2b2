"""Aggregation: join arrays that belong together and explain the refusals.

The stages are: signatures, candidates, split rules, joins. A variable of one file is a master array of one partition. Joining
master arrays gives master arrays, so that opening files and joining aggregations is one operation.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from aggarray.aggregate.identity import identity_of, uri_of
from aggarray.aggregate.rules import DEFAULT_RULES, Duplicate, Refusal, Rules
from aggarray.arrays.master import MasterArray
from aggarray.dataclass import NamedTuple, dataclass, replace
from aggarray.garbage import pause_garbage_collection

if TYPE_CHECKING:
    from aggarray.aggregate.candidate import Candidate

__all__ = ["Entry", "Joined", "aggregate"]


@dataclass(frozen=True, slots=True)
class Joined:
    """Joined arrays in file order, refusals, and exact duplicates left out."""

    arrays: list[MasterArray]
    refusals: list[Refusal]
    duplicates: list[Duplicate]


class Entry(NamedTuple):
    """An array to join.

    ``number``: by which the arrays of one file are ordered; ``members``: returns the arrays of the files of a series, whose
    join ``array`` is; ``values``: of these files along the new dimension, if it is along that.
    """

    array: MasterArray
    number: int
    members: Callable[[], list[Entry]] | None = None
    values: Sequence[str] = ()


@pause_garbage_collection()  # joining creates many objects but no reference cycles
def aggregate(arrays: Sequence[MasterArray | Entry], rules: Rules) -> Joined:
    """Join arrays by the rules; raise AggregationError for unknown names."""
    entries = [a if isinstance(a, Entry) else Entry(a, n) for n, a in enumerate(arrays)]
    ranked = _ranked(entries, rules)
    if rules.versions is not None:  # arrays were divided
        entries = [Entry(array, number) for number, (array, _) in enumerate(ranked)]
    entries = [entry._replace(array=array) for entry, (array, _) in zip(entries, ranked, strict=True)]
    identities = [identity_of(entry.array) for entry in entries]
    names = {entry.array.name for entry in entries}
    if len({*identities}) == len(names) == len(entries) and all(_stays_as_is(entry.array, rules) for entry in entries):
        return Joined([e.array for e in sorted(entries, key=lambda e: (uri_of(e.array), e.number))], [], [])
    by_identity: dict[str, list[Candidate]] = defaultdict(list)
    for identity, entry, (_, rank) in zip(identities, entries, ranked, strict=True):
        by_identity[identity].append(_candidate(entry, rank, rules.member_dimension))
    return _joined(by_identity, rules)


def _candidate(entry: Entry, rank: int = 0, dimension: str | None = None) -> Candidate:
    """Return a candidate.

    ``dimension``: a new one, whose value the files of a series share, or whose values they have.
    """
    from aggarray.aggregate.candidate import Candidate

    array, members = entry.array, entry.members
    candidate = Candidate(array, uri_of(array), entry.number, rank=rank)
    if members is not None:
        added = {name: c for name, c in array.coords.items() if name == dimension}
        if entry.values and dimension is not None:
            from aggarray.aggregate.new_dimension import with_members

            def own() -> list[Candidate]:
                files = members()
                arrays = with_members(array, dimension, [e.array for e in files])
                return [_candidate(e._replace(array=one)) for e, one in zip(files, arrays, strict=True)]

            candidate.members = own
            return candidate
        candidate.members = lambda: [
            _candidate(e._replace(array=replace(e.array, coords={**e.array.coords, **added}) if added else e.array))
            for e in members()
        ]
    return candidate


def _ranked(entries: Sequence[Entry], rules: Rules) -> Sequence[tuple[MasterArray, int]]:
    """Return the arrays and the rank of each, once the rules are applied."""
    arrays = [entry.array for entry in entries]
    if rules != DEFAULT_RULES:
        from aggarray.aggregate.new_dimension import check_names, with_dimension

        if rules.new_dimension is not None:
            arrays = with_dimension(arrays, rules.new_dimension, [entry.values for entry in entries])
        check_names(arrays, rules)
    if rules.versions is None:
        return [(array, 0) for array in arrays]
    from aggarray.aggregate.data_versions import by_version

    return by_version(arrays, rules.versions)


def _stays_as_is(array: MasterArray, rules: Rules) -> bool:
    """Return whether an only array needs no conversion and no coordinate read."""
    if rules.units or rules.directions or rules.new_dimension is not None or type(array) is not MasterArray:
        return False
    return all(c._known is not None or len(c._matrix.dimensions) > 1 for c in array.coords.values())


def _joined(by_identity: dict[str, list[Candidate]], rules: Rules) -> Joined:
    from aggarray.aggregate.groups import JoinResult

    outcome = JoinResult(rules)
    for identity, members in by_identity.items():
        if len(members) == 1 and _stays_as_is(members[0].array, rules):
            outcome.results.append((members[0].order, members[0].array))
        else:
            by_identity[identity] = outcome.join_identity(members)
    outcome.refusals += _name_refusals(by_identity)
    outcome.results.sort(key=lambda r: r[0])
    return Joined([array for _, array in outcome.results], outcome.refusals, outcome.duplicates)


def _name_refusals(by_identity: dict[str, list[Candidate]]) -> list[Refusal]:
    """Explain why arrays of one name but different identities are separate."""
    named = [(member, identity) for identity, members in by_identity.items() for member in members]
    if len({member.array.name for member, _ in named}) == len(named):
        return []
    from aggarray.aggregate.differences import refusal

    firsts: dict[str, dict[str, Candidate]] = defaultdict(dict)
    refusals: list[Refusal] = []
    for member, identity in sorted(named, key=lambda item: item[0].order):
        of_name = firsts[member.array.name or ""]
        if of_name and identity not in of_name:
            first, relative = next(iter(of_name.items()))
            text = f"identity (standard_name, else long_name, else name) differs: {first!r} and {identity!r}"
            refusals.append(refusal(member, relative, "identity", text))
        of_name.setdefault(identity, member)
    return refusals
