"""Tests of HDF5 chunks with any filters, repeated, in any order, some skipped.

Oracle: h5py, which writes and reads the files with HDF5's own filters. HDF5 reads chunks that are not read directly. Chunks
that it reads never raise an error.
"""

import bz2
import zlib
from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import aggarray as aa
from aggarray.codecs import Filter, decode
from aggarray.formats import open_file

pytestmark = pytest.mark.quick

pytest.importorskip("imagecodecs")

DEFLATE, SHUFFLE, FLETCHER32, LZF = h5py.h5z.FILTER_DEFLATE, h5py.h5z.FILTER_SHUFFLE, h5py.h5z.FILTER_FLETCHER32, 32000
SZIP, NBIT, SCALEOFFSET = h5py.h5z.FILTER_SZIP, h5py.h5z.FILTER_NBIT, h5py.h5z.FILTER_SCALEOFFSET
EC, NN = 4, 32
TYPES = ["<i1", "<u2", ">i2", "<i4", ">u4", "<f4", ">f4", "<f8", ">f8", "<i8"]


def pipeline(
    file: h5py.File, name: str, values: np.ndarray, chunk: tuple[int, ...], steps: list[tuple[int, Any]]
) -> h5py.Dataset:
    """Write values through filters, (number, values), in that order. HDF5 skips optional filters that do not compress."""
    made = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    made.set_chunk(chunk)
    for code, parameters in steps:
        if code == SCALEOFFSET:
            made.set_scaleoffset(*parameters)
        elif code == SZIP:
            made.set_szip(*parameters)
        else:
            made.set_filter(code, h5py.h5z.FLAG_OPTIONAL, parameters)
    kind, space = h5py.h5t.py_create(values.dtype, logical=True), h5py.h5s.create_simple(values.shape)
    dataset = h5py.Dataset(h5py.h5d.create(file.id, name.encode(), kind, space, made))
    dataset[...] = values
    return dataset


