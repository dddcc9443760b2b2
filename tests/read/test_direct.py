"""Chunks read directly give what the libraries of their formats give, for any storage and any selection."""

import os
import tracemalloc
from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

import aggarray as aa
import aggarray.read as reading
from aggarray.partition.chunk_selection import runs_along
from aggarray.read import chunk_blocks, contiguous
from aggarray.read.chunk_blocks import decoded_chunks
from aggarray.read.chunk_index import chunk_tables
from tests.support.examples import examples

SHAPE = (7, 10, 6)
KEYS = st.tuples(
    *(
        st.one_of(
            st.slices(n),
            st.integers(-n, n - 1),
            st.lists(st.integers(-n, n - 1), min_size=1, max_size=6),
            st.lists(st.booleans(), min_size=n, max_size=n),
        )
        for n in SHAPE
    )
)


#: Chunks are read one by one, all together, a few at a time; a few bytes at a time.
SIZES = [
    {"SMALL": 0},
    {},
    {"SLAB": 200},
    {"SMALL": 0, "SLAB": 200},
    {"BATCH": 1},
    {"SMALL": 0, "PART": 64},
    {"SMALL": 0, "MOST": 2},
]
#: Rows are read one by one, or a few that lie close together; long ones and short ones.
SIZES += [
    {"SMALL": 0, "GAP": 30, "_FEW": 1},
    {"SMALL": 0, "GAP": 8, "_FEW": 0, "SPAN": 40},
    {"SMALL": 0, "GAP": -1},
    {"SMALL": 0, "GAP": 8, "SPAN": 200},
    {"SMALL": 0, "_SHORT": 0},
]


@pytest.fixture(autouse=True)
def _fresh() -> None:
    chunk_tables.clear()
    decoded_chunks.clear()


