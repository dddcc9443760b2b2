"""The shell's ``extract`` and jobs: chunks, shards, appending."""

import json
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pytest
import xarray as xr
import zarr

import aggarray as aa
from aggarray.cli import commands, main
from tests.cli.test_extract import run
from tests.support.netcdf import cube, write


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """An index of two files of ten days each, beside a third one."""
    for number in range(3):
        write(
            tmp_path / f"data{number // 2}" / f"{number}.nc", cube(np.arange(10.0) + number * 10), {"tracking_id": f"i{number}"}
        )
    aa.open(tmp_path / "data0").save(tmp_path / "tas.nca")
    return tmp_path / "tas.nca"


def test_chunks_and_shards(archive: Path, tmp_path: Path) -> None:
    run("extract", archive, "--chunks", "time=4,lat=2", "--chunks", "lon=-1", "-o", tmp_path / "a.nc")
    with netCDF4.Dataset(tmp_path / "a.nc") as file:
        assert file["tas"].chunking() == [4, 2, 2]
    out = tmp_path / "a.zarr"
    assert run("extract", archive, "--chunks", "time=4", "--shards", "time=8", "--compress", "blosc_lz4", "-o", out)[0] == 0
    array = zarr.open_group(out, mode="r")["tas"]
    assert (array.chunks, array.shards) == ((4, 3, 2), (8, 3, 2))
    np.testing.assert_array_equal(array[...], aa.open(archive)["tas"][...])


@pytest.mark.parametrize("suffix", ["nc", "zarr"])
def test_append(archive: Path, tmp_path: Path, suffix: str) -> None:
    out = tmp_path / f"out.{suffix}"
    line = ("extract", archive, "--sel", "lat=10:20", "--append", "-o", out)
    assert "appended" not in run(*line)[1] and run(*line)[1] == f"{out}: unchanged\n"
    assert run("append", archive, tmp_path / "data1")[0] == 0
    assert run(*line)[1].endswith("of values, 10 appended along time\n")
    assert json.loads(run(*line, "--json")[1]) | {"unchanged": True, "appended": 0} == json.loads(run(*line, "--json")[1])
    with xr.open_dataset(out, engine="zarr" if suffix == "zarr" else "netcdf4") as result:
        assert result.sizes == {"time": 30, "lat": 2, "lon": 2} and result.attrs["tracking_id"] == "i0\ni1\ni2"
        np.testing.assert_array_equal(result.tas.values, aa.open(archive)["tas"].sel(lat=slice(10, 20))[...])
        assert result.attrs["history"].count("aggarray extract") == 2 and "--append" in result.attrs["history"]


def test_a_file_that_grows(tmp_path: Path) -> None:
    """The file of the last year has more steps each day."""
    for days in (3, 4, 9):
        write(tmp_path / "data" / "a.nc", cube(np.arange(float(days))))
        for out in (tmp_path / "out.zarr", tmp_path / "out.nc"):
            assert run("extract", tmp_path / "data", "--append", "-o", out)[0] == 0
            with xr.open_dataset(out, engine="zarr" if out.suffix == ".zarr" else "netcdf4") as result:
                np.testing.assert_array_equal(result.tas.values, aa.open(tmp_path / "data")["tas"][...])


@pytest.mark.parametrize(
    ("options", "status", "words"),
    [
        (("--chunks", "time"), 2, "--chunks: 'time' is not of the form DIM=SIZE, such as time=30"),
        (("--chunks", "time=x"), 2, "--chunks: time=x is not a size; give a whole number"),
        (("--chunks", "time=3,time=4"), 2, "--chunks: 'time=4' contradicts time=3"),
        (("--shards", "time=4"), 2, "--shards: a .nc file has no shards; write to .zarr"),
        (("--append", "--overwrite"), 2, "--append keeps an existing output, and --overwrite replaces it"),
        (("--chunks", "tme=3"), 1, "--chunks tme=3: no dimension 'tme'; did you mean 'time'? the dimensions are: time,"),
        (("--chunks", "lat=0"), 1, "--chunks lat=0: 0 is not a chunk size; give a positive integer, or -1"),
    ],
)
def test_wrong_options(
    archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], status: int, words: str
) -> None:
    with pytest.raises(SystemExit, match=str(status)):
        main(["extract", str(archive), *options, "-o", str(tmp_path / "out.nc")])
    assert words in capsys.readouterr().err and not (tmp_path / "out.nc").exists()


