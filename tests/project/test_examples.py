"""The examples give the correct results on four ranks."""

import os
import subprocess
import sys
from pathlib import Path

import netCDF4
import numpy as np
import pytest

import aggarray as aa
from sample_data import models
from tests.support.executors import check_equal
from tests.support.mpi import run_mpi
from tests.support.pages import blocks
from tests.support.paths import ROOT

ARCHIVE = "sample_data/archive"


@pytest.mark.heavy
def test_halo_stencil(tmp_path: Path, sample_archive: Path) -> None:
    printed = run_mpi(4, "examples/halo_stencil.py", ARCHIVE, "tas", str(tmp_path / "out.zarr"))
    values = aa.open(sample_archive)["tas"].astype("f8")[:]
    around = np.pad(values, ((0, 0), (0, 0), (1, 1)), mode="wrap")
    padded = np.pad(around, ((0, 0), (1, 1), (0, 0)), constant_values=np.nan)
    points = [padded[:, 1:-1, 1:-1], padded[:, :-2, 1:-1], padded[:, 2:, 1:-1], padded[:, 1:-1, :-2], padded[:, 1:-1, 2:]]
    expected = np.ma.masked_invalid(points).mean(axis=0).filled(np.nan)
    result = aa.open(tmp_path / "out.zarr")["tas"]
    assert np.allclose(result[:], expected, rtol=1e-12, atol=0, equal_nan=True)
    assert result.units == "K" and np.array_equal(result.coords["lat"][:], aa.open(sample_archive)["tas"].coords["lat"][:])
    assert f"mean {np.nanmean(expected):.6f} K" in printed


@pytest.mark.heavy
@pytest.mark.parametrize("value", ["0", "1"])
def test_shared_memory(monkeypatch: pytest.MonkeyPatch, sample_archive: Path, value: str) -> None:
    monkeypatch.setenv("AGGARRAY_SHARED_MEMORY", value)
    printed = run_mpi(4, "examples/shared_memory.py", ARCHIVE, "tas", "3")
    values = aa.open(sample_archive)["tas"].astype("f8")[:]
    before = f"before: mean {np.nanmean(values):.6f}, deviation {np.nanstd(values):.6f} K"
    for _ in range(3):
        flow = np.pad(np.nan_to_num(np.diff(values, axis=1)), ((0, 0), (1, 1), (0, 0)))
        values = values + 0.25 * np.diff(flow, axis=1)
    assert before in printed and f"after: mean {np.nanmean(values):.6f}, deviation {np.nanstd(values):.6f} K" in printed


def climatology(source: str, variable: str, store: Path) -> None:
    """Run the example and compare with NumPy."""
    run_mpi(4, "examples/climatology.py", source, variable, str(store))
    values = np.ma.masked_invalid(aa.open(source)[variable].astype("f8")[:])
    for operation in ("mean", "std"):
        result = next(a for a in aa.open(store) if a.name == f"{variable}_{operation}")
        expected = getattr(values, operation)(axis=0).filled(np.nan)
        assert np.allclose(result[:], expected, rtol=1e-10, atol=1e-10, equal_nan=True)


@pytest.mark.heavy
def test_climatology(tmp_path: Path) -> None:
    climatology(ARCHIVE, "tas", tmp_path / "out.zarr")


@pytest.mark.heavy
def test_climatology_of_a_model(tmp_path: Path, shared_data: Path) -> None:
    variable = next((shared_data / "cmip6").rglob("Amon/*"))
    climatology(str(variable), variable.name, tmp_path / "out.zarr")


@pytest.mark.heavy
def test_climatology_in_a_netcdf_file(tmp_path: Path) -> None:
    climatology(ARCHIVE, "tas", tmp_path / "out.nc")


def fill_gaps(source: str, variable: str, path: Path) -> None:
    """Run the example and compare with NumPy; netCDF4 reads the file."""
    printed = run_mpi(4, "examples/fill_gaps.py", source, variable, str(path))
    array = aa.open(source)[variable]
    values = array[:]
    axis = array.dimensions.index("time")
    mean = np.ma.masked_invalid(values.astype("f8")).mean(axis=axis, keepdims=True).filled(np.nan).astype(values.dtype)
    with netCDF4.Dataset(path) as file:
        result = file[variable]
        expected = np.where(np.isnan(values), mean, values)
        assert np.array_equal(np.ma.filled(result[...], np.nan), expected, equal_nan=True)
        assert (result.units, result.dimensions) == (array.units, array.dimensions) and result.filters()["zlib"]
        for name in array.dimensions:
            assert np.array_equal(file[name][...], array.coords[name][...])
    assert f"{np.isnan(values).sum()} of {values.size} values filled" in printed


@pytest.mark.heavy
def test_fill_gaps(tmp_path: Path) -> None:
    with_gaps(tmp_path / "gaps.nc")
    fill_gaps(str(tmp_path / "gaps.nc"), "tas", tmp_path / "out.nc")


