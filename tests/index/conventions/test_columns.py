"""Texts of an index that are read in columns give the same arrays and errors as texts that are read one by one."""

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pytest

import aggarray as aa
from aggarray.formats.hdf5.handle import HDF5File
from aggarray.index.uris import resolve_uri
from aggarray.memory.texts import Texts

COUNT = 300
FORMS: dict[str, Callable[[int], str]] = {
    "relative": lambda n: f"run/tas_{n}.nc",
    "parent": lambda n: f"../run/./tas_{n}.nc",
    "absolute path": lambda n: f"/archive/run/tas_{n}.nc",
    "file": lambda n: f"file:///archive/run/tas_{n}.nc",
    "local host": lambda n: f"file://localhost/archive/tas_{n}.nc",
    "one slash": lambda n: f"FILE:/archive/tas_{n}.nc",
    "https": lambda n: f"https://host/run/tas_{n}.nc",
    "at signs": lambda n: f"http://host/run@{n}.nc" if n % 2 else f"S3://b/\xe9{n}.nc",
    "mixed": lambda n: f"s3://bucket/{n}.nc" if n % 3 else f"a:{n}.nc",
    "encoded": lambda n: f"r%20un/t%61s_{n}%25.nc",
    "names": lambda n: f"münchen/日本_{n}.nc" if n % 2 else f"{n}\N{GRINNING FACE}.nc",
    "repeated": lambda n: f"tas_{n % 7}.nc",
    "long": lambda n: f"{'a/' * (n * 9)}.nc",
}


def write(path: Path, uris: list[str], identifiers: Any = "tas", kind: str = "string", **attrs: Any) -> str:
    """Write a CF-1.13 index of one fragment per step; ``kind``: string, characters or chunks."""
    with netCDF4.Dataset(path, "w") as file:
        for name, size in (("time", len(uris)), ("x", 2), ("rank", 2), ("length", 4000)):
            file.createDimension(name, size)
        tas = file.createVariable("tas", "f4", ())
        tas.setncatts({"units": "K", "aggregated_dimensions": "time x", "aggregated_data": "map: m uris: u identifiers: i"})
        sizes = np.ma.masked_all((2, len(uris)), "i4")
        sizes[0], sizes[1, 0] = 1, 2
        file.createVariable("m", "i4", ("rank", "time"), fill_value=-1)[:] = sizes
        file.createDimension("one", 1)
        column = np.array(uris, object)[:, np.newaxis]
        if kind == "characters":
            width = max(len(u.encode()) for u in uris)
            file.createDimension("width", width)
            fixed = np.array([u.encode() for u in uris], f"S{width}")
            variable = file.createVariable("u", "S1", ("time", "one", "width"))
            variable[:] = fixed.view("S1").reshape(len(uris), 1, width)
        else:
            how = {"zlib": True, "chunksizes": (70, 1)} if kind == "chunks" else {}
            variable = file.createVariable("u", str, ("time", "one"), **how)
            variable[:] = column
        variable.setncatts(attrs)
        if isinstance(identifiers, str):
            file.createVariable("i", str, ())[...] = identifiers
        else:
            file.createVariable("i", str, ("time", "one"))[:] = np.array(identifiers, object)[:, np.newaxis]
    return str(path)


def outcome(path: str, **options: Any) -> Any:
    """Return what an index holds, or the text of its error."""
    try:
        array = aa.open(path, **options)["tas"]
    except aa.AggarrayError as error:
        return type(error), str(error), error.hint
    columns = array._matrix.references
    facts = [columns.uri.tolist(), columns.variable.tolist(), columns.template.tolist(), array._matrix.refs.tolist()]
    return list(columns.uris), list(columns.variables), facts, repr(array), [str(p) for p in list(array.partitions)[:5]]


def check(path: str, monkeypatch: pytest.MonkeyPatch, **options: Any) -> Any:
    """Compare the two ways of reading texts, and return what they give."""
    columns = outcome(path, **options)
    with monkeypatch.context() as patched:
        patched.setattr(HDF5File, "column", lambda self, variable: None)
        assert columns == outcome(path, **options)
    return columns


@pytest.mark.parametrize("kind", ["string", "chunks", "characters"])
@pytest.mark.parametrize("form", FORMS)
def test_forms_of_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str, kind: str) -> None:
    uris = [FORMS[form](n) for n in range(COUNT)]
    found = check(write(tmp_path / "index.nc", uris, kind=kind), monkeypatch)
    assert found[0] == [resolve_uri(uri, str(tmp_path)) for uri in dict.fromkeys(uris)]


