"""Errors of what arrays do not do, with the way to do it.

Master arrays select and convert lazily. Computing is left to NumPy and xarray, whose methods users try first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from aggarray.errors import SelectionError, near_names, printable

#: Public names of ``xarray.DataArray`` that master arrays lack, and others of ``xarray.Dataset``.
_DATAARRAY = frozenset(
    """
    T all any argmax argmin argsort as_numpy assign_attrs assign_coords bfill broadcast_equals broadcast_like chunk chunks
    chunksizes clip close coarsen combine_first compute conj conjugate convert_calendar copy count cumprod cumsum
    cumulative cumulative_integrate curvefit data diff differentiate dot drop drop_attrs drop_duplicates drop_encoding
    drop_indexes drop_isel drop_sel drop_vars dropna dt encoding equals expand_dims ffill fillna from_dict from_iris
    from_series get_axis_num get_index groupby groupby_bins head identical idxmax idxmin imag indexes integrate interp
    interp_calendar interp_like interpolate_na isin isnull item load load_async loc map_blocks max mean median min notnull
    pad persist pipe plot polyfit prod quantile query rank real reduce reindex reindex_like rename reorder_levels resample
    reset_coords reset_encoding reset_index roll rolling rolling_exp round searchsorted set_close set_index set_xindex
    shift sortby squeeze stack std str sum swap_dims tail thin to_dask_dataframe to_dataframe to_dataset to_dict to_index
    to_iris to_masked_array to_netcdf to_numpy to_pandas to_series to_unstacked_dataset to_zarr unify_chunks unstack var
    variable weighted where xindexes
    """.split()  # noqa: SIM905
)
_DATASET = frozenset(
    """
    apply assign astype data_vars dims drop_dims dtype dtypes dump_to_store eval filter_by_attrs from_dataframe get info
    isel items keys load_store map merge nbytes ndim rename_dims rename_vars sel set_coords shape size sizes to_array
    to_dataarray to_stacked_array transpose update values variables
    """.split()  # noqa: SIM905
)
_LAZILY = "chunks={} computes lazily"
#: What a master array offers in place of names of NumPy, pandas and xarray.
_OWN = {
    "T": "transpose()",
    "chunks": "partitions.edges, or .to_xarray(chunks={}).chunks",
    "compute": "read(), or .to_xarray().compute",
    "data": "values, or .to_dask()",
    "dt": "datetimes(), or .to_xarray().dt",
    "groupby": "mean('time', by='month') and the like, or .to_xarray().groupby",
    "iloc": "isel(...)",
    "load": "read(), or .to_xarray().load",
    "loc": "sel(...)",
    "persist": "read(), or .to_xarray(chunks={}).persist",
    "plot": "to_xarray().plot, or .plot_coverage() for a picture of the files",
    "resample": "mean('time', by='year-month') and the like, or .to_xarray().resample",
    "rolling": "running_mean(steps), or .to_xarray().rolling",
    "to_numpy": "values",
    "weighted": "mean(..., weights='area') and the like, or .to_xarray().weighted",
}


def missing_attribute(owner: Any, name: str) -> AttributeError:
    """Return the error of an attribute that an array or aggregation lacks."""
    what = f"{type(owner).__name__!r} object has no attribute {name!r}"
    is_aggregation = hasattr(type(owner), "names")
    members = owner.names if is_aggregation else ()
    hint = _member_hint(members, name) if is_aggregation else _hint(owner, name)
    hint = hint or near_names(name, [n for n in (*dir(type(owner)), *members) if not n.startswith("_")])
    return AttributeError(printable(f"{what}; {hint}" if hint else what), name=name, obj=owner)


def _member_hint(members: Sequence[str], name: str) -> str | None:
    if name in members:
        return f"the array is agg[{name!r}]"
    is_known = name in _DATAARRAY or name in _DATASET
    return f"use .to_xarray().{name} ({_LAZILY}), or the arrays one by one" if is_known else None


def _hint(array: Any, name: str) -> str | None:
    if hasattr(type(array), "coords") and name in array.coords:
        return f"the coordinate is .coords[{name!r}]"
    xarray, values = _ways(array)
    if hasattr(type(array), "isel") and name in _OWN and "flat" not in values:
        return f"use .{_OWN[name]}"
    ways = [f"{xarray}.{name} ({_LAZILY})"] if xarray and name in _DATAARRAY else []
    ways += [f"{values}.{name}"] if hasattr(np.ndarray, name) else []
    return f"use {' or '.join(ways)}" if ways else None


def _ways(array: Any) -> tuple[str | None, str]:
    """Return how to convert an array to xarray, if at all, and to NumPy."""
    if hasattr(type(array), "offsets"):  # rows of different lengths
        return ".flat.to_xarray()", "a[:].flat"
    return (".to_xarray()", "a[...]") if hasattr(type(array), "to_xarray") else (None, ".read()")


def no_arithmetic(array: Any, operation: str) -> TypeError:
    """Return the error of an operator or ufunc of NumPy, such as ``add``."""
    xarray, values = _ways(array)
    ways = f"{xarray} ({_LAZILY}) or {values}" if xarray else values
    name = getattr(array, "name", None) if hasattr(type(array), "name") else None
    what = f"{type(array).__name__} has no arithmetic ({operation})"
    return TypeError(printable(f"{what}: {name}; use {ways}" if name else f"{what}; use {ways}"))


def text_key(array: Any, key: str) -> SelectionError:
    """Return the error of text in the square brackets of an array."""
    hint = f"the coordinate is .coords[{key!r}]" if key in array.coords else "select by coordinate values with .sel(...)"
    return SelectionError(f"text is not a position: {key!r}", variable=array.name, hint=hint)


def reduce_by_numpy(array: Any, operation: str, dims: Any, options: dict[str, Any]) -> Any:
    """Reduce all values with NumPy's arguments: `numpy.mean` passes axis.

    Raises TypeError for other arguments, and for functions that are ufuncs.
    """
    if dims is None and "axis" in options and options.keys() <= {"axis", "dtype", "out", "keepdims", "ddof", "where"}:
        if operation in ("sum", "min", "max"):
            raise no_arithmetic(array, operation)
        return getattr(array.read(), operation)(**options)
    names = ("by", "weights", "skipna", "min_count")
    name = next(n for n in options if n not in names)
    hint = f"name dimensions, .{operation}(dims=...); the other arguments are {', '.join(names)}"
    raise TypeError(f"{operation}() got an unexpected keyword argument {name!r}; {hint}")
