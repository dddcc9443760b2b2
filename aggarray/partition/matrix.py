"""What is a matrix of partitions, held as columns?

`Matrix` is the partition matrix: cut points per dimension, and per cell (in C order) which sub-array serves it and which
part of that sub-array. `References` lists the sub-arrays: where each is, and which `Template` (shape, dtype, units,
packing, ...) it follows; an archive has a handful of templates. Plain data that knows no file and no format.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from aggarray.cf.encoding import Encoding
from aggarray.errors import AggregationError
from aggarray.partition.signatures import FileSignature
from aggarray.partition.stored_sizes import ChunkIndexes, join_chunk_indexes, sizes_to_pickle


@dataclass(frozen=True, slots=True)
class Step:
    """Units and dtype that values take on the way from a sub-array to its master; then, if given, ``encoding`` decodes them.

    ``temperature``: the kind of a temperature, one of `units.KINDS`, None where nothing states it.
    """

    units: str | None
    calendar: str | None
    dtype: np.dtype[Any]
    encoding: Encoding | None = None
    temperature: str | None = None


@dataclass(frozen=True, slots=True)
class Template:
    """What sub-arrays have in common: everything but the place where their values lie.

    ``dimensions`` are named as the master's; ``directions``: True = increasing; ``encoding`` turns stored values into
    values; ``steps`` are conversions that values go through, in this order, before they are conformed.

    ``declared``: nobody has looked at these sub-arrays yet: shape, dimensions and directions are what an index says, units
    None are the file's own, the encoding is the master's dtype plainly; ``names``: what the index calls the dimensions.
    ``assumed``: they are declared by another file of their kind, in full: what they are like is known, but not verified yet.
    ``temperature``: as in `Step`.
    """

    shape: tuple[int, ...]
    dimensions: tuple[str, ...]
    directions: tuple[bool, ...]
    units: str | None
    calendar: str | None
    encoding: Encoding
    format: str = "memory"
    steps: tuple[Step, ...] = ()
    declared: bool = False
    names: tuple[str, ...] = ()
    assumed: FileSignature | None = None
    temperature: str | None = None

    @property
    def guessed(self) -> bool:
        """Whether an index declares it, which does not know what the values are."""
        return self.declared and self.assumed is None

    @property
    def may_miss(self) -> bool:
        """Whether any value can be missing, as far as it is known what the values are."""
        return self.encoding.may_miss or any(step.encoding is not None and step.encoding.may_miss for step in self.steps)

    @property
    def last_step(self) -> Step:
        """Units and dtype of the values before they are conformed to a master."""
        if not self.steps:
            return Step(self.units, self.calendar, self.encoding.dtype, temperature=self.temperature)
        last = self.steps[-1]
        return last if last.encoding is None else replace(last, dtype=last.encoding.dtype, encoding=None)

    def units_in(self, units: str | None, calendar: str | None) -> tuple[str | None, str | None]:
        """Return units and calendar of the sub-array, given the master's: those count where it is declared without any."""
        if not self.guessed or self.units is not None:
            return self.units, self.calendar
        return (self.steps[0].units, self.steps[0].calendar) if self.steps else (units, calendar)


