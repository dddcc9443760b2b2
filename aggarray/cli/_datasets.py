"""The arrays of one dataset, and how to choose it among several."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from aggarray.errors import AggregationError, NotFoundError, UnitsError, listed

if TYPE_CHECKING:
    from aggarray.aggregate.rules import Refusal
    from aggarray.arrays.master import MasterArray

#: Facets in which the variables of one dataset may differ: fixed fields beside monthly ones.
_WITHIN = ("table_id", "frequency", "modeling_realm")
#: Most values of an attribute, and variables of a grid, in an error.
_MOST_LISTED = 8


def as_options(where: Mapping[str, str], names: Sequence[str] = ()) -> str:
    """Return options that select arrays by attributes and names.

    >>> as_options({"source_id": "M1", "units": "kg m-2"}, ["pr"])
    "-v pr --where source_id=M1 --where 'units=kg m-2'"
    """
    pairs = [("-v", name) for name in names] + [("--where", f"{name}={value}") for name, value in where.items()]
    return " ".join(f"{option} {shlex.quote(value)}" for option, value in pairs)


def as_keys(where: Mapping[str, str], names: Sequence[str] = ()) -> str:
    """Return keys of a job file that select arrays by attributes and names.

    >>> as_keys({"source_id": "M1"}), as_keys({}, ["pr", "tas"])
    ("where = { source_id = 'M1' }", "variables = ['pr', 'tas']")
    """
    table = f"where = {{ {', '.join(f'{name} = {value!r}' for name, value in where.items())} }}"
    return ", ".join([f"variables = {list(names)!r}"] * bool(names) + [table] * bool(where))


def require_dataset(
    arrays: Sequence[MasterArray],
    are_named: bool,
    written: Callable[..., str] = as_options,
    refusals: Sequence[Refusal] = (),
) -> list[MasterArray]:
    """Return the arrays if they are one dataset.

    Otherwise AggregationError tells what distinguishes the datasets, and how to select one. ``written``: writes a selection.
    ``are_named``: the user gave the names of the arrays: they may have different grids. ``refusals``: tell why arrays of one
    dataset and name were not joined.
    """
    from aggarray.aggregate.differences import distinguishing_facets

    facets = distinguishing_facets(arrays)
    separate = {name for name, values in facets if name not in _WITHIN and len(set(values) - {None}) > 1}
    if separate or _repeated(arrays):
        _raise_datasets(arrays, [facet for facet in facets if _repeated(arrays) or facet[0] in separate], written, refusals)
    if not are_named:
        _check_grids(arrays, written)
    return list(arrays)


def _repeated(arrays: Sequence[MasterArray]) -> list[MasterArray]:
    """Return the arrays of the first name that several have."""
    by_name: dict[str | None, list[MasterArray]] = {}
    for array in arrays:
        by_name.setdefault(array.name, []).append(array)
    return next((same for same in by_name.values() if len(same) > 1), [])


def _raise_datasets(
    arrays: Sequence[MasterArray],
    facets: Sequence[tuple[str, list[str | None]]],
    written: Callable[..., str],
    refusals: Sequence[Refusal],
) -> None:
    from aggarray.aggregate.differences import differing_attributes, distinguishing_text
    from aggarray.partition.file_names import paths_among

    rows = list(zip(*(values for _, values in facets), strict=True)) or [()] * len(arrays)
    same = _repeated([a for a, row in zip(arrays, rows, strict=True) if row == rows[0]])
    # Arrays of equal facets differ in units, cell_methods or the like.
    where = _first_of(facets) | _first_of(differing_attributes(same)[:1])
    possible = () if facets or where else refusals
    files = paths_among((array._matrix.references for array in same), {file for r in possible for file in r.files})
    refused = next((r for r in possible if files.issuperset(r.files)), None)
    if refused is not None:
        reason, _, advice = refused.reason.partition("; give ")
        if written is as_keys:  # a job file
            advice = re.sub(r"Rules\((\w+)=('\w+')\)", r"\1 = \2 in [rules]", advice)
        how = f"give {advice}" if advice else "run aggarray explain, and leave out the files of one"
        raise AggregationError(f"{len(same)} arrays are named {same[0].name!r}: {reason}", hint=how)
    if facets:
        what = f"{len(set(rows))} datasets instead of one: they differ in {'; '.join(map(_listed, facets))}"
    else:
        what = f"{len(same)} arrays are named {same[0].name!r}: {distinguishing_text(same)}"
    hint = f"choose one, for example with {written(where)}" if where else "run aggarray explain for the reasons"
    raise AggregationError(what, hint=hint)


def _first_of(facets: Sequence[tuple[str, list[str | None]]]) -> dict[str, str]:
    """Return the values that select the first array, without redundant ones.

    >>> _first_of([("model", ["a", "b", "b"]), ("grid", ["x", "y", "z"]), ("table", ["m", "m", "d"])])
    {'model': 'a'}
    """
    chosen: dict[str, str] = {}
    rows = set(range(len(facets[0][1]))) if facets else set()
    for name, values in facets:
        if (value := values[0]) is not None and any(values[row] != value for row in rows):
            chosen[name] = value
            rows = {row for row in rows if values[row] == value}
    return chosen


def _listed(facet: tuple[str, list[str | None]]) -> str:
    name, values = facet
    distinct = sorted({v for v in values if v is not None}) + ["none"] * (None in values)
    return f"{name}: {listed(distinct, _MOST_LISTED)}"


def _check_grids(arrays: Sequence[MasterArray], written: Callable[..., str]) -> None:
    """Raise AggregationError for arrays that do not share dimensions."""
    from aggarray.arrays.ragged_variables import flatten_ragged
    from aggarray.output.dataset import grouped

    groups = grouped(map(flatten_ragged, arrays))
    if len(groups) > 1:
        texts = []
        for group in groups:
            names = [a.name or "" for a in group.arrays]
            sizes = {d: n for a in group.arrays for d, n in zip(a.dimensions, a.shape, strict=True)}
            texts.append(f"{listed(names, _MOST_LISTED)} ({', '.join(f'{d}: {n}' for d, n in sizes.items())})")
        largest = max(groups, key=lambda group: len(group.arrays))
        advice = written({}, [a.name or "" for a in largest.arrays[:_MOST_LISTED]])
        raise AggregationError(f"{len(groups)} grids instead of one: {'; '.join(texts)}", hint=f"choose variables: {advice}")


def converted(arrays: Sequence[MasterArray], units: Mapping[str, str]) -> list[MasterArray]:
    """Return arrays, those of the given names lazily in other units."""
    names = sorted({a.name or "" for a in arrays})
    for name in units:
        if name not in names:
            raise NotFoundError(f"units of {name!r}: no such variable", hint=f"the variables are: {', '.join(names) or 'none'}")
    return [_in_units(array, units[array.name or ""]) if array.name in units else array for array in arrays]


def _in_units(array: MasterArray, units: str) -> MasterArray:
    try:
        return array.to_units(units)
    except UnitsError as error:
        error.variable = array.name
        raise
