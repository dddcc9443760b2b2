"""Scanned structures of the files of an index, kept for `append`.

Similar files share attributes, variables without their values, and values: these are tables of distinct items, and each file is
a row of numbers into them.
"""

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from aggarray.formats.base import Attributes, Structure, Variable
from aggarray.index.decoder import unplain
from aggarray.index.encoder import plain
from aggarray.index.store import Reader, Writer, plain_dtype

_NO_VALUES = -1
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
    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        self.pairs, self.heads, self.values = _Table(), _Table(), _Table()
        self._heads: dict[tuple[Any, ...], tuple[int, Attributes]] = {}
        self._large: dict[int, tuple[int, np.ndarray]] = {}

    def attrs(self, attrs: Attributes) -> list[int]:
        pairs = ((name, plain(value)) for name, value in attrs.items())
        return [self.pairs.number(item if isinstance(item[1], str) else repr(item), item) for item in pairs]

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
        return known[0], _NO_VALUES if v.values is None else self._values_number(v.values)

    def _values_number(self, values: np.ndarray) -> int:
        known = self._large.get(id(values))
        if known is None:
            spec = self.writer.value(values)
            known = self.values.number(repr(spec), spec), values
            if values.nbytes >= _LARGE:
                self._large[id(values)] = known
        return known[0]


def pack(structures: Iterable[Structure], codes: np.ndarray, writer: Writer) -> dict[str, Any]:
    """Encode structures; ``codes``: the number of the file of each."""
    packer, formats = _Packer(writer), _Table()
    variables, attrs, rows = array("q"), array("q"), array("q")
    others: dict[str, Any] = {}
    sizes: dict[str, dict[str, int]] = {}
    external: dict[str, list[str]] = {}
    for number, s in enumerate(structures):
        for v in s.variables:
            variables.extend(packer.variable(v))
        own = packer.attrs(s.attrs)
        attrs.extend(own)
        stamp = s.stamp or (-1, 0, 0)
        rows.extend((formats.number(s.format, s.format), *stamp, len(s.variables), len(own)))
        if s.groups or s.skipped:
            groups = [[name, packer.attrs(a)] for name, a in s.groups.items()]
            others[str(number)] = [groups, [list(pair) for pair in s.skipped]]
        # Dimensions without a variable matter if samples refer to their instance.
        if s.sizes and any("instance_dimension" in v.attrs for v in s.variables):
            sizes[str(number)] = dict(s.sizes)
        if s.external_files:
            external[str(number)] = list(s.external_files)
    flat = np.array(variables, np.int64).reshape(-1, 2)
    kinds, *stamps, variable_counts, attr_counts = np.array(rows, np.int64).reshape(-1, 6).T
    column = writer.column
    return {
        **({"sizes": sizes} if sizes else {}),
        **({"external": external} if external else {}),
        "file": column(codes),
        "format": column(kinds),
        "formats": formats.items,
        "stamps": [column(c) for c in stamps],
        "counts": [column(variable_counts), column(attr_counts)],
        "variables": [column(c) for c in flat.T],
        "attrs": column(np.array(attrs, np.int64)),
        "pairs": packer.pairs.items,
        "heads": packer.heads.items,
        "values": packer.values.items,
        "others": others,
    }


def unpack(encoded: Mapping[str, Any], files: Sequence[str], reader: Reader) -> Iterator[Structure]:
    """Yield the structures that `pack` encoded, with shared items shared."""
    column = reader.column
    pairs = [(name, unplain(value)) for name, value in encoded["pairs"]]
    if not all(isinstance(name, str) for name, _ in pairs):
        raise ValueError("name of an attribute is not text")
    values = [reader.value(spec) for spec in encoded["values"]]
    heads = [_variable(head, pairs) for head in encoded["heads"]]
    distinct: dict[tuple[int, int], Variable] = {}
    variables = []
    for pair in zip(*(column(c).tolist() for c in encoded["variables"]), strict=True):
        if pair not in distinct:
            variable = heads[pair[0]]
            distinct[pair] = variable if pair[1] == _NO_VALUES else replace(variable, values=values[pair[1]])
            if pair[1] != _NO_VALUES and values[pair[1]].shape != variable.shape:
                raise ValueError(f"values of another shape than {variable.shape} for variable {variable.name!r}")
        variables.append(distinct[pair])
    attrs = [pairs[n] for n in column(encoded["attrs"]).tolist()]
    stamps = np.stack([column(c) for c in encoded["stamps"]], axis=-1).tolist()
    counts = (column(c).tolist() for c in encoded["counts"])
    columns = zip(column(encoded["file"]).tolist(), column(encoded["format"]).tolist(), stamps, *counts, strict=True)
    first_variable, first_attr = 0, 0
    for number, (file, format_number, stamp, variable_count, attr_count) in enumerate(columns):
        groups, skipped = encoded["others"].get(str(number), ((), ()))
        yield Structure(
            files[file],
            encoded["formats"][format_number],
            dict(attrs[first_attr : first_attr + attr_count]),
            tuple(variables[first_variable : first_variable + variable_count]),
            {name: dict(pairs[n] for n in numbers) for name, numbers in groups},
            tuple((name, reason) for name, reason in skipped),
            encoded.get("sizes", {}).get(str(number)),
            stamp=None if stamp[0] < 0 else (stamp[0], stamp[1], stamp[2]),
            external_files=tuple(map(str, encoded.get("external", {}).get(str(number), ()))),
        )
        first_variable, first_attr = first_variable + variable_count, first_attr + attr_count


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
