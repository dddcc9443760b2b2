"""The shell's ``reduce`` and the reductions of job files: values, names, a second run, errors before anything is read."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import xarray as xr
from click.testing import CliRunner

import aggarray as aa
from aggarray import reduce as engine
from aggarray.cli import commands, main
from tests.support.netcdf import cube, write
from tests.support.paths import ROOT


def run(*arguments: object) -> tuple[int, str, str]:
    """Run a command in this process; return exit status, standard output, standard error."""
    done = CliRunner().invoke(commands, [str(a) for a in arguments])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout, done.stderr


def error_of(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    """Run a command that fails; return exit status and the last line of standard error."""
    with pytest.raises(SystemExit) as stop:
        main([str(a) for a in arguments])
    return int(stop.value.code or 0), capsys.readouterr().err.strip().splitlines()[-1]


@contextmanager
def passes() -> Iterator[list[tuple[Any, ...]]]:
    """Record the operations and dimensions of each pass over the files."""
    made: list[tuple[Any, ...]] = []
    reduce_array = engine.reduce_array

    def record(array: Any, operations: Any, dims: Any = None, **how: Any) -> Any:
        made.append((array.name, tuple(operations), dims))
        return reduce_array(array, operations, dims, **how)

    with mock.patch.object(engine, "reduce_array", record):
        yield made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of three files of 40 days each."""
    for number in range(3):
        write_days(tmp_path, number)
    return tmp_path / "data"


def write_days(folder: Path, number: int) -> None:
    variables = cube(np.arange(40.0) + 40 * number, np.linspace(-40, 40, 5), [0.0, 90.0, 180.0])
    values = variables["tas"][1].astype("f8") + np.random.default_rng(number).normal(size=variables["tas"][1].shape)
    values[3, 2] = np.nan
    variables["tas"] = (variables["tas"][0], values, {**variables["tas"][2], "_FillValue": 1e20})
    variables["tas"][1][np.isnan(values)] = 1e20
    variables["orog"] = (("lat", "lon"), np.arange(15.0).reshape(5, 3), {"units": "m"})
    write(folder / "data" / f"{number}.nc", variables, {"source_id": "M1", "history": "made", "tracking_id": f"id{number}"})


def read(path: Path) -> xr.Dataset:
    """Return the dataset that a command wrote."""
    opened = xr.open_zarr(path) if path.suffix == ".zarr" else xr.open_dataset(path)
    with opened:
        return opened.load()


@pytest.fixture
def whole(folder: Path) -> xr.Dataset:
    with xr.open_mfdataset(str(folder / "*.nc"), data_vars="minimal", coords="minimal", compat="override") as opened:
        return opened.load()


@pytest.mark.parametrize("suffix", ["nc", "zarr"])
def test_several_operations_in_one_pass(folder: Path, whole: xr.Dataset, suffix: str) -> None:
    out = folder.with_name(f"out.{suffix}")
    with passes() as made:
        status, text, err = run("reduce", folder, "-v", "tas", "--mean", "time", "--max", "--count", "-o", out)
    assert (status, err) == (0, "") and made == [("tas", ("mean", "max", "count"), ("time",))]
    assert text.startswith(f"{out}: tas_mean (lat: 5, lon: 3), tas_max (lat: 5, lon: 3), tas_count (lat: 5, lon: 3), ")
    result = read(out)
    np.testing.assert_allclose(result.tas_mean, whole.tas.mean("time"), rtol=1e-12)
    np.testing.assert_array_equal(result.tas_max, whole.tas.max("time"))
    np.testing.assert_array_equal(result.tas_count, whole.tas.count("time"))
    assert result.tas_mean.attrs["units"] == "K" and result.tas_mean.attrs["standard_name"] == "air_temperature"
    assert np.array_equal(result.lat, whole.lat) and result.attrs["source_id"] == "M1"
    first, second = result.attrs["history"].split("\n")
    assert f"aggarray reduce {folder} -v tas --mean time --max --count" in first and second == "made"
    assert result.attrs["tracking_id"].split("\n") == ["id0", "id1", "id2"]


def test_dimensions_of_each_operation(folder: Path, whole: xr.Dataset) -> None:
    out = folder.with_name("out.nc")
    with passes() as made:
        status, text, _ = run(
            "reduce", folder, "-v", "tas", "--mean", "time", "--mean", "lat,lon", "--max", "time", "-o", out, "--json"
        )
    assert status == 0 and made == [("tas", ("mean", "max"), ("time",)), ("tas", ("mean",), ("lat", "lon"))]
    facts = json.loads(text)
    assert facts["arrays"] == {
        "tas_mean_time": {"lat": 5, "lon": 3},
        "tas_mean_lat_lon": {"time": 120},
        "tas_max": {"lat": 5, "lon": 3},
    }
    assert facts["output"] == str(out) and not facts["unchanged"] and facts["left_out"] == []
    result = read(out)
    np.testing.assert_allclose(result.tas_mean_time, whole.tas.mean("time"), rtol=1e-12)
    np.testing.assert_allclose(result.tas_mean_lat_lon, whole.tas.mean(["lat", "lon"]), rtol=1e-12)
    assert np.array_equal(result.time, whole.time)


