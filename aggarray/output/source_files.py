"""List of the files that values of an output come from.

The group `source_files` of an output has a variable `uri`, and `tracking_id` where files have one: of any number of files,
where readers of the data do not see them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from aggarray.arrays.master import MasterArray
from aggarray.arrays.subarray import SubArray
from aggarray.errors import AggarrayError, MissingFileError, without_credentials
from aggarray.formats import scan
from aggarray.formats.base import Structure
from aggarray.scan.roles import SOURCE_FILE, SOURCE_FILES
from aggarray.storage.credentials import in_threads
from aggarray.storage.urls import unsigned

TRACKING_ID = "tracking_id"
#: The attributes of a file that is missing.
MISSING: Mapping[str, Any] = {}

#: Address and identifier of each file, "" without one.
SourceList = Sequence[tuple[str, str]]


def files_in(arrays: Iterable[MasterArray]) -> dict[str, MasterArray]:
    """Return an array by each of its files, in the order of partitions."""
    files: dict[str, MasterArray] = {}
    for array in arrays:
        references, rows = array._matrix.references, array._matrix.refs.ravel()
        codes = references.uri[rows[rows >= 0]]
        if references.external is not None:
            _, others, _ = references.external[np.isin(references.external[:, 0], rows)].T
            codes = np.concatenate([codes, others])
        _, first = np.unique(codes, return_index=True)
        for code in codes[np.sort(first)].tolist():
            if code >= 0:
                files.setdefault(str(references.uris[code]), array)
    return files


def attributes_of(
    files: Mapping[str, MasterArray], names: Iterable[str], structures: Callable[[], Iterable[Structure]] = tuple
) -> list[Mapping[str, Any]]:
    """Return the global attributes of each file, {} if it does not open.

    ``names``: those that are wanted; where all files of an array share them, no file is opened. ``structures``: returns those
    of scanned files.
    """
    shared = [array.file_attrs for array in files.values()]
    if all(name in attrs for attrs in shared for name in names):
        return list(shared)
    # The attributes of an assumed file are those of another one.
    known: dict[str, Mapping[str, Any]] = {s.uri: s.attrs for s in structures() if s.assumed is None}

    def read(uri: str) -> Mapping[str, Any]:
        access = files[uri]._access
        try:
            # promise: history-within-roots
            access.check(uri)
            with access.reach():
                return scan(uri).attrs
        except MissingFileError:
            return MISSING
        except (AggarrayError, OSError):
            return {}

    unknown = [uri for uri in files if uri not in known]
    known |= dict(zip(unknown, in_threads(read, unknown), strict=True))
    return [known[uri] for uri in files]


def attribute_text(value: Any) -> str:
    """Return an attribute as text, a list as lines."""
    return "\n".join(map(str, value)) if isinstance(value, list | tuple) else "" if value is None else str(value)


def source_list(files: Iterable[str], attrs: Iterable[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Return address and identifier of each file that exists."""
    pairs = ((uri, own) for uri, own in zip(files, attrs, strict=True) if own is not MISSING)
    return [(without_credentials(unsigned(uri)), attribute_text(own.get(TRACKING_ID))) for uri, own in pairs]


def list_columns(files: SourceList) -> dict[str, np.ndarray]:
    """Return the distinct files as columns of the group, by name."""
    distinct = list(dict.fromkeys(files))
    columns = {"uri": [uri for uri, _ in distinct], TRACKING_ID: [identifier for _, identifier in distinct]}
    return {name: np.asarray(texts, np.dtypes.StringDType()) for name, texts in columns.items() if any(texts)}


def long_name(column: str) -> str:
    """Return the description of a column."""
    return f"{'address' if column == 'uri' else column} of each source file"


def stored_list(path: str, names: Iterable[str]) -> list[tuple[str, str]] | None:
    """Return the list of an output of these variables, None without one."""
    there = [name for name in (f"{SOURCE_FILES}/uri", f"{SOURCE_FILES}/{TRACKING_ID}") if name in names]
    if not there or not there[0].endswith("uri"):
        return None
    uris, *ids = [SubArray.from_file(path, name).read(...).tolist() for name in there]
    return list(zip(uris, *(ids or [[""] * len(uris)]), strict=True))


def replace_netcdf_list(path: str, files: SourceList) -> None:
    """Write the list of files to a netCDF-4 file, in place of the present one."""
    from aggarray.index.netcdf import created, updated

    with updated(path) as file:
        if SOURCE_FILES in file:
            del file[SOURCE_FILES]
    with created(path, True) as dataset:
        columns = list_columns(files)
        group = dataset.createGroup(SOURCE_FILES)
        group.createDimension(SOURCE_FILE, len(columns["uri"]))
        for name, texts in columns.items():
            variable = group.createVariable(name, str, (SOURCE_FILE,))
            variable.long_name = long_name(name)
            variable[:] = texts.astype(object)
