"""Roles of variables of a file: data variables and coordinates of each.

Implements the roles that CF defines: coordinate variables (section 5), ``coordinates``, ``bounds`` and ``climatology`` (7.1,
7.4), ``cell_measures`` (7.2) and ``grid_mapping`` (5.6), with names in groups found by proximity (2.7). Variables without such
a role are data, as are ancillary variables and formula terms. `samplings_of` finds ragged representations (9.3).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from aggarray.cf.attributes import basename, text_attribute, words
from aggarray.dataclass import dataclass
from aggarray.formats.base import Structure, Variable

#: Values of ``featureType`` whose features have their own samples (CF section 9.1).
_FEATURES = frozenset(("timeseries", "trajectory", "profile"))

#: Group and dimension of the list of files in an extract.
SOURCE_FILES, SOURCE_FILE = "source_files", "source_file"

#: Coordinates and similar variables of each variable, as {base name: variable}; and the names of the data variables.
Roles: TypeAlias = tuple[Mapping[str, Mapping[str, str]], tuple[str, ...]]


def roles_of(names: VariableNames) -> Roles:
    """Return the related variables of each variable, and the data variables."""
    # The list of files is about the data.
    variables = [v for v in names.structure.variables if not is_source_list(v.name, v.dimensions)]
    hung = set[str]()
    roles = {v.name: dict(names.hanging(v)) for v in variables}
    for name, others in roles.items():
        hung.update(h for h in others.values() if h != name)
    data = [v.name for v in variables if v.name not in hung and not names.is_coordinate(v)]
    reached = {h for name in data for h in roles[name].values()}.union(data)
    # Coordinates without a data variable become arrays, except bounds, which stay with their coordinate.
    spare = [v.name for v in variables if v.name not in reached]
    bounds = {name for name in spare if name in names.parents and name in roles[names.parents[name]].values()}
    return roles, (*data, *(name for name in spare if name not in bounds))


def is_source_list(name: str, dimensions: Sequence[str]) -> bool:
    """Return whether a variable belongs to the list of files in an extract.

    >>> is_source_list("source_files/uri", ("source_file",)), is_source_list("uri", ("source_file",))
    (True, False)
    """
    return name.startswith(f"{SOURCE_FILES}/") and tuple(dimensions) == (SOURCE_FILE,)


@dataclass(frozen=True, slots=True)
class Sampling:
    """Samples of one dimension that belong to instances (CF section 9.3).

    They lie in one group of a file. ``counts``: the variable with the number of samples of each run (contiguous: of each
    instance); ``index``: the variable with the instance of each run or sample; None where absent. ``samples``, ``instances``,
    ``runs``: names of dimensions (``runs`` is None without counts). ``present``: coordinates that are missing where there is
    no sample (incomplete multidimensional).
    """

    group: str
    samples: str
    instances: str
    runs: str | None = None
    counts: str | None = None
    index: str | None = None
    present: tuple[str, ...] = ()


def samplings_of(structure: Structure) -> list[Sampling]:
    """Return the ragged representations in a file (CF H.2 to H.6)."""
    flat = [v for v in structure.variables if len(v.dimensions) == 1]
    indices = {(v.name.rpartition("/")[0], v.dimensions[0]): v for v in flat if words(v.attrs.get("instance_dimension"))}
    samplings = []
    for v in flat:
        for samples in words(v.attrs.get("sample_dimension")):
            group, (runs,) = v.name.rpartition("/")[0], v.dimensions
            index = indices.pop((group, runs), None)
            if samples != runs:
                (instances,) = (runs,) if index is None else words(index.attrs["instance_dimension"])[:1]
                samplings.append(Sampling(group, samples, instances, runs, v.name, None if index is None else index.name))
    counted = {(sampling.group, sampling.samples) for sampling in samplings}
    for (group, samples), v in indices.items():
        (instances,) = words(v.attrs["instance_dimension"])[:1]
        if (group, samples) not in counted and instances != samples:
            samplings.append(Sampling(group, samples, instances, index=v.name))
    return samplings + _incomplete(structure)


def _incomplete(structure: Structure) -> list[Sampling]:
    """Return the incomplete multidimensional arrays of a file (CF 9.3.2)."""
    feature = structure.attrs.get("featureType")
    if not isinstance(feature, str) or feature.strip().lower() not in _FEATURES:
        return []
    names, coordinates = VariableNames(structure), dict[tuple[str, tuple[str, ...]], dict[str, None]]()
    for v in structure.variables:
        if len(v.dimensions) != 2 or not names.is_sampled(v):
            continue
        own = [n for n in names.named(v, words(v.attrs.get("coordinates"))) if names.variables[n].dimensions == v.dimensions]
        same_shape = [n for n in own if names.variables[n].shape == v.shape]
        coordinates.setdefault((v.name.rpartition("/")[0], v.dimensions), {}).update(dict.fromkeys(same_shape))
    return [
        Sampling(group, along[1], along[0], present=tuple(sorted(own))) for (group, along), own in coordinates.items() if own
    ]


class VariableNames:
    """Variables of one file by name, and the parents of boundary variables."""

    def __init__(self, structure: Structure) -> None:
        self.structure = structure
        self.variables = {v.name: v for v in structure.variables}
        self.parents: dict[str, str] = {}
        self._roles = [v for v in structure.variables if "cf_role" in v.attrs]
        for v in structure.variables:
            for attribute in ("bounds", "climatology"):
                for bounds in self.named(v, words(v.attrs.get(attribute))):
                    self.parents.setdefault(bounds, v.name)

    def find(self, name: str, group: str) -> str | None:
        """Find a variable by path, or by name in the nearest group (CF 2.7)."""
        if name.startswith("/"):
            return name[1:] if name[1:] in self.variables else None
        while True:
            path = f"{group}/{name}" if group else name
            if path in self.variables:
                return path
            if not group:
                return None
            group = group.rpartition("/")[0]

    def named(self, variable: Variable, names: list[str]) -> Iterator[str]:
        """Yield the variables that names in an attribute of ``variable`` refer to."""
        group = variable.name.rpartition("/")[0]
        for name in names:
            path = self.find(name, group)
            if path is not None and path != variable.name:
                yield path

    def coordinate(self, variable: Variable, dimension: str) -> str | None:
        """Return the name of the coordinate variable of a dimension, or None."""
        axis = variable.dimensions.index(dimension) if dimension in variable.dimensions else None
        group = variable.name.rpartition("/")[0]
        if axis is not None and variable.scopes is not None:
            # The dimension belongs to an ancestor group; a dimension of the same name in this group has another coordinate.
            group = variable.scopes[axis]
        path = self.find(dimension, group)
        if path is None or not self.is_coordinate(self.variables[path]):
            return None
        if axis is not None and variable.scopes is not None and self.variables[path].scopes != (variable.scopes[axis],):
            return None
        # A group may define a dimension of the same name and another size.
        size = None if axis is None else variable.shape[axis]
        return path if size in (None, self.variables[path].shape[0]) else None

    def lies_along(self, name: str, variable: Variable) -> bool:
        """Return whether a variable spans only dimensions of another."""
        own = self.variables[name]
        if own.scopes is None or variable.scopes is None:
            return set(own.dimensions) <= set(variable.dimensions)
        return set(zip(own.dimensions, own.scopes, strict=True)) <= set(zip(variable.dimensions, variable.scopes, strict=True))

    def is_sampled(self, variable: Variable) -> bool:
        """Return whether the second dimension only numbers samples (no axis)."""
        coordinate = self.coordinate(variable, variable.dimensions[1])
        attrs = {} if coordinate is None else self.variables[coordinate].attrs
        bare = not {"axis", "standard_name"} & attrs.keys() and text_attribute(attrs.get("units", "1")) in ("1", "")
        return bare and not any(v.dimensions[:1] == variable.dimensions[1:] for v in self._roles)

    def is_coordinate(self, variable: Variable) -> bool:
        """Return whether a variable is a coordinate variable."""
        return variable.dimensions == (basename(variable.name),)

    def hanging(self, variable: Variable) -> Iterator[tuple[str, str]]:
        """Yield (base name, name) of the variables related to a variable."""
        direct = [c for d in variable.dimensions if (c := self.coordinate(variable, d)) is not None and c != variable.name]
        stated = words(variable.attrs.get("coordinates")) + words(self.structure.attrs.get("coordinates"))
        direct += [c for c in self.named(variable, stated) if self.lies_along(c, variable)]
        # Variables with a ``cf_role`` along dimensions of the variable (CF section 9.5).
        roles = [v.name for v in self._roles if v.dimensions and v.name != variable.name]
        direct += [name for name in roles if self.lies_along(name, variable)]
        if not direct and variable.name in self.parents:
            return
        for name in dict.fromkeys(direct):
            yield basename(name), name
        for name in dict.fromkeys([variable.name, *direct]):
            yield from ((basename(b), b) for b in self.bounds(self.variables[name]))
        for name in self.named(variable, [w for w in words(variable.attrs.get("cell_measures")) if not w.endswith(":")]):
            if self.lies_along(name, variable):
                yield basename(name), name
        mapping = words(variable.attrs.get("grid_mapping"))
        stated = [w.rstrip(":") for w in mapping if w.endswith(":")] or mapping
        yield from ((basename(name), name) for name in self.named(variable, stated))

    def bounds(self, variable: Variable) -> list[str]:
        """Return the boundary variables of a coordinate, which add vertices."""
        named = self.named(variable, words(variable.attrs.get("bounds")) + words(variable.attrs.get("climatology")))
        return [b for b in named if self.variables[b].dimensions[: len(variable.dimensions)] == variable.dimensions]
