"""Overview of arrays: a row per dataset on one calendar axis."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from aggarray.aggregate.differences import attribute_text
from aggarray.aggregate.rules import Refusal
from aggarray.arrays.master import MasterArray
from aggarray.arrays.ragged import flat_of
from aggarray.dataclass import dataclass
from aggarray.display.facets import facet_columns
from aggarray.display.timeline import Span, Timeline, common_parts, timeline, united_parts
from aggarray.errors import counted
from aggarray.partition.file_names import file_count as files_in
from aggarray.partition.file_names import paths_among

#: Size of a bar in its own coordinates, which are stretched to the width that there is.
WIDTH, HEIGHT = 1000, 10
#: The widest column, and the greatest width of all, in characters.
WIDEST, _MOST_WIDTH = 22, 50


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """A dataset: its values of the columns, and where it lies in time.

    ``files``, ``nbytes``: the number of files, and the bytes of the values; ``overlaps``: where another array that was not
    joined has data of the same times.
    """

    cells: tuple[str, ...]
    files: int
    nbytes: int
    timeline: Timeline | None
    overlaps: tuple[Span, ...] = ()

    @property
    def period(self) -> str:
        """The first and last time, as short as they differ."""
        return "" if self.timeline is None else period(*self.timeline.dates)

    @property
    def parts(self) -> dict[str, tuple[Span, ...]]:
        """The parts of the axis by what they show, in the order of drawing."""
        if self.timeline is None:
            return {}
        own = self.timeline
        return {"data": own.covered, "overlap": self.overlaps, "hole": own.holes, "gap": own.gaps}

    def describe(self) -> str:
        """Return what the bar shows in words."""
        counts = [(len(self.parts.get(kind, ())), kind) for kind in ("gap", "hole", "overlap")]
        return ", ".join([self.period or "no time axis", *(counted(n, kind) for n, kind in counts if n)])


@dataclass(frozen=True, slots=True, eq=False)
class Overview:
    """Rows of arrays, the names of their columns, and the limits of the axis.

    ``limits``: None if no array has known times. ``group_by``: the column of the groups, None = chosen.
    """

    names: tuple[str, ...]
    rows: tuple[Row, ...]
    limits: Span | None
    group_by: str | None = None

    def groups(self) -> int | None:
        """Return the column whose values group the rows, None without.

        By default, it is the first one with three rows or more to a value on average.
        """
        if self.group_by is not None:
            return self.names.index(self.group_by)
        for column in range(len(self.names)):
            values = {row.cells[column] for row in self.rows}
            if 1 < len(values) <= len(self.rows) // 3 and "" not in values:
                return column
        return None


def overview_of(arrays: Sequence[MasterArray], refusals: Sequence[Refusal] = (), group_by: str | None = None) -> Overview:
    """Return the overview of arrays. No file is opened.

    ``group_by``: the attribute that groups the rows, None = chosen.
    """
    names, cells = facet_columns(arrays)
    if len({array.name for array in arrays}) > 1 or not names:
        names, cells = ["name", *names], [(a.name or "array", *own) for a, own in zip(arrays, cells, strict=True)]
    names, cells = _fitted(names, cells)
    if group_by is not None and group_by not in names:
        names, cells = [group_by, *names], [(_text(a, group_by), *own) for a, own in zip(arrays, cells, strict=True)]
    lines = [timeline(flat_of(array)) for array in arrays]
    overlaps = _overlaps(arrays, lines, refusals)
    rows = [
        Row(own, file_count(array), int(array.nbytes), line, overlaps.get(number, ()))
        for number, (array, own, line) in enumerate(zip(arrays, cells, lines, strict=True))
    ]
    ends = [line.limits for line in lines if line is not None]
    limits = (min(e[0] for e in ends), max(e[1] for e in ends)) if ends else None
    return Overview(tuple(names), tuple(rows), limits, group_by)


def _text(array: MasterArray, name: str) -> str:
    """Return an attribute of an array or its file, or its name, as text."""
    return array.name or "" if name == "name" else attribute_text(array, name) or ""


def _fitted(names: Sequence[str], rows: Sequence[tuple[str, ...]]) -> tuple[list[str], list[tuple[str, ...]]]:
    """Return columns that fit the width, without redundant ones."""
    kept = list(range(len(names)))
    widths = [max([len(name), *(len(row[n]) for row in rows)]) for n, name in enumerate(names)]
    # The emptiest columns first, then the last ones.
    for column in sorted(kept, key=lambda n: (sum(bool(row[n]) for row in rows), -n)):
        if sum(min(widths[n], WIDEST) + 2 for n in kept) <= _MOST_WIDTH:
            break
        others = [n for n in kept if n != column]
        if len({tuple(row[n] for n in others) for row in rows}) == len({tuple(row[n] for n in kept) for row in rows}):
            kept = others
    return [names[n] for n in kept], [tuple(row[n] for n in kept) for row in rows]


def file_count(array: MasterArray) -> int:
    """Return the number of files that serve an array."""
    return files_in(flat_of(array)._matrix)


def arrays_by_file(arrays: Sequence[MasterArray], files: Collection[str]) -> dict[str, list[int]]:
    """Return the numbers of the arrays that each of some files serves."""
    numbers: dict[str, list[int]] = {}
    for number, array in enumerate(arrays):
        for uri in paths_among([flat_of(array)._matrix.references], files):
            numbers.setdefault(uri, []).append(number)
    return numbers


def refused_arrays(refusal: Refusal, arrays: Sequence[MasterArray], by_file: Mapping[str, list[int]]) -> list[int]:
    """Return the numbers of the arrays that a refusal concerns."""
    found = [n for file in refusal.files for n in by_file.get(file, ()) if (arrays[n].name or "") in refusal.arrays]
    return list(dict.fromkeys(found))


def _overlaps(
    arrays: Sequence[MasterArray], lines: Sequence[Timeline | None], refusals: Sequence[Refusal]
) -> dict[int, tuple[Span, ...]]:
    """Return where arrays overlap others that were not joined for that."""
    refused = [refusal for refusal in refusals if refusal.rule == "overlap"]
    by_file = arrays_by_file(arrays, {file for refusal in refused for file in refusal.files})
    parts: dict[int, list[Span]] = {}
    for refusal in refused:
        numbers = [n for n in refused_arrays(refusal, arrays, by_file) if lines[n] is not None]
        for one in numbers:
            for other in numbers:
                first, second = lines[one], lines[other]
                if one != other and first is not None and second is not None:
                    parts.setdefault(one, []).extend(common_parts(first.covered, second.covered))
    return {number: united_parts(own) for number, own in parts.items()}


def natural_key(cells: Sequence[str]) -> list[tuple[bool, int, str]]:
    """Return a sort key by which numbers in names follow their values.

    >>> sorted(["M10", "m2", "M1"], key=lambda name: natural_key([name]))
    ['M1', 'm2', 'M10']
    """
    parts = (part for cell in cells for part in [*re.split(r"([0-9]+)", cell.casefold()), ""])
    return [(part.isdecimal(), int(part) if part.isdecimal() and part.isascii() else 0, part) for part in parts]


def period(first: str, last: str) -> str:
    """Return two ISO dates as a range, no longer than needed.

    >>> period("1850-01-16T12:00:00", "2014-12-16T12:00:00"), period("2001-01-01", "2001-12-31")
    ('1850 to 2014', '2001-01 to 2001-12')
    """
    for length in (4, 7, 10, 16):
        start = len(first) - len(first.lstrip("-"))  # years before 0
        one, other = first[: start + length], last[: start + length]
        if one != other:
            return f"{one} to {other}"
    return first[:10]


def bar_paths(parts: Mapping[str, Sequence[Span]], limits: Span) -> dict[str, str]:
    """Return SVG paths of the parts of a bar, by what they show.

    Holes take the lower half, because other parts of the array have data there.
    """
    scale = WIDTH / max(limits[1] - limits[0], 1e-9)
    paths = {}
    for kind, spans in parts.items():
        top = HEIGHT // 2 if kind == "hole" else 0
        boxes = [((begin - limits[0]) * scale, (end - begin) * scale) for begin, end in spans]
        drawn = "".join(f"M{x:.5g} {top}h{max(width, 0.01):.5g}V{HEIGHT}h-{max(width, 0.01):.5g}z" for x, width in boxes)
        if drawn:
            paths[kind] = drawn
    return paths