@dataclass(frozen=True, slots=True, eq=False)
class References:
    """Sub-arrays as columns: row i is variable ``variables[variable[i]]`` of file ``uris[uri[i]]``.

    In memory (``uri[i] == -1``) it is ``memory[variable[i]]``. ``template[i]`` numbers its template. All int32, of equal
    length. ``stamps``, where known: int64 (uris, 3), what each file was like when it was scanned: bytes (-1: not known),
    modification time in nanoseconds, checksum. ``tables``, where known: where the chunks of the files are stored. ``seen``,
    where known: int64 (uris,), a number for what was read of each file that is assumed to be like others, -1 for other files.
    """

    uris: Sequence[str]
    variables: Sequence[str]
    templates: tuple[Template, ...]
    memory: tuple[np.ndarray, ...]
    uri: np.ndarray
    variable: np.ndarray
    template: np.ndarray
    stamps: np.ndarray | None = None
    tables: ChunkIndexes | None = None
    seen: np.ndarray | None = None

    def __getstate__(self) -> list[Any]:
        """Return what is pickled: of the tables, which belong to an index, only how much is stored."""
        return [sizes_to_pickle(self) if f.name == "tables" else getattr(self, f.name) for f in fields(self)]

    def __len__(self) -> int:
        return len(self.template)

    def uri_of(self, row: int) -> str | None:
        """Return the URI of a sub-array, None in memory."""
        code = int(self.uri[row])
        return None if code < 0 else str(self.uris[code])

    def stamp_of(self, row: int) -> tuple[int, int, int] | None:
        """Return what the file of a sub-array was like when it was scanned, None where that is not known."""
        if self.stamps is None or self.uri[row] < 0:
            return None
        size, time, checksum = self.stamps[self.uri[row]].tolist()
        return None if size < 0 else (size, time, checksum)

    def seen_of(self, row: int) -> int | None:
        """Return the number for what was read of the file of a sub-array, None where that is not known."""
        number = -1 if self.seen is None or self.uri[row] < 0 else int(self.seen[self.uri[row]])
        return None if number < 0 else number

    def template_of(self, row: int) -> Template:
        """Return the template that a sub-array follows."""
        return self.templates[int(self.template[row])]

    def take(self, rows: np.ndarray) -> "References":
        """Return some of the sub-arrays, in the order given, without the names and values that these do not use."""
        inside = self.uri[rows] < 0
        uri, variable, template = self.uri[rows], self.variable[rows], self.template[rows]
        codes, places = np.full((2, len(rows)), -1, np.int32)
        kept, codes[~inside] = np.unique(uri[~inside], return_inverse=True)
        names, places[~inside] = np.unique(variable[~inside], return_inverse=True)
        memory, places[inside] = np.unique(variable[inside], return_inverse=True)
        numbers, templates = np.unique(template, return_inverse=True)
        return References(
            tuple(str(self.uris[i]) for i in kept.tolist()),
            tuple(self.variables[i] for i in names.tolist()),
            tuple(self.templates[i] for i in numbers.tolist()),
            tuple(self.memory[i] for i in memory.tolist()),
            codes,
            places,
            templates.astype(np.int32),
            None if self.stamps is None else self.stamps[kept],
            self.tables,
            None if self.seen is None else self.seen[kept],
        )

    def with_templates(self, templates: Sequence[Template]) -> "References":
        """Return the same sub-arrays with other templates under the same numbers."""
        return replace(self, templates=tuple(templates))


_NONE = np.zeros(0, np.int32)
NO_REFERENCES = References((), (), (), (), _NONE, _NONE, _NONE)


