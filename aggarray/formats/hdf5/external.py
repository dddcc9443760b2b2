"""In which other files do the values of an HDF5 dataset lie, and in which do those of these?

Datasets have external storage, plain bytes of other files, or are virtual, made of datasets of other files, which may be either
again. Each file is told before it is opened to look for more: who may not read it stops there.
"""

import glob
import os
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from aggarray.errors import FormatError
from aggarray.formats.base import LIBRARY_ERRORS, LIBRARY_LOCK
from aggarray.formats.hdf5.h5py_files import opened
from aggarray.formats.hdf5.links import leads_outside

#: Datasets that values may come from.
_MOST = 1 << 16


class Source(NamedTuple):
    """A file, and the dataset of it that is read; None: its bytes are."""

    path: str
    dataset: str | None = None


def sources_of(path: str, dataset: Any) -> list[Source]:
    """Return where HDF5 finds the values of a dataset that does not have them itself; the lock must be held."""
    found = [(os.fsdecode(name), None) for name, _, _ in dataset.external or ()]
    if dataset.is_virtual:
        found += [(source.file_name, source.dset_name) for source in dataset.virtual_sources()]
    folder = os.path.dirname(os.path.abspath(path))
    return [Source(each, inner) for name, inner in found for each in ([path] if name == "." else _places(folder, name))]


def _places(folder: str, name: str) -> list[str]:
    """Return the files that a name may stand for: those that are there, all where none is.

    HDF5 looks for external files in the working directory, for sources of virtual ones beside the file and then there.
    """
    places = _named(os.path.join(folder, name)) + _named(os.path.abspath(name))
    return [place for place in places if os.path.lexists(place)] or places


def _named(path: str) -> list[str]:
    """Return the files that a name stands for: one, or those that have numbers where it has ``%b``."""
    return [path] if "%b" not in path else [path, *glob.iglob(glob.escape(path).replace("%b", "*"))]


def external_files(sources: Sequence[Source]) -> Iterator[str]:
    """Yield the files of sources, each before it is opened, and then those that it takes values from.

    Raises FormatError for a dataset that is reached through links out of its file, and for more datasets than can be told.
    """
    waiting, seen = list(reversed(sources)), set[Source]()
    while waiting:
        source = waiting.pop()
        if source in seen:
            continue
        seen.add(source)
        if len(seen) > _MOST:
            raise FormatError(f"{source.path}: values come from more than {_MOST} datasets; copy them into fewer files")
        yield source.path
        # promise: virtual-sources-roots
        waiting += _further(source)


def _further(source: Source) -> list[Source]:
    """Return what a source itself takes values from; nothing for one that cannot be read, which is told where it is."""
    if source.dataset is None or not os.path.isfile(source.path):
        return []
    try:
        with LIBRARY_LOCK, opened(source.path) as file:
            if leads_outside(file, source.dataset):
                raise FormatError(
                    f"{source.path}, variable {source.dataset!r}: a link into another file; name that file instead"
                )
            dataset = file.get(source.dataset)
            return sources_of(source.path, dataset) if hasattr(dataset, "virtual_sources") else []
    except FormatError:
        raise
    except LIBRARY_ERRORS:
        return []
