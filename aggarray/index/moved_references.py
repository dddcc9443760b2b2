"""References of files of an index, written for an index in another folder."""

from __future__ import annotations

import string
from collections.abc import Iterator

import numpy as np

from aggarray.index.indexed_files import Files
from aggarray.index.uris import SAFE, written
from aggarray.memory.texts import Texts
from aggarray.storage.urls import is_remote

_PLAIN = f"{string.ascii_letters}{string.digits}{SAFE.replace(':', '')}".encode()


def moved_references(files: Files, folder: str, relative: bool) -> Texts | None:
    """Return the references as `written` does, None where they are not plain.

    Only the folders are resolved; names of files stay as they are.

    >>> from aggarray.index.uris import NOWHERE
    >>> files = Files(Texts.of(["../a/1.nc", "../a/2.nc", "b/3.nc"]), "/data/x", NOWHERE)
    >>> list(moved_references(files, "/data", True))
    ['a/1.nc', 'a/2.nc', 'x/b/3.nc']
    """
    texts = files.references
    if not isinstance(texts, Texts) or not len(texts) or not files.are_plain() or not int(texts.lengths.min()):
        return None
    ends = np.cumsum(texts.lengths)
    starts = ends - texts.lengths
    shifts = texts.starts - starts
    if (shifts == shifts[0]).all():
        buffer = texts.buffer[shifts[0] : shifts[0] + ends[-1]]
    else:
        buffer = texts.buffer[np.arange(int(ends[-1])) + np.repeat(shifts, texts.lengths)]
    content = buffer.tobytes()
    if content.translate(None, _PLAIN):
        return None
    parts, added = [], np.empty(len(texts), np.int64)
    for first, last, head in _runs(buffer, starts, ends):
        (path,) = files.take([first])
        if is_remote(path):
            return None
        (reference,) = written([path], folder, relative)
        own = content[starts[first] + head : ends[first]]
        if not reference.encode().endswith(own):
            return None
        lead, part = reference.encode()[: -len(own)], content[starts[first] : ends[last]]
        if not head and lead:
            return None
        # A name has no slash, so the folder is found where a reference begins, and nowhere else.
        parts.append(part.replace(content[starts[first] : starts[first] + head], lead) if head else part)
        added[first : last + 1] = len(lead) - head
    return Texts(np.frombuffer(b"".join(parts), np.uint8), texts.lengths + added)


def _runs(buffer: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> Iterator[tuple[int, int, int]]:
    """Yield first and last text of each run in one folder, and its length."""
    slashes = np.concatenate([[-1], np.flatnonzero(buffer == ord("/"))])
    heads = np.maximum(slashes[np.searchsorted(slashes, ends) - 1] + 1 - starts, 0)
    changes = Texts(buffer, heads, starts).differ_from_previous()
    first = [0, *(np.flatnonzero(changes) + 1).tolist()]
    for begin, end in zip(first, [*first[1:], len(starts)], strict=True):
        yield begin, end - 1, int(heads[begin])
