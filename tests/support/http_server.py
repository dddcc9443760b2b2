"""An aggregation served on 127.0.0.1 in a thread, and plain requests to it."""

import http.client
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import uvicorn


@dataclass(frozen=True)
class Answer:
    """Response to a request."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def request(port: int, path: str, method: str = "GET", **headers: str) -> Answer:
    """Return the response to a request; underscores of header names are dashes."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.putrequest(method, path, skip_host=False, skip_accept_encoding=True)
        for name, value in headers.items():
            connection.putheader(name.replace("_", "-"), value)
        connection.endheaders()
        response = connection.getresponse()
        return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
    finally:
        connection.close()


@contextmanager
def serving(application: Any, **options: Any) -> Iterator[int]:
    """Serve an application within a block; yield the port. ``options``: of uvicorn."""
    options = {"port": 0, "log_config": None, "access_log": False, "timeout_graceful_shutdown": 5, **options}
    server = uvicorn.Server(uvicorn.Config(application, **options))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        end = time.monotonic() + 60
        while not server.started:
            assert thread.is_alive() and time.monotonic() < end, "the server did not start"
            time.sleep(0.01)
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(60)
