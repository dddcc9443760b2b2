"""Operations of ``reduce`` and of job files, and their arrays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from aggarray.arrays.master import MasterArray
    from aggarray.export.extract.reductions import Reduction

#: Other arguments of a reduction.
OPTIONS = ("by", "weights", "skipna", "min_count")
#: Operations with their help.
OPERATIONS = {
    "mean": "Mean over these dimensions (time; lat,lon). Without any: those of the other operations, else all.",
    "sum": "Sum.",
    "min": "Smallest value.",
    "max": "Largest value.",
    "std": "Standard deviation of the population.",
    "var": "Variance of the population.",
    "count": "Number of values that are not missing.",
    "any": "Whether any value is not 0.",
    "all": "Whether no value is 0.",
    "first": "First value.",
    "last": "Last value.",
    "argmin": "Position of the smallest value.",
    "argmax": "Position of the largest value.",
    "median": "Median.",
}


def quantiles_of(texts: Sequence[Any], where: str) -> list[tuple[str, str]]:
    """Return operations of texts such as "0.9" and "0.9:time".

    Raises BadParameter for others.

    >>> quantiles_of(["0.9", "0.50:lat,lon", 1, "0.99999999"], "--quantile")
    [('quantile 0.9', ''), ('quantile 0.5', 'lat,lon'), ('quantile 1', ''), ('quantile 0.99999999', '')]
    """
    operations = []
    for text in texts:
        number, _, dims = str(text).partition(":")
        try:
            probability = float(number)
        except ValueError:
            probability = -1
        if not 0 <= probability <= 1:
            raise click.BadParameter(f"{text!r} is not a number from 0 to 1, such as 0.9 or 0.9:time", param_hint=where)
        operations.append((f"quantile {probability!r}".removesuffix(".0"), dims))
    return operations


def reduction_of(
    operations: Iterable[tuple[str, str | Sequence[str]]], options: Mapping[str, Any], prefix: str = "--"
) -> Reduction:
    """Return a reduction; UsageError for operations that are not clear.

    ``operations``: with names of dimensions, or a text of them with commas; an operation without dimensions has those of the
    others. ``options``: by, weights, skipna, min_count; None: the default. ``prefix``: of operations in errors.

    >>> reduction_of([("mean", "lat,lon"), ("max", "")], {}).operations
    (('mean', ('lat', 'lon')), ('max', ('lat', 'lon')))
    """
    from aggarray.export.extract.reductions import Reduction

    parsed = [(operation, _names(text)) for operation, text in operations]
    example = "--mean time" if prefix else "mean = 'time'"
    if not parsed:
        raise click.UsageError(f"no operation is given; give one, such as {example}")
    stated = list(dict.fromkeys(dims for _, dims in parsed if dims))
    if len(stated) > 1 and not all(dims for _, dims in parsed):
        unclear = next(operation for operation, dims in parsed if not dims).partition(" ")[0]
        given = " and ".join(",".join(dims) for dims in stated)
        raise click.UsageError(f"the dimensions of {prefix}{unclear} are not clear: the others have {given}; give its own")
    default = stated[0] if stated else None
    if options.get("by") is not None and any(len(dims) != 1 for dims in stated or [()]):
        given = next((",".join(dims) for dims in stated if len(dims) != 1), "none")
        raise click.UsageError(f"{prefix}by groups one dimension: {given} is given; name it, such as {example}")
    pairs = tuple((operation, dims or default) for operation, dims in parsed)
    repeated = next((pair for pair in pairs if pairs.count(pair) > 1), None)
    if repeated is not None:
        raise click.UsageError(f"{prefix}{' '.join([repeated[0], *(repeated[1] or ())])} is given twice; give it once")
    return Reduction(pairs, **{name: value for name, value in options.items() if value is not None})


def _names(text: str | Sequence[str]) -> tuple[str, ...]:
    parts = text.split(",") if isinstance(text, str) else text
    return tuple(dict.fromkeys(name.strip() for name in parts if name.strip()))


def reduced_arrays(arrays: Sequence[MasterArray], reduction: Reduction, are_named: bool) -> tuple[list[MasterArray], list[str]]:
    """Return the arrays that a reduction applies to, and names of others.

    All arrays if the user gave their names, or if it applies to none: the reduction raises the error.
    """
    fitting = [array for array in arrays if reduction.applies_to(array)]
    if are_named or not fitting:
        return list(arrays), []
    return fitting, [array.name or "" for array in arrays if not reduction.applies_to(array)]


def shapes_in(path: str, arrays: Sequence[MasterArray], reduction: Reduction) -> dict[str, dict[str, int]]:
    """Return the sizes of each result of a file by dimension."""
    from aggarray.formats import scan

    variables = {v.name: v for v in scan(path).variables}
    names = [name for array in arrays for name in reduction.names(array.name) if name in variables]
    return {name: dict(zip(variables[name].dimensions, variables[name].shape, strict=True)) for name in names}
