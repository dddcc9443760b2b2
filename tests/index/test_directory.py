"""The directory behind an index: the same columns with few reads, gone with every change, ignored when damaged."""

import errno
import json
import os
import pickle
import random
import shutil
import sys
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

import aggarray as aa
from aggarray.index import directory as module
from aggarray.index import end_of_hdf5
from aggarray.index.decoder import LazyValues
from aggarray.index.directory import DTYPES, Column, Directory, IndexFile, encode, parse
from aggarray.index.recognition import stored_generation
from aggarray.index.store import Reader
from tests.support.examples import examples
from tests.support.index_files import same
from tests.support.netcdf import cube, write
from tests.support.servers import web_server

#: Modules that only an index without a directory needs.
_FALLBACK = "aggarray.index.hdf5_columns"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an index with all six columns, read-only."""
    folder = tmp_path_factory.mktemp("made")
    for number in range(60):
        content = cube([number + (number > 40) + number**2 / 7], lats=[5.0], lons=np.arange(9000.0) / 25)
        write(folder / f"{number:03}.nc", content, {"number": np.int32(number)})
    aa.open(folder).save(folder / "x.nca")
    return folder / "x.nca"


@pytest.fixture
def index(made: Path) -> Iterator[Path]:
    """Return a copy of the index, beside its files."""
    copy = made.with_name(f"copy{random.randrange(10**6)}.nca")
    shutil.copy(made, copy)
    yield copy
    copy.unlink()


def directory_in(path: Path) -> Directory | None:
    file = IndexFile(str(path))
    file.close()
    return file.directory


def end_of(path: Path) -> int:
    """Return the end of the HDF5 part of an index."""
    end = end_of_hdf5(path.read_bytes()[:48])
    assert end is not None
    return end


def strip(path: Path) -> None:
    os.truncate(path, end_of(path))


def put_table(path: Path, table: bytes) -> None:
    """Replace the directory by a table with a valid checksum."""
    strip(path)
    with path.open("ab") as file:
        file.write(module._HEADER.pack(module._MAGIC, len(table), zlib.crc32(table)) + table)


def table_of(path: Path) -> Any:
    return json.loads(path.read_bytes()[end_of(path) + module._HEADER.size :])


def without_hdf5(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, _FALLBACK, None)


# What it states


def test_columns_are_those_of_the_hdf5_library(made: Path) -> None:
    file = IndexFile(str(made))
    assert file.directory is not None
    with h5py.File(made) as oracle:
        group = oracle["aggarray"]
        assert set(group) == set(file.directory.columns) == set(DTYPES)
        assert (group.attrs["schema"], group.attrs["generation"]) == (file.directory.schema, file.directory.generation)
        for name, column in file.directory.columns.items():
            dataset = group[name]
            chunks = [dataset.id.get_chunk_info(n) for n in range(dataset.id.get_num_chunks())]
            assert column.offsets.tolist() == [c.byte_offset for c in chunks]
            assert column.sizes.tolist() == [c.size for c in chunks]
            values = dataset[...]
            for start, stop in ((0, len(values)), (len(values) // 3, len(values) // 2), (len(values) - 1, len(values)), (3, 3)):
                got = file.read(column, np.dtype(DTYPES[name]), start, stop)
                assert got.dtype == values.dtype and got.tobytes() == values[start:stop].tobytes()
    file.close()


def test_an_index_opens_by_its_directory_alone(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = aa.open(made)
    without_hdf5(monkeypatch)
    agg = aa.open(made)
    same(agg, expected)
    assert len(agg._provenance.structures()) == 60
    assert isinstance(agg["tas"].coords["lon"]._known, LazyValues)
    np.testing.assert_array_equal(agg["tas"].coords["lon"].read(), np.arange(9000.0) / 25)


def test_a_small_index_opens_with_few_reads(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    aa.open(made)
    sizes, opens = list[int](), list[str]()
    own_read, own_open = os.pread, os.open

    def pread(descriptor: int, count: int, offset: int) -> bytes:
        sizes.append(count)
        return own_read(descriptor, count, offset)

    def counted(path: Any, *options: Any, **others: Any) -> int:
        opens.append(str(path))
        return own_open(path, *options, **others)

    monkeypatch.setattr(os, "pread", pread)
    monkeypatch.setattr(os, "open", counted)
    aa.open(made)
    # The superblock and the end of the file: to recognise an index, and to read it.
    assert len(sizes) <= 4 and opens.count(str(made)) == 1


def test_a_directory_may_be_longer_than_the_end_that_is_read(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected, tail = aa.open(made), module.TAIL
    without_hdf5(monkeypatch)
    size = made.stat().st_size - end_of(made)
    for length in (1, size - 1, size, size + 1, size + 3000, 2 * tail):
        monkeypatch.setattr(module, "TAIL", length)
        same(aa.open(made), expected)


def test_other_libraries_read_the_file(made: Path) -> None:
    assert directory_in(made) is not None
    with netCDF4.Dataset(made) as file:
        assert file.Conventions.startswith("CF-1.13") and set(file["aggarray"].variables) == set(DTYPES)
    for engine in ("netcdf4", "h5netcdf"):
        with xr.open_dataset(made, engine=engine) as dataset:
            assert dataset.attrs["Conventions"].startswith("CF-1.13")


@pytest.mark.parametrize(("version", "libver"), [(0, "earliest"), (2, "v108"), (3, "latest")])
def test_the_end_in_the_superblock(tmp_path: Path, version: int, libver: str) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w", libver=libver) as file:
        file["x"] = np.arange(100)
    head = path.read_bytes()[:48]
    assert head[8] == version and end_of_hdf5(head) == path.stat().st_size
    with h5py.File(path, "w", libver=libver, userblock_size=512) as file:
        file["x"] = np.arange(100)
    assert end_of_hdf5(path.read_bytes()[:48]) is None
    for other in (b"", head[:47], b"CDF" + head[3:], head[:8] + b"\x09" + head[9:], head[:9] + b"\x04" * 6 + head[15:]):
        assert end_of_hdf5(other) is None


def test_only_what_save_writes_is_stated(made: Path) -> None:
    found = directory_in(made)
    assert found is not None
    offsets = np.array([100])
    masked = Column(10, 10, (), offsets, offsets, np.array([1], np.uint32))
    assert encode(Directory(1, 2, {"texts": masked})) is None
    content = encode(found)
    assert content == made.read_bytes()[end_of(made) :]
    assert encode(parse(content, end_of(made))) == content


# Gone with every change


def _by_h5py(change: Callable[[Any], Any]) -> Callable[[Path], None]:
    def act(path: Path) -> None:
        with h5py.File(path, "a") as file:
            change(file)

    return act


def _by_netcdf(change: Callable[[Any], Any]) -> Callable[[Path], None]:
    def act(path: Path) -> None:
        with netCDF4.Dataset(path, "a") as file:
            change(file)

    return act


def _first_integer(file: Any) -> None:
    file["aggarray/integers"][0] = file["aggarray/integers"][0]


def _by_python_file(path: Path) -> None:
    with path.open("r+b") as disk, h5py.File(disk, "r+") as file:
        file["aggarray"].attrs.modify("generation", np.int64(7))


_CHANGES: dict[str, tuple[Callable[[Path], None], bool]] = {
    "opened by h5py": (_by_h5py(lambda _: None), False),
    "attribute in place": (_by_h5py(lambda f: f["aggarray"].attrs.modify("generation", np.int64(7))), True),
    "attribute of a file object": (_by_python_file, True),
    "new attribute": (_by_h5py(lambda f: f.attrs.create("more", np.arange(9))), False),
    "value": (_by_h5py(_first_integer), False),
    "opened by netCDF": (_by_netcdf(lambda _: None), False),
    "netCDF attribute": (_by_netcdf(lambda f: f["aggarray"].setncattr("generation", np.int64(7))), True),
    "netCDF dimension": (_by_netcdf(lambda f: f.createDimension("more", 3)), False),
    "xarray": (lambda path: xr.Dataset({"more": ("z", [1, 2])}).to_netcdf(path, mode="a"), False),
    "h5netcdf": (lambda path: xr.Dataset({"more": ("z", [1, 2])}).to_netcdf(path, mode="a", engine="h5netcdf"), False),
}


@pytest.mark.parametrize("name", _CHANGES)
def test_every_change_removes_it(made: Path, index: Path, name: str) -> None:
    expected, generation = aa.open(made), stored_generation(str(made))
    change, renumbered = _CHANGES[name]
    change(index)
    assert directory_in(index) is None
    assert stored_generation(str(index)) == (7 if renumbered else generation)
    same(aa.open(index), expected)


def test_lazy_values_of_a_replaced_index(index: Path) -> None:
    agg = aa.open(index)
    aa.open(index).save(index)
    with pytest.raises(aa.IndexFileError, match="modified by another process since it was opened"):
        agg["tas"].coords["lon"].read()


def test_an_index_without_a_directory_is_read_from_one_file(
    made: Path, index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process may replace it after its file was opened, and before its HDF5 metadata are read."""
    index.write_bytes(index.read_bytes()[: end_of(index)])
    aa.open(made).append(write(tmp_path / "new.nc", cube([999.0], lats=[5.0], lons=np.arange(9000.0) / 25))).save(
        tmp_path / "x.nca"
    )

    def replaced(path: str) -> IndexFile:
        file = IndexFile(path)
        os.replace(tmp_path / "x.nca", path)
        return file

    monkeypatch.setattr("aggarray.index.store.IndexFile", replaced)
    with Reader(str(index)).opened() as first:
        document, generation = first.document(), first.generation
    monkeypatch.undo()
    with Reader(str(made)).opened() as second:
        assert (document, generation) == (second.document(), second.generation)


