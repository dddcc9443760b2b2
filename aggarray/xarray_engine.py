"""The xarray engine ``aggarray``, registered as an entry point.

``xarray.open_dataset("archive.nca", engine="aggarray")``: a path, a glob, a folder, a list of these, or an index.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from xarray import Dataset

from aggarray.aggregate.rules import RULES, changed_rules
from aggarray.errors import AggarrayError, AggregationError, NotFoundError, names_hint
from aggarray.formats import scan
from aggarray.index.recognition import find_convention, stored_generation
from aggarray.interop.chunk_sizes import PREFERRED
from aggarray.interop.xarray_store import DECODERS, ArraysEntrypoint, dataset_of
from aggarray.opening.sources import open as open_source
from aggarray.output.dataset import ROOT, DatasetGroup, variable_name
from aggarray.output.datasets import datasets
from aggarray.storage.files import Source, local_path

#: Options besides those of decoding: see `aggarray.open`; ``select``: attributes that arrays must have; the fields of `Rules`.
OPENING = (
    "rules",
    "variables",
    "select",
    "missing",
    "roots",
    "relocate",
    "processes",
    "executor",
    "progress",
    "storage_options",
    "fixes",
)
OPTIONS = (*OPENING, "preset", "regular_chunks", *RULES)


class AggarrayBackendEntrypoint(ArraysEntrypoint):
    """xarray backend for files or an index: a lazy dataset, or a tree of them."""

    description = "Open many netCDF, HDF5 and Zarr files, or an index of them, as one dataset"
    open_dataset_parameters = ("filename_or_obj", *DECODERS, "group", *OPTIONS)
    supports_groups = True

    def guess_can_open(self, filename_or_obj: Any) -> bool:
        """Return whether this is an index or a CF aggregation file."""
        if not isinstance(filename_or_obj, str | os.PathLike):
            return False
        try:
            path = local_path(filename_or_obj)
            if not os.path.exists(path):
                return False
            return stored_generation(path) is not None or find_convention(scan(path)) is not None
        except AggarrayError:
            return False

    def open_dataset(self, filename_or_obj: Source, *, group: str | None = None, **options: Any) -> Dataset:
        """Return the one dataset of a source.

        ``options``: how to decode, as for `xarray.open_dataset`; ``select``, a mapping of attributes that the arrays must
        have; the arguments of `aggarray.open`: rules, variables, missing, roots, relocate, processes, executor, progress,
        storage_options, fixes; the fields of `aggarray.Rules`, such as ``overlap="first"``, which replace those of ``rules``;
        ``preset``, "cmip", "era5" or "forecast", in place of ``rules``; and ``regular_chunks``: True, or a number of bytes, for
        chunks of equal size in place of those that follow files, as cubed needs them.
        ``group``: the path of one of several datasets. Raises AggregationError that lists the datasets if there are several.
        """
        decoders, groups = _open_groups(filename_or_obj, options)
        if group is None and len(groups) > 1:
            texts = [f"{path!r} ({', '.join(variable_name(a) for a in g.arrays[:3])})" for path, g in groups.items()]
            listed = "; ".join(texts[:8]) + ("; ..." if len(texts) > 8 else "")
            hint = "give one as group=, choose arrays by variables=[...] or select={...}, or use xarray.open_datatree"
            what = f"{len(groups)} datasets, which do not share names and grid: {listed}"
            raise AggregationError(what, path=_source_text(filename_or_obj), hint=hint)
        return dataset_of(_group(groups, group or next(iter(groups))), _regular(options), **decoders)

    def open_groups_as_dict(self, filename_or_obj: Source, *, group: str | None = None, **options: Any) -> dict[str, Dataset]:
        """Return the datasets of a source by path, all or those of one group.

        Arguments: as for `open_dataset`.
        """
        decoders, groups = _open_groups(filename_or_obj, options)
        selected = groups if group is None else {ROOT: _group(groups, group)}
        return {path: dataset_of(member, _regular(options), **decoders) for path, member in selected.items()}


def _regular(options: Mapping[str, Any]) -> int | None:
    """Return the largest bytes of regular chunks, None for other chunks."""
    given = options.get("regular_chunks")
    if given is None or isinstance(given, bool):
        return PREFERRED if given else None
    if not isinstance(given, int) or given < 1:
        raise AggregationError(
            f"regular_chunks={given!r} is invalid", hint="give True, or the bytes of a chunk as a positive integer"
        )
    return given


def _open_groups(source: Source, arguments: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, DatasetGroup]]:
    options = {key: value for key, value in arguments.items() if key not in DECODERS}
    unknown = [key for key in options if key not in OPTIONS]
    if unknown:
        hint = names_hint(unknown[0], (*OPTIONS, "group"), "the options are")
        raise AggregationError(f"engine aggarray has no option {unknown[0]!r}", hint=hint)
    if hasattr(source, "read") or not isinstance(source, str | os.PathLike | Iterable) or isinstance(source, bytes | Mapping):
        hint = "give a path, or a list of paths"
        raise AggregationError(f"engine aggarray cannot open a {type(source).__name__}", hint=hint)
    select = options.pop("select", None) or {}
    if not isinstance(select, Mapping):
        hint = "give a mapping of attributes, such as {'source_id': 'CESM2'}"
        raise AggregationError(f"select={select!r} is not a mapping", hint=hint)
    fields = {name: options.pop(name) for name in RULES if name in options}
    if fields or options.get("preset") is not None:
        options["rules"] = changed_rules(options.get("rules"), options.get("preset"), fields)
    options.pop("preset", None)
    options.pop("regular_chunks", None)
    agg = open_source(source, **options)
    try:
        selected = agg.select(**select)
    except NotFoundError as error:
        error.path = _source_text(source)
        raise
    decoders = {key: value for key, value in arguments.items() if key in DECODERS}
    return decoders, _group_arrays(selected.arrays, arguments.get("drop_variables") or ())


def _group_arrays(arrays: Sequence[Any], dropped: str | Iterable[str]) -> dict[str, DatasetGroup]:
    """Return groups of arrays by path, without ``dropped`` that conflict."""
    groups = datasets(arrays)
    names = {dropped} if isinstance(dropped, str) else set(dropped)
    if len(groups) == 1 or not names:
        return groups
    return datasets([array for array in arrays if variable_name(array) not in names])


def _group(groups: Mapping[str, DatasetGroup], path: str) -> DatasetGroup:
    group = groups.get(path.strip("/") or ROOT)
    if group is None:
        raise NotFoundError(f"no group {path!r}", hint=f"the groups are {', '.join(map(repr, groups))}")
    return group


def _source_text(source: Source) -> str:
    return str(source) if isinstance(source, str | os.PathLike) else f"{len(list(source))} sources"
