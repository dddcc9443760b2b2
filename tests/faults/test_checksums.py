"""Stored checksums are verified by direct reads, and errors name file, variable and chunk.

HDF5: deflate's Adler-32, fletcher32. Zarr: crc32c, numcodecs' crc32, adler32 and fletcher32, those of zlib, gzip and zstd, and
that of a shard index. No option disables them.
"""

import importlib.util
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

import aggarray as aa
from aggarray import codecs
from aggarray.codecs import Filter, known
from aggarray.formats import open_file
from tests.faults.specimens import values
from tests.support.messages import says

pytestmark = pytest.mark.quick

HDF5 = ("netcdf4-fletcher32", "netcdf4-deflate", "netcdf4-all", "hdf5-fletcher32-earliest", "hdf5-fletcher32-latest")
ZARR = (
    *(f"zarr2-{name}" for name in ("fletcher32", "crc32", "adler32", "crc32c", "zlib", "gzip")),
    *(f"zarr3-{name}" for name in ("crc32c", "zstd-crc32c", "gzip", "zstd-checked", "shards-crc32c")),
)


def told(path: str, index: str) -> None:
    """Expect an error for one chunk from a complete read and from a partial read."""
    array = aa.open(path)["tas"]
    for key in (..., (slice(None), 1, 2), (0, 0, slice(None))):
        with pytest.raises(aa.FormatError) as caught:
            array[key]
        text = str(caught.value)
        assert re.search(rf"chunk \[{index}\] at byte \d+.*variable 'tas' in {re.escape(path)}", text), text
        assert "\n" not in text


def places(name: str, size: int) -> set[int]:
    """Return the offsets of a chunk to damage; in the middle of a compressed one: its header has unused bytes."""
    packed = re.search("deflate|all|zlib|gzip|zstd", name) is not None
    return {size // 2, size // 3, size - 6} if packed else {0, 1, 7, size // 2, size - 5, size - 1}


@pytest.mark.parametrize("name", HDF5)
def test_hdf5(made: Callable[[str], str], tmp_path: Path, name: str) -> None:
    source, path = Path(made(name)), tmp_path / "damaged.nc"
    with h5py.File(source) as file:
        chunk = file["tas"].id.get_chunk_info_by_coord((0, 0, 0))
    whole = source.read_bytes()
    for place in places(name, chunk.size):
        data = bytearray(whole)
        data[chunk.byte_offset + place] ^= 0x10
        path.write_bytes(data)
        told(str(path), "0, 0, 0")


def first_chunk(folder: Path) -> Path:
    """Return the file of the first chunk of `tas`."""
    return next(p for p in (folder / "tas/0.0.0", folder / "tas/c/0/0/0") if p.exists())


@pytest.mark.parametrize("name", ZARR)
def test_zarr(made: Callable[[str], str], tmp_path: Path, name: str) -> None:
    path = tmp_path / "damaged.zarr"
    shutil.copytree(made(name), path)
    assert open_file(path).chunks("tas") is not None, "read directly"
    file = first_chunk(path)
    whole = file.read_bytes()
    size = 44 if "shards" in name else len(whole)
    for place in places(name, size):
        data = bytearray(whole)
        data[place] ^= 0x10
        file.write_bytes(data)
        told(str(path), "0, 0, 0")
    file.write_bytes(whole)
    np.testing.assert_array_equal(aa.open(path)["tas"][...], values())


def test_index_of_a_shard(made: Callable[[str], str], tmp_path: Path) -> None:
    path = tmp_path / "damaged.zarr"
    shutil.copytree(made("zarr3-shards"), path)
    file = first_chunk(path)
    data = bytearray(file.read_bytes())
    data[-20] ^= 1
    file.write_bytes(data)
    with pytest.raises(aa.FormatError, match=says(r"variable 'tas' in .*damaged\.zarr", "(checksum|crc32c)")):
        aa.open(path)["tas"][...]


@pytest.mark.parametrize("name", ["zarr3-crc32c", "zarr3-shards", "zarr2-crc32c"])
def test_without_the_library_nothing_is_skipped(
    made: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, request: pytest.FixtureRequest
) -> None:
    """Without google-crc32c, zarr-python decodes the chunk: it verifies the checksum or refuses."""
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "google_crc32c" else find(name))
    path = tmp_path / "damaged.zarr"
    shutil.copytree(made(name), path)
    codecs._known.cache_clear()
    request.addfinalizer(codecs._known.cache_clear)
    assert not known((Filter("crc32c"),))
    file = first_chunk(path)
    data = bytearray(file.read_bytes())
    data[-2] ^= 1
    file.write_bytes(data)
    with pytest.raises(aa.FormatError, match=says("variable 'tas'", "(crc32c|hecksum)")):
        aa.open(path)["tas"][...]
