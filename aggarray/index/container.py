"""Variables and dimensions of an index, as other software reads them.

`Container` writes coordinates and arrays in memory by value, gives conflicting names suffixes, and adapts attributes that refer
to variables. Each convention is a subclass that writes the locations of the fragments of an array.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from itertools import chain, count
from typing import Any

import numpy as np

from aggarray.arrays.master import MasterArray
from aggarray.arrays.ragged_variables import flatten_ragged
from aggarray.cf.attributes import basename, words
from aggarray.dataclass import dataclass, field
from aggarray.errors import AggarrayError
from aggarray.formats.base import ROWS
from aggarray.index.notice import with_notice
from aggarray.memory.texts import Texts
from aggarray.partition.matrix import Matrix, References, used_rows

#: Returns the URI references of all files, and the number of each URI of a table of sub-arrays.
ReferencesOf = Callable[[References], tuple[Texts, np.ndarray]]

#: Coordinates of more bytes that were not scanned are written as fragments, not by value.
_LARGE = 1 << 25
#: Blanks and colons end a name in an attribute of names; netCDF forbids slashes and control characters.
_NOT_IN_NAMES = re.compile(r"[\s\x00-\x1f\x7f/:]")
#: Most bytes of a name without suffix; the limit of netCDF is 256.
_MAX_NAME = 200
#: Attributes that the conventions, or netCDF-4 in HDF5, use themselves.
_RESERVED = frozenset(
    ("aggregated_dimensions", "aggregated_data", "CLASS", "NAME", "DIMENSION_LIST", "REFERENCE_LIST", "DIMENSION_LABELS")
)
#: The dtypes of netCDF.
_DTYPES = frozenset(("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8"))


def _valid_name(name: str) -> str:
    """Return a name that is valid in netCDF and in attributes of names.

    >>> _valid_name("a b"), _valid_name(".x"), _valid_name("")
    ('a_b', '_.x', 'unnamed')
    """
    plain = _NOT_IN_NAMES.sub("_", name).encode("utf-8", "replace")[:_MAX_NAME].decode("utf-8", "ignore")
    return plain or "unnamed" if plain[:1].isalnum() or plain[:1] in ("", "_") else f"_{plain}"


@dataclass(slots=True)
class VariableNames:
    """Unique names of dimensions and variables; conflicting ones get suffixes."""

    assigned: dict[Any, str] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)

    def of(self, key: Any, preferred: str | None) -> tuple[str, bool]:
        """Return the name of the item with this key, and whether it is new."""
        if key in self.assigned:
            return self.assigned[key], False
        preferred = _valid_name(basename(preferred or ""))
        name = next(n for n in chain([preferred], (f"{preferred}_{i}" for i in count(2))) if n not in self.taken)
        self.assigned[key] = name
        self.taken.add(name)
        return name, True


class Container:
    """Dataset being written; ``references`` returns the URIs of a table.

    ``redefined``: (file, variable) of stored values that mean something else here than in their file.
    """

    conventions = ""
    redefined: Collection[tuple[str, str]] = ()

    def __init__(self, dataset: Any, references: ReferencesOf) -> None:
        self.dataset, self.references = dataset, references
        self.names = VariableNames()
        self.left_out: list[tuple[str, str]] = []

    def reason(self, array: MasterArray) -> str | None:
        """Return why the convention cannot express an array, None if it can."""
        raise NotImplementedError

    def aggregated(self, array: MasterArray, name: str, dimensions: Sequence[str]) -> Any:
        """Write and return a scalar variable that locates fragments."""
        raise NotImplementedError

    def global_attributes(self, arrays: Sequence[MasterArray]) -> dict[str, Any]:
        """Return the common attributes of the arrays, and how to open an index."""
        attrs = plain_attributes(common_attributes(arrays))
        comment = with_notice(attrs.pop("comment", None), self.conventions.split()[-1])
        # Last, where programs that shorten a list of attributes show it.
        return {**attrs, "Conventions": self.conventions, "comment": comment}

    def write_all(self, arrays: Sequence[MasterArray]) -> list[tuple[str, str]]:
        """Write arrays; return (name, reason) of those that are left out."""
        self.dataset.setncatts(self.global_attributes(arrays))
        written, by_name = [], dict[str, list[str]]()
        for number, array in enumerate(map(flatten_ragged, arrays)):
            reason = self._unfit(array) or (None if in_memory(array._matrix) else self._reason(array))
            if reason is not None:
                self.left_out.append((array.name or "unnamed", reason))
                continue
            names = self._coordinates(array)
            name, _ = self.names.of(("array", number), array.name)
            write = self._valued if in_memory(array._matrix) else self.aggregated
            written.append((array, names, write(array, name, [names[d] for d in array.dimensions])))
            by_name.setdefault(array.name or "", []).append(name)
        unique = {name: variables[0] for name, variables in by_name.items() if len(variables) == 1}
        for array, names, variable in written:
            attrs = attributes_of(array, names)
            for attribute in ("ancillary_variables", "formula_terms"):
                if isinstance(attrs.get(attribute), str):
                    attrs[attribute] = _renamed(attrs[attribute], {**unique, **names})
            if coordinates := coordinates_attribute(array, names):
                attrs["coordinates"] = coordinates
            variable.setncatts(attrs)
        return self.left_out

    def _reason(self, array: MasterArray) -> str | None:
        """Return why other software cannot read an array from its files."""
        references = array._matrix.references
        if self.redefined and not {name for _, name in self.redefined}.isdisjoint(references.variables):
            rows = used_rows(array._matrix.refs, len(references))
            rows = rows[references.uri[rows] >= 0]
            columns = references.uri[rows].tolist(), references.variable[rows].tolist()
            if any((references.uris[n], references.variables[k]) in self.redefined for n, k in zip(*columns, strict=True)):
                return "a fix changes its units or packing, which the files state otherwise"
        return self.reason(array)

    def _unfit(self, array: MasterArray) -> str | None:
        if array.dtype.kind != "T" and array.dtype.str[1:] not in _DTYPES:
            return f"netCDF has no type for {array.dtype}"
        return "it has no elements" if array.size == 0 else None

    def _coordinates(self, array: MasterArray) -> dict[str, str]:
        """Write new coordinates; return names of all coordinates and dimensions."""
        sizes = {d: n for a in (*array.coords.values(), array) for d, n in zip(a.dimensions, a.shape, strict=True)}
        keys = self._keys(array)
        names = self._dimension_names(array, keys, sizes)
        variables = {}
        for name, key in keys.items():
            coordinate = array.coords[name]
            dimensions = tuple(names[d] for d in coordinate.dimensions)
            if _is_coordinate_variable(coordinate, name):
                variable, new = names[name], ("coordinate", names[name]) not in self.names.assigned
                self.names.assigned["coordinate", variable] = variable
            else:
                variable, new = self.names.of(("auxiliary", name, key, dimensions), name)
                names[name] = variable
            if new:
                write = self._valued if self._by_value(coordinate) else self.aggregated
                variables[name] = write(coordinate, variable, dimensions)
        for name, variable in variables.items():
            variable.setncatts(attributes_of(array.coords[name], names))
        return names

    def _dimension_names(self, array: MasterArray, keys: Mapping[str, Any], sizes: Mapping[str, int]) -> dict[str, str]:
        """Write new dimensions; return the names of all."""
        names = {}
        for dimension, size in sizes.items():
            key = keys.get(dimension) if _is_coordinate_variable(array.coords.get(dimension), dimension) else None
            names[dimension], new = self.names.of(("dimension", dimension, size, key), dimension)
            if new:
                self.dataset.createDimension(names[dimension], size)
        return names

    def _keys(self, array: MasterArray) -> dict[str, Any]:
        """Return a key for each readable coordinate; equal ones have equal keys."""
        keys = {}
        for name, coordinate in array.coords.items():
            try:
                reason = self._unfit(coordinate) if coordinate.size else None
                keys[name] = _content(coordinate) if self._by_value(coordinate) else id(coordinate)
            except AggarrayError as error:
                reason = f"it cannot be read: {error}"
            if reason is not None:
                keys.pop(name, None)
                self.left_out.append((f"{name}, a coordinate of {array.name},", reason))
        for name in keys:
            # Coordinates with different bounds are different.
            hung = [keys.get(basename(w)) for a in ("bounds", "climatology") for w in words(array.coords[name].attrs.get(a))]
            keys[name] = (keys[name], *hung) if hung else keys[name]
        return keys

    def _by_value(self, coordinate: MasterArray) -> bool:
        """Return whether a coordinate is stored by value: small or scanned."""
        return coordinate._known is not None or coordinate.nbytes <= _LARGE or self._reason(coordinate) is not None

    def variable(self, name: str, dtype: Any, dimensions: Sequence[str], fill: Any = None) -> Any:
        """Create a netCDF4 variable whose values are written unchanged."""
        created = self.dataset.createVariable(name, str if dtype.kind in "TO" else dtype, tuple(dimensions), fill_value=fill)
        created.set_auto_maskandscale(False)
        return created

    def _valued(self, array: MasterArray, name: str, dimensions: Sequence[str]) -> Any:
        values, mask = array._values_and_mask()
        has_missing = mask is not None and mask.any() and array.dtype.kind != "T"
        variable = self.variable(name, array.dtype, dimensions, array.fill_value if has_missing else None)
        values = values.astype(object) if array.dtype.kind == "T" else values
        variable[...] = values if values.ndim else values.item()
        return variable


def _is_coordinate_variable(coordinate: MasterArray | None, name: str) -> bool:
    return coordinate is not None and coordinate.dimensions == (name,)


def in_memory(matrix: Matrix) -> bool:
    """Return whether all partitions of a matrix are in memory."""
    refs = matrix.refs[matrix.refs >= 0]
    return bool(len(refs)) and bool((matrix.references.uri[refs] < 0).all())


def _content(coordinate: MasterArray) -> Any:
    values, mask = coordinate._values_and_mask()
    content = str(values.tolist()) if values.dtype.kind == "T" else values.tobytes()
    described = coordinate.units, coordinate.calendar, repr(sorted(coordinate.attrs.items()))
    return content, None if mask is None else mask.tobytes(), values.dtype.str, values.shape, *described


def attributes_of(array: MasterArray, names: Mapping[str, str]) -> dict[str, Any]:
    """Return the attributes of a variable, with its references renamed."""
    attrs = {"units": array.units, "calendar": array.calendar, **array.attrs}
    for attribute in ("bounds", "climatology"):
        if attribute in attrs:
            attrs[attribute] = names.get(basename(str(attrs[attribute])))
    for attribute in (*ROWS, "cell_methods"):
        if isinstance(attrs.get(attribute), str):
            attrs[attribute] = _renamed(attrs[attribute], names)
    attrs.pop("coordinates", None)
    for attribute in ("cell_measures", "grid_mapping"):
        listed = words(attrs.get(attribute))
        # External variables keep their names (CF section 2.6.3).
        attrs[attribute] = (
            " ".join(w if w.endswith(":") and attribute == "cell_measures" else _renamed(w, names) for w in listed) or None
        )
    return plain_attributes(attrs)


def _renamed(text: str, names: Mapping[str, str]) -> str:
    """Return a blank-separated list with names replaced and colons kept."""
    renamed = []
    for word in text.split():
        base, colon = basename(word.rstrip(":")), ":" * word.endswith(":")
        renamed.append(f"{names[base]}{colon}" if base in names else word)
    return " ".join(renamed)


def coordinates_attribute(array: MasterArray, names: Mapping[str, str]) -> str:
    """Return the attribute ``coordinates``: auxiliary and scalar coordinates."""
    excluded = {basename(w.rstrip(":")) for a in ("cell_measures", "grid_mapping") for w in words(array.attrs.get(a))}
    excluded |= {
        basename(w) for c in (array, *array.coords.values()) for a in ("bounds", "climatology") for w in words(c.attrs.get(a))
    }
    return " ".join(names[n] for n in array.coords if n in names and n not in excluded and n not in array.dimensions)


def plain_attributes(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes that netCDF can store."""
    plain: dict[str, Any] = {}
    for name, value in attrs.items():
        if not name or name.startswith("_") or _valid_name(name) != name or name in _RESERVED:
            continue
        if isinstance(value, str):
            plain[name] = _encodable(value)
        elif isinstance(value, list) and value and all(isinstance(v, str) for v in value):
            plain[name] = list(map(_encodable, value))
        else:
            with suppress(ValueError, OverflowError):  # nested lists of different lengths
                numbers = np.asarray(value)
                if numbers.ndim <= 1 and numbers.dtype.str[1:] in _DTYPES:
                    plain[name] = value
    return plain


def _encodable(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")


def common_attributes(arrays: Sequence[MasterArray]) -> dict[str, Any]:
    """Return the global attributes that all arrays have with equal values."""
    if not arrays:
        return {}
    first, *others = ({k: repr(v) for k, v in a.file_attrs.items()} for a in arrays)
    common = {k for k, v in first.items() if all(o.get(k) == v for o in others)}
    return {k: v for k, v in arrays[0].file_attrs.items() if k in common and k != "Conventions"}
