"""Scanned structures of the files of an index, written for `append`.

Similar files share attributes, variables without their values, and values: these are tables of distinct items, and each file is
a row of numbers into them.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Any

import numpy as np

from aggarray.formats.base import Attributes, Structure, Variable
from aggarray.index.encoder import plain
from aggarray.index.record_columns import FEW_VALUES, NO_VALUES, TEXTS, VALUE_COLUMNS_SCHEMA, RecordColumns
from aggarray.index.store import Writer

#: Values of at least this many bytes are recognised by their id.
_LARGE = 1024
#: Most variables that are recognised by the id of their attributes.
_KNOWN = 4096


class _Table:
    """Distinct items in the order of their first use."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        self._numbers: dict[Any, int] = {}

    def number(self, key: Any, item: Any) -> int:
        number = self._numbers.setdefault(key, len(self.items))
        if number == len(self.items):
            self.items.append(item)
        return number


class _Packer:
    """Numbers of distinct items; ``base``: the records that they continue."""

    def __init__(self, writer: Writer, base: RecordColumns | None) -> None:
        self.writer, self._base = writer, base
        self.pairs, self.heads, self.values, self.formats, self.given = (_Table() for _ in range(5))
        self._heads: dict[tuple[Any, ...], tuple[int, Attributes]] = {}
        self._large: dict[int, tuple[int, np.ndarray]] = {}
        self._first_value = 0
        if base is not None:
            self._first_value = len(base.values)
            for name, value in base.pairs:
                self._pair(name, value)
            for head in base.heads:
                self.heads.number(repr(head), head)
            for text in base.formats:
                self.formats.number(text, text)
            for names in base.given:
                self.given.number(tuple(names), names)

    def _pair(self, name: str, value: Any) -> int:
        return self.pairs.number((name, value) if isinstance(value, str) else repr((name, value)), (name, value))

    def attrs(self, attrs: Attributes) -> list[int]:
        return [self._pair(name, plain(value)) for name, value in attrs.items()]

    def variable(self, variable: Variable) -> tuple[int, int]:
        """Return the numbers of a variable without values, and of its values."""
        v = variable
        key = v.name, v.dtype, v.shape, v.dimensions, id(v.attrs), v.scopes
        known = self._heads.get(key)
        if known is None:
            dtype = "text" if v.dtype.kind == "T" else v.dtype.str
            head = [v.name, dtype, list(v.shape), list(v.dimensions), self.attrs(v.attrs)]
            head += [] if v.scopes is None else [list(v.scopes)]
            if len(self._heads) >= _KNOWN:
                self._heads.clear()
            # Holding the attributes keeps their id unique.
            known = self._heads[key] = (self.heads.number(repr(head), head), v.attrs)
        return known[0], NO_VALUES if v.values is None else self._values_number(v.values)

    def _values_number(self, values: np.ndarray) -> int:
        known = self._large.get(id(values))
        if known is None:
            earlier = None if self._base is None else self._base.values.find(values)
            if earlier is None:
                spec = self.writer.value(values)
                known = self._first_value + self.values.number(repr(spec), spec), values
            else:
                known = earlier, values
            if values.nbytes >= _LARGE:
                self._large[id(values)] = known
        return known[0]


def pack(
    structures: Iterable[Structure], codes: np.ndarray, writer: Writer, base: RecordColumns | None = None
) -> dict[str, Any]:
    """Encode structures, after those of ``base``.

    ``codes``: the number of the file of each.
    """
    packer = _Packer(writer, base)
    variables, attrs, rows, given_rows = array("q"), array("q"), array("q"), array("q")
    others: dict[str, Any] = {} if base is None else dict(base.others)
    sizes: dict[str, dict[str, int]] = {} if base is None else dict(base.sizes)
    external: dict[str, list[str]] = {} if base is None else dict(base.external)
    for number, s in enumerate(structures, 0 if base is None else len(base)):
        for v in s.variables:
            variables.extend(packer.variable(v))
        own = packer.attrs(s.attrs)
        attrs.extend(own)
        stamp = s.stamp or (-1, 0, 0)
        rows.extend((packer.formats.number(s.format, s.format), *stamp, len(s.variables), len(own)))
        if s.groups or s.skipped:
            groups = [[name, packer.attrs(a)] for name, a in s.groups.items()]
            others[str(number)] = [groups, [list(pair) for pair in s.skipped]]
        given_rows.append(packer.given.number(s.given, list(s.given)))
        # Dimensions without a variable matter if samples refer to their instance.
        if s.sizes and any("instance_dimension" in v.attrs for v in s.variables):
            sizes[str(number)] = dict(s.sizes)
        if s.external_files:
            external[str(number)] = list(s.external_files)
    columns = [np.array(c, np.int64).reshape(-1, n) for c, n in ((rows, 6), (variables, 2), (attrs, 1), (given_rows, 1))]
    if base is not None:
        earlier = base.rows, base.variables, base.attrs[:, np.newaxis], base.given_rows[:, np.newaxis]
        columns = [np.concatenate(pair) for pair in zip(earlier, columns, strict=True)]
    return {
        **({"sizes": sizes} if sizes else {}),
        **({"external": external} if external else {}),
        "file": writer.column(codes),
        "others": others,
        **_packed_columns(columns, packer, writer),
        **_packed_values(packer.values.items, writer, base),
    }


def _packed_columns(columns: list[np.ndarray], packer: _Packer, writer: Writer) -> dict[str, Any]:
    """Return the columns of structures, variables, attributes and given names."""
    column, ((kinds, *stamps, variable_counts, attr_counts), variables, (attrs,), (given,)) = (
        writer.column,
        (c.T for c in columns),
    )
    return {
        **({"given": [packer.given.items, column(given)]} if any(packer.given.items) else {}),
        "format": column(kinds),
        "formats": packer.formats.items,
        "stamps": [column(c) for c in stamps],
        "counts": [column(variable_counts), column(attr_counts)],
        "variables": [column(c) for c in variables],
        "attrs": column(attrs),
        "pairs": packer.pairs.items,
        "heads": packer.heads.items,
    }


def _packed_values(specs: list[Any], writer: Writer, base: RecordColumns | None) -> dict[str, Any]:
    """Return specifications of values, as columns if they are many."""
    if base is None and len(specs) <= FEW_VALUES:
        return {"values": specs}
    table, texts = _Table(), list[Any]()
    kinds, ats = (np.zeros(0, np.int64),) * 2 if base is None else base.values.written(writer, table.number, texts)
    own = array("q")
    for spec in specs:
        if "texts" in spec:
            own.extend((TEXTS, len(texts)))
            texts.append(spec)
        else:
            kind = [spec["dtype"], spec["shape"]]
            own.extend((table.number(repr(kind), kind), spec["at"]))
    added = np.array(own, np.int64).reshape(-1, 2)
    kinds, ats = np.concatenate([kinds, added[:, 0]]), np.concatenate([ats, added[:, 1]])
    if len(kinds) <= FEW_VALUES:
        pairs = zip(kinds.tolist(), ats.tolist(), strict=True)
        forms = table.items
        return {
            "values": [texts[at] if k == TEXTS else {"dtype": forms[k][0], "shape": forms[k][1], "at": at} for k, at in pairs]
        }
    writer.require(VALUE_COLUMNS_SCHEMA)
    return {"values": texts, "value_kinds": table.items, "value_columns": [writer.column(kinds), writer.column(ats)]}
