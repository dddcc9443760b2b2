"""Origin of an extract: global attributes, and the list of files.

`history` keeps that of the files, with one line more; `tracking_id` lists those of the files that were read. The group
`source_files` has a variable `uri`, and `tracking_id` where files have one: of any number of files, where readers of the data
do not see them. All are added to what a fingerprint covers: the same arrays of the same files stay up to date.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from aggarray.arrays.history import history_line, names_with_shapes
from aggarray.arrays.master import MasterArray
from aggarray.arrays.subarray import SubArray
from aggarray.errors import AggarrayError, MissingFileError, without_credentials
from aggarray.export.extract.earlier import TRACKING_ID, EarlierExtract
from aggarray.formats import scan
from aggarray.formats.base import Structure
from aggarray.index.container import plain_attributes
from aggarray.output.layout import ExtractLayout, Variable, appendable_piece
from aggarray.scan.roles import SOURCE_FILE, SOURCE_FILES
from aggarray.storage.credentials import in_threads
from aggarray.storage.urls import unsigned

_HISTORY = "history"
#: The attributes of a file that is missing.
_MISSING: Mapping[str, Any] = {}
#: Most characters of an attribute of identifiers.
MOST = 1 << 14


def add_lineage(
    layout: ExtractLayout,
    arrays: Sequence[MasterArray],
    structures: Callable[[], Iterable[Structure]],
    command: str | None,
    earlier: EarlierExtract | None = None,
) -> None:
    """Add `history`, `tracking_id` and the list of files to a layout.

    ``structures``: returns those of scanned files; the attributes of other files are read. ``command``: what wrote the extract.
    ``earlier``: the extract to which the arrays are appended, whose lines follow.
    """
    files = _files(arrays)
    attrs: list[Mapping[str, Any]] = [files[uri].file_attrs for uri in files]
    if not all(name in a for a in attrs for name in (_HISTORY, TRACKING_ID)):  # files differ, or have none
        attrs = _attributes(files, structures)
    read = ((uri, a) for uri, a in zip(files, attrs, strict=True) if a is not _MISSING)
    own = [(without_credentials(unsigned(uri)), _text(a.get(TRACKING_ID))) for uri, a in read]
    attrs = attrs or [a.file_attrs for a in arrays]  # values in memory
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
    listed = [] if earlier is None else earlier.source_files()
    if listed is not None:
        _add_list(layout, [*listed, *own], earlier)
    elif not is_short:  # an earlier version wrote the extract: a list would not be complete
        _add_variable(layout, TRACKING_ID, identifiers, earlier)


def _text(value: Any) -> str:
    """Return an attribute as text, a list as lines."""
    return "\n".join(map(str, value)) if isinstance(value, list | tuple) else "" if value is None else str(value)


def _files(arrays: Iterable[MasterArray]) -> dict[str, MasterArray]:
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


def _attributes(files: Mapping[str, MasterArray], structures: Callable[[], Iterable[Structure]]) -> list[Mapping[str, Any]]:
    """Return the global attributes of each file, {} if it does not open."""
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
            return _MISSING
        except (AggarrayError, OSError):
            return {}

    unknown = [uri for uri in files if uri not in known]
    known |= dict(zip(unknown, in_threads(read, unknown), strict=True))
    return [known[uri] for uri in files]


def _add_list(layout: ExtractLayout, files: Sequence[tuple[str, str]], earlier: EarlierExtract | None) -> None:
    """Add the list of files; ``files``: address and identifier of each."""
    distinct = list(dict.fromkeys(files))
    if distinct:
        _add_variable(layout, f"{SOURCE_FILES}/uri", [uri for uri, _ in distinct], earlier)
    if any(identifier for _, identifier in distinct):
        _add_variable(layout, f"{SOURCE_FILES}/{TRACKING_ID}", [identifier for _, identifier in distinct], earlier)


def _add_variable(layout: ExtractLayout, name: str, texts: Sequence[str], earlier: EarlierExtract | None) -> None:
    values = np.asarray(texts, np.dtypes.StringDType())
    piece = SubArray.from_array(values, dimensions=(SOURCE_FILE,))
    array = MasterArray.from_subarrays([([(0, len(values))], piece)], dimensions=(SOURCE_FILE,), name=name)
    layout.dimensions["/".join(filter(None, [os.path.dirname(name), SOURCE_FILE]))] = len(values)
    described = "address" if name.endswith("uri") else TRACKING_ID
    variable = Variable(name, (SOURCE_FILE,), array, None, None, {"long_name": f"{described} of each source file"})
    stored = None if earlier is None else earlier.piece(variable)
    variable.piece = stored or appendable_piece(variable.shape)
    layout.variables.append(variable)
