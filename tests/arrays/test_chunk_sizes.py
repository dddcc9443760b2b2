"""`MasterArray.chunks_for` on files: from an index and without one, chunked in many ways."""

from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pytest

import aggarray as aa
from aggarray import MasterArray, SubArray
from aggarray.read import chunk_index


def write(path: Path, start: int, steps: int, chunks: tuple[int, int, int] | None, **options: Any) -> None:
    """Write ``steps`` days of a variable of 8 by 10 points, 320 bytes a day."""
    with netCDF4.Dataset(path, "w") as file:
        for name, values in (("time", start + np.arange(steps)), ("lat", np.arange(8) * 10.0), ("lon", np.arange(10) * 10.0)):
            file.createDimension(name, len(values))
            file.createVariable(name, "f8", (name,))[:] = values
        file["time"].setncatts({"units": "days since 2001-01-01", "standard_name": "time"})
        file["lat"].units, file["lon"].units = "degrees_north", "degrees_east"
        how = {"contiguous": True} if chunks is None else {"chunksizes": chunks}
        tas = file.createVariable("tas", "f4", ("time", "lat", "lon"), **how, **options)
        tas.units = "K"
        tas[:] = np.arange(steps * 80).reshape(steps, 8, 10) % 97 + start


def archive(folder: Path, *files: tuple[int, tuple[int, int, int] | None], **options: Any) -> tuple[MasterArray, MasterArray]:
    """Return the array of files, given as steps and chunks, opened from the files and from an index."""
    start = 0
    for number, (steps, chunks) in enumerate(files):
        write(folder / f"{number}.nc", start, steps, chunks, **options)
        start += steps
    agg = aa.open(folder / "*.nc")
    agg.save(folder / "index.nca")
    chunk_index.chunk_tables.clear()
    return agg["tas"], aa.open(folder / "index.nca")["tas"]


def test_stored_chunks_are_merged_within_files(tmp_path: Path) -> None:
    for array in archive(tmp_path, (12, (1, 8, 10)), (9, (1, 8, 10)), (4, (1, 8, 10)), zlib=True):
        assert array.chunks_for(10**6) == ((12, 9, 4), (8,), (10,))
        assert array.chunks_for(5 * 320) == ((4, 4, 4, 5, 4, 4), (8,), (10,))
        assert array.chunks_for(1) == ((1,) * 25, (8,), (10,))


def test_chunks_of_points_are_merged_into_rows(tmp_path: Path) -> None:
    for array in archive(tmp_path, (6, (6, 4, 5)), (6, (6, 4, 5)), zlib=True):
        assert array.chunks_for(6 * 4 * 20) == ((6, 6), (4, 4), (5, 5))
        assert array.chunks_for(6 * 4 * 40) == ((6, 6), (4, 4), (10,))
        assert array.lazy[:, ::-1, 3:].chunks_for(1) == ((6, 6), (4, 4), (2, 5))


def test_files_of_different_chunks(tmp_path: Path) -> None:
    for array in archive(tmp_path, (12, (4, 8, 10)), (12, (3, 4, 10)), (12, (12, 8, 5)), zlib=True):
        assert array.chunks_for(1) == ((4, 4, 4, 3, 3, 3, 3, 12), (8,), (10,))


def test_files_of_one_shape_but_different_chunks(tmp_path: Path) -> None:
    files = [(6, (2, 8, 10))] * 2 + [(6, (3, 8, 10))] + [(6, (6, 8, 10))]
    for array in archive(tmp_path, *files, zlib=True):
        assert array.chunks_for(1) == ((2, 2, 2, 2, 2, 2, 3, 3, 6), (8,), (10,))


def test_contiguous_variables_are_cut_into_rows(tmp_path: Path) -> None:
    for array in archive(tmp_path, (12, None), (9, None)):
        assert array.chunks_for(4 * 320) == ((4, 4, 4, 3, 3, 3), (8,), (10,))
        assert array.chunks_for(80) == ((1,) * 21, (2, 2, 2, 2), (10,))


