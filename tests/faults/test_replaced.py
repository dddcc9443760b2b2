"""Threads read consistent versions, or raise errors, while files are replaced, truncated and restored."""

import os
import subprocess
import sys
from pathlib import Path

import h5py
import netCDF4
import numpy as np
import pytest
import zarr

import aggarray as aa
from aggarray.errors import ChangedFileError
from aggarray.formats.hdf5 import FORMAT
from aggarray.formats.hdf5.library import H5pyFile
from aggarray.read import OpenFiles, chunk_blocks
from aggarray.storage.byte_source import close_sources
from tests.faults.replacing import INDEXED, KINDS, NETCDF, ZARR
from tests.faults.staging import ROOT
from tests.support.examples import examples

#: Seconds of reading, over all layouts.
SECONDS = float(os.environ.get("SECONDS") or examples(15))


@pytest.mark.heavy
def test_64_threads_while_files_change() -> None:
    """Runs in its own process, so that a crash or hang fails only this test. `SECONDS=300` runs it longer."""
    assert {*NETCDF, *ZARR, *INDEXED} < set(KINDS)
    command = [sys.executable, "-m", "tests.faults.replacing", str(SECONDS)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=2 * SECONDS + 300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]


def test_zeros_past_the_end_raise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """HDF5 reads zeros past the end; the file is restored before the read ends."""
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("tas", data=np.arange(4000, dtype="i4").reshape(40, 100) + 7, chunks=(10, 100), scaleoffset=0)
    array = aa.open(path)["tas"]
    array[:10]  # opens the file
    whole = path.read_bytes()
    values = H5pyFile.values

    def late(self: H5pyFile, variable: str, box: tuple[slice, ...]) -> np.ndarray:
        os.truncate(path, 3000)
        try:
            return values(self, variable, box)
        finally:
            path.write_bytes(whole)
            os.utime(path, (1e9, 1e9))

    with monkeypatch.context() as patch:
        patch.setattr(H5pyFile, "values", late)
        with pytest.raises(ChangedFileError, match=r"changed while it was read.*variable 'tas' in .*a\.h5"):
            array[...]
    np.testing.assert_array_equal(aa.open(path)["tas"][...], np.arange(4000).reshape(40, 100) + 7)


def test_values_cached_by_another_read(tmp_path: Path) -> None:
    """HDF5 shares caches among handles of a file: here one that has read zeros past the end stays in use."""
    path, truth = tmp_path / "a.h5", np.arange(4000, dtype="i4").reshape(40, 100) + 7
    with h5py.File(path, "w") as file:
        file.create_dataset("tas", data=truth, chunks=(10, 100), scaleoffset=0)
    whole = path.read_bytes()
    with pytest.raises(ChangedFileError, match="changed while it was read"), OpenFiles().use(str(path)) as handle:
        np.testing.assert_array_equal(handle.read("tas", (slice(0, 10, 1), slice(0, 100, 1))), truth[:10])
        os.truncate(path, 3000)
        assert not handle.read("tas", (slice(30, 40, 1), slice(0, 100, 1))).any()
        with path.open("r+b") as file:
            file.seek(3000)
            file.write(whole[3000:])
        np.testing.assert_array_equal(aa.open(path)["tas"][...], truth)
        handle.read("tas", (slice(0, 10, 1), slice(0, 100, 1)))
    np.testing.assert_array_equal(aa.open(path)["tas"][...], truth)


@pytest.mark.parametrize("compressed", [False, True])
def test_a_shard_replaced_after_its_index_was_read(tmp_path: Path, compressed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(name: str, first: int) -> Path:
        group = zarr.open_group(tmp_path / name, mode="w", zarr_format=3)
        how = {} if compressed else {"compressors": None}
        data = np.random.default_rng(first).permutation(6000).reshape(60, 100) + first
        made = group.create_array("tas", data=data, chunks=(10, 100), shards=(60, 100), dimension_names=("t", "x"), **how)
        assert made.shape == (60, 100)
        return next(path for path in (tmp_path / name / "tas").rglob("0") if path.is_file())

    mine, other = write("a.zarr", 0), write("b.zarr", 10_000)
    array = aa.open(tmp_path / "a.zarr")["tas"]
    array[0]
    own = chunk_blocks.read_parts

    def late(*given: object) -> object:
        other.replace(mine)
        close_sources()  # open files would be read in their old version
        return own(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(chunk_blocks, "read_parts", late)
    with pytest.raises(aa.FormatError, match=r"(changed while it was read|truncated).*variable 'tas' in .*a\.zarr"):
        array[...]


def test_a_file_that_changes_while_it_is_scanned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.nc"
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("x", 3)
        file.createVariable("tas", "f4", ("x",))[:] = 1
    own = type(FORMAT).scan

    def late(self: object, given: str) -> object:
        result = own(self, given)  # type: ignore[arg-type]
        os.utime(path, (1e9, 1e9))
        return result

    with monkeypatch.context() as patch:
        patch.setattr(type(FORMAT), "scan", late)
        with pytest.raises(ChangedFileError, match=r"changed while it was scanned.*a\.nc.*; open it again"):
            aa.open(path)
    assert aa.open(path)["tas"].shape == (3,)
