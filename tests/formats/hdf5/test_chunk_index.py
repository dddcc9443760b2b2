"""Chunk indexes without the library equal those through h5py, for all files of h5py and netCDF4."""

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggarray import memory
from aggarray.errors import LIBRARY_ERRORS, AggarrayError
from aggarray.formats.base import LIBRARY_LOCK
from aggarray.formats.hdf5 import FORMAT
from aggarray.formats.hdf5.h5py_files import open_file
from aggarray.formats.hdf5.metadata.chunk_index import chunk_index_of, contiguous_of
from aggarray.formats.hdf5.metadata.data import UNREADABLE
from aggarray.formats.hdf5.metadata.lookup import H5File
from aggarray.formats.partial_scan import COORDINATE_ATTRIBUTES, PartialScanRequest
from aggarray.partition.chunk_index import ChunkIndex
from tests.formats.hdf5.test_metadata import ROOT, files_in
from tests.formats.hdf5.test_metadata_h5py import VERSIONS, extensible, fixed, implicit, scales, single, tree
from tests.formats.test_chunk_indexes import datasets
from tests.support import h5py_chunk_index
from tests.support.chunk_indexes import assembled
from tests.support.examples import heavy_product
from tests.support.scans import by_h5py as scanned
from tests.support.scans import partial_scan_without_library, same

#: Errors of a file that only the library can read.
UNSUPPORTED = "left to the library"


def directly(path: Path, name: str) -> Any:
    """Return the chunk index of a variable without the library, `UNSUPPORTED` if only the library can read it."""
    try:
        file = H5File(os.fspath(path))
        try:
            return chunk_index_of(file, name)
        finally:
            file.close()
    except UNREADABLE:
        return UNSUPPORTED


def by_h5py(path: Path, name: str) -> Any:
    """Return the chunk index of a variable through h5py, or the exception that it raises."""
    try:
        with LIBRARY_LOCK, open_file(os.fspath(path)) as file:
            return h5py_chunk_index.chunk_index(os.fspath(path), file, name)
    except (AggarrayError, *LIBRARY_ERRORS) as error:
        return error


def equal_indexes(one: ChunkIndex | None, other: ChunkIndex | None) -> bool:
    """Return whether two chunk indexes are equal in every field."""
    if one is None or other is None:
        return one is other
    fields = ("shape", "chunk", "dtype", "filters", "names")
    if any(getattr(one, field) != getattr(other, field) for field in fields) or not same(one.fill, other.fill):
        return False
    return all(same(getattr(one, column), getattr(other, column)) for column in ("offsets", "sizes", "masks"))


def names_in(path: Path) -> list[str]:
    names: list[str] = []
    with h5py.File(path) as file:
        file.visititems(lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None)
    return names


def check(path: Path, least: int = 1) -> dict[str, Any]:
    """Compare the chunk indexes of all variables of a file; ``least``: number that must not need the library."""
    result = {name: directly(path, name) for name in names_in(path)}
    for name, table in result.items():
        if table is not UNSUPPORTED:
            assert equal_indexes(table, by_h5py(path, name)), f"{path}, {name}: {table} and {by_h5py(path, name)}"
    assert sum(table is not UNSUPPORTED for table in result.values()) >= least, path
    return result


@pytest.mark.parametrize("libver", VERSIONS, ids=str)
@pytest.mark.parametrize("write", [single, implicit, fixed, extensible, tree])
def test_every_type_of_chunk_index(tmp_path: Path, write: Callable[[h5py.File], None], libver: Any) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w", libver=libver) as file:
        write(file)
        count = len(file)
        write(file.create_group("g/h"))
    check(path, 2 * count)


@pytest.mark.parametrize("libver", ["earliest", "latest"])
@pytest.mark.parametrize("maxshape", [(40_000, 2), (None, 2), (None, None)], ids=str)
@pytest.mark.parametrize("compression", [None, "gzip"])
def test_many_chunks(tmp_path: Path, libver: str, maxshape: Any, compression: Any) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w", libver=libver) as file:
        made = file.create_dataset("v", (30_000, 2), "i2", chunks=(1, 2), maxshape=maxshape, compression=compression)
        # Complete pages of the index are never written.
        for part in (slice(0, 3000), slice(3001, 3002), slice(20_000, 29_000)):
            made[part] = np.arange(2 * (part.stop - part.start)).reshape(-1, 2) + 1
    table = check(path)["v"]
    assert (table.offsets >= 0).sum() == 12_001


