"""Local servers of Azure (Azurite) and Google Cloud Storage (gcp-storage-emulator) for tests, which skip without them."""

import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from http.server import ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.paths import ROOT

#: Account of Azurite and its key, which its manual publishes.
_ACCOUNT = "devstoreaccount1"
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
#: Where `npm install --prefix build/npm azurite` puts the server.
_AZURITE = ROOT / "build" / "npm" / "node_modules" / ".bin" / "azurite-blob"


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextmanager
def azure_server(folder: Path) -> Iterator[dict[str, Any]]:
    """Run Azurite with its data in a folder; give the options of fsspec for it."""
    pytest.importorskip("adlfs")
    program = shutil.which("azurite-blob") or (str(_AZURITE) if _AZURITE.exists() else None)
    if program is None:
        pytest.skip("Azurite is not installed: npm install --prefix build/npm azurite")
    port = _free_port()
    where = ["--blobHost", "127.0.0.1", "--blobPort", str(port), "--location", str(folder)]
    command = [program, *where, "--skipApiVersionCheck", "--disableTelemetry", "--silent"]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 30
        while time.monotonic() < end and server.poll() is None:
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.05)
        address = f"http://127.0.0.1:{port}/{_ACCOUNT}"
        connection = f"DefaultEndpointsProtocol=http;AccountName={_ACCOUNT};AccountKey={_KEY};BlobEndpoint={address};"
        yield {"account_name": _ACCOUNT, "connection_string": connection}
    finally:
        server.kill()
        server.wait()


@contextmanager
def google_server() -> Iterator[dict[str, Any]]:
    """Run an emulator of Google Cloud Storage; give the options of fsspec for it.

    The emulator ignores ``ifGenerationMatch``: it is checked here under a lock, by the rule of Google's manual (0: no object).
    """
    os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")  # of gRPC, which the emulator does not speak
    pytest.importorskip("gcsfs")
    pytest.importorskip("gcp_storage_emulator", reason="gcp-storage-emulator is not installed")
    from gcp_storage_emulator import server as emulator
    from gcp_storage_emulator.exceptions import NotFound
    from gcp_storage_emulator.handlers import objects

    lock, upload = threading.Lock(), objects._media_upload

    def upload_if(request: Any, response: Any, storage: Any) -> Any:
        with lock:
            wanted = request.query.get("ifGenerationMatch")
            try:
                there = storage.get_file_obj(request.params["bucket_name"], request.query["name"][0])["generation"]
            except NotFound:
                there = "0"
            if wanted and wanted[0] != there:
                response.status = HTTPStatus.PRECONDITION_FAILED
                return None
            return upload(request, response, storage)

    port = _free_port()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(objects, "_media_upload", upload_if)
        patch.setattr(emulator, "server", SimpleNamespace(HTTPServer=ThreadingHTTPServer))  # connections stay open
        server = emulator.create_server("127.0.0.1", port, in_memory=True)
        server.start()
        try:
            yield {"project": "test", "token": "anon", "endpoint_url": f"http://127.0.0.1:{port}"}
        finally:
            server.stop()