def same(path: Path, name: str = "x") -> bool:
    """Return whether a dataset is read as by h5py: all of it, and a part."""
    with h5py.File(path) as file:
        expected = file[name][...]
    array = aa.open(path)[name]
    part = tuple(slice(n // 3, None, 2) for n in expected.shape)
    return np.array_equal(array.read(), expected, equal_nan=True) and np.array_equal(
        array[part], expected[part], equal_nan=True
    )


@st.composite
def smooth(draw: st.DrawFn, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    """Draw compressible values."""
    pattern = draw(st.sampled_from(["zeros", "steps", "noise"]))
    count = int(np.prod(shape))
    numbers = np.arange(count) // 7 % 50 if pattern == "steps" else np.zeros(count)
    if pattern == "noise":
        numbers = np.random.default_rng(draw(st.integers(0, 9))).integers(0, 1 << draw(st.integers(1, 6)), count)
    return numbers.reshape(shape).astype(dtype)


DEFLATED = st.tuples(st.just(DEFLATE), st.tuples(st.integers(0, 9)))
PLAIN = st.one_of(DEFLATED, *(st.tuples(st.just(code), st.just(())) for code in (SHUFFLE, FLETCHER32, LZF)))
SZIPPED = st.tuples(st.just(SZIP), st.tuples(st.sampled_from([EC, NN]), st.integers(1, 16).map(lambda n: 2 * n)))
#: Filters that must be first: HDF5 crashes on szip of data that is not as long as the values.
FIRST = st.one_of(
    st.just(()),
    st.tuples(SZIPPED),
    st.tuples(st.just((SHUFFLE, ())), SZIPPED),
    st.just(((NBIT, ()),)),
    st.just(((SCALEOFFSET, (h5py.h5z.SO_INT, 0)),)),
)


@given(st.data())
def test_filters_in_any_order_and_more_than_once(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = tmp_path_factory.mktemp("p") / "a.h5"
    dtype = np.dtype(data.draw(st.sampled_from(TYPES)))
    shape = tuple(data.draw(st.lists(st.integers(1, 40), min_size=1, max_size=3)))
    chunk = tuple(data.draw(st.integers(1, n)) for n in shape)
    steps = [*data.draw(FIRST), *data.draw(st.lists(PLAIN, max_size=4))]
    values = data.draw(smooth(shape, dtype))
    with h5py.File(path, "w", libver=data.draw(st.sampled_from(["earliest", "latest"]))) as file:
        try:
            pipeline(file, "x", values, chunk, steps)
        except (ValueError, OSError):
            return  # blocks of szip that are larger than the chunk, or scaling that does not apply to the values
    assert same(path)


@given(st.data())
def test_chunks_whose_filters_were_skipped(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Each chunk has its own filter mask. h5py reads what this test encodes."""
    path = tmp_path_factory.mktemp("p") / "a.h5"
    dtype = np.dtype(data.draw(st.sampled_from(TYPES)))
    # HDF5 passes the element size to the first shuffle only, and skips the others.
    steps = data.draw(st.permutations([DEFLATE, DEFLATE, SHUFFLE, DEFLATE]))[: data.draw(st.integers(1, 4))]
    with h5py.File(path, "w") as file:
        made = [(code, (1,) if code == DEFLATE else ()) for code in steps]
        dataset = pipeline(file, "x", np.zeros((20, 6), dtype), (5, 6), made)
        for row in range(0, 20, 5):
            mask = data.draw(st.integers(0, (1 << len(steps)) - 1))
            stored = data.draw(smooth((5, 6), dtype)).tobytes()
            for number, code in enumerate(steps):
                if not mask >> number & 1:
                    stored = zlib.compress(stored, 1) if code == DEFLATE else shuffled(stored, dtype.itemsize)
            dataset.id.write_direct_chunk((row, 0), stored, mask)
    assert same(path)


def shuffled(data: bytes, itemsize: int) -> bytes:
    end = len(data) // itemsize * itemsize
    return np.frombuffer(data[:end], "u1").reshape(-1, itemsize).T.tobytes() + data[end:]


@pytest.mark.parametrize("times", [1, 2, 3])
@pytest.mark.parametrize("shape", [(10,), (1000, 1000)], ids=["few", "many"])
def test_highly_compressible_data_is_compressed_repeatedly(tmp_path: Path, times: int, shape: tuple[int, ...]) -> None:
    values = np.full(shape, 7, "<i4")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        pipeline(file, "x", values, shape, [(DEFLATE, (9,))] * times)
        pipeline(file, "y", values, shape, [(SHUFFLE, ()), (DEFLATE, (9,)), (FLETCHER32, ())] * times)
        stored = file["x"].id.read_direct_chunk((0,) * len(shape))[1]
        assert times == 1 or len(shape) == 1 or len(stored) < values.nbytes // 10_000
    assert same(tmp_path / "a.h5", "x") and same(tmp_path / "a.h5", "y")


#: Chunks of the szip library, from HDF5's own tests: type, shape of a chunk, parameters, stored bytes.
SZIP_ITSELF = {
    "big-endian": (
        *(">f4", (4, 3), (177, 4, 32, 12)),
        "3000000027c709e7d56ac055f80545354eacaaadffea803feabffd57fd57a9aaa9a9f5601ff57ffeaffeafd555d55480",
    ),
    "little-endian": (
        *("<f4", (4, 3), (169, 4, 32, 12)),
        "30000000f5601ff57ffeaffeafd555d554faa00ffaafff55ff55ea6aaa6a7d56ac055f80545354eacaaadfe4f8e13c80",
    ),
    "filled up": ("<i4", (10,), (168, 4, 32, 10), "28000000200924924938001000200040"),
}


@pytest.mark.parametrize("name", SZIP_ITSELF)
def test_szip_of_its_own_library(tmp_path: Path, name: str) -> None:
    """The library pads streams with unused bytes, and has blocks of any even number of pixels."""
    dtype, chunk, parameters, stored = SZIP_ITSELF[name]
    with h5py.File(tmp_path / "a.h5", "w") as file:
        dataset = pipeline(file, "x", np.zeros(chunk, dtype), chunk, [(SZIP, (parameters[0] & (EC | NN) or EC, 4))])
        assert dataset.id.get_create_plist().get_filter(0)[2][1:] == parameters[1:]
        dataset.id.write_direct_chunk((0,) * len(chunk), bytes.fromhex(stored))
    assert same(tmp_path / "a.h5") and open_file(tmp_path / "a.h5").chunks("x") is not None


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("block", [2, 4, 6, 10, 16, 30, 32])
@pytest.mark.parametrize("coding", [EC, NN])
def test_szip_of_blocks_that_do_not_divide_rows(tmp_path: Path, dtype: str, block: int, coding: int) -> None:
    """Values are read directly, and equal those that were written."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for number, chunk in enumerate([(7, 6), (3, 37), (40,), (1001, 3), (2, 5000)]):
            values = (np.arange(np.prod(chunk)) // 3 % 100).reshape(chunk).astype(dtype)
            pipeline(file, f"x{number}", values, chunk, [(SZIP, (coding, block))])
    agg, handle = aa.open(tmp_path / "a.h5"), open_file(tmp_path / "a.h5")
    for array in agg:
        table = handle.chunks(array.name)
        assert table is not None and [f.name for f in table.filters] == ["szip"]
        assert np.array_equal(array.read().ravel(), (np.arange(array.size) // 3 % 100).astype(array.dtype))
        assert same(tmp_path / "a.h5", array.name)


@pytest.mark.parametrize("times", [1, 3])
def test_bzip2_of_netcdf(tmp_path: Path, times: int) -> None:
    """Oracle: netCDF4, which has the filter. Consecutive streams are joined, as in numcodecs."""
    values = np.arange(3000.0).reshape(60, 50)
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as file:
        file.createDimension("y", 60)
        file.createDimension("x", 50)
        try:
            made = file.createVariable("v", "f8", ("y", "x"), compression="bzip2", chunksizes=(60, 50), shuffle=True)
        except (RuntimeError, ValueError):
            pytest.skip("this netCDF has no bzip2")
        made[...] = values
    table = open_file(tmp_path / "a.nc").chunks("v")
    assert table is not None and [f.name for f in table.filters][-1] == "bz2"
    assert np.array_equal(aa.open(tmp_path / "a.nc")["v"].read(), values)
    parts = b"".join(bz2.compress(part.tobytes()) for part in np.split(values, times))
    assert decode((Filter("bz2"),), parts, values.nbytes).tobytes() == values.tobytes()
