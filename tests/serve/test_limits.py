"""Limits of the server: order of waiting reads, slow clients, restarts."""

import asyncio
import logging
import socket
import time
from typing import Any

import pytest

from tests.support.paths import ROOT

pytest.importorskip("starlette", reason="no starlette")
pytest.importorskip("uvicorn", reason="no uvicorn")

import aggarray.serve
from aggarray.serve import responses, server
from aggarray.serve.reads import ByteBudget
from tests.support.http_server import request, serving

pytestmark = pytest.mark.quick

ARCHIVE = ROOT / "sample_data" / "archive"


async def _turns(count: int = 10) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_tasks_hold_bytes_in_order() -> None:
    """Small requests do not pass a large one that waits: it would wait as long as they come."""

    async def run() -> list[str]:
        budget, order = ByteBudget(10), list[str]()

        async def use(name: str, nbytes: int) -> None:
            async with budget.hold(nbytes):
                order.append(name)
                assert budget.held <= 10 or nbytes > 10
                await _turns()

        await asyncio.gather(use("a", 6), use("large", 99), use("b", 4), use("c", 4))
        assert (budget.held, budget.waiting) == (0, 0)
        return order

    assert asyncio.run(run()) == ["a", "large", "b", "c"]


def test_cancelled_tasks_hold_no_bytes() -> None:
    """Tasks cancelled while they wait, when they are admitted, or within the block leave the budget to others."""

    async def run() -> None:
        budget = ByteBudget(10)

        async def use(turns: int) -> None:
            async with budget.hold(10):
                await _turns(turns)

        first, waits, admitted, last = (asyncio.create_task(use(n)) for n in (1000, 1, 1, 1))
        await _turns()
        assert (budget.held, budget.waiting) == (10, 3)
        waits.cancel()
        await _turns()
        assert budget.waiting == 2
        first.cancel()
        await asyncio.sleep(0)  # the first has given its bytes to the third, which has not run yet
        assert budget.held == 10 and budget.waiting == 1
        admitted.cancel()
        await asyncio.wait_for(last, 5)
        assert (budget.held, budget.waiting) == (0, 0)

    asyncio.run(run())


def test_other_tasks_run_between_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of a connection is noticed before the next piece is written."""
    monkeypatch.setattr(responses, "_PIECE", 10)

    async def run() -> list[str]:
        events = list[str]()

        async def send(message: Any) -> None:
            events.append(message["type"])
            asyncio.get_running_loop().call_soon(events.append, "noticed")

        await responses.PiecewiseResponse(bytes(30), 200, {}, "text/plain", 5)({"method": "GET"}, None, send)
        return events

    assert asyncio.run(run())[2:] == ["noticed", "noticed", "http.response.body", "noticed", "http.response.body", "noticed"]


def test_an_application_starts_again() -> None:
    application = aggarray.serve.app(ARCHIVE)
    for _ in range(2):
        with serving(application) as port:
            assert request(port, "/archive/tas/c/0/0/0").status == 200


@pytest.mark.parametrize("sent", [b"", b"GET /health HTTP/1.1\r\nX-Slow: ", b"GET /health HTTP/1.1\r\nHost: a\r\n\r\nGET /hea"])
def test_clients_that_send_slowly_are_closed(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_HEADERS", 0.5)
    with (
        serving(aggarray.serve.app(ARCHIVE), http=server._Connection) as port,
        socket.create_connection(("127.0.0.1", port), timeout=60) as client,
    ):
        began = time.monotonic()
        client.sendall(sent)
        with pytest.raises(OSError):
            while time.monotonic() - began < 30:
                time.sleep(0.1)
                client.sendall(b"a" if sent else b"")
                client.settimeout(0.01)
                try:
                    if not client.recv(1 << 16):
                        raise ConnectionError
                except TimeoutError:
                    pass
        assert time.monotonic() - began < 30
        assert request(port, "/archive/tas/c/0/0/0").status == 200


def test_lines_of_the_log_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "aggarray.serve"), serving(aggarray.serve.app(ARCHIVE)) as port:
        assert request(port, "/archive/" + "a" * 20_000).status == 404
    (line,) = [record.getMessage() for record in caplog.records if record.name == "aggarray.serve"]
    assert len(line) < 1100 and '" 404 ' in line


def test_one_connection_has_several_requests() -> None:
    """Requests sent at once, of HTTP/1.1 and 1.0, are answered in order."""
    with (
        serving(aggarray.serve.app(ARCHIVE), http=server._Connection) as port,
        socket.create_connection(("127.0.0.1", port), timeout=60) as client,
    ):
        head, chunk = b" HTTP/1.1\r\nHost: a\r\n\r\n", b"/archive/tas/c/0/0/0"
        client.sendall(b"GET /health" + head + b"HEAD " + chunk + head + b"GET " + chunk + b" HTTP/1.0\r\n\r\n")
        received: Any = b"".join(iter(lambda: client.recv(1 << 16), b""))
    assert received.count(b"HTTP/1.1 200 OK") == 3 and len(received.rpartition(b"\r\n\r\n")[2]) <= 365 * 18 * 36 * 8
    assert len(received) > 365 * 18 * 36 * 8