class ReferenceBuilder:
    """Collects sub-arrays into `References`, each file name, variable name and template once."""

    def __init__(self) -> None:
        self._uris: dict[str, int] = {}
        self._stamps: dict[int, np.ndarray] = {}
        self._numbers: dict[int, int] = {}
        self._tables: ChunkIndexes | None = None
        self._variables: dict[str, int] = {}
        self._templates: dict[Template, int] = {}
        self._seen: dict[int, tuple[Template, int]] = {}
        self._memory: list[np.ndarray] = []
        self._rows: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        self._single: list[tuple[int, int, int]] = []
        self._length = 0

    def _template(self, template: Template) -> int:
        # Hashing a template costs more than looking up its identity; the pair keeps the object, and so the id, alive.
        known = self._seen.get(id(template))
        if known is None:
            known = (template, self._templates.setdefault(template, len(self._templates)))
            self._seen[id(template)] = known
        return known[1]

    def add(self, template: Template, uri: str | None, variable: str | np.ndarray) -> int:
        """Add one sub-array (in memory: ``uri`` None and the values for ``variable``); return its row."""
        if isinstance(variable, str):
            name = self._variables.setdefault(variable, len(self._variables))
            code = self._uris.setdefault(str(uri), len(self._uris))
        else:
            self._memory.append(variable)
            code, name = -1, len(self._memory) - 1
        self._single.append((code, name, self._template(template)))
        self._length += 1
        return self._length - 1

    def extend(self, other: References) -> int:
        """Add all sub-arrays of ``other``; return the row of its first."""
        self._tables = join_chunk_indexes(self._tables, other.tables)
        if len(other.template) == 1:
            code, name, template = int(other.uri[0]), int(other.variable[0]), other.templates[int(other.template[0])]
            if code < 0:
                return self.add(template, None, other.memory[name])
            row = self.add(template, other.uris[code], other.variables[name])
            if other.stamps is not None:
                self._stamps[self._single[-1][0]] = other.stamps[code]
            if other.seen is not None and other.seen[code] >= 0:
                self._numbers[self._single[-1][0]] = other.seen[code]
            return row
        self._flush()
        uris = np.array([self._uris.setdefault(u, len(self._uris)) for u in other.uris], np.int32)
        if other.stamps is not None:
            self._stamps.update(zip(uris.tolist(), other.stamps, strict=True))
        if other.seen is not None:
            self._numbers.update((u, n) for u, n in zip(uris.tolist(), other.seen.tolist(), strict=True) if n >= 0)
        names = np.array([self._variables.setdefault(v, len(self._variables)) for v in other.variables], np.int32)
        templates = np.array([self._template(t) for t in other.templates], np.int32)
        inside = other.uri < 0
        variable = np.where(inside, other.variable + len(self._memory), 0).astype(np.int32)
        variable[~inside] = names[other.variable[~inside]]
        codes = np.full(len(other), -1, np.int32)
        codes[~inside] = uris[other.uri[~inside]]
        self._memory.extend(other.memory)
        self._rows.append((codes, variable, templates[other.template]))
        self._length += len(other)
        return self._length - len(other)

    def _flush(self) -> None:
        if self._single:
            columns = np.array(self._single, np.int32).T
            self._rows.append((columns[0], columns[1], columns[2]))
            self._single = []

    def build(self) -> References:
        """Return what was collected."""
        self._flush()
        columns = [np.concatenate(c) for c in zip(*self._rows, strict=True)] if self._rows else [np.zeros(0, np.int32)] * 3
        names = tuple(self._uris), tuple(self._variables)
        stamps = seen = None
        if self._stamps:
            stamps = np.full((len(self._uris), 3), -1, np.int64)
            stamps[list(self._stamps)] = list(self._stamps.values())
        if self._numbers:
            seen = np.full(len(self._uris), -1, np.int64)
            seen[list(self._numbers)] = list(self._numbers.values())
        known = tuple(self._templates), tuple(self._memory)
        return References(*names, *known, columns[0], columns[1], columns[2], stamps, self._tables, seen)


@dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """Which part of its sub-array each of n cells shows, per axis name.

    A cell of extent e shows positions ``start + step * i`` (i < e) of the sub-array's dimension of that name, in the
    sub-array's own direction; with ``step <= 0`` it shows ``start + picks[-step][i]``. Axes that are absent start at 0
    with step 1.
    """

    starts: dict[str, np.ndarray] = field(default_factory=dict)
    steps: dict[str, np.ndarray] = field(default_factory=dict)
    picks: tuple[np.ndarray, ...] = ()

    def at(self, axis: str, cell: int) -> tuple[int, int]:
        """Return (start, step) of a cell along an axis."""
        start = int(self.starts[axis][cell]) if axis in self.starts else 0
        return start, (int(self.steps[axis][cell]) if axis in self.steps else 1)

    def take(self, cells: np.ndarray) -> "Parts":
        """Return the parts of some of the cells, in the order given."""
        if not self.starts and not self.steps:
            return self
        return Parts({a: s[cells] for a, s in self.starts.items()}, {a: s[cells] for a, s in self.steps.items()}, self.picks)


