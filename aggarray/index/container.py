"""How does an aggregation look to other software: which variables and dimensions does its file have?

`Container` writes coordinates and arrays in memory by value, names that clash with suffixes, and attributes that name others
by the names that these have in the file. How the fragments of an array are located is the business of a convention, one
subclass each.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, count
from typing import Any

import numpy as np

from aggarray.arrays import MasterArray
from aggarray.arrays.ragged_variables import flatten_ragged
from aggarray.errors import AggarrayError
from aggarray.formats.base import ROWS, basename, words
from aggarray.partition.matrix import Matrix, References

#: Gives the URI references (text, dtype object) of the files of a table of sub-arrays.
Located = Callable[[References], np.ndarray]

#: Coordinates of more bytes than this that no scan has read are fragments too, not copied.
_LARGE = 1 << 25
#: Blanks and colons end a name in an attribute of names; netCDF takes no slashes and control characters.
_NOT_IN_NAMES = re.compile(r"[\s\x00-\x1f\x7f/:]")
#: Bytes of a name, with room for a suffix: netCDF takes 256.
_LONGEST = 200
#: Attributes that the conventions, and HDF5 under netCDF-4, use themselves.
_RESERVED = frozenset(
    ("aggregated_dimensions", "aggregated_data", "CLASS", "NAME", "DIMENSION_LIST", "REFERENCE_LIST", "DIMENSION_LABELS")
)
#: What netCDF has a type for.
_DTYPES = frozenset(("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8"))


def _permitted(name: str) -> str:
    """Return a name that netCDF takes and that stands as one word in an attribute of names.

    >>> _permitted("a b"), _permitted(".x"), _permitted("")
    ('a_b', '_.x', 'unnamed')
    """
    plain = _NOT_IN_NAMES.sub("_", name).encode("utf-8", "replace")[:_LONGEST].decode("utf-8", "ignore")
    return plain or "unnamed" if plain[:1].isalnum() or plain[:1] in ("", "_") else f"_{plain}"


@dataclass(slots=True)
class VariableNames:
    """Names in the file, of dimensions and variables alike: equal things share one, others that want the same get suffixes."""

    known: dict[Any, str] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)

    def of(self, key: Any, wanted: str | None) -> tuple[str, bool]:
        """Return the name of a thing, and whether it is new."""
        if key in self.known:
            return self.known[key], False
        wanted = _permitted(basename(wanted or ""))
        name = next(n for n in chain([wanted], (f"{wanted}_{i}" for i in count(2))) if n not in self.taken)
        self.known[key] = name
        self.taken.add(name)
        return name, True


@dataclass(slots=True)
class _Written:
    """An array in the file: its variable, and what the file calls its dimensions and coordinates."""

    array: MasterArray
    variable: Any
    names: dict[str, str]


class Container:
    """A dataset being written; ``references``: gives the URI references of the files of a table."""

    conventions = ""

    def __init__(self, dataset: Any, references: Located) -> None:
        self.dataset, self.references = dataset, references
        self.names = VariableNames()
        self.left_out: list[tuple[str, str]] = []
        self._count = 0

    def reason(self, array: MasterArray) -> str | None:
        """Return why the convention has no words for the fragments of an array, None where it has."""
        raise NotImplementedError

    def aggregated(self, array: MasterArray, name: str, dimensions: Sequence[str]) -> Any:
        """Write a scalar variable that says where the fragments of an array are, and return it."""
        raise NotImplementedError

    def write_all(self, arrays: Sequence[MasterArray]) -> list[tuple[str, str]]:
        """Write arrays. Returns (name, reason) of those that the convention cannot express, and of lost coordinates."""
        self.dataset.setncatts({**plain_attributes(common_attributes(arrays)), "Conventions": self.conventions})
        made = []
        for array in map(flatten_ragged, arrays):
            reason = self._unfit(array) or (None if in_memory(array._matrix) else self.reason(array))
            if reason is None:
                made.append(self._write(array))
            else:
                self.left_out.append((array.name or "unnamed", reason))
        by_name: dict[str, list[str]] = {}
        for one in made:
            by_name.setdefault(one.array.name or "", []).append(one.variable.name)
        alone = {name: found[0] for name, found in by_name.items() if len(found) == 1}
        for one in made:
            attrs = attributes_of(one.array, one.names)
            for attribute in ("ancillary_variables", "formula_terms"):
                if isinstance(attrs.get(attribute), str):
                    attrs[attribute] = _renamed(attrs[attribute], {**alone, **one.names})
            if coordinates := coordinates_attribute(one.array, one.names):
                attrs["coordinates"] = coordinates
            one.variable.setncatts(attrs)
        return self.left_out

    def _unfit(self, array: MasterArray) -> str | None:
        if array.dtype.kind != "T" and array.dtype.str[1:] not in _DTYPES:
            return f"netCDF has no type for {array.dtype}"
        return "it has no elements" if array.size == 0 else None

    def _write(self, array: MasterArray) -> _Written:
        """Write an array after its coordinates."""
        names = self._coordinates(array)
        dimensions = [names[d] for d in array.dimensions]
        self._count += 1
        name, _ = self.names.of(("array", self._count), array.name)
        write = self._valued if in_memory(array._matrix) else self.aggregated
        made = write(array, name, dimensions)
        return _Written(array, made, names)

    def _coordinates(self, array: MasterArray) -> dict[str, str]:
        """Write the coordinates that are not there yet; return the file's name of each, and of each dimension."""
        sizes = {d: n for a in (*array.coords.values(), array) for d, n in zip(a.dimensions, a.shape, strict=True)}
        keys, names = self._keys(array), {}
        for dimension, size in sizes.items():
            key = keys.get(dimension) if _is_coordinate_variable(array.coords.get(dimension), dimension) else None
            name, new = self.names.of(("dimension", dimension, size, key), dimension)
            names[dimension] = name
            if new:
                self.dataset.createDimension(name, size)
        made = {}
        for name, key in keys.items():
            coordinate = array.coords[name]
            dimensions = tuple(names[d] for d in coordinate.dimensions)
            if _is_coordinate_variable(coordinate, name):
                variable, new = names[name], ("coordinate", names[name]) not in self.names.known
                self.names.known["coordinate", variable] = variable
            else:
                variable, new = self.names.of(("auxiliary", name, key, dimensions), name)
                names[name] = variable
            if new:
                write = self._valued if self._by_value(coordinate) else self.aggregated
                made[name] = write(coordinate, variable, dimensions)
        for name, variable in made.items():
            variable.setncatts(attributes_of(array.coords[name], names))
        return names

    def _keys(self, array: MasterArray) -> dict[str, Any]:
        """Return what is equal for coordinates that are the same; those that cannot be read are left out."""
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
            # Coordinates with other bounds are others.
            hung = [keys.get(basename(w)) for a in ("bounds", "climatology") for w in words(array.coords[name].attrs.get(a))]
            keys[name] = (keys[name], *hung) if hung else keys[name]
        return keys

    def _by_value(self, coordinate: MasterArray) -> bool:
        """Tell whether a coordinate is stored by value: all are but large ones that no scan has read."""
        return coordinate._known is not None or coordinate.nbytes <= _LARGE or self.reason(coordinate) is not None

    def variable(self, name: str, dtype: Any, dimensions: Sequence[str], fill: Any = None) -> Any:
        """Make a variable of netCDF4 whose values are written as they are."""
        made = self.dataset.createVariable(name, str if dtype.kind in "TO" else dtype, tuple(dimensions), fill_value=fill)
        made.set_auto_maskandscale(False)
        return made

    def _valued(self, array: MasterArray, name: str, dimensions: Sequence[str]) -> Any:
        """Write a variable by value."""
        values, mask = array._values_and_mask()
        made = self.variable(
            name,
            array.dtype,
            dimensions,
            array.fill_value if mask is not None and mask.any() and array.dtype.kind != "T" else None,
        )
        values = values.astype(object) if array.dtype.kind == "T" else values
        made[...] = values if values.ndim else values.item()
        return made


