"""Values of stores by the own chunk index: without zarr-python, with damaged and replaced chunks, and over HTTP."""

import json
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import pytest
import zarr

import aggarray as aa
from aggarray import formats
from aggarray.errors import ChangedFileError, FormatError, MissingFileError
from aggarray.formats.zarr import chunk_values
from aggarray.formats.zarr.format import ZarrHandle
from aggarray.storage.state import one_version
from tests.support.examples import heavy
from tests.support.servers import Web, free_of_proxies, web_server

VALUES = np.random.default_rng(3).integers(0, 100, (7, 5)).astype("f4")
ALL = (slice(0, 7, 1), slice(0, 5, 1))

RAW: dict[str, Any] = {"compressors": None}
SHARDED: dict[str, Any] = {"shards": (6, 6), "compressors": [zarr.codecs.ZstdCodec(), zarr.codecs.Crc32cCodec()]}
#: Format version and options of stores that are read without zarr-python.
STORES: dict[str, tuple[Any, dict[str, Any]]] = {
    "raw2": (2, RAW),
    "blosc2": (2, {"compressors": numcodecs.Blosc("lz4")}),
    "shuffled2": (2, {"filters": [numcodecs.Shuffle(4)], "compressors": numcodecs.Zlib()}),
    "big-endian2": (2, {"dtype": ">f4"}),
    "raw3": (3, RAW),
    "blosc3": (3, {"compressors": zarr.codecs.BloscCodec()}),
    "big-endian3": (3, {"serializer": zarr.codecs.BytesCodec(endian="big")}),
    "shards3": (3, SHARDED),
}
#: Those that zarr-python reads.
UNKNOWN: dict[str, tuple[Any, dict[str, Any]]] = {
    "order F": (2, {"order": "F"}),
    "delta": (2, {"filters": [numcodecs.Delta("f4")]}),
    "transpose": (3, {"filters": [zarr.codecs.TransposeCodec(order=(1, 0))]}),
}


