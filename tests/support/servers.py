"""Local servers for tests: a web server of a folder that counts requests and simulates faults, and moto's S3 server."""

import logging
import os
import re
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit


@dataclass
class Web:
    """A web server of a folder.

    ``requests``: (method, path, range) of all; ``sent``: bytes. Behaviour: ``ranges``: supports ranges; ``listing``: lists
    folders; ``heads``: answers HEAD; ``status``: {path: status to return instead}; ``fail``: number of requests that fail
    before one is answered; ``delay``: seconds before each answer; ``cut``: bytes missing from each body; ``moved``: {path:
    redirect address}; ``tags``: sends entity tags, ``weak`` or strong ones; ``conditions``: supports ``If-Match``; ``secret``:
    required authorization; ``signature``: required parameter ``sig`` of the query; ``tells``: sends ``Content-Range``.
    """

    root: Path
    ranges: bool = True
    listing: bool = True
    heads: bool = True
    tags: bool = True
    weak: bool = False
    conditions: bool = True
    tells: bool = True
    fail: int = 0
    delay: float = 0.0
    cut: int = 0
    secret: str = ""
    signature: str = ""
    status: dict[str, int] = field(default_factory=dict)
    moved: dict[str, str] = field(default_factory=dict)
    requests: list[tuple[str, str, str]] = field(default_factory=list)
    sent: int = 0
    url: str = ""

    def forget(self) -> None:
        """Reset the counts."""
        self.requests.clear()
        self.sent = 0

    def asked(self, suffix: str = "", method: str = "") -> int:
        """Return the number of requests for paths with a suffix."""
        return sum(path.endswith(suffix) and method in ("", m) for m, path, _ in self.requests)


def _handler(web: Web) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: Any) -> None:
            """Suppress log messages."""

        def do_HEAD(self) -> None:
            self._answer(body=False)

        def do_GET(self) -> None:
            self._answer(body=True)

        def _answer(self, body: bool) -> None:
            path = unquote(self.path.partition("?")[0])
            web.requests.append((self.command, path, self.headers.get("Range", "")))
            time.sleep(web.delay)
            if web.secret and self.headers.get("Authorization") != web.secret:
                return self._refuse(401)
            if web.signature and web.signature not in parse_qs(urlsplit(self.path).query).get("sig", ()):
                return self._refuse(403)
            if web.fail:
                web.fail -= 1
                return self._refuse(503)
            if path in web.moved:
                return self._refuse(302, {"Location": web.moved[path]})
            if path in web.status:
                return self._refuse(web.status[path])
            if not body and not web.heads:
                return self._refuse(405)
            where = web.root / path.strip("/")
            if where.is_dir():
                return self._list(where, path, body)
            if not where.is_file():
                return self._refuse(404)
            return self._send(where, body)

        def _refuse(self, status: int, headers: dict[str, str] | None = None) -> None:
            self.send_response(status)
            for name, value in {"Content-Length": "0", **(headers or {})}.items():
                self.send_header(name, value)
            self.end_headers()

        def _list(self, where: Path, path: str, body: bool) -> None:
            if not web.listing:
                return self._refuse(404)
            if not path.endswith("/"):
                return self._refuse(301, {"Location": f"{path}/"})
            names = [f"{entry.name}/" if entry.is_dir() else entry.name for entry in sorted(where.iterdir())]
            page = "".join(f'<a href="{name}">{name}</a>\n' for name in ["../", *names]).encode()
            return self._give(200, {"Content-Type": "text/html; charset=utf-8"}, page if body else b"", len(page))

        def _send(self, where: Path, body: bool) -> None:
            data, stat = where.read_bytes(), where.stat()
            headers = {"Content-Type": "application/octet-stream", "Last-Modified": formatdate(stat.st_mtime, usegmt=True)}
            tag = f'{"W/" if web.weak else ""}"{stat.st_mtime_ns}-{stat.st_size}"'
            headers |= {"ETag": tag} if web.tags else {}
            expected = self.headers.get("If-Match")
            if web.conditions and expected is not None and (expected != tag or web.weak or not web.tags):
                return self._refuse(412)
            result = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
            if result is None or not web.ranges:
                return self._give(200, headers, data if body else b"", len(data))
            first, last = int(result[1]), min(int(result[2]), len(data) - 1)
            if first >= len(data):
                return self._refuse(416, {"Content-Range": f"bytes */{len(data)}"})
            part = data[first : last + 1]
            headers |= {"Content-Range": f"bytes {first}-{last}/{len(data)}"} if web.tells else {}
            return self._give(206, headers, part if body else b"", len(part))

        def _give(self, status: int, headers: dict[str, str], body: bytes, length: int) -> None:
            body = body[: max(0, len(body) - web.cut)]
            web.sent += len(body)
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(length)}.items():
                self.send_header(name, value)
            self.end_headers()
            try:
                self.wfile.write(body)
            except ConnectionError:
                self.close_connection = True
            if web.cut:
                self.close_connection = True

    return Handler


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # Further connections would wait for a second or longer.
    request_queue_size = 256


@contextmanager
def web_server(root: Path) -> Iterator[Web]:
    """Serve a folder on this machine inside the context."""
    web = Web(root)
    server = _Server(("127.0.0.1", 0), _handler(web))
    web.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield web
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def s3_server() -> Iterator[dict[str, Any]]:
    """Run moto's S3 server on this machine; give the options of fsspec for it.

    A condition is checked and the object written under a lock, as by S3 itself.
    """
    import pytest
    from moto.s3.responses import S3Response
    from moto.server import ThreadedMotoServer

    server, lock, put = ThreadedMotoServer("127.0.0.1", 0, verbose=False), threading.Lock(), S3Response.put_object

    def put_atomically(self: Any) -> Any:
        with lock:
            return put(self)

    names = {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "AWS_DEFAULT_REGION": "us-east-1", **free_of_proxies()}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in names.items():
            patch.setenv(name, value)
        patch.setattr(S3Response, "put_object", put_atomically)
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        server.start()
        host, port = server.get_host_and_port()
        try:
            # The buckets of earlier servers of this process stay.
            urllib.request.urlopen(f"http://{host}:{port}/moto-api/reset", data=b"", timeout=60).close()
            yield {"key": "me", "secret": "hidden", "client_kwargs": {"endpoint_url": f"http://{host}:{port}"}}
        finally:
            server.stop()


def upload(fs: Any, folder: Path, to: str) -> None:
    """Copy all files of a folder to a folder of an fsspec file system."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            fs.pipe_file(f"{to}/{path.relative_to(folder).as_posix()}", path.read_bytes())


def free_of_proxies() -> dict[str, str]:
    """Return environment variables that exempt this machine from proxies."""
    return {**{name: "" for name in os.environ if name.lower().endswith("_proxy")}, "NO_PROXY": "127.0.0.1,localhost"}
