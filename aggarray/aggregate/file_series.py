"""Scanned files that differ only along one dimension.

Files of such a series have the same variables, attributes and values, except along one dimension, and except attributes without
meaning for joins. They are found by comparing what a `StructureTable` stores of them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from aggarray.aggregate.identity import EAST
from aggarray.aggregate.join import same_attribute
from aggarray.aggregate.own_units import OwnUnits, counted_with, counts_time, units_of
from aggarray.cf.attributes import words
from aggarray.cf.frozen import FrozenDict
from aggarray.dataclass import NamedTuple, replace
from aggarray.errors import AggarrayError
from aggarray.formats.base import Structure, Variable, fixed_names
from aggarray.memory.selection import distinct
from aggarray.scan.attribute_table import Own
from aggarray.scan.comparison import as_text
from aggarray.scan.roles import samplings_of
from aggarray.scan.structure_table import StructureTable
from aggarray.storage.blake2 import blake2b

#: Attributes of variables in which the files of a series may differ.
_FREE = frozenset(("history", "tracking_id", "creation_date", "date_created", "date_modified", "uuid", "id"))


class FileSeries:
    """Files that differ along a dimension, sorted by its coordinate.

    ``dimension``: along which they differ; ``axes``: {position of a variable: its axis of the dimension}; ``edges``: int64, the
    positions at which the files begin, and the end; ``units``: of the coordinate and its bounds, the variables ``counted``, if
    they differ; ``stacked``: {name: values of all files} of a scalar coordinate and its bounds, whose dimension is new;
    ``members``: of the files along a new dimension that a rule states, as text.
    """

    members: Sequence[str] = ()

    def __init__(self, table: StructureTable, rows: Sequence[int], dimension: str, coordinate: int) -> None:
        self.table, self.dimension = table, dimension
        heads = _heads(table, rows[0])
        self.axes = {p: v.dimensions.index(dimension) for p, v in enumerate(heads) if dimension in v.dimensions}
        stated = [units_of(table, row, coordinate) for row in rows]
        own = OwnUnits(stated, heads[coordinate].attrs.get("calendar")) if len(set(stated)) > 1 else None
        firsts = (table.values_at(row, coordinate).reshape(-1)[:1] for row in rows)
        starts = np.concatenate(list(firsts)) if own is None else own.convert(firsts)
        order = np.argsort(starts, kind="stable").tolist()
        self.rows = [rows[n] for n in order]
        self.counted = {} if own is None else counted_with(heads, coordinate) or {}
        self.units = None if own is None else OwnUnits([stated[n] for n in order], heads[coordinate].attrs.get("calendar"))
        lengths = {number: prod(_heads(table, row)[coordinate].shape) for number, row in self.examples.items()}
        self.edges = np.cumsum([0, *(lengths[number] for number in self.variant.tolist())], dtype=np.int64)
        self.is_scalar = not heads[coordinate].dimensions
        self._stackable = {coordinate, *_bounds_of(heads, coordinate)} if self.is_scalar else frozenset[int]()
        self.stacked: dict[str, np.ndarray] = {}

    @cached_property
    def uris(self) -> tuple[str, ...]:
        """The files in order."""
        return tuple([self.table.uris[row] for row in self.rows])

    @cached_property
    def variant(self) -> np.ndarray:
        """The variant of each file."""
        return np.array([self.table.variant[row] for row in self.rows], np.int32)

    @cached_property
    def stamps(self) -> np.ndarray | None:
        """The states of the files, int64 (n, 3), None if none is known."""
        stamps = self.table.stamps()[self.rows]
        return stamps if (stamps[:, 0] >= 0).any() else None

    @cached_property
    def seen(self) -> np.ndarray | None:
        """A hash of what was read of each assumed file, int64, None without."""
        seen = np.array([self.table.seen[row] for row in self.rows], np.int64)
        return seen if (seen >= 0).any() else None

    @cached_property
    def examples(self) -> dict[int, int]:
        """The first file of each variant."""
        examples: dict[int, int] = {}
        for number, row in zip(self.variant.tolist(), self.rows, strict=True):
            examples.setdefault(number, row)
        return examples

    @cached_property
    def kinds(self) -> tuple[np.ndarray, list[tuple[int, Any]]]:
        """The kind of each file; the variant and own units of each kind."""
        stated: Sequence[Any] = [None] * len(self.rows) if self.units is None else self.units.stated
        numbers: dict[tuple[int, Any], int] = {}
        kinds = zip(self.variant.tolist(), stated, strict=True)
        column = np.fromiter((numbers.setdefault(kind, len(numbers)) for kind in kinds), np.int32, len(stated))
        return column, list(numbers)

    def merge_structures(self) -> Structure:
        """Return the structure of one file with the values of all files.

        Those of a scalar coordinate are `stacked`.
        """
        first, total = self.table[self.rows[0]], int(self.edges[-1])
        variables = []
        for position, v in enumerate(first.variables):
            attrs, axis = self._common(position, v.attrs), self.axes.get(position)
            if axis is not None:
                values = self._join_values(position, v, axis) if self._is_valued(position) else None
                shape = (*v.shape[:axis], total, *v.shape[axis + 1 :])
                v = replace(v, shape=shape, values=values, dtype=v.dtype if values is None else values.dtype)
            elif position in self._stackable and self._is_valued(position):
                values = self.stacked[v.name] = self._join_values(position, v, 0)
                v = replace(v, values=values[:1].reshape(v.shape), dtype=values.dtype)
            variables.append(v if attrs is v.attrs else replace(v, attrs=attrs))
        sizes = None if first.sizes is None or self.is_scalar else {**first.sizes, self.dimension: total}
        merged: Structure = replace(first, attrs=self._common(-1, first.attrs), variables=tuple(variables), sizes=sizes)
        return merged

    def _is_valued(self, position: int) -> bool:
        return all(position in self.table.variants[number].valued for number in self.examples)

    def _join_values(self, position: int, variable: Variable, axis: int) -> np.ndarray:
        arrays, leading = (self.table.values_at(row, position) for row in self.rows), position in self._stackable
        if leading:
            arrays = (values[np.newaxis] for values in arrays)
        if position in self.counted and self.units is not None:
            values = self.units.convert(arrays, axis)
        elif axis or variable.dtype.kind not in "biufcmM":
            values = np.concatenate(list(arrays), axis)
        else:
            data = bytearray()
            for row in self.rows:
                data += self.table.bytes_at(row, position)
            values = np.frombuffer(data, variable.dtype).reshape(-1, *variable.shape[0 if leading else 1 :])
        values.flags.writeable = False
        return values

    def _common(self, position: int, attrs: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the attributes that are equal in all files."""
        own = self.table.own
        names = set(name for row in self.rows if row in own for name in own[row].get(position, ())[::2])
        templates = {n: self.table.template(row, position) for n, row in self.examples.items()}
        if not names and all(template is attrs for template in templates.values()):
            return attrs
        kept = ("units",) if position in self.counted else ()  # those of the first
        is_common = {name: name in kept or self._is_common(position, name, value, templates) for name, value in attrs.items()}
        return FrozenDict({name: value for name, value in attrs.items() if is_common[name]})

    def _is_common(self, position: int, name: str, first: Any, templates: Mapping[int, Mapping[str, Any]]) -> bool:
        same = {n: same_attribute(first, template.get(name)) for n, template in templates.items()}
        own = self.table.own
        for row, variant in zip(self.rows, self.variant.tolist(), strict=True):
            pairs = own[row].get(position, ()) if row in own else ()
            is_same = same_attribute(first, pairs[2 * pairs[::2].index(name) + 1]) if name in pairs[::2] else same[variant]
            if not is_same:
                return False
        return True


