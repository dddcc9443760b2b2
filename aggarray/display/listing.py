"""Lists of arrays as tables: what `info`, `explain` and reprs print."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from aggarray.aggregate.rules import IMPLIED_BY
from aggarray.display.markup import counted, printable
from aggarray.display.table import table, wrapped
from aggarray.scan.progress import amount

Facts = Mapping[str, Any]
_DATE = re.compile(r"(-?\d+)-(\d\d)-(\d\d)(?:T(\d\d:\d\d))?")


def time_text(times: Sequence[str] | None) -> str:
    """Return a time range as years, as days where it is short.

    >>> time_text(["1950-01-16T12:00:00", "2014-12-16T12:00:00"]), time_text(["2001-01-01", "2001-12-31"])
    ('1950-2014', '2001')
    >>> time_text(["2001-02-03", "2001-08-05"]), time_text(["2001-02-03T00:00:00", "2001-02-03T18:00:00"])
    ('2001-02-03 to 2001-08-05', '2001-02-03T00:00 to 2001-02-03T18:00')
    """
    texts = list(dict.fromkeys(times or ()))
    matches = [match for text in texts if (match := _DATE.match(text))]
    if not texts or len(matches) < len(texts):
        return " to ".join(texts)
    first, last = matches[0], matches[-1]
    if int(last[1]) - int(first[1]) > 1 or (first[2], last[2]) == ("01", "12"):
        return ("-" if int(first[1]) >= 0 else " to ").join(dict.fromkeys([first[1], last[1]]))
    days = [f"{end[1]}-{end[2]}-{end[3]}" for end in (first, last)]
    if days[0] == days[1] and first[4] != last[4]:
        days = [f"{day}T{end[4]}" for day, end in zip(days, (first, last), strict=True)]
    return " to ".join(dict.fromkeys(days))


def shape_text(fact: Facts) -> str:
    """Return the sizes of the dimensions of an array."""
    return f"({', '.join(f'{d}: {n}' for d, n in zip(fact['dimensions'], fact['shape'], strict=True))})"


def partition_text(fact: Facts) -> str:
    """Return the sizes of the matrix of an array, and what is missing.

    It is empty for a partition per file along one dimension.
    """
    matrix = fact["partitions"]
    missing = f"{matrix['missing']} missing" if matrix["missing"] else ""
    if len(matrix["shape"]) == 0 or (matrix["shape"] == [fact["files"]] and not missing):
        return missing
    counts = " x ".join(f"{n} {d}" for d, n in zip(matrix["dimensions"], matrix["shape"], strict=True))
    return f"{counts}, {missing}" if missing else counts


def element_text(fact: Facts) -> str:
    """Return the type of the elements, without the mark of missing ones."""
    return " * ".join(fact["type"].split(" * ")[len(fact["shape"]) :]).replace("?", "")


def array_list(
    facts: Sequence[Facts],
    facets: tuple[Sequence[str], Sequence[Sequence[str]]],
    width: int | None,
    extra: Mapping[str, Sequence[Any]] | None = None,
    most: int | None = None,
    files: int | None = None,
) -> str:
    """Return counts and a table of arrays: facets, shape, times, files, size.

    ``facets``: names of columns, and a row per array. ``extra``: further columns. Empty columns are left out. Where facets tell
    the arrays apart, the line "all" has what is the same in all of them. ``most``: of the rows; ``files``: None = of the facts.
    """
    names, rows = facets
    files = len({path for fact in facts for path in fact["paths"]}) if files is None else files
    of, size = counted(files, "file"), amount(sum(fact["bytes"] for fact in facts), "bytes")
    lines = [f"{counted(len(facts), 'array')} of {of}, {size} of values"]
    columns: dict[str, Sequence[Any]] = {"name": [fact["name"] for fact in facts]}
    columns |= {name: [row[n] for row in rows] for n, name in enumerate(names)}
    columns["shape"] = [shape_text(fact) for fact in facts]
    columns["type"] = [element_text(fact) for fact in facts]
    columns.setdefault("units", ["" if fact["units"] is None else str(fact["units"]) for fact in facts])
    columns["partitions"] = [partition_text(fact) for fact in facts]
    columns["time"] = [time_text(fact["time"]) for fact in facts]
    columns["files"] = [fact["files"] for fact in facts]
    columns["size"] = [amount(fact["bytes"], "bytes") for fact in facts]
    columns |= extra or {}
    if names:
        same = [name for name in ("name", "type", "units") if len(set(columns[name])) == 1 and name not in names]
        values = {name: columns.pop(name)[0] for name in same} | _common_facets(facts)
        lines += [f"all: {', '.join(f'{name} {value}' for name, value in values.items() if value)}"]
    optional = ("units", "partitions", "time", *(extra or ()))
    shown = {name: values for name, values in columns.items() if name not in optional or any(values)}
    cells = list(zip(*shown.values(), strict=True))[:most]
    how: dict[str, Any] = {"right": ("size",), "whole": ("time", "size"), "optional": "shape"}
    text = table(cells, list(shown), width=width, **how) if facts else ""
    if most is not None and len(facts) > most:
        text += f"\n... and {len(facts) - most} more"
    lines = [part for line in lines for part in wrapped(printable(line), width)]
    return "\n".join([*lines, *(["", text] if text else [])])


def _common_facets(facts: Sequence[Facts]) -> dict[str, str]:
    first = facts[0]["facets"]
    common = {n: v for n, v in first.items() if all(fact["facets"].get(n) == v for fact in facts)}
    return {n: v for n, v in common.items() if not any(implied in first for implied in IMPLIED_BY.get(n, ()))}
