"""Scanned structures of the files of an index, read as columns.

`records` writes them. `append` continues the columns without a Python object for each file.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from math import prod
from typing import Any

import numpy as np

from aggarray.dataclass import dataclass, field, replace
from aggarray.formats.base import Structure, Variable
from aggarray.index.decoder import unplain
from aggarray.index.store import EAGER, Reader, Writer, plain_dtype
from aggarray.scan.structure_table import StructureTable
from aggarray.storage.state import Stamp

#: Number of the values of a variable without values; kind of values that are texts.
NO_VALUES = TEXTS = -1
#: Most values that are listed one by one, as all releases read them.
FEW_VALUES = 1024
#: The schema that has columns of values.
VALUE_COLUMNS_SCHEMA = 3


@dataclass(slots=True, eq=False)
class ValueColumns:
    """Values by number: ``kind`` and ``row`` of each; texts are of kind -1.

    ``kinds``: dtype and shape; ``stored``: of each kind uint8 (values, bytes), or the arrays if they are large.
    """

    kind: np.ndarray
    row: np.ndarray
    kinds: list[tuple[np.dtype[Any], tuple[int, ...]]]
    stored: list[Any]
    texts: list[np.ndarray]

    def __len__(self) -> int:
        return len(self.kind)

    def arrays(self) -> list[np.ndarray]:
        """Return all values, read-only."""
        stored: list[Any] = []
        for (dtype, shape), content in zip(self.kinds, self.stored, strict=True):
            if isinstance(content, np.ndarray):
                whole = np.ascontiguousarray(content).view(dtype).reshape(len(content), *shape)
                whole.flags.writeable = False
                content = list(whole) if shape else [whole[n, ...] for n in range(len(whole))]
            stored.append(content)
        return [
            self.texts[row] if kind == TEXTS else stored[kind][row]
            for kind, row in zip(self.kind.tolist(), self.row.tolist(), strict=True)
        ]

    def find(self, values: np.ndarray) -> int | None:
        """Return the number of equal values, None without."""
        for number, (dtype, shape) in enumerate(self.kinds):
            content = self.stored[number]
            if (dtype, shape) == (values.dtype, values.shape):
                if isinstance(content, np.ndarray):
                    own = np.frombuffer(values.tobytes(), np.uint8)
                    rows = np.flatnonzero((content == own).all(axis=1))
                else:
                    rows = np.array([n for n, one in enumerate(content) if one.tobytes() == values.tobytes()], np.int64)
                numbers = np.flatnonzero((self.kind == number) & (self.row == rows[0])) if len(rows) else rows
                return int(numbers[0]) if len(numbers) else None
        return None

    def written(self, writer: Writer, number_of: Callable[[Any, Any], int], texts: list[Any]) -> tuple[np.ndarray, np.ndarray]:
        """Write all values; return the kind and the position of each.

        ``number_of``: returns the number of a kind; ``texts``: extended by the specifications of texts.
        """
        kinds, ats = np.full(len(self), TEXTS, np.int64), np.zeros(len(self), np.int64)
        for number, ((dtype, shape), content) in enumerate(zip(self.kinds, self.stored, strict=True)):
            rows = np.flatnonzero(self.kind == number)
            kind = [dtype.str, list(shape)]
            kinds[rows] = number_of(repr(kind), kind)
            places = (
                writer.values_of(content)
                if isinstance(content, np.ndarray)
                else np.array([writer.value(v)["at"] for v in content])
            )
            ats[rows] = places[self.row[rows]]
        rows = np.flatnonzero(self.kind == TEXTS)
        ats[rows] = len(texts) + self.row[rows]
        texts += [writer.value(text) for text in self.texts]
        return kinds, ats


@dataclass(slots=True, eq=False)
class RecordColumns:
    """Structures as columns and tables of distinct items.

    ``file``: the number of each among ``files``; ``rows``: int64 (structures, 6): format, size, time and checksum of the file,
    numbers of variables and of attributes; ``variables``: int64 (variables, 2): numbers of heads and of values.
    """

    files: Any
    file: np.ndarray
    rows: np.ndarray
    variables: np.ndarray
    attrs: np.ndarray
    formats: list[str]
    pairs: list[tuple[str, Any]]
    heads: list[Any]
    values: ValueColumns
    others: Mapping[str, Any]
    sizes: Mapping[str, Any]
    external: Mapping[str, Any]
    given: list[list[str]]
    given_rows: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))

    def __len__(self) -> int:
        return len(self.file)

    @property
    def stamps(self) -> np.ndarray:
        """The states of the files, int64 (structures, 3), size -1 if unknown."""
        return self.rows[:, 1:4]

    def structures(self) -> Iterator[Structure]:
        """Yield the structures, with shared items shared."""
        pairs = [(name, unplain(value)) for name, value in self.pairs]
        values = self.values.arrays()
        heads = [_variable(head, pairs) for head in self.heads]
        distinct: dict[tuple[int, int], Variable] = {}
        variables = []
        for pair in map(tuple, self.variables.tolist()):
            if pair not in distinct:
                variable = heads[pair[0]]
                distinct[pair] = variable if pair[1] == NO_VALUES else replace(variable, values=values[pair[1]])
                if pair[1] != NO_VALUES and values[pair[1]].shape != variable.shape:
                    raise ValueError(f"values of another shape than {variable.shape} for variable {variable.name!r}")
            variables.append(distinct[pair])
        attrs = [pairs[n] for n in self.attrs.tolist()]
        given = [tuple(map(str, own)) for own in self.given]
        first_variable, first_attr = 0, 0
        columns = zip(self.file.tolist(), self.rows.tolist(), self.given_rows.tolist(), strict=True)
        for number, (file, (format_number, *stamp, variable_count, attr_count), own) in enumerate(columns):
            groups, skipped = self.others.get(str(number), ((), ()))
            yield Structure(
                self.files[file],
                self.formats[format_number],
                dict(attrs[first_attr : first_attr + attr_count]),
                tuple(variables[first_variable : first_variable + variable_count]),
                {name: dict(pairs[n] for n in numbers) for name, numbers in groups},
                tuple((name, reason) for name, reason in skipped),
                self.sizes.get(str(number)),
                stamp=None if stamp[0] < 0 else (stamp[0], stamp[1], stamp[2]),
                external_files=tuple(map(str, self.external.get(str(number), ()))),
                given=given[own],
            )
            first_variable, first_attr = first_variable + variable_count, first_attr + attr_count

    def kinds_of_files(
        self, names: Collection[str], extra: Callable[[str], object] | None
    ) -> Iterator[tuple[Structure, Sequence[str]]]:
        """Yield a structure of each kind, without values, and its files.

        Files of a kind have equal variables, equal attributes of ``names``, and equal results of ``extra``.
        """
        files, count = self.files.take(self.file), len(self.file)
        chosen = np.array([name in names for name, _ in self.pairs], bool)
        is_chosen = chosen[self.attrs] if len(self.attrs) else np.zeros(0, bool)
        variable_ends, attr_ends = (np.concatenate([[0], np.cumsum(self.rows[:, n])]) for n in (4, 5))
        columns = (
            (self.variables[:, 0], variable_ends),
            (self.attrs[is_chosen], np.concatenate([[0], np.cumsum(is_chosen)])[attr_ends]),
        )
        others, numbers = np.full((count, 2), -1), dict[object, int]()
        # A file with groups or skipped variables is a kind of its own.
        own = [int(row) for row, content in self.others.items() if content and row.isdecimal() and int(row) < count]
        others[own, 0] = own
        if extra is not None:
            others[:, 1] = [numbers.setdefault(extra(uri), len(numbers)) for uri in files]
        kinds = _equal_rows(columns, others)
        examples = self._taken([int(rows[0]) for rows in kinds], variable_ends, attr_ends).structures()
        for structure, rows in zip(examples, kinds, strict=True):
            yield structure, files.take(rows)

    def _taken(self, rows: Sequence[int], variable_ends: np.ndarray, attr_ends: np.ndarray) -> RecordColumns:
        """Return the columns of some structures, without values."""
        of_variables, of_attrs = (
            np.concatenate([np.arange(0), *(np.arange(ends[row], ends[row + 1]) for row in rows)])
            for ends in (variable_ends, attr_ends)
        )
        variables = self.variables[of_variables].copy()
        variables[:, 1] = NO_VALUES
        tables = (
            {str(n): table[str(row)] for n, row in enumerate(rows) if str(row) in table}
            for table in (self.others, self.sizes, self.external)
        )
        others, sizes, external = tables
        return replace(
            self,
            file=self.file[rows],
            rows=self.rows[rows],
            variables=variables,
            attrs=self.attrs[of_attrs],
            values=ValueColumns(np.zeros(0, np.int64), np.zeros(0, np.int64), [], [], []),
            others=others,
            sizes=sizes,
            external=external,
            given_rows=self.given_rows[rows],
        )


def _equal_rows(columns: Sequence[tuple[np.ndarray, np.ndarray]], others: np.ndarray) -> list[np.ndarray]:
    """Return the numbers of equal rows, in the order of the first of them.

    ``columns``: numbers, and where those of each row begin and end; ``others``: more numbers per row.

    >>> numbers, ends = np.array([7, 8, 7, 8, 7]), np.array([0, 2, 4, 5])
    >>> [rows.tolist() for rows in _equal_rows([(numbers, ends)], np.zeros((3, 1)))]
    [[0, 1], [2]]
    """
    lengths = [np.diff(ends) for _, ends in columns]
    several = np.ravel_multi_index(lengths, [int(own.max(initial=0)) + 1 for own in lengths])
    kinds: list[np.ndarray] = []
    for rows in _by_number(several):
        parts = [numbers[ends[rows, None] + np.arange(ends[rows[0] + 1] - ends[rows[0]])] for numbers, ends in columns]
        table = np.concatenate([*parts, others[rows]], axis=1)
        table = table[:, (table != table[0]).any(axis=0)]  # in most archives, none is left
        same = np.unique(table, axis=0, return_inverse=True)[1].ravel() if table.size else np.zeros(len(rows), np.int64)
        kinds += [rows[own] for own in _by_number(same)]
    return sorted(kinds, key=lambda rows: int(rows[0]))


def _by_number(numbers: np.ndarray) -> list[np.ndarray]:
    """Return the rows of each distinct number, in order."""
    order = np.argsort(numbers, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1) if len(order) else []


@dataclass(slots=True, eq=False)
class ContinuedRecords:
    """Structures of an index, and ``added`` ones; a call returns all."""

    base: RecordColumns
    added: StructureTable
    _table: StructureTable | None = None

    def __call__(self) -> StructureTable:
        """Return the structures as a table, made on the first call."""
        if self._table is None:
            self._table = StructureTable(chain(self.base.structures(), self.added))
        return self._table

    def __len__(self) -> int:
        return len(self.base) + len(self.added)

    def records(self) -> ContinuedRecords:
        """Return this object, as `IndexContents` returns that of an index."""
        return self

    def uris(self) -> tuple[Any, Sequence[str]]:
        """Return the files, of the index and added ones."""
        return self.base.files.take(self.base.file), self.added.uris

    def stamps_of(self, paths: Sequence[str]) -> dict[str, Stamp | None]:
        """Return the states of those paths that are among the files."""
        rows = self.uris()[0].rows_of(paths)
        known = {path: tuple(self.base.stamps[row].tolist()) for path, row in rows.items()}
        known |= {uri: self.added.stamp(row) or (-1, 0, 0) for row, uri in enumerate(self.added.uris) if uri in set(paths)}
        return {path: None if stamp[0] < 0 else (stamp[0], stamp[1], stamp[2]) for path, stamp in known.items()}

    def extended(self, structures: Iterable[Structure]) -> ContinuedRecords:
        """Return these structures and others."""
        return ContinuedRecords(self.base, StructureTable(chain(self.added, structures)))


def read_columns(encoded: Mapping[str, Any], files: Sequence[str], reader: Reader) -> RecordColumns:
    """Return the columns of records; ValueError, LookupError if damaged."""
    column = reader.column
    file, kinds = column(encoded["file"]), column(encoded["format"])
    rows = np.stack([kinds, *map(column, encoded["stamps"]), *map(column, encoded["counts"])], axis=-1)
    names, of_row = encoded.get("given", ([[]], None))
    given_rows = np.zeros(len(file), np.int64) if of_row is None else column(of_row)
    if rows.shape != (len(file), 6) or len(given_rows) != len(file):
        raise ValueError("records of different lengths")
    pairs = [(name, value) for name, value in encoded["pairs"]]
    if not all(isinstance(name, str) for name, _ in pairs):
        raise ValueError("name of an attribute is not text")
    variables = np.stack([column(c) for c in encoded["variables"]], axis=-1)
    tables = list(encoded["formats"]), pairs, list(encoded["heads"]), _read_values(encoded, reader)
    others = encoded["others"], encoded.get("sizes", {}), encoded.get("external", {})
    return RecordColumns(files, file, rows, variables, column(encoded["attrs"]), *tables, *others, names, given_rows)


def _read_values(encoded: Mapping[str, Any], reader: Reader) -> ValueColumns:
    """Return the values of records, read together."""
    forms: dict[tuple[str, tuple[int, ...]], int] = {}
    texts = []
    if "value_columns" in encoded:
        forms = {(dtype, tuple(shape)): number for number, (dtype, shape) in enumerate(encoded["value_kinds"])}
        kind, at = (reader.column(c) for c in encoded["value_columns"])
        texts = [reader.value(spec) for spec in encoded["values"]]
    else:
        listed = list[tuple[int, int]]()
        for spec in encoded["values"]:
            if "texts" in spec:
                listed.append((TEXTS, len(texts)))
                texts.append(reader.value(spec))
            else:
                listed.append((forms.setdefault((spec["dtype"], tuple(spec["shape"])), len(forms)), spec["at"]))
        kind, at = np.array(listed, np.int64).reshape(-1, 2).T
    if len(kind) != len(at) or (len(kind) and not TEXTS <= kind.min() <= kind.max() < len(forms)):
        raise ValueError("values of an unknown kind")
    kinds, stored, row = list[Any](), list[Any](), np.array(at)
    for (text, shape), number in forms.items():
        dtype, rows = plain_dtype(text), np.flatnonzero(kind == number)
        if dtype.kind not in "biufcmM" or not all(type(n) is int and 0 <= n < 1 << 40 for n in shape):
            raise ValueError(f"values of dtype {dtype} and shape {shape!r}")
        size = prod(shape) * dtype.itemsize
        kinds.append((dtype, shape))
        if 0 < size <= EAGER:
            stored.append(reader.gathered(at[rows], size))
        else:
            stored.append([reader.value({"dtype": text, "shape": list(shape), "at": n}) for n in at[rows].tolist()])
        row[rows] = np.arange(len(rows))
    if len(texts) and (kind == TEXTS).any() and not 0 <= row[kind == TEXTS].min() <= row[kind == TEXTS].max() < len(texts):
        raise ValueError("number of a text out of range")
    return ValueColumns(np.array(kind), row, kinds, stored, texts)


def _variable(head: Sequence[Any], pairs: Sequence[tuple[str, Any]]) -> Variable:
    name, dtype, shape, dimensions, attrs, *scopes = head
    if not isinstance(name, str) or len(shape) != len(dimensions) or not all(isinstance(d, str) for d in dimensions):
        raise ValueError(f"variable {name!r} of dimensions {dimensions!r}")
    if not all(type(n) is int and 0 <= n < 1 << 62 for n in shape):
        raise ValueError(f"variable {name!r} of shape {shape!r}")
    stored_dtype: np.dtype[Any] = np.dtypes.StringDType() if dtype == "text" else plain_dtype(dtype)
    if not all(len(items) == len(shape) and all(isinstance(s, str) for s in items) for items in scopes):
        raise ValueError(f"variable {name!r} of shape {shape!r} in groups {scopes!r}")
    groups = tuple(scopes[0]) if scopes else None
    return Variable(name, stored_dtype, tuple(shape), tuple(dimensions), dict(pairs[n] for n in attrs), scopes=groups)