@pytest.mark.parametrize("libver", VERSIONS, ids=str)
@pytest.mark.parametrize("userblock", [0, 512, 2048])
@pytest.mark.parametrize("storage", [{}, {"compression": "gzip", "shuffle": True}, {"compression": "lzf", "fletcher32": True}])
def test_versions_and_user_blocks(tmp_path: Path, libver: Any, userblock: int, storage: dict[str, Any]) -> None:
    path = tmp_path / "a.nc"
    with h5py.File(path, "w", libver=libver, userblock_size=userblock) as file:
        scales(file, **storage)
        scales(file.create_group("z/inner"), **storage)
    if not userblock:
        check(path, 10)
    with h5py.File(path) as file:
        for name in names_in(path):
            table = directly(path, name)
            # With a user block h5py does not always report the origin of offsets.
            assert table is not UNSUPPORTED
            np.testing.assert_array_equal(assembled(path, table), file[name][...])


@given(data=st.data(), made=datasets(), libver=st.sampled_from(["earliest", "v108", "v110", "latest"]))
def test_any_dataset(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, made: tuple[Any, str, Any], libver: str
) -> None:
    path = tmp_path_factory.mktemp("chunks") / "a.h5"
    shape, dtype, options = made
    box = tuple(slice(*sorted((data.draw(st.integers(0, n)), data.draw(st.integers(0, n))))) for n in shape)
    low = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    low.set_fill_time(
        data.draw(st.sampled_from([h5py.h5d.FILL_TIME_ALLOC, h5py.h5d.FILL_TIME_NEVER, h5py.h5d.FILL_TIME_IFSET]))
    )
    low.set_alloc_time(data.draw(st.sampled_from([h5py.h5d.ALLOC_TIME_DEFAULT, h5py.h5d.ALLOC_TIME_EARLY])))
    fill = data.draw(st.sampled_from([None, 9]))
    with h5py.File(path, "w", libver=(libver, "latest") if libver == "earliest" else (libver, libver)) as file:
        dataset = file.create_dataset("v", shape, dtype, fillvalue=fill, dcpl=low, **options)
        if data.draw(st.booleans()):
            dataset[box] = np.random.default_rng(1).integers(0, 3, dataset[box].shape)
        if shape and options and data.draw(st.booleans()):
            dataset.resize(tuple(max(n - 2, 0) for n in shape))
    result, expected = directly(path, "v"), by_h5py(path, "v")
    if result is UNSUPPORTED:
        assert dtype.endswith("f2"), "half precision"
    elif expected is None and result is not None:
        # The library reports wrong positions for such chunks, so that it is not used.
        assert [axis for axis, most in enumerate(options["maxshape"]) if most is None] not in ([], [0])
        with h5py.File(path) as file:
            np.testing.assert_array_equal(assembled(path, result), file["v"][...])
    else:
        assert equal_indexes(result, expected)


