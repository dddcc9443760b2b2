"""Chunk indexes of HDF5, netCDF-4 and netCDF-3: values read by them equal those of h5py and netCDF4."""

import ctypes
import glob
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numcodecs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggarray import formats
from aggarray.codecs import Filter
from aggarray.errors import AggarrayError
from aggarray.formats.base import full_box
from aggarray.partition import chunk_index
from tests.support.chunk_indexes import assembled, known, table_of

DTYPES = [f"{order}{code}" for order in "<>" for code in ("i1", "u2", "i4", "u8", "f2", "f4", "f8")]


@st.composite
def datasets(draw: Callable[[Any], Any]) -> tuple[tuple[int, ...], str, dict[str, Any]]:
    """Draw a shape, a dtype and the storage options of h5py."""
    shape = tuple(draw(st.lists(st.integers(0, 9), max_size=3)))
    options: dict[str, Any] = {}
    if shape and draw(st.booleans()):
        options["chunks"] = tuple(max(1, min(n, draw(st.integers(1, 4)))) for n in shape)
        options["maxshape"] = tuple(draw(st.sampled_from([None, n + 5])) for n in shape)
        options["shuffle"] = draw(st.booleans())
        options["compression"] = draw(st.sampled_from([None, "gzip", "lzf"]))
        options["fletcher32"] = draw(st.booleans())
    return shape, draw(st.sampled_from(DTYPES)), options


@given(data=st.data(), made=datasets(), userblock=st.sampled_from([0, 0, 512]), libver=st.sampled_from(["earliest", "latest"]))
def test_hdf5_equals_h5py(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, made: tuple[Any, str, Any], userblock: int, libver: str
) -> None:
    path = tmp_path_factory.mktemp("chunks") / "a.h5"
    shape, dtype, options = made
    box = tuple(slice(*sorted((data.draw(st.integers(0, n)), data.draw(st.integers(0, n))))) for n in shape)
    with h5py.File(path, "w", userblock_size=userblock, libver=libver) as file:
        dataset = file.create_dataset("v", shape, dtype, fillvalue=9, **options)
        if data.draw(st.booleans()):
            # Elements outside the box are never written.
            dataset[box] = np.random.default_rng(1).integers(0, 3, dataset[box].shape)
    with h5py.File(path) as file:
        expected = file["v"][...]
    table = table_of(path)
    only_shuffled = options.get("shuffle") and not options["compression"] and not options["fletcher32"]
    if table is None:
        # If filters do not change the size of an edge chunk, it may be stored without them. Equal bytes do not show the origin
        # of offsets in a file with a user block.
        edges = options and any(n % c for n, c in zip(shape, options["chunks"], strict=True))
        unlimited = [axis for axis, most in enumerate(options["maxshape"]) if most is None]
        misplaced = len(unlimited) == 1 and unlimited != [0]
        assert (edges and (only_shuffled or options["compression"])) or (userblock and options) or misplaced
        return
    assert (table.shape, table.dtype) == (shape, np.dtype(dtype))
    assert assembled(path, table).tobytes() == expected.tobytes()


@pytest.mark.parametrize("libver", ["earliest", "v110", "latest"])
@pytest.mark.parametrize("maxshape", [(30, 30), (40, 40), (None, 30), (None, None)])
@pytest.mark.parametrize("compression", [None, "gzip"])
@pytest.mark.parametrize("chunks", [(30, 30), (7, 8)])
def test_every_type_of_chunk_index(tmp_path: Path, libver: str, maxshape: Any, compression: Any, chunks: Any) -> None:
    # Single chunk, fixed array, extensible array, B-trees of version 1 and 2.
    values = np.random.default_rng(1).normal(size=(30, 30)).astype("f4")
    with h5py.File(tmp_path / "a.h5", "w", libver=libver) as file:
        file.create_dataset("v", data=values, maxshape=maxshape, chunks=chunks, compression=compression)
    np.testing.assert_array_equal(assembled(tmp_path / "a.h5", known(tmp_path / "a.h5")), values)


def low_level(
    path: Path, set_up: Callable[[Any], None], values: np.ndarray | None, chunk: tuple[int, ...] | None = (5,)
) -> None:
    made = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    if chunk:
        made.set_chunk(chunk)
    set_up(made)
    with h5py.File(path, "w", libver="latest") as file:
        space = h5py.h5s.create_simple((23,))
        h5py.h5d.create(file.id, b"v", h5py.h5t.py_create(np.dtype("f4")), space, made)
        if values is not None:
            file["v"][: len(values)] = values


