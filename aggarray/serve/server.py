"""Server processes of the command ``aggarray serve``, by uvicorn."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any

from aggarray.dataclass import dataclass
from aggarray.errors import AggregationError, install_command
from aggarray.opening.aggregation import Aggregation
from aggarray.serve.limits import Limits

try:
    import uvicorn
    from uvicorn.protocols.http.auto import AutoHTTPProtocol
    from uvicorn.supervisors.multiprocess import Multiprocess
except ImportError as error:
    raise AggregationError(f"aggarray serve needs uvicorn: {error}", hint=install_command("serve")) from error

#: Connections of a process that are open at once; others get status 503.
_CONNECTIONS = 4000
#: Seconds that requests in progress have to end after SIGTERM.
_GRACE = 60
#: Seconds that a client has to send the headers of a request.
_HEADERS = 20


@dataclass(frozen=True, slots=True, eq=False)
class ServerSettings:
    """What each process serves; ``archives``: pairs (name, aggregation)."""

    archives: tuple[tuple[str, Aggregation], ...]
    chunks: Mapping[str, int] | None
    compressor: str | None
    limits: Limits
    quiet: bool

    def __call__(self) -> Any:
        """Return the application, and direct its log to standard error."""
        from aggarray.serve.application import app

        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
        for name, level in (
            ("aggarray.serve", logging.WARNING if self.quiet else logging.INFO),
            ("uvicorn.error", logging.ERROR),
        ):
            logger = logging.getLogger(name)
            logger.handlers, logger.propagate = [handler], False
            logger.setLevel(level)
        threading.Thread(target=_end_with_parent, daemon=True).start()
        return app(*self.archives, chunks=self.chunks, compressor=self.compressor, limits=self.limits)


def serve(settings: ServerSettings, host: str, port: int, workers: int, announce: Callable[[int], None]) -> None:
    """Serve until SIGTERM or Ctrl-C.

    ``announce`` gets the port once the socket listens.

    Raises AggregationError if the address cannot be used.
    """
    application = settings()  # its errors come before the address is announced
    with closing(_listen(host, port)) as listener:
        options: dict[str, Any] = {"log_config": None, "access_log": False, "server_header": False, "ws": "none"}
        options |= {"limit_concurrency": _CONNECTIONS, "timeout_graceful_shutdown": _GRACE, "http": _Connection}
        if workers == 1:
            server = uvicorn.Server(uvicorn.Config(application, **options))
            # A SIGTERM before the server runs ends it too. uvicorn raises the signal again after the last request.
            signal.signal(signal.SIGTERM, server.handle_exit)
            announce(listener.getsockname()[1])
            server.run(sockets=[listener])
            _exit_if_reading()
        else:
            config = uvicorn.Config(settings, factory=True, workers=workers, **options)
            processes = Multiprocess(config, sockets=[listener])  # it handles signals from here on
            announce(listener.getsockname()[1])
            processes.run()


def _exit_if_reading() -> None:
    """Exit at once if a read does not end: Python would wait for its thread."""
    end = time.monotonic() + 1
    for thread in threading.enumerate():
        if thread.name.startswith("aggarray-serve"):
            thread.join(max(0, end - time.monotonic()))
            if thread.is_alive():
                os._exit(0)


class _Connection(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
    """Connection that ends if a request is not complete in time.

    Otherwise clients that send headers slowly, or none, would use all connections.
    """

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._deadline = self.loop.call_later(_HEADERS, self._end_if_waiting)

    def on_response_complete(self) -> None:
        self._deadline.cancel()
        self._deadline = self.loop.call_later(_HEADERS, self._end_if_waiting)
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._deadline.cancel()
        super().connection_lost(exc)

    def _end_if_waiting(self) -> None:
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()


def _end_with_parent() -> None:
    """End a worker whose parent was killed: it would keep the port."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.create_server((host, port), family=family, backlog=1024)
    except OSError as error:
        reason = f"cannot listen at {host}:{port}: {error.strerror or error}"
        raise AggregationError(reason, hint="give another port or host; port 0 is any free one") from error
    # Connections inherit it; asyncio sets it only for sockets that name their protocol. Without it, bodies wait until clients
    # acknowledge the head, for 40 ms.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener
