"""Reductions of files: each chunk is decoded once, in bounded memory, with the same bits for any number of threads."""

import tracemalloc
from pathlib import Path
from typing import Any
from unittest import mock

import netCDF4
import numpy as np
import pytest

import aggarray as aa
from aggarray.reduce import blocks, reduce_array, streaming
from aggarray.reduce.operations import OPERATIONS, ORDERED
from tests.support.decoding import decoded
from tests.support.examples import heavy
from tests.support.reductions import assert_reduced, reduced

#: Operations over any dimensions.
PLAIN = [o for o in OPERATIONS if o not in ORDERED]


def write(path: Path, values: np.ndarray, start: int, chunks: tuple[int, int, int], dtype: str = "f4") -> None:
    """Write one file of a series of days."""
    with netCDF4.Dataset(path, "w") as file:
        for name, size in zip(("time", "lat", "lon"), values.shape, strict=True):
            file.createDimension(name, size)
            axis = file.createVariable(name, "f8", (name,))
            axis[:] = np.arange(size) + (start if name == "time" else 0)
            axis.units = "days since 2001-01-01" if name == "time" else f"degrees_{'north' if name == 'lat' else 'east'}"
        fill = {"f": 1e20, "i": -999, "u": 7}[dtype[0]]
        file.createVariable("tas", dtype, ("time", "lat", "lon"), zlib=True, chunksizes=chunks, fill_value=fill)[:] = values
        file["tas"].units = "K"


#: Shapes of chunks, and dtypes.
STORED = [((7, 10, 12), "f4"), ((1, 30, 48), "f4"), ((30, 5, 48), "f4"), ((13, 30, 7), "f4"), ((4, 9, 48), "i2")]