def find_file_series(
    table: StructureTable,
    identifying: Collection[str],
    rows: Iterable[int],
    pattern: re.Pattern[str] | None = None,
) -> Iterator[FileSeries]:
    """Yield the series among some rows of a table.

    ``identifying``: attributes that separate files, as does what ``pattern`` finds in their names.
    """
    for group in grouped(table, identifying, rows, pattern):
        yield from _split(table, group)


def grouped(
    table: StructureTable, identifying: Collection[str], rows: Iterable[int], pattern: re.Pattern[str] | None = None
) -> Iterator[list[int]]:
    """Yield rows of equal variables and attributes, where there are several.

    The parameters are those of `find_file_series`.
    """
    groups: dict[object, list[int]] = {}
    forms, identifying = dict[int, _Form | None](), frozenset(identifying)
    for row in rows:
        number = table.variant[row]
        if number not in forms:
            forms[number] = _form(table, row, identifying)
        form = forms[number]
        if form is not None:
            own = table.own.get(row)
            stated = _key(form, {} if own is None else own, identifying)
            match = pattern.search(table.uris[row]) if pattern is not None else None
            groups.setdefault((form.variables, stated, match and match.group(1)), []).append(row)
    yield from (group for group in groups.values() if len(group) > 1)


#: (position of a variable or -1, name, value as text) of attributes that are equal in a series.
_Stated = frozenset[tuple[int, str, str]]

#: Largest number of keys of files with attributes of their own that are kept.
_KEPT_KEYS = 1024


class _Form(NamedTuple):
    """What the files of a series share: variables, and attributes.

    ``heads``: the variables that have values, by position; ``keys``: digests of the attributes by those that files change.
    """

    variables: object
    stated: _Stated
    heads: Mapping[int, Variable]
    keys: dict[object, bytes]


def _form(table: StructureTable, row: int, identifying: Collection[str]) -> _Form | None:
    """Return the form of a variant, None if it is in no series."""
    variant, heads = table.variants[table.variant[row]], _heads(table, row)
    if variant.groups or any("/" in v.name or v.scopes is not None for v in heads) or samplings_of(table[row]):
        return None
    m = variant.model
    if m.external_files:
        return None  # the sources of virtual datasets differ from file to file
    model = m.format, m.skipped, m.has_external_coordinates, m.sizes is None, fixed_names(m)
    mappings = [(-1, table.template(row)), *((position, v.attrs) for position, v in enumerate(heads))]
    valued = {position: heads[position] for position in variant.valued}
    stated = [
        (p, n, _text(valued, p, n, value)) for p, attrs in mappings for n, value in attrs.items() if _matters(p, n, identifying)
    ]
    return _Form((model, tuple((v.name, v.dtype, v.dimensions) for v in heads)), frozenset(stated), valued, {})


