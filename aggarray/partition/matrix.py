"""Partition matrices in columns: `Matrix`, `References` and `Template`.

`Matrix` is the partition matrix: cut points per dimension, and per cell (in C order) its sub-array and the part of it.
`References` lists the sub-arrays: the location of each, and its `Template` (shape, dtype, units, packing, ...). An archive
has a handful of templates. These are plain data, independent of files and formats.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import zip_longest
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from aggarray.cf.encoding import Encoding
from aggarray.dataclass import dataclass, field, fields, replace
from aggarray.errors import AggregationError
from aggarray.storage import relocated_all

if TYPE_CHECKING:
    from aggarray.partition.signatures import FileSignature
    from aggarray.partition.stored_sizes import ChunkIndexes

#: Maximum number of cells of a matrix.
MAX_CELLS = 10_000_000
#: Number of rows of long columns that are worked on at a time, so that they stay in the cache of a processor.
BLOCK = 1 << 16


@dataclass(frozen=True, slots=True)
class Step:
    """Units and dtype of values between a sub-array and its master.

    If ``encoding`` is given, it then decodes them. ``temperature``: the kind of a temperature, one of `units.KINDS`, or None.
    """

    units: str | None
    calendar: str | None
    dtype: np.dtype[Any]
    encoding: Encoding | None = None
    temperature: str | None = None


@dataclass(frozen=True, slots=True)
class Template:
    """Description that sub-arrays share: all properties except their location.

    ``dimensions`` are named as the master's; ``directions``: True = increasing; ``encoding`` turns stored values into
    values; ``steps`` are conversions applied to the values, in this order, before they are conformed.

    ``declared``: the files have not been read. An index gives shape, dimensions and directions; units None are the file's own;
    the encoding is the master's dtype without packing. ``names``: the dimension names in the index.
    ``assumed``: the signature of another file of the same group. The description is complete, but not verified.
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
    def unresolved(self) -> bool:
        """Whether only an index declares it: units and encoding are unknown."""
        return self.declared and self.assumed is None

    @property
    def may_miss(self) -> bool:
        """Whether any value can be missing, according to the known encodings."""
        return self.encoding.may_miss or any(step.encoding is not None and step.encoding.may_miss for step in self.steps)

    @property
    def last_step(self) -> Step:
        """Units and dtype of the values before they are conformed to a master."""
        if not self.steps:
            return Step(self.units, self.calendar, self.encoding.dtype, temperature=self.temperature)
        last = self.steps[-1]
        return last if last.encoding is None else replace(last, dtype=last.encoding.dtype, encoding=None)

    def units_in(self, units: str | None, calendar: str | None) -> tuple[str | None, str | None]:
        """Return units and calendar, the master's where the template has none."""
        if not self.unresolved or self.units is not None:
            return self.units, self.calendar
        return (self.steps[0].units, self.steps[0].calendar) if self.steps else (units, calendar)


@dataclass(frozen=True, slots=True, eq=False)
class References:
    """Sub-arrays as columns, one row each.

    Row i is variable ``variables[variable[i]]`` of file ``uris[uri[i]]``. In memory (``uri[i] == -1``) it is
    ``memory[variable[i]]``. ``template[i]`` is the number of its template. All are int32, of equal length.
    ``stamps``, where known: int64 (uris, 3), the state of each file when it was scanned: size in bytes (-1: unknown),
    modification time in nanoseconds, checksum. ``tables``, where known: the chunk indexes of the files. ``seen``, where known:
    int64 (uris,), a number for the part that was read of each file with an assumed signature, -1 for other files.
    ``external``, where any: other files that hold the values of sub-arrays, as columns of `partition.external`; a file of these
    without a stamp did not exist at the scan.
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
    external: np.ndarray | None = None

    def __getstate__(self) -> list[Any]:
        """Return the pickled columns, with sizes instead of chunk indexes."""
        from aggarray.partition.stored_sizes import sizes_to_pickle

        return [sizes_to_pickle(self) if f.name == "tables" else getattr(self, f.name) for f in fields(self)]

    def __setstate__(self, state: list[Any]) -> None:
        # Pickles of earlier releases have no external files.
        for f, value in zip_longest(fields(self), state):
            object.__setattr__(self, f.name, relocated_all(value) if f.name == "uris" else value)

    def __len__(self) -> int:
        return len(self.template)

    def uri_of(self, row: int) -> str | None:
        """Return the URI of a sub-array, None in memory."""
        code = int(self.uri[row])
        return None if code < 0 else str(self.uris[code])

    def stamp_of(self, row: int) -> tuple[int, int, int] | None:
        """Return the scanned state of a sub-array's file, None if unknown."""
        if self.stamps is None or self.uri[row] < 0:
            return None
        size, time, checksum = self.stamps[self.uri[row]].tolist()
        return None if size < 0 else (size, time, checksum)

    def seen_of(self, row: int) -> int | None:
        """Return the ``seen`` number of a sub-array's file, None if unknown."""
        number = -1 if self.seen is None or self.uri[row] < 0 else int(self.seen[self.uri[row]])
        return None if number < 0 else number

    def template_of(self, row: int) -> Template:
        """Return the template that a sub-array follows."""
        return self.templates[int(self.template[row])]

    def take(self, rows: np.ndarray) -> References:
        """Return some sub-arrays in the order given, without unused names."""
        if self.external is not None:
            from aggarray.partition.external import with_entries

            return with_entries(self, rows, References.take)
        in_memory = self.uri[rows] < 0
        uri, variable, template = self.uri[rows], self.variable[rows], self.template[rows]
        codes, names_or_memory = np.full((2, len(rows)), -1, np.int32)
        uris, codes[~in_memory] = np.unique(uri[~in_memory], return_inverse=True)
        names, names_or_memory[~in_memory] = np.unique(variable[~in_memory], return_inverse=True)
        memory, names_or_memory[in_memory] = np.unique(variable[in_memory], return_inverse=True)
        numbers, templates = np.unique(template, return_inverse=True)
        files = tuple(str(self.uris[i]) for i in uris.tolist()), tuple(self.variables[i] for i in names.tolist())
        shared = tuple(self.templates[i] for i in numbers.tolist()), tuple(self.memory[i] for i in memory.tolist())
        columns = codes, names_or_memory, templates.astype(np.int32)
        stamps, seen = (None if known is None else known[uris] for known in (self.stamps, self.seen))
        return References(*files, *shared, *columns, stamps, self.tables, seen)

    def with_templates(self, templates: Sequence[Template]) -> References:
        """Return the same sub-arrays with other templates under the same numbers."""
        return replace(self, templates=tuple(templates))


