"""ASGI application that serves aggregations as Zarr stores, read-only."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from aggarray.serve.access_log import AccessLog
from aggarray.serve.archives import Archive, entity_tag, open_archives
from aggarray.serve.chunk_response import ChunkReader, ChunkResponse
from aggarray.serve.limits import Limits
from aggarray.serve.pages import list_page
from aggarray.serve.reads import ByteBudget, ChunkReads
from aggarray.serve.responses import content_response, error_response, not_modified

_METHODS = ["GET", "HEAD"]
_EXPOSED = ["Accept-Ranges", "Content-Encoding", "Content-Length", "Content-Range", "ETag", "Retry-After"]


def app(
    *indexes: Any,
    chunks: Mapping[str, int] | None = None,
    compressor: str | None = None,
    limits: Limits | None = None,
    **options: Any,
) -> Starlette:
    """Return an ASGI application that serves indexes as Zarr stores.

    ``indexes``: paths as `aggarray.open` takes them, aggregations, or pairs of a name and an aggregation. Each is served below
    ``/STEM/``, the stem of its file name or the given name: there lie the keys of `Aggregation.to_zarr_store`, and its HTML
    page. ``/`` is the page of a single index, or a list of several; ``/arrays`` lists the arrays as JSON; ``/health`` answers
    while the process serves. ``chunks``, ``compressor``: as in `Aggregation.to_zarr_store`; ``limits``: None = the defaults of
    `Limits`; ``options``: of `aggarray.open`.

    Requests read only what the indexes refer to. Raises AggregationError if no index is given, or two have the same stem.

    >>> import aggarray.serve
    >>> aggarray.serve.app("sample_data/archive").routes[-1].path
    '/{stem}/{key:path}'
    """
    return Server(open_archives(indexes, chunks, compressor, options), limits or Limits()).application()


class Server:
    """Requests to archives, within limits."""

    def __init__(self, archives: Mapping[str, Archive], limits: Limits) -> None:
        self._archives, self._limits = archives, limits
        self._reader = self._new_reader()

    def _new_reader(self) -> ChunkReader:
        return ChunkReader(ChunkReads(self._limits), ByteBudget(self._limits.memory), self._limits)

    def application(self) -> Starlette:
        """Return the ASGI application."""
        routes = [
            Route("/", self.front, methods=_METHODS),
            Route("/health", self.health, methods=_METHODS),
            Route("/arrays", self.arrays, methods=_METHODS),
            Route("/{stem}", self.redirect, methods=_METHODS),
            Route("/{stem}/{key:path}", self.content, methods=_METHODS),
        ]
        cors = Middleware(
            CORSMiddleware, allow_origins=["*"], allow_methods=_METHODS, allow_headers=["*"], expose_headers=_EXPOSED
        )
        handlers: Any = {404: _not_found, 405: _not_allowed}
        application = Starlette(False, routes, [Middleware(AccessLog), cors], handlers, lifespan=self._lifespan)
        application.router.redirect_slashes = False
        return application

    @asynccontextmanager
    async def _lifespan(self, _application: Starlette) -> AsyncIterator[None]:
        try:
            yield
        finally:
            self._reader.reads.close()
            self._reader = self._new_reader()  # the application may be started again, in another event loop

    async def front(self, request: Request) -> Response:
        """Return the page of the only archive, or a list of several."""
        if len(self._archives) == 1:
            return await self._page(request, next(iter(self._archives.values())))
        return HTMLResponse(list_page(self._archives))

    async def health(self, _request: Request) -> Response:
        """Return how busy the process is."""
        reader = self._reader
        facts = {"status": "ok", "reading": reader.reads.reading, "waiting": reader.waiting, "bytes": reader.budget.held}
        return JSONResponse(facts, headers={"Cache-Control": "no-store"})

    async def arrays(self, request: Request) -> Response:
        """Return the arrays of all archives as JSON."""
        return await asyncio.to_thread(self._listing, request)

    def _listing(self, request: Request) -> Response:
        listing = [{"index": a.name, **facts} for a in self._archives.values() for facts in a.listing(_address(request))]
        return self._bytes(request, json.dumps(listing, indent=1).encode(), "application/json")

    async def redirect(self, request: Request) -> Response:
        """Redirect to the page of an archive."""
        stem = request.path_params["stem"]
        return RedirectResponse(f"{_address(request)}{quote(stem)}/") if stem in self._archives else self._no_archive(stem)

    def _no_archive(self, stem: str) -> Response:
        return error_response(404, f"no index {stem!r}", indexes=list(self._archives))

    async def content(self, request: Request) -> Any:
        """Return the content of a key of a store, or the page of an archive."""
        archive, key = self._archives.get(request.path_params["stem"]), request.path_params["key"]
        if archive is None:
            return self._no_archive(request.path_params["stem"])
        if not key:
            return await self._page(request, archive)
        if key in archive.contents.documents:
            return await asyncio.to_thread(self._document, request, archive, key)
        located = archive.contents.chunk(key)
        if located is None:
            return error_response(404, f"no key {key!r} in {archive.name}")
        return ChunkResponse(self._reader, request, archive, *located)

    def _document(self, request: Request, archive: Archive, key: str) -> Response:
        return self._bytes(request, archive.contents.document(key) or b"", "application/json")

    async def _page(self, request: Request, archive: Archive) -> Response:
        return await asyncio.to_thread(
            lambda: self._bytes(request, archive.page(_address(request)), "text/html; charset=utf-8")
        )

    def _bytes(self, request: Request, content: bytes, media_type: str) -> Response:
        tag = entity_tag(content)
        return not_modified(request, tag) or content_response(request, content, tag, media_type, True, self._limits.seconds)


def _address(request: Request) -> str:
    """Return the URL of the application, which may be mounted in another."""
    return f"{request.url.scheme}://{request.url.netloc}{request.scope.get('root_path', '')}/"


async def _not_found(request: Request, _error: Exception) -> Response:
    return error_response(404, f"nothing at {request.url.path!r}")


async def _not_allowed(request: Request, _error: Exception) -> Response:
    return error_response(405, f"{request.method} is not allowed: the server is read-only", {"Allow": ", ".join(_METHODS)})
