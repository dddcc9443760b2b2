"""Opening, appending and saving on executors equals the same by one process."""

import contextlib
import os
import shutil
import signal
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aggarray as aa
from sample_data.demo import write_messy
from tests.support.executors import Executor, check_equal, dask_client
from tests.support.netcdf import cube, write

EXECUTORS = {
    "minimal": lambda: contextlib.nullcontext(Executor()),
    "threads": lambda: ThreadPoolExecutor(2),
    "fork": lambda: ProcessPoolExecutor(2, mp_context=get_context("fork")),
    "spawn": lambda: ProcessPoolExecutor(2, mp_context=get_context("spawn")),
    "forkserver": lambda: ProcessPoolExecutor(2, mp_context=get_context("forkserver")),
    "dask": dask_client,
}


@pytest.fixture(scope="module", params=EXECUTORS)
def executor(request: pytest.FixtureRequest) -> Iterator[Any]:
    with EXECUTORS[request.param]() as made:
        yield made


@pytest.fixture(scope="module")
def messy(tmp_path_factory: pytest.TempPathFactory, sample_archive: Path, sample_stations: Path) -> Path:
    """A folder with every format, ragged arrays, a duplicate, refusals, a hole, broken files and a note."""
    folder = tmp_path_factory.mktemp("messy")
    shutil.copytree(sample_archive, folder / "archive")
    shutil.copytree(sample_stations, folder / "stations")
    shutil.copy(sample_archive / "tas_200101.nc", folder / "copy.nc")
    (folder / "days").mkdir()
    write_messy(folder / "days", [-45.0, 0.0, 45.0], [0.0, 90.0, 180.0, 270.0])
    for number in range(40):
        write(folder / "series" / f"{number:02}.nc", cube([number + 0.5]), {"source_id": f"M{number % 2}"})
    (folder / "broken.nc").write_bytes(b"\x89HDF\r\n\x1a\n nothing")
    (folder / "empty.nc").write_bytes(b"")
    (folder / "note.txt").write_text("a note")
    return folder


def test_a_messy_archive(executor: Any, messy: Path) -> None:
    expected = aa.open(messy, processes=1)
    assert expected.skipped and expected.refusals and expected.duplicates
    check_equal(expected, aa.open(messy, executor=executor))


@pytest.mark.heavy
def test_a_real_archive(executor: Any, shared_data: Path) -> None:
    check_equal(aa.open(shared_data / "cmip6", processes=1), aa.open(shared_data / "cmip6", executor=executor))


def test_fixes(executor: Any, messy: Path) -> None:
    """Executors scan; the fixes apply to what they return, and read more coordinates where they make some."""
    fixes = [
        aa.Fix(variable="tas", set={"units": "degC"}, where="series/0*.nc"),
        aa.Fix(variable="lat", rename="y"),
        aa.Fix(shift_time=(-6, "hours")),
    ]
    expected, agg = (aa.open(messy / "series", fixes=fixes, **how) for how in ({"processes": 1}, {"executor": executor}))
    check_equal(expected, agg)
    assert agg.fixes == expected.fixes and "y" in agg.arrays[0].dimensions


def test_trusting_rules(executor: Any, messy: Path, tmp_path: Path) -> None:
    rules = aa.Rules(trust="assume")
    expected, agg = (
        aa.open(messy / "series", rules=rules, processes=1),
        aa.open(messy / "series", rules=rules, executor=executor),
    )
    assert sum(s.assumed is not None for s in agg._provenance.structures()) > 20
    check_equal(expected, agg, values=False)
    expected.save(tmp_path / "expected.nca")
    agg.save(tmp_path / "agg.nca", executor=executor)
    check_equal(aa.open(tmp_path / "expected.nca"), aa.open(tmp_path / "agg.nca"))


