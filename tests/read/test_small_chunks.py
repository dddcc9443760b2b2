"""Small pieces of many files alike are read together, and give what each by itself would give."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aggarray as aa
import aggarray.read as reading
from aggarray.read import close_files, small_chunks
from aggarray.read.chunk_index import chunk_tables
from tests.support.examples import examples
from tests.support.netcdf import LAT, LON, NOLEAP, TAS, write

pytestmark = pytest.mark.quick

FILES, STEPS, LATS, LONS = 40, 3, 4, 5


def values(number: int) -> np.ndarray:
    """Return what file ``number`` holds, every eleventh value missing."""
    result = (number * 1000 + np.arange(STEPS * LATS * LONS)).reshape(STEPS, LATS, LONS).astype("f4")
    result.ravel()[number % 11 :: 11] = np.nan
    return result


def made(path: Path, number: int) -> None:
    """Write a file in one of several ways: packed, with latitudes downwards, in other units, transposed, chunked, plainly."""
    kind, raw, attrs = number % 8, values(number), {**TAS, "_FillValue": np.float32(-1)}
    lat, dimensions = np.arange(LATS, dtype="f8"), ("time", "lat", "lon")
    raw = np.where(np.isnan(raw), np.float32(-1), raw)
    if kind == 1:
        raw, lat = raw[:, ::-1], lat[::-1]
    elif kind == 2:
        raw, attrs = np.where(raw == -1, -1, raw - 273.15).astype("f8"), {**TAS, "units": "degC", "_FillValue": -1.0}
    elif kind == 3:
        raw, attrs = np.where(raw == -1, -1, raw * 2).astype("i4"), {**TAS, "scale_factor": 0.5, "_FillValue": np.int32(-1)}
    elif kind == 4:
        raw, dimensions = raw.transpose(1, 0, 2), ("lat", "time", "lon")
    given: dict[str, Any] = {
        "time": (("time",), number * STEPS + np.arange(STEPS, dtype="f8"), NOLEAP),
        "lat": (("lat",), lat, LAT),
        "lon": (("lon",), np.arange(LONS, dtype="f8"), LON),
        "tas": (dimensions, raw, attrs),
    }
    write(path, given, format="NETCDF3_CLASSIC" if kind == 5 else "NETCDF4")
    if kind >= 6:
        with h5py.File(path, "r+") as file:
            attrs = dict(file["tas"].attrs)
            del file["tas"]
            how = {"compression": "gzip", "shuffle": kind == 6}
            data = file.create_dataset("tas", data=raw, chunks=(1, 4, 2), maxshape=raw.shape, **how)
            for axis, name in enumerate(dimensions):
                data.dims[axis].attach_scale(file[name])
            data.attrs.update({k: v for k, v in attrs.items() if k not in ("DIMENSION_LIST", "_Netcdf4Coordinates")})


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, np.ndarray]:
    folder = tmp_path_factory.mktemp("archive")
    for number in range(FILES):
        made(folder / f"{number:02}.nc", number)
    aa.open(folder / "*.nc").save(folder / "index.nca")
    return folder, np.concatenate([values(n) for n in range(FILES)])


def keys(size: int) -> Any:
    return st.one_of(st.slices(size), st.integers(-size, size - 1), st.lists(st.integers(0, size - 1), min_size=1, max_size=9))


@settings(max_examples=examples(80))
@given(
    key=st.tuples(keys(FILES * STEPS), keys(LATS), keys(LONS)),
    threads=st.integers(1, 3),
    light=st.booleans(),
    masked=st.booleans(),
    together=st.sampled_from([(1 << 18, 1 << 20, 256), (1 << 18, 500, 256), (0, 0, 0), (1 << 18, 1 << 20, 2)]),
)
def test_any_selection(
    archive: tuple[Path, np.ndarray],
    key: Any,
    threads: int,
    light: bool,
    masked: bool,
    together: tuple[int, int, int],
) -> None:
    folder, expected = archive
    for axis in (2, 1, 0):
        expected = expected[(*(slice(None),) * axis, key[axis])]
    a = aa.open(folder / "index.nca")["tas"]
    with pytest.MonkeyPatch.context() as patch:
        for name, value in zip(("SMALL", "TOGETHER", "MOST"), together, strict=True):
            patch.setattr(small_chunks, name, value)
        patch.setattr(reading, "_LIGHT", 1 << 18 if light else 0)
        patch.setattr(reading, "_MANY", 2)
        result = a.read(key, threads=threads, masked=masked)
    if masked:
        np.testing.assert_array_equal(np.ma.getmaskarray(result), np.isnan(expected))
        result = result.filled(np.nan)
    np.testing.assert_allclose(result, expected, rtol=1e-6)


def alike(folder: Path, **how: Any) -> np.ndarray:
    """Write files that are all alike."""
    for number in range(FILES):
        with h5py.File(folder / f"{number:02}.nc", "w") as file:
            for name, axis in (("time", number + np.arange(1.0)), ("x", np.arange(6.0))):
                file.create_dataset(name, data=axis).make_scale(name)
            file["time"].attrs["units"] = "days since 2000-01-01"
            data = file.create_dataset("v", data=number * 10 + np.arange(6.0)[np.newaxis], chunks=(1, 6), **how)
            data.dims[0].attach_scale(file["time"])
            data.dims[1].attach_scale(file["x"])
    return np.arange(FILES)[:, np.newaxis] * 10 + np.arange(6.0)


def test_they_are_read_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = alike(tmp_path, compression="gzip", shuffle=True)
    counts = []
    put = small_chunks.SmallChunkBatch._put
    monkeypatch.setattr(
        small_chunks.SmallChunkBatch,
        "_put",
        lambda self, outputs, pieces, *of: (counts.append(len(pieces)), put(self, outputs, pieces, *of)),
    )
    a = aa.open(tmp_path / "*.nc")["v"]
    np.testing.assert_array_equal(a.read(threads=1), expected)
    assert counts == [FILES]
    counts.clear()
    np.testing.assert_array_equal(a.read((slice(None, None, -2), 3), threads=2), expected[::-2, 3])
    assert sum(counts) == FILES // 2 and len(counts) <= 2


@pytest.mark.parametrize("key", [..., (slice(None, None, -2), 3)], ids=str)
def test_an_index_locates_the_chunks_of_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: Any) -> None:
    expected = alike(tmp_path, compression="gzip", shuffle=True)
    aa.open(tmp_path / "*.nc").save(tmp_path / "index.nca")
    looked_up = []
    find = reading.find_chunk_index
    monkeypatch.setattr(reading, "find_chunk_index", lambda *which: (looked_up.append(which[1]), find(*which))[1])
    a = aa.open(tmp_path / "index.nca")["v"]
    np.testing.assert_array_equal(a.read(key, threads=1), expected[key])
    assert len(looked_up) == 1


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def change_values(path: Path) -> None:
    before = path.read_bytes()
    after = before.replace(np.float64(7).tobytes(), np.float64(8).tobytes())
    assert len(after) == len(before) and after != before
    path.write_bytes(after)


CHANGES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "other values": (change_values, "was written to"),
    "longer": (lambda path: path.write_bytes(path.read_bytes() + b"\0"), "changed since it was scanned"),
    "shorter": (lambda path: path.write_bytes(path.read_bytes()[:-1]), "changed since it was scanned"),
    "gone": (lambda path: path.unlink(), "no such file"),
    "a pipe": (pipe, "changed since it was scanned"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_indexed_files_that_changed(tmp_path: Path, change: str) -> None:
    alike(tmp_path, compression="gzip")
    aa.open(tmp_path / "*.nc").save(tmp_path / "index.nca")
    a = aa.open(tmp_path / "index.nca")["v"]
    CHANGES[change][0](tmp_path / "07.nc")
    with pytest.raises(aa.FormatError, match=rf"{CHANGES[change][1]}.*variable 'v' in .*07\.nc"):
        a.read(threads=1)


def test_indexed_files_outside_the_roots(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    expected = alike(tmp_path / "in", compression="gzip")
    aa.open(tmp_path / "in" / "*.nc").save(tmp_path / "index.nca")
    (tmp_path / "out").mkdir()
    a = aa.open(tmp_path / "index.nca", roots=[tmp_path / "in"])["v"]
    np.testing.assert_array_equal(a.read(threads=1), expected)
    (tmp_path / "in" / "07.nc").rename(tmp_path / "out" / "07.nc")
    (tmp_path / "in" / "07.nc").symlink_to(tmp_path / "out" / "07.nc")
    with pytest.raises(aa.ForbiddenPathError, match=r"07\.nc"):
        a.read(threads=1)


def test_copies_of_indexed_files_are_read(tmp_path: Path) -> None:
    """Copies have other times; their checksums show that they are the scanned files."""
    expected = alike(tmp_path, compression="gzip")
    aa.open(tmp_path / "*.nc").save(tmp_path / "index.nca")
    for path in tmp_path.glob("*.nc"):
        os.utime(path, (1, 1))
    np.testing.assert_array_equal(aa.open(tmp_path / "index.nca")["v"].read(threads=1), expected)


def test_copies_are_read_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = alike(tmp_path, compression="gzip")
    aa.open(tmp_path / "*.nc").save(tmp_path / "index.nca")
    for path in tmp_path.glob("*.nc"):
        os.utime(path, (1, 1))
    alone, stamped = [], []
    read_alone, read_stamped = reading._MatrixReader.read_alone, small_chunks.read_stamped
    monkeypatch.setattr(reading._MatrixReader, "read_alone", lambda *which: (alone.append(which), read_alone(*which))[1])
    monkeypatch.setattr(small_chunks, "read_stamped", lambda *which: (stamped.append(which), read_stamped(*which))[1])
    np.testing.assert_array_equal(aa.open(tmp_path / "index.nca")["v"].read(threads=1), expected)
    assert not alone and len(stamped) == 1


def test_a_file_that_changes_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alike(tmp_path, compression="gzip")
    aa.open(tmp_path / "*.nc").save(tmp_path / "index.nca")
    pread = os.pread

    def changing(descriptor: int, size: int, offset: int) -> bytes:
        data = pread(descriptor, size, offset)
        if os.path.samestat(os.fstat(descriptor), os.stat(tmp_path / "07.nc")):
            os.utime(tmp_path / "07.nc", (1, 1))
            with open(tmp_path / "07.nc", "ab") as file:
                file.write(b"more")
        return data

    a = aa.open(tmp_path / "index.nca")["v"]
    monkeypatch.setattr(os, "pread", changing)
    with pytest.raises(aa.FormatError, match=r"changed .*variable 'v' in .*07\.nc"):
        a.read(threads=1)


def test_sizes_in_an_index_take_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes and states of a damaged index claim more than the files have."""
    alike(tmp_path, compression="gzip")
    aa.open(tmp_path / "*.nc").save(tmp_path / "index.nca")
    a = aa.open(tmp_path / "index.nca")["v"]
    references = a._matrix.references
    tables = references.tables.load()
    references.stamps[7, 0] = tables.stamps[7, 0] = 1 << 50
    tables.sizes = tables.sizes.astype(np.int64)
    tables.sizes[7] = 1 << 33
    asked, pread = [], os.pread
    monkeypatch.setattr(os, "pread", lambda descriptor, size, offset: (asked.append(size), pread(descriptor, size, offset))[1])
    with pytest.raises(aa.FormatError, match=r"variable 'v' in .*07\.nc"):
        a.read(threads=1)
    assert asked and max(asked) < 1 << 20


