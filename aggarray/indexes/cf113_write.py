"""How does an aggregation look to other software: as variables of a CF-1.13 aggregation file (CF section 2.8)?

`write_cf` puts every array that the convention can express into an open dataset, fragments for its values, coordinates by
value, and returns why others are left out: CF has no words for parts of fragments, nor for reversed or transposed ones.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import chain, count
from typing import Any

import numpy as np

from aggarray.errors import AggarrayError
from aggarray.formats.base import basename, words
from aggarray.master import MasterArray
from aggarray.table import Matrix, References, Template, used_rows

CONVENTIONS = "CF-1.13"

#: Gives the references (text, dtype object) of the files of a table of sub-arrays.
Written = Callable[[References], np.ndarray]

#: What netCDF-4 has a type for.
_DTYPES = frozenset(("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8"))
#: Coordinates of more bytes than this that no scan has read are fragments too, not copied.
_LARGE = 1 << 25
#: What netCDF fills floating variables with.
_NETCDF_FILL = 9.969209968386869e36


def inexpressible(array: MasterArray) -> str | None:
    """Return why CF-1.13 has no words for an array, None where it has."""
    matrix = array._matrix
    if array.dtype.kind != "T" and array.dtype.str[1:] not in _DTYPES:
        return f"netCDF has no type for {array.dtype}"
    if array.size == 0:
        return "it has no elements"
    missing, references = matrix.refs < 0, matrix.references
    if missing.all() or _in_memory(matrix):
        return None
    if missing.any():
        return "some of its partitions are missing, others are files"
    if (references.uri[matrix.refs] < 0).any():
        return "some of its partitions are in memory, others are files"
    if matrix.parts.starts or matrix.parts.steps:
        return "it shows parts of sub-arrays"
    if any(matrix.flips(axis).any() for axis in range(array.ndim)):
        return "it turns sub-arrays round"
    used = used_rows(references.template[matrix.refs], len(references.templates))
    return next((text for n in used.tolist() if (text := _deviation(matrix, n)) is not None), None)


def _in_memory(matrix: Matrix) -> bool:
    return bool((matrix.references.uri[matrix.refs[matrix.refs >= 0]] < 0).all())


def _deviation(matrix: Matrix, number: int) -> str | None:
    """Return in what the sub-arrays of one template deviate from what CF calls canonical, beyond what readers convert."""
    template: Template = matrix.references.templates[number]
    if template.steps:
        return "its values go through conversions one after the other"
    extra = [d for d in template.dimensions if d not in matrix.dimensions]
    if extra:
        return f"its sub-arrays have a dimension {extra[0]!r} that it lacks"
    if [d for d in matrix.dimensions if d in template.dimensions] != list(template.dimensions):
        return "its sub-arrays have their dimensions in another order"
    cells = np.flatnonzero(matrix.references.template[matrix.refs] == number)
    index = np.unravel_index(cells, matrix.cells) if matrix.cells else ()
    sizes = dict(zip(template.dimensions, template.shape, strict=True))
    for axis, name in enumerate(matrix.dimensions):
        if (np.diff(matrix.edges[axis])[index[axis]] != sizes.get(name, 1)).any():
            return f"it cuts sub-arrays along {name!r}"
    return None


@dataclass(slots=True)
class _Names:
    """Names in the file, of dimensions and variables alike: equal things share one, others that want the same get suffixes."""

    known: dict[Any, str] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)

    def of(self, key: Any, wanted: str | None) -> tuple[str, bool]:
        """Return the name of a thing, and whether it is new."""
        if key in self.known:
            return self.known[key], False
        wanted = basename(wanted or "") or "unnamed"
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


class _File:
    """A dataset being written; ``references``: gives the URI references of the files of a table."""

    def __init__(self, dataset: Any, references: Written) -> None:
        self.dataset, self.references = dataset, references
        self.names = _Names()
        self.left_out: list[tuple[str, str]] = []

    def write(self, array: MasterArray) -> _Written:
        """Write an array after its coordinates."""
        names = self._coordinates(array)
        dimensions = [names[d] for d in array.dimensions]
        name, _ = self.names.of(("array", id(array)), array.name)
        refs = array._matrix.refs
        if _in_memory(array._matrix) and (refs >= 0).any():
            made = self._valued(array, name, dimensions)
        else:
            made = self._aggregated(array, name, dimensions)
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
                write = self._valued if _by_value(coordinate) else self._aggregated
                made[name] = write(coordinate, variable, dimensions)
        for name, variable in made.items():
            variable.setncatts(_attributes(array.coords[name], names))
        return names

    def _keys(self, array: MasterArray) -> dict[str, Any]:
        """Return what is equal for coordinates that are the same; those that cannot be read are left out."""
        keys = {}
        for name, coordinate in array.coords.items():
            try:
                keys[name] = _content(coordinate)
            except AggarrayError as error:
                self.left_out.append((name, f"a coordinate of {array.name} that cannot be read: {error}"))
        return keys

    def _variable(self, name: str, dtype: Any, dimensions: Sequence[str], fill: Any = None) -> Any:
        made = self.dataset.createVariable(name, str if dtype.kind in "TO" else dtype, tuple(dimensions), fill_value=fill)
        made.set_auto_maskandscale(False)
        return made

    def _valued(self, array: MasterArray, name: str, dimensions: Sequence[str]) -> Any:
        """Write a variable by value."""
        values, mask = array._values_and_mask()
        made = self._variable(
            name,
            array.dtype,
            dimensions,
            array.fill_value if mask is not None and mask.any() and array.dtype.kind != "T" else None,
        )
        values = values.astype(object) if array.dtype.kind == "T" else values
        made[...] = values if values.ndim else values.item()
        return made

    def _aggregated(self, array: MasterArray, name: str, dimensions: Sequence[str]) -> Any:
        """Write an aggregation variable: scalar, its fragments elsewhere."""
        absent = bool((array._matrix.refs < 0).all())
        fill = array.dtype.type(_NETCDF_FILL) if array.dtype.kind == "f" else array.fill_value
        declared = absent or (array.dtype.kind in "iu" and any(t.encoding.may_miss for t in array._matrix.references.templates))
        made = self._variable(name, array.dtype, (), fill if declared and array.dtype.kind in "iuf" else None)
        made.aggregated_dimensions = " ".join(dimensions)
        terms = self._unique(array, name, fill) if absent else self._located(array, name)
        made.aggregated_data = " ".join(f"{t}: {v}" for t, v in {"map": self._map(array._matrix, name), **terms}.items())
        return made

    def _cells(self, matrix: Matrix) -> list[str]:
        return [self._size("fragments", n) for n in matrix.cells]

    def _size(self, wanted: str, size: int) -> str:
        """Return a dimension that serves aggregations, one for each size."""
        name, new = self.names.of((wanted, size), f"{wanted}_{size}")
        if new:
            self.dataset.createDimension(name, size)
        return name

    def _unique(self, array: MasterArray, name: str, fill: Any) -> dict[str, str]:
        cells = array._matrix.cells
        values = np.full(cells, "" if array.dtype.kind == "T" else fill, object if array.dtype.kind == "T" else array.dtype)
        return {"unique_values": self._table(f"{name}_unique_values", self._cells(array._matrix), values)}

    def _located(self, array: MasterArray, name: str) -> dict[str, str]:
        matrix = array._matrix
        references, rows = matrix.references, matrix.refs
        uris = self.references(references)
        paths = np.array([f"/{v}" if "/" in v else v for v in references.variables], object)
        where = self._cells(matrix)
        found = {"uris": self._table(f"{name}_uris", where, uris[references.uri[rows]].reshape(matrix.cells))}
        used = used_rows(references.variable[rows], len(references.variables))
        one = len(used) == 1
        identifiers = paths[used[0]] if one else paths[references.variable[rows]].reshape(matrix.cells)
        identifiers = np.array(identifiers, object)
        return {**found, "identifiers": self._table(f"{name}_identifiers", [] if one else where, identifiers)}

    def _map(self, matrix: Matrix, name: str) -> str:
        sizes = [np.diff(e) for e in matrix.edges]
        if not sizes:
            return self._table(f"{name}_map", [], np.array(1, np.int32))
        dtype = np.dtype(np.int32 if max(int(e[-1]) for e in matrix.edges) < 2**31 else np.int64)
        rows = np.full((len(sizes), max(map(len, sizes))), -1, dtype)
        for row, own in zip(rows, sizes, strict=True):
            row[: len(own)] = own
        return self._table(f"{name}_map", [self._size("map", n) for n in rows.shape], rows, dtype.type(-1))

    def _table(self, wanted: str, dimensions: Sequence[str], values: np.ndarray, fill: Any = None) -> str:
        """Write a variable that serves aggregations; arrays of the same files share it."""
        content = "\n".join(values.ravel().tolist()).encode() if values.dtype == object else values.tobytes()
        name, new = self.names.of(("table", tuple(dimensions), values.dtype.str, sha256(content).digest()), wanted)
        if new:
            self._variable(name, values.dtype, dimensions, fill)[...] = values if values.ndim else values.item()
        return name


def _is_coordinate_variable(coordinate: MasterArray | None, name: str) -> bool:
    return coordinate is not None and coordinate.dimensions == (name,)


def _content(coordinate: MasterArray) -> Any:
    if not _by_value(coordinate):
        return id(coordinate)
    values, mask = coordinate._values_and_mask()
    content = str(values.tolist()) if values.dtype.kind == "T" else values.tobytes()
    described = coordinate.units, coordinate.calendar, repr(sorted(coordinate.attrs.items()))
    return content, None if mask is None else mask.tobytes(), values.dtype.str, values.shape, *described


def _by_value(coordinate: MasterArray) -> bool:
    """Tell whether a coordinate is stored by value: all are but large ones that no scan has read."""
    return coordinate._known is not None or coordinate.nbytes <= _LARGE or inexpressible(coordinate) is not None


def _attributes(array: MasterArray, names: Mapping[str, str]) -> dict[str, Any]:
    """Return the attributes of a variable, those that name others by the names that these have in the file."""
    found = {"units": array.units, "calendar": array.calendar, **array.attrs}
    for attribute in ("bounds", "climatology"):
        if attribute in found:
            found[attribute] = names.get(basename(str(found[attribute])))
    found.pop("coordinates", None)
    if isinstance(found.get("cell_methods"), str):
        found["cell_methods"] = _renamed(found["cell_methods"], names)
    for attribute in ("cell_measures", "grid_mapping"):
        stated = words(found.get(attribute))
        # External variables (CF section 2.6.3) keep their names.
        found[attribute] = (
            " ".join(w if w.endswith(":") and attribute == "cell_measures" else _renamed(w, names) for w in stated) or None
        )
    return _plain_attributes(found)


def _renamed(text: str, names: Mapping[str, str]) -> str:
    """Replace the names in a blank-separated attribute, with and without a colon."""
    found = []
    for word in text.split():
        base, colon = basename(word.rstrip(":")), ":" * word.endswith(":")
        found.append(f"{names[base]}{colon}" if base in names else word)
    return " ".join(found)


def _coordinates_attribute(written_: _Written) -> str:
    """Return what hangs on an array but is no coordinate variable, bounds, measure or mapping."""
    array, names = written_.array, written_.names
    others = {basename(w.rstrip(":")) for a in ("cell_measures", "grid_mapping") for w in words(array.attrs.get(a))}
    others |= {
        basename(w) for c in (array, *array.coords.values()) for a in ("bounds", "climatology") for w in words(c.attrs.get(a))
    }
    return " ".join(names[n] for n in array.coords if n in names and n not in others and n not in array.dimensions)


def _plain_attributes(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes that netCDF can hold."""
    found = {}
    for name, value in attrs.items():
        if isinstance(value, bool | np.bool) or value is None or name.startswith("_"):
            continue
        kind = np.asarray(value).dtype.kind if not isinstance(value, list | tuple) or value else "O"
        if isinstance(value, str) or kind in "iuf" or (kind in "UT" and isinstance(value, list)):
            found[name] = value
    return found


