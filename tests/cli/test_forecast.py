"""Forecasts in the shell: --preset forecast, --forecast, and job files."""

from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from click.testing import CliRunner

import aggarray as aa
from aggarray.cli import commands
from tests.support import forecasts
from tests.support.netcdf import write

pytestmark = pytest.mark.quick

RUNS = {0: [0, 6, 12], 6: [0, 6, 12], 12: [0, 12]}


def run(*arguments: object) -> tuple[int, str, str]:
    """Run a command in this process; return exit status, standard output, standard error."""
    done = CliRunner().invoke(commands, [str(a) for a in arguments])
    assert isinstance(done.exception, SystemExit | aa.AggarrayError | None), done.exception
    error = f"{done.stderr}{done.exception or ''}"
    return done.exit_code, done.stdout, error


@pytest.fixture
def index(tmp_path: Path) -> Path:
    """An index of three runs, made in the shell."""
    forecasts.write_all(tmp_path / "data", {run: (leads, forecasts.valid_times, "hours") for run, leads in RUNS.items()})
    orography = {"orog": (("x",), forecasts.X, {"units": "m"}), "x": (("x",), forecasts.X, {"units": "m"})}
    write(tmp_path / "data" / "static.nc", orography)
    assert run("aggregate", tmp_path / "data", "-o", tmp_path / "runs.nca", "--preset", "forecast")[0] == 0
    return tmp_path / "runs.nca"


@pytest.mark.parametrize("view", ["best", "period=6", "period=6 hours", "run=2024-01-01T06"])
def test_extract_writes_a_view(index: Path, view: str) -> None:
    out = index.with_name("out.nc")
    assert run("extract", index, "-v", "tas", "--forecast", view, "-o", out)[0] == 0
    name, _, value = view.partition("=")
    expected = aa.open(index)["tas"].forecast(**({name: value} if value else {"view": name}))
    with xr.open_dataset(out) as written:
        assert written["tas"].dims == ("time", "x")
        np.testing.assert_array_equal(written["tas"], expected[:])


def test_labels_select_in_the_view_and_data_files_need_no_index(index: Path) -> None:
    out = index.with_name("out.zarr")
    source = index.parent / "data"
    given = ("--forecast", "best", "--sel", "time=2024-01-01T06:2024-01-01T12", "-o", out)
    status, text, error = run("extract", source, "-v", "tas", *given)
    assert (status, error) == (0, "")
    assert "tas (time: 2, x: 3)" in text
    np.testing.assert_array_equal(aa.open(out)["tas"][:], forecasts.best_of(RUNS)[1][1:3])


def test_reduce_reads_a_view(index: Path) -> None:
    out = index.with_name("mean.nc")
    assert run("reduce", index, "-v", "tas", "--forecast", "period=12", "--mean", "time", "-o", out)[0] == 0
    cube = forecasts.cube_of(RUNS)[2]
    np.testing.assert_allclose(aa.open(out)["tas"][:], np.nanmean(cube[:, 2], axis=0))


@pytest.mark.parametrize(
    ("view", "status", "text"),
    [
        ("latest", 2, "'latest' is no view; give best, period=LEAD"),
        ("period=", 2, "give best, period=LEAD"),
        ("period=7", 1, "period='7' not found: variable 'tas'; the nearest is 6 hours"),
        ("run=2025", 1, "run='2025' not found"),
    ],
)
def test_mistakes(index: Path, view: str, status: int, text: str) -> None:
    out = index.with_name("out.nc")
    code, _, error = run("extract", index, "-v", "tas", "--forecast", view, "-o", out)
    assert (code, text in error) == (status, True), error
    assert not out.exists()


def test_a_source_without_forecasts(index: Path) -> None:
    out = index.with_name("out.nc")
    code, _, error = run("extract", index, "-v", "orog", "--forecast", "best", "-o", out)
    assert code == 1
    assert (
        "no array over forecast_period and forecast_reference_time, only over x; give data files of forecasts, or an index"
        in error
    )


def test_jobs_write_views(index: Path) -> None:
    job = index.with_name("job.toml")
    lines = ['[input]\nsource = "data/*.nc"\n[rules]\npreset = "forecast"\n']
    lines += ['[[extract]]\npath = "best.nc"\nvariables = ["tas"]\nforecast = "best"\n']
    lines += ['[[reduce]]\npath = "max.nc"\nvariables = ["tas"]\nforecast = "run=2024-01-01T06"\nmax = "time"\n']
    job.write_text("".join(lines))
    status, text, error = run("run", job)
    assert (status, error) == (0, ""), text
    np.testing.assert_array_equal(aa.open(index.with_name("best.nc"))["tas"][:], forecasts.best_of(RUNS)[1])
    np.testing.assert_array_equal(aa.open(index.with_name("max.nc"))["tas"][:], forecasts.values(6, 12))
    job.write_text("".join(lines).replace('"best"', '"latest"'))
    status, _, error = run("run", job)
    assert (status, "forecast: 'latest' is no view" in error) == (2, True)


def test_append_in_the_shell(index: Path) -> None:
    forecasts.write_all(index.parent / "late", {18: ([0, 6], forecasts.steps, "minutes")})
    assert run("append", index, index.parent / "late")[0] == 0
    assert aa.open(index)["tas"].shape == (4, 3, 3)
    status, text, _ = run("info", index)
    assert (status, "forecast_reference_time" in text) == (0, True)


def test_xarray_opens_with_the_preset(index: Path) -> None:
    with xr.open_dataset(str(index.parent / "data"), engine="aggarray", preset="forecast", variables=["tas"]) as data:
        assert data["tas"].dims == ("forecast_reference_time", "forecast_period", "x")
        assert data["time"].dims == ("forecast_reference_time", "forecast_period")