@pytest.mark.parametrize("threads", [1, 2])
def test_one_that_is_out_of_the_ordinary_says_so(tmp_path: Path, threads: int) -> None:
    expected = alike(tmp_path, compression="gzip")
    agg = aa.open(tmp_path / "*.nc")
    agg.save(tmp_path / "index.nca")
    a = aa.open(tmp_path / "index.nca", missing="fill")["v"]
    with h5py.File(tmp_path / "07.nc") as file:
        at = file["v"].id.get_chunk_info(0).byte_offset
    data = bytearray((tmp_path / "07.nc").read_bytes())
    damaged = bytes(data[:at] + b"\xff" * 4 + data[at + 4 :])
    # Gone: filled; the others as ever.
    (tmp_path / "07.nc").rename(tmp_path / "07.kept")
    result = a.read(threads=threads, masked=True)
    assert result.mask[7].all() and result.mask.sum() == 6
    np.testing.assert_array_equal(np.delete(result.data, 7, 0), np.delete(expected, 7, 0))
    with pytest.raises(aa.MissingFileError, match=r"no such file.*variable 'v' in .*07\.nc"):
        aa.open(tmp_path / "index.nca")["v"].read(threads=threads)
    # Damaged: an error that names file and chunk.
    (tmp_path / "07.nc").write_bytes(damaged)
    chunk_tables.clear()
    close_files()
    with pytest.raises(aa.FormatError, match=r"changed since it was scanned.*variable 'v' in .*07\.nc"):
        agg["v"].read(threads=threads)
    with pytest.raises(aa.FormatError, match=rf"chunk \[0.*\] at byte {at}.*variable 'v' in .*07\.nc"):
        aa.open(tmp_path / "*.nc")["v"].read(threads=threads)
    # Truncated within the chunk.
    (tmp_path / "07.nc").write_bytes(damaged[: at + 1])
    with pytest.raises(aa.AggarrayError, match=r"07\.nc"):
        agg["v"].read(threads=threads)