def test_saving_states_the_new_generation(index: Path) -> None:
    before = stored_generation(str(index))
    strip(index)
    assert directory_in(index) is None and stored_generation(str(index)) == before is not None
    aa.open(index).save(index)
    found = directory_in(index)
    assert found is not None and found.generation == stored_generation(str(index)) and found.generation > before


def test_an_index_without_files_or_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    empty = aa.SubArray.from_array(np.zeros((0, 3)), dimensions=("y", "x"))
    array = aa.MasterArray.from_subarrays([([(0, 0), (0, 3)], empty)], dimensions=("y", "x"), name="empty")
    aa.Aggregation((array,)).save(tmp_path / "a.nca")
    aa.Aggregation(()).save(tmp_path / "b.nca")
    without_hdf5(monkeypatch)
    assert aa.open(tmp_path / "a.nca")["empty"].read().shape == (0, 3) and len(aa.open(tmp_path / "b.nca")) == 0


def test_a_failed_write_leaves_the_old_index(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    agg, content = aa.open(index), index.read_bytes()

    def full(*arguments: Any) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(module, "encode", full)
    with pytest.raises(aa.IndexFileError, match="No space left on device"):
        agg.save(index)
    assert index.read_bytes() == content
    assert not [name for name in os.listdir(index.parent) if name.endswith(".tmp")]


def test_threads_read_the_index_at_once(made: Path) -> None:
    reader = Reader(str(made))
    with reader.opened():
        expected = reader.document("records")

    def records(_: int) -> Any:
        with reader.opened():
            return reader.document("records")

    with ThreadPoolExecutor(8) as pool:
        assert all(content == expected for content in pool.map(records, range(40)))


# Ignored when damaged


@given(st.data())
@settings(max_examples=examples(60))
def test_damaged_bytes_are_ignored(made: Path, data: st.DataObject) -> None:
    content, end = bytearray(made.read_bytes()), end_of(made)
    for place in data.draw(st.lists(st.integers(end, len(content) - 1), min_size=1, max_size=5, unique=True)):
        content[place] ^= data.draw(st.integers(1, 255))
    del content[data.draw(st.integers(end, len(content))) if data.draw(st.booleans()) else len(content) :]
    content += data.draw(st.binary(max_size=3))
    copy = made.with_name("damaged.nca")
    copy.write_bytes(content)
    found = directory_in(copy)
    assert found is None
    assert stored_generation(str(copy)) == stored_generation(str(made))
    same(aa.open(copy), aa.open(made), values=False)


def test_a_wrong_checksum_is_noticed(index: Path) -> None:
    generation = stored_generation(str(index))
    content = bytearray(index.read_bytes())
    place = content.rindex(str(generation).encode()) + 1
    content[place] = content[place] ^ 1  # another digit
    index.write_bytes(content)
    assert directory_in(index) is None and stored_generation(str(index)) == generation


_NUMBERS = st.integers(-3, 1 << 70) | st.integers(0, 1 << 18)
_JSON = st.recursive(
    st.none() | st.booleans() | _NUMBERS | st.floats() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from([*DTYPES, "length", "chunk"]), inner, max_size=4)
    ),
    max_leaves=8,
)