def test_one_large_stored_chunk_stays_whole(tmp_path: Path) -> None:
    for array in archive(tmp_path, (12, (12, 8, 10)), (9, (1, 8, 10)), zlib=True):
        assert array.chunks_for(3 * 320) == ((12, 3, 3, 3), (8,), (10,))


def test_values_that_were_scanned(sample_archive: Path) -> None:
    time = aa.open(sample_archive)["tas"].coords["time"]
    assert sum(time.chunks_for(800)[0]) == 365 and time.chunks_for(10_000, regular=True) == ((365,),)


def test_few_files_are_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    array, indexed = archive(tmp_path, *[(4, (1, 8, 10))] * 30, zlib=True)
    opened: list[str] = []
    true = chunk_index.opened
    monkeypatch.setattr(
        chunk_index, "opened", lambda refs, row, access: opened.append(refs.uri_of(row)) or true(refs, row, access)
    )
    assert indexed.chunks_for(640) == ((2,) * 60, (8,), (10,)) and not opened
    assert array.chunks_for(640) == ((2,) * 60, (8,), (10,))
    assert [Path(uri).name for uri in opened] == ["0.nc", "9.nc"] or len(opened) == 2


def test_missing_and_forbidden_files(tmp_path: Path) -> None:
    archive(tmp_path, (12, (1, 8, 10)), (12, (1, 8, 10)), zlib=True)
    index = tmp_path / "index.nca"
    (tmp_path / "0.nc").unlink()
    assert aa.open(index, missing="fill")["tas"].chunks_for(1) == ((1,) * 24, (8,), (10,))
    (tmp_path / "bare").mkdir()
    write(tmp_path / "bare" / "a.nc", 0, 6, (2, 8, 10), zlib=True)
    array = aa.open(tmp_path / "bare" / "a.nc")["tas"]
    (tmp_path / "bare" / "a.nc").unlink()
    chunk_index.chunk_tables.clear()
    assert array.chunks_for(4 * 320) == ((3, 3), (8,), (10,))


def test_zarr_and_netcdf3(tmp_path: Path) -> None:
    xr = pytest.importorskip("xarray")
    pytest.importorskip("zarr")
    values = np.arange(960, dtype="f4").reshape(12, 8, 10)
    dataset = xr.Dataset({"tas": (("time", "lat", "lon"), values)})
    dataset.to_zarr(tmp_path / "a.zarr", consolidated=False, encoding={"tas": {"chunks": (3, 4, 10)}})
    dataset.to_netcdf(tmp_path / "a.nc", format="NETCDF3_CLASSIC", unlimited_dims=["time"])
    assert aa.open(tmp_path / "a.zarr")["tas"].chunks_for(1) == ((3,) * 4, (4, 4), (10,))
    assert aa.open(tmp_path / "a.nc")["tas"].chunks_for(2 * 320) == ((2,) * 6, (8,), (10,))


def test_coordinates_in_memory(sample_archive: Path) -> None:
    bounds = aa.open(sample_archive)["tas"].coords["time_bnds"]
    assert bounds.chunks_for(1600, regular=True) == ((92, 92, 92, 89), (2,))
    assert bounds.chunks_for(300)[0][:4] == (16, 15, 14, 14)  # within months


def test_values_in_memory_and_holes() -> None:
    pieces = [([(n, n + 4)], SubArray.from_array(np.zeros(4), dimensions=("x",))) for n in (0, 8)]
    array = MasterArray.from_subarrays(pieces, dimensions=("x",))
    assert array.chunks_for(10**6) == ((4, 4, 4),) and array.chunks_for(16) == ((2,) * 6,)
    assert array.lazy[0].chunks_for(1) == () and array.lazy[3:3].chunks_for(1) == ((0,),)


@pytest.mark.parametrize("nbytes", [0, -1, 1.5, True, "1", None])
def test_invalid_sizes(nbytes: Any) -> None:
    array = MasterArray.from_subarrays([([(0, 1)], SubArray.from_array([1.0]))], dimensions=("x",))
    with pytest.raises(aa.SelectionError, match=r"invalid nbytes=.*; give the bytes of a chunk as a positive integer"):
        array.chunks_for(nbytes)


