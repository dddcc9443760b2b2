"""Aggregation: join arrays that belong together and explain the refusals.

The stages are: signatures, candidates, split rules, joins. A variable of one file is a master array of one partition. Joining
master arrays gives master arrays, so that opening files and joining aggregations is one operation.
"""

import gc
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from aggarray.aggregate.candidate import Candidate, CandidateCache, identity_of, make_candidate, uri_of
from aggarray.aggregate.data_versions import by_version
from aggarray.aggregate.differences import refusal, refusals_between
from aggarray.aggregate.group import Joinable, JoinObserver, split
from aggarray.aggregate.join import join
from aggarray.aggregate.new_dimension import check_names, with_dimension
from aggarray.aggregate.ragged import by_ragged_signature, join_ragged, ragged_candidate, without_duplicates
from aggarray.aggregate.report import Duplicate
from aggarray.aggregate.rules import Refusal, Rules
from aggarray.arrays import MasterArray
from aggarray.arrays.ragged import RaggedMasterArray
from aggarray.errors import AggarrayError, UnitsError

__all__ = ["Joined", "aggregate"]

#: An array with its sort key: its first file and its position in the input.
Result = tuple[tuple[str, int], MasterArray]


@dataclass(frozen=True, slots=True)
class Joined:
    """The outcome of a join.

    ``arrays`` are ordered by first file and position in it; ``duplicates``: files left out because they repeat others exactly.
    """

    arrays: list[MasterArray]
    refusals: list[Refusal]
    duplicates: list[Duplicate]


def aggregate(arrays: Sequence[MasterArray], rules: Rules) -> Joined:
    """Join arrays by the rules.

    Raises AggregationError for rules that name a dimension, attribute or quantity that no array has.
    """
    with _without_collection():
        return _aggregate(arrays, rules)


@contextmanager
def _without_collection() -> Iterator[None]:
    """Pause the garbage collector. Joining creates many objects but no reference cycles."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _aggregate(arrays: Sequence[MasterArray], rules: Rules) -> Joined:
    if rules.new_dimension is not None:
        arrays = with_dimension(arrays, rules.new_dimension)
    check_names(arrays, rules)
    ranked = [(a, 0) for a in arrays] if rules.versions is None else by_version(arrays, rules.versions)
    outcome, facets = _JoinResult(rules), rules.facets
    cache = CandidateCache()
    by_identity: dict[str, list[Candidate]] = defaultdict(list)
    rows: dict[str, list[Candidate]] = defaultdict(list)
    for number, (array, rank) in enumerate(ranked):
        try:
            if isinstance(array, RaggedMasterArray):
                rows[identity_of(array)].append(ragged_candidate(array, number, facets))
                continue
            member = make_candidate(array, number, facets, cache)
        except AggarrayError as error:  # an unreadable coordinate concerns one array only
            outcome.unreadable(array, number, str(error))
            continue
        member.rank = rank
        by_identity[identity_of(array)].append(member)
    for members in by_identity.values():
        groups = _by_signature(members)
        outcome.refusals += refusals_between(groups)
        for group in groups:
            outcome.join_group(_without_idle_axes(group))
    for members in rows.values():
        groups = by_ragged_signature(members, rules)
        outcome.refusals += refusals_between(groups)
        for group in groups:
            outcome.join_rows(group)
    outcome.refusals += [
        _ragged_refusal(members[0], by_identity[key][0]) for key, members in rows.items() if key in by_identity
    ]
    outcome.refusals += _name_refusals({key: [*by_identity[key], *rows[key]] for key in dict.fromkeys([*by_identity, *rows])})
    outcome.results.sort(key=lambda r: r[0])
    return Joined([array for _, array in outcome.results], outcome.refusals, outcome.duplicates)


def _without_idle_axes(group: list[Candidate]) -> list[Candidate]:
    """Drop the dimensions without information that some members lack."""
    common = set(group[0].axes).intersection(*(member.axes for member in group))
    return [_without(member, (member.axes.keys() - common) & _idle_axes(member)) for member in group]


def _without(candidate: Candidate, keys: set[str]) -> Candidate:
    if not keys:
        return candidate
    array = candidate.array._chosen({candidate.axes[key].name: 0 for key in keys})
    selected = {id(c): array.coords[name] for name, c in candidate.array.coords.items()}
    kept = {key: axis for key, axis in candidate.axes.items() if key not in keys}
    axes = {key: replace(p, coordinate=None if p.coordinate is None else selected[id(p.coordinate)]) for key, p in kept.items()}
    return replace(candidate, array=array, axes=axes)


def _idle_axes(candidate: Candidate) -> set[str]:
    """Return the dimensions of size 1 without a coordinate. They hold no information; other arrays may lack them."""
    return {key for key, p in candidate.axes.items() if p.size == 1 and p.coordinate is None and not p.scalar}


class _JoinResult:
    """Collects joined arrays, refusals and duplicates."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.results: list[Result] = []
        self.refusals: list[Refusal] = []
        self.duplicates: list[Duplicate] = []

    def unreadable(self, array: MasterArray, number: int, reason: str) -> None:
        """Add an array that cannot be examined, without joining it."""
        uri = uri_of(array)
        self.results.append(((uri, number), array))
        self.refusals.append(Refusal((array.name or "",), (uri,) if uri else (), "unreadable", reason))

    def refuse(self, separate: Candidate, relative: Candidate, rule: str, reason: str) -> None:
        """Add the reason why an array stays separate."""
        self.refusals.append(refusal(separate, relative, rule, reason))

    def repeated(self, duplicate: Candidate, kept: Candidate) -> None:
        """Add an array that is left out because it repeats another."""
        self.duplicates.append(Duplicate(duplicate.array.name or "", duplicate.uri, kept.uri))

    def join_group(self, group: list[Candidate]) -> None:
        """Join the arrays of one signature. Arrays whose join fails stay separate, with the error as the reason."""
        for joinable in split(group, self.rules, JoinObserver(self.refuse, self.repeated)):
            first, sort_key = (
                joinable.candidates[0],
                min((candidate.uri, candidate.number) for candidate in joinable.candidates),
            )
            try:
                try:
                    self.results.append((sort_key, _joined(joinable, self.rules)))
                except UnitsError as error:  # requested units that do not convert do not prevent the join
                    self.results.append((sort_key, _joined(joinable, replace(self.rules, units={}))))
                    self.refuse(first, first, "units", str(error))
            except AggarrayError as error:
                separate = list(
                    {candidate.number: candidate.cut_from or candidate for candidate in joinable.candidates}.values()
                )
                self.results += [((candidate.uri, candidate.number), candidate.array) for candidate in separate]
                for candidate in separate[1:] or [first]:
                    self.refuse(candidate, first, "join", str(error))

    def join_rows(self, group: list[Candidate]) -> None:
        """Join ragged arrays of one signature. Arrays whose join fails stay separate, with the error as the reason."""
        try:
            kept, duplicates = without_duplicates(group)
            sort_key = min((candidate.uri, candidate.number) for candidate in kept)
            self.results.append((sort_key, join_ragged(kept, self.rules)))
            for duplicate, first in duplicates:
                self.repeated(duplicate, first)
        except AggarrayError as error:
            self.results += [((candidate.uri, candidate.number), candidate.array) for candidate in group]
            for candidate in group[1:] or group:
                self.refuse(candidate, group[0], "join", str(error))