@given(st.data())
@settings(max_examples=examples(150))
def test_hostile_tables_open_or_are_refused(made: Path, data: st.DataObject) -> None:
    """Any values with a valid checksum: the index opens or an error says so, without much memory."""
    copy = made.with_name("hostile.nca")
    shutil.copy(made, copy)
    table = table_of(copy)
    for _ in range(data.draw(st.integers(1, 3))):
        column = table["columns"][data.draw(st.sampled_from(list(DTYPES)))]
        key = data.draw(st.sampled_from(["length", "chunk", "filters", "offsets", "sizes", "schema", "columns", "column"]))
        if key in ("offsets", "sizes") and isinstance(column.get(key), list) and data.draw(st.booleans()):
            column[key] = [data.draw(_NUMBERS) for _ in column[key]]
        else:
            (table if key in ("schema", "columns") else column)[key] = data.draw(_JSON)
        if type(table["columns"]) is not dict or any(type(table["columns"].get(name)) is not dict for name in DTYPES):
            break
    put_table(copy, json.dumps(table).encode())
    tracemalloc.start()
    try:
        aa.open(copy)._provenance.structures()
    except aa.AggarrayError as error:
        assert "\n" not in str(error)
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 16 << 20


def _changed(index: Path, name: str, **values: Any) -> None:
    table = table_of(index)
    table["columns"][name] |= values
    put_table(index, json.dumps(table).encode())


