"""An extract killed at random moments, or stopped by a full disk, ends like an uninterrupted one.

Compared by values, attributes, chunks and filters according to netCDF4, h5py and zarr, and by bytes.
"""

import filecmp
import os
import random
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import pytest
import zarr

import aggarray as aa
from aggarray.export.extract import extract
from tests.faults.staging import HUNG, Stage
from tests.support.examples import examples
from tests.support.netcdf import write

#: Number of kills of each kind; AGGARRAY_KILLS=50 in the environment tests more.
KILLS = int(os.environ.get("AGGARRAY_KILLS") or examples(5))
_JOB = """
log = "log"
[input]
source = "../data"
[index]
path = "i.nca"
[[extract]]
path = "x.nc"
[[extract]]
path = "x.zarr"
"""
LINES = {
    "nc": (("extract", "data", "-o", "place/x.nc", "--overwrite"), ["x.nc"]),
    "zarr": (("extract", "data", "-o", "place/x.zarr", "--overwrite"), ["x.zarr"]),
    "job": (("run", "place/job.toml"), ["x.nc", "x.zarr"]),
}


@pytest.fixture(autouse=True)
def date(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give all extracts one date, so that their bytes can be compared."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1000000000")


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with four files below ``data``: floats and integers in compressed chunks."""
    folder = tmp_path_factory.mktemp("archive")
    for n in range(4):
        noise = np.random.default_rng(n)
        time_ = (("time",), np.arange(20.0) + 20 * n, {"units": "days since 2000-01-01", "standard_name": "time"})
        tas = (("time", "y", "x"), noise.random((20, 40, 40)).round(2), {"units": "K", "long_name": "temperature"})
        count = (("time", "y", "x"), noise.integers(0, 99, (20, 40, 40)).astype("i4"), {"_FillValue": np.int32(-1)})
        write(folder / "data" / f"{n}.nc", {"time": time_, "tas": tas, "count": count})
    return folder


def prepared(folder: Path) -> Path:
    """Recreate the folder of results."""
    place = folder / "place"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    (place / "job.toml").write_text(_JOB)
    return place


def attempt(stage: Stage, folder: Path, line: tuple[str, ...], **how: Any) -> Any:
    """Run a command line once; arguments that begin with "data" and "place" are relative to the folder."""
    return stage.attempt(*(folder / w if w.startswith(("data", "place")) else w for w in line), below=folder / "place", **how)


def content_netcdf(path: Path) -> dict[str, Any]:
    """Return values, attributes, chunks, filters and flags of a file according to netCDF4 and h5py."""
    result: dict[str, Any] = {}
    with netCDF4.Dataset(path) as file:
        file.set_auto_maskandscale(False)
        result["attributes"] = {n: file.getncattr(n) for n in file.ncattrs()}
        for name, variable in file.variables.items():
            attributes = {n: str(variable.getncattr(n)) for n in variable.ncattrs()}
            about = variable.dimensions, variable.dtype.str, variable.chunking(), variable.filters(), attributes
            result[name] = about, variable[...].tobytes()
    with h5py.File(path) as file:
        for name, dataset in file.items():
            if isinstance(dataset, h5py.Group):
                result[name] = {n: own[...].tolist() for n, own in dataset.items()}
                continue
            plist = dataset.id.get_create_plist()
            filters = [plist.get_filter(n) for n in range(plist.get_nfilters())]
            result[f"{name} stored"] = dataset.chunks, filters, dataset[...].tobytes(), sorted(dataset.attrs)
    return result


def content_zarr(path: Path) -> dict[str, Any]:
    """Return the content of a store according to zarr."""
    group = zarr.open_group(path, mode="r")
    result: dict[str, Any] = {"attributes": dict(group.attrs)}
    for name, array in group.arrays():
        result[name] = array.metadata.to_dict(), array[...].tobytes()
    return result


def check_same(found: Path, expected: Path) -> None:
    """Compare a result with that of an uninterrupted run."""
    if expected.suffix == ".nc":
        assert content_netcdf(found) == content_netcdf(expected)
        assert filecmp.cmp(found, expected, shallow=False)
        return
    assert content_zarr(found) == content_zarr(expected)
    files = [{p.relative_to(store): p.read_bytes() for p in store.rglob("*") if p.is_file()} for store in (found, expected)]
    assert files[0] == files[1]


@pytest.mark.parametrize("kind", LINES)
def test_killed_at_random_moments(kind: str, archive: Path, stage: Stage) -> None:
    line, names = LINES[kind]
    place = prepared(archive)
    begun = time.monotonic()
    assert attempt(stage, archive, line).status == 0
    lasted = time.monotonic() - begun
    whole = archive / f"whole-{kind}"
    shutil.copytree(place, whole)
    chance, killed = random.Random(7), 0
    for number in range(KILLS + 10):
        if killed and number >= KILLS:
            break
        place = prepared(archive)
        for _ in range(chance.choice((1, 1, 2, 3))):
            status = attempt(stage, archive, line, seconds=chance.uniform(0, lasted)).status
            assert status in (0, HUNG)
            killed += status == HUNG
            lasted *= 1 if status == HUNG else 0.7  # the first run may have been slower than the others
        done = attempt(stage, archive, line)
        assert (done.status, done.err) == (0, "")
        for name in names:
            check_same(place / name, whole / name)
        known = {"job.toml", "log", "i.nca", *names}
        assert {p.name for p in place.iterdir()} <= known
    assert killed


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Any]:
    """A function that mounts a disk in memory of a number of kB at ``tmp_path / "disk"``."""
    place = tmp_path / "disk"
    place.mkdir()

    def mount(size: int) -> Path:
        known = "remount," * place.is_mount()
        command = ["mount", "-t", "tmpfs", "-o", f"{known}size={size}k", "none", str(place)]
        if not shutil.which("mount") or subprocess.run(command, capture_output=True, check=False).returncode:
            pytest.skip("a small disk: only root may mount one")
        return place

    yield mount
    if place.is_mount():
        subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.mark.parametrize("suffix", ["nc", "zarr"])
def test_a_disk_that_was_full_and_has_space_again(
    suffix: str, archive: Path, disk: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Complete chunks are reused."""
    monkeypatch.setattr("aggarray.export.extract.pieces.BLOCK", 100_000)
    monkeypatch.setattr("aggarray.partition.block_shapes._MIN_BYTES", 50_000)
    monkeypatch.setattr("aggarray.partition.block_shapes._MAX_BYTES", 100_000)
    agg = aa.open(archive / "data")
    extract(agg, tmp_path / f"whole.{suffix}")
    resumed = 0
    for size in (500, 1000, 1400, 1800):
        out = disk(size) / f"x.{suffix}"
        try:
            extract(agg, out)
        except aa.AggregationError as error:
            assert "No space left on device" in str(error) and "; make space" in str(error)
            disk(64 << 10)
            resumed += extract(agg, out).resumed
        check_same(out, tmp_path / f"whole.{suffix}")
        assert [p.name for p in out.parent.iterdir()] == [out.name]
        shutil.rmtree(out) if out.is_dir() else out.unlink()
    assert resumed
