"""Pieces of many files, local and remote, each of one version."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from aggarray.errors import MissingFileError
from aggarray.storage.byte_source import read_file, version_source
from aggarray.storage.state import Versions
from aggarray.storage.urls import is_remote


def read_pieces(
    paths: Sequence[str], offsets: Sequence[int], sizes: Sequence[int], versions: Versions
) -> list[memoryview | None]:
    """Return pieces of several files, None for those that do not exist.

    Offset and size 0: all of a file, even if rewritten since it was listed. ``versions``: known versions, extended by those of
    the pieces. Raises ChangedFileError for another version. Remote pieces are requested concurrently.
    """
    pieces: list[memoryview | None] = [None] * len(paths)
    distant, local = list[int](), dict[str, list[int]]()
    for i, path in enumerate(paths):
        if is_remote(path):
            distant.append(i)
        else:
            local.setdefault(path, []).append(i)
    if distant:
        from aggarray.storage.remote.reader import fetch_pieces

        places = [paths[i] for i in distant], [offsets[i] for i in distant], [sizes[i] for i in distant]
        for i, piece in zip(distant, fetch_pieces(*places, versions.tags), strict=True):
            pieces[i] = piece
    for path, numbers in local.items():
        ranges = [(offsets[i], sizes[i]) for i in numbers]
        own: Sequence[memoryview | None] = [None] * len(ranges)
        if (0, 0) in ranges:
            own = [read_file(path)] * len(ranges)
        else:
            # promise: one-version-per-read
            with suppress(MissingFileError), version_source(path, versions) as source:
                own = source.read_ranges(ranges)
        for i, piece in zip(numbers, own, strict=True):
            pieces[i] = piece
    return pieces
