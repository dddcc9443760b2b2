"""Headers, references, indexes and archives that claim any size, name any file, or refer to each other."""

import io
import json
import os
import struct
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aggarray as aa
from aggarray import formats
from aggarray.errors import FormatError
from tests.faults.hostile import looked_at, unborne
from tests.support.netcdf import write

# netCDF-3


def header(
    version: int, records: int, dims: list[tuple[bytes, int]], variables: list[tuple[bytes, list[int], int, int]]
) -> bytes:
    """Return a netCDF-3 header; variables: name, dimensions, type, offset."""
    count, offset = (">Q", ">Q") if version == 5 else (">I", ">I" if version == 1 else ">Q")

    def named(name: bytes) -> bytes:
        return struct.pack(count, len(name)) + name + bytes(-len(name) % 4)

    out = b"CDF" + bytes([version]) + struct.pack(count, records)
    out += struct.pack(">I", 10) + struct.pack(count, len(dims)) + b"".join(named(n) + struct.pack(count, s) for n, s in dims)
    nothing = struct.pack(">I", 0) + struct.pack(count, 0)
    out += nothing + struct.pack(">I", 11) + struct.pack(count, len(variables))
    for name, ids, kind, begin in variables:
        out += named(name) + struct.pack(count, len(ids)) + b"".join(struct.pack(count, i) for i in ids) + nothing
        out += struct.pack(">I", kind) + struct.pack(count, 8) + struct.pack(offset, begin)
    return out + bytes(640)


T = [(b"t", [0], 6, 200)]
HEADERS = {
    "records": header(1, 0xFFFFFFFE, [(b"t", 0)], T),
    "a stream": header(1, 0xFFFFFFFF, [(b"t", 0)], T),
    "a long dimension": header(1, 0, [(b"t", 0xFFFFFFFF)], T),
    "2^62 elements": header(5, 0, [(b"t", 1 << 62)], T),
    "a product beyond 64 bits": header(5, 0, [(b"t", 1 << 62), (b"u", 1 << 62)], [(b"t", [0, 1, 1, 1], 6, 200)]),
    "a beginning at the end of 64 bits": header(5, 0, [(b"t", 4)], [(b"t", [0], 6, (1 << 64) - 8)]),
    "a beginning below zero": header(1, 0, [(b"t", 4)], [(b"t", [0], 6, 0xFFFFFFF8)]),
    "records of nothing": header(5, (1 << 64) - 2, [(b"t", 0), (b"z", 0)], [(b"t", [0], 6, 200), (b"q", [0, 1], 6, 200)]),
    "records of no variable": header(5, 1 << 62, [(b"t", 0)], []),
    "900 dimensions": header(1, 0, [(b"t", 1)], [(b"t", [0] * 900, 6, 4000)]),
    "70 dimensions": header(1, 0, [(b"t", 1)], [(b"t", [0] * 70, 6, 600)]),
    "names": header(1, 0, [(b"t\x1b[2J", 2)], [(b"v\n\r\x07", [0], 6, 200)]),
    "no names": header(1, 0, [(b"", 2)], [(b"", [0], 6, 200)]),
    "names that climb": header(1, 0, [(b"t", 2)], [(b"../../x", [0], 6, 200)]),
}


def test_hostile_netcdf3_headers(tmp_path: Path) -> None:
    files = {}
    for number, (name, data) in enumerate(HEADERS.items()):
        (tmp_path / f"{number}.nc").write_bytes(data)
        files[name] = str(tmp_path / f"{number}.nc")
    for name, shape in (
        ("a file of holes", [(b"n", 1000), (b"len", 1 << 33)]),
        ("a coordinate of holes", [(b"n", 9), (b"len", 1 << 30)]),
    ):
        # A string of the size of a sparse file without data on disk.
        data = header(5, 0, shape, [(b"n", [0, 1], 2, 400)])
        files[name] = str(tmp_path / f"{name}.nc")
        Path(files[name]).write_bytes(data)
        os.truncate(files[name], 400 + shape[0][1] * shape[1][1])
    assert unborne(looked_at(files, tmp_path)) == {}


# Special files


def test_special_files_do_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.nc")
    (tmp_path / "loop.nc").symlink_to("loop.nc")
    (tmp_path / "zero.nc").symlink_to("/dev/zero")
    assert unborne(looked_at({p.name: str(p) for p in tmp_path.glob("*.nc")}, tmp_path)) == {}


