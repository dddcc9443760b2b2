"""Refusals, skipped files and problems as tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from aggarray.aggregate.differences import distinguishing_facets, facets_of
from aggarray.aggregate.rules import FACETS, Duplicate, Refusal, Skipped
from aggarray.display.markup import counted, printable, without_credentials
from aggarray.display.table import relative_names, table

if TYPE_CHECKING:
    from aggarray.aggregate.report import Problem
    from aggarray.arrays.master import MasterArray

#: Rules whose refusals come first: they lose data, or separate what looks equal.
FIRST = ("overlap", "units", "calendar", "coordinate", "coordinate_values", "dimensions", "grid_mapping")


def divide(refusals: Sequence[Refusal], separate_by: Collection[str] = FACETS) -> tuple[list[Refusal], list[Refusal]]:
    """Return unexpected refusals, severest first, and those between datasets.

    ``separate_by``: the attributes that distinguish datasets.
    """
    between = [r for r in refusals if r.rule in separate_by or r.rule in FACETS]
    order = {rule: number for number, rule in enumerate(FIRST)}
    others = [r for r in refusals if r.rule not in separate_by and r.rule not in FACETS]
    return sorted(others, key=lambda r: order.get(r.rule, len(order))), between


def notes(refusals: Sequence[Refusal], skipped: Sequence[Skipped], separate_by: Collection[str]) -> list[str]:
    """Return the numbers of unexpected refusals and of skipped items."""
    files = sum(item.variable is None for item in skipped)
    numbers = [(len(divide(refusals, separate_by)[0]), "array", "not joined"), (files, "file", "skipped")]
    numbers.append((len(skipped) - files, "variable", "skipped"))
    return [f"{counted(number, what)} {how}" for number, what, how in numbers if number]


def refusal_table(
    refusals: Sequence[Refusal], arrays: Sequence[MasterArray], width: int | None, advice: Callable[[str], str] = str
) -> str:
    """Return a table of refusals; ``advice`` translates what to do.

    The column ``dataset`` has the facets that tell the arrays apart, where several datasets are known from ``arrays``.
    """
    names = _datasets(arrays)
    rows = []
    for r in refusals:
        datasets = list(dict.fromkeys(name for file in r.files if (name := names.get(file))))
        # The reason names two datasets.
        dataset = datasets[0] if len(datasets) == 1 else ""
        rows.append([r.rule, " and ".join(dict.fromkeys(r.arrays)), dataset, advice(r.reason)])
    if not any(row[2] for row in rows):
        return table([[*row[:2], row[3]] for row in rows], ["rule", "arrays", "reason"], width=width, wrap="reason")
    return table(rows, ["rule", "arrays", "dataset", "reason"], width=width, wrap="reason")


def _datasets(arrays: Sequence[MasterArray]) -> dict[str, str]:
    """Return the facets that tell arrays apart as text, by file."""
    columns = [values for _, values in distinguishing_facets(arrays)]
    names: dict[str, str] = {}
    for row, array in enumerate(arrays) if columns else ():
        text = " ".join(value for values in columns if (value := values[row]))
        names |= {str(uri): text for uri in array._matrix.references.uris}
    return names


def dataset_line(between: Sequence[Refusal], arrays: Sequence[MasterArray]) -> str:
    """Return the number of separate datasets, and in what they differ.

    Without ``arrays``, there is one dataset more than refusals for each name.
    """
    names = [name for name, _ in distinguishing_facets(arrays)]
    if not names:
        names = [rule for rule, _ in Counter(r.rule for r in between).most_common()]
    return f"{counted(dataset_count(between, arrays), 'dataset')} stay separate because they differ in {', '.join(names)}"


def dataset_count(between: Sequence[Refusal], arrays: Sequence[MasterArray]) -> int:
    """Return the number of datasets that attributes keep separate."""
    return len({tuple(facets_of(a).items()) for a in arrays}) or len(between) + len({r.arrays[0] for r in between})


def skipped_table(skipped: Sequence[Skipped], width: int | None) -> str:
    """Return a table of unusable files and variables."""
    where, names = relative_names([s.file for s in skipped])
    columns = {"file": names, "variable": [s.variable or "" for s in skipped], "reason": [s.reason for s in skipped]}
    shown = {name: values for name, values in columns.items() if any(values)}
    return where + table(list(zip(*shown.values(), strict=True)), list(shown), width=width, wrap="reason")


def duplicate_table(duplicates: Sequence[Duplicate], width: int | None) -> str:
    """Return a table of files left out because they repeat others."""
    where, names = relative_names([file for d in duplicates for file in (d.file, d.kept)])
    rows = [[d.array, *files] for d, files in zip(duplicates, zip(names[::2], names[1::2], strict=True), strict=True)]
    return where + table(rows, ["array", "file", "kept"], width=width)


def finding_list(problems: Sequence[Problem]) -> str:
    """Return the findings of a layout, with a remedy below those it removes."""
    lines = []
    for remedy, own in groupby(problems, key=lambda p: p.remedy):
        lines += [f"{p.kind}: {p.message}" for p in own]
        lines += [f"    {remedy}"] if remedy else []
    return "\n".join(printable(without_credentials(line)) for line in lines)


def problem_table(problems: Sequence[Problem], width: int | None) -> str:
    """Return a table of the problems of a check."""
    return table([[p.kind, p.message] for p in problems], ["kind", "problem"], width=width, wrap="problem")
