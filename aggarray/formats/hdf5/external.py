"""Other files that hold the values of an HDF5 dataset.

A dataset may have external storage, which is plain bytes of other files, or be virtual, assembled from datasets of other files,
which may be external or virtual themselves. Each file is yielded before it is opened to search for more files, so that the
caller can stop at a file that must not be read.
"""

import glob
import os
from collections.abc import Iterator, Sequence
from typing import Any

from aggarray.dataclass import NamedTuple
from aggarray.errors import LIBRARY_ERRORS, FormatError
from aggarray.formats.base import LIBRARY_LOCK
from aggarray.formats.hdf5.h5py_files import leads_outside, open_file

#: Greatest number of source datasets.
_MOST = 1 << 16


class Source(NamedTuple):
    """File and dataset in it; ``dataset`` None: plain bytes of the file."""

    path: str
    dataset: str | None = None


def sources_of(path: str, dataset: Any) -> list[Source]:
    """Return the sources of an external or virtual dataset.

    The library's lock must be held.
    """
    names = [(os.fsdecode(name), None) for name, _, _ in dataset.external or ()]
    if dataset.is_virtual:
        names += [(source.file_name, source.dset_name) for source in dataset.virtual_sources()]
    folder, sources = os.path.dirname(os.path.abspath(path)), []
    for name, inner in names:
        # HDF5 searches external files in the working directory, sources of virtual datasets beside the file, too.
        files = [path] if name == "." else _expand(os.path.join(folder, name)) + _expand(os.path.abspath(name))
        sources += [Source(file, inner) for file in [file for file in files if os.path.lexists(file)] or files]
    return sources


def _expand(path: str) -> list[str]:
    """Return a path, and files with numbers in place of its ``%b``."""
    return [path] if "%b" not in path else [path, *glob.iglob(glob.escape(path).replace("%b", "*"))]


def external_files(sources: Sequence[Source]) -> Iterator[str]:
    """Yield the files of sources, recursively, each before it is opened.

    Raises FormatError for a source that a link to another file leads to, and for too many sources.
    """
    waiting, seen = list(reversed(sources)), set[Source]()
    while waiting:
        source = waiting.pop()
        if source in seen:
            continue
        seen.add(source)
        if len(seen) > _MOST:
            hint = "copy the values into fewer files"
            raise FormatError(f"values come from more than {_MOST} datasets", path=source.path, hint=hint)
        yield source.path
        # promise: virtual-sources-roots
        waiting += _sources_in(source)


def _sources_in(source: Source) -> list[Source]:
    if source.dataset is None or not os.path.isfile(source.path):
        return []
    try:
        with LIBRARY_LOCK, open_file(source.path) as file:
            if leads_outside(file, source.dataset):
                hint = "open that file instead"
                raise FormatError("a link into another file", path=source.path, variable=source.dataset, hint=hint)
            dataset = file.get(source.dataset)
            return sources_of(source.path, dataset) if hasattr(dataset, "virtual_sources") else []
    except FormatError:
        raise
    except LIBRARY_ERRORS:
        return []
