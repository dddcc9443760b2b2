"""Reductions of distributed arrays: those of `MasterArray.reduce`.

Each process reduces its owned elements. Processes that differ only in their coordinates along the reduced dimensions then
combine their results. All of them get the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from aggarray.arrays.local import LocalArray
from aggarray.arrays.master import MasterArray
from aggarray.dataclass import NamedTuple, replace
from aggarray.errors import ExchangeError
from aggarray.maps import Block, Distribution, Map, Unstructured
from aggarray.maps.fields import short_repr
from aggarray.memory.selection import Range
from aggarray.mpi.metadata import ArrayMetadata, ReducedArray, axes_of, metadata_of, metadata_of_array
from aggarray.mpi.reading import group_over
from aggarray.mpi.reduced_values import Section, SectionReduction
from aggarray.mpi.schedule.groups import kept_groups, rank_at
from aggarray.mpi.schedule.overlap import owned_runs
from aggarray.mpi.sections import import_sections
from aggarray.mpi.transport.agreement import call_on_all, call_on_root
from aggarray.mpi.transport.base import Link
from aggarray.mpi.transport.trees import broadcast_tree
from aggarray.partition.conform import fill_for
from aggarray.reduce.cell_methods import cell_method, result_attributes, result_units
from aggarray.reduce.operations import CHOSEN, OPERATIONS, WEIGHTED, Work
from aggarray.reduce.request import check_order, check_values, groups_along

if TYPE_CHECKING:
    from aggarray.reduce.grouping import Groups


class _Request(NamedTuple):
    """What is computed of an array with this metadata.

    ``axes``: the reduced dimensions; ``groups``: along the only one; ``factors``: of the weights.
    """

    operation: str
    metadata: ArrayMetadata
    axes: tuple[int, ...]
    groups: Groups | None = None
    factors: tuple[tuple[tuple[str, ...], np.ndarray], ...] = ()
    result: ArrayMetadata | None = None

    @property
    def dims(self) -> tuple[str, ...]:
        """Names of the reduced dimensions."""
        return tuple(self.metadata.dimensions[axis] for axis in self.axes)


def reduce(local: Any, operation: str, dimensions: Any, comm: Any, by: Any = None, weights: Any = None) -> LocalArray:
    """Return the reduction of a distributed array over dimensions.

    ``local``: the section of this process, a LocalArray or an exporter with ``__distarray__``, whose dimensions are dim_0,
    dim_1, ... ``operation``, ``by`` and ``weights``: as in `MasterArray.reduce`, with the same results; groups and weights are
    those of the whole array, which process 0 finds and sends to the others. ``dimensions``: a name, names, or None for all.
    Missing values (NaN; the fill value of integers) are ignored. If all are missing, the result is missing, but a position is
    -1, and as in NumPy, any is False, all is True, and a sum without groups and weights is 0.
    The result is distributed over the remaining dimensions, without padding: each process has the section of its coordinates
    along these, and all groups, so that several processes have equal sections. Sums, means, variances and deviations are
    float64 (sums of integers int64, of uint64 the same), counts and positions int64, any and all bool; other results have the
    dtype of the array. Collective over ``comm``; raises ExchangeError, or the error of `MasterArray.reduce`, on all processes.

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
        request = _agreed(link, section, operation, dimensions, by, weights)
        result, rank = _place(section, request)
        # Of processes with equal sections, the first reduces and broadcasts the result.
        kept = [d for d in range(len(section.shape)) if d not in request.axes]
        members = kept_groups([same[0] for same in held], section.distribution.grid, kept)
        values, metadata = _computed(link, next((g for g in members if link.rank in g), None), section, request)
        values = np.empty(result.local_shape(rank), values) if isinstance(values, np.dtype) else values
        broadcast_tree(link, held[section.rank], values)
    return ReducedArray.of(values, result, rank, replace(metadata, source=request.metadata.source))


