"""Which format is a file of, and how is it scanned or opened?

A format is a module of this folder with a ``FORMAT`` object, or an object that another package registers under the
entry point ``aggarray.formats``: there is no list to edit. Files are known by content, never by suffix.
"""

import functools
import hashlib
import os
import re
import stat
import sys
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

from aggarray.errors import AggregationError, ChangedFileError, FormatError, MissingFileError
from aggarray.formats.base import Format, Handle, Stamp, Structure, naming_errors
from aggarray.formats.flattened import understanding
from aggarray.formats.partial_scan import ChunkIndexRequest, PartialScan, PartialScanRequest, ScannedChunkIndexes
from aggarray.formats.unsupported import is_unfinished, kind_above, kind_of_folder, kind_of_head, lost_link
from aggarray.plugins import foreign_objects, own_objects
from aggarray.storage.byte_source import open_source
from aggarray.storage.files import absolute, is_folder, missing, stat_file, store_mark
from aggarray.storage.remote import canonical, is_remote, join

#: Bytes of a file that formats are shown.
HEAD = 512

_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+)://(?P<host>[^/]*)(?P<path>.*)", re.DOTALL)
#: Bytes at the beginning and at the end of a file that its checksum covers.
_CHECKED = (1 << 16, 1 << 14)

_STORE_MARKS = ("zarr.json", ".zgroup", ".zarray", ".zmetadata")


def formats() -> tuple[Format, ...]:
    """Return every format there is: this folder's in order of module name, then those of other packages.

    >>> [f.name for f in formats()][:3]
    ['HDF5', 'Kerchunk', 'netCDF3']
    """
    return (*own_formats(), *_foreign_formats())


@functools.cache
def own_formats() -> tuple[Format, ...]:
    """Return the formats of this folder."""
    return tuple(f for f in own_objects(sys.modules[__name__], "FORMAT") if isinstance(f, Format))


@functools.cache
def _foreign_formats() -> tuple[Format, ...]:
    return tuple(f for f in foreign_objects("aggarray.formats") if isinstance(f, Format))


def local_path(path: Any) -> str:
    """Return a path that a user gave as text: bytes decoded, ``~`` expanded, a ``file://`` URL as the path in it.

    Raises what `given_path` does, and FormatError for the address of a remote file.

    >>> local_path(b"a.nc"), local_path("file:///data/a%20b.nc")
    ('a.nc', '/data/a b.nc')
    """
    text = given_path(path)
    if is_remote(text):
        raise FormatError(f"{text}: an address, where the path of a local file is wanted; write there and upload the file")
    return text


def given_path(path: Any) -> str:
    """Return a path, or the address of a remote file, that a user gave as text.

    Raises AggregationError for what is no path, MissingFileError for an empty one, FormatError for one that no file can
    have.

    >>> given_path("file:///data/a%20b.nc"), given_path("HTTPS://host/a.nc")
    ('/data/a b.nc', 'https://host/a.nc')
    """
    if not isinstance(path, str | bytes | os.PathLike):
        what = f"{' '.join(repr(path).split()):.60} ({type(path).__name__})"
        raise AggregationError(f"{what} is no path: give that of a file, a folder or a pattern, as text or a pathlib.Path")
    text = os.fsdecode(path)
    if not text:
        raise MissingFileError("the path '' is empty: give a file, a folder or a pattern; '.' is the folder you are in")
    if "\0" in text:
        raise FormatError(f"{text!r}: no path has a null character in it; correct the path")
    address = canonical(text)
    if address is not None:
        return address
    url = _URL.fullmatch(text)
    if url is None:
        return os.path.expanduser(text)
    if url["host"] not in ("", "localhost") or not url["path"]:
        raise FormatError(f"{text}: a file of another host, which cannot be opened; fetch the file and give its local path")
    return unquote(url["path"], errors="surrogateescape")


def is_store(path: str | os.PathLike[str]) -> bool:
    """Tell whether a folder is a Zarr store (a group or an array)."""
    return bool(store_mark(os.fspath(path), _STORE_MARKS))


