"""Reductions that an extract holds in place of the arrays themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from threading import Lock
from typing import Any

from aggarray.arrays.master import MasterArray
from aggarray.dataclass import dataclass, replace
from aggarray.errors import AggregationError
from aggarray.scan.progress import Progress

#: Dimensions of an operation; None: all of the array.
Dimensions = tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class Reduction:
    """Operations that reduce each array.

    ``operations``: names with dimensions; also "median", and quantiles such as "quantile 0.9". Those over the same dimensions
    are computed in one pass over the files, except medians and quantiles. The other fields are as in `MasterArray.reduce`.

    >>> Reduction((("mean", ("time",)), ("max", ("time",)))).names("tas")
    ['tas_mean', 'tas_max']
    """

    operations: tuple[tuple[str, Dimensions], ...]
    by: Any = None
    weights: Any = None
    skipna: bool = True
    min_count: int = 1

    def names(self, name: str | None) -> list[str]:
        """Return the name of each result of an array.

        A single result keeps the name. Others are named by their operation (quantiles: p90), and by dimensions if it occurs
        twice.
        """
        name = name or "array"
        if len(self.operations) == 1:
            return [name]
        operations = [_short(operation) for operation, _ in self.operations]
        stated = [(dims or ("all",)) if operations.count(_short(operation)) > 1 else () for operation, dims in self.operations]
        return ["_".join([name, operation, *dims]) for operation, dims in zip(operations, stated, strict=True)]

    def applies_to(self, array: MasterArray) -> bool:
        """Return whether an array has numbers and all reduced dimensions."""
        dimensions = {d for _, dims in self.operations for d in dims or ()}
        return array.dtype.kind in "iufb" and dimensions <= set(array.dimensions)

    def of(self, arrays: Sequence[MasterArray], progress: Progress | None = None) -> list[MasterArray]:
        """Return the results of all arrays; ``progress`` receives bytes."""
        passes = len({dims for operation, dims in self.operations if not _is_quantile(operation)})
        passes += sum(_is_quantile(operation) for operation, _ in self.operations)
        total, done, lock = passes * sum(array.nbytes for array in arrays), 0, Lock()

        def advance(nbytes: int) -> None:
            nonlocal done
            with lock:
                done += nbytes
                if progress is not None:
                    progress(min(done, total), total, "reducing")

        return [result for array in arrays for result in self._of(array, advance)]

    def _of(self, array: MasterArray, advance: Callable[[int], None]) -> list[MasterArray]:
        from aggarray.reduce import reduce_array
        from aggarray.reduce.quantiles import quantile_of

        results: dict[tuple[str, Dimensions], MasterArray] = {}
        for dims in dict.fromkeys(dims for _, dims in self.operations):
            own = [operation for operation, others in self.operations if others == dims]
            together = [operation for operation in own if not _is_quantile(operation)]
            how = {**self._options, "weights": self.weights, "advance": advance}
            made = reduce_array(array, together, dims, **how) if together else {}
            for operation in own:
                if operation not in made:
                    made[operation] = quantile_of(array, *self._quantile(operation, dims))
                    advance(array.nbytes)
            results |= {(operation, dims): result for operation, result in made.items()}
        named = zip(self.names(array.name), self.operations, strict=True)
        return [_storable(replace(results[operation], name=name)) for name, operation in named]

    @property
    def _options(self) -> dict[str, Any]:
        return {"by": self.by, "skipna": self.skipna, "min_count": self.min_count}

    def _quantile(self, operation: str, dims: Dimensions) -> tuple[Any, ...]:
        """Return the arguments of `quantile_of`, which takes no weights."""
        name, _, probability = operation.partition(" ")
        if self.weights is not None:
            raise AggregationError(f"a {name} has no weights", hint="leave out weights, or compute it without the others")
        return float(probability or 0.5), dims, self._options, name

    def check_names(self, arrays: Sequence[MasterArray]) -> None:
        """Raise AggregationError if two results have one name."""
        names = [name for array in arrays for name in self.names(array.name)]
        repeated = next((name for name in names if names.count(name) > 1), None)
        if repeated is not None:
            raise AggregationError(f"two results are named {repeated!r}", hint="give each operation and variable once")

    def check(self, arrays: Sequence[MasterArray]) -> None:
        """Raise the errors of the reduction of each array before it is read."""
        from aggarray.reduce.quantiles import checked_work
        from aggarray.reduce.request import axes_of, check_operations, check_options, check_order, groups_along, weight_factors

        for array in arrays:
            for operation, dims in self.operations:
                if _is_quantile(operation):
                    checked_work(array, *self._quantile(operation, dims))
                    continue
                names, axes = check_operations(array, [operation]), axes_of(array, dims)
                check_order(array, names, axes)
                check_options(array, self.skipna, self.min_count)
                if self.by is not None:
                    groups_along(array, axes, self.by)
                weight_factors(array, dims, names, self.weights)


def _is_quantile(operation: str) -> bool:
    return operation.partition(" ")[0] in ("median", "quantile")


def _short(operation: str) -> str:
    """Return an operation as part of a name.

    >>> _short("mean"), _short("quantile 0.9"), _short("quantile 0.999")
    ('mean', 'p90', 'p99.9')
    """
    name, _, probability = operation.partition(" ")
    return f"p{(Decimal(probability) * 100).normalize():f}" if probability else name


def _storable(array: MasterArray) -> MasterArray:
    """Return an array that files hold: flags as integers, as xarray does."""
    if array.dtype.kind != "b":
        return array
    return replace(array.astype("i1"), attrs={**array.attrs, "dtype": "bool"})