def _is_coordinate_variable(coordinate: MasterArray | None, name: str) -> bool:
    return coordinate is not None and coordinate.dimensions == (name,)


def in_memory(matrix: Matrix) -> bool:
    """Tell whether all that a matrix shows lies in memory."""
    shown = matrix.refs[matrix.refs >= 0]
    return bool(len(shown)) and bool((matrix.references.uri[shown] < 0).all())


def _content(coordinate: MasterArray) -> Any:
    values, mask = coordinate._values_and_mask()
    content = str(values.tolist()) if values.dtype.kind == "T" else values.tobytes()
    described = coordinate.units, coordinate.calendar, repr(sorted(coordinate.attrs.items()))
    return content, None if mask is None else mask.tobytes(), values.dtype.str, values.shape, *described


def attributes_of(array: MasterArray, names: Mapping[str, str]) -> dict[str, Any]:
    """Return the attributes of a variable, those that name others by the names that these have in the file."""
    found = {"units": array.units, "calendar": array.calendar, **array.attrs}
    for attribute in ("bounds", "climatology"):
        if attribute in found:
            found[attribute] = names.get(basename(str(found[attribute])))
    for attribute in ROWS:
        if isinstance(found.get(attribute), str):
            found[attribute] = _renamed(found[attribute], names)
    found.pop("coordinates", None)
    if isinstance(found.get("cell_methods"), str):
        found["cell_methods"] = _renamed(found["cell_methods"], names)
    for attribute in ("cell_measures", "grid_mapping"):
        stated = words(found.get(attribute))
        # External variables (CF section 2.6.3) keep their names.
        found[attribute] = (
            " ".join(w if w.endswith(":") and attribute == "cell_measures" else _renamed(w, names) for w in stated) or None
        )
    return plain_attributes(found)


