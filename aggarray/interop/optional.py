"""How are arrays handed on to libraries that need not be installed? Through the one module that knows each of them."""

from collections.abc import Mapping
from importlib import import_module
from types import ModuleType
from typing import Any

from aggarray.errors import AggregationError


def _home(module: str, what: str) -> ModuleType:
    """Import a module that imports another library; AggregationError says which extra brings that."""
    try:
        return import_module(f"aggarray.interop.{module}")
    except ImportError as error:
        raise AggregationError(f"{what}: {error}; pip install 'aggarray[xarray]'") from error


def to_dask(array: Any, chunks: Any = None) -> Any:
    """Return an array as a dask array: see `MasterArray.to_dask`."""
    return _home("dask", "to_dask needs dask").to_dask(array, chunks)


def to_dataarray(array: Any, chunks: Any = None) -> Any:
    """Return an array as an ``xarray.DataArray``: see `MasterArray.to_xarray`."""
    return _home("xarray_store", "to_xarray needs xarray").to_dataarray(array, chunks)


def to_datasets(groups: Mapping[str, Any], chunks: Any = None) -> Any:
    """Return groups of arrays as datasets: see `Aggregation.to_xarray`."""
    return _home("xarray_store", "to_xarray needs xarray").to_datasets(groups, chunks)