def _agreed(link: Link, local: LocalArray, operation: Any, dimensions: Any, by: Any, weights: Any) -> _Request:
    """Return what is computed, which all processes compare."""

    def check() -> tuple[_Request, MasterArray]:
        if not isinstance(operation, str) or operation not in OPERATIONS:
            raise ExchangeError(f"unknown operation {short_repr(operation)}", hint=f"give one of {', '.join(OPERATIONS)}")
        if local.dtype.kind not in "iufb":
            raise ExchangeError(f"values of {local.dtype} cannot be reduced", hint="give numbers")
        metadata = metadata_of(local)
        axes = tuple(sorted(axes_of(dimensions, metadata)))
        array = _described(metadata, local)
        check_values(array, [operation])
        check_order(array, [operation], axes)
        local.buffer  # noqa: B018 (all processes raise an error of the read)
        return _Request(operation, metadata, axes), array

    request, array = call_on_all(link, check, ("reduce", *map(short_repr, (operation, dimensions, by, weights))))
    if by is None and weights is None:
        return request
    groups, factors, result = call_on_root(link, lambda: _groups_and_weights(request, array, dimensions, by, weights))
    return request._replace(groups=groups, factors=factors, result=result)


def _groups_and_weights(
    request: _Request, array: MasterArray, dimensions: Any, by: Any, weights: Any
) -> tuple[Any, Any, ArrayMetadata]:
    """Return groups, factors of weights, and metadata of the whole result."""
    from aggarray.reduce.description import Description, result_dimensions
    from aggarray.reduce.weighting import weights_of

    groups = None if by is None else groups_along(array, request.axes, by)
    # An array of weights is in the order of the dimensions as given.
    factors = weights_of(array, [array.dimensions[axis] for axis in axes_of(dimensions, request.metadata)], weights) or ()
    sizes = {**array.sizes, **({} if groups is None else {groups.name: groups.count})}
    shape = [sizes[name] for name in result_dimensions(array, request.dims, groups)]
    values = np.broadcast_to(np.zeros((), np.int8), shape)
    result = Description.of(array, request.dims, groups, weights).result(values, None, request.operation)
    return groups, factors, replace(metadata_of_array(result), file_attrs=request.metadata.file_attrs)


def _described(metadata: ArrayMetadata, local: LocalArray) -> MasterArray:
    """Return a master array with the metadata of a section, without values."""
    if isinstance(local.source, MasterArray) and local.source.dimensions == metadata.dimensions:
        return local.source
    shape, units, calendar = local.distribution.shape, metadata.units, metadata.calendar
    array = MasterArray.from_subarrays(
        [],
        dimensions=metadata.dimensions,
        shape=shape,
        dtype=local.dtype,
        name=metadata.name,
        units=units,
        calendar=calendar,
    )
    return replace(array, attrs={**array.attrs, **metadata.attrs}, file_attrs=metadata.file_attrs, coords=metadata.coords)


def _place(section: LocalArray, request: _Request) -> tuple[Distribution, int]:
    """Return the distribution of the result, and the rank of this process."""
    distribution, coords = section.distribution, section.distribution.coords(section.rank)
    result = Distribution(_result_maps(distribution, request))
    # All groups are on every process.
    shown = [0 if d in request.axes else c for d, c in enumerate(coords) if d not in request.axes or request.groups is not None]
    return result, rank_at(result.grid, shown)


def _result_maps(distribution: Distribution, request: _Request) -> tuple[Map, ...]:
    """Return the maps of the result: all groups are on every process."""
    maps: list[Map] = []
    for axis, map_ in enumerate(distribution.maps):
        if request.groups is not None and axis in request.axes:
            maps.append(Block.even(request.groups.count, 1))
        elif axis not in request.axes:
            maps.append(_owned_map(map_))
    return tuple(maps)


