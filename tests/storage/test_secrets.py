"""Canary secrets in every place that accepts them: no output, error, log, file or graph contains them."""

import base64
import logging
import pickle
import subprocess
import sys
import traceback
import warnings
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest

import aggarray as aa
from aggarray import report
from aggarray.cli import main
from aggarray.opening.checkpoint import Checkpoint
from aggarray.scan.structure_table import StructureTable
from aggarray.storage.credentials import StorageOptions
from aggarray.storage.remote import objects
from aggarray.storage.urls import unsigned
from tests.support.netcdf import cube, write
from tests.support.netcdf import field as values_of
from tests.support.paths import ROOT
from tests.support.servers import Web, free_of_proxies, web_server

#: A word in every secret.
CANARY = "canary"
SIGNATURE = f"{CANARY}/sig%2Fnature=="
HEADER = f"{CANARY}-in-a-header"


class Session:
    """An object of a library, among the options."""

    def __init__(self, password: str) -> None:
        self.password = password

    def __repr__(self) -> str:
        return f"Session({self.password})"


def site() -> dict[str, Any]:
    return {"headers": {"X-Site": HEADER}, "anything": {"nested": [f"{CANARY}-provided"]}}


OPTIONS: dict[str, dict[str, Any]] = {
    "bytes": {"token": f"{CANARY}-\xe9".encode()},
    "binary": {"key": b"\x00\xff" + CANARY.encode() + b"\n"},
    "a header": {"headers": {"X-Site": HEADER}},
    "a nested header": {"client_kwargs": {"headers": {"X-Any": HEADER}}},
    "parameters": {"params": {"v": f"{CANARY}-parameter"}},
    "a login": {"auth": ("me", f"{CANARY}:word")},
    "a set": {"cookies": {f"{CANARY}-1", f"{CANARY}-2"}},
    "an object": {"session": Session(f"{CANARY}-object")},
    "an address": {"proxy": f"http://me:{CANARY}@host:80"},
    "an encoded password": {"proxy": f"http://me:{CANARY}%40%2F@host:80"},
    "a signed address": {"endpoint_url": f"https://host/?v=1&X-Amz-Signature={SIGNATURE}"},
    "a query": {"where": f"https://host/?sig={SIGNATURE}&v=1"},
    "a connection": {"connection_string": f"Protocol=https;AccountKey={CANARY}==;Suffix=net"},
    "a connection by another name": {"dsn": f"host=h password={CANARY}; port=1"},
    "lines": {"private_key": f"{CANARY}-1\n{CANARY}-2\n"},
    "odd characters": {"password": f"{CANARY} +%/\xe9'\""},
    "a number": {"password": 47114711},
    "a variable": {"abfs": {"name": {"env": "SITE_CANARY"}}},
    "a provider": {"provider": site},
}


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, value in {**free_of_proxies(), "SITE_CANARY": f"{CANARY}-variable", "SITE_HEADER": HEADER}.items():
        monkeypatch.setenv(name, value)
    objects.forget()
    yield
    objects.forget()


def has_canary(text: str) -> bool:
    return CANARY in text or "47114711" in text or base64.b64encode(f"me:{CANARY}:word".encode()).decode() in text


WAYS: dict[str, Callable[[Any], str]] = {
    "repr": repr,
    "str": lambda given: " ".join(map(str, _leaves(given))),
    "quoted": lambda given: quote(" ".join(map(str, _leaves(given))), safe=""),
    "as sent": lambda given: " ".join(base64.b64encode(":".join(login).encode()).decode() for login in _logins(given)),
}


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list | tuple | set):
        yield value.decode("utf-8", "replace") if isinstance(value, bytes) else value
        return
    for item in value:
        yield from _leaves(item)


def _logins(given: dict[str, Any]) -> list[tuple[str, str]]:
    return [value for value in given.values() if isinstance(value, tuple)]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", OPTIONS)
