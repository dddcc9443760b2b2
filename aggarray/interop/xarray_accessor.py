"""Accessor ``aggarray`` of DataArrays: reductions while files are read.

It finds the master array behind a lazy DataArray, applies the selections to it, and reduces it without dask.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from xarray import DataArray
from xarray.core import indexing

from aggarray.errors import AggregationError, NotFoundError, names_hint
from aggarray.reduce.operations import OPERATIONS

#: Attributes of values that xarray has not decoded.
_ENCODED = ("_FillValue", "missing_value", "scale_factor", "add_offset", "_Unsigned")


class AggarrayAccessor:
    """Reductions of a lazy DataArray of aggarray, as a DataArray in memory.

    ``ds.tas.aggarray.mean("time", by="month")``: the methods and arguments of `MasterArray`, such as ``by`` and ``weights``.
    Each stored chunk is read once, in bounded memory, by threads and without dask. Selections of xarray are applied first.
    Coordinates are those of the DataArray; along groups, those of the reduction. Raises AggregationError for a DataArray that
    is in memory, has been loaded or computed, or is a dask array.
    """

    __slots__ = ("_array",)

    def __init__(self, array: DataArray) -> None:
        self._array = array

    def reduce(
        self,
        operation: str,
        dims: Any = None,
        *,
        by: Any = None,
        weights: Any = None,
        skipna: bool = True,
        min_count: int = 1,
        **dim: Any,
    ) -> DataArray:
        """Reduce dimensions while the files are read; see `MasterArray.reduce`.

        ``dim``: the name of ``dims`` in xarray.
        """
        options = {"by": by, "weights": weights, "skipna": skipna, "min_count": min_count, **dim}
        return self._reduced("reduce", (operation,), dims, **options)

    def median(self, dims: Any = None, **options: Any) -> DataArray:
        """Return medians over dimensions; see `MasterArray.median`."""
        return self._reduced("median", (), dims, **options)

    def quantile(self, q: Any, dims: Any = None, **options: Any) -> DataArray:
        """Return quantiles over dimensions; see `MasterArray.quantile`."""
        return self._reduced("quantile", (q,), dims, **options)

    def climatology(self, by: Any = "month", **options: Any) -> DataArray:
        """Return means over years, or days; see `MasterArray.climatology`."""
        return self._along_times("climatology", by=by, **options)

    def anomaly(self, by: Any = "month", climatology: DataArray | None = None, **options: Any) -> DataArray:
        """Return the array less its climatology; see `MasterArray.anomaly`."""
        return self._along_times("anomaly", by=by, climatology=climatology, **options)

    def running_mean(self, steps: int, dims: Any = None, **options: Any) -> DataArray:
        """Return means of windows; see `MasterArray.running_mean`."""
        return self._along_times("running_mean", steps=steps, dims=dims, **options)

    def _reduced(self, method: str, arguments: tuple[Any, ...], dims: Any, **options: Any) -> DataArray:
        dims = _dims_of(dims, options)
        master, names = master_array_of(self._array)
        own = None if dims is None else _own_names([dims] if isinstance(dims, str) else dims, names)
        result = getattr(master, method)(*arguments, own, **_own_options(master, options, names))
        return _as_dataarray(result, self._array, names, master.dimensions if own is None else own)

    def _along_times(self, method: str, **options: Any) -> DataArray:
        if "dim" in options:
            options["dims"] = _dims_of(options.get("dims"), options)
        master, names = master_array_of(self._array)
        if options.get("dims") is not None:
            options["dims"] = _own_names([options["dims"]] if isinstance(options["dims"], str) else options["dims"], names)
        result = getattr(master, method)(**_own_options(master, options, names))
        changed = [d for d, n in master.sizes.items() if result.sizes.get(d) != n]
        return _as_dataarray(result, self._array, names, changed)


def _method(operation: str) -> Any:

    def method(self: AggarrayAccessor, dims: Any = None, **options: Any) -> DataArray:
        return self.reduce(operation, dims, **options)

    method.__name__, method.__doc__ = operation, f"Return the {operation} over dimensions; arguments as in `reduce`."
    return method


for _operation in OPERATIONS:
    setattr(AggarrayAccessor, _operation, _method(_operation))


def _dims_of(dims: Any, options: dict[str, Any]) -> Any:
    """Return ``dims``, or the option ``dim``, their name in xarray.

    Other options of `MasterArray.reduce` stay; TypeError for both names.
    """
    if "dim" not in options:
        return dims
    if dims is not None:
        raise TypeError("dims and dim are two names of one argument: give one of them")
    return options.pop("dim")


def _own_options(master: Any, options: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return options with the dimensions of the master array."""
    own = dict(options)
    if isinstance(own.get("by"), DataArray):
        own["by"] = own["by"].values
    weights, climatology = own.get("weights"), own.get("climatology")
    if isinstance(weights, Mapping):
        own["weights"] = dict(zip(_own_names(weights, names), weights.values(), strict=True))
    elif isinstance(weights, DataArray):
        own["weights"] = _renamed(weights, names)
    if isinstance(climatology, DataArray):
        own["climatology"] = _renamed(climatology, names)
    return own


