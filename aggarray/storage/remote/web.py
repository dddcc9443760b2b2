"""How does a web server answer: how large is a file, and what are some of its bytes?

Requests are made here, not by fsspec: an answer may be the whole file though a range was asked for, come from a file that has
changed, or break off. What may pass is tried again.
"""

import re
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urljoin

from aggarray.errors import FormatError
from aggarray.storage.remote.conditional import ANY, ExpectedVersion, changed, if_match, version_of

_T = TypeVar("_T")

#: A request that fails for a reason that may pass is made so many times, so many seconds apart at first.
_TRIES, _PAUSE = 3, 0.25
_PASSING = (429, 500, 502, 503, 504)
#: Of a server that ignores ranges, files of more bytes are refused.
MOST_WHOLE = 1 << 26
#: No object that is read at once (a chunk, metadata) has more bytes.
MOST_OBJECT = 1 << 31
#: Nor a page that is searched for links.
MOST_PAGE = 1 << 26
_PART = 1 << 20
_PLAIN = {"Accept-Encoding": "identity"}


class WebState(NamedTuple):
    """What a server says of a file: bytes, None where it does not say; time in ns; version; whether it is a page."""

    size: int | None
    time: int
    tag: str
    page: bool


async def head(fs: Any, url: str) -> WebState:
    """Ask what a file is like, by a request for its first byte where the server does not like to be asked."""
    return await _with_timeout(lambda: _asked(fs, url))


async def _asked(fs: Any, url: str) -> WebState:
    session = await fs.set_session()
    where, options = fs.encode_url(url), _options(fs)
    async with session.head(where, allow_redirects=True, **options) as response:
        found = _answer(response.headers)
        if response.status < 400 and (found.page or found.size is not None):
            return found
        if response.status in (404, 410):
            response.raise_for_status()
    options["headers"] = {**options["headers"], "Range": "bytes=0-0"}
    async with session.get(where, allow_redirects=True, **options) as response:
        if response.status != 416:
            response.raise_for_status()
        found, total = _answer(response.headers), _total(response.headers)
        if response.status in (206, 416) and total is not None:
            return found._replace(size=total)
        return found if response.status == 200 else found._replace(size=None)


async def get(fs: Any, url: str, offset: int = 0, size: int | None = None, expected: ExpectedVersion = ANY) -> bytes:
    """Return a range of a file, or all of it. ChangedFileError where the file is not of the version ``expected``."""
    return await _with_timeout(lambda: _got(fs, url, offset, size, expected))


async def _page(fs: Any, url: str) -> bytes:
    async with (await fs.set_session()).get(fs.encode_url(url), allow_redirects=True, **_options(fs)) as response:
        response.raise_for_status()
        # promise: web-page-bound
        return await _body(response, url, 0, None, MOST_PAGE)


async def _with_timeout(make: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
    """Do something, again where it failed for a reason that may pass."""
    import asyncio

    pause = _PAUSE
    for _ in range(_TRIES - 1):
        try:
            return await make()
        except _passing_errors() as error:
            status = getattr(error, "status", None)
            if _lasting(error) or not (status is None or status in _PASSING):
                raise
        await asyncio.sleep(pause)
        pause *= 2
    return await make()


def _passing_errors() -> tuple[type[BaseException], ...]:
    import aiohttp

    return (aiohttp.ClientError,)


def _lasting(error: BaseException) -> bool:
    """Tell whether nobody is there, or answers: waiting once is enough."""
    import aiohttp

    return isinstance(error, aiohttp.ClientConnectorError | TimeoutError)


async def _got(fs: Any, url: str, offset: int, size: int | None, expected: ExpectedVersion) -> bytes:
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
                raise FormatError(f"{url}: the server answers with other bytes than those asked for; fetch the file")
            return await _body(response, url, 0, size)
        if offset + size > MOST_WHOLE and (found.size is None or found.size > MOST_WHOLE):
            raise FormatError(f"{url}: its server gives no part of a file, only all of it; fetch the file and open that")
        return await _body(response, url, offset, size)


async def _body(response: Any, url: str, skip: int, size: int | None, most: int = MOST_OBJECT) -> bytes:
    """Return bytes of what a server sends, no more than are wanted; FormatError for a whole object of ``most`` or more."""
    end = most if size is None else skip + size
    parts, there = [], 0
    async for part in response.content.iter_chunked(_PART):
        parts.append(part)
        there += len(part)
        if there >= end:
            break
    if size is None and there >= most:
        raise FormatError(f"{url}: more than {most} bytes in one object; fetch it and open that")
    return b"".join(parts)[skip:end]


async def links(fs: Any, url: str) -> list[str]:
    """Return the addresses that a page links to."""
    from html import unescape

    page = (await _with_timeout(lambda: _page(fs, url))).decode("utf-8", "replace")
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


def _total(headers: Any) -> int | None:
    found = re.fullmatch(r"bytes [^/]*/(\d+)", headers.get("Content-Range", ""))
    return int(found[1]) if found else None