@dataclass(frozen=True, slots=True, eq=False)
class Matrix:
    """The partition matrix of a master array.

    ``edges`` per dimension: int64 cut points from 0 to the size. ``refs``: int32, one per cell in C order: the row of
    its sub-array, -1 where missing. ``parts``: which part of it, per dimension name; it may name dimensions that the
    master has dropped. Only the sub-arrays that are used are pickled.
    """

    dimensions: tuple[str, ...]
    directions: tuple[bool, ...]
    edges: tuple[np.ndarray, ...]
    references: References
    refs: np.ndarray
    parts: Parts = field(default_factory=Parts)

    @property
    def shape(self) -> tuple[int, ...]:
        """Size of the master per dimension."""
        return tuple(int(e[-1]) for e in self.edges)

    @property
    def cells(self) -> tuple[int, ...]:
        """Number of partitions per dimension."""
        return tuple(len(e) - 1 for e in self.edges)

    @property
    def may_miss(self) -> bool:
        """Whether any value can be missing: a cell has no sub-array, or one that declares missing values."""
        there = self.refs[self.refs >= 0]
        numbers = np.unique(self.references.template[used_rows(there, len(self.references))]).tolist()
        return len(there) < len(self.refs) or any(self.references.templates[n].may_miss for n in numbers)

    def axis(self, dimension: str) -> int:
        """Return the position of a dimension; AggregationError lists the dimensions where there is none of that name."""
        try:
            return self.dimensions.index(dimension)
        except ValueError:
            names = ", ".join(self.dimensions) or "none"
            raise AggregationError(f"no dimension {dimension!r}: the array has {names}") from None

    def flips(self, axis: int, cells: np.ndarray | None = None) -> np.ndarray:
        """Tell per cell (None: of all) whether its sub-array runs against the master along a dimension."""
        refs = self.refs if cells is None else self.refs[cells]
        name, forward = self.dimensions[axis], self.directions[axis]
        own = (dict(zip(t.dimensions, t.directions, strict=True)) for t in self.references.templates)
        against = np.array([directions.get(name, forward) != forward for directions in own], bool)
        if not against.any():
            return np.zeros(len(refs), bool)
        return np.asarray(against[self.references.template[refs]] & (refs >= 0))

    def compact(self) -> "Matrix":
        """Return the same matrix with references to the sub-arrays that its cells use, and no others."""
        used = used_rows(self.refs[self.refs >= 0], len(self.references))
        if len(used) == len(self.references):
            return self
        refs = np.where(self.refs >= 0, np.searchsorted(used, self.refs), -1).astype(np.int32)
        return replace(self, references=self.references.take(used), refs=refs)

    def __reduce__(self) -> tuple[Any, ...]:
        lean = self.compact()
        return Matrix, tuple(getattr(lean, f.name) for f in fields(lean))


def single(
    template: Template,
    uri: str | None,
    variable: str | np.ndarray,
    stamps: np.ndarray | None = None,
    seen: np.ndarray | None = None,
) -> Matrix:
    """Return the matrix of one partition that shows a whole sub-array; ``stamps``, ``seen``: as in `References`."""
    edges = tuple(map(_whole, template.shape))
    names = ((str(uri),), (variable,), ()) if isinstance(variable, str) else ((), (), (variable,))
    place = _FIRST if names[0] else _INSIDE
    references = References(names[0], names[1], (template,), names[2], place, _FIRST, _FIRST, stamps, seen=seen)
    return Matrix(template.dimensions, template.directions, edges, references, _FIRST)


def _column(*values: int, dtype: type = np.int32) -> np.ndarray:
    column: np.ndarray = np.array(values, dtype)
    column.flags.writeable = False
    return column


# Columns that matrices of one partition share: an archive has many thousands of these.
_FIRST, _INSIDE = _column(0), _column(-1)


@lru_cache(maxsize=1024)
def _whole(size: int) -> np.ndarray:
    return _column(0, size, dtype=np.int64)


def used_rows(column: np.ndarray, count: int) -> np.ndarray:
    """Return which rows of a table of ``count`` a column of numbers names, sorted.

    >>> used_rows(np.array([3, 1, 3]), 5).tolist()
    [1, 3]
    """
    return np.flatnonzero(np.bincount(column, minlength=count))


def check_matrix(matrix: Matrix) -> None:
    """Raise AggregationError unless the columns of a matrix fit each other."""
    if len(matrix.refs) != prod(matrix.cells):
        raise AggregationError(f"{len(matrix.refs)} references for a matrix of {matrix.cells} partitions: give one per cell")
    highest = int(matrix.refs.max(initial=-1))
    if highest >= len(matrix.references):
        raise AggregationError(f"reference {highest} of {len(matrix.references)} sub-arrays: give rows of the table")
