"""Requests to web servers: sizes and byte ranges of files.

aggarray sends these requests itself, because an answer may be the whole file instead of a range, come from a changed file, or
be truncated. Temporary failures are retried.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec, TypeVar
from urllib.parse import urljoin

from aggarray.dataclass import NamedTuple
from aggarray.errors import FormatError
from aggarray.storage.remote.conditional import ANY, ExpectedVersion, if_match, version_of
from aggarray.storage.state import changed

_T = TypeVar("_T")
_Arguments = ParamSpec("_Arguments")

#: Attempts after temporary failures, and seconds between the first two.
_TRIES, _PAUSE = 3, 0.25
_PASSING = (429, 500, 502, 503, 504)
#: Largest file read from a server that ignores ranges, in bytes.
MOST_WHOLE = 1 << 26
#: Largest object read at once (a chunk, metadata), in bytes.
MOST_OBJECT = 1 << 31
#: Largest page searched for links, in bytes.
MOST_PAGE = 1 << 26
_PART = 1 << 20
_PLAIN = {"Accept-Encoding": "identity"}


class WebState(NamedTuple):
    """State of a file on a server: size (None: unknown), time in ns, version."""

    size: int | None
    time: int
    tag: str
    page: bool


def _retried(request: Callable[_Arguments, Coroutine[Any, Any, _T]]) -> Callable[_Arguments, Coroutine[Any, Any, _T]]:
    """Retry a request after temporary failures of a reachable server."""

    @wraps(request)
    async def attempt(*arguments: _Arguments.args, **named: _Arguments.kwargs) -> _T:
        import asyncio

        import aiohttp

        pause = _PAUSE
        for _ in range(_TRIES - 1):
            try:
                return await request(*arguments, **named)
            except aiohttp.ClientError as error:
                lasting = isinstance(error, aiohttp.ClientConnectorError | TimeoutError)
                if lasting or getattr(error, "status", None) not in (None, *_PASSING):
                    raise
            await asyncio.sleep(pause)
            pause *= 2
        return await request(*arguments, **named)

    return attempt


@_retried
async def head(fs: Any, url: str) -> WebState:
    """Request the state of a file, by its first byte if HEAD is rejected."""
    session = await fs.set_session()
    address, options = fs.encode_url(url), _options(fs)
    async with session.head(address, allow_redirects=True, **options) as response:
        answer = _answer(response.headers)
        if response.status < 400 and (answer.page or answer.size is not None):
            return answer
        if response.status in (404, 410):
            response.raise_for_status()
    options["headers"] = {**options["headers"], "Range": "bytes=0-0"}
    async with session.get(address, allow_redirects=True, **options) as response:
        if response.status != 416:
            response.raise_for_status()
        answer, total = _answer(response.headers), re.fullmatch(r"bytes [^/]*/(\d+)", response.headers.get("Content-Range", ""))
        if response.status in (206, 416) and total is not None:
            return answer._replace(size=int(total[1]))
        return answer if response.status == 200 else answer._replace(size=None)


@_retried
async def _page(fs: Any, url: str) -> bytes:
    async with (await fs.set_session()).get(fs.encode_url(url), allow_redirects=True, **_options(fs)) as response:
        response.raise_for_status()
        # promise: web-page-bound
        return await _body(response, url, 0, None, MOST_PAGE)


@_retried
async def get(fs: Any, url: str, offset: int = 0, size: int | None = None, expected: ExpectedVersion = ANY) -> bytes:
    """Return bytes of a file; raise ChangedFileError if not ``expected``."""
    session, options = await fs.set_session(), _options(fs)
    if size is not None:
        options["headers"] = {**options["headers"], "Range": f"bytes={offset}-{offset + size - 1}"}
    if tag := if_match(expected.of(url)):
        options["headers"] = {**options["headers"], "If-Match": tag}
    async with session.get(fs.encode_url(url), allow_redirects=True, **options) as response:
        if response.status == 412 and tag:
            raise changed(url)
        if response.status == 416:
            return b""
        response.raise_for_status()
        found = _answer(response.headers)
        expected.check(url, response.headers)
        if size is None:
            return await _body(response, url, 0, None)
        if response.status == 206:
            start = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
            if start is None or int(start[1]) != offset:
                raise FormatError("the server answers with other bytes than requested", path=url, hint="fetch the file")
            return await _body(response, url, 0, size)
        if offset + size > MOST_WHOLE and (found.size is None or found.size > MOST_WHOLE):
            raise FormatError("the server sends only whole files, not parts", path=url, hint="fetch the file and open that")
        return await _body(response, url, offset, size)


async def _body(response: Any, url: str, skip: int, size: int | None, most: int = MOST_OBJECT) -> bytes:
    """Return the requested bytes; raise FormatError at ``most`` bytes or more."""
    end = most if size is None else skip + size
    parts, there = [], 0
    async for part in response.content.iter_chunked(_PART):
        parts.append(part)
        there += len(part)
        if there >= end:
            break
    if size is None and there >= most:
        raise FormatError(f"more than {most} bytes in one object", path=url, hint="fetch it and open that")
    return b"".join(parts)[skip:end]


async def links(fs: Any, url: str) -> list[str]:
    """Return the addresses that a page links to."""
    from html import unescape

    page = (await _page(fs, url)).decode("utf-8", "replace")
    return [urljoin(url, unescape(found)) for found in _LINK.findall(page)]


# promise: web-links-linear
_LINK = re.compile(r"""<a\s(?:[^<>]*?\s)?href\s*=\s*["']([^"'#]+)""", re.IGNORECASE)


def _options(fs: Any) -> dict[str, Any]:
    options = dict(fs.kwargs)
    options["headers"] = {**options.get("headers", {}), **_PLAIN}
    return options


def _answer(headers: Any) -> WebState:
    from email.utils import parsedate_to_datetime

    length = headers.get("Content-Length", "")
    plain = headers.get("Content-Encoding", "identity") in ("", "identity")
    kind = headers.get("Content-Type", "").partition(";")[0]
    try:
        time = int(parsedate_to_datetime(headers["Last-Modified"]).timestamp()) * 10**9
    except (KeyError, ValueError, TypeError):
        time = 0
    size = int(length) if length.isdecimal() and plain else None
    return WebState(size, time, version_of(headers), kind in ("text/html", "application/xhtml+xml"))