@pytest.fixture(
    scope="module", params=[STORED[0], *(pytest.param(case, marks=pytest.mark.heavy) for case in STORED[1:])], ids=str
)
def series(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[aa.MasterArray, int]:
    """An array of three files with missing values, and the number of its stored chunks."""
    chunks, dtype = request.param
    folder, rng = tmp_path_factory.mktemp("series"), np.random.default_rng(3)
    for number in range(3):
        values = np.ma.MaskedArray(rng.normal(280, 20, (30, 30, 48)).astype(dtype))
        values[:, :6, :9] = np.ma.masked
        values[rng.random(values.shape) < 0.01 * number] = np.ma.masked
        write(folder / f"{number}.nc", values, 30 * number, chunks, dtype)
    stored = 3 * int(np.prod([-(-n // c) for n, c in zip((30, 30, 48), chunks, strict=True)]))
    return aa.open(folder)["tas"], stored


@pytest.mark.parametrize("dims", [["time"], ["lat", "lon"], ["time", "lon"], ["lat"], ["time", "lat", "lon"]], ids=str)
def test_chunks_are_decoded_once(series: tuple[aa.MasterArray, int], dims: list[str]) -> None:
    array, stored = series
    masked = array.read(masked=True)
    operations = PLAIN if len(dims) > 1 else OPERATIONS
    with decoded() as count, aa.set_options(cache_bytes=0), mock.patch.object(blocks, "BLOCK", 20_000):
        results = reduce_array(array, operations, dims)
    assert count[0] == stored
    axes = [array.dimensions.index(d) for d in dims]
    for operation, result in results.items():
        if len(dims) == 3 or operation in ("mean", "std", "count", "argmin", "last"):
            expected = reduced(operation, np.ma.getdata(masked), np.ma.getmaskarray(masked), axes)
            assert_reduced(result, expected, operation)


@pytest.mark.parametrize("by", ["month", "dayofyear", "year-month"])
def test_chunks_are_decoded_once_for_groups(series: tuple[aa.MasterArray, int], by: str) -> None:
    array, stored = series
    with decoded() as count, aa.set_options(cache_bytes=0), mock.patch.object(blocks, "BLOCK", 20_000):
        results = reduce_array(array, ["mean", "max"], "time", by=by)
    assert count[0] == stored
    values = array.read(masked=True)
    start = 0 if by == "dayofyear" else 31
    stop = 1 if by == "dayofyear" else 59
    own = values[start:stop].astype("f8").mean(axis=0)
    assert_reduced(results["mean"].lazy[0 if by == "dayofyear" else 1], np.ma.MaskedArray(own, np.ma.getmaskarray(own)))


@pytest.mark.parametrize("by", [None, "month", "dayofyear"])
def test_same_bits_for_any_number_of_threads(series: tuple[aa.MasterArray, int], by: str | None) -> None:
    array, _ = series
    with mock.patch.multiple(blocks, BLOCK=20_000, PARTIAL=100_000):
        for dims, weights in ("time", None), (["lat", "lon"], "area"), ("time", "time"):
            if by is not None and dims != "time":
                continue
            operations = OPERATIONS if dims == "time" else PLAIN
            one, two, five = (reduce_array(array, operations, dims, by=by, weights=weights, threads=n) for n in (1, 2, 5))
            for name in operations:
                assert one[name][...].tobytes() == two[name][...].tobytes() == five[name][...].tobytes(), name


def test_segments_do_not_depend_on_threads(series: tuple[aa.MasterArray, int]) -> None:
    array, _ = series
    folded: list[list[Any]] = []
    with (
        mock.patch.multiple(blocks, BLOCK=20_000),
        mock.patch.object(
            streaming, "_state_of", lambda *a, real=streaming._state_of: folded[-1].append(a[2].keys) or real(*a)
        ),
    ):
        for threads in 1, 3:
            folded.append([])
            reduce_array(array, ["mean"], "time", threads=threads)
    assert len(folded[0]) > 2 and sorted(map(str, folded[0])) == sorted(map(str, folded[1]))


@pytest.mark.parametrize("dims", ["time", ["lat", "lon"]], ids=str)
def test_few_threads_read_several_blocks_at_a_time(dims: Any, tmp_path: Path) -> None:
    values = np.random.default_rng(9).normal(280, 20, (30, 30, 48))
    write(tmp_path / "steps.nc", values, 0, (1, 30, 48))
    array = aa.open(tmp_path / "steps.nc")["tas"]
    reads: list[list[Any]] = []
    results = []
    for memory in 48 << 20, 1:
        reads.append([])
        with (
            mock.patch.multiple(blocks, BLOCK=3_000),
            mock.patch.multiple(streaming, _IN_FLIGHT=memory),
            mock.patch.object(streaming, "_read", lambda *a, real=streaming._read: reads[-1].append(a[1]) or real(*a)),
        ):
            results.append(reduce_array(array, ["mean"], dims, threads=2)["mean"][...])
    assert len(reads[0]) * 2 <= len(reads[1])
    assert results[0].tobytes() == results[1].tobytes()


def test_same_bits_of_blocks_along_an_inner_dimension(tmp_path: Path) -> None:
    """The sum over two dimensions rounds differently if a block is not contiguous."""
    values = np.random.default_rng(8).lognormal(0, 12, (2, 64, 96))
    write(tmp_path / "wide.nc", np.ma.MaskedArray(values), 0, (1, 64, 12), "f8")
    array = aa.open(tmp_path / "wide.nc")["tas"]
    results = set()
    for memory in 48 << 20, 1:
        with mock.patch.multiple(blocks, BLOCK=800), mock.patch.multiple(streaming, _IN_FLIGHT=memory):
            for dims in ["lat", "lon"], ["time", "lat", "lon"]:
                results.add((len(dims), reduce_array(array, ["mean"], dims, threads=2)["mean"][...].tobytes()))
    assert len(results) == 2


@pytest.mark.heavy
def test_memory_of_masks(tmp_path: Path) -> None:
    values = np.ma.MaskedArray(np.ones((200, 720, 724), "u1"))
    write(tmp_path / "bytes.nc", values, 0, (1, 720, 724), "u1")
    array = aa.open(tmp_path / "bytes.nc")["tas"]
    for threads in 3, 4:
        tracemalloc.start()
        result = reduce_array(array, ["mean"], ["lat", "lon"], threads=threads)["mean"]
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < result.nbytes + (64 << 20) and (result[...] == 1).all()


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three files of 100 MB of values each, hardly any bytes stored."""
    folder = tmp_path_factory.mktemp("large")
    for number in range(3):
        values = np.broadcast_to(np.float32(number), (400, 180, 360)).copy()
        values[:, :20] = 1e20
        write(folder / f"{number}.nc", values, 400 * number, (1, 180, 360))
    return folder


@pytest.mark.parametrize(
    ("operations", "dims", "options"),
    heavy(
        [
            (["mean", "sum", "count", "max"], "time", {}),
            (["std", "var"], "time", {}),
            (["mean"], ["lat", "lon"], {"weights": "area"}),
            (["std"], ["lat", "lon"], {}),
            (["mean"], "time", {"by": "month"}),
            (["mean"], "time", {"by": "dayofyear"}),
            (["argmin", "first"], "time", {}),
        ],
        but=[(["std", "var"], "time", {}), (["mean"], "time", {"by": "month"})],
    ),
    ids=str,
)
def test_memory(large: Path, operations: list[str], dims: Any, options: dict[str, Any]) -> None:
    array = aa.open(large)["tas"]
    reduce_array(array.lazy[:5], operations, dims, **options)  # imports, open files and indexes of chunks
    tracemalloc.start()
    results = reduce_array(array, operations, dims, **options, threads=2)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert array.nbytes > 3 * (64 << 20)
    assert peak < sum(result.nbytes for result in results.values()) + (64 << 20)


def test_errors_of_files_name_them(tmp_path: Path) -> None:
    for number in range(2):
        write(tmp_path / f"{number}.nc", np.ones((4, 5, 6), "f4"), 4 * number, (1, 5, 6))
    array = aa.open(tmp_path)["tas"]
    (tmp_path / "1.nc").unlink()
    for threads in 1, 2:
        with pytest.raises(aa.MissingFileError, match=r"1\.nc"), mock.patch.object(blocks, "BLOCK", 30):
            reduce_array(array, ["mean"], "time", threads=threads)
    filled = aa.open([str(tmp_path / "0.nc")])["tas"]
    assert filled.mean()[...] == 1


def test_lazy_selections(series: tuple[aa.MasterArray, int]) -> None:
    array, _ = series
    for lazy in array.lazy[40:3:-3, [7, 2, 9]], array.flip("lat").transpose("lon", "time", "lat"), array.to_units("degC"):
        masked = lazy.read(masked=True)
        for operation in "mean", "min", "argmax":
            expected = reduced(operation, np.ma.getdata(masked), np.ma.getmaskarray(masked), [lazy.dimensions.index("time")])
            assert_reduced(lazy.reduce(operation, "time"), expected, operation)


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> aa.MasterArray:
    """One file of 124 MB of values in chunks of a million, a tenth of them missing."""
    values = np.ones((30, 720, 1440), "f4")
    values[:, :72] = 1e20
    path = tmp_path_factory.mktemp("wide") / "0.nc"
    write(path, values, 0, (1, 720, 1440))
    return aa.open(path)["tas"]


@pytest.mark.parametrize(
    ("operation", "options"),
    heavy(
        [("mean", {}), ("std", {}), ("first", {}), ("mean", {"by": "month"}), ("mean", {"weights": "time"}), ("argmax", {})],
        but=[("mean", {})],
    ),
    ids=str,
)
def test_memory_for_chunks_of_a_million_values(wide: aa.MasterArray, operation: str, options: dict[str, Any]) -> None:
    reduce_array(wide.lazy[:2], [operation], "time", **options)
    expected = {"std": 0, "argmax": 0}.get(operation, 1)
    for threads in 1, 4:
        tracemalloc.start()
        result = reduce_array(wide, [operation], "time", **options, threads=threads)[operation]
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < result.nbytes + (64 << 20)
        assert (result[..., 100, :] == expected).all()


@pytest.fixture(scope="module")
def year_of_steps(tmp_path_factory: pytest.TempPathFactory) -> aa.MasterArray:
    """400 days of 60,000 values, a chunk for each day."""
    path = tmp_path_factory.mktemp("steps") / "steps.nc"
    write(path, np.random.default_rng(4).random((400, 200, 300), np.float32), 0, (1, 200, 300))
    return aa.open(path)["tas"]


@pytest.mark.heavy
@pytest.mark.parametrize("operation", ["mean", "std", "var", "argmin", "first"])
def test_memory_of_many_groups(year_of_steps: aa.MasterArray, operation: str) -> None:
    array = year_of_steps
    reduce_array(array.lazy[:5], [operation], "time", by="dayofyear")  # imports, open files and indexes of chunks
    told: list[int] = []
    tracemalloc.start()
    with decoded() as count, aa.set_options(cache_bytes=0):
        result = reduce_array(array, [operation], "time", by="dayofyear", threads=2, advance=told.append)[operation]
        peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < result.nbytes + (64 << 20)
    assert count[0] == 400 and sum(told) == array.nbytes
    values = array[::365].astype("f8")
    own = values.argmin(axis=0) * 365 if operation == "argmin" else values[0]
    expected = own if operation in ("argmin", "first") else getattr(values, operation)(axis=0)
    assert np.allclose(result[0], expected, rtol=1e-12, atol=1e-12)
