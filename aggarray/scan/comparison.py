"""Comparison of a file with the signature assumed of its group.

`signatures_of` lists what determines the meaning of values: dimensions, sizes, dtypes, the attributes that CF defines, the
values of coordinates, and the roles of variables. `difference` describes how a file differs from its assumed signature.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from aggarray.cf.attributes import normal_name
from aggarray.cf.encoding import items_of
from aggarray.dataclass import NamedTuple, replace
from aggarray.formats.base import Attributes, FixedStructure, Structure, Variable
from aggarray.formats.partial_scan import COORDINATE_ATTRIBUTES
from aggarray.formats.templates import are_pairs_decreasing
from aggarray.partition.signatures import FileSignature, VariableSignature
from aggarray.scan.roles import VariableNames, roles_of
from aggarray.storage.blake2 import blake2b

#: Attributes that determine the meaning, storage or related variables of a variable.
_MEANING = (
    *("standard_name", "units", "units_metadata", "calendar", "cell_methods", "axis", "positive", "cf_role"),
    *("_FillValue", "missing_value", "valid_min", "valid_max", "valid_range", "scale_factor", "add_offset", "_Unsigned"),
    *("_Encoding", "coordinates", "bounds", "climatology", "cell_measures", "grid_mapping", "formula_terms"),
    *("flag_values", "flag_masks", "flag_meanings"),
)
#: Attributes of a grid mapping (CF section 5.6); all attributes of such a variable are compared.
_MAPPING = ("grid_mapping_name", "crs_wkt", "spatial_ref", "epsg_code")


class Mismatch(NamedTuple):
    """How a file differs from its assumed signature, and what to do."""

    what: str
    hint: str = "open with Rules(trust='verify')"


def as_text(value: Any) -> str:
    """Return an attribute as text, equal only for equal value and type.

    >>> as_text("K"), as_text(np.float32(2)), as_text(None)
    ("'K'", '<f4 2.0', 'none')
    """
    if value is None or isinstance(value, str):
        return "none" if value is None else repr(value)
    items = items_of(value)
    return f"{items.dtype.str} {items.tolist()!r}" if items.dtype.kind in "iufcb" else repr(items.tolist())


def signatures_of(structure: Structure, identifying: Sequence[str] = ()) -> dict[str, VariableSignature]:
    """Return variable signatures, of CF and ``identifying`` attributes."""
    names = VariableNames(structure)
    roles, data = roles_of(names)
    return {
        v.name: replace(
            signature_of(v, identifying),
            hung=tuple(sorted(roles[v.name].items())),
            data=v.name in data,
            parent=names.parents.get(v.name),
        )
        for v in structure.variables
    }


def signature_of(variable: Variable, identifying: Sequence[str] = ()) -> VariableSignature:
    """Return the signature of a variable without its roles."""
    attrs = variable.attrs
    if any(name in attrs for name in _MAPPING):
        names: Sequence[str] = sorted(attrs)
    else:
        # Without a usable standard_name, long_name identifies the variable.
        standard = attrs.get("standard_name")
        is_named = isinstance(standard, str) and normal_name(standard) is not None
        names = [n for n in dict.fromkeys((*_MEANING, *(() if is_named else ("long_name",)), *identifying)) if n in attrs]
    stated = tuple((name, as_text(attrs[name])) for name in names)
    values = variable.values
    return VariableSignature(
        variable.dtype.str, variable.dimensions, variable.shape, stated, _digest(values), are_pairs_decreasing(values)
    )


def _digest(values: np.ndarray | None) -> bytes | None:
    if values is None:
        return None
    plain = values.dtype.kind in "biufcmM"
    data = np.ascontiguousarray(values).tobytes() if plain else repr(values.tolist()).encode("utf-8", "surrogatepass")
    return blake2b(data, digest_size=16).digest()


def identity_of(attrs: Attributes, names: Sequence[str]) -> dict[str, str]:
    """Return global attributes as text, "none" where absent."""
    return {name: as_text(attrs.get(name)) for name in names}


def groups_of(structure: Structure, names: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return the attributes as text of groups that contain variables, by path."""
    paths = {v.name[:n] for v in structure.variables for n, character in enumerate(v.name) if character == "/"}
    return {path: identity_of(structure.groups.get(path, {}), names) for path in sorted(paths)}


def difference(scanned: Structure, assumed: FileSignature, seen: Structure | None = None) -> Mismatch | None:
    """Describe how a file differs from its assumed signature, if it does.

    ``seen``: the structure assumed when the file was opened; what was read of the file then must be unchanged. Additional or
    absent variables that do not affect others are no difference: see `other_variables`.
    """
    text = _file_mismatch(scanned, assumed)
    if text is not None:
        return Mismatch(f"not as assumed: {text} in {assumed.model}")
    if seen is None:
        return None
    now, then = own_of(scanned, assumed), own_of(seen, assumed)
    changed = next((name for name in then if now.get(name) != then[name]), None)
    return None if changed is None else changed_since_opening([changed])