def test_early_allocation(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    low_level(path, lambda made: made.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY), np.arange(7.0))
    table = known(path)
    assert (table.offsets >= 0).all()
    assert assembled(path, table).tolist() == [*range(7), *[0] * 16]


@pytest.mark.parametrize("chunk", [(5,), None])
def test_unwritten_elements_without_a_fill_value_have_no_chunk_index(tmp_path: Path, chunk: Any) -> None:
    def set_up(made: Any) -> None:
        made.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
        made.set_fill_value(np.array(7, "f4"))

    low_level(tmp_path / "a.h5", set_up, None, chunk)
    assert table_of(tmp_path / "a.h5") is None
    low_level(tmp_path / "b.h5", set_up, np.arange(23.0), chunk)
    assert assembled(tmp_path / "b.h5", known(tmp_path / "b.h5")).tolist() == list(range(23))


@pytest.mark.parametrize("shuffle", [False, True])
def test_edge_chunks_without_filters(tmp_path: Path, shuffle: bool) -> None:
    paths = glob.glob(f"{Path(h5py.__file__).parents[1]}/h5py.libs/libhdf5-*")
    if not paths:
        pytest.skip("the HDF5 library of h5py does not lie beside it")
    library = ctypes.CDLL(paths[0])
    library.H5Pset_chunk_opts.argtypes = [ctypes.c_int64, ctypes.c_uint]

    def set_up(made: Any) -> None:
        made.set_shuffle()
        if not shuffle:
            made.set_deflate(1)
        assert library.H5Pset_chunk_opts(made.id, 2) == 0

    low_level(tmp_path / "a.h5", set_up, np.arange(23.0))
    assert table_of(tmp_path / "a.h5") is None
    assert formats.open_file(tmp_path / "a.h5").read("v", (slice(0, 23),)).tolist() == list(range(23))


def test_filter_masks(tmp_path: Path) -> None:
    path, values = tmp_path / "a.h5", np.arange(8, dtype="f4")
    with h5py.File(path, "w") as file:
        dataset = file.create_dataset("v", (8,), "f4", chunks=(4,), compression="gzip", shuffle=True)
        dataset[:] = values
        dataset.id.write_direct_chunk((4,), values[4:].tobytes(), 0b11)
    table = known(path)
    assert [f.name for f in table.filters] == ["shuffle", "deflate"]
    assert table.masks is not None
    assert table.masks.tolist() == [0, 3]
    np.testing.assert_array_equal(assembled(path, table), values)


