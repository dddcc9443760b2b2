"""Kerchunk references to chunks with filters in any order."""

import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numcodecs
import numpy as np
import pytest
import zarr
from h5py import h5d, h5p, h5s, h5t, h5z
from hypothesis import example, given, reject
from hypothesis import strategies as st

import aggarray as aa

pytestmark = pytest.mark.quick

fsspec = pytest.importorskip("fsspec")

#: Chunks divide the shape: HDF5 may skip the filters of edge chunks.
SHAPE, CHUNK = (8, 10), (4, 5)
#: Filters by name, as h5py sets them. Filters without a codec are declared, but not applied.
FILTERS: dict[str, Callable[[Any], None]] = {
    "shuffle": lambda p: p.set_shuffle(),
    "fletcher32": lambda p: p.set_fletcher32(),
    "deflate": lambda p: p.set_deflate(4),
    "zstd": lambda p: p.set_filter(32015, h5z.FLAG_OPTIONAL, (3,)),
    "lzf": lambda p: p.set_filter(32000, h5z.FLAG_OPTIONAL, ()),
    "nbit": lambda p: p.set_filter(5, h5z.FLAG_OPTIONAL, ()),
    "scaleoffset": lambda p: p.set_scaleoffset(h5z.SO_INT, 0),
    "lz4": lambda p: p.set_filter(32004, h5z.FLAG_OPTIONAL, (0,)),
    "bitshuffle": lambda p: p.set_filter(32008, h5z.FLAG_OPTIONAL, (0, 4, 4, 0, 2)),
    "szip": lambda p: p.set_szip(h5z.SZIP_NN_OPTION_MASK, 4),
}
REFERRED = {"shuffle", "fletcher32", "deflate", "zstd"}


