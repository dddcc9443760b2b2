"""Ordinary netCDF-4 files, read and indexed without HDF5 or netCDF-C."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import pytest

import aggarray as aa
from tests.support.paths import ROOT

_SCRIPT = """
import sys
import aggarray as aa
found = aa.open(sys.argv[2:], roots=[sys.argv[1]])
values = found["v"][...]
trusting = aa.open(sys.argv[2:], rules=aa.Rules(trust="assume"))["v"][1:, 2]
print(values.sum(), trusting.shape, *sorted({"h5py", "netCDF4"} & set(sys.modules)))
"""


@pytest.fixture
def archive(tmp_path: Path) -> list[str]:
    """Write files of two steps each, as models do: many attributes, an unlimited dimension, chunks with filters."""
    paths = []
    for number in range(6):
        paths.append(str(tmp_path / f"v_{number}.nc"))
        with netCDF4.Dataset(paths[-1], "w") as file:
            file.setncatts({f"attribute {n}": f"text {n}" for n in range(12)})
            file.createDimension("time", None)
            file.createDimension("x", 3)
            file.createVariable("time", "f8", ("time",))[:] = [2 * number, 2 * number + 1]
            file["time"].units = "days since 2000-01-01"
            file.createVariable("x", "f8", ("x",))[:] = [1, 2, 3]
            made = file.createVariable("v", "f4", ("time", "x"), zlib=True, shuffle=True, chunksizes=(1, 3), fill_value=-1)
            made[:] = np.arange(6).reshape(2, 3) + number
            made.setncatts({f"note {n}": f"text {n}" for n in range(12)})
    return paths


def test_no_library_is_loaded(archive: list[str]) -> None:
    arguments = [str(Path(archive[0]).parent), *archive]
    done = subprocess.run([sys.executable, "-c", _SCRIPT, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split()) == (0, ["180.0", "(11,)"]), done.stderr


def refusing(whole: Callable[..., Any], paths: list[str]) -> Callable[..., Any]:
    """Return what opens files as ``whole`` does, but refuses those of some paths."""

    def opening(path: Any, *arguments: Any, **named: Any) -> Any:
        """Open a file that is none of these."""
        if str(path) in paths:
            raise AssertionError(f"{path} was opened")
        return whole(path, *arguments, **named)

    return opening


def test_saving_with_chunk_tables(archive: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(netCDF4, "Dataset", refusing(netCDF4.Dataset, archive))
    monkeypatch.setattr(h5py, "File", refusing(h5py.File, archive))
    monkeypatch.setattr(h5py.h5f, "open", refusing(h5py.h5f.open, [*archive, *map(str.encode, archive)]))
    aa.open(archive).save(tmp_path / "index.nca", chunk_table=True)
    expected = np.concatenate([np.arange(6).reshape(2, 3) + number for number in range(6)])
    np.testing.assert_array_equal(aa.open(tmp_path / "index.nca")["v"][...], expected)
