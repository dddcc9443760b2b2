"""A real browser for tests: Chromium, driven by its DevTools protocol; skips where it is not installed."""

import asyncio
import base64
import json
import os
import re
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

#: How Chromium is called, on one system or another.
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
#: Seconds to wait for a browser, at most.
_PATIENCE = 60
#: The error of an evaluation whose page was navigated away from.
_REPLACED = -32000


class Browser:
    """A page of a browser: ``call`` a method of the protocol, or ``run`` a script; ``events`` keeps what it tells of itself."""

    def __init__(self, address: str) -> None:
        self.events: list[dict[str, Any]] = []
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._number = 0
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._talk(address),), daemon=True)
        self._thread.start()
        assert self._ready.wait(_PATIENCE)
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    async def _talk(self, address: str) -> None:
        import aiohttp

        async with aiohttp.ClientSession() as session, session.ws_connect(address, max_msg_size=0) as self._socket:
            self._ready.set()
            async for message in self._socket:
                result = json.loads(message.data)
                if "id" in result:
                    self._answers.pop(result["id"]).set_result(result)
                else:
                    self.events.append(result)

    def close(self) -> None:
        """Take leave of the page."""
        asyncio.run_coroutine_threadsafe(self._socket.close(), self._loop).result(_PATIENCE)
        self._thread.join(_PATIENCE)
        self._loop.close()

    async def _ask(self, method: str, parameters: dict[str, Any]) -> Any:
        self._number += 1
        answer = self._answers[self._number] = self._loop.create_future()
        await self._socket.send_str(json.dumps({"id": self._number, "method": method, "params": parameters}))
        return await asyncio.wait_for(answer, _PATIENCE)

    def _answer(self, method: str, parameters: dict[str, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(self._ask(method, parameters), self._loop).result(_PATIENCE)

    def call(self, method: str, **parameters: Any) -> Any:
        """Call a method of the protocol; return its result."""
        found = self._answer(method, parameters)
        assert "error" not in found, found
        return found["result"]

    def run(self, script: str) -> Any:
        """Evaluate an expression in the page; promises are waited for."""
        return self._value({"result": self.call("Runtime.evaluate", **_expression(script))})

    def until(self, script: str) -> None:
        """Wait until an expression is true; the page may be replaced by another one meanwhile."""
        end = time.monotonic() + _PATIENCE
        while True:
            answer = self._answer("Runtime.evaluate", _expression(script))
            # The answer of a page that another one replaces is an error: the next one answers for itself.
            if answer.get("error", {}).get("code") != _REPLACED and self._value(answer):
                return
            assert time.monotonic() < end, f"{script} never came true"
            time.sleep(0.02)

    @staticmethod
    def _value(answer: Any) -> Any:
        assert "error" not in answer and "exceptionDetails" not in answer["result"], answer
        return answer["result"]["result"].get("value")

    def show(self, path: Path, width: int = 1000, height: int = 900, dark: bool = False) -> None:
        """Open a page and wait until its script has drawn."""
        self.call("Page.navigate", url="about:blank")
        self.until("location.href === 'about:blank'")
        self.events.clear()
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url=path.as_uri())
        self.until(f"location.href === {path.as_uri()!r} && document.documentElement?.dataset.ready === 'yes'")
        self.run("new Promise((done) => requestAnimationFrame(() => setTimeout(done, 50)))")

    def picture(self, path: Path) -> None:
        """Keep what is seen as a PNG."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))

    def complaints(self) -> list[str]:
        """Return errors and warnings that the page gave rise to."""
        kinds = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
        return [json.dumps(e["params"]) for e in self.events if e["method"] in kinds]

    def requests(self) -> list[str]:
        """Return the addresses that were asked for."""
        return [e["params"]["request"]["url"] for e in self.events if e["method"] == "Network.requestWillBeSent"]


def _expression(script: str) -> dict[str, Any]:
    return {"expression": script, "returnByValue": True, "awaitPromise": True}


@contextmanager
def browser() -> Iterator[Browser]:
    """Start Chromium without a window; skips the test where there is none."""
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        pytest.skip("no Chromium (apt-get install --no-install-recommends chromium)")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = ["--headless", "--disable-gpu", "--no-first-run", "--disable-extensions", "--disable-dev-shm-usage"]
        options += [
            "--remote-debugging-port=0",
            f"--user-data-dir={profile}",
            "--hide-scrollbars",
            "--disable-background-networking",
        ]
        # As root, as in containers, its sandbox does not work.
        options += ["--no-sandbox"] * (os.geteuid() == 0)
        command = [program, *options, "about:blank"]
        with subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process:
            try:
                result = Browser(_address(Path(profile, "DevToolsActivePort"), process))
                try:
                    yield result
                finally:
                    result.close()
            finally:
                process.terminate()


def _address(told: Path, process: "subprocess.Popen[bytes]") -> str:
    """Return the address of the page that a browser shows: it writes its port into a file."""
    import urllib.request

    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end:
        if process.poll() is not None:
            pytest.skip(f"Chromium does not start (status {process.returncode})")
        text = told.read_text() if told.exists() else ""
        if re.match(r"\d+\n", text):
            with urllib.request.urlopen(f"http://127.0.0.1:{text.split()[0]}/json/list") as answer:
                pages = [one for one in json.load(answer) if one["type"] == "page"]
            if pages:
                return str(pages[0]["webSocketDebuggerUrl"])
        time.sleep(0.05)
    pytest.skip(f"Chromium was not ready within {_PATIENCE} s")