def _joined(joinable: Joinable, rules: Rules) -> MasterArray:
    if len(joinable.candidates) == 1 and not joinable.frame.sizes and not rules.units and not rules.directions:
        return joinable.candidates[0].array
    return join(joinable.candidates, joinable.frame, replace(rules, overlap=joinable.overlap))


def _by_signature(members: Sequence[Candidate]) -> list[list[Candidate]]:
    """Group arrays of one identity by signature.

    If a file has several arrays of one signature, their names join the signature.
    """
    groups = _grouped(members)
    counts = Counter((member.uri, number) for number, group in enumerate(groups) for member in group)
    if max(counts.values(), default=0) > 1:
        for member in members:
            member.signature["name"] = member.array.name or ""
        groups = _grouped(members)
    return groups


def _grouped(members: Sequence[Candidate]) -> list[list[Candidate]]:
    idle = set().union(*map(_idle_axes, members))
    needed = (
        {key for member in members for key in member.axes if key in idle and key not in _idle_axes(member)} if idle else idle
    )
    groups: dict[frozenset[tuple[str, object]], list[Candidate]] = defaultdict(list)
    for member in members:
        signature = member.signature
        if idle - needed:
            signature = {**signature, "dimensions": tuple(d for d in signature["dimensions"] if d not in idle - needed)}
        groups[frozenset(signature.items())].append(member)
    return list(groups.values())


def _ragged_refusal(rows: Candidate, other: Candidate) -> Refusal:
    """Explain why a ragged array is not joined with one that is not ragged."""
    (along,), spans = rows.array.dimensions, ", ".join(other.array.dimensions) or "no dimension"
    return refusal(
        rows, other, "ragged", f"ragged along {along} and not ragged along {spans}: only ragged arrays join ragged arrays"
    )


def _name_refusals(by_identity: dict[str, list[Candidate]]) -> list[Refusal]:
    """Explain why arrays of one name but different identities are separate."""

    def file(member: Candidate) -> tuple[str, int]:
        return member.uri, member.number

    firsts: dict[tuple[str, str], Candidate] = {}
    for identity, members in by_identity.items():
        for member in members:
            first = firsts.setdefault((member.array.name or "", identity), member)
            firsts[member.array.name or "", identity] = min(first, member, key=file)
    refusals: list[Refusal] = []
    relatives: dict[str, tuple[str, Candidate]] = {}
    for (name, identity), member in sorted(firsts.items(), key=lambda item: file(item[1])):
        known_identity, relative = relatives.setdefault(name, (identity, member))
        if known_identity != identity:
            text = f"identity (standard_name, else long_name, else name) differs: {known_identity!r} and {identity!r}"
            refusals.append(refusal(member, relative, "identity", text))
    return refusals