def test_chunks_that_are_not_stored(tmp_path: Path) -> None:
    expected = alike(tmp_path, fillvalue=5.0)
    with h5py.File(tmp_path / "09.nc", "r+") as file:
        scales = [file["time"], file["x"]]
        del file["v"]
        data = file.create_dataset("v", shape=(1, 6), dtype="f8", chunks=(1, 6), fillvalue=5.0)
        for axis, scale in enumerate(scales):
            data.dims[axis].attach_scale(scale)
    expected[9] = 5
    np.testing.assert_array_equal(aa.open(tmp_path / "*.nc")["v"].read(threads=1), expected)


def test_conversions_that_fail_name_the_file(tmp_path: Path) -> None:
    for number in range(FILES):
        units = "Tm" if number == 13 else "m"
        data = (("time",), np.array([number], "i4"), {"units": units, "long_name": "length"})
        write(tmp_path / f"{number:02}.nc", {"time": (("time",), [float(number)], NOLEAP), "v": data})
    a = aa.open(tmp_path / "*.nc")["v"]
    with pytest.raises(aa.UnitsError, match=r"value 13000000000000 m is out of range.*variable 'v' in .*13\.nc"):
        a.read(threads=1)
    np.testing.assert_array_equal(a.read(slice(14, None), threads=1), np.arange(14, FILES))