@pytest.mark.parametrize("form", ["relative", "file", "encoded", "https", "names"])
def test_relocated_names_and_roots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    path = write(tmp_path / "index.nc", [FORMS[form](n) for n in range(COUNT)])
    for relocate in ({"/archive": "/else"}, {"run": "/else/run"}, {"https://host": "/here"}, {"r un": "file://host/a"}):
        check(path, monkeypatch, relocate=relocate)
    for roots in ([tmp_path], ["/archive"], ["/no"], ["https://host/run"]):
        check(path, monkeypatch, roots=roots)
    assert check(path, monkeypatch, roots=["/no"])[0] is aa.ForbiddenPathError


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("a\0b.nc", "null byte"),
        ("file://host/a.nc", "another host"),
        ("https://user:secret@host/a.nc", "password"),
        ("s3://user@bucket/\xe9.nc", "password"),
        ("zip://a.nc", "names no archive"),
        ("s3://bucket/a\x01.nc", "control characters"),
        ("", "has no text in 'u'"),
        ("missing", "has no text in 'u'"),
        ("index.nc", "aggregation variable"),
        ("./index.nc", "aggregation variable"),
        ("%69ndex.nc", "aggregation variable"),
        ("index.n%63", "aggregation variable"),
        ("x/../index.nc/.", "aggregation variable"),
        ("file://{}", "aggregation variable"),
        ("file:{}", "aggregation variable"),
    ],
)
@pytest.mark.parametrize("kind", ["string", "characters"])
def test_names_that_raise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, words: str, kind: str) -> None:
    uris = [f"tas_{n}.nc" for n in range(COUNT)]
    path = tmp_path / "index.nc"
    uris[200] = name.format(path)
    if "\0" in name and kind == "string":
        uris[200] = "a"  # a null byte ends a string
    write(path, uris, kind=kind, missing_value="missing")
    found = check(str(path), monkeypatch)
    if "\0" in name and kind == "string":
        assert len(found[0]) == COUNT
    else:
        assert found[0] in (aa.IndexFileError, aa.FormatError) and words in found[1], found


def test_names_like_that_of_the_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uris = [
        "a/index.nc",
        "index.nc/",
        "xindex.nc",
        "index.nc%00"[:-3],
        "Index.nc",
        "ndex.nc",
        "c",
        "index%2Enc/a",
        "sindex%2Enc",
    ]
    check(write(tmp_path / "index.nc", uris), monkeypatch)


def test_identifiers_of_each_fragment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uris = [f"tas_{n}.nc" for n in range(COUNT)]
    found = check(write(tmp_path / "index.nc", uris, [f"/g{n % 4}/tas" for n in range(COUNT)]), monkeypatch)
    assert found[1] == [f"g{n}/tas" for n in range(4)]


def test_invalid_utf8(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "index.nc"
    write(path, [f"tas_\xe9_{n}.nc" for n in range(COUNT)])
    data = path.read_bytes()
    path.write_bytes(data.replace("_\xe9_9.nc".encode(), b"_\xe9__9.nc"))
    assert str(tmp_path / "tas_\xe9__9.nc") in check(str(path), monkeypatch)[0]


def test_names_are_resolved_lazily(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "index.nc", [f"run/tas_{n}.nc" for n in range(COUNT)])
    made: list[str] = []
    get = Texts.__getitem__
    monkeypatch.setattr(Texts, "__getitem__", lambda self, item: made.append(get(self, item)) or made[-1])
    monkeypatch.setattr(Texts, "__iter__", lambda self: map(self.__getitem__, range(len(self))))
    references = aa.open(path)["tas"]._matrix.references
    assert made == ["tas"]
    assert references.uri_of(7) == str(tmp_path / "run/tas_7.nc")
    monkeypatch.undo()
    assert pickle.loads(pickle.dumps(references)).uris == tuple(references.uris)


def test_values_of_lazy_names(tmp_path: Path) -> None:
    """Read, save and extend an array whose names are columns."""
    path = write(tmp_path / "index.nc", [f"tas_{n}.nc" for n in range(5)])
    for n in range(5):
        with netCDF4.Dataset(tmp_path / f"tas_{n}.nc", "w") as file:
            file.createDimension("time", 1)
            file.createDimension("x", 2)
            variable = file.createVariable("tas", "f4", ("time", "x"))
            variable.units, variable[:] = "K", n
    array = aa.open(path)["tas"]
    expected = np.repeat(np.arange(5.0), 2).reshape(5, 2)
    np.testing.assert_array_equal(array[...], expected)
    aa.open(path).save(tmp_path / "saved.nca")
    os.remove(path)
    np.testing.assert_array_equal(aa.open(tmp_path / "saved.nca")["tas"][...], expected)
