"""Attribute ``history`` of files that differ in it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from aggarray.errors import AggarrayError
from aggarray.formats import scan
from aggarray.partition.file_names import count_files, used_files
from aggarray.partition.matrix import BLOCK
from aggarray.storage.urls import is_remote

HISTORY = "history"


def first_history(arrays: Sequence[Any]) -> str | None:
    """Return the history of the first file, with a line about the others.

    The result is None for one file, whose attributes arrays have, without a history, and for remote files, which are not opened
    for it.
    """
    count = count_files((array._matrix.references, used_files(array._matrix)) for array in arrays)
    first = next(filter(None, map(_first_file, arrays)), None)
    if count < 2 or first is None or is_remote(first):
        return None
    with suppress(AggarrayError, OSError):
        arrays[0]._access.check(first)
        history = scan(first).attrs.get(HISTORY)
        name = os.path.basename(first.rstrip("/"))
        return f"joined from {count} files by aggarray; the history of {name} follows\n{history}" if history else None
    return None


def _first_file(array: Any) -> str | None:
    """Return the file of the first partition that has one, or None."""
    references, refs = array._matrix.references, array._matrix.refs
    for at in range(0, len(refs), BLOCK):
        block = refs[at : at + BLOCK]
        codes = references.uri[block[block >= 0]]
        for code in codes[codes >= 0][:1].tolist():
            return str(references.uris[code])
    return None
