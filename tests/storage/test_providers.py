"""Storage options that each process looks up: environment variables and providers. Nothing shows their values."""

import logging
import os
import pickle
import re
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import aggarray as aa
from aggarray.cli import commands
from aggarray.storage.credentials import StorageOptions
from aggarray.storage.providers import _Results
from aggarray.storage.remote import filesystems, objects
from tests.support.netcdf import cube, field, write
from tests.support.paths import ROOT
from tests.support.servers import Web, free_of_proxies, web_server

SECRET = "hidden-4711-word"
VALUES = field(range(4), (10, 20, 30), (0, 5))
READ = "import pickle, sys; print(float(pickle.load(open(sys.argv[1], 'rb'))[...].sum(dtype='f8')))"
MODULE = """
import os
CALLS = []
def headers():
    CALLS.append(1)
    return {"headers": {"Authorization": "Bearer " + os.environ["SITE_WORD"]}}
def nothing():
    return None
def failing():
    raise RuntimeError("cannot use " + os.environ["SITE_WORD"])
class Site:
    @staticmethod
    def headers():
        return headers()
"""


@pytest.fixture(autouse=True)
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Write a module with providers; forget what earlier ones returned."""
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "site_credentials.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path / "modules")
    for name, value in {**free_of_proxies(), "SITE_WORD": SECRET, "SITE_HEADER": f"Bearer {SECRET}"}.items():
        monkeypatch.setenv(name, value)

    def forget() -> None:
        _Results.by_provider.clear()
        filesystems.systems.clear()
        objects.forget()
        sys.modules.pop("site_credentials", None)

    forget()
    yield
    forget()


@pytest.fixture
def web(tmp_path: Path) -> Iterator[Web]:
    """A web server of two files that asks for the secret."""
    pytest.importorskip("aiohttp", reason="no aiohttp")
    for number in range(2):
        write(tmp_path / "served" / f"{number}.nc", cube([2 * number, 2 * number + 1]))
    with web_server(tmp_path / "served") as web:
        web.secret = f"Bearer {SECRET}"
        yield web


FORMS: dict[str, dict[str, Any]] = {
    "environment": {"headers": {"Authorization": {"env": "SITE_HEADER"}}},
    "environment of a protocol": {"http": {"headers": {"Authorization": {"env": "SITE_HEADER"}}}},
    "provider": {"provider": "site_credentials:headers"},
    "provider of a protocol": {"https": {"provider": "site_credentials:headers"}},
    "provider in a class": {"provider": "site_credentials:Site.headers", "block_size": 1 << 16},
}


@pytest.mark.parametrize("form", FORMS)
def test_pickles_and_indexes_have_no_secrets(form: str, web: Web, tmp_path: Path) -> None:
    urls = [f"{web.url}/{number}.nc" for number in range(2)]
    with pytest.raises(aa.FormatError, match="access denied"):
        aa.open(urls)
    agg = aa.open(urls, storage_options=FORMS[form])
    assert np.array_equal(agg["tas"][...], VALUES)
    agg.save(tmp_path / "a.nca")
    indexed = aa.open(tmp_path / "a.nca", roots=[web.url], storage_options=FORMS[form])
    items = [agg["tas"], indexed["tas"], indexed["tas"].lazy[1:], agg, indexed]
    items += [agg["tas"].to_dask().dask, indexed["tas"].to_dask().dask, indexed.to_xarray()]
    for item in items:
        content = pickle.dumps(item)
        assert SECRET.encode() not in content
    shown = [repr(agg), repr(indexed._provenance), repr(agg["tas"]), agg._repr_html_(), repr(agg["tas"]._access)]
    assert not any(SECRET in text for text in shown)
    assert SECRET.encode() not in (tmp_path / "a.nca").read_bytes()


@pytest.mark.parametrize("form", ["environment", "provider"])
def test_another_process_looks_them_up(form: str, web: Web, tmp_path: Path) -> None:
    agg = aa.open([f"{web.url}/{number}.nc" for number in range(2)], storage_options=FORMS[form])
    (tmp_path / "array.pickle").write_bytes(pickle.dumps(agg["tas"]))
    command = [sys.executable, "-c", READ, str(tmp_path / "array.pickle")]

    def run(**environment: str) -> subprocess.CompletedProcess[str]:
        environ = {**os.environ, "PYTHONPATH": f"{tmp_path / 'modules'}{os.pathsep}{ROOT}", **environment}
        return subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=120, check=False)

    done = run()
    assert done.returncode == 0 and float(done.stdout) == VALUES.sum(dtype="f8"), done.stderr
    denied = run(SITE_WORD="wrong-word", SITE_HEADER="wrong-header")
    assert "access denied" in denied.stderr
    absent = run(PYTHONPATH=str(ROOT)) if form == "provider" else None
    assert absent is None or "the provider site_credentials:headers fails (ModuleNotFoundError)" in absent.stderr
    assert all(word not in denied.stderr for word in (SECRET, "wrong-word", "wrong-header"))


def test_a_provider_is_called_once(web: Web) -> None:
    import importlib

    options = {"provider": "site_credentials:headers"}
    for _ in range(2):
        assert np.array_equal(aa.open([f"{web.url}/0.nc", f"{web.url}/1.nc"], storage_options=options)["tas"][...], VALUES)
    assert importlib.import_module("site_credentials").CALLS == [1]
    threads = [threading.Thread(target=StorageOptions({"provider": "site_credentials:Site.headers"}).of, args=("http",))]
    threads += [threading.Thread(target=StorageOptions({"provider": "site_credentials:headers"}).of, args=("s3",))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert importlib.import_module("site_credentials").CALLS == [1, 1]


def provided() -> dict[str, Any]:
    return {"anon": True, "client_kwargs": {"region_name": "eu"}}


def test_options_of_a_provider() -> None:
    storage = StorageOptions({"provider": provided, "anon": False})
    assert storage.of("s3") == {"anon": False, "client_kwargs": {"region_name": "eu"}}
    assert pickle.loads(pickle.dumps(storage)) == storage and b"region_name" not in pickle.dumps(storage)
    assert StorageOptions({"s3": {"provider": provided}, "http": {"a": [{"env": "SITE_WORD"}, 1]}}).of("http") == {
        "a": [SECRET, 1]
    }
    assert StorageOptions({"a": {"env": "SITE_WORD", "b": 1}}).of("s3") == {"a": {"env": "SITE_WORD", "b": 1}}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"provider": "site_credentials"}, "provider='site_credentials' is invalid; give the name of a function"),
        ({"s3": {"provider": 3}}, r"provider is invalid \(a int\)"),
        ({"provider": lambda: {}}, "provider is a local function, which other processes lack"),
        ({"provider": "site_credentials:nothing"}, "returns a NoneType; return a dictionary"),
        (
            {"provider": "site_credentials:failing"},
            r"site_credentials:failing fails \(RuntimeError in site_credentials.py, line 10\)",
        ),
        ({"provider": "site_credentials:absent"}, r"fails \(AttributeError"),
        ({"provider": "no_such_module:absent"}, r"fails \(ModuleNotFoundError\)"),
        ({"secret": {"env": "NO_SUCH_VARIABLE"}}, "the environment variable 'NO_SUCH_VARIABLE' is not set; set it in every"),
    ],
)
def test_mistakes(options: dict[str, Any], message: str) -> None:
    pytest.importorskip("fsspec", reason="no fsspec")
    with pytest.raises(aa.AggregationError, match=message) as caught:
        aa.open("memory://none/a.nc", storage_options=options)
    assert SECRET not in "".join(traceback.format_exception(caught.value))


# Secrets in messages


@pytest.mark.parametrize(
    "options",
    [
        {"token": SECRET},
        {"memory": {"token": {"env": "SITE_WORD"}}},
        {"provider": "site_credentials:headers"},
        {"password": SECRET},
    ],
)
def test_errors_and_logs_have_no_secrets(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A file system repeats what it was given."""
    fsspec = pytest.importorskip("fsspec", reason="no fsspec")
    caplog.set_level(logging.DEBUG)
    kind = fsspec.get_filesystem_class("memory")

    class Talkative(kind):  # type: ignore[misc, valid-type]
        def __init__(self, **given: Any) -> None:
            text = re.sub(r"\W*(token|password|headers|Authorization)\W*", " ", str(given))
            raise ValueError(f"cannot log in with{text}as asked")

    monkeypatch.setattr(fsspec, "get_filesystem_class", lambda scheme: Talkative)
    with pytest.raises(aa.FormatError, match=r"cannot log in with .*as asked") as caught:
        aa.open("memory://none/a.nc", storage_options=options)
    assert SECRET not in str(caught.value) and SECRET not in caplog.text