@given(data=st.data())
def test_dimensions_lengthened_by_other_variables(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = tmp_path_factory.mktemp("long") / "a.nc"
    with netCDF4.Dataset(path, "w") as file:
        for name in "tu":
            file.createDimension(name, None)
        file.createDimension("x", 3)
        if data.draw(st.booleans()):
            file.createVariable("t", "f8", ("t",))[: data.draw(st.integers(0, 6))] = 2.0
        groups = [file, file.createGroup("g"), file.createGroup("g/h")]
        for number in range(data.draw(st.integers(1, 5))):
            spans = data.draw(st.sampled_from([("t",), ("u",), ("t", "u"), ("t", "x"), ("x", "t"), ("t", "t"), ("x",), ()]))
            group = data.draw(st.sampled_from(groups))
            made = group.createVariable(f"v{number}", "i2", spans, zlib=data.draw(st.booleans()))
            made.setncatts({f"a{n}": n for n in range(data.draw(st.sampled_from([1, 12])))})
            box = tuple(slice(3 if d == "x" else data.draw(st.integers(0, 5))) for d in spans)
            made[box or ...] = 7
    check(path)


def unusual_filters(file: h5py.File) -> None:
    made = file.create_dataset("masks", (8,), "f4", chunks=(4,), compression="gzip", shuffle=True)
    made[:] = np.arange(8)
    made.id.write_direct_chunk((4,), np.arange(4, 8, dtype="f4").tobytes(), 0b11)
    file.create_dataset("scaled", data=np.arange(4), chunks=(2,), scaleoffset=0)
    file.create_dataset("edges", data=np.arange(5.0), chunks=(2,), shuffle=True)
    low = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    low.set_layout(h5py.h5d.COMPACT)
    h5py.h5d.create(file.id, b"compact", h5py.h5t.IEEE_F32LE, h5py.h5s.create_simple((4,)), low)
    # Unlimited: otherwise HDF5 would write a huge array of chunks, or crash.
    file.create_dataset("claims", (10**12, 10**6), "f4", chunks=(1, 1), maxshape=(None, None))[5, 5] = 1
    file.create_dataset("late", (5,), ">i4", fillvalue=3)
    file.create_dataset("byte", data=np.arange(3), dtype=h5py.h5t.STD_I8BE)


@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_variables_without_a_chunk_index(tmp_path: Path, libver: str) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w", libver=libver) as file:
        unusual_filters(file)
    result = check(path, 7)
    assert result["masks"].masks.tolist() == [0, 3]
    assert [result[name] for name in ("scaled", "edges", "compact", "claims")] == [None] * 4
    assert (result["late"].fill, result["late"].offsets.tolist()) == (3, [-1])
    assert result["byte"].dtype == np.dtype("i1")


def external_files(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["x"] = np.arange(3.0)
        file.create_dataset("external", (3,), "f4", external=[("values", 0, 12)])
        layout = h5py.VirtualLayout((3,), "f8")
        layout[:] = h5py.VirtualSource("other.h5", "x", (3,))
        file.create_virtual_dataset("virtual", layout)
        file["text"] = "abc"
        file["bool"] = np.array([True])


def test_values_read_by_the_library(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    external_files(path)
    result = {name: directly(path, name) for name in names_in(path)}
    assert {name for name, table in result.items() if table is UNSUPPORTED} == {"external", "virtual", "text", "bool"}
    handle = FORMAT.open(str(path))
    assert handle.external_files("x") == []
    for name, file in (("external", "values"), ("virtual", "other.h5")):
        assert str(tmp_path / file) in handle.external_files(name)
        assert handle.chunks(name) is None
    handle.close()


def test_a_file_replaced_by_one_with_external_values(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["external"] = np.arange(3.0, dtype="f4")
    handle = FORMAT.open(str(path))
    assert handle.external_files("external") == []
    (tmp_path / "values").write_bytes(bytes(12))
    external_files(tmp_path / "b.h5")
    os.replace(tmp_path / "b.h5", path)
    with pytest.raises(AggarrayError, match="changed while it was read"):
        handle.read("external", (slice(0, 3, 1),))
    handle.close()


@pytest.mark.parametrize("path", files_in(ROOT / "sample_data"), ids=lambda p: p.name)
def test_sample_data(path: Path) -> None:
    check(path)


def test_real_data(shared_data: Path) -> None:
    tables = [table for path in files_in(shared_data) for table in check(path, 0).values()]
    assert sum(isinstance(table, ChunkIndex) for table in tables) > 20


# Damage


@pytest.mark.parametrize(("write", "libver"), heavy_product([single, fixed, extensible, tree], ["earliest", "latest"]))
def test_damaged_files(tmp_path: Path, write: Callable[[h5py.File], None], libver: str) -> None:
    whole = tmp_path / "whole.h5"
    with h5py.File(whole, "w", libver=libver) as file:
        write(file)
        file.create_dataset("plain", data=np.arange(6.0))
    raw = whole.read_bytes()
    names = names_in(whole)
    expected = {name: directly(whole, name) for name in names}
    chance = random.Random(7)
    path = tmp_path / "damaged.h5"
    told = 0
    for _ in range(150):
        damaged = bytearray(raw)
        for _ in range(chance.choice([1, 1, 3])):
            at = chance.randrange(len(raw))
            damaged[at] = chance.choice([damaged[at] ^ 1 << chance.randrange(8), chance.randrange(256), 0, 255])
        path.write_bytes(damaged)
        for name in names:
            table = directly(path, name)
            if table is UNSUPPORTED:
                continue
            told += 1
            other = by_h5py(path, name)
            # HDF5 may fail on structures that chunk indexes do not need.
            assert equal_indexes(table, expected[name] if isinstance(other, Exception) else other), (
                f"{name}: {table} and {other}"
            )
    assert told


def test_the_library_reports_damage(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("v", data=np.arange(40.0), chunks=(3,), compression="gzip")
    raw = path.read_bytes()
    path.write_bytes(raw.replace(b"TREE", b"XXXX"))
    handle = FORMAT.open(str(path))
    with pytest.raises(AggarrayError, match=r"a\.h5"):
        handle.read("v", (slice(0, 40, 1),))
    handle.close()
    path.write_bytes(raw[:-100])
    with pytest.raises(AggarrayError, match=r"truncated.*a\.h5"):
        FORMAT.open(str(path))


# Partial scans and views


@given(data=st.data())
def test_partial_scans(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = tmp_path_factory.mktemp("glimpse") / "a.nc"
    with netCDF4.Dataset(path, "w") as file:
        file.title = "a"
        file.setncatts({f"a{n}": float(n) for n in range(data.draw(st.sampled_from([1, 12])))})
        file.createDimension("t", data.draw(st.sampled_from([None, 4])))
        kept: dict[str, Any] = data.draw(st.sampled_from([{}, {"zlib": True}, {"fletcher32": True}]))
        if data.draw(st.booleans()):
            dtype, endian = data.draw(st.sampled_from([("f8", "native"), ("i1", "native"), (">i4", "big"), (">f4", "big")]))
            made = file.createVariable("t", dtype, ("t",), endian=endian, **kept)
            made[: data.draw(st.integers(0, 4))] = 3
            if data.draw(st.booleans()):
                made.setncatts({"units": "days since 2000-01-01", "calendar": "noleap"})
        file.createVariable("height", "f8", ())[...] = 2.0
    expected = PartialScanRequest(
        data.draw(st.sampled_from([{"t": 1}, {"height": 0}, {"t": 1, "height": 0}, {"none": 1}])), ("title", "a0")
    )
    result, whole = partial_scan_without_library(path, expected), scanned(path)
    by_name = {v.name: v for v in whole.variables}
    if result is None:
        assert any(v is None or 0 in v.shape for v in map(by_name.get, expected.coordinates))
        return
    assert dict(result.attrs) == {name: whole.attrs[name] for name in ("title", "a0")}
    for one in result.variables:
        other = by_name[one.name]
        assert (one.name, one.dtype, one.shape) == (other.name, other.dtype, other.shape)
        assert dict(one.attrs) == {name: other.attrs[name] for name in COORDINATE_ATTRIBUTES if name in other.attrs}
        with h5py.File(path) as file:
            assert same(one.values, np.asarray(file[one.name][()]).astype(other.dtype))


@pytest.mark.parametrize("userblock", [0, 512])
def test_contiguous_variables(tmp_path: Path, userblock: int) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w", userblock_size=userblock) as file:
        file["v"] = np.arange(12, dtype=">i4").reshape(3, 4)
        file["scalar"] = 5.0
        file.create_dataset("chunked", data=np.arange(4), chunks=(4,))
        file.create_dataset("empty", (0, 3), "f4")
        file.create_dataset("late", (3,), "f4")
    file, names = H5File(str(path)), names_in(path)
    with LIBRARY_LOCK, open_file(str(path)) as by_library:
        for name in names:
            assert contiguous_of(file, name) == h5py_chunk_index.contiguous(str(path), by_library, name)
    file.close()
    handle = FORMAT.open(str(path))
    view = handle.mapped("v")
    handle.close()
    assert view is not None and memory.view(view).block.kind == "memmap"
    np.testing.assert_array_equal(view, np.arange(12).reshape(3, 4))