def test_a_single_result_keeps_its_name(folder: Path, whole: xr.Dataset) -> None:
    out = folder.with_name("out.nc")
    status, text, err = run("reduce", folder, "--std", "-o", out)
    assert status == 0 and text.startswith(f"{out}: tas (), orog (), ") and err == ""
    assert np.isclose(read(out).tas, whole.tas.std(), rtol=1e-12)
    status, text, err = run("reduce", folder, "--mean", "time", "-o", out, "--overwrite")
    assert (
        status == 0
        and text.startswith(f"{out}: tas (lat: 5, lon: 3), ")
        and err == "left out: orog, without these dimensions\n"
    )


def test_selection_units_groups_and_weights(folder: Path, whole: xr.Dataset) -> None:
    out, part = folder.with_name("out.nc"), whole.tas.sel(time=slice("2000-01-10", "2000-03-20"), lat=slice(-20, 40))
    labels = ("--sel", "time=2000-01-10:2000-03-20", "--sel", "lat=-20:40")
    assert (
        run("reduce", folder, "-v", "tas", "--mean", "time", "--by", "month", *labels, "--units", "tas=degC", "-o", out)[0] == 0
    )
    result = read(out).tas
    assert result.dims == ("month", "lat", "lon") and result.month.values.tolist() == [1, 2, 3]
    np.testing.assert_allclose(result, part.groupby("time.month").mean() - 273.15, rtol=1e-12)
    assert result.attrs["units"] == "degC"
    assert (
        run("reduce", folder, "-v", "tas", "--mean", "lat,lon", "--weights", "area", *labels, "-o", out, "--overwrite")[0] == 0
    )
    sines = np.sin(np.radians(np.minimum(part.lat + 10, 90))) - np.sin(np.radians(np.maximum(part.lat - 10, -90)))
    np.testing.assert_allclose(read(out).tas, part.weighted(sines).mean(["lat", "lon"]), rtol=1e-9)


def test_missing_values(folder: Path, whole: xr.Dataset) -> None:
    out = folder.with_name("out.nc")
    assert run("reduce", folder, "-v", "tas", "--mean", "time", "--no-skipna", "-o", out)[0] == 0
    np.testing.assert_allclose(read(out).tas, whole.tas.mean("time", skipna=False), rtol=1e-12)
    assert np.isnan(read(out).tas[2]).all() and np.isfinite(read(out).tas[0]).all()
    assert run("reduce", folder, "-v", "tas", "--sum", "time", "--skipna", "--min-count", 118, "-o", out, "--overwrite")[0] == 0
    np.testing.assert_allclose(read(out).tas, whole.tas.sum("time", min_count=118), rtol=1e-12)


def test_medians_and_quantiles(folder: Path, whole: xr.Dataset) -> None:
    out = folder.with_name("out.nc")
    options = ("--median", "time", "--quantile", 0.9, "--quantile", "0.005:time", "--mean")
    assert run("reduce", folder, "-v", "tas", *options, "-o", out)[0] == 0
    result = read(out)
    for name, expected in (("median", whole.tas.median("time")), ("mean", whole.tas.mean("time"))):
        np.testing.assert_allclose(result[f"tas_{name}"], expected, rtol=1e-12)
    for name, q in (("p90", 0.9), ("p0.5", 0.005)):
        np.testing.assert_allclose(result[f"tas_{name}"], whole.tas.quantile(q, "time"), rtol=1e-12)
    options = ("--quantile", "0.1:time", "--by", "month", "--min-count", 25)
    assert run("reduce", folder, "-v", "tas", *options, "-o", out, "--overwrite")[0] == 0
    expected = whole.tas.groupby("time.month").quantile(0.1).where(whole.tas.groupby("time.month").count() >= 25)
    np.testing.assert_allclose(read(out).tas, expected.transpose("month", ...), rtol=1e-12)


def test_flags_are_integers_that_xarray_reads_as_flags(folder: Path) -> None:
    out = folder.with_name("out.nc")
    assert run("reduce", folder, "-v", "orog", "--any", "--all", "-o", out)[0] == 0
    result = read(out)
    assert result.orog_any.dtype == bool and bool(result.orog_any) and not bool(result.orog_all)