def identify(path: str | os.PathLike[str]) -> Format:
    """Return the format of a file or folder, by content.

    Raises MissingFileError where there is nothing, FormatError for whatever is not a data file or cannot be read.
    """
    path = os.fspath(path)
    return _identified(path, _look(path, checked=False)[0])


def _identified(path: str, head: bytes) -> Format:
    for some in (own_formats, _foreign_formats):
        for candidate in some():
            if candidate.recognises(path, head):
                return candidate
    kind = _folder_kind(path) if is_folder(path) else kind_above(path) or kind_of_head(head)
    if kind is not None:
        raise FormatError(f"{path}: {kind[0]}, which aggarray does not read; {kind[1]}")
    if is_folder(path):
        raise FormatError(f"{path}: a folder that is no Zarr store; name the files in it, or a pattern such as {path}/*.nc")
    known = ", ".join(f.name for f in formats())
    raise FormatError(f"{path}: not a data file that aggarray knows ({known}); it begins with {head[:8]!r}")


def _folder_kind(path: str) -> tuple[str, str] | None:
    if is_remote(path):
        return None
    with os.scandir(path) as entries:
        names = [(entry.name, entry.is_dir()) for entry in entries]
    return kind_of_folder(path, [name for name, folder in names if folder], [name for name, folder in names if not folder])


def scan(path: str | bytes | os.PathLike[Any]) -> Structure:
    """Return structure, attributes and coordinate values of a file; its format opens it once.

    Raises MissingFileError or FormatError, naming file, variable and the library's reason, or what `local_path` raises.
    """
    path = absolute(given_path(path))
    try:
        head, stamp = _look(path)
        found = _identified(path, head)
        with naming_errors(path):
            told = path if stamp else state_path(path)
            stamp = stamp or stamp_of(path)
            structure = replace(found.scan(path), stamp=stamp)
            _check_unchanged(path, told, stamp)
            return structure
    except FormatError as error:
        if isinstance(error, MissingFileError) or not is_unfinished(path):
            raise
        why = str(error).removeprefix(f"{path}: ")
        raise FormatError(
            f"{path}: a download that has not ended, by its name; wait for it, or leave it out ({why})"
        ) from error


def _check_unchanged(path: str, told: str, stamp: Stamp) -> None:
    """Raise ChangedFileError where a file was written to while it was scanned: what was found may be of two versions."""
    status = stat_file(told)
    # promise: changed-during-scan
    if (status.size, status.mtime_ns) != stamp[:2]:
        raise ChangedFileError(f"{path}: changed while it was scanned; open it again")


def scan_partially(path: str, wanted: PartialScanRequest) -> PartialScan | Structure:
    """Return what is wanted of a file, or all that a scan finds, where its format does not make that quicker or sure.

    ``path`` is absolute. Raises what `scan` does.
    """
    head, stamp = _look(path)
    found = _identified(path, head)
    with naming_errors(path):
        told = path if stamp else state_path(path)
        stamp = stamp or stamp_of(path)
        # Formats of other packages need not have it.
        quick = getattr(found, "scan_partially", None)
        seen: PartialScan | None = None if quick is None else quick(path, wanted)
        outcome = replace(found.scan(path) if seen is None else seen, stamp=stamp)
        _check_unchanged(path, told, stamp)
        return outcome


def locate(path: str, wanted: ChunkIndexRequest) -> ScannedChunkIndexes:
    """Return where the chunks of variables of a file are stored. Raises what `open_file` does."""
    handle = open_file(path)
    try:
        with naming_errors(path):
            status = stat_file(path)
            # Handles of other packages may not know.
            asked = {name: getattr(understanding(handle, name), "chunks", lambda name: None)(name) for name in wanted.names}
            found = {name: chunks for name, chunks in asked.items() if chunks is not None}
            if stat_file(path) != status:
                raise ChangedFileError(f"{path}: changed while it was looked at; open it again")
            return ScannedChunkIndexes(path, status, found)
    finally:
        handle.close()