def write(path: Path, version: Any, options: dict[str, Any]) -> Path:
    """Write `VALUES` without the chunk at [2, 0], and a coordinate of one chunk."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        group = zarr.open_group(path, mode="w", zarr_format=version)
        how = {"dtype": "f4", "chunks": (3, 2), "fill_value": -7, **options}
        made = group.create_array("v", shape=VALUES.shape, **how)
    expected = VALUES.copy()
    expected[6:, :2] = -7
    made[:6] = expected[:6]
    made[6:, 2:] = expected[6:, 2:]
    return path


def expected_values(path: Path) -> np.ndarray:
    """Return the values that zarr-python reads."""
    values = np.asarray(zarr.open_group(path, mode="r")["v"][...])  # type: ignore[index]
    assert values[6, 0] == -7 and (values[:6] == VALUES[:6]).all()
    return values


@pytest.fixture
def without_zarr(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_given: object, **_options: object) -> None:
        pytest.fail("read by zarr-python")

    monkeypatch.setattr(ZarrHandle, "_open_array", refuse)


@pytest.mark.usefixtures("without_zarr")
@pytest.mark.parametrize("name", STORES)
def test_boxes_equal_zarr(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / "a.zarr", *STORES[name])
    expected, handle = expected_values(path), formats.open_file(path)
    for box in (ALL, (slice(2, 7, 3), slice(1, 5, 2)), (slice(5, 6, 1), slice(4, 5, 1)), (slice(3, 3, 1), slice(0, 5, 1))):
        values = handle.read("v", box)
        np.testing.assert_array_equal(values, expected[box])
        assert values.dtype == np.dtype("f4") and values.dtype.isnative and values.flags.writeable


@pytest.mark.parametrize("name", UNKNOWN)
def test_other_codecs_are_read_by_zarr(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.zarr", *UNKNOWN[name])
    monkeypatch.setattr(chunk_values, "read_box", lambda *_: pytest.fail("read without zarr-python"))
    np.testing.assert_array_equal(formats.open_file(path).read("v", ALL), expected_values(path))


@pytest.mark.usefixtures("without_zarr")
def test_blocks_of_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.zarr", *STORES["blosc3"])
    asked: list[int] = []
    own = chunk_values.read_parts
    monkeypatch.setattr(chunk_values, "read_parts", lambda *given: asked.append(len(given[2])) or own(*given))
    for most, count in ((1, 9), (3, 3), (100, 1)):
        monkeypatch.setattr(chunk_values, "_MOST", most)
        asked.clear()
        np.testing.assert_array_equal(formats.open_file(path).read("v", ALL), expected_values(path))
        assert (len(asked), sum(asked)) == (count, 9)


def chunk_file(path: Path) -> Path:
    """Return the file of the chunk at [0, 1]; of the shard at [0, 0]."""
    names = ("v/0.1", "v/c/0/1", "v/c/0/0")
    return next(path / name for name in names if (path / name).exists())


@pytest.mark.usefixtures("without_zarr")
@pytest.mark.parametrize("name", STORES)
def test_damaged_chunks(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / "a.zarr", *STORES[name])
    file, expected = chunk_file(path), expected_values(path)
    stored = file.read_bytes()
    wrong = [b"", stored[:-1], stored[:9], b"rubbish" * 9, *([stored + b"x"] if name.startswith("raw") else [])]
    for data in wrong:
        file.write_bytes(data)
        with pytest.raises(FormatError, match=r"/a\.zarr") as caught:
            formats.open_file(path).read("v", ALL)
        said = "shard" if name == "shards3" else r"in chunk \[0, 1\] at byte 0 of v/.*variable 'v' in "
        assert re.search(said, str(caught.value))
    file.write_bytes(stored)
    np.testing.assert_array_equal(formats.open_file(path).read("v", ALL), expected)
    if name != "shards3":
        file.unlink()
        assert (formats.open_file(path).read("v", ALL)[:3, 2:4] == -7).all()


@pytest.mark.usefixtures("without_zarr")
@pytest.mark.parametrize("name", STORES)
def test_a_chunk_replaced_while_it_is_read(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.zarr", *STORES[name])
    file, own = chunk_file(path), chunk_values.read_parts

    def late(*given: Any) -> Any:
        parts = own(*given)
        other = tmp_path / "other"
        other.write_bytes(file.read_bytes())
        other.replace(file)
        return parts

    monkeypatch.setattr(chunk_values, "read_parts", late)
    with pytest.raises(ChangedFileError, match=r"changed while it was read: .*a\.zarr/v/"):
        formats.open_file(path).read("v", ALL)


@pytest.mark.usefixtures("without_zarr")
@pytest.mark.parametrize("name", ["blosc2", "shards3"])
def test_one_read_of_several_boxes_sees_one_version(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / "a.zarr", *STORES[name])
    other = write(tmp_path / "b.zarr", *STORES[name])
    handle = formats.open_file(path)
    with one_version():
        handle.read("v", (slice(0, 1, 1), slice(2, 3, 1)))
        chunk_file(other).replace(chunk_file(path))
        with pytest.raises(ChangedFileError, match="changed while it was read"):
            handle.read("v", (slice(2, 3, 1), slice(3, 4, 1)))
    np.testing.assert_array_equal(handle.read("v", ALL), expected_values(path))


@pytest.mark.usefixtures("without_zarr")
def test_references(tmp_path: Path) -> None:
    np.arange(6, dtype="<i4").tofile(tmp_path / "data.bin")
    meta = {"zarr_format": 2, "shape": [8], "chunks": [2], "dtype": "<i4", "order": "C"}
    meta |= {"fill_value": 9, "compressor": None, "filters": None}
    data = str(tmp_path / "data.bin")
    refs = {".zgroup": json.dumps({"zarr_format": 2}), "v/.zarray": json.dumps(meta), "v/.zattrs": "{}"}
    refs |= {"v/0": "base64:AQAAAAIAAAA=", "v/1": [data, 0, 8], "v/3": [data, 16, 8]}
    (tmp_path / "refs.json").write_text(json.dumps({"version": 1, "refs": refs}))
    handle = formats.open_file(tmp_path / "refs.json")
    assert handle.read("v", (slice(0, 8, 1),)).tolist() == [1, 2, 0, 1, 9, 9, 4, 5]
    assert handle.read("v", (slice(0, 5, 4),)).tolist() == [1, 9]
    (tmp_path / "data.bin").unlink()
    with pytest.raises(MissingFileError, match=r"no such file.*data\.bin"):
        handle.read("v", (slice(0, 8, 1),))
    assert handle.read("v", (slice(0, 2, 1),)).tolist() == [1, 2]


@pytest.fixture
def web(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    pytest.importorskip("fsspec")
    from aggarray.storage.remote import objects

    for name, value in free_of_proxies().items():
        monkeypatch.setenv(name, value)
    objects.forget()
    with web_server(tmp_path) as served:
        yield served
    objects.forget()


@pytest.mark.usefixtures("without_zarr")
@pytest.mark.parametrize("name", heavy(STORES, but=[*STORES][::3]))
def test_remote_stores(tmp_path: Path, name: str, web: Web) -> None:
    path = write(tmp_path / "a.zarr", *STORES[name])
    url, expected = f"{web.url}/a.zarr", expected_values(path)
    np.testing.assert_array_equal(formats.open_file(url).read("v", ALL), expected)
    np.testing.assert_array_equal(
        aa.open(url)["v"].read(), np.where(expected == -7, np.nan, expected) if "2" in name else expected
    )
    chunk_file(path).write_bytes(b"rubbish" * 9)
    from aggarray.storage.remote import objects

    objects.forget()
    with pytest.raises(FormatError, match=r"http://.*a\.zarr"):
        formats.open_file(url).read("v", ALL)