def test_errors_of_an_append_name_options(archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = ["extract", str(archive), "-o", str(tmp_path / "out.zarr"), "--append", "--chunks", "time=4"]
    assert run(*line)[0] == 0
    for more, words in (
        (["--chunks", "time=5"], "--chunks time=5: the output has 4 (variable 'tas'"),
        (["--shards", "time=8"], "--shards time=8: the output has no"),
        (["--sel", "time=:2000-01-05"], "the selection is shorter: time 20 in the output, 5 now"),
        (["--units", "tas=degC"], "units differ: K in the output, degC now"),
    ):
        options = [word for word in line if word not in ("--chunks", "time=4")] if "--chunks" in more else line
        with pytest.raises(SystemExit, match="1"):
            main([*options, *more])
        error = capsys.readouterr().err
        assert words in error and error.count("\n") == 1 and "replace it with --overwrite" in error


def test_options_are_listed_in_groups() -> None:
    text = run("extract", "--help")[1]
    titles = [line for line in text.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert titles == ["Selection:", "Output:", "Reading:", "Joining:", "Options:"]
    options = [option for parameter in commands.get_command(None, "extract").params for option in parameter.opts]  # type: ignore
    assert all(text.count(f"{option} ") + text.count(f"{option}\n") >= 1 for option in options if option.startswith("--"))


JOB = """
[input]
source = "data0"
[index]
path = "index.nca"
[[extract]]
path = "a.zarr"
chunks = { time = 4 }
shards = { time = 8 }
append = true
[[extract]]
path = "a.nc"
chunks = { time = 4, lat = -1 }
append = true
"""


def test_a_job_appends(archive: Path, tmp_path: Path) -> None:
    job = tmp_path / "job.toml"
    job.write_text(JOB)
    assert run("run", job)[0] == 0
    assert run("run", job)[1].count("unchanged") == run("run", job, "--dry-run")[1].count("unchanged") == 3
    (tmp_path / "data1" / "2.nc").rename(tmp_path / "data0" / "2.nc")
    assert run("run", job)[1].count("10 appended along time") == 2
    array = zarr.open_group(tmp_path / "a.zarr", mode="r")["tas"]
    assert (array.chunks[0], array.shards[0], array.shape[0]) == (4, 8, 30)
    with netCDF4.Dataset(tmp_path / "a.nc") as file:
        assert file["tas"].chunking()[0] == 4 and file["tas"].shape[0] == 30


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("{ time = 4 }", "4", "chunks = 4 is invalid; give a table of sizes, such as { time = 30 }"),
        ("{ time = 4 }", "{ time = 0 }", "chunks = {'time': 0} is invalid; give a table of sizes"),
        ("{ time = 4 }", "{ time = true }", "is invalid; give a table of sizes"),
        ("append = true", "append = 1", "append = 1 is invalid; give true or false"),
        ("a.zarr", "b.nc", "a .nc file has no shards"),
    ],
)
def test_a_wrong_job(archive: Path, tmp_path: Path, old: str, new: str, words: str) -> None:
    job = tmp_path / "job.toml"
    job.write_text(JOB.replace(old, new, 1))
    status, _, error = run("run", job)
    assert status == 2 and words in error


def test_a_year_at_a_time_of_a_real_archive(shared_data: Path, tmp_path: Path) -> None:
    files = sorted((shared_data / "cmip6").rglob("ta_day_MIROC6_historical_r1i1p1f1_gn_*.nc"))
    if len(files) < 3:
        pytest.skip("no daily files of MIROC6")
    options: Any = {".zarr": ("--chunks", "time=30", "--shards", "time=360"), ".nc": ("--chunks", "time=100")}
    for suffix, more in options.items():
        out = tmp_path / f"out{suffix}"
        for number in range(1, len(files) + 1):
            assert run("extract", *files[:number], *more, "--append", "-o", out)[0] == 0
        expected = aa.open(files)["ta"]
        found = aa.open(out)["ta"]
        np.testing.assert_array_equal(found[...], expected[...])
        np.testing.assert_array_equal(found.coords["time_bnds"][...], expected.coords["time_bnds"][...])
        assert found.attrs == expected.attrs
