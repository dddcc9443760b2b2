"""Groups of arrays of equal attributes, with counts and problems."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from aggarray.aggregate.report import Problem, hole_problems
from aggarray.dataclass import dataclass
from aggarray.display.listing import Facts, time_text
from aggarray.display.table import table
from aggarray.opening.where import check_attribute, texts_of
from aggarray.scan.progress import amount

if TYPE_CHECKING:
    from aggarray.opening.aggregation import Aggregation

#: Names that stand for the variable, which is no attribute.
_VARIABLE = ("name", "variable")


@dataclass(frozen=True, slots=True)
class Group:
    """Arrays of equal attributes: their facts and problems."""

    key: tuple[str, ...]
    facts: list[Facts]
    problems: list[Problem]

    @property
    def files(self) -> int:
        """The number of distinct files."""
        return len({path for fact in self.facts for path in fact["paths"]})

    @property
    def nbytes(self) -> int:
        """The bytes of the values."""
        return sum(fact["bytes"] for fact in self.facts)

    @property
    def time(self) -> list[str] | None:
        """The first and the last time."""
        times = [fact["time"] for fact in self.facts if fact["time"]]
        return [min(time[0] for time in times), max(time[-1] for time in times)] if times else None


def groups(agg: Aggregation, facts: Sequence[Facts], names: Sequence[str], problems: Sequence[Problem]) -> list[Group]:
    """Return the groups of arrays by attributes, sorted.

    The last group has the problems of files that no array uses. Raises NotFoundError, which lists the attributes, for one that
    no array has.
    """
    for name in names:
        if name not in _VARIABLE:
            check_attribute(agg.arrays, name, "--group-by")
    by_key: dict[tuple[str, ...], Group] = {}
    owners: dict[str | None, set[tuple[str, ...]]] = defaultdict(set)
    has_holes = any(problem.kind == "hole" for problem in problems)
    for array, fact in zip(agg, facts, strict=True):
        key = tuple(fact["name"] if name in _VARIABLE else next(iter(texts_of(array, name)), "") for name in names)
        group = by_key.setdefault(key, Group(key, [], []))
        group.facts.append(fact)
        # A hole has no file, and arrays may have the same holes.
        group.problems.extend(hole_problems(array) if has_holes else ())
        for path in fact["paths"]:
            owners[path].add(key)
    for duplicate in agg.duplicates:
        owners[duplicate.file] |= owners[duplicate.kept]
    nowhere = Group(("",) * len(names), [], [])
    for problem in problems:
        if problem.kind == "hole":
            continue
        keys = dict.fromkeys(key for file in problem.files or [problem.file] for key in owners[file])
        for group in [by_key[key] for key in keys] or [nowhere]:
            group.problems.append(problem)
    return sorted(by_key.values(), key=lambda group: group.key) + [nowhere] * bool(nowhere.problems)


def group_table(of: Sequence[Group], names: Sequence[str], width: int | None) -> str:
    """Return a table of groups: arrays, times, files, size and problems."""
    rows = []
    for group in of:
        key = group.key if group.facts else ("no array", *group.key[1:])
        counts = [len(group.facts), time_text(group.time), group.files, amount(group.nbytes, "bytes"), len(group.problems)]
        rows.append([*key, *counts])
    return table(
        rows, [*names, "arrays", "time", "files", "size", "problems"], width=width, right=("size",), whole=("time", "size")
    )


def group_facts(of: Sequence[Group], names: Sequence[str]) -> list[dict[str, Any]]:
    """Return the groups as data, for JSON."""
    return [
        {
            "group": dict(zip(names, group.key, strict=True)),
            "arrays": len(group.facts),
            "files": group.files,
            "bytes": group.nbytes,
            "time": group.time,
            "problems": [{"kind": p.kind, "file": p.file, "message": p.message} for p in group.problems],
        }
        for group in of
    ]
