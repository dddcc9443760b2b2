"""Layouts of files, compared with the libraries of their formats."""

import math
import shutil
import subprocess
from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import pyfive
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st

from aggarray import formats
from aggarray.errors import FormatError, MissingFileError
from aggarray.formats.partial_scan import FileLayout, LayoutRequest
from tests.formats.test_contract import SAMPLES
from tests.support.netcdf import write

#: The numbers of file space strategies that h5py gives.
PAGED = h5py.h5f.FSPACE_STRATEGY_PAGE


def check_with_h5py(layout: FileLayout) -> None:
    """Compare a layout with h5py's low-level interface."""
    metadata = layout.metadata
    assert metadata is not None
    with h5py.File(layout.uri) as file:
        plist = file.id.get_create_plist()
        paged = plist.get_file_space_strategy()[0] == PAGED
        assert metadata.paged == (plist.get_file_space_page_size() if paged else 0)
        for name, own in layout.variables.items():
            dataset = file[name]
            assert own.shape == dataset.shape
            assert own.chunk == dataset.chunks
            assert own.unlimited == tuple(axis for axis, most in enumerate(dataset.maxshape) if most is None)
            if own.dtype is not None:
                assert own.dtype == dataset.dtype and own.nbytes == dataset.nbytes
            if dataset.chunks is not None:
                assert own.count == dataset.id.get_num_chunks()
                assert own.chunk_nbytes == math.prod(dataset.chunks) * dataset.dtype.itemsize
                created = dataset.id.get_create_plist()
                stored = [created.get_filter(number) for number in range(created.get_nfilters())]
                names = {1: f"deflate {dataset.compression_opts}", 2: "shuffle", 3: "fletcher32"}
                assert own.filters == tuple(names[code] for code, *_ in stored)


def check_with_pyfive(layout: FileLayout) -> None:
    """Compare what leads to the chunks with pyfive, on which the check of CMIP7 files is built."""
    metadata = layout.metadata
    assert metadata is not None
    with pyfive.File(layout.uri) as file:
        assert metadata.consolidated == file.consolidated_metadata
    assert 0 <= metadata.scattered <= metadata.nbytes <= (metadata.file_nbytes or 0) == Path(layout.uri).stat().st_size


def stated_metadata(path: Path) -> int:
    """Return the bytes of metadata that h5stat counts; skips without it."""
    if shutil.which("h5stat") is None:
        pytest.skip("no h5stat")
    text = subprocess.run(["h5stat", "-S", path], capture_output=True, text=True, check=True).stdout
    return int(next(line for line in text.splitlines() if "File metadata" in line).split()[2])