@pytest.fixture
def direct(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Note every batch that is read directly."""
    result: list[Any] = []
    read_stored = reading.read_stored

    def noted(stored: Any, fetch: Any, items: Any) -> None:
        result.append(items)
        read_stored(stored, fetch, items)

    monkeypatch.setattr(reading, "read_stored", noted)
    return result


def values(dtype: str, absent: bool = True) -> np.ndarray:
    """Return values of every sign, some of them -99, which may mean missing."""
    result = (np.arange(np.prod(SHAPE)) * 37 % 201 - 100).reshape(SHAPE).astype(dtype)
    if absent:
        result[1, 2:4] = -99
    return result


def hdf5(path: Path, dtype: str, **how: Any) -> None:
    with h5py.File(path, "w", **({"libver": how.pop("libver")} if "libver" in how else {})) as file:
        data = file.create_dataset("v", data=values(dtype), **how)
        data.attrs["_FillValue"] = np.asarray(-99, dtype)


def netcdf(path: Path, dtype: str, form: str, **how: Any) -> None:
    with netCDF4.Dataset(path, "w", format=form) as file:
        file.set_auto_maskandscale(False)
        for name, n in zip("xyz", SHAPE, strict=True):
            file.createDimension(name, None if name == how.get("unlimited") else n)
        options = {k: v for k, v in how.items() if k != "unlimited"}
        data = file.createVariable("v", dtype, ("x", "y", "z"), fill_value=-99, **options)
        data[:] = values(dtype)


def store(path: Path, dtype: str, **how: Any) -> None:
    group = zarr.open_group(str(path), mode="w", zarr_format=how.pop("version"))
    array = group.create_array("v", shape=SHAPE, dtype=dtype, **how)
    array[...] = values(dtype)
    array.attrs["_FillValue"] = -99.0 if np.dtype(dtype).kind == "f" else -99


STORED: dict[str, Any] = {
    "contiguous": lambda p: hdf5(p, "f4"),
    "big-endian": lambda p: hdf5(p, ">f8"),
    "chunked": lambda p: hdf5(p, "i2", chunks=(2, 3, 4)),
    "deflated": lambda p: hdf5(p, "f4", chunks=(3, 4, 6), compression="gzip", shuffle=True),
    "checked": lambda p: hdf5(p, ">i4", chunks=(3, 10, 5), compression="gzip", shuffle=True, fletcher32=True),
    "lzf": lambda p: hdf5(p, "f8", chunks=(2, 5, 6), compression="lzf"),
    "scale-offset": lambda p: hdf5(p, "i4", chunks=(2, 5, 6), scaleoffset=0),
    "latest": lambda p: hdf5(p, "f4", chunks=(2, 5, 4), maxshape=(None, None, 6), compression="gzip", libver="latest"),
    "user block": lambda p: hdf5_with_user_block(p),
    "one chunk": lambda p: hdf5(p, "i1", chunks=SHAPE, compression="gzip", shuffle=True),
    "netCDF-4": lambda p: netcdf(p, "f4", "NETCDF4", compression="zlib", chunksizes=(1, 10, 6), unlimited="x"),
    "netCDF-3": lambda p: netcdf(p, "i2", "NETCDF3_CLASSIC"),
    "netCDF-3 records": lambda p: netcdf(p, "f4", "NETCDF3_64BIT_OFFSET", unlimited="x"),
    "CDF-5": lambda p: netcdf(p, "i8", "NETCDF3_64BIT_DATA", unlimited="x"),
    "Zarr 2": lambda p: store(p, "<f4", version=2, chunks=(2, 5, 4)),
    "Zarr 2, big-endian": lambda p: store(p, ">f8", version=2, chunks=(3, 3, 3), compressors=None),
    "Zarr 3": lambda p: store(p, "float32", version=3, chunks=(2, 5, 4)),
    "Zarr 3, shards": lambda p: store(p, "int16", version=3, chunks=(2, 5, 3), shards=(4, 10, 6)),
}


def hdf5_with_user_block(path: Path) -> None:
    with h5py.File(path, "w", userblock_size=1024) as file:
        file.create_dataset("v", data=values("f4"), chunks=(2, 5, 6), compression="gzip").attrs["_FillValue"] = np.float32(-99)


def expected(raw: np.ndarray, key: Any) -> np.ma.MaskedArray:
    """Return what a key selects, dimension by dimension."""
    result = np.ma.masked_equal(raw.astype(raw.dtype.newbyteorder("=")), -99)
    for axis in reversed(range(raw.ndim)):
        chosen = np.asarray(key[axis]) if isinstance(key[axis], list) else key[axis]
        chosen = chosen.astype(int) if isinstance(chosen, np.ndarray) and chosen.size == 0 else chosen
        result = result[(*(slice(None),) * axis, chosen)]
    return result


@pytest.fixture(scope="module", params=STORED)
def stored(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    path = tmp_path_factory.mktemp("stored") / ("v.zarr" if "Zarr" in request.param else "v.nc")
    STORED[request.param](path)
    return request.param, path


@settings(max_examples=examples(40), deadline=None)
@given(key=KEYS, masked=st.booleans(), threads=st.integers(1, 3), sizes=st.sampled_from(SIZES))
def test_any_selection(stored: tuple[str, Path], key: Any, masked: bool, threads: int, sizes: dict[str, int]) -> None:
    _, path = stored
    array = aa.open(path, variables=["v"])["v"]
    wanted = expected(values(array._matrix.references.templates[0].encoding.stored.str), key)
    with pytest.MonkeyPatch.context() as patch:
        for name, size in sizes.items():
            for module in (reading, contiguous):
                if hasattr(module, name):
                    patch.setattr(module, name, size)
        result = array.read(key, masked=masked, threads=threads)
    mask = np.ma.getmaskarray(wanted)
    if masked:
        np.testing.assert_array_equal(np.ma.getmaskarray(result), mask)
        np.testing.assert_array_equal(np.ma.getdata(result)[~mask], np.ma.getdata(wanted)[~mask])
    else:
        fill = np.nan if array.dtype.kind == "f" else array.fill_value
        np.testing.assert_array_equal(result, np.where(mask, fill, np.ma.getdata(wanted)))
    assert result.dtype == array.dtype and result.dtype.isnative


def test_which_storage_is_read_directly(stored: tuple[str, Path], direct: list[Any]) -> None:
    kind, path = stored
    aa.open(path, variables=["v"])["v"][:]
    assert bool(direct) == (kind not in ("scale-offset", *(["lzf"] if not _has_imagecodecs() else [])))


def _has_imagecodecs() -> bool:
    try:
        import imagecodecs  # noqa: F401
    except ImportError:
        return False
    return True


@settings(max_examples=examples(30), deadline=None)
@given(data=st.data())
def test_lazy_chains_come_out_the_same(stored: tuple[str, Path], data: st.DataObject) -> None:
    """Turned, transposed and converted values, through the one path and the other."""
    _, path = stored
    array = aa.open(path, variables=["v"])["v"]
    chain = array.lazy[data.draw(st.slices(7)), data.draw(st.slices(10)), ::2].flip(array.dimensions[0])
    chain = chain.astype("f8").transpose(*data.draw(st.permutations(array.dimensions)))
    raw = np.ma.filled(array.read(masked=True).astype("f8"), np.nan)
    result = chain[:]
    chunk_tables.clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "find_chunk_index", lambda *args: None)
        np.testing.assert_array_equal(result, chain[:])
    assert result.size == 0 or np.isin(result[~np.isnan(result)], raw).all()


def test_packed_values_in_other_units(tmp_path: Path, direct: list[Any]) -> None:
    for number, (dtype, scale, offset) in enumerate((("i2", 0.5, 10.0), ("u1", 0.25, 0.0), ("i4", 1.0, -3.0))):
        with netCDF4.Dataset(tmp_path / f"{number}.nc", "w") as file:
            file.createDimension("time", None)
            time = file.createVariable("time", "f8", ("time",))
            time.units, time[:] = "days since 2000-01-01", np.arange(4) + 4 * number
            v = file.createVariable("v", dtype, ("time",), chunksizes=(3,), compression="zlib", fill_value=7)
            v.setncatts({"scale_factor": scale, "add_offset": offset, "units": ("K", "degC", "K")[number]})
            v[:] = np.ma.array(offset + scale * np.arange(4), mask=[0, 1, 0, 0])
    result = aa.open(tmp_path)["v"].read(masked=True)
    assert direct
    expected = []
    for number in range(3):
        with netCDF4.Dataset(tmp_path / f"{number}.nc") as file:
            expected.append(file["v"][:].astype("f8") + (273.15 if number == 1 else 0))
    np.testing.assert_allclose(result, np.ma.concatenate(expected), rtol=1e-12)


def test_damaged_chunks_are_named(tmp_path: Path) -> None:
    path = tmp_path / "v.nc"
    hdf5(path, "f4", chunks=(2, 5, 6), compression="gzip", fletcher32=True)
    with h5py.File(path) as file:
        at = file["v"].id.get_chunk_info(3)
        index = ", ".join(str(start // side) for start, side in zip(at.chunk_offset, (2, 5, 6), strict=True))
    content = bytearray(path.read_bytes())
    content[at.byte_offset + at.size // 2] ^= 0xFF
    path.write_bytes(bytes(content))
    with pytest.raises(aa.FormatError, match=rf"fletcher32.*, in chunk \[{index}\] at byte {at.byte_offset}.*'v' in .*v\.nc"):
        aa.open(path)["v"][:]
    os.truncate(path, at.byte_offset + 1)
    chunk_tables.clear()
    with pytest.raises(aa.FormatError, match=r"v\.nc"):
        aa.SubArray.from_file(path, "v").read()


def test_few_elements_are_gathered(tmp_path: Path, direct: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "v.nc"
    raw = np.random.default_rng(0).normal(size=(40, 50, 60)).astype("f4")
    with h5py.File(path, "w") as file:
        file.create_dataset("v", data=raw, chunks=(10, 50, 60), compression="gzip", shuffle=True)
    a = aa.open(path)["v"]
    np.testing.assert_array_equal(a[:, 7, [3, 50]], raw[:, 7, [3, 50]])
    np.testing.assert_array_equal(a[5, ::9, 2], raw[5, ::9, 2])


def test_chunks_that_are_kept(tmp_path: Path, direct: list[Any]) -> None:
    path = tmp_path / "v.nc"
    hdf5(path, "f4", chunks=(2, 5, 6), compression="gzip")
    with aa.set_options(cache_bytes=1 << 20):
        a = aa.open(path)["v"]
        first = a[:]
        counts = len(decoded_chunks._items)
        np.testing.assert_array_equal(a[:], first)
        assert counts == 8 == len(decoded_chunks._items)
        hdf5(path, "f4", chunks=(7, 10, 6), compression="gzip")
        np.testing.assert_array_equal(aa.open(path)["v"][:], first)
    decoded_chunks.clear()


@pytest.mark.heavy
def test_a_read_takes_little_beside_its_output(tmp_path: Path) -> None:
    path = tmp_path / "v.nc"
    raw = np.random.default_rng(0).integers(0, 9, (40, 500, 500)).astype("i2")
    with h5py.File(path, "w") as file:
        data = file.create_dataset("v", data=raw, chunks=(1, 500, 500), compression="gzip", shuffle=True)
        data.attrs.update({"scale_factor": 0.5, "_FillValue": np.int16(3)})
    a = aa.open(path)["v"]
    a[0]
    tracemalloc.start()
    try:
        result = a.read(threads=2)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak - result.nbytes < 64 << 20
    np.testing.assert_array_equal(np.nan_to_num(result, nan=1.5), raw * 0.5)


@given(
    selection=st.one_of(
        st.tuples(st.integers(0, 60), st.integers(1, 9), st.integers(0, 20)),
        st.sets(st.integers(0, 99), max_size=20),
    ),
    chunk=st.integers(1, 30),
)
def test_runs_cover_a_selection(selection: Any, chunk: int) -> None:
    if isinstance(selection, tuple):
        start, step, count = selection
        chosen: Any = slice(start, start + (count - 1) * step + 1 if count else start, step)
        expected = np.arange(chosen.start, chosen.stop, chosen.step)
    else:
        chosen = expected = np.array(sorted(selection), np.int64)
    result = np.full(len(expected), -1)
    for run in runs_along(chosen, chunk):
        local = np.arange(chunk)[run.local]
        result[run.out] = run.chunk * chunk + local
    np.testing.assert_array_equal(result, expected)


def test_planes_of_another_size_than_the_elements(tmp_path: Path) -> None:
    """Zarr's shuffle may be told any size; four bytes is its default."""
    import numcodecs

    group = zarr.open_group(str(tmp_path / "s.zarr"), mode="w", zarr_format=2)
    array = group.create_array(
        "v", shape=(64,), chunks=(64,), dtype="f8", fill_value=-1, filters=[numcodecs.Shuffle(4)], compressors=numcodecs.Zlib()
    )
    array[:] = np.arange(64)
    v = aa.open(tmp_path / "s.zarr")["v"]
    assert v[5] == 5 and v[60:63].tolist() == [60, 61, 62] and v[:].tolist() == list(range(64))


@pytest.mark.parametrize("how", [{}, {"shards": (50,)}, {"compressors": None}])
def test_chunks_of_a_store_that_are_written_later(tmp_path: Path, how: dict[str, Any]) -> None:
    group = zarr.open_group(str(tmp_path / "t.zarr"), mode="w")
    array = group.create_array("v", shape=(100,), chunks=(10,), dtype="f4", dimension_names=["t"], **how)
    array[:50] = 1
    v = aa.open(tmp_path / "t.zarr")["v"]
    with aa.set_options(cache_bytes=1 << 20):
        assert v[...].sum() == 50
        array[50:] = 2
        array[:10] = 7
        assert v[...].sum() == 210
    if not how:
        os.remove(tmp_path / "t.zarr" / "v" / "c" / "3")
        assert v[...].sum() == 200


def test_a_file_replaced_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "v.nc"
    hdf5(path, "f4", chunks=SHAPE, compression="gzip")
    v = aa.open(path)["v"]
    read_stored = reading.read_stored

    def late(*arguments: Any) -> None:
        hdf5(tmp_path / "other.nc", "f4")
        os.replace(tmp_path / "other.nc", path)
        read_stored(*arguments)

    monkeypatch.setattr(reading, "read_stored", late)
    with pytest.raises(aa.FormatError, match=r"v\.nc"):
        v[:]


def test_a_column_of_contiguous_values_is_no_read_per_row(tmp_path: Path, direct: list[Any]) -> None:
    path = tmp_path / "v.nc"
    with h5py.File(path, "w") as file:
        file.create_dataset("v", data=np.arange(64 * 128 * 256, dtype="i2").reshape(64, 128, 256))
    v = aa.open(path)["v"]
    np.testing.assert_array_equal(v[:, :, 5], np.arange(64 * 128 * 256, dtype="i2").reshape(64, 128, 256)[:, :, 5])
    assert sum(map(len, direct)) < 10


@pytest.mark.parametrize("height", [128, 32])
@pytest.mark.parametrize("key", [..., np.s_[1:], np.s_[:, :, ::-1], np.s_[::2], np.s_[3:5, 1:]], ids=str)
def test_chunks_in_a_row_are_decoded_together(key: Any, height: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = np.random.default_rng(6).random((9, 128, 512), np.float32)
    expected[:, 5] = 1e20
    with netCDF4.Dataset(tmp_path / "steps.nc", "w") as file:
        for name, size in zip("tyx", expected.shape, strict=True):
            file.createDimension(name, size)
        file.createVariable("v", "f4", tuple("tyx"), zlib=True, chunksizes=(1, height, 512), fill_value=1e20)[:] = expected
    expected[:, 5] = np.nan
    array = aa.open(tmp_path / "steps.nc")["v"]
    numbers: list[int] = []
    placed: list[bool] = []
    decode, place = chunk_blocks.decode_all, chunk_blocks._decode_in_place
    monkeypatch.setattr(chunk_blocks, "decode_all", lambda f, parts, out: (numbers.append(len(parts)), decode(f, parts, out)))
    monkeypatch.setattr(chunk_blocks, "_decode_in_place", lambda *a: placed.append(place(*a)) or placed[-1])
    np.testing.assert_array_equal(array.read(key, threads=1), expected[key])
    in_a_row = key is ... or key in (np.s_[1:], np.s_[::2])
    assert all(placed) == in_a_row
    if in_a_row:
        count, together = len(expected[key]) * 128 // height, (1 << 20) // (height * 2048)
        assert sorted(numbers, reverse=True) == [together] * (count // together) + [count % together] * (count % together > 0)