def state_path(path: str) -> str:
    """Return the file whose size and time tell whether a data file has changed: itself, or the metadata of a Zarr store."""
    mark = store_mark(path, _STORE_MARKS) if is_folder(path) else ""
    return join(path, mark) if mark else path


def stamp_of(path: str) -> Stamp:
    """Return size, modification time and checksum of a file (of a Zarr store: of its metadata). OSError where it is gone."""
    told = state_path(path)
    status = stat_file(told)
    return status.size, status.mtime_ns, checksum(told)


def checksum(path: str) -> int:
    """Return a checksum of the head and the tail of a file, where headers lie; of a small file that is all of it."""
    if is_remote(path):
        return _look_far(path)[1]
    with missing(path):
        mode = os.stat(path).st_mode
    # promise: pipes-skipped
    if not stat.S_ISREG(mode):
        # Opening a pipe would wait for its other end.
        raise OSError(f"{path}: neither a file nor a folder")
    with missing(path), open(path, "rb", buffering=0) as file:
        return _checksum(file.fileno(), _head(file.fileno(), _CHECKED[0]))


def _checksum(file: int, head: bytes) -> int:
    size = os.fstat(file).st_size
    return _digest(head, os.pread(file, _CHECKED[1], max(0, size - _CHECKED[1])) if size else b"")


def _head(file: int, size: int) -> bytes:
    """Return the first bytes of a file. Some that the system makes up have no size, and no end: these are not waited for."""
    # promise: sizeless-files
    return os.pread(file, size, 0) if os.fstat(file).st_size else b""


def _digest(head: bytes, tail: bytes) -> int:
    digest = hashlib.blake2b(head, digest_size=8)
    digest.update(tail)
    return int.from_bytes(digest.digest(), "little", signed=True)


def open_file(path: str | os.PathLike[str]) -> Handle:
    """Open a file for reading values. Raises MissingFileError or FormatError."""
    path = absolute(path)
    found = identify(path)
    with naming_errors(path):
        return found.open(path)


def _look(path: str, checked: bool = True) -> tuple[bytes, Stamp | None]:
    """Return the first bytes of a file, and its stamp if it is to be ``checked``; of a folder neither."""
    if is_remote(path):
        there = stat_file(path)
        if there.folder:
            return b"", None
        head, digest = _look_far(path) if there.size else (b"", 0)
        return _begins(path, head), (there.size, there.mtime_ns, digest)
    try:
        # Opening a pipe would wait for its other end.
        mode = os.stat(path).st_mode
        if stat.S_ISDIR(mode):
            return b"", None
        if not stat.S_ISREG(mode):
            raise FormatError(f"{path}: neither a file nor a folder")
        with open(path, "rb", buffering=0) as file:
            head = _head(file.fileno(), _CHECKED[0] if checked else HEAD)
            status = os.fstat(file.fileno())
            stamp = (status.st_size, status.st_mtime_ns, _checksum(file.fileno(), head)) if checked else None
    except (FileNotFoundError, NotADirectoryError) as error:
        raise MissingFileError(f"{path}: {lost_link(path) or 'no such file or folder; check the path'}") from error
    except FormatError:
        raise
    except OSError as error:
        raise FormatError(f"{path}: cannot be opened: {error.strerror or error}") from error
    return _begins(path, head), stamp


def _begins(path: str, head: bytes) -> bytes:
    if not head:
        raise FormatError(f"{path}: an empty file (0 bytes); fetch or write it again")
    return head[:HEAD]


def _look_far(path: str) -> tuple[bytes, int]:
    """Return the head of a remote file and the checksum of both its ends."""
    with open_source(path) as file:
        head, tail = file.preads([(0, _CHECKED[0]), (max(0, file.size - _CHECKED[1]), _CHECKED[1])])
    return head, _digest(head, tail)
