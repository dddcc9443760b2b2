"""Attribute ``history`` of files that differ in it."""

import os
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from aggarray.errors import AggarrayError
from aggarray.formats import scan
from aggarray.partition.matrix import used_rows
from aggarray.storage.urls import is_remote

HISTORY = "history"


def first_history(arrays: Sequence[Any]) -> str | None:
    """Return the history of the first file, with a line about the others.

    The result is None for one file, whose attributes arrays have, without a history, and for remote files, which are not opened
    for it.
    """
    files = [uri for array in arrays for uri in _files(array)]
    count = len(set(files))
    if count < 2 or is_remote(files[0]):
        return None
    with suppress(AggarrayError, OSError):
        arrays[0]._access.check(files[0])
        history = scan(files[0]).attrs.get(HISTORY)
        name = os.path.basename(files[0].rstrip("/"))
        return f"joined from {count} files by aggarray; the history of {name} follows\n{history}" if history else None
    return None


def _files(array: Any) -> list[str]:
    """Return the files of an array, the first one first."""
    matrix, references = array._matrix, array._matrix.references
    codes = references.uri[matrix.refs[matrix.refs >= 0]]
    codes = codes[codes >= 0]
    first = codes[:1].tolist()
    return [str(references.uris[i]) for i in (*first, *used_rows(codes, len(references.uris)).tolist())]
