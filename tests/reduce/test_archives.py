"""Groups and weights of a real archive against xarray and CDO."""

import shutil
import subprocess
import warnings
from collections.abc import Iterator
from pathlib import Path

import netCDF4
import numpy as np
import pytest
import xarray as xr

import aggarray as aa
from aggarray import MasterArray
from aggarray.reduce.grouping import SEASONS


@pytest.fixture(scope="module")
def archive(shared_data: Path) -> list[MasterArray]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return aa.open(shared_data / "cmip6").arrays


def by_xarray(x: xr.DataArray) -> Iterator[tuple[str, xr.DataArray]]:
    for by in ("month", "dayofyear", "year"):
        yield by, x.groupby(f"time.{by}").mean().rename({"year": "time"} if by == "year" else {})
    yield "season", x.groupby("time.season").mean().sel(season=list(SEASONS))
    yield "year-season", x.resample(time="QS-DEC").mean().dropna("time", how="all")
    yield "10-year", x.resample(time="10YS").mean()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.heavy
def test_groups_are_those_of_xarray(archive: list[MasterArray]) -> None:
    for a in archive[::6]:
        x = a.to_xarray().load().astype("f8")
        for by, expected in by_xarray(x):
            result = a.mean("time", by=by)
            np.testing.assert_allclose(result[...], expected.transpose(*result.dimensions).values, rtol=1e-12, err_msg=by)
        anomaly = x.groupby("time.month") - x.groupby("time.month").mean()
        np.testing.assert_allclose(a.anomaly()[...], anomaly.transpose(*a.dimensions).values, rtol=1e-6, atol=1e-5)
        rolled = x.rolling(time=12).mean().isel(time=slice(11, None))
        np.testing.assert_allclose(a.running_mean(12)[...], rolled.transpose(*a.dimensions).values, rtol=1e-12)


@pytest.mark.filterwarnings("ignore")
def test_weights_of_months_are_those_of_xarray(archive: list[MasterArray]) -> None:
    checked = set()
    for a in archive:
        time = a.coords["time"]
        days = a.to_xarray()["time"].dt.days_in_month
        lengths = np.diff(a.coords["time_bnds"][:], axis=1)[:, 0] if "time_bnds" in a.coords else days.values
        if a.file_attrs.get("table_id") != "Amon" or time.calendar in checked or not np.array_equal(lengths, days.values):
            continue  # the bounds of some models are not those of months
        checked.add(time.calendar)
        x = a.to_xarray().load().astype("f8")
        expected = (x * days).groupby("time.year").sum() / days.groupby("time.year").sum()
        result = a.mean("time", by="year", weights="time")
        np.testing.assert_allclose(result[...], expected.transpose("year", *a.dimensions[1:]).values, rtol=1e-12)
    assert len(checked) >= 4


@pytest.mark.filterwarnings("ignore")
@pytest.mark.heavy
def test_groups_are_those_of_cdo(archive: list[MasterArray], tmp_path: Path) -> None:
    if shutil.which("cdo") is None:
        pytest.skip("no CDO")
    seen = set()
    for a in archive:
        key = a.coords["time"].calendar, a.file_attrs["table_id"]
        files = sorted(a.files_for([(n,) for n in a.shape]).ravel()[0])
        if key in seen or key[0] == "julian":  # CDO reads its dates as those of the standard calendar
            continue
        if a.max()[()] > 1e30:
            continue  # times that were not written have netCDF's default fill value, which the file does not declare
        seen.add(key)
        merged = tmp_path / "merged.nc"
        subprocess.run(["cdo", "-s", "-O", "mergetime", *files, merged], check=True, capture_output=True)
        for operator, result in (
            ("monmean", a.mean("time", by="year-month")),
            ("ymonmean", a.climatology("month")),
            ("yseasmean", a.climatology("season")),
            ("seasmean", a.mean("time", by="year-season")),
            ("yearmax", a.max("time", by="year")),
            ("ydaymean", a.climatology("dayofyear")),
        ):
            out = tmp_path / "out.nc"
            subprocess.run(["cdo", "-s", "-O", operator, merged, out], check=True, capture_output=True)
            with netCDF4.Dataset(out) as file:
                theirs = np.ma.filled(file[a.name][:], np.nan)
            # CDO's days of leap years are those of the same month and day.
            if operator != "ydaymean" or key[0] in ("365_day", "noleap", "360_day"):
                np.testing.assert_allclose(result[...], theirs, rtol=2e-6, err_msg=f"{operator} {key}")
    assert len(seen) >= 4