def test_appended_and_saved(executor: Any, messy: Path, tmp_path: Path) -> None:
    files = sorted((messy / "series").iterdir())
    expected = aa.open(files, processes=1)
    seen: list[tuple[int, int]] = []
    agg = aa.open(files[:4], executor=executor)
    agg = agg.append(files, progress=lambda done, total, what: seen.append((done, total)), executor=executor)
    assert seen == [(n + 1, len(files) - 4) for n in range(len(files) - 4)]
    check_equal(expected, agg)
    agg.save(tmp_path / "agg.nca", executor=executor)
    expected.save(tmp_path / "expected.nca")
    opened, other = aa.open(tmp_path / "agg.nca"), aa.open(tmp_path / "expected.nca")
    check_equal(other, opened)
    assert chunk_offsets(opened) == chunk_offsets(other)
    assert len(chunk_offsets(opened)) == len(files)


def chunk_offsets(agg: aa.Aggregation) -> dict[tuple[str, str], Any]:
    """Return the offsets of the chunks that an index stores, by file and variable."""
    result = {}
    for references in (array._matrix.references for array in agg):
        for row in range(len(references)):
            uri, stamp, name = (
                references.uri_of(row),
                references.stamp_of(row),
                references.variables[int(references.variable[row])],
            )
            assert uri is not None and stamp is not None and references.tables is not None
            table = references.tables.find(references, row)
            result[uri, name] = None if table is None else table.offsets.tolist()
    return result


def test_processes_and_executor_exclude_each_other(messy: Path) -> None:
    with pytest.raises(aa.AggregationError, match="processes= and executor= are both given; give one"):
        aa.open(messy, processes=2, executor=Executor())


def test_an_index_needs_no_executor(messy: Path, tmp_path: Path) -> None:
    aa.open(messy / "series").save(tmp_path / "index.nca")
    executor = Executor()
    aa.open(tmp_path / "index.nca", executor=executor)
    assert executor.count == 0


@pytest.mark.heavy
def test_a_killed_worker_of_dask(tmp_path: Path) -> None:
    files = [write(tmp_path / f"{number:03}.nc", cube([number]), {"source_id": "M"}) for number in range(600)]
    expected = aa.open(files, processes=1)
    seen: list[int] = []
    with dask_client() as client:
        processes = list(client.run(os.getpid).values())

        def progress(done: int, total: int, what: str) -> None:
            seen.append(done)
            if done == total // 3:
                os.kill(processes[0], signal.SIGKILL)

        agg = aa.open(files, executor=client.get_executor(), progress=progress)
        assert processes[0] not in client.run(os.getpid).values()
    assert not agg.skipped and seen == list(range(1, len(files) + 1))
    check_equal(expected, agg)


def test_stores_and_rows_among_files(executor: Any, tmp_path: Path) -> None:
    """Zarr stores of both versions and files of rows of different lengths, and damaged ones."""
    xr = pytest.importorskip("xarray", reason="no xarray")
    pytest.importorskip("zarr", reason="no zarr")
    for number in range(6):
        path = write(tmp_path / f"{number}.nc", cube([number]), {"source_id": "M"})
        if number % 2:
            with xr.open_dataset(path, decode_times=False, mask_and_scale=False) as ds:
                ds.load().to_zarr(tmp_path / f"{number}.zarr", zarr_format=2 if number == 1 else 3, consolidated=False)
            os.unlink(path)
    for number, sizes in enumerate(([2, 3], [1, 0, 4], [5])):
        count = sum(sizes)
        rows: dict[str, Any] = {
            "rowSize": (("station",), np.array(sizes, "i4"), {"sample_dimension": "obs"}),
            "id": (("station",), np.arange(len(sizes)) + 10 * number, {"cf_role": "timeseries_id"}),
            "temp": (("obs",), np.arange(count, dtype="f4") + 100 * number, {"units": "K"}),
        }
        write(tmp_path / f"rows{number}.nc", rows, {"featureType": "timeSeries"})
    (tmp_path / "bad.nc").write_bytes((tmp_path / "0.nc").read_bytes()[:3000])
    expected = aa.open(tmp_path, processes=1)
    assert sorted(array.name or "" for array in expected) == ["tas", "temp"] and len(expected.skipped) == 1
    agg = aa.open(tmp_path, executor=executor)
    check_equal(expected, agg)
    agg.save(tmp_path.parent / "mixed.nca", executor=executor)
    check_equal(expected, aa.open(tmp_path.parent / "mixed.nca"))