def test_what_a_file_system_repeats(
    name: str, way: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Errors, tracebacks and logs contain no options, however the library writes them."""
    fsspec = pytest.importorskip("fsspec", reason="no fsspec")
    caplog.set_level(logging.DEBUG)

    class Talkative(fsspec.get_filesystem_class("memory")):  # type: ignore[misc]
        def __init__(self, **given: Any) -> None:
            raise ValueError(f"cannot log in with [{WAYS[way](given)}] as asked, because of this")

    monkeypatch.setattr(fsspec, "get_filesystem_class", lambda scheme: Talkative)
    with pytest.raises(aa.FormatError, match="cannot log in with") as caught:
        aa.open("abfs://none/a.nc" if name == "a variable" else "memory://none/a.nc", storage_options=OPTIONS[name])
    shown = "".join(traceback.format_exception(caught.value)) + repr(caught.value) + caplog.text
    assert not has_canary(shown), shown


def test_plain_errors_keep_their_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    fsspec = pytest.importorskip("fsspec", reason="no fsspec")

    class Broken(fsspec.get_filesystem_class("memory")):  # type: ignore[misc]
        def __init__(self, **given: Any) -> None:
            raise ValueError("no route to the archive")

    monkeypatch.setattr(fsspec, "get_filesystem_class", lambda scheme: Broken)
    with pytest.raises(aa.FormatError, match="no route to the archive") as caught:
        aa.open("memory://none/a.nc", storage_options=OPTIONS["a header"])
    assert isinstance(caught.value.__cause__, ValueError)


# Programs


@pytest.mark.parametrize("name", ["a provider", "a variable"])
def test_pickles_contain_names_only(name: str) -> None:
    storage = StorageOptions(OPTIONS[name])
    content = pickle.dumps(storage)
    assert not has_canary(content.decode("latin1")) and pickle.loads(content) == storage
    assert not has_canary(repr(storage)) and pickle.loads(content).of("abfs") == storage.of("abfs")


PROGRAM = """
import cloudpickle, pickle, sys
from aggarray.storage.credentials import StorageOptions
WORD = "canary"
def site():
    return {"token": WORD, "also": "canary"}
storage = StorageOptions({"s3": {"provider": site}})
assert storage.of("s3")["token"] == WORD
content = cloudpickle.dumps(storage)
assert b"canary" not in content and b"__main__:site" in content
assert pickle.loads(content) == storage
"""


def test_functions_of_a_program_are_pickled_by_name() -> None:
    pytest.importorskip("cloudpickle", reason="no cloudpickle")
    subprocess.run([sys.executable, "-c", PROGRAM], check=True, timeout=60, cwd=ROOT)


# Everything that aggarray shows, writes and sends


@dataclass
class Archive:
    """Signed addresses of files on a server that checks them, and everything shown or written so far."""

    web: Web
    urls: list[str]
    folder: Path
    options: dict[str, Any]
    shown: list[str] = field(default_factory=list)


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[Archive]:
    pytest.importorskip("aiohttp", reason="no aiohttp")
    for number, days in enumerate(([0, 1], [2, 3], [6, 7], [7, 8])):  # a hole, and an overlap
        changes = {} if number < 3 else {"tas": (("time", "lat", "lon"), np.ones((2, 3, 2), "f4"), {"units": "K"})}
        write(tmp_path / "served" / f"{number}.nc", cube(days, **changes))
    (tmp_path / "served" / "bad.nc").write_bytes(b"\x89HDF\r\n\x1a\n and nothing else")
    (tmp_path / "made").mkdir()
    with web_server(tmp_path / "served") as web:
        web.signature = f"{CANARY}/sig/nature=="
        urls = [f"{web.url}/{name}.nc?v=1&sig={SIGNATURE}" for name in (0, 1, 2, 3, "bad")]
        yield Archive(web, urls, tmp_path / "made", {"headers": {"X-Site": {"env": "SITE_HEADER"}}})


def show(archive: Archive, agg: aa.Aggregation) -> None:
    """Collect what aggarray shows of an aggregation."""
    shown = archive.shown
    for listing in (agg.refusals, agg.skipped, agg.duplicates):
        shown += [repr(listing), *map(repr, listing)]
    checked = agg.check()
    shown += [repr(agg), agg._repr_html_(), repr(agg._provenance), repr(checked), *map(repr, checked.problems)]
    for array in agg:
        parts = list(array.partitions)
        shown += [repr(array), array._repr_html_(), repr(array.partitions), *map(repr, parts), repr(array._access)]
        shown += [repr(part.data) for part in parts] + [repr(array.lazy[0]), repr(array._matrix.references)]
    page = report.page(agg)
    for part in page.split('"'):
        if part.startswith("eJ") or part.startswith("eN"):
            shown.append(zlib.decompress(base64.b64decode(part)).decode())
    shown.append(page)


def fail(archive: Archive, action: Callable[[], Any]) -> None:
    with pytest.raises(aa.AggarrayError) as caught:
        action()
    archive.shown += ["".join(traceback.format_exception(caught.value)), repr(caught.value), caught.value.reason]


def test_signed_addresses(archive: Archive, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "aggarray")
    web, urls, options, made = archive.web, archive.urls, archive.options, archive.folder
    agg = aa.open(urls, storage_options=options)
    assert len(agg.skipped) == 1 and agg.refusals
    tas = agg.arrays[0]
    expected = tas[...]
    assert "?v=1&sig=" in (tas.partitions[0].data.uri or "")  # the program needs it
    show(archive, agg)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        web.signature = "another"
        objects.forget()
        fail(archive, lambda: aa.open(urls[:1]))
        fail(archive, lambda: tas[...])
        fail(archive, lambda: aa.open(urls, storage_options=options))
        web.signature = f"{CANARY}/sig/nature=="
        fail(archive, lambda: aa.open(f"{web.url}/none.nc?sig={SIGNATURE}"))
        fail(archive, lambda: aa.open(f"{web.url}/none*.nc?sig={SIGNATURE}"))
        fail(archive, lambda: aa.open(urls[0], roots=["https://other"]))
        fail(archive, lambda: aa.open(urls[0], variables=["none"]))
        fail(archive, lambda: aa.open(urls[0], rules=aa.Rules(), roots=f"https://me:{CANARY}@host/\x00"))
        fail(archive, lambda: aa.open(f"https://me:{CANARY}@host/a.nc"))
        fail(archive, lambda: aa.open(f"zip://a.nc::https://me:{CANARY}@host/a.zip"))
        fail(archive, lambda: aa.open(f"https://me:{CANARY}@host/a\n.nc"))
        fail(archive, lambda: aa.open(urls[0], relocate=[f"https://me:{CANARY}@host"]))  # type: ignore[arg-type]
        fail(archive, lambda: aa.open(urls[0], storage_options={"provider": {"token": CANARY}}))
    archive.shown += [str(w.message) for w in warned]
    agg.save(made / "a.nca")
    agg.save(made / "b.nca", convention="CFA-0.4")
    table = StructureTable()
    for structure in agg._provenance.structures():
        table.add(structure)
    Checkpoint(str(made / "a.nca.partial"), resume=False).save(table)
    aa.open(urls[:2]).to_kerchunk(made / "a.json")
    assert not [text for text in archive.shown if CANARY in text]
    assert CANARY not in caplog.text
    assert len(expected) == 6


def test_files_in_an_index_are_signed_anew(archive: Archive) -> None:
    urls, made = archive.urls[:2], archive.folder
    agg = aa.open(urls, storage_options=archive.options)
    agg.save(made / "a.nca")
    indexed = aa.open(made / "a.nca", roots=[archive.web.url])
    assert [p.data.uri for p in indexed["tas"].partitions] == [unsigned(url) for url in urls]  # type: ignore[union-attr]
    with pytest.raises(aa.FormatError, match="access denied"):
        indexed["tas"][...]
    expected = values_of(range(4), (10, 20, 30), (0, 5))
    together = {"params": {"sig": {"env": "SITE_SIGNATURE"}}}
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("SITE_SIGNATURE", archive.web.signature)
        again = aa.open(made / "a.nca", roots=[archive.web.url], storage_options=together)["tas"]
        assert np.array_equal(again[...], expected)
        assert CANARY.encode() not in pickle.dumps(again) + pickle.dumps(again.to_dask().dask)
    moved = {unsigned(url): url for url in urls}
    assert np.array_equal(aa.open(made / "a.nca", relocate=moved)["tas"][...], expected)
    archive.web.forget()
    grown = indexed.append(archive.urls[:3])
    assert grown["tas"].shape[0] == 6 and not grown.refusals and not archive.web.asked("0.nc", "GET")
    partial = str(made / "b.nca.partial")
    Checkpoint(partial, resume=False).save(agg._provenance.structures())  # type: ignore[arg-type]
    kept = Checkpoint(partial, resume=True)
    assert [kept.recall(url).uri for url in urls] == urls  # type: ignore[union-attr]


def test_commands_show_and_write_no_secrets(archive: Archive, capfd: pytest.CaptureFixture[str]) -> None:
    url, out = archive.urls[0], archive.folder
    header = f'--storage=headers={{"X-Site": "{HEADER}"}}'
    runs: list[tuple[list[str], int]] = [
        (["info", url, header], 0),
        (["info", url, "--json", header], 0),
        (["info", *archive.urls, header], 0),
        (["info", *archive.urls, "--json", header], 0),
        (["explain", *archive.urls, header], 1),
        (["explain", *archive.urls, "--json", header], 1),
        (["check", *archive.urls, header], 1),
        (["aggregate", *archive.urls, header, "-o", str(out / "a.nca")], 0),
        (["append", str(out / "a.nca"), archive.urls[0], header, "--root", archive.web.url], 0),
        (["view", *archive.urls[:2], header, "-o", str(out / "page.html")], 0),
        (["extract", *archive.urls[:2], header, "-o", str(out / "a.nc")], 0),
        (["extract", *archive.urls[:2], header, "-o", str(out / "a.zarr")], 0),
        (["info", url.replace("0.nc", "none.nc"), header], 1),
        (["info", f"https://me:{CANARY}@host/a.nc"], 1),
        (["info", url, "--relocate", f"https://me:{CANARY}@host"], 2),
        (["info", url, "--storage", f"headers={{{CANARY}"], 1),
        (["extract", url, "-o", str(out / "none" / "a.nc"), "--sel", "time=3000", header], 1),
    ]
    for arguments, status in runs:
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        text = "".join(capfd.readouterr())
        assert ended.value.code == status, (arguments, text)
        assert CANARY not in text, (arguments, text)
    for path in sorted(out.rglob("*")):
        if path.is_file():
            assert CANARY.encode() not in path.read_bytes(), path
    assert {"a.nca", "page.html", "a.nc", "a.zarr"} <= {path.name for path in out.iterdir()}
