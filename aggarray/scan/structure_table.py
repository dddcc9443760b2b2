"""Structures of many files as columns.

Files of an archive share names, attributes and most coordinates. These are stored once. Of each file the table keeps its path,
its state, and the values and attributes that are its own. Structures are made again on access.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from math import prod
from typing import Any, overload

import numpy as np

from aggarray.cf.frozen import FrozenDict
from aggarray.dataclass import dataclass, replace
from aggarray.formats.base import FixedStructure, Structure, Variable, fixed_names
from aggarray.scan.attribute_table import AttributeTable, Own
from aggarray.storage.blake2 import blake2b
from aggarray.storage.state import Stamp

#: Equal values of at least this many bytes are stored once; smaller ones are, if they are those of the first file.
_LARGE = 1024
#: Kinds of dtypes whose values are stored as bytes.
_PLAIN = frozenset("biufcmM")


@dataclass(frozen=True, slots=True, eq=False)
class Variant:
    """What files of one form share.

    ``heads``: numbers of the variables without values; ``valued``: positions of those that have values; ``attrs`` and
    ``groups``: numbers of templates of attributes, the latter with the group's path; ``model``: everything else;
    ``first``: bytes, None if large, and reference of the values of the first file.
    """

    heads: tuple[int, ...]
    valued: tuple[int, ...]
    attrs: int
    groups: tuple[tuple[str, int], ...]
    model: Structure
    first: tuple[tuple[bytes | None, int], ...]


class StructureTable(Sequence[Structure]):
    """Sequence of structures in columns.

    ``uris``: the files; ``variant``: the number of each in ``variants``; ``heads``: variables without values, with the number
    of their attributes; ``seen``: a hash of what was read of each assumed file, else -1; ``own``: {row: {position: `Own`}} of
    the attributes of variables by their position, of the file (-1), and of groups (after the variables).
    """

    def __init__(self, structures: Iterable[Structure] = ()) -> None:
        self.uris: list[str] = []
        self.variants: list[Variant] = []
        self.heads: list[tuple[Variable, int]] = []
        self.attributes = AttributeTable()
        self.variant, self.seen = array("i"), array("q")
        self.own: dict[int, dict[int, Own]] = {}
        self._stamps, self._start, self._refs = array("q"), array("q"), array("q")
        self._bytes, self._arrays = bytearray(), list[np.ndarray]()
        self._numbers: dict[object, int] = {}
        self._made: dict[tuple[int, int], Variable] = {}
        for structure in structures:
            self.add(structure)

    def add(self, structure: Structure, uri: str | None = None) -> int:
        """Append a structure; return its row. ``uri``: its URI, kept instead."""
        row, own = len(self.uris), dict[int, Own]()
        number = self._variant(structure, own)
        variant = self.variants[number]
        self.variant.append(number)
        self._start.append(len(self._refs))
        for position, (first, ref) in zip(variant.valued, variant.first, strict=True):
            v = structure.variables[position]
            values: np.ndarray = v.values  # type: ignore[assignment]
            same = first is not None and values.nbytes == len(first) and values.tobytes() == first and values.shape == v.shape
            self._refs.append(ref if same else self._reference(v, values))
        self._stamps.extend(structure.stamp or (-1, 0, 0))
        self.seen.append(-1 if structure.assumed is None else _own_number(structure))
        self.uris.append(structure.uri if uri is None else uri)
        if own:
            self.own[row] = own
        return row

    def _variant(self, structure: Structure, own: dict[int, Own]) -> int:
        """Return the number of the variant of a structure; add its own attributes."""
        s, add, numbers = structure, self.attributes.add, self._numbers
        heads, valued = [], []
        for position, v in enumerate(s.variables):
            attrs, values = add(v.attrs, v.name)
            if values:
                own[position] = values
            key = v.name, v.dtype, v.shape, v.dimensions, attrs, v.scopes
            head = numbers.get(key)
            if head is None:
                head = numbers[key] = len(self.heads)
                self.heads.append((replace(v, attrs=self.attributes.templates[attrs], values=None), attrs))
            heads.append(head)
            if v.values is not None:
                valued.append(position)
        attrs, values = add(s.attrs)
        if values:
            own[-1] = values
        groups = []
        for position, (name, group_attrs) in enumerate(s.groups.items(), len(heads)):
            number, values = add(group_attrs, name)
            groups.append((name, number))
            if values:
                own[position] = values
        sizes = None if s.sizes is None else tuple(s.sizes.items())
        external = s.has_external_coordinates, s.external_files
        flags = s.format, s.skipped, sizes, id(s.assumed), *external, s.given, fixed_names(s)
        parts = tuple(heads), tuple(valued), attrs, tuple(groups)
        number = numbers.get((*parts, *flags), -1)
        if number < 0:
            number = numbers[(*parts, *flags)] = len(self.variants)
            model = replace(s, uri="", attrs={}, variables=(), groups={}, stamp=None)
            first = tuple([self._first(s.variables[position]) for position in valued])
            self.variants.append(Variant(*parts, model, first))
        return number

    def _first(self, variable: Variable) -> tuple[bytes | None, int]:
        values: np.ndarray = variable.values  # type: ignore[assignment]
        if values.nbytes >= _LARGE or not _is_plain(variable, values):
            return None, self._reference(variable, values)
        self._arrays.append(values)
        return values.tobytes(), len(self._arrays) - 1

    def _reference(self, variable: Variable, values: np.ndarray) -> int:
        """Store values; return the number of an array, or ~ a position of bytes."""
        if not _is_plain(variable, values):
            self._arrays.append(values)
        elif values.nbytes < _LARGE:
            self._bytes += values.tobytes()
            return ~(len(self._bytes) - values.nbytes)
        else:
            digest = blake2b(np.ascontiguousarray(values).data, digest_size=16).digest()
            number = self._numbers.setdefault((values.shape, values.dtype, digest), len(self._arrays))
            if number < len(self._arrays):
                return number
            self._arrays.append(values)
        return len(self._arrays) - 1

    def __len__(self) -> int:
        return len(self.uris)

    @overload
    def __getitem__(self, item: int) -> Structure: ...
    @overload
    def __getitem__(self, item: slice) -> list[Structure]: ...
    def __getitem__(self, item: int | slice) -> Structure | list[Structure]:
        if isinstance(item, slice):
            return [self[row] for row in range(len(self))[item]]
        row = range(len(self))[item]
        variant, own = self.variants[self.variant[row]], self.own.get(row, {})
        variables = [self.heads[head][0] for head in variant.heads]
        for number, position in enumerate(variant.valued, self._start[row]):
            variables[position] = self._with_values(variant.heads[position], self._refs[number])
        for position in own:
            if 0 <= position < len(variables):
                variables[position] = replace(variables[position], attrs=self.attrs(row, position))
        groups = {name: self.attrs(row, position) for position, (name, _) in enumerate(variant.groups, len(variables))}
        s, uri, attrs = variant.model, self.uris[row], self.attrs(row)
        seen: dict[str, Any] = {"seen": self.seen[row]} if isinstance(s, FixedStructure) else {}
        return replace(s, uri=uri, attrs=attrs, variables=tuple(variables), groups=groups, stamp=self.stamp(row), **seen)

    def _with_values(self, head: int, ref: int) -> Variable:
        made = self._made.get((head, ref))
        if made is None:
            variable = self.heads[head][0]
            made = replace(variable, values=self._values(variable, ref))
            if ref >= 0:
                self._made[head, ref] = made
        return made

    def attrs(self, row: int, position: int = -1) -> FrozenDict[Any]:
        """Return the attributes of the file, or those at a position of ``own``."""
        return self.attributes.mapping(self._template(row, position), self.own.get(row, {}).get(position, ()))

    def stamp(self, row: int) -> Stamp | None:
        """Return the state of a file when it was scanned, None if unknown."""
        size, time, checksum = self._stamps[3 * row : 3 * row + 3]
        return None if size < 0 else (size, time, checksum)

    def stamps(self) -> np.ndarray:
        """Return the states of the files, int64 (n, 3), size -1 if unknown."""
        return np.array(self._stamps, np.int64).reshape(-1, 3)

    def template(self, row: int, position: int = -1) -> FrozenDict[Any]:
        """Return the attributes from which ``own`` differ."""
        return self.attributes.templates[self._template(row, position)]

    def _template(self, row: int, position: int) -> int:
        variant = self.variants[self.variant[row]]
        if position < 0:
            return variant.attrs
        count = len(variant.heads)
        return self.heads[variant.heads[position]][1] if position < count else variant.groups[position - count][1]

    def refs_at(self, rows: Sequence[int], position: int) -> np.ndarray:
        """Return references to the values of a variable, int64, one for each row.

        Equal references are of equal values, different ones may be.
        """
        places = {n: variant.valued.index(position) for n, variant in enumerate(self.variants) if position in variant.valued}
        starts, variants, refs = self._start, self.variant, self._refs
        return np.array([refs[starts[row] + places[variants[row]]] for row in rows], np.int64)

    def _ref(self, row: int, position: int) -> int:
        return self._refs[self._start[row] + self.variants[self.variant[row]].valued.index(position)]

    def values_at(self, row: int, position: int) -> np.ndarray:
        """Return the values of a variable that has them, read-only."""
        head = self.variants[self.variant[row]].heads[position]
        return self._values(self.heads[head][0], self._ref(row, position))

    def bytes_at(self, row: int, position: int) -> bytes:
        """Return the values of a variable of numbers as bytes."""
        ref = self._ref(row, position)
        if ref >= 0:
            return self._arrays[ref].tobytes()
        return self._own_bytes(self.heads[self.variants[self.variant[row]].heads[position]][0], ref)

    def value_key_at(self, row: int, position: int) -> object:
        """Return a key that is equal for equal values."""
        values = self.values_at(row, position)
        if values.dtype.kind not in _PLAIN:
            return values.shape, tuple(map(str, values.ravel().tolist()))
        ref = self._ref(row, position)
        if ref < 0 or values.nbytes < _LARGE:
            return values.shape, values.tobytes()
        return values.shape, ref  # large arrays are stored once

    def _values(self, variable: Variable, ref: int) -> np.ndarray:
        if ref >= 0:
            return self._arrays[ref]
        return np.frombuffer(self._own_bytes(variable, ref), variable.dtype).reshape(variable.shape)

    def _own_bytes(self, variable: Variable, ref: int) -> bytes:
        size = variable.dtype.itemsize * prod(variable.shape)
        return bytes(self._bytes[~ref : ~ref + size])

    def take(self, rows: Sequence[int]) -> StructureTable:
        """Return some of the structures in the order given, without a copy."""
        if len(rows) == len(self) and list(rows) == list(range(len(self))):
            return self
        return self._taken(rows)

    def extended(self, structures: Iterable[Structure]) -> StructureTable:
        """Return these structures and others, without a copy of these."""
        table = self._taken(range(len(self)))
        for structure in structures:
            table.add(structure)
        return table

    def _taken(self, rows: Sequence[int]) -> StructureTable:
        taken = StructureTable()
        for name in ("variants", "heads", "attributes", "_refs", "_bytes", "_arrays", "_numbers", "_made"):
            setattr(taken, name, getattr(self, name))
        taken.uris = [self.uris[row] for row in rows]
        for name in ("variant", "seen", "_start"):
            column = getattr(self, name)
            setattr(taken, name, array(column.typecode, [column[row] for row in rows]))
        for row in rows:
            taken._stamps.extend(self._stamps[3 * row : 3 * row + 3])
        taken.own = {new: self.own[row] for new, row in enumerate(rows) if row in self.own} if self.own else {}
        return taken


def stamped(structures: Iterable[Structure]) -> Iterator[tuple[str, Stamp | None]]:
    """Yield the file and the state of each structure."""
    if isinstance(structures, StructureTable):
        yield from ((uri, structures.stamp(row)) for row, uri in enumerate(structures.uris))
    else:
        yield from ((s.uri, s.stamp) for s in structures)


def _is_plain(variable: Variable, values: np.ndarray) -> bool:
    return values.dtype.kind in _PLAIN and values.shape == variable.shape and values.dtype == variable.dtype


def _own_number(structure: Structure) -> int:
    from aggarray.scan.comparison import own_number

    return -1 if structure.assumed is None else own_number(structure, structure.assumed)