_EMPTY = np.zeros(0, np.int32)
NO_REFERENCES = References((), (), (), (), _EMPTY, _EMPTY, _EMPTY)


@dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """The part of a sub-array that each of n cells shows, per dimension.

    A cell of extent e shows positions ``start + step * i`` (i < e) of the sub-array's dimension of that name, in the
    sub-array's own direction; with ``step <= 0`` it shows ``start + picks[-step][i]``. Dimensions that are absent start at 0
    with step 1.
    """

    starts: dict[str, np.ndarray] = field(default_factory=dict)
    steps: dict[str, np.ndarray] = field(default_factory=dict)
    picks: tuple[np.ndarray, ...] = ()

    def at(self, axis: str, cell: int) -> tuple[int, int]:
        """Return (start, step) of a cell along an axis."""
        start = int(self.starts[axis][cell]) if axis in self.starts else 0
        return start, (int(self.steps[axis][cell]) if axis in self.steps else 1)

    def take(self, cells: np.ndarray) -> Parts:
        """Return the parts of some of the cells, in the order given."""
        if not self.starts and not self.steps:
            return self
        return Parts({a: s[cells] for a, s in self.starts.items()}, {a: s[cells] for a, s in self.steps.items()}, self.picks)


@dataclass(frozen=True, slots=True, eq=False)
class Matrix:
    """The partition matrix of a master array.

    ``edges`` per dimension: int64 cut points from 0 to the size. ``refs``: int32, one per cell in C order: the row of
    its sub-array, -1 where missing. ``parts``: the part of each sub-array, per dimension name; it may name dimensions that the
    master has dropped. Only the sub-arrays that are used are pickled.
    """

    dimensions: tuple[str, ...]
    directions: tuple[bool, ...]
    edges: tuple[np.ndarray, ...]
    references: References
    refs: np.ndarray
    parts: Parts = field(default_factory=Parts)
    _cached_used: np.ndarray | None = field(default=None, init=False)

    @property
    def used(self) -> np.ndarray:
        """Whether the cells use each sub-array."""
        used = self._cached_used
        if used is None:
            used = are_used(self.refs, len(self.references))
            used.flags.writeable = False
            object.__setattr__(self, "_cached_used", used)
        return used

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
        """Whether a cell has no sub-array, or one that declares missing values."""
        return bool((self.refs < 0).any()) or any(template.may_miss for template in self.used_templates)

    @property
    def used_templates(self) -> list[Template]:
        """The templates of the sub-arrays that the cells use."""
        references = self.references
        numbers = used_numbers(references.template, self.refs, len(references.templates))
        return [references.templates[number] for number in numbers.tolist()]

    def axis(self, dimension: str) -> int:
        """Return the position of a dimension; AggregationError lists them all."""
        try:
            return self.dimensions.index(dimension)
        except ValueError:
            names = ", ".join(self.dimensions) or "none"
            raise AggregationError(f"no dimension {dimension!r}", hint=f"the array has {names}") from None

    def flips(self, axis: int, cells: np.ndarray | None = None) -> np.ndarray:
        """Return, per cell (None: all), whether its sub-array runs against it."""
        refs = self.refs if cells is None else self.refs[cells]
        name, forward = self.dimensions[axis], self.directions[axis]
        own = (dict(zip(t.dimensions, t.directions, strict=True)) for t in self.references.templates)
        against = np.array([directions.get(name, forward) != forward for directions in own], bool)
        if not against.any():
            return np.zeros(len(refs), bool)
        return np.asarray(against[self.references.template[refs]] & (refs >= 0))

    def compact(self) -> Matrix:
        """Return the same matrix without the sub-arrays that it does not use."""
        used = np.flatnonzero(self.used)
        if len(used) == len(self.references):
            return self
        refs = np.where(self.refs >= 0, np.searchsorted(used, self.refs), -1).astype(np.int32)
        return replace(self, references=self.references.take(used), refs=refs)

    def __reduce__(self) -> tuple[Any, ...]:
        compacted = self.compact()
        return Matrix, tuple(getattr(compacted, f.name) for f in fields(compacted) if f.init)