def test_unsupported_storage_has_no_chunk_index(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    np.arange(4, dtype="f4").tofile(tmp_path / "raw")
    with h5py.File(path, "w") as file:
        source = file.create_dataset("plain", data=np.arange(4, dtype="f4"))
        layout = h5py.VirtualLayout((4,), "f4")
        layout[:] = h5py.VirtualSource(source)
        file.create_virtual_dataset("virtual", layout)
        file.create_dataset("external", (4,), "f4", external=[(str(tmp_path / "raw"), 0, 16)])
        file.create_dataset("scaled", data=np.arange(4), chunks=(2,), scaleoffset=0)
        file.create_dataset("text", data=["a", "b"], dtype=h5py.string_dtype())
        file.create_dataset("fixed", data=np.array([b"ab"]))
        file.create_dataset("boolean", data=np.array([True]))
        file.create_dataset("complex", data=np.array([1j]))
        file["empty"] = h5py.Empty("f4")
        compact = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        compact.set_layout(h5py.h5d.COMPACT)
        h5py.h5d.create(file.id, b"compact", h5py.h5t.IEEE_F32LE, h5py.h5s.create_simple((4,)), compact)
        odd = h5py.h5t.STD_I32LE.copy()
        odd.set_precision(20)
        h5py.h5d.create(file.id, b"odd", odd, h5py.h5s.create_simple((4,)))
        names = set(file) - {"plain"}
    handle = formats.open_file(path)
    assert handle.chunks("plain") is not None
    assert {name: handle.chunks(name) for name in names} == dict.fromkeys(names)
    handle.close()


def test_committed_types_and_enumerations(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["type"] = np.dtype(">f4")
        file.create_dataset("named", data=np.arange(6.0), dtype=file["type"], chunks=(4,))
        file.create_dataset("enum", data=[1, 2, 2], dtype=h5py.enum_dtype({"a": 1, "b": 2}, ">i2"))
    assert assembled(path, known(path, "named")).tolist() == list(range(6))
    assert known(path, "named").dtype == np.dtype(">f4")
    assert assembled(path, known(path, "enum")).tolist() == [1, 2, 2]
    assert known(path, "enum").dtype == np.dtype(">i2")


@given(data=st.data())
def test_dimensions_lengthened_by_other_variables(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = tmp_path_factory.mktemp("long") / "a.nc"
    lengths = {name: (data.draw(st.integers(0, 5)), data.draw(st.integers(0, 4))) for name in ("v", "w", "x")}
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("t", None)
        file.createDimension("u", None)
        coordinate = file.createVariable("t", "f8", ("t",))
        group = file.createGroup("g")
        deep = group.createVariable("d", "i2", ("t",))
        deep[: data.draw(st.integers(0, 6))] = 5
        for name, (t, u) in lengths.items():
            filled = data.draw(st.sampled_from([None, 7.0]))
            # A tiny chunk may have the same size with and without filters: it is unknown whether they were applied.
            kept: dict[str, Any] = data.draw(st.sampled_from([{"chunksizes": (2, 3)}, {"chunksizes": (2, 50), "zlib": True}]))
            made = file.createVariable(name, "f4", ("t", "u"), fill_value=filled, **kept)
            made[:t, :u] = 1.0
        coordinate[: data.draw(st.integers(0, 6))] = 2.0
    result = formats.scan(path)
    handle = formats.open_file(path)
    for variable in result.variables:
        table = handle.chunks(variable.name)
        assert table is not None
        assert table.shape == variable.shape
        np.testing.assert_array_equal(assembled(path, table), handle.read(variable.name, full_box(variable.shape)))
    handle.close()


@pytest.mark.parametrize("kind", ["NETCDF3_CLASSIC", "NETCDF3_64BIT_OFFSET", "NETCDF3_64BIT_DATA", "NETCDF4"])
@given(data=st.data())
def test_netcdf_equals_netcdf4(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, kind: str) -> None:
    path = tmp_path_factory.mktemp("chunks") / "a.nc"
    records = data.draw(st.integers(0, 4))
    codes = ["i1", "i2", "i4", "f4", "f8", *(["u1", "u2", "i8"] if kind in ("NETCDF3_64BIT_DATA", "NETCDF4") else [])]
    expected = {}
    with netCDF4.Dataset(path, "w", format=kind) as file:
        for name, size in (("t", None), ("a", 3), ("b", 1)):
            file.createDimension(name, size)
        shapes = [(), ("a",), ("a", "b"), ("t",), ("t", "b"), ("t", "a"), ("t", "a", "b")]
        for number, dimensions in enumerate(data.draw(st.lists(st.sampled_from(shapes), max_size=4))):
            made = file.createVariable(f"v{number}", data.draw(st.sampled_from(codes)), dimensions)
            made.set_auto_maskandscale(False)
            shape = tuple({"t": records, "a": 3, "b": 1}[d] for d in dimensions)
            made[...] = np.random.default_rng(number).integers(0, 100, shape)
    with netCDF4.Dataset(path) as file:
        file.set_auto_maskandscale(False)
        expected = {name: v[...] for name, v in file.variables.items()}
    for name, values in expected.items():
        np.testing.assert_array_equal(assembled(path, known(path, name)), values)


def test_records_without_gaps_are_one_chunk(tmp_path: Path) -> None:
    for name, others in (("one", []), ("two", ["w"])):
        with netCDF4.Dataset(tmp_path / name, "w", format="NETCDF3_CLASSIC") as file:
            file.createDimension("t", None)
            file.createDimension("x", 3)
            for variable in ["v", *others]:
                file.createVariable(variable, "i1", ("t", "x"))[:] = np.arange(15).reshape(5, 3)
    one, two = known(tmp_path / "one"), known(tmp_path / "two")
    assert (one.chunk, one.sizes.tolist()) == ((5, 3), [15])
    assert (two.chunk, two.sizes.tolist(), set(np.diff(two.offsets).tolist())) == ((1, 3), [3] * 5, {8})


def test_large_declared_grids_take_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("v", (10**12, 10**6), "f4", chunks=(1, 1))[5, 5] = 1
        file.create_dataset("w", (2**62,), "i1")
    assert table_of(path) is None
    assert known(path, "w").offsets.tolist() == [-1]
    monkeypatch.setattr(chunk_index, "FREE_CHUNKS", 10)
    with h5py.File(path, "w") as file:
        file.create_dataset("v", data=np.arange(40.0), chunks=(1,))
        file.create_dataset("w", (40,), "f4", chunks=(1,))
    assert len(known(path).offsets) == 40
    assert table_of(path, "w") is None


@pytest.mark.parametrize("libver", ["earliest", "latest"])
@pytest.mark.parametrize("maxshape", [(4, None), (8, None), (None, 6), (4, 6), (None, None)])
@pytest.mark.parametrize("written", [slice(0, 4), slice(2, 4)])
def test_one_unlimited_dimension_that_is_not_the_first(tmp_path: Path, libver: str, maxshape: Any, written: slice) -> None:
    path = tmp_path / "a.h5"
    values = np.zeros((4, 6), "i2")
    values[written] = np.arange(24).reshape(4, 6)[written]
    with h5py.File(path, "w", libver=libver) as file:
        file.create_dataset("v", (4, 6), "i2", chunks=(2, 2), maxshape=maxshape)[written] = values[written]
    table = table_of(path)
    doubtful = maxshape[0] is not None and maxshape[1] is None
    if table is None:
        assert doubtful
        assert written.start or libver == "latest"
        return
    np.testing.assert_array_equal(assembled(path, table), values)


@given(data=st.data())
def test_damaged_files(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = tmp_path_factory.mktemp("damaged") / "a.h5"
    with h5py.File(path, "w", libver=data.draw(st.sampled_from(["earliest", "latest"]))) as file:
        file.create_dataset("v", data=np.arange(40.0).reshape(8, 5), chunks=(3, 2), compression="gzip", maxshape=(None, None))
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    try:
        table = table_of(path)
    except AggarrayError:
        return
    assert table is None or len(table.offsets) == len(table.sizes) == np.prod(table.grid)


def test_real_chunks(shared_data: Path) -> None:
    described = 0
    for path in sorted(shared_data.rglob("*.nc"))[::15]:
        handle = formats.open_file(path)
        for variable in formats.scan(path).variables:
            table = handle.chunks(variable.name)
            if table is not None and np.prod(table.shape) < 10**6:
                described += 1
                result = assembled(path, table)
                np.testing.assert_array_equal(result, handle.read(variable.name, full_box(variable.shape)))
        handle.close()
    assert described > 20


@pytest.mark.parametrize(
    ("code", "values", "name", "codec"),
    [
        (32015, (3,), "zstd", numcodecs.Zstd()),
        (1, (4,), "deflate", numcodecs.Zlib()),
    ],
)
def test_plugin_filters(tmp_path: Path, code: int, values: Any, name: str, codec: Any) -> None:
    path, content = tmp_path / "a.h5", np.arange(23, dtype="f4")
    low_level(path, lambda made: made.set_filter(code, h5py.h5z.FLAG_OPTIONAL, values), None, (23,))
    with h5py.File(path, "r+") as file:
        file["v"].id.write_direct_chunk((0,), codec.encode(content))
    table = known(path)
    assert [f.name for f in table.filters] == [name]
    np.testing.assert_array_equal(assembled(path, table), content)


def test_filter_parameters(tmp_path: Path) -> None:
    for code, values, expected in (
        (32008, (0, 4, 4, 0, 2), Filter("bitshuffle", (4, 0, 2))),
        (32004, (0,), Filter("lz4_hdf5")),
        (32999, (), None),
    ):
        low_level(tmp_path / "a.h5", lambda made, c=code, v=values: made.set_filter(c, h5py.h5z.FLAG_OPTIONAL, v), None)
        table = table_of(tmp_path / "a.h5")
        assert (None if table is None else table.filters) == (None if expected is None else (expected,))


@pytest.mark.parametrize(("compression", "name"), [("zstd", "zstd"), ("blosc_lz4", "blosc"), ("blosc_zstd", "blosc")])
def test_filters_that_netcdf4_writes(tmp_path: Path, compression: Any, name: str) -> None:
    path, content = tmp_path / "a.nc", np.arange(230, dtype="f4").reshape(23, 10)
    with netCDF4.Dataset(path, "w") as file:
        if not (file.has_zstd_filter() if name == "zstd" else file.has_blosc_filter()):
            pytest.skip(f"this netCDF4 has no {name}")
        for dimension, size in (("x", 23), ("y", 10)):
            file.createDimension(dimension, size)
        file.createVariable("v", "f4", ("x", "y"), compression=compression, chunksizes=(7, 6))[:] = content
    table = known(path)
    assert table.filters[-1] == Filter(name)
    np.testing.assert_array_equal(assembled(path, table), content)
