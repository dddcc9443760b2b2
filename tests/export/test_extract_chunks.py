"""`extract`: chunk sizes, shards, and their errors."""

from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import pytest
import xarray as xr
import zarr
from hypothesis import given
from hypothesis import strategies as st

import aggarray as aa
from aggarray.export.extract import extract, is_extracted, pieces
from tests.support.netcdf import cube, write

LATS, LONS = np.linspace(-40, 40, 9), np.linspace(0, 130, 14)


@pytest.fixture
def tas(tmp_path: Path) -> aa.MasterArray:
    """An array of 30 times of three files."""
    files = [write(tmp_path / "data" / f"{n}.nc", cube(np.arange(10) + 10 * n, LATS, LONS)) for n in range(3)]
    return aa.open(files)["tas"]


def check_values(out: Path, tas: aa.MasterArray) -> None:
    """Compare values according to xarray, aggarray, and zarr or netCDF4 and h5py."""
    expected = tas[...]
    with xr.open_dataset(out, engine="zarr" if out.suffix == ".zarr" else "netcdf4") as result:
        np.testing.assert_array_equal(result.tas.values, expected)
        np.testing.assert_array_equal(result.time.values, tas.coords["time"].datetimes())
    again = aa.open(out)["tas"]
    np.testing.assert_array_equal(again[...], expected)
    np.testing.assert_array_equal(again[7:23:5, ::-2, 3], expected[7:23:5, ::-2, 3])
    if out.suffix == ".zarr":
        np.testing.assert_array_equal(zarr.open_group(out, mode="r")["tas"][...], expected)
        return
    with netCDF4.Dataset(out) as file, h5py.File(out) as stored:
        np.testing.assert_array_equal(file["tas"][...], expected)
        np.testing.assert_array_equal(stored["tas"][...], expected)


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        ({"time": 4, "lat": 5}, (4, 5, 14)),
        ({"time": -1}, (30, 9, 14)),
        ({"time": 7, "lat": 100, "lon": 3}, (7, 9, 3)),
        ({"time": 365}, (365, 9, 14)),
    ],
)
@pytest.mark.parametrize("suffix", ["nc", "zarr"])
def test_chunks(tmp_path: Path, tas: aa.MasterArray, suffix: str, chunks: dict[str, int], expected: tuple[int, ...]) -> None:
    """Only the time, which may grow, may be shorter than a chunk. Coordinates are one chunk."""
    out = tmp_path / f"out.{suffix}"
    extract(tas, out, chunks=chunks)
    check_values(out, tas)
    if suffix == "zarr":
        group = zarr.open_group(out, mode="r")
        assert group["tas"].chunks == expected and group["lat"].chunks == (9,) and group["time"].chunks == (512,)
        return
    with netCDF4.Dataset(out) as file:
        assert file["tas"].chunking() == list(expected) and file["lat"].chunking() == "contiguous"


@pytest.mark.parametrize("suffix", ["nc", "zarr"])
def test_chunks_are_part_of_what_is_up_to_date(tmp_path: Path, tas: aa.MasterArray, suffix: str) -> None:
    out = tmp_path / f"out.{suffix}"
    extract(tas, out)
    assert is_extracted(tas, out) and not is_extracted(tas, out, chunks={"time": 4})
    extract(tas, out, chunks={"time": 4}, exists="update")
    assert extract(tas, out, chunks={"time": 4}).unchanged and not is_extracted(tas, out)


