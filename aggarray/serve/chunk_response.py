"""Response of a chunk: read, encoded and sent within limits."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from aggarray.dataclass import dataclass
from aggarray.errors import AggarrayError, printable
from aggarray.export.zarr_view.contents import ViewArray
from aggarray.output.chunks import Position
from aggarray.serve.archives import Archive
from aggarray.serve.limits import Limits
from aggarray.serve.reads import ByteBudget, ChunkReads
from aggarray.serve.responses import (
    bad_range,
    content_response,
    error_response,
    headers_of,
    is_encodable,
    not_modified,
    requested_range,
)

_TYPE = "application/octet-stream"
_LOGGER = logging.getLogger("aggarray.serve")


@dataclass(frozen=True, slots=True, eq=False)
class ChunkReader:
    """What all responses of chunks share."""

    reads: ChunkReads
    budget: ByteBudget
    limits: Limits

    @property
    def waiting(self) -> int:
        """Number of requests that wait for memory or a thread."""
        return self.reads.waiting + self.budget.waiting


@dataclass(frozen=True, slots=True, eq=False)
class ChunkResponse:
    """Response of a chunk, an ASGI application.

    It ends when the client closes the connection: a read that no thread has begun is then cancelled.
    """

    reader: ChunkReader
    request: Request
    archive: Archive
    array: ViewArray
    position: Position

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Send the response."""
        response = self._immediate()
        if response is not None:
            await response(scope, receive, send)
            return
        work = asyncio.ensure_future(self._read_and_send(scope, receive, send))
        closed = asyncio.ensure_future(_until_closed(receive))
        try:
            await asyncio.wait({work, closed}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            closed.cancel()
            if not work.done():
                work.cancel()
        await asyncio.wait({work})
        if not work.cancelled():
            work.result()

    def _immediate(self) -> Response | None:
        """Return a response that needs no value, None if there is none."""
        array, limits, tag = self.array, self.reader.limits, self.archive.tag(self.array, self.position)
        if (response := not_modified(self.request, tag)) is not None:
            return response
        if array.chunk_bytes > limits.chunk_bytes:
            reason = f"a chunk has {array.chunk_bytes} bytes, the limit is {limits.chunk_bytes}"
            return error_response(413, f"{reason}; serve it with smaller chunks", chunks=list(array.chunk_shape))
        if array.size is not None:
            if self.request.method == "HEAD":
                return Response(None, 200, {**headers_of(tag), "Content-Length": str(array.size)}, _TYPE)
            try:
                requested_range(self.request, tag, array.size)
            except ValueError:
                return bad_range(array.size)
        if self.reader.waiting >= limits.waiting:
            return error_response(503, f"{self.reader.waiting} requests wait", {"Retry-After": "1"})
        return None

    async def _read_and_send(self, scope: Any, receive: Any, send: Any) -> None:
        async with self.reader.budget.hold(self.array.chunk_bytes):
            await (await self._response())(scope, receive, send)

    async def _response(self) -> Response:
        try:
            content = await self.reader.reads.read((self.array, self.position), self._read)
        except (AggarrayError, OSError) as error:
            path = getattr(error, "path", None) or getattr(error, "filename", None)
            return error_response(502, printable(error), path=None if path is None else printable(path))
        except Exception:
            _LOGGER.exception("reading %s", self.request.url.path)
            return error_response(500, "the chunk cannot be read; the log of the server says why")
        encodable = not self.array.codecs and is_encodable(self.request)
        tag, seconds = self.archive.tag(self.array, self.position), self.reader.limits.seconds
        make = partial(content_response, self.request, content, tag, _TYPE, encodable, seconds)
        return await asyncio.to_thread(make) if encodable else make()

    def _read(self) -> memoryview:
        # All threads for a single request, one for each of several.
        return self.array.read(self.position, None if self.reader.reads.reading < 2 else 1)


async def _until_closed(receive: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