def test_special_files_do_not_prevent_saving(tmp_path: Path) -> None:
    """An index stores the state of skipped files: a pipe is not opened for this."""
    archive = tmp_path / "archive"
    archive.mkdir()
    write(archive / "a.nc", {"tas": (("x",), np.arange(3.0), {"units": "K"})})
    os.mkfifo(archive / "pipe.nc")
    (archive / "zero.nc").symlink_to("/dev/zero")
    code = "import sys; from aggarray.cli import main; main(sys.argv[1:])"
    index = str(tmp_path / "i.nca")
    for command in (["aggregate", str(archive), "-o", index], ["append", index, str(archive)]):
        subprocess.run([sys.executable, "-c", code, *command], check=True, timeout=60, stdout=subprocess.DEVNULL)
    assert aa.open(index)["tas"][:].tolist() == [0, 1, 2]


def test_special_files_without_size_are_empty(tmp_path: Path) -> None:
    """Special files of size zero with content, possibly endless, are not read."""
    (tmp_path / "a.nc").symlink_to("/proc/self/environ")
    if not os.path.exists(tmp_path / "a.nc"):
        pytest.skip("no /proc")
    with pytest.raises(FormatError, match="an empty file"):
        formats.scan(tmp_path / "a.nc")
    assert formats.stamp_of(str(tmp_path / "a.nc"))[2] == formats.stamp_of(write_empty(tmp_path / "b"))[2]


def write_empty(path: Path) -> str:
    path.touch()
    return str(path)


# References

ELSEWHERE = [
    *("http://127.0.0.1:1/x", "https://127.0.0.1:1/x", "ftp://127.0.0.1/x", "s3://b/x", "gs://x/y", "memory://x", "ssh://x/y"),
    *("zip://a::http://127.0.0.1:1/x", "reference://x", "hf://a/b", "github://a:b@c/d", "python://os"),
]
NO_SCHEMES = ["javascript:alert(1)", "data:,abc", "simplecache::http://127.0.0.1:1/x", "filecache::file:///etc/passwd"]
OUTSIDE = [
    "/etc/passwd",
    "file:///etc/passwd",
    "local:///etc/passwd",
    "../../../../../../../../../etc/passwd",
    "link",
    "folder/passwd",
]


def references(path: Path, name: str, attrs: str = "{}", **more: Any) -> str:
    array = {"zarr_format": 2, "shape": [4], "chunks": [4], "dtype": "<f8", "compressor": None, "fill_value": 0, "order": "C"}
    refs = {".zgroup": '{"zarr_format": 2}', "v/.zarray": json.dumps(array), "v/.zattrs": attrs, "v/0": [name, 0, 32]}
    path.write_text(json.dumps({"version": 1, "refs": refs, **more}))
    return str(path)


@pytest.mark.parametrize("name", [*ELSEWHERE, *NO_SCHEMES, *OUTSIDE])
@pytest.mark.parametrize("bound", [True, False])
def test_references_obey_the_roots(name: str, bound: bool, tmp_path: Path) -> None:
    """A coordinate, which opening reads: not from local files outside the roots, and never from external locations."""
    (tmp_path / "link").symlink_to("/etc/passwd")
    (tmp_path / "folder").symlink_to("/etc", target_is_directory=True)
    path = references(tmp_path / "r.json", name, '{"_ARRAY_DIMENSIONS": ["v"]}')
    if not bound and name in OUTSIDE:
        assert aa.open(path)["v"].shape == (4,)
        return
    with pytest.raises(aa.AggarrayError) as error:
        aa.open(path, roots=[tmp_path] if bound else None)
    kinds = (aa.IndexFileError, aa.MissingFileError) if name in NO_SCHEMES else aa.IndexFileError
    assert isinstance(error.value, kinds)