def test_uneven_indices_of_some_files_do_not_join(tmp_path: Path) -> None:
    for number in range(3):
        steps = np.arange(6 * number, 6 * number + 6)
        write(
            tmp_path / f"{number}.nc", {"time": (("time",), steps * 1.0, NOLEAP), "tas": (("time",), steps.astype("f4"), TAS)}
        )
    tas = aa.open(tmp_path)["tas"]
    for key in ([0, 1, 2, 3, 4, 5, 6, 7, 9, 12, 13], [0, 1, 3, 6, 7, 9, 12, 14, 15], [17, 0, 1, 6, 8, 9, 3]):
        np.testing.assert_array_equal(tas.read(key, threads=1), np.array(key, "f4"))


def test_a_batch_of_which_nothing_is_read_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file of a batch fails, as if replaced that moment, and is read by itself instead."""
    for number in range(6):
        write(
            tmp_path / f"{number}.nc", {"time": (("time",), [float(number)], NOLEAP), "tas": (("time",), [number * 1.0], TAS)}
        )
        with h5py.File(tmp_path / f"{number}.nc", "r+") as file:
            del file["tas"]
            data = file.create_dataset("tas", data=np.float32([number]), chunks=(1,), compression="gzip", shuffle=True)
            data.dims[0].attach_scale(file["time"])

    def fails(*arguments: Any) -> None:
        raise aa.FormatError("changed")

    monkeypatch.setattr(small_chunks, "read_ranges", fails)
    assert aa.open(tmp_path)["tas"].read(threads=1).tolist() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<i2"])
@pytest.mark.parametrize("key", [(slice(None), 1, 2), (slice(1, None, 2), slice(None, None, -7), [3, 50]), ...], ids=str)
def test_large_plain_chunks_of_many_files(tmp_path: Path, dtype: str, key: Any) -> None:
    """Chunks of 48 KB and more, of which elements are selected without joining the files."""
    stored = np.arange(5 * 3 * 64 * 64).reshape(5, 3, 64, 64).astype(dtype)
    stored[2, 1, 1, 2] = -1
    for number, part in enumerate(stored):
        with h5py.File(tmp_path / f"{number}.h5", "w") as file:
            file["tas"] = part
            file["tas"].attrs["_FillValue"] = np.array(-1, dtype)
            for axis, values in enumerate((np.arange(3.0) + 3 * number, np.arange(64.0), np.arange(64.0))):
                file[f"x{axis}"] = values
                file[f"x{axis}"].attrs["units"] = "m"
                file[f"x{axis}"].make_scale()
                file["tas"].dims[axis].attach_scale(file[f"x{axis}"])
    aa.open(tmp_path).save(tmp_path / "index.nca")
    whole = np.ma.masked_equal(stored.reshape(15, 64, 64).astype(dtype[1:]), -1)
    expected = whole[key]
    for source in (tmp_path / "index.nca", sorted(tmp_path.glob("*.h5"))):
        array = aa.open(source)["tas"]
        result = array.read(key, masked=True, threads=1)
        assert np.array_equal(result.mask, np.ma.getmaskarray(expected))
        assert np.array_equal(result.compressed(), expected.compressed())
