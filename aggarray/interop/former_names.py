"""Former names of modules and classes, for pickles of earlier releases.

The modules of this finder are empty: each name is looked up in its present module. `aggarray` asks it after a failed import.
"""

from __future__ import annotations

from functools import partial
from importlib import import_module
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

#: The present module of each former module that pickles refer to.
_MODULES = {
    "aggarray.access": "aggarray.storage.access",
    "aggarray.adapters.datasets": "aggarray.output.dataset",
    "aggarray.adapters.to_dask": "aggarray.interop.dask",
    "aggarray.adapters.travel": "aggarray.arrays.pickling",
    "aggarray.adapters.xarray_form": "aggarray.interop.xarray_encoding",
    "aggarray.adapters.xarray_store": "aggarray.interop.xarray_store",
    "aggarray.api.aggregation": "aggarray.opening.aggregation",
    "aggarray.api.extracting": "aggarray.export.extract",
    "aggarray.api.keeping": "aggarray.index.pickling",
    "aggarray.api.provenance": "aggarray.opening.provenance",
    "aggarray.arrays.origin": "aggarray.arrays.lazy",
    "aggarray.assumed": "aggarray.partition.signatures",
    "aggarray.encoding": "aggarray.cf.encoding",
    "aggarray.frozen": "aggarray.cf.frozen",
    "aggarray.index.columns": "aggarray.index.decoder",
    "aggarray.indexes": "aggarray.index",
    "aggarray.indexes.known": "aggarray.index.decoder",
    "aggarray.indexes.store": "aggarray.index.store",
    "aggarray.indexes.uris": "aggarray.index.uris",
    "aggarray.interop.dataset": "aggarray.output.dataset",
    "aggarray.interop.pickling": "aggarray.arrays.pickling",
    "aggarray.local": "aggarray.arrays.local",
    "aggarray.master.array": "aggarray.arrays.master",
    "aggarray.master.geometry": "aggarray.arrays.row_geometry",
    "aggarray.master.origin": "aggarray.arrays.lazy",
    "aggarray.master.partitions": "aggarray.arrays.partitions",
    "aggarray.master.ragged": "aggarray.arrays.ragged",
    "aggarray.master.ragged_local": "aggarray.arrays.ragged_local",
    "aggarray.master.subarray": "aggarray.arrays.subarray",
    "aggarray.mpi.about": "aggarray.mpi.metadata",
    "aggarray.remote.reach": "aggarray.storage.credentials",
    "aggarray.storage.remote.credentials": "aggarray.storage.credentials",
    "aggarray.stored_sizes": "aggarray.partition.stored_sizes",
    "aggarray.table": "aggarray.partition.matrix",
}
#: The present name of each renamed class or function, by former module and name.
_RENAMED = {
    ("aggarray.adapters.datasets", "Group"): "DatasetGroup",
    ("aggarray.adapters.to_dask", "Blocks"): "DaskBlocks",
    ("aggarray.adapters.travel", "Block"): "LazyBlock",
    ("aggarray.adapters.travel", "_block"): "_lazy_block",
    ("aggarray.adapters.xarray_form", "Form"): "XarrayForm",
    ("aggarray.adapters.xarray_store", "GivenGroups"): "GroupSource",
    ("aggarray.adapters.xarray_store", "Store"): "ArrayStore",
    ("aggarray.adapters.xarray_store", "Values"): "LazyValues",
    ("aggarray.assumed", "Assumed"): "FileSignature",
    ("aggarray.assumed", "Fact"): "VariableSignature",
    ("aggarray.indexes.known", "StoredValues"): "LazyValues",
    ("aggarray.indexes.uris", "Moves"): "PathMap",
    ("aggarray.master.origin", "found_again"): "restore_array",
    ("aggarray.mpi.about", "About"): "ArrayMetadata",
    ("aggarray.mpi.about", "Result"): "ReducedArray",
    ("aggarray.remote.reach", "Reach"): "RemoteAccess",
    ("aggarray.remote.reach", "Storage"): "StorageOptions",
}


def find_spec(name: str) -> ModuleSpec | None:
    """Return the spec of a former module or package, None for other names.

    >>> find_spec("aggarray.master.array").name
    'aggarray.master.array'
    >>> find_spec("aggarray.nothing") is None
    True
    """
    is_former = name in _MODULES or any(former.startswith(f"{name}.") for former in _MODULES)
    return ModuleSpec(name, _Loader(), is_package=True) if is_former else None


class _Loader(Loader):
    """Loader of a former module: its attributes are those of the present one."""

    def create_module(self, spec: ModuleSpec) -> None:
        """Use the default module creation of the import system."""

    def exec_module(self, module: ModuleType) -> None:
        """Look up each attribute in the present module."""
        vars(module)["__getattr__"] = partial(_look_up, module.__name__)


def _look_up(former: str, name: str) -> Any:
    if former not in _MODULES or name.startswith("__"):
        raise AttributeError(f"module {former!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[former]), _RENAMED.get((former, name), name))