def test_an_archive(shared_data: Path) -> None:
    for array in aa.open(shared_data / "cmip6"):
        sizes = array.chunks_for(2000)
        assert tuple(map(sum, sizes)) == array.shape
        edges = array._matrix.edges
        assert all(set(e.tolist()) <= {0, *np.cumsum(s).tolist()} for e, s in zip(edges, sizes, strict=True))


# Files of chunks


def brute_force(array: MasterArray, chunks: tuple[tuple[int, ...], ...]) -> np.ndarray:
    """Return the files of each chunk, by the location of every partition."""
    result = np.empty(tuple(map(len, chunks)), object)
    cuts = [np.concatenate([[0], np.cumsum(sizes)]) for sizes in chunks]
    for block in np.ndindex(result.shape):
        box = [(own[i], own[i + 1]) for own, i in zip(cuts, block, strict=True)]
        counts: dict[str, int] = {}
        for part in array.partitions:
            shared = [min(b, d) - max(a, c) for (a, b), (c, d) in zip(box, part.location, strict=True)]
            if min(shared, default=1) > 0 and part.data is not None and part.data.uri is not None:
                counts[part.data.uri] = counts.get(part.data.uri, 0) + int(np.prod(shared))
        result[block] = tuple(sorted(counts, key=lambda uri: -counts[uri]))
    return result


def test_files_of_chunks(tmp_path: Path) -> None:
    stored, indexed = archive(tmp_path, (3, (1, 4, 5)), (5, None), (2, (2, 8, 10)))
    uris = [str(tmp_path / f"{n}.nc") for n in range(3)]
    for array in (stored, indexed):
        assert array.files_for(((3, 5, 2), (8,), (10,))).ravel().tolist() == [(uri,) for uri in uris]
        assert array.files_for(((4, 5, 1), (8,), (10,))).ravel().tolist() == [
            (uris[0], uris[1]),
            (uris[1], uris[2]),
            (uris[2],),
        ]
        assert array.files_for(((0, 10), (8,), (10,))).ravel().tolist() == [(), (uris[1], uris[0], uris[2])]
        for chunks in (array.chunks_for(320), array.chunks_for(10**6), array.chunks_for(700, regular=True)):
            assert array.files_for(chunks).tolist() == brute_force(array, chunks).tolist()
        parts = array.flip("time").lazy[2:, ::3, 4]
        assert parts.files_for(((1, 7), (1, 2))).tolist() == [[(uris[1],)] * 2, [(uris[1], uris[0])] * 2]
        assert array.lazy[0, 0, 0].files_for(()).tolist() == (uris[0],)


def test_files_of_tiles_holes_and_memory(tmp_path: Path) -> None:
    write(tmp_path / "a.nc", 0, 2, None)
    piece = aa.open(tmp_path / "a.nc")["tas"].partitions[()].data
    assert piece is not None
    memory = SubArray.from_array(np.zeros((2, 8, 10), "f4"), dimensions=("time", "lat", "lon"), units="K")
    tiles = [(((0, 2), (0, 8), (0, 10)), piece), (((2, 4), (8, 16), (0, 10)), memory)]
    array = MasterArray.from_subarrays(tiles, dimensions=("time", "lat", "lon"), shape=(4, 16, 10))
    a = (str(tmp_path / "a.nc"),)
    assert array.files_for(((2, 2), (8, 8), (10,)))[..., 0].tolist() == [[a, ()], [(), ()]]
    assert array.files_for(((4,), (16,), (5, 5)))[0, 0].tolist() == [a, a]


@pytest.mark.parametrize(
    "chunks", [None, 3, "auto", ((3,),), ((10,), (8,), (9,)), ((11, -1), (8,), (10,)), ((1.5, 8.5), (8,), (10,))]
)
def test_files_of_chunks_that_do_not_fit(chunks: Any, tmp_path: Path) -> None:
    array, _ = archive(tmp_path, (3, None), (7, None))
    with pytest.raises(aa.SelectionError, match=r"for an array of shape \(10, 8, 10\); give tuples of sizes"):
        array.files_for(chunks)
