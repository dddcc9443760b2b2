"""Selection of arrays by name and attributes, with errors that advise."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from aggarray.aggregate.join import same_attribute
from aggarray.aggregate.rules import FACETS, facet
from aggarray.arrays.master import MasterArray
from aggarray.errors import NotFoundError, names_hint, near_names

#: Most values, and most names of attributes, that an error lists.
_MOST_VALUES, _MOST_NAMES = 12, 40


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
            raise _no_attribute(name, value, own, before)
        present = [o[name] for o in own if name in o]
        if not any(_is_value(name, one, value) for one in present):  # the value may be a list itself
            for single in values_of(value) or [value]:
                if not any(_is_value(name, one, single) for one in present):
                    raise _no_value(name, single, present, before)
        remaining = [a for a, o in zip(remaining, own, strict=True) if name in o and has_value(name, o[name], value)]
        before.append(f"{name} {_shown(value)}")
    return tuple(remaining)


def _no_attribute(name: str, value: Any, own: Iterable[Mapping[str, Any]], before: Sequence[str]) -> NotFoundError:
    values: dict[str, list[Any]] = {}
    for attributes in own:
        for key, attribute in attributes.items():
            if attribute is not None:
                values.setdefault(key, []).append(attribute)
    texts = values if isinstance(value, str) else ()  # a number is the value of many attributes
    holders = sorted((k for k in texts if any(_is_value(k, one, value) for one in values[k])), key=lambda k: k not in FACETS)
    similar = f"did you mean {holders[0]}={value!r}?" if holders else near_names(name, values)
    keys = sorted(values, key=lambda key: (key not in FACETS, key))
    listed = ", ".join(keys[:_MOST_NAMES]) + (f" and {len(keys) - _MOST_NAMES} more" if len(keys) > _MOST_NAMES else "")
    hint = f"{similar} the attributes are: {listed}".lstrip()
    return NotFoundError(f"no array{_with(before)} has an attribute {name!r}", hint=hint)


def _no_value(name: str, value: Any, present: Iterable[Any], before: Sequence[str]) -> NotFoundError:
    values = sorted({_shown(one) for one in present if one is not None})
    listed = ", ".join(values[:_MOST_VALUES])
    listed += f" or one of {len(values) - _MOST_VALUES} others" if len(values) > _MOST_VALUES else ""
    similar = near_names(value, (one for one in present if isinstance(one, str)))
    return NotFoundError(f"no array{_with(before)} has {name}={value!r}", hint=f"{similar} {name} is {listed}".lstrip())


def _with(before: Sequence[str]) -> str:
    return f" of {' and '.join(before)}" if before else ""


def _shown(value: Any) -> str:
    """Return a value of an attribute for a message.

    >>> _shown("MIROC6"), _shown(np.int32(3))
    ("'MIROC6'", '3')
    """
    text = " ".join((repr(value) if isinstance(value, str) else str(value)).split())
    return text if len(text) <= 60 else text[:57] + "..."