def test_a_second_run_is_unchanged_and_new_files_are_added(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = folder.with_name("out.nc")
    command = ("reduce", folder, "-v", "tas", "--mean", "time", "--by", "month", "-o", out)
    assert "month: 4" in run(*command)[1]
    before = out.stat()
    with passes() as made:
        assert run(*command)[:2] == (0, f"{out}: unchanged\n")
        assert json.loads(run(*command, "--json")[1])["arrays"] == {"tas": {"month": 4, "lat": 5, "lon": 3}}
        assert run(*command, "--dry-run")[1] == f"{out}: unchanged\n"
    assert out.stat() == before and not made
    write_days(folder.parent, 3)
    assert run(*command, "--dry-run")[1] == f"{out}: would be written: tas\n" and out.stat() == before
    assert "month: 6" in run(*command)[1]
    os.utime(folder / "1.nc", (1, 1))
    with passes() as made:
        assert "month: 6" in run(*command)[1] and made
    # Another command does not replace it without --overwrite.
    before = out.stat()
    assert "already exists" in error_of(capsys, *command, "--min-count", "2")[1] and out.stat() == before


def test_a_killed_run_leaves_nothing_half_written(folder: Path) -> None:
    out = folder.with_name("out.nc")
    command = ["reduce", str(folder), "-v", "tas", "--mean", "time", "--compress", "zlib:1", "-o", str(out)]
    for place in ("aggarray.export.extract.pieces.Pieces.assemble", "aggarray.reduce.reduce_array"):
        kill = f"lambda *a, **k: os.kill(os.getpid(), {signal.SIGKILL})"
        script = f"import os, unittest.mock as m; m.patch({place!r}, {kill}).start(); "
        script += f"from aggarray.cli import main; main({command!r})"
        done = subprocess.run([sys.executable, "-c", script], env=os.environ | {"PYTHONPATH": str(ROOT)}, check=False)
        assert done.returncode == -signal.SIGKILL and not out.exists()
    assert run(*command)[0] == 0 and read(out).tas.shape == (5, 3)
    assert sorted(p.name for p in folder.parent.iterdir()) == ["data", "out.nc"]


@pytest.mark.parametrize(
    ("options", "status", "text"),
    [
        ((), 2, "no operation is given; give one, such as --mean time"),
        (("--mean", "time", "--mean", "time"), 2, "--mean time is given twice"),
        (("--mean", "time", "--max", "lat", "--min"), 2, "the dimensions of --min are not clear: the others have time and lat"),
        (("--mean", "tim"), 1, "no dimension 'tim'"),
        (("--mean", "time", "--by", "moth"), 1, "'moth'"),
        (("--mean", "time", "--weights", "are"), 1, "'are'"),
        (("--mean", "lat", "--by", "month"), 1, "'lat'"),
        (
            ("--mean", "lat,lon", "--by", "month"),
            2,
            "--by groups one dimension: lat,lon is given; name it, such as --mean time",
        ),
        (("--mean", "--by", "month"), 2, "--by groups one dimension: none is given"),
        (("--first", "lat,lon"), 1, "first is along one dimension"),
        (("--mean", "time", "--compress", "lzma"), 2, "lzma"),
        (("--mean", "time", "--skipna", "--no-skipna"), 2, "contradict each other"),
        (("--quantile", "1.5:time"), 2, "--quantile: '1.5:time' is not a number from 0 to 1"),
        (("--quantile", "half"), 2, "'half' is not a number from 0 to 1"),
        (("--median", "tim"), 1, "no dimension 'tim'"),
        (("--median", "time", "--weights", "time"), 1, "a median has no weights; leave out"),
        (("--mean", "time", "--min-count", "-1"), 2, "--min-count"),
    ],
)
@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
def test_errors_before_anything_is_read(
    folder: Path,
    options: tuple[str, ...],
    status: int,
    text: str,
    dry: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = folder.with_name("out.nc")
    with mock.patch.object(aa.MasterArray, "read", side_effect=AssertionError("read")):
        found = error_of(capsys, "reduce", folder, "-v", "tas", *options, *dry, "-o", out)
    assert found[0] == status and text in found[1], found
    assert not out.exists()


def test_a_source_after_an_operation(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = folder.with_name("out.nc")
    assert "give it first" in error_of(capsys, "reduce", "-v", "tas", "-o", out, "--mean", folder)[1]
    assert run("reduce", "-v", "tas", "-o", out, "--mean", "--max", "--", folder)[0] == 0


JOB = """
[input]
source = "data/*.nc"

[[reduce]]
path = "monthly.nc"
variables = "tas"
mean = "time"
max = true
by = "month"
sel = { lat = "0:" }

[[reduce]]
path = "field.zarr"
mean = ["lat", "lon"]
quantile = ["0.25:lat,lon", "0.5:time"]
skipna = false
min_count = 2
"""


def test_a_job(folder: Path, whole: xr.Dataset) -> None:
    job = folder.with_name("job.toml")
    job.write_text(JOB)
    there = str(folder.parent)
    assert run("run", job, "--dry-run")[1].replace(f"{there}/", "").splitlines() == [
        "reduce monthly.nc: would be written",
        "reduce field.zarr: would be written",
    ]
    status, text, err = run("run", job)
    lines = text.replace(f"{there}/", "").splitlines()
    assert (status, err) == (0, "")
    assert lines[0].startswith("reduce monthly.nc: tas_mean (month: 4, lat: 3, lon: 3), tas_max (month: 4, lat: 3, lon: 3), ")
    assert lines[1].startswith("reduce field.zarr: tas_mean (time: 120), tas_p25 (time: 120), tas_p50 (lat: 5, lon: 3), ")
    assert lines[1].endswith("; left out: orog")
    part = whole.tas.sel(lat=slice(0, None)).groupby("time.month")
    np.testing.assert_allclose(read(folder.with_name("monthly.nc")).tas_mean, part.mean(), rtol=1e-12)
    np.testing.assert_allclose(
        read(folder.with_name("field.zarr")).tas_mean, whole.tas.mean(["lat", "lon"], skipna=False), rtol=1e-12
    )
    for options in ((), ("--dry-run",)):
        assert all(line.endswith(": unchanged") for line in run("run", job, *options)[1].splitlines())
    write_days(folder.parent, 3)
    assert "reduce field.zarr: tas_mean (time: 160)" in run("run", job)[1].replace(f"{there}/", "")


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("mean =", "men =", "unknown key 'men'; did you mean 'mean'?"),
        (
            'mean = "time"',
            'mean = ["time", "lat"]',
            "by groups one dimension: time,lat is given; name it, such as mean = 'time'",
        ),
        ("max = true", "max = false", "[reduce 1]: max = False is invalid; give a dimension"),
        ("max = true", 'max = ["time", 3]', "max = ['time', 3] is invalid"),
        ("min_count = 2", 'min_count = "2"', "min_count = '2' is invalid; give a whole number"),
        ('quantile = ["0.25:lat,lon", "0.5:time"]', "quantile = 2", "field.zarr: 2 is not a number from 0 to 1"),
        ('quantile = ["0.25:lat,lon", "0.5:time"]', "quantile = [[]]", "quantile = [[]] is invalid; give a number from 0 to 1"),
        (
            'mean = ["lat", "lon"]\nquantile = ["0.25:lat,lon", "0.5:time"]',
            "",
            "field.zarr: no operation is given; give one, such as mean = 'time'",
        ),
        ("field.zarr", "monthly.nc", "monthly.nc: overlaps an output"),
        ("field.zarr", "field.txt", "no known suffix"),
    ],
)
def test_an_invalid_job(folder: Path, old: str, new: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    job = folder.with_name("job.toml")
    job.write_text(JOB.replace(old, new))
    status, line = error_of(capsys, "run", job)
    assert status == 2 and text in line, line


@pytest.mark.heavy
def test_every_dataset_of_a_real_archive(shared_data: Path, tmp_path: Path) -> None:
    agg = aa.open(shared_data / "cmip6", rules=aa.Rules.cmip())
    agg.save(tmp_path / "cmip6.nca")
    facets = ("source_id", "table_id", "grid_label")
    chosen = [[str(a.file_attrs.get(f) or a.attrs[f]) for f in facets] for a in agg]
    tables = [
        f"""[[reduce]]
path = "{number}.nc"
where = {{ {", ".join(f'{f} = "{value}"' for f, value in zip(facets, values, strict=True))} }}
mean = "time"
std = true
quantile = 0.9
by = "month"
"""
        for number, values in enumerate(chosen)
    ]
    (tmp_path / "job.toml").write_text("\n".join(['[input]\nsource = "cmip6.nca"\n', *tables]))
    status, text, err = run("run", tmp_path / "job.toml")
    assert (status, err) == (0, "") and len(text.splitlines()) == len(agg) == 76
    for number, array in enumerate(agg):
        values = array[...].astype("f8")
        months = np.array([time.month for time in array.coords["time"].to_xarray().to_index()])
        result = read(tmp_path / f"{number}.nc")
        assert np.array_equal(result["month"], np.unique(months))
        parts = [values[months == month] for month in result["month"].values]
        for name, function in (("mean", np.nanmean), ("std", np.nanstd), ("p90", lambda v, axis: np.nanquantile(v, 0.9, axis))):
            expected = [function(part, axis=0) for part in parts]
            np.testing.assert_allclose(result[f"ta_{name}"], expected, rtol=1e-11, equal_nan=True, err_msg=str(chosen[number]))
    assert all(line.endswith(": unchanged") for line in run("run", tmp_path / "job.toml")[1].splitlines())