def test_bytes_behind_the_hdf5_file_are_not_read(index: Path) -> None:
    """A chunk in the directory itself."""
    expected = aa.open(index)
    _changed(index, "document", offsets=[end_of(index)])
    assert directory_in(index) is None
    same(aa.open(index), expected, values=False)


@pytest.mark.parametrize("chunks", [1, 1000])
def test_columns_longer_than_the_file_can_hold(index: Path, chunks: int) -> None:
    """Chunks that share their bytes, and chunks that cannot decode to their size, take no memory."""
    expected, size = aa.open(index), index.stat().st_size
    length = 1200 * size // chunks * chunks
    places = {"offsets": [5000] * chunks, "sizes": [size // 2] * chunks}
    _changed(index, "document", length=length, chunk=length // chunks, **places)
    assert directory_in(index) is None
    same(aa.open(index), expected, values=False)


def test_a_chunk_that_cannot_decode_to_its_size(index: Path) -> None:
    length = 1000 * end_of(index)
    _changed(index, "document", length=length, chunk=length, sizes=[100])
    tracemalloc.start()
    with pytest.raises(aa.IndexFileError, match="100 bytes cannot decode to"):
        aa.open(index)
    assert tracemalloc.get_traced_memory()[1] < 8 << 20
    tracemalloc.stop()


@pytest.mark.parametrize("behind", [b"x", bytes(100), bytes(300_000), module._MAGIC * 20_000])
def test_other_bytes_behind_the_file(index: Path, behind: bytes) -> None:
    expected = aa.open(index)
    strip(index)
    with index.open("ab") as file:
        file.write(behind)
    assert directory_in(index) is None
    same(aa.open(index), expected, values=False)


def test_a_deep_table_is_ignored(index: Path) -> None:
    expected = aa.open(index)
    put_table(index, b"[" * 100_000)
    same(aa.open(index), expected, values=False)


def test_a_newer_schema_is_refused(index: Path) -> None:
    table = table_of(index)
    put_table(index, json.dumps({**table, "schema": 99}).encode())
    with pytest.raises(aa.IndexFileError, match="schema 99"):
        aa.open(index)


# Remote


def test_a_remote_index_takes_few_requests(made: Path, tmp_path: Path) -> None:
    shutil.copy(made, tmp_path / "x.nca")
    with web_server(tmp_path) as web:
        aa.open(f"{web.url}/x.nca")
        assert len(web.requests) <= 3  # state, superblock, end


def test_values_that_are_not_read_yet_are_pickled_as_their_place(made: Path) -> None:
    """Coordinates carry no origin: their pickles hold the reader of the index."""
    lon = aa.open(made)["tas"].coords["lon"]
    data = pickle.dumps(lon)
    assert isinstance(lon._known, LazyValues) and len(data) < lon.nbytes / 10
    np.testing.assert_array_equal(pickle.loads(data)[...], np.arange(9000.0) / 25)
