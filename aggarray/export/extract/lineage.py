"""Global attributes that tell the origin of an extract.

`history` keeps that of the files, with one line more; `tracking_id` lists those of the files that were read. Both are added to
what a fingerprint covers: the same arrays of the same files stay up to date.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from aggarray.arrays.history import history_line, names_with_shapes
from aggarray.arrays.master import MasterArray
from aggarray.arrays.subarray import SubArray
from aggarray.errors import AggarrayError
from aggarray.export.extract.earlier import FILES, TRACKING_ID, EarlierExtract
from aggarray.formats import scan
from aggarray.formats.base import Structure
from aggarray.index.container import plain_attributes
from aggarray.output.layout import ExtractLayout, Variable
from aggarray.storage.access import Access
from aggarray.storage.credentials import in_threads
from aggarray.storage.urls import unsigned

_HISTORY = "history"
#: Most characters of an attribute of identifiers; more are a variable.
MOST = 1 << 14


def add_lineage(
    layout: ExtractLayout,
    arrays: Sequence[MasterArray],
    structures: Callable[[], Iterable[Structure]],
    command: str | None,
    earlier: EarlierExtract | None = None,
) -> None:
    """Add `history` and `tracking_id` to a layout.

    ``structures``: returns those of scanned files; the attributes of other files are read. ``command``: what wrote the extract.
    ``earlier``: the extract to which the arrays are appended, whose lines follow.
    """
    files = _files(arrays)
    attrs: list[Mapping[str, Any]] = [a.file_attrs for a in arrays]
    if files and not all(name in a for a in attrs for name in (_HISTORY, TRACKING_ID)):  # files differ, or have none
        attrs = _attributes(files, structures)
    histories = [_text(a.get(_HISTORY)) for a in attrs]
    line = history_line(command or f"aggarray extract of {names_with_shapes(arrays)}")
    if earlier is not None:
        histories = [_text(earlier.attributes.get(_HISTORY))]
    elif len(set(histories)) > 1:
        line += f" ({len(files)} files; the history of {os.path.basename(unsigned(next(iter(files))).rstrip('/'))} follows)"
    known = [] if earlier is None else earlier.tracking_ids()
    identifiers = list(dict.fromkeys([*known, *(i for a in attrs for i in _text(a.get(TRACKING_ID)).split("\n") if i)]))
    is_short = sum(map(len, identifiers)) <= MOST
    added = {
        _HISTORY: "\n".join(filter(None, [line, *histories[:1]])),
        TRACKING_ID: "\n".join(identifiers) if is_short else "",
    }
    layout.attributes.pop(TRACKING_ID, None)
    layout.attributes |= plain_attributes({name: text for name, text in added.items() if text})
    if not is_short:
        _add_variable(layout, identifiers, earlier)


def _text(value: Any) -> str:
    """Return an attribute as text, a list as lines."""
    return "\n".join(map(str, value)) if isinstance(value, list | tuple) else "" if value is None else str(value)


def _files(arrays: Iterable[MasterArray]) -> dict[str, Access]:
    """Return the files of arrays, in the order of partitions, with access."""
    files: dict[str, Access] = {}
    for array in arrays:
        references, rows = array._matrix.references, array._matrix.refs.ravel()
        codes = references.uri[rows[rows >= 0]]
        _, first = np.unique(codes, return_index=True)
        for code in codes[np.sort(first)].tolist():
            if code >= 0:
                files.setdefault(str(references.uris[code]), array._access)
    return files


def _attributes(files: Mapping[str, Access], structures: Callable[[], Iterable[Structure]]) -> list[Mapping[str, Any]]:
    """Return the global attributes of each file, {} if it does not open."""
    # The attributes of an assumed file are those of another one.
    known: dict[str, Mapping[str, Any]] = {s.uri: s.attrs for s in structures() if s.assumed is None}

    def read(uri: str) -> Mapping[str, Any]:
        try:
            # promise: history-within-roots
            files[uri].check(uri)
            with files[uri].reach():
                return scan(uri).attrs
        except (AggarrayError, OSError):
            return {}

    unknown = [uri for uri in files if uri not in known]
    known |= dict(zip(unknown, in_threads(read, unknown), strict=True))
    return [known[uri] for uri in files]


def _add_variable(layout: ExtractLayout, identifiers: Sequence[str], earlier: EarlierExtract | None) -> None:
    name = next(n for n in (TRACKING_ID, f"{TRACKING_ID}_of_files") if n not in {v.name for v in layout.variables})
    values = np.asarray(identifiers, np.dtypes.StringDType())
    piece = SubArray.from_array(values, dimensions=(FILES,))
    array = MasterArray.from_subarrays([([(0, len(values))], piece)], dimensions=(FILES,), name=name)
    layout.dimensions[FILES] = len(values)
    variable = Variable(name, (FILES,), array, None, None, {"long_name": "tracking_id of each source file"})
    variable.piece = None if earlier is None else earlier.piece(variable)
    layout.variables.append(variable)
