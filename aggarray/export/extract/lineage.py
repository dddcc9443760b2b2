"""Global attributes that tell the origin of an extract.

`history` keeps that of the files, with one line more; `tracking_id` lists those of the files that were read. Both are added to
what a fingerprint covers: the same arrays of the same files stay up to date.
"""

import datetime
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from aggarray.arrays.master import MasterArray
from aggarray.arrays.subarray import SubArray
from aggarray.errors import AggarrayError, printable
from aggarray.export.extract.layout import ExtractLayout, Variable
from aggarray.formats import scan
from aggarray.formats.base import Structure
from aggarray.storage.credentials import in_threads

_HISTORY, _TRACKING_ID = "history", "tracking_id"
#: Most characters of an attribute of identifiers; more are a variable.
MOST = 1 << 14
#: Dimension of that variable.
_FILES = "source_file"


def add_lineage(
    layout: ExtractLayout, arrays: Sequence[MasterArray], structures: Callable[[], Iterable[Structure]], command: str | None
) -> None:
    """Add `history` and `tracking_id` to a layout.

    ``structures``: returns those of scanned files; the attributes of other files are read. ``command``: what wrote the extract.
    """
    uris = _files(arrays)
    attrs: list[Mapping[str, Any]] = [a.file_attrs for a in arrays]
    if uris and not all(name in a for a in attrs for name in (_HISTORY, _TRACKING_ID)):  # files differ, or have none
        attrs = _attributes(arrays, uris, structures)
    histories = [str(a[_HISTORY]) if a.get(_HISTORY) else "" for a in attrs]
    line = f"{_now()}: {command or _described(arrays)}"
    if len(set(histories)) > 1:
        line += f" ({len(uris)} files; the history of {os.path.basename(uris[0].rstrip('/'))} follows)"
    layout.attributes[_HISTORY] = "\n".join(filter(None, [line, *histories[:1]]))
    identifiers = list(dict.fromkeys(i for a in attrs for i in str(a.get(_TRACKING_ID) or "").split("\n") if i))
    if sum(map(len, identifiers)) <= MOST:
        layout.attributes |= {_TRACKING_ID: "\n".join(identifiers)} if identifiers else {}
        return
    layout.attributes.pop(_TRACKING_ID, None)
    _add_variable(layout, identifiers)


def _files(arrays: Iterable[MasterArray]) -> list[str]:
    """Return the files of arrays in the order of their partitions."""
    uris: dict[str, None] = {}
    for array in arrays:
        references, rows = array._matrix.references, array._matrix.refs.ravel()
        codes = references.uri[rows[rows >= 0]]
        _, first = np.unique(codes, return_index=True)
        uris |= dict.fromkeys(str(references.uris[code]) for code in codes[np.sort(first)].tolist() if code >= 0)
    return list(uris)


def _attributes(
    arrays: Sequence[MasterArray], uris: Sequence[str], structures: Callable[[], Iterable[Structure]]
) -> list[Mapping[str, Any]]:
    """Return the global attributes of each file, {} if it does not open."""
    # The attributes of an assumed file are those of another one.
    known: dict[str, Mapping[str, Any]] = {s.uri: s.attrs for s in structures() if s.assumed is None}

    def read(uri: str) -> Mapping[str, Any]:
        try:
            return scan(uri).attrs
        except (AggarrayError, OSError):
            return {}

    unknown = [uri for uri in uris if uri not in known]
    with arrays[0]._access.reach():
        known |= dict(zip(unknown, in_threads(read, unknown), strict=True))
    return [known[uri] for uri in uris]


def _now() -> str:
    """Return the present time, or that of the variable SOURCE_DATE_EPOCH."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    zone = datetime.UTC
    now = datetime.datetime.fromtimestamp(int(epoch), zone) if epoch.isdigit() else datetime.datetime.now(zone)
    return now.strftime("%Y-%m-%dT%H:%M:%SZ")


def _described(arrays: Iterable[MasterArray]) -> str:
    """Return what was extracted by a call, without the name of the output."""
    described = (f"{a.name}({', '.join(f'{d}={n}' for d, n in zip(a.dimensions, a.shape, strict=True))})" for a in arrays)
    return printable(f"aggarray extract of {', '.join(described)}")


def _add_variable(layout: ExtractLayout, identifiers: Sequence[str]) -> None:
    name = next(n for n in (_TRACKING_ID, f"{_TRACKING_ID}_of_files") if n not in {v.name for v in layout.variables})
    values = np.asarray(identifiers, np.dtypes.StringDType())
    piece = SubArray.from_array(values, dimensions=(_FILES,))
    array = MasterArray.from_subarrays([([(0, len(values))], piece)], dimensions=(_FILES,), name=name)
    layout.dimensions[_FILES] = len(values)
    layout.variables.append(Variable(name, (_FILES,), array, None, None, {"long_name": "tracking_id of each source file"}))
