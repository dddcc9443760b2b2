"""Selection of arrays by name and attributes, with errors that advise."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from aggarray.aggregate.join import same_attribute
from aggarray.aggregate.rules import facet
from aggarray.arrays.master import MasterArray
from aggarray.errors import NotFoundError, listed, names_hint, near_names


def attributes_of(array: MasterArray) -> dict[str, Any]:
    """Return the attributes by which an array is selected, its own first."""
    return {"units": array.units, "calendar": array.calendar, **array.file_attrs, **array.attrs}


def has_attributes(array: MasterArray, attributes: Mapping[str, Any]) -> bool:
    """Return whether an array has attributes of these values."""
    own = attributes_of(array) if attributes else {}
    return all(name in own and has_value(name, own[name], value) for name, value in attributes.items())


def has_value(name: str, own: Any, value: Any) -> bool:
    """Return whether an attribute is a value, or one of several values.

    >>> has_value("version", np.int32(3), 3.0), has_value("source_id", "A", ["A", "B"])
    (True, True)
    """
    return _is_value(name, own, value) or any(_is_value(name, own, one) for one in values_of(value))


def values_of(value: Any) -> list[Any]:
    """Return the several values of a list, tuple, set or array; else none."""
    several = isinstance(value, list | tuple | set | frozenset) or (isinstance(value, np.ndarray) and value.ndim == 1)
    return list(value) if several else []


def _is_value(name: str, own: Any, value: Any) -> bool:
    if isinstance(own, str) and isinstance(value, str):
        # CMIP5 writes "Table Omon (26 July 2011) 25bb94" for Omon.
        return own == value or (name == "table_id" and facet({name: own}, name) == value)
    one, other = (v.reshape(()) if getattr(v, "size", 2) == 1 else v for v in (own, value))
    return same_attribute(one, other)


def select_arrays(
    arrays: Sequence[MasterArray], names: Sequence[str] | None, attributes: Mapping[str, Any]
) -> tuple[MasterArray, ...]:
    """Return the arrays of some names and attributes.

    Raises NotFoundError for a name, an attribute or a value that no array has, with those that are similar and those there are.
    """
    remaining, before = list(arrays), list[str]()
    for name in names or ():
        present = list(dict.fromkeys(a.name or "" for a in remaining))
        if name not in present:
            raise NotFoundError(f"no array {name!r}", variable=name, hint=names_hint(name, present, "the arrays are"))
    if names is not None:
        remaining = [a for a in remaining if a.name in names]
        before = [f"name {' or '.join(map(repr, names))}"]
    for name, value in attributes.items():
        own = [attributes_of(a) for a in remaining]
        if not any(name in attributes for attributes in own):
            texts = [value] if isinstance(value, str) else ()  # a number is the value of many attributes
            hint = attributes_hint(remaining, name, texts, _holds, _shown)
            raise NotFoundError(f"no array{_with(before)} has an attribute {name!r}", hint=hint)
        present = [o[name] for o in own if name in o]
        if not any(_is_value(name, one, value) for one in present):  # the value may be a list itself
            for single in values_of(value) or [value]:
                if not any(_is_value(name, one, single) for one in present):
                    hint = values_hint(name, single, [one for one in present if one is not None], _shown)
                    raise NotFoundError(f"no array{_with(before)} has {name}={single!r}", hint=hint)
        remaining = [a for a, o in zip(remaining, own, strict=True) if name in o and has_value(name, o[name], value)]
        before.append(f"{name} {_shown(value)}")
    return tuple(remaining)


def _holds(array: MasterArray, name: str, value: Any) -> bool:
    return has_attributes(array, {name: value})


def attributes_hint(
    arrays: Sequence[MasterArray],
    name: str,
    values: Iterable[Any],
    holds: Callable[[MasterArray, str, Any], bool],
    show: Callable[[Any], str],
) -> str:
    """Return what arrays differ in, and an attribute that is meant.

    ``values``: what was asked of the attribute ``name``; ``holds``: whether an attribute of an array is a value; ``show``: the
    text of a value.
    """
    from aggarray.aggregate.differences import differing_attributes, distinguishing_facets, facets_of

    owned = ((*facets_of(a), *(key for key, value in attributes_of(a).items() if value is not None)) for a in arrays)
    present = list(dict.fromkeys(key for keys in owned for key in keys))
    facets = [key for key, _ in distinguishing_facets(arrays)]
    differing = facets or [key for key, _ in differing_attributes(arrays)]
    candidates = dict.fromkeys((*differing, *present))
    holder = next((f"{key}={show(v)}" for key in candidates for v in values if any(holds(a, key, v) for a in arrays)), None)
    similar = f"did you mean {holder}?" if holder else near_names(name, candidates)
    if not present:
        return "the arrays have no attributes"
    words = "the arrays differ in" if differing else "the attributes are:"
    return f"{similar} {words} {listed(differing or present)}".lstrip()


def values_hint(name: str, value: Any, present: Iterable[Any], show: Callable[[Any], str] = str) -> str:
    """Return the values that an attribute has, and one that is meant."""
    values = list(present)
    texts = sorted(set(map(show, values)))
    similar = near_names(value, (v for v in values if isinstance(v, str)))
    return f"{similar} {name} is {listed(texts) or 'not an attribute of these'}".lstrip()


def _with(before: Sequence[str]) -> str:
    return f" of {' and '.join(before)}" if before else ""


def _shown(value: Any) -> str:
    """Return a value of an attribute for a message.

    >>> _shown("MIROC6"), _shown(np.int32(3))
    ("'MIROC6'", '3')
    """
    text = " ".join((repr(value) if isinstance(value, str) else str(value)).split())
    return text if len(text) <= 60 else text[:57] + "..."
