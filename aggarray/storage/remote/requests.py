"""Concurrent requests for byte ranges of remote objects.

Asynchronous file systems run many requests at a time; others run one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from aggarray.dataclass import NamedTuple
from aggarray.errors import AggarrayError, MissingFileError
from aggarray.storage.remote import web
from aggarray.storage.remote.conditional import ANY, ExpectedVersion, get_s3
from aggarray.storage.remote.filesystems import FileSystem, explain_error, filesystem_of, library_errors

#: Concurrent requests of one call.
AT_ONCE = 32
#: Timeout of one call in seconds.
LIMIT = 600.0


class RangeRequest(NamedTuple):
    """A byte range of an object: ``size`` None: all."""

    uri: str
    offset: int = 0
    size: int | None = None
    expected: ExpectedVersion = ANY

    @property
    def end(self) -> int | None:
        """The offset after the last byte, None for the end of the object."""
        return None if self.size is None else self.offset + self.size


def fetch(requests: Sequence[RangeRequest]) -> list[bytes | AggarrayError]:
    """Return the bytes of each request, fewer at the end, or its error."""
    return run_concurrently([(request.uri, partial(_awaited, request), partial(_read, request)) for request in requests])


def run_concurrently(jobs: Sequence[tuple[str, Any, Any]]) -> list[Any]:
    """Return the result or error of each job.

    A job: the address, a coroutine of a file system, and the same as a plain function.
    """
    results: list[Any] = [None] * len(jobs)
    waiting: dict[FileSystem, list[int]] = {}
    for number, (uri, _, _) in enumerate(jobs):
        try:
            system = filesystem_of(uri)
        except AggarrayError as error:
            results[number] = error
            continue
        waiting.setdefault(system, []).append(number)
    for system, numbers in waiting.items():
        if system.asynchronous:
            answers = _synced(system, [partial(jobs[n][1], system) for n in numbers])
        else:
            answers = []
            for n in numbers:
                try:
                    with system.lock:
                        answers.append(jobs[n][2](system))
                except library_errors() as error:
                    answers.append(error)
        for number, result in zip(numbers, answers, strict=True):
            wrong = isinstance(result, BaseException) and not isinstance(result, AggarrayError)
            results[number] = explain_error(jobs[number][0], result) if wrong else result
    return results


def _synced(system: FileSystem, makers: Sequence[Any]) -> list[Any]:
    import asyncio

    from fsspec.asyn import sync

    async def one(limit: Any, make: Any) -> Any:
        async with limit:
            try:
                return await make()
            except library_errors() as error:
                return error

    async def every() -> list[Any]:
        limit = asyncio.Semaphore(AT_ONCE)
        return list(await asyncio.gather(*(one(limit, make) for make in makers)))

    try:
        return list(sync(system.fs.loop, every, timeout=LIMIT))
    except library_errors() as error:
        return [error] * len(makers)


async def _awaited(request: RangeRequest, system: FileSystem) -> bytes:
    if request.size == 0:
        return b""
    if system.web:
        return await web.get(system.fs, request.uri, request.offset, request.size, request.expected)
    if system.s3 and request.end is not None:
        return await get_s3(system.fs, request.uri, (request.offset, request.end), request.expected)
    return bytes(await system.fs._cat_file(system.path(request.uri), start=request.offset, end=request.end))


def _read(request: RangeRequest, system: FileSystem) -> bytes:
    if request.size == 0:
        return b""
    return bytes(system.fs.cat_file(system.path(request.uri), start=request.offset, end=request.end))


def fetch_objects(uris: Sequence[str]) -> list[bytes | None]:
    """Return bytes of small objects, None if missing; raise the first error."""
    results = fetch([RangeRequest(uri) for uri in uris])
    for result in results:
        if isinstance(result, AggarrayError) and not isinstance(result, MissingFileError):
            raise result
    return [None if isinstance(result, AggarrayError) else result for result in results]


def fetch_object(uri: str) -> bytes | None:
    """Return all bytes of a small object, None if it does not exist."""
    return fetch_objects([uri])[0]