def _renamed(array: DataArray, names: Mapping[str, str]) -> DataArray:
    return array.rename({d: names[d] for d in map(str, array.dims) if names.get(d, d) != d})


def _own_names(dims: Any, names: Mapping[str, str]) -> list[str]:
    """Return the dimensions of the master array; NotFoundError for others."""
    for name in dims:
        if name not in names:
            hint = names_hint(str(name), list(names), "the dimensions are")
            raise NotFoundError(f"no dimension {name!r} to reduce", hint=hint)
    return [names[name] for name in dims]


def _as_dataarray(result: Any, array: DataArray, names: Mapping[str, str], reduced: Sequence[str]) -> DataArray:
    """Return a result with the name, dimensions and coordinates of an array."""
    made = result.to_xarray().load()
    present = {*made.dims, *made.coords}
    made = made.rename({old: new for new, old in names.items() if old in present and old != new}).rename(array.name)
    gone = {new for new, old in names.items() if old in reduced}
    kept = {name: c for name, c in array.coords.items() if gone.isdisjoint(c.dims)}
    return made.drop_vars([name for name in kept if name in made.coords]).assign_coords(kept)


def master_array_of(array: DataArray) -> tuple[Any, dict[str, str]]:
    """Return the master array behind a lazy DataArray, with its selection.

    Also its dimensions by those of the DataArray, which may have been renamed. Raises AggregationError if there is none, or
    its values are not those of the DataArray.
    """
    name = array.name or "the array"
    if array.chunks is not None:
        raise AggregationError(f"{name} is a dask array", hint="open it without chunks=, or use the methods of xarray")
    keys, values = [], array.variable._data
    while not hasattr(values, "master_array"):
        if hasattr(values, "key"):
            keys.append(values.key)
        values = getattr(values, "array", None)
        if values is None or isinstance(values, np.ndarray):
            what = f"{name} is not read from files: its values are in memory"
            raise AggregationError(what, hint="use the methods of xarray, or open it again and reduce it before loading")
    encoded = next((key for key in _ENCODED if key in array.attrs), None)
    if encoded is not None:
        what = f"{name} is not decoded: it has the attribute {encoded}"
        raise AggregationError(what, hint="open it with mask_and_scale=True, and reduce it then")
    master = values.master_array
    for key in reversed(keys):
        master = _indexed(master, key, name, list(map(str, array.dims)))
    if master.shape != array.shape:
        raise AggregationError(f"{name} was reshaped", hint="reduce it first")
    return master, {str(new): old for new, old in zip(array.dims, master.dimensions, strict=True)}


def _indexed(master: Any, indexer: indexing.ExplicitIndexer, name: Any, dims: list[str]) -> Any:
    """Return a selection by the key of a lazily indexed array.

    ``dims``: dimensions of the array after the last key.
    """
    if not isinstance(indexer, indexing.VectorizedIndexer):
        return master.lazy[indexer.tuple]
    # xarray transposes lazily by index arrays that vary along one axis each.
    parts = np.broadcast_arrays(*indexer.tuple)
    if not parts[0].size:
        raise AggregationError(f"{name} has no elements", hint="select some")
    varying = [[axis for axis in range(part.ndim) if (part != part.take([0], axis)).any()] for part in parts]
    # One position, perhaps selected several times, does not vary: its axis has the name of its dimension, or is the next one.
    for found, dimension in zip(varying, master.dimensions, strict=True):
        axis = dims.index(dimension) if dimension in dims and len(dims) == parts[0].ndim else None
        if not found and axis is not None and [axis] not in varying:
            found.append(axis)
    axes = [axis for found in varying for axis in found]
    free = [axis for axis in range(parts[0].ndim) if axis not in axes]
    constant = varying.count([])
    if len(set(axes)) < len(axes) or any(len(found) > 1 for found in varying) or (free and len(free) != constant):
        raise AggregationError(f"{name} is selected point by point", hint="reduce it first, or use the methods of xarray")
    # Positions that do not vary are integers, or those of dimensions of one element.
    taken = [found[0] if found else free.pop(0) if free else None for found in varying]
    positions = [part.ravel()[0] if axis is None else _along(part, axis) for part, axis in zip(parts, taken, strict=True)]
    selected = master.lazy[tuple(positions)]
    order = [axis for axis in taken if axis is not None]
    return selected.transpose(*(selected.dimensions[order.index(axis)] for axis in range(len(order))))


def _along(part: np.ndarray, axis: int) -> np.ndarray:
    return np.moveaxis(part, axis, 0).reshape(part.shape[axis], -1)[:, 0]
