"""Origin of an extract: global attributes, and the list of files.

`history` keeps that of the files, with one line more; `tracking_id` lists those of the files that were read. The group
`source_files` has a variable `uri`, and `tracking_id` where files have one: of any number of files, where readers of the data
do not see them. All are added to what a fingerprint covers: the same arrays of the same files stay up to date.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from aggarray.arrays.history import history_line, names_with_shapes
from aggarray.arrays.master import MasterArray
from aggarray.arrays.subarray import SubArray
from aggarray.export.extract.earlier import EarlierExtract
from aggarray.formats.base import Structure
from aggarray.index.container import plain_attributes
from aggarray.output.layout import ExtractLayout, Variable, appendable_piece
from aggarray.output.source_files import (
    TRACKING_ID,
    SourceList,
    attribute_text,
    attributes_of,
    files_in,
    list_columns,
    long_name,
    source_list,
)
from aggarray.scan.roles import SOURCE_FILE, SOURCE_FILES
from aggarray.storage.urls import unsigned

_HISTORY = "history"
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
    files = files_in(arrays)
    attrs = attributes_of(files, (_HISTORY, TRACKING_ID), structures)
    own = source_list(files, attrs)
    attrs = attrs or [a.file_attrs for a in arrays]  # values in memory
    histories = [attribute_text(a.get(_HISTORY)) for a in attrs]
    line = history_line(command or f"aggarray extract of {names_with_shapes(arrays)}")
    if earlier is not None:
        histories = [attribute_text(earlier.attributes.get(_HISTORY))]
    elif len(set(histories)) > 1:
        line += f" ({len(files)} files; the history of {os.path.basename(unsigned(next(iter(files))).rstrip('/'))} follows)"
    known = [] if earlier is None else earlier.tracking_ids()
    texts = (attribute_text(a.get(TRACKING_ID)) for a in attrs)
    identifiers = list(dict.fromkeys([*known, *(i for text in texts for i in text.split("\n") if i)]))
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


def _add_list(layout: ExtractLayout, files: SourceList, earlier: EarlierExtract | None) -> None:
    """Add the list of files."""
    for name, texts in list_columns(files).items():
        _add_variable(layout, f"{SOURCE_FILES}/{name}", texts, earlier)


def _add_variable(layout: ExtractLayout, name: str, texts: Any, earlier: EarlierExtract | None) -> None:
    values = np.asarray(texts, np.dtypes.StringDType())
    piece = SubArray.from_array(values, dimensions=(SOURCE_FILE,))
    array = MasterArray.from_subarrays([([(0, len(values))], piece)], dimensions=(SOURCE_FILE,), name=name)
    layout.dimensions["/".join(filter(None, [os.path.dirname(name), SOURCE_FILE]))] = len(values)
    variable = Variable(name, (SOURCE_FILE,), array, None, None, {"long_name": long_name(os.path.basename(name))})
    stored = None if earlier is None else earlier.piece(variable)
    variable.piece = stored or appendable_piece(variable.shape)
    layout.variables.append(variable)
