"""Recognition of file formats, and scanning and opening of files.

A format is a module of this folder with a ``FORMAT`` object, or an object that another package registers under the entry
point ``aggarray.formats``. A new format needs no entry in a list. The content of a file decides its format, never its suffix.
"""

from __future__ import annotations

import functools
import importlib
import os
import stat
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

from aggarray.dataclass import replace
from aggarray.errors import AggarrayError, ChangedFileError, FormatError, MissingFileError
from aggarray.formats.base import Format, Handle, Structure, naming_errors
from aggarray.formats.flattened import flat_handle
from aggarray.plugins import foreign_objects, module_names
from aggarray.storage.blake2 import blake2b
from aggarray.storage.byte_source import ByteSource, open_once, open_source
from aggarray.storage.files import absolute, given_path, is_folder, missing, stat_file, state_path
from aggarray.storage.state import Stamp
from aggarray.storage.urls import is_remote

if TYPE_CHECKING:
    from aggarray.formats.partial_scan import (
        ChunkIndexRequest,
        FileLayout,
        PartialScan,
        PartialScanRequest,
        Result,
        ScannedChunkIndexes,
        Task,
    )

#: Bytes at the beginning of a file from which formats recognise it.
HEAD = 512

#: Bytes at the beginning and at the end of a file that its checksum covers.
_CHECKED = (1 << 16, 1 << 14)


def formats() -> tuple[Format, ...]:
    """Return the built-in formats by module name, then those of packages.

    >>> [f.name for f in formats()][:3]
    ['HDF5', 'Kerchunk', 'netCDF3']
    """
    return (*own_formats(), *_foreign_formats())


def own_formats() -> Iterator[Format]:
    """Yield the formats of this folder; each module is imported in its turn."""
    return filter(None, map(_own_format, _own_modules()))


@functools.cache
def _own_modules() -> Sequence[str]:
    return module_names(__path__)


@functools.cache
def _own_format(module: str) -> Format | None:
    file_format: Format | None = getattr(importlib.import_module(f"{__name__}.{module}"), "FORMAT", None)
    return file_format


@functools.cache
def _foreign_formats() -> tuple[Format, ...]:
    return tuple(f for f in foreign_objects("aggarray.formats") if isinstance(f, Format))


def identify(path: str | os.PathLike[str]) -> Format:
    """Return the format of a file or folder, by content.

    Raises MissingFileError or FormatError.
    """
    path = os.fspath(path)
    return _identify_head(path, _read_head(path, with_stamp=False)[0])


def _identify_head(path: str, head: bytes) -> Format:
    for load_formats in (own_formats, _foreign_formats):
        for candidate in load_formats():
            if candidate.recognises(path, head):
                return candidate
    raise _unrecognised(path, head)


def _unrecognised(path: str, head: bytes) -> FormatError:
    from aggarray.formats.unsupported import unsupported_folder, unsupported_head, unsupported_parent

    folder = is_folder(path)
    unsupported = None if folder else unsupported_parent(path) or unsupported_head(head)
    if folder and not is_remote(path):
        with os.scandir(path) as entries:
            names = {entry.name: entry.is_dir() for entry in entries}
        unsupported = unsupported_folder(path, [n for n in names if names[n]], [n for n in names if not names[n]])
    if unsupported is not None:
        description, hint = unsupported
        return FormatError(f"{description}, which aggarray does not read", path=path, hint=hint)
    if folder:
        hint = f"pass the files in it, or a pattern such as {path}/*.nc"
        return FormatError("a folder that is not a Zarr store", path=path, hint=hint)
    known = ", ".join(f.name for f in formats())
    what = f"not a data file of a known format ({known}): it begins with {head[:8]!r}"
    return FormatError(what, path=path, hint="pass a file of one of these formats")


def scan(path: str | bytes | os.PathLike[Any]) -> Structure:
    """Return structure, attributes and coordinate values of a file.

    The file is opened once. Raises MissingFileError or FormatError with the file, the variable and the reason, or the errors of
    `local_path`.
    """
    path = absolute(given_path(path))
    try:
        return cast(Structure, _scan(path, None))
    except FormatError as error:
        from aggarray.formats.unsupported import is_unfinished

        if isinstance(error, MissingFileError) or not is_unfinished(path):
            raise
        hint = f"wait until the download ends, or leave the file out ({error.reason})"
        raise FormatError("an unfinished download, as its name shows", path=path, hint=hint) from error


def scan_partially(path: str, request: PartialScanRequest) -> PartialScan | Structure:
    """Return the requested part of a file.

    The result is the complete structure if the format has no partial scan. Raises the errors of `scan`.
    """
    return _scan(path, request)


def _scan(path: str, request: PartialScanRequest | None) -> PartialScan | Structure:
    with open_once(path):
        head, stamp = _read_head(path)
        file_format = _identify_head(path, head)
        with naming_errors(path):
            stamped_path = path if stamp else state_path(path)
            stamp = stamp or stamp_of(path)
            # The method is optional in formats of other packages.
            scan_part = None if request is None else getattr(file_format, "scan_partially", None)
            partial: PartialScan | None = None if scan_part is None else scan_part(path, request)
            outcome = replace(file_format.scan(path) if partial is None else partial, stamp=stamp)
            status = stat_file(stamped_path)
            # The result may mix two versions of the file.
            # promise: changed-during-scan
            if (status.size, status.mtime_ns) != stamp[:2]:
                raise ChangedFileError("changed while it was scanned", path=path, hint="open it again")
            return outcome