def create(path: Path, dtype: str, order: Sequence[str], content: np.ndarray) -> None:
    """Write a dataset with filters in a given order."""
    with h5py.File(path, "w") as file:
        made = h5p.create(h5p.DATASET_CREATE)
        made.set_chunk(CHUNK)
        for name in order:
            FILTERS[name](made)
        dataset = h5d.create(file.id, b"x", h5t.py_create(np.dtype(dtype)), h5s.create_simple(SHAPE), made)
        for at in np.ndindex(*(-(-n // c) for n, c in zip(SHAPE, CHUNK, strict=True))):
            start = tuple(i * c for i, c in zip(at, CHUNK, strict=True))
            part = np.zeros(CHUNK, dtype)
            there = content[tuple(slice(s, s + c) for s, c in zip(start, CHUNK, strict=True))]
            part[tuple(slice(n) for n in there.shape)] = there
            dataset.write_direct_chunk(start, encoded(part, order))


def encoded(chunk: np.ndarray, order: Sequence[str]) -> bytes:
    """Return a chunk as HDF5 stores it."""
    data = chunk.tobytes()
    for name in order:
        if name == "shuffle":
            whole = len(data) // chunk.itemsize * chunk.itemsize
            data = np.frombuffer(data[:whole], np.uint8).reshape(-1, chunk.itemsize).T.tobytes() + data[whole:]
        elif name == "fletcher32":
            data = bytes(numcodecs.Fletcher32().encode(data))
        elif name == "deflate":
            data = zlib.compress(data)
        elif name == "zstd":
            data = bytes(numcodecs.Zstd().encode(data))
    return data


def by_zarr(references: dict[str, Any]) -> np.ndarray:
    """Return the values that zarr-python reads through the reference file system of fsspec."""
    fs = fsspec.filesystem("reference", fo=references, asynchronous=True, skip_instance_cache=True)
    group: Any = zarr.open_group(zarr.storage.FsspecStore(fs, path=""), mode="r", zarr_format=2)
    return np.asarray(group["x"][...])


def reason(path: Path) -> str:
    """Return the reason for which references are refused, "" without one."""
    try:
        aa.open(path).to_kerchunk()
    except aa.AggregationError as error:
        return str(error)
    return ""


def order_of(path: Path) -> list[str]:
    """Return the names of the filters in HDF5's order."""
    with h5py.File(path) as file:
        made = file["x"].id.get_create_plist()
        return [made.get_filter(n)[3].decode().split(";")[0] for n in range(made.get_nfilters())]


def contents(dtype: str) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    kind = np.dtype(dtype)
    numbers = rng.integers(0, 100, SHAPE).astype(dtype)
    noise = np.frombuffer(rng.bytes(80 * kind.itemsize), kind).reshape(SHAPE) if kind.kind in "iu" else numbers
    ones = np.full(SHAPE, np.iinfo(kind).max if kind.kind in "iu" else -1, dtype)
    return {"numbers": numbers, "zeros": np.zeros(SHAPE, dtype), "noise": noise, "ones": ones}


@given(
    dtype=st.sampled_from(["<f8", ">f8", "<f4", "<i2", ">i4", "u1", "<u8"]),
    order=st.lists(st.sampled_from([*FILTERS, *REFERRED]), max_size=4),
    what=st.sampled_from(["numbers", "zeros", "noise", "ones"]),
)
@example("<f8", ["fletcher32", "shuffle"], "numbers")
@example("<f8", ["shuffle", "fletcher32"], "ones")
@example("<f8", ["deflate", "shuffle"], "numbers")
@example("<f4", ["fletcher32", "shuffle", "deflate", "fletcher32"], "zeros")
@example("<f8", ["fletcher32", "fletcher32", "shuffle"], "numbers")
@example("u1", ["deflate", "shuffle", "zstd"], "numbers")
def test_every_order_of_filters(tmp_path_factory: pytest.TempPathFactory, dtype: str, order: list[str], what: str) -> None:
    path = tmp_path_factory.mktemp("filters") / "a.h5"
    content = contents(dtype)[what]
    create(path, dtype, order, content)
    why = reason(path)
    if why:
        assert why.startswith("no kerchunk references: partition (0, 0)") and "a.h5" in why and "variable 'x'" in why
        assert not set(order) <= REFERRED or "shuffle" in order, why
        return
    assert set(order) <= REFERRED, order
    np.testing.assert_array_equal(by_zarr(aa.open(path).to_kerchunk()), content)


@pytest.mark.parametrize(
    ("dtype", "order", "words"),
    [
        ("<f8", ["fletcher32", "shuffle"], "shuffle of elements of 8 bytes after fletcher32, which gives 164 bytes"),
        ("<f4", ["deflate", "shuffle"], "after deflate, which gives a varying number of bytes"),
        ("<f8", ["zstd", "fletcher32", "shuffle"], "after zstd, fletcher32, which gives a varying number"),
        ("<f8", ["lzf"], "filter lzf has no codec in numcodecs"),
        ("<f8", ["lz4"], "filter lz4_hdf5 has no codec in numcodecs"),
        ("<f4", ["bitshuffle"], "filter bitshuffle has no codec in numcodecs"),
        ("<i4", ["scaleoffset"], "only its library reads"),
        ("<i4", ["nbit"], "only its library reads"),
        ("<f8", ["shuffle", "fletcher32"], ""),
        ("<f4", ["fletcher32", "shuffle"], ""),
        ("<f8", ["fletcher32", "fletcher32", "shuffle", "deflate"], ""),
        ("u1", ["deflate"], ""),
    ],
)
def test_reasons(tmp_path: Path, dtype: str, order: list[str], words: str) -> None:
    content = contents(dtype)["numbers"]
    create(tmp_path / "a.h5", dtype, order, content)
    why = reason(tmp_path / "a.h5")
    assert words in why and bool(words) == bool(why)
    if not why:
        np.testing.assert_array_equal(by_zarr(aa.open(tmp_path / "a.h5").to_kerchunk()), content)


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("fletcher32", [False, True])
@pytest.mark.parametrize("compression", ["zlib", "zstd", "blosc_lz4", "blosc_zstd", "szip", "bzip2"])
def test_what_netcdf4_writes(tmp_path: Path, compression: str, fletcher32: bool, shuffle: bool) -> None:
    content = contents("<f8")["numbers"]
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as file:
        file.createDimension("y", SHAPE[0])
        file.createDimension("x0", SHAPE[1])
        how = {"compression": compression, "shuffle": shuffle, "fletcher32": fletcher32, "chunksizes": CHUNK}
        if compression == "szip":
            how["szip_pixels_per_block"] = 4
        try:
            made = file.createVariable("x", "f8", ("y", "x0"), **how)
        except (RuntimeError, ValueError) as error:
            pytest.skip(f"netCDF4 lacks {compression}: {error}")
        made[:] = content
    why = reason(tmp_path / "a.nc")
    if order_of(tmp_path / "a.nc")[:2] == ["fletcher32", "shuffle"]:
        assert "after fletcher32, which gives 164 bytes" in why
        return
    if compression == "szip":
        assert "filter szip has no codec" in why or "only its library reads" in why
        return
    assert not why
    np.testing.assert_array_equal(by_zarr(aa.open(tmp_path / "a.nc").to_kerchunk()), content)


CODECS: dict[str, Callable[[int], Any]] = {
    "shuffle": numcodecs.Shuffle,
    "fletcher32": lambda _: numcodecs.Fletcher32(),
    "zlib": lambda _: numcodecs.Zlib(3),
    "gzip": lambda _: numcodecs.GZip(3),
    "zstd": lambda _: numcodecs.Zstd(3),
    "blosc": lambda _: numcodecs.Blosc("zstd"),
    "lz4": lambda _: numcodecs.LZ4(),
    "crc32": lambda _: numcodecs.CRC32(),
    "adler32": lambda _: numcodecs.Adler32(),
    "bz2": lambda _: numcodecs.BZ2(),
}


@given(
    dtype=st.sampled_from(["<f8", ">f4", "<i2", "u1"]),
    order=st.lists(st.sampled_from([*CODECS]), max_size=4),
    compressed=st.booleans(),
)
@example("<f8", ["fletcher32", "fletcher32", "shuffle"], True)
@example("<f8", ["shuffle", "zstd"], False)
def test_every_order_of_a_store(
    tmp_path_factory: pytest.TempPathFactory, dtype: str, order: list[str], compressed: bool
) -> None:
    """Every order that zarr-python itself writes and reads."""
    path = tmp_path_factory.mktemp("filters") / "a.zarr"
    content, steps = contents(dtype)["numbers"], [CODECS[name](np.dtype(dtype).itemsize) for name in order]
    group = zarr.open_group(path, mode="w", zarr_format=2)
    how: dict[str, Any] = {"compressors": steps.pop() if compressed and steps else None}
    made = group.create_array("x", shape=SHAPE, chunks=CHUNK, dtype=dtype, filters=steps or None, fill_value=0, **how)
    made.attrs["_ARRAY_DIMENSIONS"] = ["y", "x0"]
    try:
        made[...] = content
        np.testing.assert_array_equal(made[...], content)
    except Exception:  # shuffle and other codecs raise different errors for some sizes
        reject()
    why = reason(path)
    if why:
        assert "no kerchunk reference" in why and "a.zarr" in why
        assert "shuffle" in order or not set(order) <= {"fletcher32", "zlib", "gzip", "zstd", "blosc", "lz4"}, why
        return
    np.testing.assert_array_equal(by_zarr(aa.open(path).to_kerchunk()), content)
