"""Responses with validators, ranges and encodings, sent in pieces."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import numpy as np
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from aggarray.serve.conditions import ENCODINGS, accepted_encodings, byte_range, chosen_encoding, matches

#: Bytes passed to the server at once; it waits until the client has accepted most of them.
_PIECE = 1 << 20
#: Fewer bytes than this are not worth an encoding.
_SMALL = 512
#: Seconds that a cache may use a response before it asks again.
_AGE = 300


class PiecewiseResponse(Response):
    """Response sent in pieces; ``seconds``: that a client may take for one."""

    def __init__(
        self, body: bytes | memoryview, status: int, headers: Mapping[str, str], media_type: str, seconds: float
    ) -> None:
        self._pieces, self._seconds = memoryview(body), seconds
        super().__init__(None, status, dict(headers), media_type)
        self.headers["content-length"] = str(len(self._pieces))

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Send the response; TimeoutError if the client does not accept it."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        pieces = self._pieces if scope["method"] != "HEAD" else memoryview(b"")
        for start in range(0, max(1, len(pieces)), _PIECE):
            body = bytes(pieces[start : start + _PIECE])
            message = {"type": "http.response.body", "body": body, "more_body": start + _PIECE < len(pieces)}
            async with asyncio.timeout(self._seconds):  # without a task for each piece
                await send(message)
                await asyncio.sleep(0)  # the end of the connection is noticed before the next piece


def error_response(status: int, error: str, headers: Mapping[str, str] | None = None, **facts: Any) -> JSONResponse:
    """Return an error as JSON."""
    return JSONResponse({"error": error, **facts}, status, headers={"Cache-Control": "no-store", **(headers or {})})


def headers_of(tag: str) -> dict[str, str]:
    """Return the headers that every response for some content has."""
    return {
        "ETag": tag,
        "Accept-Ranges": "bytes",
        "Cache-Control": f"public, max-age={_AGE}",
        "Vary": "Accept-Encoding",
        "X-Content-Type-Options": "nosniff",
    }


def not_modified(request: Request, tag: str) -> Response | None:
    """Return status 304 if the client has the content, else None."""
    header = request.headers.get("if-none-match")
    # The tags of encoded forms name the encoding.
    if any(matches(header, one) for one in (tag, *(_encoded_tag(tag, e) for e in ENCODINGS))):
        return Response(None, 304, headers_of(tag))
    return None


def requested_range(request: Request, tag: str, size: int) -> range | None:
    """Return the bytes that a request asks for, None for all; ValueError."""
    header = request.headers.get("range")
    expected = request.headers.get("if-range")
    return None if header is None or (expected is not None and expected != tag) else byte_range(header, size)


def bad_range(size: int) -> JSONResponse:
    """Return status 416."""
    return error_response(416, f"the range is not within {size} bytes", {"Content-Range": f"bytes */{size}"})


def content_response(
    request: Request, content: bytes | memoryview, tag: str, media_type: str, encodable: bool, seconds: float
) -> Response:
    """Return the response for some content; run it in a thread to encode."""
    headers = headers_of(tag)
    try:
        part = requested_range(request, tag, len(content))
    except ValueError:
        return bad_range(len(content))
    if part is not None:
        headers["Content-Range"] = f"bytes {part.start}-{part.stop - 1}/{len(content)}"
        return PiecewiseResponse(memoryview(content)[part.start : part.stop], 206, headers, media_type, seconds)
    encoding = chosen_encoding(request.headers.get("accept-encoding")) if encodable and len(content) >= _SMALL else None
    if encoding is not None:
        content = _encode(content, encoding)
        headers |= {"Content-Encoding": encoding, "ETag": _encoded_tag(tag, encoding)}
    return PiecewiseResponse(content, 200, headers, media_type, seconds)


def is_encodable(request: Request) -> bool:
    """Return whether chunks should be encoded for a client.

    On the same machine, encoding takes longer than sending: there only clients that name a single encoding get it. Requests
    that a proxy passes on come from elsewhere.
    """
    host = request.client.host if request.client else ""
    is_local = host in ("127.0.0.1", "::1") and "x-forwarded-for" not in request.headers
    return not is_local or len(accepted_encodings(request.headers.get("accept-encoding"))) == 1


def _encoded_tag(tag: str, encoding: str) -> str:
    return f'{tag[:-1]}-{encoding}"'


def _encode(content: bytes | memoryview, encoding: str) -> bytes:
    if encoding == "zstd":
        from numcodecs.zstd import Zstd

        return bytes(Zstd(1).encode(np.frombuffer(content, np.uint8)))
    import deflate

    return bytes(deflate.gzip_compress(content, 1))