@pytest.mark.parametrize("block", [1, 3000, 1 << 20])
@pytest.mark.parametrize("compress", [None, "none", "zstd:1", "gzip:2", "blosc_lz4"])
def test_shards(tmp_path: Path, tas: aa.MasterArray, compress: str | None, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shards of any number of blocks; the last ones have fewer chunks."""
    monkeypatch.setattr(pieces, "BLOCK", block)
    out = tmp_path / "out.zarr"
    extract(tas, out, chunks={"time": 4, "lat": 5}, shards={"time": 12, "lat": -1}, compress=compress)
    check_values(out, tas)
    array = zarr.open_group(out, mode="r")["tas"]
    assert (array.chunks, array.shards) == ((4, 5, 14), (12, 10, 14))
    files = {str(p.relative_to(out / "tas" / "c")) for p in (out / "tas" / "c").rglob("*") if p.is_file()}
    assert files == {"0/0/0", "1/0/0", "2/0/0"}


def test_a_chunk_that_was_not_given_divides_the_shard(tmp_path: Path, tas: aa.MasterArray) -> None:
    for shards, expected in (({"time": 365}, (5, 365)), ({"time": 7}, (7, 7)), ({"time": -1}, (30, 30))):
        extract(tas, tmp_path / "out.zarr", shards=shards, exists="overwrite")
        array = zarr.open_group(tmp_path / "out.zarr", mode="r")["tas"]
        assert (array.chunks[0], array.shards[0]) == expected
        check_values(tmp_path / "out.zarr", tas)


def test_damage_to_a_shard_is_an_error(tmp_path: Path, tas: aa.MasterArray) -> None:
    extract(tas, tmp_path / "out.zarr", chunks={"time": 4}, shards={"time": 12}, compress="none")
    shard = tmp_path / "out.zarr" / "tas" / "c" / "0" / "0" / "0"
    whole = shard.read_bytes()
    for at in range(0, len(whole), 1 + len(whole) // 30):
        shard.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(aa.FormatError, match=r"'tas'.*out\.zarr|out\.zarr.*"):
            aa.open(tmp_path / "out.zarr")["tas"][...]


def test_shards_are_resumed_and_written_block_by_block(
    tmp_path: Path, tas: aa.MasterArray, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "BLOCK", 4 * 9 * 14 * 4)
    sizes, read, limit = list[int](), pieces.Variable.values, 5

    def stopping(self: Any, key: Any) -> Any:
        values = read(self, key)
        sizes.append(values.nbytes)
        if len(sizes) == limit:
            raise aa.FormatError("stopped")
        return values

    monkeypatch.setattr(pieces.Variable, "values", stopping)
    how: dict[str, Any] = {"chunks": {"time": 2}, "shards": {"time": 12}}
    with pytest.raises(aa.FormatError, match="stopped"):
        extract(tas, tmp_path / "out.zarr", **how)
    limit = 0
    assert extract(tas, tmp_path / "out.zarr", **how).resumed == 12 * 9 * 14 * 4
    assert max(sizes) <= pieces.BLOCK
    check_values(tmp_path / "out.zarr", tas)


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"chunks": {"tme": 4}}, "chunks={'tme': 4}: no dimension 'tme'; did you mean 'time'"),
        ({"chunks": {"time": 0}}, "chunks={'time': 0}: 0 is not a chunk size"),
        ({"chunks": {"time": 1.5}}, "1.5 is not a chunk size; give a positive integer"),
        ({"shards": {"lat": True}}, "shards={'lat': True}: True is not a chunk size"),
        ({"chunks": {"time": 30}, "shards": {"time": 365}}, "shards={'time': 365}: not a multiple of the chunk size 30; .*360"),
    ],
)
def test_invalid_sizes(tmp_path: Path, tas: aa.MasterArray, how: dict[str, Any], words: str) -> None:
    with pytest.raises(aa.SelectionError, match=words):
        extract(tas, tmp_path / "out.zarr", **how)
    assert not (tmp_path / "out.zarr").exists()


@pytest.mark.parametrize("suffix", ["nc", "zarr"])
def test_chunks_of_gigabytes(tmp_path: Path, tas: aa.MasterArray, suffix: str) -> None:
    with pytest.raises(aa.SelectionError, match="a chunk has 5040000000 bytes, more than 2147483584"):
        extract(tas, tmp_path / f"out.{suffix}", chunks={"time": 10**7})


def test_netcdf_has_no_shards(tmp_path: Path, tas: aa.MasterArray) -> None:
    with pytest.raises(aa.AggregationError, match=r"shards={'time': 4}: a \.nc file has no shards; write to \.zarr"):
        extract(tas, tmp_path / "out.nc", shards={"time": 4})


@given(
    shape=st.tuples(st.integers(1, 9), st.integers(1, 7)),
    chunk=st.tuples(st.integers(1, 5), st.integers(1, 9)),
    times=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    block=st.sampled_from([1, 64, 1 << 20]),
)
def test_any_shards(shape: Any, chunk: Any, times: Any, block: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    values = np.arange(np.prod(shape), dtype="i4").reshape(shape)
    piece = aa.SubArray.from_array(values, dimensions=("y", "x"))
    array = aa.MasterArray.from_subarrays([([(0, n) for n in shape], piece)], dimensions=("y", "x"), name="a")
    out = tmp_path_factory.mktemp("any") / "out.zarr"
    sides = dict(zip("yx", chunk, strict=True))
    shards = {d: sides[d] * n for d, n in zip("yx", times, strict=True)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces, "BLOCK", block)
        extract(array, out, chunks=sides, shards=shards)
    np.testing.assert_array_equal(zarr.open_group(out, mode="r")["a"][...], values)
    np.testing.assert_array_equal(aa.open(out)["a"][...], values)


@pytest.mark.parametrize(
    ("compress", "cname"),
    [("blosc_lz4", "lz4"), ("blosc_lz4hc:7", "lz4hc"), ("blosc_zlib", "zlib"), ("blosc_lz", "blosclz"), ("blosc_zstd", "zstd")],
)
def test_compressors_in_blosc(tmp_path: Path, tas: aa.MasterArray, compress: str, cname: str) -> None:
    """In netCDF netCDF-C, which chooses the filter, and h5py read the values."""
    extract(tas, tmp_path / "out.nc", compress=compress, chunks={"time": 4})
    check_values(tmp_path / "out.nc", tas)
    with netCDF4.Dataset(tmp_path / "out.nc") as file:
        filters = file["tas"].filters()
        assert filters["blosc"] == {"compressor": f"blosc_{cname.replace('blosclz', 'lz')}", "shuffle": 1}
        assert filters["complevel"] == (7 if ":" in compress else 5) and not filters["shuffle"]
    assert extract(tas.lazy[:20], tmp_path / "part.nc", compress=compress).appended == 0
    assert extract(tas, tmp_path / "part.nc", append=True).appended == 10
    check_values(tmp_path / "part.nc", tas)
    extract(tas, tmp_path / "out.zarr", compress=compress)
    (codec, _) = zarr.open_group(tmp_path / "out.zarr", mode="r")["tas"].compressors
    settings = codec.to_dict()["configuration"]
    assert (settings["cname"], settings["clevel"]) == (cname, 7 if ":" in compress else 5)
    check_values(tmp_path / "out.zarr", tas)


@pytest.mark.parametrize("suffix", ["nc", "zarr"])
def test_gzip_is_zlib(tmp_path: Path, tas: aa.MasterArray, suffix: str) -> None:
    for name in ("gzip", "deflate:4", "GZIP:4"):
        assert name == "gzip" or is_extracted(tas, tmp_path / f"out.{suffix}", compress=name)
        extract(tas, tmp_path / f"out.{suffix}", compress="zlib:4")
    check_values(tmp_path / f"out.{suffix}", tas)
