"""The examples give the correct results on four ranks."""

from pathlib import Path

import numpy as np
import pytest

import aggarray as aa
from tests.support.mpi import run_mpi

ARCHIVE = "sample_data/archive"


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


def climatology(source: str, variable: str, store: Path) -> None:
    """Run the example and compare with NumPy."""
    run_mpi(4, "examples/climatology.py", source, variable, str(store))
    values = np.ma.masked_invalid(aa.open(source)[variable].astype("f8")[:])
    for operation in ("mean", "std"):
        result = next(a for a in aa.open(store) if a.name == f"{variable}_{operation}")
        expected = getattr(values, operation)(axis=0).filled(np.nan)
        assert np.allclose(result[:], expected, rtol=1e-10, atol=1e-10, equal_nan=True)


def test_climatology(tmp_path: Path) -> None:
    climatology(ARCHIVE, "tas", tmp_path / "out.zarr")


def test_climatology_of_a_model(tmp_path: Path, shared_data: Path) -> None:
    variable = next((shared_data / "cmip6").rglob("Amon/*"))
    climatology(str(variable), variable.name, tmp_path / "out.zarr")


def test_pylops_imports_sections() -> None:
    pytest.importorskip("pylops_mpi", reason="no pylops-mpi")
    assert "as NumPy does" in run_mpi(4, "examples/pylops_consumer.py")
