"""New names of variables and dimensions in the structure of a file.

Attributes that refer to a variable or a dimension follow its name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from aggarray.cf.attributes import basename, words
from aggarray.cf.frozen import FrozenDict
from aggarray.dataclass import replace
from aggarray.errors import AggregationError
from aggarray.formats.base import Structure, Variable
from aggarray.scan.roles import VariableNames

#: Attributes that name variables.
REFERENCES = (
    *("coordinates", "bounds", "climatology", "ancillary_variables", "grid_mapping", "quantization"),
    *("geometry", "node_coordinates", "node_count", "part_node_count", "interior_ring"),
)
#: Attributes that name variables after keywords, which end with a colon.
TERMS = ("cell_measures", "formula_terms")
#: Attributes that name dimensions.
DIMENSIONS = ("sample_dimension", "instance_dimension", "compress")
_WORD, _TERM = re.compile(r"[^\s:]+"), re.compile(r"[^\s:]+(?=\s|$)")
#: Parentheses of cell methods hold comments, and intervals.
_METHODS = re.compile(r"\([^)]*\)|[^\s:()]+(?=:)")

#: The new name of a variable or dimension, if any, by its path.
NewName = Callable[[str], str | None]


def renamed(structure: Structure, new_name: NewName) -> tuple[Structure, dict[str, str]]:
    """Return a structure with new names; and {old: new} path of each variable.

    ``new_name``: of a path of a variable or dimension, without its group. Raises AggregationError if two variables, or two
    dimensions of one variable, would have the same name.
    """
    names = VariableNames(structure)
    paths = {v.name: _path(v.name, new_name) for v in structure.variables}
    _check_distinct(structure, paths)
    variables = tuple(_variable(v, paths, names, new_name) for v in structure.variables)
    sizes = None if structure.sizes is None else _sizes(structure, structure.sizes, new_name)
    attrs = _attributes(structure.attrs, "", paths, names, new_name)
    external = tuple(paths.get(name, name) for name in structure.external_files)
    return replace(structure, variables=variables, sizes=sizes, attrs=attrs, external_files=external), paths


def named_in(structure: Structure) -> set[str]:
    """Return the paths of the variables and dimensions of a file."""
    used = {path for v in structure.variables for path in _dimension_paths(v)}
    return used.union(v.name for v in structure.variables).union(structure.sizes or ())


def _path(path: str, new_name: NewName) -> str:
    group, slash, _ = path.rpartition("/")
    new = new_name(path)
    return path if new is None else f"{group}{slash}{new}"


def _dimension_paths(variable: Variable) -> list[str]:
    """Return the paths of dimensions; without scopes they may lie higher up."""
    groups = variable.scopes or (variable.name.rpartition("/")[0],) * len(variable.dimensions)
    return [f"{group}/{name}" if group else name for group, name in zip(groups, variable.dimensions, strict=True)]


def _check_distinct(structure: Structure, paths: Mapping[str, str]) -> None:
    seen: dict[str, str] = {}
    for old, new in paths.items():
        if (other := seen.setdefault(new, old)) != old:
            first, second = (old, other) if old != new else (other, old)
            what = f"a fix gives variable {first!r} the name {new!r}, which {second!r} has"
            raise AggregationError(what, path=structure.uri, variable=first, hint="drop or rename the other, or narrow where=")


def _sizes(structure: Structure, sizes: Mapping[str, int], new_name: NewName) -> dict[str, int]:
    made: dict[str, int] = {}
    for path, size in sizes.items():
        new = _path(path, new_name)
        if made.setdefault(new, size) != size:
            what = f"a fix gives dimensions of sizes {made[new]} and {size} the name {new!r}"
            raise AggregationError(what, path=structure.uri, hint="rename the other, or narrow where=")
    return made


def _variable(variable: Variable, paths: Mapping[str, str], names: VariableNames, new_name: NewName) -> Variable:
    v = variable
    dimensions = tuple(basename(_path(path, new_name)) for path in _dimension_paths(v))
    if len({*dimensions}) < len(dimensions):
        what = f"a fix gives two dimensions of {v.name!r} the same name: {dimensions}"
        raise AggregationError(what, path=names.structure.uri, variable=v.name, hint="rename both at once: rename={old: new}")
    attrs = _attributes(v.attrs, v.name.rpartition("/")[0], paths, names, new_name)
    if (paths[v.name], dimensions) == (v.name, v.dimensions) and attrs is v.attrs:
        return v
    return replace(v, name=paths[v.name], dimensions=dimensions, attrs=attrs)


def _attributes(
    attrs: Mapping[str, Any], group: str, paths: Mapping[str, str], names: VariableNames, new_name: NewName
) -> Mapping[str, Any]:
    """Return attributes with the new names in those that refer to others."""

    def variable(match: re.Match[str]) -> str:
        path = names.find(match[0], group)
        return match[0] if path is None else match[0][: len(match[0]) - len(basename(path))] + basename(paths[path])

    def dimension(match: re.Match[str]) -> str:
        if match[0].startswith("(") or match[0] == "area":  # of any horizontal dimensions
            return match[0]
        paths = [match[0]] if not group else [f"{group}/{match[0]}", match[0]]
        return next((new for path in paths if (new := new_name(path)) is not None), match[0])

    changes = {}
    for name, value in attrs.items():
        if not words(value):
            continue
        if name in (*REFERENCES, *TERMS):
            changes[name] = (_TERM if name in TERMS else _WORD).sub(variable, value)
        elif name in DIMENSIONS:
            changes[name] = _WORD.sub(dimension, value)
        elif name == "cell_methods":
            changes[name] = _METHODS.sub(dimension, value)
    changes = {name: value for name, value in changes.items() if value != attrs[name]}
    return FrozenDict({**attrs, **changes}) if changes else attrs
