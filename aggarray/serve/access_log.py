"""Log of requests."""

from __future__ import annotations

import logging
import time
from typing import Any

from aggarray.errors import printable

#: Receives a line for each request.
LOGGER = logging.getLogger("aggarray.serve")
#: Most characters of a request that a line has.
_LONGEST = 1000


class AccessLog:
    """ASGI middleware that logs responses.

    A line has client, request, status, bytes and milliseconds. Status 499: the client closed the connection before the response
    was complete.
    """

    def __init__(self, application: Any) -> None:
        self._application = application

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass a request on, and log its response."""
        if scope["type"] != "http" or not LOGGER.isEnabledFor(logging.INFO):
            await self._application(scope, receive, send)
            return
        began, status, sent, complete = time.perf_counter(), 499, 0, False

        async def counted(message: Any) -> None:
            nonlocal status, sent, complete
            await send(message)
            if message["type"] == "http.response.start":
                status = message["status"]
            else:
                sent += len(message.get("body", b""))
                complete = not message.get("more_body", False)

        try:
            await self._application(scope, receive, counted)
        finally:
            path = scope["path"] + ("?" + scope["query_string"].decode("latin-1") if scope["query_string"] else "")
            client = scope["client"][0] if scope.get("client") else "-"
            request = printable(f"{scope['method']} {path}"[:_LONGEST])
            milliseconds = (time.perf_counter() - began) * 1000
            LOGGER.info('%s "%s" %d %d %.1f', client, request, status if complete else 499, sent, milliseconds)
