"""Conversions to libraries that are optional dependencies.

Each library is imported by one module of this folder, on the first conversion.
"""

from collections.abc import Mapping
from importlib import import_module
from types import ModuleType
from typing import Any

from aggarray.errors import AggregationError


def _import_module(module: str, needed: str) -> ModuleType:
    """Import a module that needs another library.

    Raises AggregationError with the extra to install.
    """
    try:
        return import_module(f"aggarray.interop.{module}")
    except ImportError as error:
        raise AggregationError(f"{needed}: {error}", hint="pip install 'aggarray[xarray]'") from error


def to_dask(array: Any, chunks: Any = None) -> Any:
    """Return a master array as a dask array; see `MasterArray.to_dask`."""
    return _import_module("dask", "to_dask needs dask").to_dask(array, chunks)


def to_dataarray(array: Any, chunks: Any = None) -> Any:
    """Return an array as an ``xarray.DataArray``; see `MasterArray.to_xarray`."""
    return _import_module("xarray_store", "to_xarray needs xarray").to_dataarray(array, chunks)


def to_datasets(groups: Mapping[str, Any], chunks: Any = None) -> Any:
    """Return groups of arrays as datasets; see `Aggregation.to_xarray`."""
    return _import_module("xarray_store", "to_xarray needs xarray").to_datasets(groups, chunks)