def single(
    template: Template,
    uri: str | None,
    variable: str | np.ndarray,
    stamps: np.ndarray | None = None,
    seen: np.ndarray | None = None,
) -> Matrix:
    """Return the matrix of one partition that shows a complete sub-array."""
    edges = tuple(map(_single_edges, template.shape))
    names = ((str(uri),), (variable,), ()) if isinstance(variable, str) else ((), (), (variable,))
    uri_column = _FIRST if names[0] else _IN_MEMORY
    references = References(names[0], names[1], (template,), names[2], uri_column, _FIRST, _FIRST, stamps, seen=seen)
    return Matrix(template.dimensions, template.directions, edges, references, _FIRST)


def _column(*values: int, dtype: type = np.int32) -> np.ndarray:
    column: np.ndarray = np.array(values, dtype)
    column.flags.writeable = False
    return column


# Columns that all matrices of one partition share; an archive has thousands of such matrices.
_FIRST, _IN_MEMORY = _column(0), _column(-1)


@lru_cache(maxsize=1024)
def _single_edges(size: int) -> np.ndarray:
    return _column(0, size, dtype=np.int64)


def has_step(column: np.ndarray, step: Any) -> bool:
    """Return whether each value exceeds the one before by a step.

    >>> has_step(np.array([1, 3, 5]), 2), has_step(np.array([1, 3, 4]), 2), has_step(np.array([7]), 1)
    (True, False, True)
    """
    blocks = (column[at : at + BLOCK + 1] for at in range(0, len(column) - 1, BLOCK))
    return all(bool((block[1:] - block[:-1] == step).all()) for block in blocks)


def is_increasing(column: np.ndarray) -> bool:
    """Return whether each value is greater than the one before.

    >>> is_increasing(np.array([1.0, 2.5])), is_increasing(np.array([1.0, np.nan]))
    (True, False)
    """
    blocks = (column[at : at + BLOCK + 1] for at in range(0, len(column) - 1, BLOCK))
    return all(bool((block[1:] > block[:-1]).all()) for block in blocks)


def largest_step(column: np.ndarray) -> int:
    """Return the largest difference of neighbours, at least 1.

    >>> largest_step(np.array([0, 2, 7])), largest_step(np.array([4]))
    (5, 1)
    """
    blocks = (column[at : at + BLOCK + 1] for at in range(0, len(column) - 1, BLOCK))
    return max(1, *(int((block[1:] - block[:-1]).max()) for block in blocks), 1)


def used_rows(column: np.ndarray, count: int) -> np.ndarray:
    """Return the sorted rows, of a table of ``count``, that a column names.

    >>> used_rows(np.array([3, -1, 1, 3]), 5).tolist()
    [1, 3]
    """
    return np.flatnonzero(are_used(column, count))


def are_used(column: np.ndarray, count: int, rows: np.ndarray | None = None) -> np.ndarray:
    """Return whether a column names each of ``count`` numbers.

    The number -1 is none. ``rows``: those of the column that count, -1 for none; None: all.

    >>> are_used(np.array([3, -1, 1, 3]), 4).tolist(), are_used(np.array([2, 0, 1]), 3, np.array([0, -1])).tolist()
    ([False, True, False, True], [False, False, True])
    """
    used = np.zeros(count + 1, bool)  # the last one is for -1
    indices = column if rows is None else rows
    for at in range(0, len(indices), BLOCK):
        block = indices[at : at + BLOCK]
        used[block if rows is None else column[block[block >= 0]]] = True
    return used[:-1]


def used_numbers(column: np.ndarray, rows: np.ndarray, count: int) -> np.ndarray:
    """Return the sorted numbers, of ``count``, in some rows of a column.

    >>> used_numbers(np.array([3, 0, 1]), np.array([0, 0, -1, 2]), 5).tolist()
    [1, 3]
    """
    if count == 1:
        return np.arange(int((rows >= 0).any() and int(column.max(initial=-1)) >= 0))
    return np.flatnonzero(are_used(column, count, rows))


def check_matrix(matrix: Matrix) -> None:
    """Raise AggregationError unless the columns of a matrix fit each other."""
    if len(matrix.refs) != prod(matrix.cells):
        what = f"{len(matrix.refs)} references for a matrix of {matrix.cells} partitions"
        raise AggregationError(what, hint="give one per cell")
    highest = int(matrix.refs.max(initial=-1))
    if highest >= len(matrix.references):
        raise AggregationError(f"reference {highest} is out of range for {len(matrix.references)} sub-arrays")
