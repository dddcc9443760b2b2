"""Check of an aggregation and its files."""

from __future__ import annotations

from aggarray.aggregate.report import (
    Problem,
    Report,
    duplicate_problems,
    file_problems,
    gap_problems,
    hole_problems,
    skipped_problems,
)
from aggarray.opening.provenance import Listing, Outcome, Provenance
from aggarray.opening.verification import assumption_problems


def array_problems(outcome: Outcome) -> list[Problem]:
    """Return the problems that are found without opening a file."""
    problems: list[Problem] = []
    for array in outcome.arrays:
        problems += gap_problems(array)
        problems += hole_problems(array)
    return [*problems, *duplicate_problems(outcome.duplicates, outcome.arrays)]


def check(outcome: Outcome, provenance: Provenance, checksum: bool) -> Report:
    """Report problems of arrays and files; see `Aggregation.check`."""
    with provenance.access.reach():
        problems = array_problems(outcome)
        structures = provenance.structures()
        # All values of a virtual dataset may lie in its sources.
        virtual = [s.uri for s in structures if s.external_files]
        problems += file_problems(outcome.arrays, {s.uri: s.stamp for s in structures}, checksum, virtual)
        problems += assumption_problems(provenance.structures())
        problems += skipped_problems(outcome.skipped)
        if provenance.fixes:
            from aggarray.opening.fixing import fix_problems

            problems += fix_problems(provenance)
    return Report(not problems, Listing(problems))
