"""Replacement of a remote object, unless another process has replaced it.

S3 gets ``If-Match`` or ``If-None-Match``, Google Cloud Storage a generation, Azure an entity tag: the store itself refuses to
replace another version. Objects in the memory of this process are replaced under a lock. On other file systems the version is
compared just before: a process that replaces the object in between is not noticed.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from aggarray.errors import AggarrayError, IndexFileError, MissingFileError
from aggarray.storage.credentials import RemoteAccess, access_in_force, with_access
from aggarray.storage.owners import temporary_of
from aggarray.storage.remote.filesystems import FileSystem, filesystem_of, library_errors, status_of
from aggarray.storage.remote.objects import forget_object
from aggarray.storage.remote.requests import fetch_object, run_concurrently
from aggarray.storage.state import changed
from aggarray.storage.urls import WEB, scheme_of, split

#: What a file system reports of an object; None: there is none.
Version = Mapping[str, Any] | None

#: Largest object that one request writes, in bytes.
_LARGEST = 5 << 30
#: Answers to a request whose condition does not hold, or that another one overtakes.
_CONFLICTS = (409, 412)
#: Parts of a report that change with the object.
_VERSION = ("ETag", "etag", "generation", "LastModified", "last_modified", "updated", "mtime", "created", "size")
#: Answers of stores that do not know the condition.
_UNKNOWN = (501,)
_memory_lock = threading.Lock()


def access_to(uri: str) -> RemoteAccess:
    """Return access to one address, with the options in force."""
    return RemoteAccess(access_in_force.get().storage, (uri,))


def check_writable(uri: str) -> None:
    """Raise IndexFileError for an address that cannot be replaced."""
    what = "an archive" if split(uri)[1] else "a web server" if scheme_of(uri) in WEB else ""
    if what or uri.endswith("/"):
        hint = "name an object, such as s3://bucket/index.nca, or write a local file and upload it"
        raise IndexFileError(f"cannot be written: {what or 'a folder'}", path=uri, hint=hint)


def version_of(uri: str) -> Version:
    """Request the version of an object, past every cache; None without one.

    Raises IndexFileError for a folder and if the store cannot be reached.
    """
    forget_object(uri)
    with with_access(access_to(uri)):
        (found,) = run_concurrently([(uri, partial(_info_later, uri), partial(_info, uri))])
    if isinstance(found, MissingFileError):
        return None
    if isinstance(found, AggarrayError):
        raise _unwritten(uri, found)
    if found.get("type") == "directory":
        raise IndexFileError("exists and is not a file", path=uri, hint="give another name for the index")
    return dict(found)


async def _info_later(uri: str, system: FileSystem) -> Mapping[str, Any]:
    system.fs.invalidate_cache()
    return await system.fs._info(system.path(uri))  # type: ignore[no-any-return]


def _info(uri: str, system: FileSystem) -> Mapping[str, Any]:
    system.fs.invalidate_cache()
    return system.fs.info(system.path(uri))  # type: ignore[no-any-return]


def replace_object(uri: str, data: bytes, version: Version) -> None:
    """Write an object in place of a version, None for no object.

    Raises ChangedFileError for another version, which stays, and IndexFileError if the object cannot be written.
    """
    if len(data) > _LARGEST:
        hint = "write a local file and upload it"
        raise IndexFileError(f"cannot be written: {len(data)} bytes, more than {_LARGEST}", path=uri, hint=hint)
    try:
        with with_access(access_to(uri)):
            conditional = _conditional_put(filesystem_of(uri))
        if conditional is None:
            _compare_and_put(uri, data, version)
            return
        put = partial(conditional, uri, data, version)
        with with_access(access_to(uri)):
            (answer,) = run_concurrently([(uri, put, None)])
        if answer == "unconditional":
            _compare_and_put(uri, data, version)
        elif isinstance(answer, MissingFileError) and version is not None:
            raise changed(uri)  # the object was removed meanwhile
        elif isinstance(answer, AggarrayError):
            raise _unwritten(uri, answer)
        # A repeated request meets the object that the first one wrote, although its answer was lost.
        # promise: remote-index-conflict
        elif answer == "conflict" and not _is_stored(uri, data):
            raise changed(uri)
    finally:
        forget_object(uri)


def _is_stored(uri: str, data: bytes) -> bool:
    with with_access(access_to(uri)):
        return fetch_object(uri) == data


def _unwritten(uri: str, error: AggarrayError) -> IndexFileError:
    if isinstance(error, IndexFileError):
        return error
    what = "no such bucket or folder" if isinstance(error, MissingFileError) else error.what.removeprefix("cannot be read: ")
    what = f"cannot be written: {what}" if not what.startswith("cannot be written") else what
    return IndexFileError(what, path=uri, hint=error.hint)


def _conditional_put(system: FileSystem) -> Any:
    """Return the coroutine that writes conditionally, None if there is none."""
    library = type(system.fs).__module__.partition(".")[0]
    if not system.asynchronous or getattr(system.fs, "local_expiry_check", False):
        return None
    return _put_s3 if system.s3 else {"gcsfs": _put_gcs, "adlfs": _put_azure}.get(library)


async def _put_s3(uri: str, data: bytes, version: Version, system: FileSystem) -> str:
    bucket, key, _ = system.fs.split_path(system.path(uri))
    condition = {"IfNoneMatch": "*"} if version is None else {"IfMatch": version["ETag"]}
    return await _answered(system.fs._call_s3("put_object", Bucket=bucket, Key=key, Body=data, **condition))


async def _put_gcs(uri: str, data: bytes, version: Version, system: FileSystem) -> str:
    from urllib.parse import quote

    bucket, key, _ = system.fs.split_path(system.path(uri))
    generation = 0 if version is None else version["generation"]
    where, headers = (
        f"{system.fs._location}/upload/storage/v1/b/{quote(bucket)}/o",
        {"Content-Type": "application/octet-stream"},
    )
    put = system.fs._call("POST", where, uploadType="media", name=key, ifGenerationMatch=generation, headers=headers, data=data)
    return await _answered(put)


async def _put_azure(uri: str, data: bytes, version: Version, system: FileSystem) -> str:
    condition: dict[str, Any] = {"mode": "create"}
    if version is not None:
        from azure.core import MatchConditions

        condition = {"etag": version["etag"], "match_condition": MatchConditions.IfNotModified}
    return await _answered(system.fs._pipe_file(system.path(uri), data, **condition))


async def _answered(request: Any) -> str:
    try:
        await request
    except library_errors() as error:
        status = status_of(error)
        if isinstance(error, FileExistsError) or status in _CONFLICTS:
            return "conflict"
        if status in _UNKNOWN:
            return "unconditional"
        raise
    return "written"


def _compare_and_put(uri: str, data: bytes, version: Version) -> None:
    with _memory_lock:
        now = version_of(uri)
        # promise: remote-index-compared
        if _key(now) != _key(version):
            raise changed(uri)
        job = uri, partial(_put_later, uri, data), partial(_put, uri, data)
        with with_access(access_to(uri)):
            (answer,) = run_concurrently([job])
    if isinstance(answer, AggarrayError):
        raise _unwritten(uri, answer)


def _key(version: Version) -> object:
    return None if version is None else tuple(str(version.get(name)) for name in _VERSION)


async def _put_later(uri: str, data: bytes, system: FileSystem) -> None:
    await system.fs._pipe_file(system.path(uri), data)


def _put(uri: str, data: bytes, system: FileSystem) -> None:
    """Write an object; by renaming a temporary one where the system renames."""
    from fsspec import AbstractFileSystem

    fs, path = system.fs, system.path(uri)
    if type(fs).mv is AbstractFileSystem.mv:
        fs.pipe_file(path, data)
        return
    temporary = system.path(temporary_of(uri))
    try:
        fs.pipe_file(temporary, data)
        fs.mv(temporary, path)
    except BaseException:
        with suppress(Exception):
            fs.rm_file(temporary)
        raise
