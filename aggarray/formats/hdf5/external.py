"""Other files that hold the values of an HDF5 dataset.

A dataset may have external storage, which is plain bytes of other files, or be virtual, assembled from datasets of other files,
which may be external or virtual themselves. Each file is yielded before it is opened to search for more files, so that the
caller can stop at a file that must not be read.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from itertools import takewhile
from typing import Any

from aggarray.dataclass import NamedTuple
from aggarray.errors import LIBRARY_ERRORS, FormatError
from aggarray.formats.base import LIBRARY_LOCK
from aggarray.formats.hdf5.h5py_files import leads_outside, open_file
from aggarray.formats.hdf5.metadata.data import UNREADABLE
from aggarray.formats.hdf5.metadata.lookup import H5File
from aggarray.formats.hdf5.metadata.validation import is_damaged
from aggarray.storage.files import stat_file
from aggarray.storage.lru_cache import LRUCache
from aggarray.storage.state import FileState

#: Greatest number of source datasets.
_MOST = 1 << 16
#: Files of datasets that the library may read in this process, with their states then, by file and variable.
_validated = LRUCache(lambda: _MOST, len)


class Source(NamedTuple):
    """File and dataset in it; ``dataset`` None: plain bytes of the file."""

    path: str
    dataset: str | None = None


def candidates(home: str, name: str) -> list[str]:
    """Return the existing files that a source of a virtual dataset may be.

    ``home``: the file that names it. They are in the order of HDF5: the absolute path, the folders of ``HDF5_VDS_PREFIX``, that
    of the file, the working directory, and that of the file without links. Without any, the path is that of the missing file.
    """
    paths = _searched(home, name)
    return [path for path in paths if os.path.lexists(path)] or [_beside(home, name)]


def _beside(home: str, name: str) -> str:
    return home if name == "." else os.path.join(os.path.dirname(os.path.abspath(home)), name)


def _searched(home: str, name: str) -> list[str]:
    if name == ".":
        return [home]
    first, base = ([name], os.path.basename(name)) if os.path.isabs(name) else ([], name)
    prefixes = filter(None, os.environ.get("HDF5_VDS_PREFIX", "").split(":"))
    folder = os.path.dirname(os.path.abspath(home))
    folders = [*(os.path.abspath(prefix.replace("${ORIGIN}", folder)) for prefix in prefixes), folder, os.getcwd()]
    paths = (os.path.join(folder, base) for folder in (*folders, os.path.dirname(os.path.realpath(home))))
    return list(dict.fromkeys([*first, *paths]))


def sources_of(path: str, dataset: Any) -> list[Source]:
    """Return the sources of an external or virtual dataset.

    The library's lock must be held.
    """
    folder, sources = os.path.dirname(os.path.abspath(path)), list[Source]()
    for stored, _, _ in dataset.external or ():
        # HDF5 searches external files in the working directory.
        files = [os.path.join(folder, os.fsdecode(stored)), os.path.abspath(os.fsdecode(stored))]
        sources += [Source(file) for file in [file for file in files if os.path.lexists(file)] or files]
    for source in dataset.virtual_sources() if dataset.is_virtual else ():
        inner = "/".join(filter(None, source.dset_name.split("/")))
        sources += [
            Source(file, inner) for file in _numbered_files(path, source.file_name) or candidates(path, source.file_name)
        ]
    return sources


def _numbered_files(home: str, name: str) -> list[str]:
    """Return the files whose names have numbers in place of ``%b``."""
    if "%b" not in name:
        return []
    plain, paths = name.replace("%%", "%"), list[str]()
    for path in _searched(home, plain):
        is_numbered = re.compile(re.escape(path).replace("%b", "[0-9]+"))
        paths += filter(is_numbered.fullmatch, glob.iglob(glob.escape(path).replace("%b", "*")))
    return [*paths, _beside(home, plain)]


def external_files(sources: Sequence[Source], root: Source) -> Iterator[str]:
    """Yield the files of the sources of a dataset, each before it is opened.

    Raises FormatError for a source behind a link into another file, for a virtual dataset that refers to itself, and for
    too many sources.
    """
    return (source.path for source in _walk(sources, root))


def _walk(sources: Sequence[Source], root: Source) -> Iterator[Source]:
    """Yield sources recursively; see `external_files`."""
    waiting: list[Source | None] = list(reversed(sources))
    active, seen = [_identity(root)], set[Source]()
    while waiting:
        source = waiting.pop()
        if source is None:  # all sources of this one have been visited
            active.pop()
            continue
        identity = _identity(source)
        # promise: virtual-cycles
        if identity in active:
            hint = "leave it out, or write its mappings again"
            raise FormatError("a virtual dataset that refers to itself", path=source.path, variable=source.dataset, hint=hint)
        if identity in seen:
            continue
        seen.add(identity)
        if len(seen) > _MOST:
            hint = "copy the values into fewer files"
            raise FormatError(f"values come from more than {_MOST} datasets", path=source.path, hint=hint)
        yield source
        # promise: virtual-sources-roots
        inner = sources_in(source)
        if inner:
            active.append(identity)
            waiting += [None, *reversed(inner)]


def _identity(source: Source) -> Source:
    return Source(os.path.realpath(source.path), source.dataset)


def sources_in(source: Source) -> list[Source]:
    """Return the sources of a source, none if it has its own values.

    A damaged file has none: the library opens it in another process only.
    """
    if source.dataset is None or not os.path.isfile(source.path) or is_damaged(source.path):
        return []
    with suppress(*UNREADABLE, OSError), closing(H5File(source.path)) as opened:
        header = opened.dataset(source.dataset)
        if header.virtual is None and not header.external:
            return []
    try:
        with LIBRARY_LOCK, open_file(source.path) as file:
            return [
                inner for name in _numbered_datasets(file, source.dataset) for inner in _of_dataset(source.path, file, name)
            ]
    except FormatError:
        raise
    except LIBRARY_ERRORS:
        return []


def _numbered_datasets(file: Any, name: str) -> list[str]:
    """Return a dataset, or those with numbers in place of ``%b``."""
    if "%b" not in name:
        return [name]
    numbers = (name.replace("%b", str(number)) for number in range(_MOST))
    return list(takewhile(lambda path: file.get(path, getlink=True) is not None, numbers))


def _of_dataset(path: str, file: Any, name: str) -> list[Source]:
    if leads_outside(file, name):
        raise FormatError("a link into another file", path=path, variable=name, hint="open that file instead")
    dataset = file.get(name)
    return sources_of(path, dataset) if hasattr(dataset, "virtual_sources") else []


def must_isolate(root: Source, sources: Sequence[Source]) -> bool:
    """Return whether a source is damaged, or raise as `external_files` does."""
    validated = _validated.get(root)
    if validated is not None and all(_state(path) == state for path, state in validated):
        return False
    visited = [root, *_walk(sources, root)]
    files = dict.fromkeys(source.path for source in visited if source.dataset is not None)
    states = [(source.path, _state(source.path)) for source in visited]
    # promise: virtual-sources-validated
    if any(is_damaged(path) for path in files if os.path.isfile(path)):
        return True
    _validated.keep(root, states)
    return False


def _state(path: str) -> FileState | None:
    try:
        return stat_file(path)
    except OSError:
        return None
