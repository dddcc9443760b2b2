"""Master arrays as a data store of xarray.

xarray decodes the variables like those of one file.
Importing this module needs the extra ``xarray``.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np

from aggarray.arrays.pickling import ArrayReference, fingerprint, read_threads
from aggarray.dataclass import dataclass
from aggarray.errors import AggregationError, install_command
from aggarray.interop.chunk_sizes import preferred_chunks
from aggarray.interop.history import HISTORY, first_history
from aggarray.interop.stored_encoding import storage_encoding
from aggarray.interop.xarray_encoding import XarrayForm, form_of, in_form
from aggarray.output.dataset import ROOT, DatasetGroup, common_attributes, decodable_times, group_of, variable_name

try:
    from xarray import DataArray, Dataset, DataTree, Variable, open_dataset, open_datatree, register_dataarray_accessor
    from xarray.backends import AbstractDataStore, BackendArray, BackendEntrypoint, StoreBackendEntrypoint
    from xarray.core import indexing
except ImportError as error:
    raise AggregationError(f"to_xarray needs xarray: {error}", hint=install_command("xarray")) from error

DECODERS = (
    *("mask_and_scale", "decode_times", "concat_characters", "decode_coords"),
    *("drop_variables", "use_cftime", "decode_timedelta"),
)


class LazyValues(BackendArray):  # type: ignore[misc]
    """Values of an array, read on access; thread-safe.

    ``array``: a master array, or an `ArrayReference` with the ``shape`` of the array.
    """

    def __init__(self, array: Any, form: XarrayForm, shape: tuple[int, ...] | None = None) -> None:
        self._reference = array if isinstance(array, ArrayReference) else ArrayReference(array)
        self.form, self.shape = form, array.shape if shape is None else shape
        text = form.dtype.kind == "T"
        self.dtype = np.dtype("O", metadata={"element_type": str}) if text else form.dtype

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, indexing.BasicIndexer | indexing.OuterIndexer):
            return self._read(key.tuple)  # master arrays take the same keys, backward slices too
        return indexing.explicit_indexing_adapter(key, self.shape, indexing.IndexingSupport.OUTER, self._read)

    def _read(self, key: tuple[Any, ...]) -> np.ndarray:
        threads = read_threads(self._reference.load())
        return np.asarray(self._source.read(key, threads=threads)).astype(self.dtype, copy=False)

    @property
    def master_array(self) -> Any:
        """The array, whose values are conformed."""
        return self._reference.load()

    @cached_property
    def _source(self) -> Any:
        return in_form(self.master_array, self.form)

    def __reduce__(self) -> tuple[Any, ...]:
        return LazyValues, (self._reference, self.form, self.shape)


class ArrayStore(AbstractDataStore):  # type: ignore[misc]
    """Data store of arrays that share a grid, and their coordinates.

    ``masked``: which variables xarray will unpack and mask: all, none, or by name. ``regular``: see `preferred_chunks`.
    """

    def __init__(self, group: DatasetGroup, masked: bool | Mapping[str, bool] = True, regular: int | None = None) -> None:
        self.group, self.masked, self._regular = decodable_times(group), masked, regular

    def get_variables(self) -> dict[str, Variable]:
        """Return the variables, not decoded."""
        attrs, arrays = self.group.attributes(), self.group.variables
        chunks = dict(zip(arrays, preferred_chunks(arrays.values(), self._regular), strict=True))
        return {name: self._variable(name, array, attrs[name], chunks[name]) for name, array in arrays.items()}

    def get_attrs(self) -> dict[str, Any]:
        """Return the file attributes that all arrays share, and a history."""
        attrs = common_attributes([array.file_attrs for array in self.group.arrays])
        history = first_history(self.group.arrays) if HISTORY not in attrs else None
        return attrs if history is None else {**attrs, HISTORY: history}

    def get_dimensions(self) -> dict[str, int]:
        """Return the size of each dimension."""
        pairs = (zip(array.dimensions, array.shape, strict=True) for array in self.group.variables.values())
        return {dimension: size for pair in pairs for dimension, size in pair}

    def get_encoding(self) -> dict[str, Any]:
        """Return an empty mapping: the arrays have no file encoding in common."""
        return {}

    def close(self) -> None:
        """Do nothing: a dataset keeps no file open."""

    def _variable(self, name: str, array: Any, attrs: Mapping[str, Any], chunks: Mapping[str, Any]) -> Variable:
        masked = self.masked.get(name, True) if isinstance(self.masked, Mapping) else self.masked
        form = form_of(array, bool(masked))
        encoding = {"preferred_chunks": chunks, **storage_encoding(name, array, chunks), **form.encoding}
        if form.dtype.kind == "T":
            encoding["dtype"] = str
        values = indexing.LazilyIndexedArray(LazyValues(array, form))
        return Variable(array.dimensions, values, {**attrs, **form.attrs}, encoding)


@dataclass(frozen=True, slots=True, eq=False)
class GroupSource:
    """Groups of arrays by the path of their node, as xarray opens them."""

    groups: Mapping[str, DatasetGroup]

    def __dask_tokenize__(self) -> list[Any]:
        return [(path, fingerprint(array)) for path, group in self.groups.items() for array in group.arrays]


class ArraysEntrypoint(BackendEntrypoint):  # type: ignore[misc]
    """Backend for arrays of this process; the engine ``aggarray`` opens files."""

    open_dataset_parameters: tuple[str, ...] = ("filename_or_obj", *DECODERS)
    supports_groups = True

    def open_dataset(self, filename_or_obj: Any, **decoders: Any) -> Dataset:
        """Return the dataset of the only group."""
        (group,) = filename_or_obj.groups.values()
        return dataset_of(group, **decoders)

    def open_groups_as_dict(self, filename_or_obj: Any, **decoders: Any) -> dict[str, Dataset]:
        """Return the datasets of all groups by path."""
        return {path: dataset_of(group, **decoders) for path, group in filename_or_obj.groups.items()}

    def open_datatree(self, filename_or_obj: Any, **decoders: Any) -> DataTree:
        """Return the datasets of all groups as a tree."""
        return DataTree.from_dict(self.open_groups_as_dict(filename_or_obj, **decoders))


def dataset_of(group: DatasetGroup, regular: int | None = None, **decoders: Any) -> Dataset:
    """Return a lazy dataset; ``decoders``: options of ``open_dataset``."""
    store = ArrayStore(group, decoders.get("mask_and_scale", True), regular)
    return StoreBackendEntrypoint().open_dataset(store, **decoders)


def to_dataarray(array: Any, chunks: Any = None) -> DataArray:
    """Return an array with its coordinates as a DataArray.

    ``chunks``: as `xarray.open_dataset` takes them; "auto" ends no chunk inside a stored one.

    >>> from aggarray import MasterArray, SubArray
    >>> a = SubArray.from_array([1.0, 2.0], units="m")
    >>> depth = to_dataarray(MasterArray.from_subarrays([([(1, 3)], a)], dimensions=("x",), name="depth"))
    >>> depth.name, depth.attrs, depth.values.tolist()
    ('depth', {'units': 'm'}, [nan, 1.0, 2.0])
    """
    if isinstance(chunks, str) and chunks == "auto":
        from aggarray.interop.dask import chunked

        chunks = dict(zip(array.dimensions, chunked(array, chunks), strict=True))
    dataset = open_dataset(GroupSource({ROOT: group_of(array)}), engine=ArraysEntrypoint, chunks=chunks)
    made = dataset[variable_name(array)].rename(array.name)
    for coordinate in made.coords.values():
        attrs = coordinate.variable.attrs
        for name in ("bounds", "climatology"):  # these have one more dimension, so that a DataArray cannot have them
            if name in attrs and attrs[name] not in made.coords:
                del attrs[name]
    return made


def to_datasets(groups: Mapping[str, DatasetGroup], chunks: Any = None) -> Dataset | DataTree:
    """Return one dataset for one group, else a tree of datasets."""
    source = GroupSource(groups)
    open = open_dataset if list(groups) == [ROOT] else open_datatree
    return open(source, engine=ArraysEntrypoint, chunks=chunks)


@register_dataarray_accessor("aggarray")  # type: ignore[untyped-decorator]
def accessor(array: DataArray) -> Any:
    """Return the reductions of a lazy DataArray: ``array.aggarray.mean()``."""
    from aggarray.interop.xarray_accessor import AggarrayAccessor

    return AggarrayAccessor(array)
