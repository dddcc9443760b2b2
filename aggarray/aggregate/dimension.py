"""How does an attribute, or a part of a file's path, become a new dimension of ensembles?

Each array gets it as a scalar coordinate; scalar coordinates that differ lead as a dimension when arrays are joined.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from aggarray.aggregate.rules import FACETS, Rules, facet, parse_dimension
from aggarray.errors import AggregationError
from aggarray.master import MasterArray, SubArray


def with_dimension(arrays: Sequence[MasterArray], new_dimension: str) -> list[MasterArray]:
    """Return the arrays with the scalar coordinate that the rule asks for; those without a value are left as they are.

    Values that are whole numbers throughout become int64, others text. Raises AggregationError where no array has a value.
    """
    name, pattern = parse_dimension(new_dimension)
    values = [_value(array, name, pattern) for array in arrays]
    if arrays and all(v is None for v in values):
        where = f"attribute {name!r}" if pattern is None else f"path that {pattern.pattern!r} matches"
        raise AggregationError(f"new_dimension={new_dimension!r}: no file has a {where}; correct the name or the pattern")
    whole = all(v is None or re.fullmatch(r"-?[0-9]{1,18}", v) for v in values)
    return [
        array if v is None else _with_scalar(array, name, int(v) if whole else v)
        for array, v in zip(arrays, values, strict=True)
    ]


def _value(array: MasterArray, name: str, pattern: re.Pattern[str] | None) -> str | None:
    if pattern is None:
        return facet(array.file_attrs, name) if name in array.file_attrs else facet(array.attrs, name)
    for uri in array._matrix.references.uris:
        found = pattern.search(str(uri))
        if found is not None:
            return found.group(1)
    return None


def _with_scalar(array: MasterArray, name: str, value: Any) -> MasterArray:
    values = np.asarray(value, np.int64 if isinstance(value, int) else np.dtypes.StringDType())
    scalar = MasterArray.from_subarrays([((), SubArray.from_array(values))], dimensions=(), name=name)
    return replace(array, coords={**array.coords, name: replace(scalar, _known=(values, None))})


def check_names(arrays: Sequence[MasterArray], rules: Rules) -> None:
    """Raise AggregationError for rules that name a dimension or a facet that no array has: a slip of the pen, most likely."""
    if not arrays:
        return
    known: set[str] = set()
    for array in arrays:
        known.update(array.dimensions, array.coords)
        known.update(str(c.attrs["standard_name"]) for c in array.coords.values() if "standard_name" in c.attrs)
    stated = {"along": rules.along or (), "order": tuple(rules.order), "directions": tuple(rules.directions)}
    for field, names in stated.items():
        unknown = [name for name in names if name not in known]
        if unknown:
            raise AggregationError(
                f"{field} names {unknown[0]!r}, which no array has: there is {', '.join(sorted(known)) or 'none'}"
            )
    for name in () if rules.separate_by == FACETS else rules.separate_by:
        if not any(name in array.file_attrs or name in array.attrs for array in arrays):
            raise AggregationError(f"separate_by names {name!r}, an attribute that no file has: correct it or leave it out")