def test_hostile_references(tmp_path: Path) -> None:
    deep = "[" * 100_000 + "]" * 100_000
    texts = {
        "lists": f'{{"refs": {deep}}}',
        "objects": '{"version": 1, "refs": {"a/.zattrs": ' + '{"a":' * 100_000 + "1" + "}" * 100_000 + "}}",
        "digits": '{"version": 1, "refs": {".zgroup": {"zarr_format": ' + "1" * 100_000 + "}}}",
    }
    files = {}
    for name, text in texts.items():
        (tmp_path / f"{name}.json").write_text(text)
        files[name] = str(tmp_path / f"{name}.json")
    ways = {
        "itself": "{{u}}",
        "called": "{{a()}}",
        "wide": "{{'%0999999999d' % 1}}",
        "braces": "{{" * 100_000,
        "inner": "{{a.__class__}}",
    }
    templates = {"u": "{{u}}", "a": "{{b()}}", "b": "{{a()}}"}
    files |= {way: references(tmp_path / f"{way}.json", name, templates=templates) for way, name in ways.items()}
    gen = [{"key": "v/{{i}}", "url": "x", "offset": "0", "length": "8", "dimensions": {"i": {"stop": 10**18}}}]
    files |= {
        "itself as data": references(tmp_path / "self.json", "self.json"),
        "generated": references(tmp_path / "gen.json", "x", gen=gen),
        "a device": references(tmp_path / "dev.json", "/dev/zero"),
        "a process": references(tmp_path / "proc.json", "/proc/self/mem"),
        "deep attributes": references(tmp_path / "attrs.json", "x", '{"a": ' + "[" * 900 + "]" * 900 + "}"),
    }
    assert unborne(looked_at(files, tmp_path)) == {}


# Indexes


def index(path: Path, fragment: str) -> str:
    """Write an index of other software with one fragment."""
    told = {"aggregated_dimensions": "time", "aggregated_data": "map: m uris: u identifiers: i", "units": "K"}
    terms = {"m": (("r", "n"), np.array([[2]])), "u": (("n",), np.array([fragment])), "i": ((), np.array("tas"))}
    time = (("time",), np.arange(2.0), {"units": "days since 2000-01-01"})
    return write(path, {**terms, "time": time, "tas": ((), 0.0, told)}, {"Conventions": "CF-1.13"})


def test_indexes_that_name_each_other(tmp_path: Path) -> None:
    rings = {"a": "a.nc", "b": "c.nc", "c": "b.nc", **{f"d{n}": f"d{n + 1}.nc" for n in range(50)}}
    files = {name: index(tmp_path / f"{name}.nc", fragment) for name, fragment in rings.items()}
    asked = {name: files[name] for name in ("a", "b", "c", "d0")}
    result = looked_at(asked, tmp_path)
    assert unborne(result) == {}
    assert all(any("aggregation variable" in text for text in one.texts) for one in result.values())


@pytest.mark.parametrize(
    "name", [*ELSEWHERE, *NO_SCHEMES, "file://host/x", "//host/x", "/dev/stdin", "../out/a.nc", "..%2Fout%2Fa.nc"]
)
@pytest.mark.parametrize("bound", [True, False])
def test_indexes_obey_the_roots(name: str, bound: bool, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    write(tmp_path / "out" / "a.nc", {"tas": (("time",), np.arange(2.0), {"units": "K"})})
    path = index(tmp_path / "in" / "index.nc", name)
    if not bound and name.startswith(".."):
        assert aa.open(path)["tas"][...].tolist() == [0, 1]
        return
    with pytest.raises(aa.AggarrayError):
        aa.open(path, roots=[tmp_path / "in"] if bound else None)["tas"][...]


# Archives


def test_hostile_archives(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bomb.nc", b"CDF\x01" + bytes(1 << 27))
        for name in ("../../etc/x.nc", "/abs.nc", "a\x1b[2J.nc", "b\nc.nc"):
            archive.writestr(name, b"CDF\x01" + bytes(28))
    with tarfile.open(tmp_path / "b.tar", "w") as packed:
        links = [("l.nc", tarfile.SYMTYPE, "/etc/passwd"), ("h.nc", tarfile.LNKTYPE, "h.nc"), ("d.nc", tarfile.CHRTYPE, "")]
        for name, kind, target in [*links, ("x.nc", tarfile.SYMTYPE, "y.nc"), ("y.nc", tarfile.SYMTYPE, "x.nc")]:
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = kind, target
            packed.addfile(entry, io.BytesIO())
    files = {"bomb": f"zip://bomb.nc::{tmp_path}/a.zip", "all": f"zip://**::{tmp_path}/a.zip"}
    files |= {"climbing": f"zip://../../etc/x.nc::{tmp_path}/a.zip", "all of tar": f"tar://*::{tmp_path}/b.tar"}
    files |= {name: f"tar://{name}.nc::{tmp_path}/b.tar" for name in "lhdx"}
    result = looked_at(files, tmp_path)
    assert unborne(result) == {}
    assert not [text for one in result.values() for text in one.texts if "root:" in text]
    assert "leads out of the archive" in result["climbing"].texts[0]