def other_variables(scanned: Structure, assumed: FileSignature, seen: Structure) -> Mismatch | None:
    """Name the variables that a file lacks or adds to its assumed signature."""
    own = {v.name for v in scanned.variables} | {name for name, _ in scanned.skipped}
    expected = {*assumed.facts, *(name for name, _ in seen.skipped)}
    absent = [n for n in assumed.facts if n not in {v.name for v in scanned.variables}]
    additional = sorted(own - expected)
    texts = [f"{what} {', '.join(map(repr, names))}" for what, names in (("no", absent), ("also", additional)) if names]
    return Mismatch(f"not as assumed: it has {' and '.join(texts)}, unlike {assumed.model}") if texts else None


def _file_mismatch(scanned: Structure, assumed: FileSignature) -> str | None:
    names = [*assumed.attrs, *assumed.open]
    if scanned.format != assumed.format:
        return f"it is {scanned.format}, not {assumed.format} as"
    facts = signatures_of(scanned, names)
    for name, fact in assumed.facts.items():
        if name not in facts and fact.digest is not None:  # reads of other absent variables raise an error
            return f"{name!r}: no such variable, unlike"
    for name, own in facts.items():
        expected = assumed.facts.get(name)
        text = None if expected is None else _variable_mismatch(own, expected, name in assumed.read, assumed.along)
        if text is not None:
            return f"{name!r}: {text}"
    owners = [("", scanned.attrs, assumed.attrs)]
    owners += [(f" of group {path!r}", scanned.groups.get(path, {}), texts) for path, texts in assumed.groups.items()]
    for where, attrs, texts in owners:
        for name, value in texts.items():
            if as_text(attrs.get(name)) != value:
                return f"{name}{where} is {as_text(attrs.get(name))}, not {value} as"
    # All sizes are those of the coordinates that are read from the file.
    sizes = {d: n for name in assumed.read for d, n in zip(facts[name].dimensions, facts[name].shape, strict=True)}
    for name in [n for n in assumed.facts if n in facts]:
        for d, n in zip(facts[name].dimensions, facts[name].shape, strict=True):
            if sizes.get(d, n) != n:
                return f"{name!r}: dimension {d!r} has size {n}, its coordinate {sizes[d]}, unlike"
    return None


def _variable_mismatch(own: VariableSignature, fact: VariableSignature, read: bool, along: frozenset[str]) -> str | None:
    """Describe how a variable differs; ``read``: values and units are read."""
    if own.dimensions != fact.dimensions:
        return f"dimensions are {own.dimensions}, not {fact.dimensions} as"
    for name, size, other in zip(fact.dimensions, own.shape, fact.shape, strict=True):
        if size != other and name not in along:
            return f"dimension {name!r} has size {size}, not {other} as"
    if own.dtype != fact.dtype and not read:
        return f"stored as {own.dtype}, not {fact.dtype} as"
    mine, theirs = dict(own.attrs), dict(fact.attrs)
    for name in dict.fromkeys([*theirs, *mine]):
        if mine.get(name) != theirs.get(name) and not (read and name in COORDINATE_ATTRIBUTES):
            return f"{name} is {mine.get(name, 'none')}, not {theirs.get(name, 'none')} as"
    if own.falls != fact.falls:
        return "bounds run in the other direction than"
    own_values = read or not along.isdisjoint(fact.dimensions)
    if not own_values and own.digest != fact.digest:
        return "values differ from those"
    if own.hung != fact.hung:
        here, there = (", ".join(dict.fromkeys(n for _, n in f.hung)) or "nothing" for f in (own, fact))
        return f"its coordinates are {here}, not {there} as"
    if own.parent != fact.parent:
        return f"bounds of {own.parent or 'nothing'}, not of {fact.parent or 'nothing'} as"
    # A coordinate becomes data if the variable that refers to it is absent; other variables are unaffected.
    return "is a coordinate, not data as" if fact.data and not own.data else None


def own_of(structure: Structure, assumed: FileSignature) -> dict[str, str]:
    """Return coordinates and identifying attributes of a file as text."""
    own = {v.name: v for v in structure.variables if v.name in assumed.read}
    texts = {}
    for name, v in sorted(own.items()):
        stated = [as_text(v.attrs.get(attribute)) for attribute in COORDINATE_ATTRIBUTES]
        digest = _digest(v.values)
        texts[name] = f"{v.dtype.str} {v.shape} {stated} {None if digest is None else digest.hex()}"
    return {**texts, **identity_of(structure.attrs, assumed.open)}


def own_number(structure: Structure, assumed: FileSignature) -> int:
    """Return a 63-bit hash of what is read from a file itself, without fixes."""
    if isinstance(structure, FixedStructure):
        return structure.seen
    digest = blake2b(repr(sorted(own_of(structure, assumed).items())).encode("utf-8", "surrogatepass"), digest_size=8)
    return int.from_bytes(digest.digest(), "little") >> 1


def changed_since_opening(names: Sequence[str]) -> Mismatch:
    """Return the mismatch of items that changed after they were read."""
    return Mismatch(f"{' or '.join(map(repr, names))} changed since the files were opened", "open them again")
