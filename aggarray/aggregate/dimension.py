"""How does an attribute, or a part of a file's path, become a new dimension of ensembles?

Each array gets it as a scalar coordinate; scalar coordinates that differ lead as a dimension when arrays are joined.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from aggarray.aggregate.rules import facet
from aggarray.errors import AggregationError
from aggarray.master import MasterArray, SubArray


def parse(new_dimension: str) -> tuple[str, re.Pattern[str] | None]:
    """Return the name of a new dimension and the pattern that finds its value in a path, None for an attribute.

    Raises AggregationError unless it is a name or ``name=regex`` with exactly one group.

    >>> parse("variant_label")
    ('variant_label', None)
    """
    name, equals, pattern = new_dimension.partition("=")
    if not name.isidentifier():
        raise AggregationError(f"new_dimension={new_dimension!r}: give an attribute's name, or name=regex with one group")
    if not equals:
        return name, None
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise AggregationError(f"new_dimension={new_dimension!r}: the pattern does not compile: {error}") from error
    if compiled.groups != 1:
        raise AggregationError(
            f"new_dimension={new_dimension!r}: the pattern has {compiled.groups} groups: give one, for the value"
        )
    return name, compiled


def with_dimension(arrays: Sequence[MasterArray], new_dimension: str) -> list[MasterArray]:
    """Return the arrays with the scalar coordinate that the rule asks for; those without a value are left as they are.

    Values that are whole numbers throughout become int64, others text. Raises AggregationError where no array has a value.
    """
    name, pattern = parse(new_dimension)
    values = [_value(array, name, pattern) for array in arrays]
    if arrays and all(v is None for v in values):
        where = f"attribute {name!r}" if pattern is None else f"path that {pattern.pattern!r} matches"
        raise AggregationError(f"new_dimension={new_dimension!r}: no file has a {where}; correct the name or the pattern")
    whole = all(v is None or re.fullmatch(r"-?(0|[1-9]\d{0,17})", v) for v in values)
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
