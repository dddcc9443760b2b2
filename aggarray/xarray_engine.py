"""How does xarray open files and indexes by aggarray? By the engine ``aggarray``, which xarray finds among its entry points.

``xarray.open_dataset("archive.nca", engine="aggarray")``: a path, a glob, a folder, a list of these, or an index.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from xarray import Dataset, DataTree
from xarray.backends import BackendEntrypoint

from aggarray import index
from aggarray.errors import AggarrayError, AggregationError, NotFoundError
from aggarray.formats import local_path, scan
from aggarray.interop.dataset import DatasetGroup, variable_name
from aggarray.interop.datasets import ROOT, datasets
from aggarray.interop.xarray_store import DECODERS, dataset_of
from aggarray.opening.sources import open as open_source
from aggarray.scan.discovery import Source

#: What the engine takes beside what decoding does: see `aggarray.open`; ``select``: attributes that arrays must have;
#: ``group``: which dataset of several.
OPTIONS = ("rules", "variables", "select", "missing", "roots", "relocate", "processes", "progress", "storage_options")


class AggarrayBackendEntrypoint(BackendEntrypoint):  # type: ignore[misc]
    """Opens many files, or an index of them, as one lazy dataset, or as a tree where arrays do not share a grid."""

    description = "Open many netCDF, HDF5 and Zarr files, or an index of them, as one dataset"
    open_dataset_parameters = ("filename_or_obj", *DECODERS, "group", *OPTIONS)
    supports_groups = True

    def guess_can_open(self, filename_or_obj: Any) -> bool:
        """Tell whether this is an index: of aggarray, or a CF aggregation file of another program; never plain data."""
        if not isinstance(filename_or_obj, str | os.PathLike):
            return False
        try:
            path = local_path(filename_or_obj)
            if not os.path.exists(path):
                return False
            return index.stored_generation(path) is not None or index.kind_of(scan(path)) is not None
        except AggarrayError:
            return False

    def open_dataset(self, filename_or_obj: Source, *, group: str | None = None, **given: Any) -> Dataset:
        """Return the one dataset of a source.

        ``given``: how to decode, as `xarray.open_dataset` says; ``select``, a mapping of attributes that the arrays must
        have; and the arguments of `aggarray.open`: rules, variables, missing, roots, relocate, processes, progress,
        storage_options.
        ``group``: the path of one of several datasets. AggregationError names the datasets where there are several.
        """
        decoders, groups = _opened(filename_or_obj, given)
        if group is None and len(groups) > 1:
            raise AggregationError(_several(filename_or_obj, groups))
        return dataset_of(_group(groups, group or next(iter(groups))), **decoders)

    def open_groups_as_dict(self, filename_or_obj: Source, *, group: str | None = None, **given: Any) -> dict[str, Dataset]:
        """Return all datasets of a source, or that of one group, by their path; arguments as of `open_dataset`."""
        decoders, groups = _opened(filename_or_obj, given)
        chosen = groups if group is None else {ROOT: _group(groups, group)}
        return {path: dataset_of(one, **decoders) for path, one in chosen.items()}

    def open_datatree(self, filename_or_obj: Source, **given: Any) -> DataTree:
        """Return all datasets of a source as a tree; arguments as of `open_dataset`."""
        return DataTree.from_dict(self.open_groups_as_dict(filename_or_obj, **given))


def _opened(source: Source, given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, DatasetGroup]]:
    """Return the arguments that are about decoding, and the arrays of a source in groups by path."""
    options = {key: value for key, value in given.items() if key not in DECODERS}
    unknown = [key for key in options if key not in OPTIONS]
    if unknown:
        raise AggregationError(f"engine aggarray: no option {unknown[0]!r}; there is {', '.join(OPTIONS)} and group")
    if hasattr(source, "read") or not isinstance(source, str | os.PathLike | Iterable) or isinstance(source, bytes | Mapping):
        raise AggregationError(f"engine aggarray: a {type(source).__name__} cannot be opened: give a path, or a list of paths")
    select = options.pop("select", None) or {}
    if not isinstance(select, Mapping):
        raise AggregationError(f"select={select!r}: give a mapping of attributes, such as {{'source_id': 'CESM2'}}")
    agg = open_source(source, **options)
    found = agg.select(**select) if select else agg
    if select and not found.arrays:
        raise NotFoundError(f"{_named(source)}: no array with {dict(select)!r}; there is {', '.join(agg.names) or 'none'}")
    decoders = {key: value for key, value in given.items() if key in DECODERS}
    return decoders, _split(found.arrays, given.get("drop_variables") or ())


def _split(arrays: Sequence[Any], dropped: str | Iterable[str]) -> dict[str, DatasetGroup]:
    """Return arrays in groups by path; those that will be dropped do not count where they are in the way of others."""
    groups = datasets(arrays)
    names = {dropped} if isinstance(dropped, str) else set(dropped)
    if len(groups) == 1 or not names:
        return groups
    return datasets([array for array in arrays if variable_name(array) not in names])


def _group(groups: Mapping[str, DatasetGroup], path: str) -> DatasetGroup:
    """Return a group by its path, with or without slashes around it."""
    found = groups.get(path.strip("/") or ROOT)
    if found is None:
        raise NotFoundError(f"no group {path!r}: there is {', '.join(map(repr, groups))}")
    return found


def _several(source: Source, groups: Mapping[str, DatasetGroup]) -> str:
    held = [f"{path!r} ({', '.join(variable_name(a) for a in one.arrays[:3])})" for path, one in groups.items()]
    listed = "; ".join(held[:8]) + ("; ..." if len(held) > 8 else "")
    way = "give one as group=, choose arrays by variables=[...] or select={...}, or use xarray.open_datatree"
    return f"{_named(source)}: {len(groups)} datasets, which do not share names and grid: {listed}: {way}"


def _named(source: Source) -> str:
    """Return a source in a word."""
    return str(source) if isinstance(source, str | os.PathLike) else f"{len(list(source))} sources"
