"""Joins of the arrays of one identity: by signature, split rules, joins."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from aggarray.aggregate.candidate import Candidate, CandidateCache, describe
from aggarray.aggregate.differences import refusal, refusals_between
from aggarray.aggregate.group import Joinable, split
from aggarray.aggregate.join import join
from aggarray.aggregate.ragged import by_ragged_signature, describe_ragged, join_ragged, without_duplicates
from aggarray.aggregate.rules import Duplicate, Refusal, Rules
from aggarray.arrays.master import MasterArray
from aggarray.arrays.ragged import RaggedMasterArray
from aggarray.dataclass import replace
from aggarray.errors import AggarrayError, UnitsError, printable

#: An array with its sort key: its first file and its position in the input.
Result = tuple[tuple[str, int], MasterArray]


def _without_idle_axes(group: list[Candidate]) -> Iterator[Candidate]:
    """Drop the dimensions without information that some members lack."""
    common = set(group[0].axes).intersection(*(member.axes for member in group))
    for member in group:
        dropped = (member.axes.keys() - common) & _idle_axes(member)
        if not dropped:
            yield member
            continue
        array = member.array._chosen({member.axes[key].name: 0 for key in dropped})
        selected = {id(c): array.coords[name] for name, c in member.array.coords.items()}
        kept = {key: axis for key, axis in member.axes.items() if key not in dropped}
        axes = {k: p if p.coordinate is None else replace(p, coordinate=selected[id(p.coordinate)]) for k, p in kept.items()}
        yield replace(member, array=array, axes=axes)


def _idle_axes(candidate: Candidate) -> set[str]:
    """Return dimensions of size 1 without a coordinate: arrays may lack them."""
    return {key for key, p in candidate.axes.items() if p.size == 1 and p.coordinate is None and not p.scalar}


class JoinResult:
    """Collects joined arrays, refusals and duplicates."""

    def __init__(self, rules: Rules) -> None:
        self.rules, self._cache = rules, CandidateCache()
        self.results: list[Result] = []
        self.refusals: list[Refusal] = []
        self.duplicates: list[Duplicate] = []

    def join_identity(self, members: list[Candidate]) -> list[Candidate]:
        """Join the arrays of one identity; return those that can be examined."""
        facets, others, rows = self.rules.facets, list[Candidate](), list[Candidate]()
        for member in members:
            try:
                if isinstance(member.array, RaggedMasterArray):
                    describe_ragged(member, facets)
                    rows.append(member)
                else:
                    describe(member, facets, self._cache)
                    others.append(member)
            except AggarrayError as error:  # an unreadable coordinate concerns one array only
                self.results.append((member.order, member.array))
                files = (member.uri,) if member.uri else ()
                self.refusals.append(Refusal((member.array.name or "",), files, "unreadable", str(error)))
        for groups, join_members in (
            (_by_signature(others), self.join_group),
            (by_ragged_signature(rows, self.rules), self.join_rows),
        ):
            self.refusals += refusals_between(groups)
            for group in groups:
                join_members(group)
        if rows and others:
            (along,), spans = rows[0].array.dimensions, ", ".join(others[0].array.dimensions) or "no dimension"
            reason = f"ragged along {along} and not ragged along {spans}: only ragged arrays join ragged arrays"
            self.refuse(rows[0], others[0], "ragged", reason)
        return [*others, *rows]

    def refuse(self, separate: Candidate, relative: Candidate, rule: str, reason: str, hint: str | None = None) -> None:
        """Record that an array stays separate from another."""
        self.refusals.append(refusal(separate, relative, rule, reason, hint))

    def repeated(self, duplicate: Candidate, kept: Candidate) -> None:
        """Record an exact copy that is left out."""
        self.duplicates.append(Duplicate(duplicate.array.name or "", duplicate.uri, kept.uri))

    def join_group(self, group: list[Candidate]) -> None:
        """Join the arrays of one signature; those that fail stay separate."""
        if any(member.members is not None for member in group):
            if self._join_series(group):
                return
            group = self._members(group)
        for joinable in split(list(_without_idle_axes(group)), self.rules, self.refuse, self.repeated):
            first, sort_key = joinable.candidates[0], min(candidate.order for candidate in joinable.candidates)
            try:
                try:
                    self.results.append((sort_key, _joined(joinable, self.rules)))
                except UnitsError as error:  # requested units that do not convert do not prevent the join
                    self.results.append((sort_key, _joined(joinable, replace(self.rules, units={}))))
                    self.refuse(first, first, "units", printable(error.located), error.hint)
            except AggarrayError as error:
                separate = list({c.number: c.cut_from or c for c in joinable.candidates}.values())
                self.results += [(candidate.order, candidate.array) for candidate in separate]
                for candidate in separate[1:] or [first]:
                    self.refuse(candidate, first, "join", printable(error.located), error.hint)

    def _join_series(self, group: list[Candidate]) -> bool:
        """Join series and arrays, if that equals the join of all files."""
        first, rules = min(group, key=lambda member: member.order), self.rules
        if len(group) == 1 and not (rules.units or rules.directions or rules.new_dimension):
            self.results.append((first.order, first.array))
            return True
        from aggarray.aggregate.series_join import in_order_of_files, joinable_series

        try:
            joinable = joinable_series(group, rules)
            joined = None if joinable is None else in_order_of_files(_joined(joinable, rules), first)
        except AggarrayError:
            return False
        if joined is not None:
            self.results.append((first.order, joined))
        return joined is not None

    def _members(self, group: list[Candidate]) -> list[Candidate]:
        """Return the arrays of the files instead of those of series."""
        cache, members = CandidateCache(), list[Candidate]()
        for one in group:
            for member in [one] if one.members is None else one.members():
                if member is not one:
                    describe(member, self.rules.facets, cache)
                members.append(member)
        return members

    def join_rows(self, group: list[Candidate]) -> None:
        """Join ragged arrays of one signature; those that fail stay separate."""
        try:
            kept, duplicates = without_duplicates(group)
            self.results.append((min(candidate.order for candidate in kept), join_ragged(kept, self.rules)))
            for duplicate, first in duplicates:
                self.repeated(duplicate, first)
        except AggarrayError as error:
            self.results += [(candidate.order, candidate.array) for candidate in group]
            for candidate in group[1:] or group:
                self.refuse(candidate, group[0], "join", printable(error.located), error.hint)


def _joined(joinable: Joinable, rules: Rules) -> MasterArray:
    if len(joinable.candidates) == 1 and not joinable.frame.sizes and not rules.units and not rules.directions:
        return joinable.candidates[0].array
    return join(joinable.candidates, joinable.frame, replace(rules, overlap=joinable.overlap))


def _by_signature(members: Sequence[Candidate]) -> list[list[Candidate]]:
    """Group arrays by signature, and by name where a file repeats one."""
    groups = _grouped(members)
    counts = Counter((member.uri, number) for number, group in enumerate(groups) for member in group)
    if max(counts.values(), default=0) > 1:
        for member in members:
            member.signature["name"] = member.array.name or ""
        groups = _grouped(members)
    return groups


def _grouped(members: Sequence[Candidate]) -> list[list[Candidate]]:
    idle = set().union(*map(_idle_axes, members))
    idle -= {key for member in members for key in idle & (member.axes.keys() - _idle_axes(member))} if idle else idle
    groups: dict[frozenset[tuple[str, object]], list[Candidate]] = defaultdict(list)
    for member in members:
        signature = member.signature
        if idle:
            signature = {**signature, "dimensions": tuple(d for d in signature["dimensions"] if d not in idle)}
        groups[frozenset(signature.items())].append(member)
    return list(groups.values())