def _common(arrays: Sequence[MasterArray]) -> dict[str, Any]:
    """Return the global attributes that all arrays have with one value."""
    first, *others = ({k: repr(v) for k, v in a.file_attrs.items()} for a in arrays)
    kept = {k for k, v in first.items() if all(o.get(k) == v for o in others)}
    return {k: v for k, v in arrays[0].file_attrs.items() if k in kept and k != "Conventions"}


def write_cf(dataset: Any, arrays: Sequence[MasterArray], references: Written) -> list[tuple[str, str]]:
    """Write arrays into an open ``netCDF4.Dataset``; ``references``: gives the URI references of the files of a table.

    Returns (name, reason) of arrays that CF-1.13 cannot express, and of coordinates that cannot be read.
    """
    file, made = _File(dataset, references), []
    dataset.setncatts({**(_plain_attributes(_common(arrays)) if arrays else {}), "Conventions": CONVENTIONS})
    for array in arrays:
        reason = inexpressible(array)
        if reason is None:
            made.append(file.write(array))
        else:
            file.left_out.append((array.name or "unnamed", reason))
    by_name: dict[str, list[str]] = {}
    for one in made:
        by_name.setdefault(one.array.name or "", []).append(one.variable.name)
    alone = {name: found[0] for name, found in by_name.items() if len(found) == 1}
    for one in made:
        attrs = _attributes(one.array, one.names)
        for attribute in ("ancillary_variables", "formula_terms"):
            if isinstance(attrs.get(attribute), str):
                attrs[attribute] = _renamed(attrs[attribute], {**alone, **one.names})
        if coordinates := _coordinates_attribute(one):
            attrs["coordinates"] = coordinates
        one.variable.setncatts(attrs)
    return file.left_out
