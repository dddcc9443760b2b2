"""Representations of aggregations and of what was not joined, as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from aggarray.aggregate.rules import Duplicate, Refusal, Skipped
from aggarray.display.markup import counted
from aggarray.display.refusals import dataset_line, divide, duplicate_table, notes, problem_table, refusal_table, skipped_table
from aggarray.display.table import MOST_ROWS, complete, line_width, wrapped

if TYPE_CHECKING:
    from aggarray.opening.aggregation import Aggregation

#: Of more arrays than this, the first ones are shown.
MOST_ARRAYS = 20


def aggregation_text(agg: Aggregation) -> str:
    """Return the representation of an aggregation: a table of its arrays."""
    from aggarray.display.facets import facet_columns
    from aggarray.display.facts import array_facts, file_count
    from aggarray.display.listing import array_list

    facts = [array_facts(array, with_time=n < MOST_ARRAYS, with_paths=False) for n, array in enumerate(agg)]
    text = array_list(facts, facet_columns(agg.arrays), line_width() - 2, most=MOST_ARRAYS, files=file_count(agg))
    lines = text.splitlines()
    counts = notes(agg.refusals, agg.skipped, agg._provenance.rules.separate_by)
    lines += [f"{', '.join(counts)}: see refusals and skipped"] if counts else []
    return "\n  ".join([f"<aggarray.Aggregation: {lines[0]}>", *(line for line in lines[1:] if line)])


def listing_text(items: Sequence[Any]) -> str:
    """Return what was not joined as a table; few items of each kind."""
    if not items:
        return "()"
    width, shown = line_width(), items[:MOST_ROWS]
    lines = []
    if isinstance(items[0], Refusal):
        unexpected, between = divide(items)
        lines = [counted(len(items), "refusal")]
        shown = unexpected[:MOST_ROWS]
        lines += [refusal_table(shown, (), width)] if shown else []
        lines += wrapped(f"{dataset_line(between, ())}; iterate to see each", width) if between else []
        return complete(lines, len(unexpected) - len(shown))
    if isinstance(items[0], Skipped):
        lines = [f"{len(items)} skipped", skipped_table(shown, width)]
    elif isinstance(items[0], Duplicate):
        lines = [counted(len(items), "duplicate"), duplicate_table(shown, width)]
    else:
        kinds = ", ".join(f"{kind} {number}" for kind, number in Counter(item.kind for item in items).items())
        lines = [f"{counted(len(items), 'problem')}: {kinds}", problem_table(shown, width)]
    return complete(lines, len(items) - len(shown))