def _result_metadata(request: _Request, dtype: np.dtype[Any]) -> ArrayMetadata:
    """Return the metadata of the result.

    It has no scalar coordinates of reduced dimensions: `mpi.write` may add the result to a file with these dimensions.
    """
    metadata, operation, dims = request.metadata, request.operation, request.dims
    own = metadata.fill_value if operation in CHOSEN else fill_for(dtype) if operation == "sum" else None
    fill = own if dtype.kind in "iu" else None
    kept = {name: c for name, c in metadata.coords.items() if set(dims).isdisjoint(c.dimensions)}
    if request.result is not None:
        coords = request.result.coords
        if request.groups is None:
            coords = {name: c for name, c in coords.items() if name in kept}
        return replace(request.result, coords=coords, fill_value=fill)
    units, calendar = result_units(metadata.units, metadata.calendar, operation)
    attrs = result_attributes(metadata.attrs, metadata.name, metadata.units, operation, cell_method(dims, operation))
    names = tuple(name for name in metadata.dimensions if name not in dims)
    changed = replace(metadata, dimensions=names, attrs=attrs, coords=kept, fill_value=fill)
    return replace(changed, units=units, calendar=calendar)


def _computed(
    link: Link, ranks: Sequence[int] | None, section: LocalArray, request: _Request
) -> tuple[np.ndarray | np.dtype[Any], ArrayMetadata]:
    """Return the result of some processes and its metadata.

    Its dtype alone if this process is none of them.
    """
    operation, native = request.operation, section.dtype.newbyteorder("=")
    dtype = Work((operation,), native, bool(request.factors) and operation in WEIGHTED).result_dtype(operation)
    metadata = _result_metadata(request, dtype)
    if ranks is None:
        return dtype, metadata
    # Infinite values and overflows are results, not errors.
    with np.errstate(all="ignore"):
        values, missing = SectionReduction(link, ranks, _section(section, request)).compute(operation)
    if operation == "sum" and request.result is None:
        missing[...] = False  # the sum of no values is 0
    return _placed(values.astype(dtype, copy=False), missing, request, metadata.fill_value), metadata


def _placed(values: np.ndarray, missing: np.ndarray, request: _Request, fill: Any) -> np.ndarray:
    """Return values of groups as an array of the result, missing ones filled."""
    if missing.any() and values.dtype.kind != "b":
        values = np.where(missing, np.asarray(np.nan if values.dtype.kind == "f" else fill or 0, values.dtype), values)
    placed = values[0] if request.groups is None else np.moveaxis(values, 0, request.axes[0])
    return np.ascontiguousarray(placed).reshape(placed.shape)


def _section(local: LocalArray, request: _Request) -> Section:
    """Return the owned elements of a process, with their groups and weights."""
    coords = local.distribution.coords(local.rank)
    own = [_owned_indices(m, c) for m, c in zip(local.distribution.maps, coords, strict=True)]
    positions = own[request.axes[0]] if request.axes else np.zeros(0, np.int64)
    numbers = None if request.groups is None else request.groups.numbers[positions]
    count = 1 if request.groups is None else request.groups.count
    weights, names = None, request.metadata.dimensions
    for dimensions, values in request.factors if request.operation in WEIGHTED else ():
        part = values[np.ix_(*(own[names.index(d)] for d in dimensions))]
        part = part.transpose(np.argsort([names.index(d) for d in dimensions]))
        part = part.reshape([len(own[axis]) if d in dimensions else 1 for axis, d in enumerate(names)])
        weights = part if weights is None else weights * part
    return Section(
        _owned(local),
        request.metadata.fill_value,
        request.axes,
        positions,
        numbers,
        count,
        weights,
    )


def _owned_indices(map_: Map, coordinate: int) -> np.ndarray:
    """Return the global indices of the owned elements along a dimension."""
    runs = [run.indices for run in owned_runs(map_, coordinate)]
    return np.concatenate([np.zeros(0, np.int64), *(r.indices() if isinstance(r, Range) else r for r in runs)])


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


def _open_node(link: Link) -> None:
    from aggarray.mpi.node import node_of

    node_of(link)
