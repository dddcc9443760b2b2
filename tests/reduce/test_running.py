"""Running means against xarray's rolling windows."""

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

import aggarray as aa
from aggarray import MasterArray
from aggarray.errors import SelectionError
from aggarray.reduce import running
from aggarray.reduce.running import window_sums
from tests.reduce.arrays import array, series


@settings(deadline=None)
@given(st.lists(st.integers(-(2**40), 2**40), min_size=1, max_size=60), st.integers(1, 60))
def test_sums_of_windows(values: list[int], steps: int) -> None:
    if steps > len(values):
        return
    expected = [sum(values[i : i + steps]) for i in range(len(values) - steps + 1)]
    assert window_sums(np.array(values, float), steps).tolist() == expected


def test_a_large_value_leaves_no_error() -> None:
    values = np.array([0.1, 1e18, 0.2, 0.3, 0.4, 0.5])
    exact = [float(sum(map(Fraction, values[i : i + 2].tolist()))) for i in range(5)]
    np.testing.assert_allclose(window_sums(values, 2), exact, rtol=1e-15)


def archive(path: Path, chunks: tuple[int, int, int]) -> MasterArray:
    """Return an array of two files with chunks, units and missing values."""
    import netCDF4

    rng = np.random.default_rng(0)
    values = np.ma.array(rng.normal(280, 10, (40, 6, 5)).astype("f4"), mask=rng.random((40, 6, 5)) < 0.2)
    for number, part in enumerate((slice(0, 17), slice(17, 40))):
        with netCDF4.Dataset(path / f"{number}.nc", "w") as file:
            for name, size in (("time", None), ("y", 6), ("x", 5)):
                file.createDimension(name, size)
            time = file.createVariable("time", "f8", ("time",))
            time.units, time.standard_name, time[:] = "days since 2000-01-01", "time", np.arange(40)[part]
            tas = file.createVariable("tas", "f4", ("time", "y", "x"), zlib=True, chunksizes=chunks, fill_value=-1.0)
            tas.units, tas[:] = "K", values[part]
    return aa.open(path)["tas"]


@pytest.mark.parametrize("memory", [1 << 26, 3000])
@pytest.mark.parametrize("chunks", [(1, 6, 5), (5, 2, 3)])
@pytest.mark.parametrize(("steps", "dimension"), [(1, "time"), (7, "time"), (40, "time"), (3, "y")])
def test_running_means_are_those_of_xarray(
    steps: int, dimension: str, chunks: Any, memory: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "_MEMORY", memory)
    monkeypatch.setattr(running, "_BLOCK", 400)
    a = archive(tmp_path, chunks)
    values = xr.DataArray(a[...].astype(float), dims=a.dimensions)
    rolled = values.rolling({dimension: steps}, min_periods=1).mean().isel({dimension: slice(steps - 1, None)})
    np.testing.assert_allclose(a.running_mean(steps, dimension, min_count=1)[...], rolled.values, rtol=1e-12)
    strict = values.rolling({dimension: steps}).mean().isel({dimension: slice(steps - 1, None)})
    for options in ({}, {"skipna": False}):
        np.testing.assert_allclose(a.running_mean(steps, dimension, **options)[...], strict.values, rtol=1e-12)
    least = values.rolling({dimension: steps}, min_periods=min(3, steps)).mean().isel({dimension: slice(steps - 1, None)})
    np.testing.assert_allclose(a.running_mean(steps, dimension, min_count=min(3, steps))[...], least.values, rtol=1e-12)


@pytest.mark.parametrize("weights", [None, np.arange(40) % 3])
@pytest.mark.parametrize("steps", [1, 2, 39])
def test_windows_that_do_not_fit_into_memory(steps: int, weights: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a = archive(tmp_path, (3, 6, 5))
    for least in (1, None):
        monkeypatch.setattr(running, "_MEMORY", 1 << 26)
        expected = a.running_mean(steps, weights=weights, min_count=least)[...]
        monkeypatch.setattr(running, "_MEMORY", 0)
        np.testing.assert_allclose(a.running_mean(steps, weights=weights, min_count=least)[...], expected, rtol=1e-13)


@pytest.mark.parametrize("memory", [0, 1 << 26])
def test_infinite_and_large_values_leave_the_windows(memory: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "_MEMORY", memory)
    values = np.array([1.0, np.inf, 2.0, 3.0, -np.inf, np.inf, 4.0, 1e18, 0.1, 0.2])
    a = array(values, ("x",), {})
    expected = [np.inf, np.inf, 2.5, -np.inf, np.nan, np.inf, 5e17, 5e17, 0.15]
    np.testing.assert_allclose(a.running_mean(2, "x")[:], expected, rtol=1e-14)


def test_weighted_running_means() -> None:
    starts = np.array([0, 31, 60, 91, 121, 152, 182, 213, 244, 274, 305, 335, 366], float)
    a = series(starts[:-1] + 14)
    days = np.diff(starts)
    values = np.arange(12.0)
    expected = [np.average(values[i : i + 3], weights=days[i : i + 3]) for i in range(10)]
    np.testing.assert_allclose(a.running_mean(3, weights="time")[:], expected, rtol=1e-13)
    own = np.arange(12)
    expected = [np.average(values[i : i + 3], weights=own[i : i + 3]) for i in range(10)]
    np.testing.assert_allclose(a.running_mean(3, weights=own)[:], expected, rtol=1e-13)


def test_metadata() -> None:
    days = np.arange(10.0)
    bounds = np.stack([days, days + 1], axis=1)
    r = series(days + 0.5, bounds=bounds).running_mean(3)
    assert r.attrs["cell_methods"] == "time: mean (interval: 1 day comment: running over 3 values)"
    assert r.coords["time"][:].tolist() == [n + 1.5 for n in range(8)]
    assert r.coords["time_bnds"][:].tolist() == [[n, n + 3] for n in range(8)]
    assert "running mean of tas(time=10): over 3 values along time" in r.file_attrs["history"]
    plain = array(np.arange(4.0), ("x",), {"x": (("x",), np.array([3.0, 2.0, 1.0, 0.0]), {})})
    assert plain.running_mean(2, "x").coords["x"][:].tolist() == [2.5, 1.5, 0.5]


@pytest.mark.parametrize("steps", [0, 11, 2.5, True, "3"])
def test_wrong_steps(steps: Any) -> None:
    with pytest.raises(SelectionError, match="invalid number of steps"):
        series(np.arange(10.0)).running_mean(steps)
