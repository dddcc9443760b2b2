"""The page of the how-to on web maps, in a real browser."""

import functools
import http.server
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import aggarray as aa
from tests.support.browser import browser
from tests.support.paths import ROOT

pytest.importorskip("starlette", reason="no starlette")
pytest.importorskip("uvicorn", reason="no uvicorn")

import aggarray.serve
from tests.support.http_server import serving

MODULES = ROOT / "build" / "npm" / "node_modules"
#: Modules of zarrita and of its dependencies, which a CDN joins.
IMPORTS = {
    "zarrita": "zarrita/dist/src/index.js",
    "@zarrita/storage": "@zarrita/storage/dist/src/index.js",
    "@zarrita/storage/fetch": "@zarrita/storage/dist/src/fetch.js",
    "numcodecs/": "numcodecs/dist/",
    **{f"numcodecs/{name}": f"numcodecs/dist/{name}.js" for name in ("blosc", "gzip", "lz4", "zlib", "zstd")},
}


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Files of a folder, without a log."""

    def log_message(self, *_: object) -> None:
        """Write no line."""


@contextmanager
def files_of(folder: Path) -> Iterator[str]:
    handler = functools.partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.heavy
def test_the_page_draws_the_array(tmp_path: Path) -> None:
    if not (MODULES / "zarrita").exists():
        pytest.skip("no zarrita: npm install --prefix build/npm zarrita")
    guide = (ROOT / "docs" / "howto" / "web-map.md").read_text(encoding="utf-8")
    found = re.search(r"```html\n(.*?)```", guide, re.DOTALL)
    assert found is not None
    agg = aa.open(ROOT / "sample_data" / "archive")
    application = aggarray.serve.app(("tas", agg), chunks={"time": 1, "lat": -1, "lon": -1})
    (tmp_path / "modules").symlink_to(MODULES, target_is_directory=True)
    imports = json.dumps({"imports": {name: f"/modules/{path}" for name, path in IMPORTS.items()}})
    with serving(application) as port, files_of(tmp_path) as address, browser() as page:
        text, count = re.subn(
            r"https://cdn[^\"]*zarrita@[^\"]*", "zarrita", found[1].replace("127.0.0.1:8000", f"127.0.0.1:{port}")
        )
        assert count == 1
        (tmp_path / "map.html").write_text(f"<script type=importmap>{imports}</script>{text}", encoding="utf-8")
        page.call("Page.navigate", url=f"{address}/map.html")
        page.until("document.getElementById('map')?.getContext('2d').getImageData(360, 180, 1, 1).data[3] === 255")
        colours = page.run("Array.from(document.getElementById('map').getContext('2d').getImageData(0, 0, 720, 360).data)")
        page.picture(tmp_path / "map.png")
        assert not [event for event in page.complaints() if "exception" in event]
    image = np.reshape(colours, (360, 720, 4))[10::20, 10::20].astype(int)
    kelvin = agg["tas"][0][::-1]
    assert image.shape[:2] == kelvin.shape and (image[..., 3] == 255).all()
    # Colours run from blue to red with the temperature.
    warmth = image[..., 0] - image[..., 2]
    assert np.corrcoef(warmth.ravel(), kelvin.ravel())[0, 1] > 0.9