def _renamed(text: str, names: Mapping[str, str]) -> str:
    """Replace the names in a blank-separated attribute, with and without a colon."""
    found = []
    for word in text.split():
        base, colon = basename(word.rstrip(":")), ":" * word.endswith(":")
        found.append(f"{names[base]}{colon}" if base in names else word)
    return " ".join(found)


def coordinates_attribute(array: MasterArray, names: Mapping[str, str]) -> str:
    """Return what hangs on an array but is no coordinate variable, bounds, measure or mapping."""
    others = {basename(w.rstrip(":")) for a in ("cell_measures", "grid_mapping") for w in words(array.attrs.get(a))}
    others |= {
        basename(w) for c in (array, *array.coords.values()) for a in ("bounds", "climatology") for w in words(c.attrs.get(a))
    }
    return " ".join(names[n] for n in array.coords if n in names and n not in others and n not in array.dimensions)


def plain_attributes(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes that netCDF can hold."""
    found: dict[str, Any] = {}
    for name, value in attrs.items():
        if not name or name.startswith("_") or _permitted(name) != name or name in _RESERVED:
            continue
        if isinstance(value, str):
            found[name] = _encodable(value)
        elif isinstance(value, list) and value and all(isinstance(v, str) for v in value):
            found[name] = list(map(_encodable, value))
        elif _is_numbers(value):
            found[name] = value
    return found


def _encodable(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")


def _is_numbers(value: Any) -> bool:
    """Tell whether a value is one number, or numbers in a row, of a type that netCDF has."""
    if value is None or isinstance(value, str | bytes | Mapping):
        return False
    try:
        array = np.asarray(value)
    except (ValueError, OverflowError):  # lists in lists, of different lengths
        return False
    return array.ndim <= 1 and array.dtype.str[1:] in _DTYPES


def common_attributes(arrays: Sequence[MasterArray]) -> dict[str, Any]:
    """Return the global attributes that all arrays have with one value."""
    if not arrays:
        return {}
    first, *others = ({k: repr(v) for k, v in a.file_attrs.items()} for a in arrays)
    kept = {k for k, v in first.items() if all(o.get(k) == v for o in others)}
    return {k: v for k, v in arrays[0].file_attrs.items() if k in kept and k != "Conventions"}
