"""Fingerprint of an extraction: its pieces, their files, its format."""

import contextlib
import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from importlib import metadata
from typing import Any

import numpy as np

from aggarray.arrays import MasterArray
from aggarray.export.extract.layout import ExtractLayout, Variable
from aggarray.formats import state_path
from aggarray.partition.matrix import References
from aggarray.storage.files import stat_file
from aggarray.storage.remote import is_remote

#: Libraries whose versions may change the bytes.
_LIBRARIES = ("aggarray", "numpy", "deflate", "numcodecs", "netCDF4", "h5py")


def fingerprint(layout: ExtractLayout, kind: str) -> str:
    """Return 32 characters that change if the result would change."""
    digest = hashlib.blake2b(digest_size=16)
    for part in _parts([kind, [f"{name} {metadata.version(name)}" for name in _LIBRARIES], layout]):
        digest.update(len(part).to_bytes(8, "little") + part)
    states: dict[str, Any] = {}
    for variable in layout.variables:
        if variable.source._known is None:
            with variable.source._access.reach():
                states |= {str(uri): _state(str(uri)) for uri in _used(variable) if str(uri) not in states}
    for uri, state in sorted(states.items()):
        digest.update(f"{uri} {state}\n".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


#: Former names of renamed classes, which fingerprints keep: earlier extracts stay up to date.
_TAGS = {"ExtractLayout": "Layout", "FileSignature": "Assumed", "VariableSignature": "Fact", "StorageOptions": "Storage"}


def _parts(item: Any) -> Iterator[bytes]:
    """Yield the content of an item recursively, as bytes."""
    if isinstance(item, np.ndarray):
        yield f"{item.dtype.str} {item.shape}".encode()
        yield str(item.tolist()).encode() if item.dtype.kind in "TO" else np.ascontiguousarray(item).tobytes()
    elif isinstance(item, MasterArray):
        # Its coordinates are variables of the layout.
        yield from _parts([item.dtype.str, item.units, item.calendar, item.fill_value, item._access])
        yield from _parts(item._known or item._matrix.compact())
    elif isinstance(item, References):
        names = (f.name for f in fields(item) if f.name not in ("stamps", "tables", "seen"))
        yield from _parts([getattr(item, name) for name in names])
    elif isinstance(item, Mapping):
        yield from _parts([[key, value] for key, value in item.items()])
    elif is_dataclass(item):
        name = type(item).__name__
        yield _TAGS.get(name, name).encode()
        yield from _parts([getattr(item, f.name) for f in fields(item)])
    elif isinstance(item, Sequence) and not isinstance(item, str | bytes):
        yield f"{len(item)}".encode()
        for element in item:
            yield from _parts(element)
    else:
        yield repr(item).encode("utf-8", "surrogatepass")


def files_of(layout: ExtractLayout) -> set[str]:
    """Return the files from which the values are read."""
    return {str(uri) for v in layout.variables for uri in _used(v) if v.source._known is None}


def _used(variable: Variable) -> Sequence[str]:
    return variable.source._matrix.compact().references.uris


def _state(uri: str) -> tuple[int, ...] | None:
    """Return the state of a file or local Zarr store, None if it is missing."""
    with contextlib.suppress(OSError):
        if not is_remote(uri) and os.path.isdir(uri):
            # Chunks may change while the metadata stay the same.
            states = [os.lstat(os.path.join(directory, name)) for directory, _, names in os.walk(uri) for name in names]
            return len(states), sum(s.st_size for s in states), max((s.st_mtime_ns for s in states), default=0)
        stat = stat_file(state_path(uri))
        # The inode of a remote file is the server's identifier of its content.
        return stat.size, stat.mtime_ns, stat.inode if is_remote(uri) else 0
    return None