def locate(path: str, request: ChunkIndexRequest) -> ScannedChunkIndexes:
    """Return chunk indexes of a file, or raise the errors of `open_file`."""
    from aggarray.formats.partial_scan import ScannedChunkIndexes

    handle = open_file(path)
    try:
        with naming_errors(path):
            status = stat_file(path)
            # The method is optional in handles of other packages.
            indexes = {name: getattr(flat_handle(handle, name), "chunks", lambda name: None)(name) for name in request.names}
            if stat_file(path) != status:
                raise ChangedFileError("changed while it was read", path=path, hint="open it again")
            tables = {name: index for name, index in indexes.items() if index is not None}
            return ScannedChunkIndexes(path, status, tables)
    finally:
        handle.close()


def scan_layout(path: str) -> FileLayout:
    """Return the layout of a file, or raise the errors of `scan`.

    A format without a method ``scan_layout`` gives the structure alone.
    """
    with open_once(path):
        file_format = _identify_head(path, _read_head(path, with_stamp=False)[0])
        with naming_errors(path):
            # The method is optional in formats of other packages.
            scan_own = getattr(file_format, "scan_layout", None)
            if scan_own is None:
                from aggarray.formats.partial_scan import FileLayout

                reason = f"the format {file_format.name} does not describe it"
                return FileLayout(path, file_format.scan(path), {}, reason=reason)
            layout: FileLayout = scan_own(path)
            return layout


def scan_one(task: Task) -> Result:
    """Return the requested part of a file, or its error, never raised."""
    path, request = task
    try:
        if request is None:
            return scan(path)
        from aggarray.formats.partial_scan import ChunkIndexRequest, PartialScanRequest

        if isinstance(request, ChunkIndexRequest):
            return locate(path, request)
        return scan_partially(path, request) if isinstance(request, PartialScanRequest) else scan_layout(path)
    except AggarrayError as error:
        return error


def stamp_of(path: str) -> Stamp:
    """Return size, modification time and checksum of a file.

    For a Zarr store, they are those of its metadata. Raises OSError.
    """
    stamped_path = state_path(path)
    status = stat_file(stamped_path)
    return status.size, status.mtime_ns, checksum(stamped_path)


def checksum(path: str) -> int:
    """Return a checksum of head and tail of a file, which hold the headers."""
    with missing(path):
        is_regular = is_remote(path) or stat.S_ISREG(os.stat(path).st_mode)
    # promise: pipes-skipped
    if not is_regular:
        # Opening a pipe blocks until another process opens its other end.
        raise OSError(f"{path}: neither a file nor a folder")
    with open_source(path) as file:
        return _read_ends(file, _CHECKED)[1]


def _read_ends(file: ByteSource, sizes: tuple[int, int]) -> tuple[bytes, int]:
    """Return the head of a file, and the checksum of head and tail.

    Nothing is read of a file without a size, such as a device, which may never end.
    """
    # promise: sizeless-files
    head_size, tail_size = sizes if file.size else (0, 0)
    head, tail = file.preads([(0, head_size), (max(0, file.size - tail_size), tail_size)])
    return head, int.from_bytes(blake2b(head + tail, digest_size=8).digest(), "little", signed=True)


def open_file(path: str | os.PathLike[str]) -> Handle:
    """Open a file to read values from it.

    Raises MissingFileError or FormatError.
    """
    path = absolute(path)
    file_format = identify(path)
    with naming_errors(path):
        return file_format.open(path)


def _read_head(path: str, with_stamp: bool = True) -> tuple[bytes, Stamp | None]:
    """Return the head of a file and its stamp; b"" and None for a folder."""
    if is_remote(path):
        state = stat_file(path)
        if state.folder:
            return b"", None
        with open_source(path) as file:
            head, digest = _read_ends(file, _CHECKED)
        return _require_bytes(path, head), (state.size, state.mtime_ns, digest)
    try:
        # Opening a pipe blocks until another process opens its other end.
        mode = os.stat(path).st_mode
        if stat.S_ISDIR(mode):
            return b"", None
        if not stat.S_ISREG(mode):
            raise FormatError("neither a file nor a folder", path=path)
        with open_source(path) as file:
            head, digest = _read_ends(file, _CHECKED if with_stamp else (HEAD, 0))
            stamp = (file.size, file.state.mtime_ns, digest) if with_stamp else None
    except (FileNotFoundError, NotADirectoryError) as error:
        from aggarray.formats.unsupported import broken_link

        what, hint = broken_link(path) or ("no such file or folder", "check the path")
        raise MissingFileError(what, path=path, hint=hint) from error
    except FormatError:
        raise
    except OSError as error:
        raise FormatError(f"cannot be opened: {error.strerror or error}", path=path) from error
    return _require_bytes(path, head), stamp


def _require_bytes(path: str, head: bytes) -> bytes:
    if not head:
        raise FormatError("an empty file (0 bytes)", path=path, hint="fetch or write it again")
    return head[:HEAD]