def with_gaps(path: Path) -> None:
    """Write a file with missing values."""
    values = np.random.default_rng(0).random((9, 7, 5), np.float32)
    values[values < 0.2] = np.float32(1e20)
    with netCDF4.Dataset(path, "w") as file:
        for name, size in zip(("time", "lat", "lon"), values.shape, strict=True):
            file.createDimension(name, size)
            file.createVariable(name, "f8", (name,))[:] = np.arange(size)
        file["time"].units = "days since 2000-01-01"
        tas = file.createVariable("tas", "f4", ("time", "lat", "lon"), fill_value=np.float32(1e20))
        tas.set_auto_maskandscale(False)
        tas.units, tas[:] = "K", values


@pytest.mark.heavy
def test_fill_gaps_of_a_model(tmp_path: Path, shared_data: Path) -> None:
    variable = next((shared_data / "cmip6").rglob("Amon/*"))
    fill_gaps(str(variable), variable.name, tmp_path / "out.nc")


def scan_on_a_pool(source: str, index: Path) -> str:
    """Run the example and compare with an aggregation by one process; return what it prints."""
    printed = run_mpi(3, "-m", "mpi4py.futures", "examples/mpi_pool_scan.py", source, str(index))
    check_equal(aa.open(source, processes=1), aa.open(index))
    return printed


@pytest.mark.heavy
def test_scan_on_a_pool(tmp_path: Path) -> None:
    assert "1 arrays of 12 files, scanned by 2 workers" in scan_on_a_pool(ARCHIVE, tmp_path / "archive.nca")


@pytest.mark.heavy
def test_scan_of_models_on_a_pool(tmp_path: Path, shared_data: Path) -> None:
    printed = scan_on_a_pool(str((shared_data / "cmip6").resolve()), tmp_path / "cmip6.nca")
    assert "of 326 files, scanned by 2 workers" in printed


@pytest.mark.heavy
def test_pylops_imports_sections() -> None:
    pytest.importorskip("pylops_mpi", reason="no pylops-mpi")
    assert "as NumPy does" in run_mpi(4, "examples/pylops_consumer.py")


def dask_climatology(source: str, variable: str, path: Path) -> None:
    """Run the example on two worker processes and compare with NumPy."""
    pytest.importorskip("distributed", reason="no dask.distributed")
    command = [sys.executable, "-W", "error", "examples/dask_climatology.py", source, variable, str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    array = aa.open(source)[variable]
    values = np.ma.masked_invalid(array.astype("f8")[:])
    months = np.array([date.month for date in array.coords["time"].datetimes().astype(object)])
    with netCDF4.Dataset(path) as file:
        assert file["month"][:].tolist() == [*range(1, 13)]
        for operation in ("mean", "std"):
            expected = np.stack([getattr(values[months == month], operation)(axis=0).filled(np.nan) for month in range(1, 13)])
            assert np.allclose(np.ma.filled(file[f"{variable}_{operation}"][:], np.nan), expected, rtol=1e-4, equal_nan=True)
    assert f"{variable}: {len(months)} steps in" in done.stdout and "on 2 workers" in done.stdout


@pytest.mark.heavy
def test_dask_climatology(tmp_path: Path) -> None:
    dask_climatology(ARCHIVE, "tas", tmp_path / "out.nc")


@pytest.mark.heavy
def test_dask_climatology_of_a_model(tmp_path: Path, shared_data: Path) -> None:
    variable = next((shared_data / "cmip6").rglob("Amon/*"))
    dask_climatology(str(variable), variable.name, tmp_path / "out.nc")


#: Commands of Slurm for dask-jobqueue: a job is a process group in the background, and runs a copy of its script.
_SLURM = {
    "sbatch": '#!/bin/sh\ncp "$1" "$1.job"\nsetsid sh "$1.job" > "$1.out" 2>&1 < /dev/null &\necho "Submitted batch job $!"\n',
    "scancel": '#!/bin/sh\nkill -- "-$1" 2>/dev/null || true\n',
}


@pytest.mark.heavy
def test_dask_on_a_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("dask_jobqueue", reason="no dask-jobqueue")
    page = (ROOT / "docs" / "howto" / "cluster.md").read_text(encoding="utf-8")
    program = next(block for block in blocks(page) if block.file == "dask_cluster.py")
    (tmp_path / "dask_cluster.py").write_text(program.text, encoding="utf-8")
    for name, text in _SLURM.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    models.main(str(tmp_path))
    aa.open(tmp_path / "cmip6").save(tmp_path / "cmip6.nca")
    paths = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "dask_cluster.py", str(tmp_path / "cmip6.nca"), "2"]
    done = subprocess.run(
        command, cwd=tmp_path, env=os.environ | paths, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    array = aa.open(tmp_path / "cmip6").select("tas", source_id="BETA", experiment_id="historical")["tas"]
    assert np.allclose(aa.open(tmp_path / "mean.nc")["tas"][:], array[:].mean(axis=0), rtol=1e-5)


@pytest.mark.heavy
def test_cubed_mean(tmp_path: Path) -> None:
    pytest.importorskip("cubed_xarray", reason="no cubed-xarray")
    output = tmp_path / "mean.nc"
    command = [sys.executable, "examples/cubed_mean.py", ARCHIVE, "tas", str(output), "400MB"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0 and "mean in" in done.stdout, done.stdout + done.stderr
    values = aa.open(ROOT / ARCHIVE)["tas"].astype("f8")[:]
    assert np.allclose(aa.open(output)["tas"][:], np.nanmean(values, axis=0), rtol=1e-6)