@given(data=st.data())
def test_netcdf4_files(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("layout") / "a.nc"
    shape = data.draw(st.lists(st.integers(1, 40), min_size=1, max_size=3))
    with netCDF4.Dataset(path, "w") as file:
        for axis, size in enumerate(shape):
            file.createDimension(f"d{axis}", None if data.draw(st.booleans()) else size)
        options: dict[str, Any] = {}
        if data.draw(st.booleans()):
            options["chunksizes"] = [data.draw(st.integers(1, size)) for size in shape]
        if data.draw(st.booleans()):
            level = data.draw(st.integers(1, 9))
            options |= {"compression": "zlib", "complevel": level, "shuffle": data.draw(st.booleans())}
        options["fletcher32"] = data.draw(st.booleans())
        dtype = data.draw(st.sampled_from(["i1", "i2", "i4", "f4", "f8"]))
        options["endian"] = data.draw(st.sampled_from(["little", "big"]))
        dtype = np.dtype(dtype).newbyteorder("<" if options["endian"] == "little" else ">")
        variable = file.createVariable("x", dtype, [f"d{axis}" for axis in range(len(shape))], **options)
        variable[...] = np.arange(math.prod(shape)).reshape(shape) % 100
    layout = formats.scan_layout(str(path))
    check_with_h5py(layout)
    check_with_pyfive(layout)


@pytest.mark.parametrize("libver", ["earliest", "v110"])
@pytest.mark.parametrize("strategy", [None, "page", "fsm"])
def test_hdf5_files(tmp_path: Path, libver: str, strategy: str | None) -> None:
    path = tmp_path / "a.h5"
    how: dict[str, Any] = {} if strategy is None else {"fs_strategy": strategy}
    with h5py.File(
        path, "w", libver=(libver, "v110"), **how, **({"fs_page_size": 16384} if strategy == "page" else {})
    ) as file:
        for number in range(3):
            made = file.create_dataset(f"x{number}", (300, 20), "f4", chunks=(1, 20), maxshape=(None, 20))
            made[...] = number
        file.create_dataset("y", data=np.arange(5.0))
        file.create_group("g").create_dataset("z", (100, 100), "i2", chunks=(10, 10), compression="gzip")[...] = 1
    layout = formats.scan_layout(str(path))
    check_with_h5py(layout)
    if libver == "earliest":  # pyfive reads no other chunk indexes
        check_with_pyfive(layout)
    assert layout.variables["x0"].index == ("extensible array" if libver == "v110" else "B-tree of version 1")
    assert layout.variables["x0"].nodes > 1 and layout.variables["y"].nodes == 0
    counted = layout.metadata.nbytes if layout.metadata is not None else 0
    # Heaps and free space are metadata that no reader of values needs.
    assert 0.3 * stated_metadata(path) < counted < 1.1 * stated_metadata(path)


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_zarr_stores(tmp_path: Path, version: int) -> None:
    path = tmp_path / "a.zarr"
    group = zarr.open_group(path, mode="w", zarr_format=version)
    group.create_array("plain", shape=(10, 6), chunks=(4, 6), dtype=">i4" if version == 2 else "i4", compressors=None)
    level = {"compressors": zarr.codecs.ZstdCodec(level=7)} if version == 3 else {}
    group.create_array("coded", shape=(10, 6), chunks=(5, 3), dtype="f8", **level)
    if version == 3:
        big = zarr.codecs.BytesCodec(endian="big")
        group.create_array("sharded", shape=(100,), chunks=(5,), shards=(20,), dtype="f4", serializer=big, compressors=None)
    layout = formats.scan_layout(str(path))
    for name, own in layout.variables.items():
        array = group[name]
        assert (own.shape, own.chunk, own.shard) == (array.shape, array.chunks, array.shards)
        assert own.nbytes == array.nbytes and own.count is None
    assert layout.variables["plain"].filters == () and layout.variables["coded"].filters
    if version == 3:
        assert layout.variables["coded"].filters == ("zstd 7 False",) or layout.variables["coded"].filters == ("zstd 7",)
        assert layout.variables["sharded"].dtype == np.dtype(">f4")
    assert layout.metadata is not None and not layout.metadata.consolidated and layout.metadata.file_nbytes is None
    zarr.consolidate_metadata(path)
    consolidated = formats.scan_layout(str(path)).metadata
    assert consolidated is not None and consolidated.consolidated


def test_netcdf3_files(tmp_path: Path) -> None:
    variables = {"a": (("t", "x"), np.zeros((5, 3), "f4")), "b": (("t",), np.zeros(5)), "c": (("x",), np.zeros(3, "i2"))}
    path = write(tmp_path / "a.nc", variables, format="NETCDF3_CLASSIC", unlimited=("t",))
    layout = formats.scan_layout(path)
    assert {name: v.chunk for name, v in layout.variables.items()} == {"a": (1, 3), "b": (1,), "c": None}
    assert layout.variables["a"].unlimited == (0,) and layout.variables["a"].dtype == np.dtype(">f4")
    assert (
        layout.metadata is not None
        and layout.metadata.consolidated
        and layout.metadata.file_nbytes == Path(path).stat().st_size
    )


@pytest.mark.parametrize("name", SAMPLES)
def test_structures_are_those_of_a_scan_without_values(tmp_path: Path, name: str) -> None:
    path = tmp_path / "sample"
    SAMPLES[name](path)
    layout, scanned = formats.scan_layout(str(path)), formats.scan(path)
    assert layout.uri == scanned.uri and layout.structure.format == scanned.format and layout.reason == ""
    assert [(v.name, v.shape, v.dimensions) for v in layout.structure.variables] == [
        (v.name, v.shape, v.dimensions) for v in scanned.variables
    ]
    assert all(v.values is None for v in layout.structure.variables)
    assert str(layout.structure.attrs) == str(scanned.attrs) and layout.variables.keys() == {v.name for v in scanned.variables}


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    path = Path(write(tmp_path / "a.nc", {"x": (("t",), np.arange(1000.0))}))
    path.write_bytes(path.read_bytes()[:2000])
    assert isinstance(formats.scan_one((str(path), LayoutRequest())), FormatError)
    assert isinstance(formats.scan_one((str(tmp_path / "no.nc"), LayoutRequest())), MissingFileError)


def test_files_that_only_the_library_reads(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w", libver="latest") as file:
        # Partial edge chunks without filters: the chunk index says nothing of them.
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_chunk((4,))
        plist.set_deflate(1)
        plist.set_chunk_opts(h5py.h5d.CHUNK_DONT_FILTER_PARTIAL_CHUNKS) if hasattr(plist, "set_chunk_opts") else None
        h5py.h5d.create(file.id, b"x", h5py.h5t.NATIVE_FLOAT, h5py.h5s.create_simple((10,)), plist)
    layout = formats.scan_layout(str(path))
    assert (layout.reason == "") == ("x" in layout.variables)


def test_the_real_archive(shared_data: Path) -> None:
    paths = sorted(shared_data.rglob("*.nc"))
    chosen = [*paths[::8], *(p for p in paths if "cmip6" not in p.parts)]
    for path in chosen:
        layout = formats.scan_layout(str(path))
        if layout.structure.format != "netCDF3":
            check_with_h5py(layout)
            check_with_pyfive(layout)
    if shutil.which("ncdump") is None:
        pytest.skip("no ncdump")
    for path in chosen[::10]:
        text = subprocess.run(["ncdump", "-hs", path], capture_output=True, text=True, check=True).stdout
        for name, own in formats.scan_layout(str(path)).variables.items():
            if own.chunk is None and own.shape and f"{name}:_Storage = " in text:
                assert f'{name}:_Storage = "contiguous"' in text
            elif own.chunk is not None and own.index:
                assert f"{name}:_ChunkSizes = {', '.join(map(str, own.chunk))}" in text
