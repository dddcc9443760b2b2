"""Reductions of distributed arrays: sum, mean, min, max, count, std.

Each process reduces its owned elements in float64. Processes that differ only in their coordinates along the reduced dimensions
then combine their results. All of them get the result.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from aggarray.arrays.local import LocalArray
from aggarray.cf.units.temperature import DIFFERENCE, has_temperature
from aggarray.errors import ExchangeError
from aggarray.maps import Block, Distribution, Map, Unstructured
from aggarray.maps.fields import short_repr
from aggarray.memory.selection import Range
from aggarray.mpi.metadata import ArrayMetadata, ReducedArray, axes_of, metadata_of
from aggarray.mpi.reading import group_over
from aggarray.mpi.schedule.groups import kept_groups, rank_at
from aggarray.mpi.schedule.overlap import owned_runs
from aggarray.mpi.sections import import_sections
from aggarray.mpi.transport.agreement import call_on_all
from aggarray.mpi.transport.base import Link
from aggarray.mpi.transport.trees import broadcast_tree

OPERATIONS = ("sum", "mean", "min", "max", "count", "std")
_METHODS = {"sum": "sum", "mean": "mean", "min": "minimum", "max": "maximum", "std": "standard_deviation"}


def reduce(local: Any, operation: str, dimensions: Any, comm: Any) -> LocalArray:
    """Return the reduction of a distributed array over dimensions.

    ``local``: the section of this process, a LocalArray or an exporter with ``__distarray__``, whose dimensions are dim_0,
    dim_1, ... ``operation``: sum, mean, min, max, count or std (the population's, as in NumPy). ``dimensions``: a name, names,
    or None for all. Missing values (NaN; the fill value of integers) are ignored. If all values are missing, the sum is 0, and
    the other operations return NaN or the fill value. The result is distributed over the remaining dimensions, without padding:
    each process has the section of its coordinates along these, so that several processes have equal sections. Sums, means and
    deviations are float64 and counts int64; extremes have the dtype of the array. Collective over ``comm``; raises
    ExchangeError on all processes.

    >>> from aggarray.mpi import ProcessGroup
    >>> one = LocalArray.from_distarray({"__version__": "0.10.0", "buffer": np.array([1.0, np.nan, 3.0]), "dim_data": ({},)})
    >>> with ProcessGroup.serial() as group:
    ...     reduce(one, "mean", None, group).buffer.item()
    2.0
    """
    with group_over(comm) as group:
        link = group.section
        _open_node(link)
        section, held = import_sections(link, local, "reduce")
        metadata, axes = _compare_arguments(link, section, operation, dimensions)
        distribution = section.distribution
        kept = [d for d in range(len(distribution.maps)) if d not in axes]
        result = Distribution(tuple(_owned_map(distribution.maps[d]) for d in kept))
        coords = distribution.coords(section.rank)
        rank = rank_at(result.grid, [coords[d] for d in kept])
        # Of processes with equal sections, the first reduces and broadcasts the result.
        groups = kept_groups([same[0] for same in held], distribution.grid, kept)
        ranks = next((g for g in groups if link.rank in g), None)
        if ranks is None:
            native = section.dtype.newbyteorder("=")
            dtype = {"min": native, "max": native, "count": np.dtype(np.int64)}.get(operation, np.dtype(np.float64))
            values = np.empty(result.local_shape(rank), dtype)
        else:
            # Infinite values and overflows are results, not errors.
            with np.errstate(all="ignore"):
                values = _Reduction(link, ranks, _owned(section), axes, metadata.fill_value).compute(operation)
        broadcast_tree(link, held[section.rank], values)
    return ReducedArray.of(values, result, rank, _result_metadata(metadata, operation, axes, values.dtype))


def _compare_arguments(link: Link, local: LocalArray, operation: Any, dimensions: Any) -> tuple[ArrayMetadata, tuple[int, ...]]:
    """Return metadata and reduced axes, which all processes compare."""

    def check() -> tuple[ArrayMetadata, tuple[int, ...]]:
        if not isinstance(operation, str) or operation not in OPERATIONS:
            raise ExchangeError(f"unknown operation {short_repr(operation)}", hint=f"give one of {', '.join(OPERATIONS)}")
        if local.dtype.kind not in "iufb":
            raise ExchangeError(f"values of {local.dtype} cannot be reduced", hint="give numbers")
        metadata = metadata_of(local)
        axes = axes_of(dimensions, metadata)
        local.buffer  # noqa: B018 (all processes raise an error of the read)
        return metadata, axes

    return call_on_all(link, check, ("reduce", short_repr(operation), short_repr(dimensions)))


def _owned(local: LocalArray) -> np.ndarray:
    """Return the owned elements of a buffer; the lowest rank owns shared ones."""
    values = local.buffer
    coords = local.distribution.coords(local.rank)
    for d, (map_, coordinate) in enumerate(zip(local.distribution.maps, coords, strict=True)):
        runs = [run.positions for run in owned_runs(map_, coordinate)]
        if len(runs) == 1 and isinstance(runs[0], Range):
            values = values[(slice(None),) * d + (runs[0].as_slice(),)]
        else:
            positions = [np.zeros(0, np.int64), *(r.indices() if isinstance(r, Range) else r for r in runs)]
            values = values.take(np.concatenate(positions), axis=d)
    return values


def _owned_map(map_: Map) -> Map:
    if isinstance(map_, Block):
        return Block(map_.bounds, None, map_.periodic)
    if isinstance(map_, Unstructured):
        owned = [map_.indices(p)[map_.owns(p)] for p in range(map_.nprocs)]
        return Unstructured(map_.size, owned, one_to_one=True)
    return map_


class _Reduction:
    """Reduction of the values of a group of processes."""

    def __init__(self, link: Link, ranks: Sequence[int], values: np.ndarray, axes: tuple[int, ...], fill: Any) -> None:
        self._link, self._ranks, self._axes, self._fill = link, ranks, axes, fill
        self._values = values if values.dtype.isnative else values.astype(values.dtype.newbyteorder("="))
        if values.dtype.kind == "f":
            self._valid = ~np.isnan(self._values)
        else:
            self._valid = np.ones(values.shape, bool) if fill is None else self._values != fill
        self._count = self._combine(self._valid.sum(axis=axes, dtype=np.int64))

    def compute(self, operation: str) -> np.ndarray:
        """Return the result, equal on all processes of the group."""
        if operation == "count":
            return self._count
        if operation in ("min", "max"):
            return self._extreme(operation)
        total = self._combine(self._sum(self._values))
        if operation == "sum":
            return total
        mean = self._divide_by_count(total)
        if operation == "mean":
            return mean
        # Two passes keep the precision of small deviations from a large mean.
        deviations = self._values - np.expand_dims(mean, self._axes)
        return np.asarray(np.sqrt(self._divide_by_count(self._combine(self._sum(deviations * deviations)))))

    def _sum(self, values: np.ndarray) -> np.ndarray:
        return np.asarray(values.sum(axis=self._axes, dtype=np.float64, where=self._valid))

    def _divide_by_count(self, total: np.ndarray) -> np.ndarray:
        quotient = np.full(total.shape, np.nan)
        return np.asarray(np.divide(total, self._count, out=quotient, where=self._count > 0))

    def _extreme(self, operation: str) -> np.ndarray:
        dtype, combine = self._values.dtype, np.minimum if operation == "min" else np.maximum
        limits: Any = np.iinfo(dtype) if dtype.kind in "iu" else None
        ends: tuple[Any, Any] = (limits.min, limits.max) if limits else (-np.inf, np.inf)
        lowest, highest = (False, True) if dtype.kind == "b" else ends
        start = highest if operation == "min" else lowest
        own = combine.reduce(self._values, axis=self._axes, initial=start, where=self._valid)
        extreme = self._combine(np.asarray(own, dtype), combine)
        missing = self._fill if self._fill is not None else (np.nan if dtype.kind == "f" else 0)
        return np.where(self._count > 0, extreme, np.asarray(missing, dtype))

    def _combine(self, values: Any, combine: np.ufunc = np.add) -> np.ndarray:
        combined = np.array(values, order="C", copy=True)
        from aggarray.mpi.sums import allreduce

        allreduce(self._link, self._ranks, combined, combine)
        return combined


def _result_metadata(metadata: ArrayMetadata, operation: str, axes: tuple[int, ...], dtype: np.dtype[Any]) -> ArrayMetadata:
    """Return result metadata, without coordinates of reduced dimensions."""
    reduced = {metadata.dimensions[d] for d in axes}
    coords = {name: c for name, c in metadata.coords.items() if not reduced & set(c.dimensions)}
    attrs = dict(metadata.attrs)
    changed = replace(metadata, dimensions=tuple(d for d in metadata.dimensions if d not in reduced), coords=coords)
    if operation == "count":
        attrs = {k: v for k, v in attrs.items() if k not in ("standard_name", "cell_methods", "units_metadata")}
        return replace(changed, attrs=attrs, units="1", calendar=None, fill_value=None)
    method = " ".join(f"{name}:" for name in metadata.dimensions if name in reduced) + f" {_METHODS[operation]}"
    if reduced:
        attrs["cell_methods"] = f"{attrs.get('cell_methods', '')} {method}".strip()
    if reduced and operation == "std" and has_temperature(metadata.units):
        attrs["units_metadata"] = f"temperature: {DIFFERENCE}"
    return replace(changed, attrs=attrs, fill_value=metadata.fill_value if dtype.kind in "iu" else None)


def _open_node(link: Link) -> None:
    from aggarray.mpi.node import node_of

    node_of(link)
