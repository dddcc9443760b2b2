"""Is a file what files of its kind are taken to be like?

`facts_of` lists what decides about the meaning of values: dimensions, sizes, types, the attributes that CF gives a meaning, and
the values of coordinates. `difference` says in words where a file is not what was assumed of it.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from aggarray.formats.base import Attributes, Structure, Variable
from aggarray.formats.glimpses import GLIMPSED
from aggarray.table import Assumed, Fact

#: Attributes that say what values are, how they are stored, or what hangs on a variable.
_MEANING = (
    *("standard_name", "units", "calendar", "cell_methods", "axis", "positive", "cf_role"),
    *("_FillValue", "missing_value", "valid_min", "valid_max", "valid_range", "scale_factor", "add_offset", "_Unsigned"),
    *("_Encoding", "coordinates", "bounds", "climatology", "cell_measures", "grid_mapping", "formula_terms"),
    *("flag_values", "flag_masks", "flag_meanings"),
)
#: Of a variable that has one of these every attribute counts: it is a grid mapping (CF section 5.6).
_MAPPING = ("grid_mapping_name", "crs_wkt", "spatial_ref", "epsg_code")

WAY_OUT = "open with Rules(trust='verify')"


def as_text(value: Any) -> str:
    """Return an attribute as text that is equal where value and type are.

    >>> as_text("K"), as_text(np.float32(2)), as_text(None)
    ("'K'", '<f4 2.0', 'none')
    """
    if value is None or isinstance(value, str):
        return "none" if value is None else repr(value)
    found = np.asarray(value)
    return f"{found.dtype.str} {found.tolist()!r}" if found.dtype.kind in "iufcb" else repr(found.tolist())


def facts_of(structure: Structure) -> dict[str, Fact]:
    """Return what a file says of each of its variables."""
    return {variable.name: fact_of(variable) for variable in structure.variables}


def fact_of(variable: Variable) -> Fact:
    """Return what is said of a variable."""
    attrs = variable.attrs
    if any(name in attrs for name in _MAPPING):
        names: Sequence[str] = sorted(attrs)
    else:
        # What has no standard_name is known by its long_name.
        names = [n for n in (*_MEANING, *(() if "standard_name" in attrs else ("long_name",))) if n in attrs]
    stated = tuple((name, as_text(attrs[name])) for name in names)
    values = variable.values
    return Fact(variable.dtype.str, variable.dimensions, variable.shape, stated, _digest(values), _falls(values))


def _digest(values: np.ndarray | None) -> bytes | None:
    if values is None:
        return None
    plain = values.dtype.kind in "biufcmM"
    data = np.ascontiguousarray(values).tobytes() if plain else repr(values.tolist()).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(data, digest_size=16).digest()


def _falls(values: np.ndarray | None) -> bool:
    """Tell whether pairs of bounds run downwards throughout."""
    if values is None or values.shape[1:] != (2,) or values.dtype.kind not in "iuf" or not len(values):
        return False
    return bool((values[:, 1] < values[:, 0]).all())


def identity_of(attrs: Attributes, names: Sequence[str]) -> dict[str, str]:
    """Return global attributes as text, "none" for what is not there."""
    return {name: as_text(attrs.get(name)) for name in names}


def difference(found: Structure, assumed: Assumed, seen: Structure | None = None) -> str | None:
    """Say in what a file that was scanned as a whole is not what it was taken to be like; None where it is.

    ``seen``: what was read of the file itself when it was opened, which has to be the same now.
    """
    text = _differing(facts_of(found), assumed)
    if text is None:
        own = identity_of(found.attrs, list(assumed.attrs))
        text = next((f"{n} is {own[n]}, {v}" for n, v in assumed.attrs.items() if own[n] != v), None)
    if text is not None:
        return f"{text} in {assumed.model}, which was taken to speak for it: {WAY_OUT}"
    return None if seen is None else _moved(found, seen, assumed.read)


def _differing(found: Mapping[str, Fact], assumed: Assumed) -> str | None:
    for name, fact in assumed.facts.items():
        own = found.get(name)
        if own is not None:
            text = _unlike(own, fact, name in assumed.read, assumed.along)
            if text is not None:
                return f"{name!r}: {text}"
        elif fact.digest is not None:  # of other variables whoever reads them is told
            return f"{name!r}: no such variable, there is one"
    return None


def _unlike(own: Fact, fact: Fact, read: bool, along: frozenset[str]) -> str | None:
    """Say in what a variable differs from how it is elsewhere; ``read``: its values, units and calendar are its file's own."""
    if own.dimensions != fact.dimensions:
        return f"dimensions are {own.dimensions}, {fact.dimensions}"
    for name, size, other in zip(fact.dimensions, own.shape, fact.shape, strict=True):
        if size != other and name not in along:
            return f"dimension {name!r} is of size {size}, {other}"
    if own.dtype != fact.dtype and not read:
        return f"stored as {own.dtype}, {fact.dtype}"
    mine, theirs = dict(own.attrs), dict(fact.attrs)
    for name in dict.fromkeys([*theirs, *mine]):
        if mine.get(name) != theirs.get(name) and not (read and name in GLIMPSED):
            return f"{name} is {mine.get(name, 'none')}, {theirs.get(name, 'none')}"
    if own.falls != fact.falls:
        return "pairs run the other way than"
    own_values = read or not along.isdisjoint(fact.dimensions)
    return None if own_values or own.digest == fact.digest else "has other values than"


def _moved(found: Structure, seen: Structure, read: frozenset[str]) -> str | None:
    """Say which of the coordinates that were read is not the same any more."""
    now, then = facts_of(found), facts_of(seen)
    for name in sorted(read):
        if now[name].digest != then[name].digest or dict(now[name].attrs) != dict(then[name].attrs):
            return f"{name!r} is not what it was when the files were opened: open them anew"
    return None