def _text(heads: Mapping[int, Variable], position: int, name: str, value: Any) -> str:
    """Return an attribute as text, "" for units that may differ."""
    return "" if name == "units" and position in heads and counts_time(heads[position], value) else as_text(value)


def _key(form: _Form, own: Mapping[int, Own], identifying: Collection[str]) -> bytes:
    """Return a digest of stated attributes with those of a file's own."""
    changed = {
        (position, name): _text(form.heads, position, name, value)
        for position, pairs in own.items()
        for name, value in zip(pairs[::2], pairs[1::2], strict=True)
        if _matters(position, name, identifying)
    }
    changes = tuple(changed.items())
    key = form.keys.get(changes)
    if key is None:
        stated = sorted([(p, n, changed.get((p, n), text)) for p, n, text in form.stated])
        key = blake2b(repr(stated).encode("utf-8", "surrogatepass"), digest_size=16).digest()
        if len(form.keys) < _KEPT_KEYS:
            form.keys[changes] = key
    return key


def _matters(position: int, name: str, identifying: Collection[str]) -> bool:
    """Return whether an attribute matters for joins.

    Those of the file do if they are identifying, those of variables unless they are free.
    """
    return name in identifying or (position >= 0 and name not in _FREE)


def _heads(table: StructureTable, row: int) -> list[Variable]:
    return [table.heads[head][0] for head in table.variants[table.variant[row]].heads]


def _bounds_of(heads: Sequence[Variable], coordinate: int) -> list[int]:
    """Return the positions of the bounds of a coordinate."""
    attrs = heads[coordinate].attrs
    names = {name for attribute in ("bounds", "climatology") for name in words(attrs.get(attribute))}
    return [p for p, v in enumerate(heads) if v.name in names and p != coordinate]


def _split(table: StructureTable, rows: list[int]) -> Iterator[FileSeries]:
    """Yield the series among files of equal form."""
    heads, variants = _heads(table, rows[0]), [table.variants[n] for n in {table.variant[row] for row in rows}]
    valued = [p for p in range(len(heads)) if all(p in variant.valued for variant in variants)]
    units = {p: [units_of(table, row, p) for row in rows] for p in valued if counts_time(heads[p], heads[p].attrs.get("units"))}
    varying = {}
    for p in valued:
        refs = table.refs_at(rows, p)
        if p in units and len(set(units[p])) > 1:
            varying[p] = len(set(zip(refs.tolist(), units[p], strict=True)))
        elif (refs != refs[0]).any():
            varying[p] = distinct(refs).size
    spanned = {d for v in heads for d in v.dimensions}
    coordinates = [p for p in varying if heads[p].dimensions == (heads[p].name,) and heads[p].dtype.kind in "iuf"]
    coordinates += [
        p for p in varying if heads[p].dimensions == () and heads[p].dtype.kind in "iuf" and heads[p].name not in spanned
    ]
    coordinates = [p for p in coordinates if heads[p].attrs.get("units") not in EAST]  # longitudes may be equal modulo 360
    if not coordinates:
        return
    coordinate = max(coordinates, key=varying.__getitem__)
    dimension = heads[coordinate].name
    stackable = [] if heads[coordinate].dimensions else [coordinate, *_bounds_of(heads, coordinate)]
    others = [p for p in varying if dimension not in heads[p].dimensions and p not in stackable]
    keys: dict[int, object] = {}
    parts: dict[object, list[int]] = {}
    for n, row in enumerate(rows):
        number = table.variant[row]
        if number not in keys:
            keys[number] = _shapes(table, row, dimension, coordinate)
        if keys[number] is not None:
            values = tuple([(table.value_key_at(row, p), units[p][n] if p in units else None) for p in others])
            parts.setdefault((keys[number], values), []).append(row)
    for part in parts.values():
        if len(part) > 1 and (coordinate not in units or len(set(units[coordinate])) == 1 or counted_with(heads, coordinate)):
            with suppress(AggarrayError):  # units that do not convert
                yield FileSeries(table, part, dimension, coordinate)


def _shapes(table: StructureTable, row: int, dimension: str, coordinate: int) -> object:
    """Return shapes and valued variables of a variant without the dimension.

    None if a size along the dimension is not that of the coordinate.
    """
    heads = _heads(table, row)
    size = prod(heads[coordinate].shape)
    if not size or any(n != size for v in heads for d, n in zip(v.dimensions, v.shape, strict=True) if d == dimension):
        return None
    shapes = tuple(tuple(n for d, n in zip(v.dimensions, v.shape, strict=True) if d != dimension) for v in heads)
    valued = table.variants[table.variant[row]].valued
    return shapes, tuple(p for p in valued if dimension not in heads[p].dimensions)