def test_the_shell_shows_no_secrets(web: Web, tmp_path: Path) -> None:
    url, out = f"{web.url}/0.nc", str(tmp_path / "out.nc")
    option = '--storage=headers={"Authorization": {"env": "SITE_HEADER"}}'
    literal = f'--storage=headers={{"Authorization": "Bearer {SECRET}"}}'
    printed = ""
    for arguments in (
        ["info", url, option],
        ["info", url, literal],
        ["info", url, "--storage", "provider=site_credentials:headers"],
        ["extract", url, literal, "-o", out],
        ["aggregate", url, literal, "-o", str(tmp_path / "a.nca")],
        ["view", url, literal, "-o", str(tmp_path / "page.html")],
    ):
        done = CliRunner().invoke(commands, arguments)
        assert done.exit_code == 0, done.output
        printed += done.output
    for arguments in (
        ["info", url, f"--storage=token={SECRET}", "--storage=token=x"],
        ["info", url, f"--storage={SECRET}"],
        ["info", f"{web.url}/none.nc", literal],
    ):
        done = CliRunner().invoke(commands, arguments)
        assert done.exit_code != 0
        printed += done.output
    job = f"[input]\nsource = '{url}'\n[index]\npath = 'job.nca'\n[[extract]]\npath = 'job.nc'\n[input.storage.headers]\n"
    for name, value in (("job", f"'Bearer {SECRET}'"), ("other", "{ env = 'SITE_HEADER' }")):
        (tmp_path / "jobs").mkdir(exist_ok=True)
        text = job.replace("job.", f"{name}.") + f"Authorization = {value}\n"
        (tmp_path / "jobs" / f"{name}.toml").write_text(text, encoding="utf-8")
        done = CliRunner().invoke(commands, ["run", str(tmp_path / "jobs" / f"{name}.toml")])
        assert done.exit_code == 0, done.output
        printed += done.output
    assert SECRET not in printed
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or path.name == "job.toml" or SECRET.encode() not in path.read_bytes(), path


def test_job_files_run_no_code(tmp_path: Path) -> None:
    for table in ("provider = 'os:getcwd'", "s3 = { provider = 'os:getcwd' }"):
        (tmp_path / "job.toml").write_text(f"[input]\nsource = 'a.nc'\n[input.storage]\n{table}\n[check]\n", encoding="utf-8")
        done = CliRunner().invoke(commands, ["run", str(tmp_path / "job.toml")])
        assert done.exit_code == 2 and "a job file runs no code" in done.output


@pytest.mark.parametrize("name", ["auth", "connection_string", "cookies", "passphrase"])
def test_other_names_of_secrets_are_masked(name: str) -> None:
    from aggarray.storage.credentials import StorageOptions

    assert StorageOptions({name: ["user", "swordfish"]}).masked("wrong: swordfish") == "wrong: ..."


def test_a_provider_may_ask_for_options_itself() -> None:
    import subprocess
    import sys

    code = """
import sys
from aggarray.storage.credentials import StorageOptions
inner = lambda: {"b": 2}
def outer():
    return StorageOptions({"provider": "__main__:inner"}).of("s3")
assert StorageOptions({"provider": outer}).of("s3") == {"b": 2}
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
