"""The shell's ``extract``: labels, attributes, what it prints; and what a shell completes."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from click.testing import CliRunner

import aggarray as aa
from aggarray.cli import _common, commands, main
from tests.support.netcdf import cube, write


def run(*arguments: object) -> tuple[int, str, str]:
    """Run a command in this process; return exit status, standard output, standard error."""
    done = CliRunner().invoke(commands, [str(a) for a in arguments])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout, done.stderr


@pytest.fixture
def index(tmp_path: Path) -> Path:
    """An index of two files of ten days each, with a half-daily axis."""
    times, lats = np.arange(20) / 2, np.linspace(-40, 40, 9)
    for number in range(2):
        write(tmp_path / "data" / f"{number}.nc", cube(times + number * 10, lats), {"source_id": "M1"})
    aa.open(tmp_path / "data").save(tmp_path / "tas.nca")
    return tmp_path / "tas.nca"


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["time=2000-01-02:2000-01-04"], {"time": slice("2000-01-02", "2000-01-04")}),
        (["time=2000-01-03"], {"time": "2000-01-03"}),
        (["time=2000-01-03T12:00"], {"time": "2000-01-03T12:00"}),
        (["time=2000-01-03T12:2000-01-05T00"], {"time": slice("2000-01-03T12", "2000-01-05T00")}),
        (["time=2000-01-03T12:00:00:2000-01-05T00:00"], {"time": slice("2000-01-03T12:00:00", "2000-01-05T00:00")}),
        (["time=:2000-01-05"], {"time": slice(None, "2000-01-05")}),
        (["time=2000:2000:7"], {"time": slice("2000", "2000", 7)}),
        (["lat=-20:20", "lon=5"], {"lat": slice(-20, 20), "lon": 5}),
        (["lat=-20.0:"], {"lat": slice(-20, None)}),
        (["lat=10,-10,30", "time=2000-01-02T00:00"], {"lat": [10, -10, 30], "time": "2000-01-02T00:00"}),
    ],
)
def test_labels_mean_what_they_mean_to_xarray(index: Path, texts: list[str], expected: dict[str, object]) -> None:
    out = index.with_name("out.nc")
    status, text, err = run("extract", index, "-v", "tas", *(x for t in texts for x in ("--sel", t)), "-o", out)
    assert (status, err) == (0, "") and text.startswith(f"{out}: tas (")
    with xr.open_mfdataset(str(index.parent / "data" / "*.nc")) as whole, xr.open_dataset(out) as result:
        xr.testing.assert_equal(result.load(), whole.sel(expected).load())


def test_a_method_is_for_single_labels(index: Path) -> None:
    out = index.with_name("out.zarr")
    labels = ("--sel", "lat=17", "--sel", "time=2000-01-02:2000-01-03", "--sel", "lon=0,4", "--method", "nearest")
    status, text, _ = run("extract", index, *labels, "-o", out, "--json")
    facts = json.loads(text)
    assert status == 0 and facts["output"] == str(out) and facts["arrays"] == {"tas": {"time": 4, "lon": 2}}
    assert set(facts["variables"]) == {"tas", "time", "lat", "lon"} and facts["resumed"] == 0 and not facts["unchanged"]
    with xr.open_zarr(out) as result:
        assert float(result.lat) == 20 and result.lon.values.tolist() == [0, 5] and result.tas.shape == (4, 2)


def extracted(source: Path, *options: str) -> xr.Dataset:
    """Return what a command extracts to a netCDF file."""
    out = source.with_name("extracted.nc")
    status, _, err = run("extract", source, *options, "-o", out, "--overwrite")
    assert (status, err) == (0, "")
    with xr.open_dataset(out) as result:
        return result.load()


def refused(source: Path, *options: str) -> str:
    """Return the error of an extract."""
    with pytest.raises(SystemExit, match="1"):
        main(["extract", str(source), *options, "-o", str(source.with_name("refused.nc"))])
    return ""


@pytest.mark.parametrize("lats", [np.linspace(-40, 40, 9), np.linspace(40, -40, 9)])
def test_ends_of_a_slice_in_either_order(tmp_path: Path, lats: np.ndarray) -> None:
    write(tmp_path / "a.nc", cube(np.arange(3.0), lats))
    source = tmp_path / "a.nc"
    for label in ("lat=-20:30", "lat=30:-20"):
        assert sorted(extracted(source, "--sel", label).lat.values) == [-20, -10, 0, 10, 20, 30]
    for label in ("lat=-20:20:2", "lat=20:-20:2"):
        assert sorted(extracted(source, "--sel", label).lat.values) == [-20, 0, 20]
    assert extracted(source, "--sel", "time=2000-01-02:2000-01-01").time.size == 2
    assert sorted(extracted(source, "--sel", "lat=:0").lat.values) == (
        [-40, -30, -20, -10, 0] if lats[0] < 0 else [0, 10, 20, 30, 40]
    )


@pytest.mark.parametrize(
    ("lats", "near", "far"),
    [
        ([-40.0, -30.0, -20.0], ["-50", "-45", "-33", "-10"], ["-51", "10", "-9", "1e6"]),
        ([88.36, 89.28], ["87.5", "88.9", "90"], ["10", "87", "91"]),
        ([1000.0, 925.0, 850.0, 700.0, 600.0, 500.0], ["1050", "775", "650", "550", "410"], ["1080", "399"]),
        ([0.0, 10.0, 20.0, 500.0, 510.0], ["30", "25", "495"], ["31", "260", "489"]),
        ([5.0], ["5"], ["6", "4.9"]),
    ],
)
@pytest.mark.parametrize("order", [1, -1])
def test_a_method_reaches_one_step(
    tmp_path: Path, lats: list[float], near: list[str], far: list[str], order: int, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "a.nc"
    write(source, cube([0.0], lats[::order]))
    with xr.open_dataset(source) as whole:
        for label in near:
            expected = whole.lat.sel(lat=float(label), method="nearest")
            assert extracted(source, "--sel", f"lat={label}", "--method", "nearest").lat == expected
        for label in far:
            refused(source, "--sel", f"lat={label}", "--method", "nearest")
            message = capsys.readouterr().err
            assert f"{min(lats)} to {max(lats)}, the nearest is" in message and "reaches one step of lat" in message
            expected = whole.lat.sel(lat=float(label), method="nearest")
            wide = ("--method", "nearest", "--tolerance", "1e9")
            assert extracted(source, "--sel", f"lat={label}", *wide).lat == expected
    # In Python a method has no limit, as in xarray.
    assert aa.open(source)["tas"].sel(lat=1e6, method="nearest").shape == (1, 2)


def test_a_list_by_a_method(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "a.nc", cube([0.0], [-40.0, -30.0, -10.0, 0.0]))
    assert extracted(tmp_path / "a.nc", "--sel", "lat=-50,-22,9", "--method", "nearest").lat.values.tolist() == [-40, -30, 0]
    refused(tmp_path / "a.nc", "--sel", "lat=-50,11", "--method", "nearest")
    assert "11 not found" in capsys.readouterr().err


@pytest.mark.parametrize("calendar", ["standard", "noleap"])
def test_times_by_a_method(tmp_path: Path, calendar: str, capsys: pytest.CaptureFixture[str]) -> None:
    source, bounds = tmp_path / "a.nc", (("time", "bnds"), [[n, n + 1.0] for n in range(3)])
    time = (
        ("time",),
        np.arange(3) + 0.5,
        {"standard_name": "time", "units": "days since 2000-01-01", "calendar": calendar, "bounds": "time_bnds"},
    )
    write(source, cube(np.arange(3.0), time=time, time_bnds=bounds))
    for label, day in (("1999-12-31T12:00", 1), ("2000-01-02T18:00", 2), ("2000-01-04T12:00", 3)):
        result = extracted(source, "--sel", f"time={label}", "--method", "nearest")
        assert (result.time.dt.day, result.tas.dims) == (day, ("lat", "lon"))
    for label in ("1999-12-31T11:00", "2000-01-04T13:00", "2099"):
        refused(source, "--sel", f"time={label}", "--method", "nearest")
        assert "reaches one step of time" in capsys.readouterr().err
    # A period is selected whole.
    assert extracted(source, "--sel", "time=2000", "--sel", "lat=12", "--method", "nearest").sizes["time"] == 3
    # The only time of a file reaches the length of its cell.
    one = extracted(source, "--sel", "time=2000-01-02")
    one.to_netcdf(tmp_path / "one.nc")
    assert extracted(tmp_path / "one.nc", "--sel", "time=2000-01-03T12:00", "--method", "nearest").tas.ndim == 2
    refused(tmp_path / "one.nc", "--sel", "time=2000-01-03T13:00", "--method", "nearest")


@pytest.mark.parametrize(("start", "outside", "inside"), [(0, "-10", 350), (-180, "190", -170)])
def test_longitudes_of_the_other_convention(
    tmp_path: Path, start: int, outside: str, inside: int, capsys: pytest.CaptureFixture[str]
) -> None:
    source, lons = tmp_path / "a.nc", np.arange(start, start + 360, 10.0)
    write(source, cube([0.0], lons=lons))
    refused(source, "--sel", f"lon={outside}")
    assert f"lon runs from {start}.0 to {start + 350}.0: write {inside} for {outside}" in capsys.readouterr().err
    for label in ("-180:180", "0:360"):
        assert extracted(source, "--sel", f"lon={label}").lon.size == 36
    refused(source, "--sel", "lon=-20:20" if start == 0 else "lon=160:200")
    assert ("select 340: and :20" if start == 0 else "select 160: and :-160") in capsys.readouterr().err
    refused(source, "--sel", "lon=170:-170" if start < 0 else "lon=350:10")
    assert "separately" in capsys.readouterr().err
    refused(source, "--sel", f"lon={start - 10}:{start + 20}")  # the first one is the last of the circle
    assert f"select {start + 350}: and :{start + 20} separately" in capsys.readouterr().err
    assert extracted(source, "--sel", f"lon={start - 5}:{start + 20}").lon.size == 3
    assert extracted(source, "--sel", f"lon={start + 20}:{start + 360}").lon.size == 34
    assert extracted(source, "--sel", f"lon={start + 20}:{start + 50}").lon.size == 4
    # A region has no other convention to name.
    write(source, cube([0.0], lons=[100.0, 110.0, 120.0]))
    assert extracted(source, "--sel", "lon=0:360").lon.size == 3 and extracted(source, "--sel", "lon=-100:110").lon.size == 2
    refused(source, "--sel", "lon=120:-100")
    assert "select 120: and :-100 separately" in capsys.readouterr().err
    # Decreasing longitudes.
    write(source, cube([0.0], lons=[120.0, 110.0, 100.0]))
    assert extracted(source, "--sel", "lon=105:130").lon.values.tolist() == [120, 110]


@pytest.mark.parametrize("limits", [("12h",), ("time=12h", "2.5"), ("lat=2.5", "time=PT12H")])
def test_a_tolerance_limits_a_method(index: Path, limits: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    out = index.with_name("out.zarr")
    given = [word for limit in limits for word in ("--tolerance", limit)]
    labels = ("--sel", "time=2000-01-02T09:00", *(("--sel", "lat=17.5") if len(limits) > 1 else ()), "--method", "nearest")
    status, _, error = run("extract", index, *labels, *given, "-o", out)
    assert (status, error) == (0, "")
    narrow = [word.replace("12H", "2H").replace("12h", "2h") for word in given]
    with pytest.raises(SystemExit, match="1"):
        main(["extract", str(index), *labels, *narrow, "-o", str(out), "--overwrite"])
    assert "wider tolerance" in capsys.readouterr().err
    with xr.open_zarr(out) as result:
        assert result.time.size == 1


def test_several_variables_and_files_without_an_index(tmp_path: Path) -> None:
    write(tmp_path / "data" / "a.nc", cube([0, 1, 2]))
    write(tmp_path / "data" / "b.nc", {"x": (("x",), [1.0, 2.0]), "other": (("x",), [5.0, 6.0])})
    status, _, _ = run("extract", tmp_path / "data", "-v", "tas", "-v", "other", "--sel", "x=2", "-o", tmp_path / "o.nc")
    assert status == 0
    with xr.open_dataset(tmp_path / "o.nc") as result:
        assert float(result.other) == 6 and result.tas.shape == (3, 3, 2)


def test_arrays_of_one_name_are_chosen_by_attributes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for model, units in (("M1", "K"), ("M2", "degC")):
        variables = cube([0, 1], tas=(("time", "lat", "lon"), np.zeros((2, 3, 2)), {"units": units}))
        write(tmp_path / "data" / f"{model}.nc", variables, {"source_id": model})
    out = tmp_path / "out.nc"
    with pytest.raises(SystemExit, match="1"):
        main(["extract", str(tmp_path / "data"), "--where", "source_id=M3", "-o", str(out)])
    assert "source_id is M1, M2" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="1"):
        main(["extract", str(tmp_path / "data"), "-o", str(out)])
    err = capsys.readouterr().err
    assert "they differ in source_id: M1, M2; choose one, for example with --where source_id=M1\n" in err
    assert not out.exists() and not (tmp_path / "out.nc.part").exists()
    assert run("extract", tmp_path / "data", "--where", "source_id=M2", "-o", out)[0] == 0
    with xr.open_dataset(out) as result:
        assert result.attrs["source_id"] == "M2" and result.tas.attrs["units"] == "degC"


def test_all_variables_of_a_dataset_are_one_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Fixed fields and monthly ones are one dataset; another grid, or another model, is another one."""

    def field(name: str) -> tuple[Any, ...]:
        return ("time", "lat", "lon"), cube([0, 1, 2])["tas"][1], {"units": "K", "standard_name": name}

    for name in ("tas", "pr"):
        write(
            tmp_path / "data" / f"{name}.nc",
            cube([0, 1, 2], **{"tas": None, name: field(name)}),
            {"source_id": "M1", "table_id": "Amon"},
        )
    area = cube([0], time=None, tas=None, area=(("lat", "lon"), np.ones((3, 2)), {"units": "m2"}))
    write(tmp_path / "data" / "area.nc", area, {"source_id": "M1", "table_id": "fx"})
    for out in (tmp_path / "all.nc", tmp_path / "all.zarr"):
        assert run("extract", tmp_path / "data", "-o", out)[0] == 0
        assert set(aa.open(out).names) == {"tas", "pr", "area"}
    with xr.open_dataset(tmp_path / "all.nc") as result:
        assert result.tas.dims == result.pr.dims == ("time", "lat", "lon") and result.attrs["source_id"] == "M1"
    write(
        tmp_path / "data" / "tos.nc", cube([0, 1], np.arange(5.0), lon=None, tas=None, tos=(("time", "lat"), np.zeros((2, 5))))
    )
    new = ("extract", str(tmp_path / "data"), "-o", str(tmp_path / "new.nc"))
    with pytest.raises(SystemExit, match="1"):
        main(list(new))
    err = capsys.readouterr().err
    assert (
        "2 grids instead of one: " in err
        and "tos (time: 2, lat: 5)" in err
        and "; choose variables: -v area -v pr -v tas\n" in err
    )
    assert run(*new, "-v", "tos", "-v", "tas")[0] == 0
    write(tmp_path / "data" / "huss.nc", cube([0, 1, 2], tas=None, huss=field("huss")), {"source_id": "M2"})
    with pytest.raises(SystemExit, match="1"):
        main([*new[:2], "-v", "tas", "-v", "huss", "-o", str(tmp_path / "newer.nc")])
    assert "2 datasets instead of one: they differ in source_id: M1, M2" in capsys.readouterr().err
    assert not list(tmp_path.glob("newer*"))


def test_arrays_of_equal_facets_are_chosen_by_other_attributes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number, method in enumerate(("time: mean", "time: maximum")):
        tas = (*cube([0, 1])["tas"][:2], {"units": "K", "cell_methods": method})
        write(tmp_path / "data" / f"{number}.nc", cube([0, 1], tas=tas))
    with pytest.raises(SystemExit, match="1"):
        main(["extract", str(tmp_path / "data"), "-o", str(tmp_path / "out.nc")])
    err = capsys.readouterr().err
    advice = err.partition("for example with ")[2].strip()
    assert advice.startswith("--where 'cell_methods=time: m"), err
    assert run("extract", tmp_path / "data", "--where", advice.split("'")[1], "-o", tmp_path / "out.nc")[0] == 0


@pytest.mark.parametrize("options", [("--compress", "zlib:9"), ("--compress=zstd",)])
def test_compression_is_an_option(index: Path, options: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    out = index.with_name("out.nc")
    assert run("extract", index, "-o", out)[0] == 0
    with pytest.raises(SystemExit, match="1"):
        main(["extract", str(index), "-o", str(out), *options])
    assert "already exists" in capsys.readouterr().err
    assert run("extract", index, "-o", out, *options, "--overwrite")[0] == 0
    with xr.open_dataset(out) as result:
        assert (result.tas.encoding["complevel"], result.tas.encoding["zstd"]) in ((9, False), (3, True))
    status, _, err = run("extract", index, "-o", out, "--compress", "lzma:5")
    assert status == 2 and "--compress: 'lzma:5' is invalid for .nc; give zlib:1 to 9, zstd:1 to 22, blosc:1 to 9, or" in err


def test_rules_apply_to_files(tmp_path: Path) -> None:
    for number in range(2):
        write(tmp_path / "data" / f"{number}.nc", cube([number, number + 1]), {"member": str(number)})
    out = tmp_path / "out.nc"
    for options, shape, units in [
        (("--overlap", "first"), (3, 3, 2), "K"),
        (("--overlap", "last", "--units", "tas=degC", "--preset", "cmip"), (3, 3, 2), "degC"),
        (("--separate-by", "member", "--where", "member=1"), (2, 3, 2), "K"),
    ]:
        status, _, err = run("extract", tmp_path / "data", *options, "-o", out, "--overwrite")
        assert (status, err) == (0, "")
        assert aa.open(out)["tas"].shape == shape and aa.open(out)["tas"].units == units


def test_a_pattern_is_opened_once_with_its_rules(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened, open_source = list[Any](), _common.open_source
    monkeypatch.setattr(_common, "open_source", lambda *how: opened.append(how[3]) or open_source(*how))
    for source in (index.parent / "data", index.parent / "data" / "*.nc"):
        assert run("extract", source, "--units", "tas=degC", "-o", index.with_name("out.nc"), "--overwrite")[0] == 0
    assert opened == [{"units": {"tas": "degC"}}] * 2


def test_of_the_rules_units_apply_to_an_index(index: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = index.with_name("out.nc")
    assert run("extract", index, "--units", "tas=degC", "--sel", "lat=0:", "-o", out)[0] == 0
    tas = aa.open(index)["tas"].sel(lat=slice(0, None))
    with xr.open_dataset(out) as result:
        assert result.tas.attrs["units"] == "degC"
        np.testing.assert_array_equal(result.tas.values, tas.to_units("degC")[:])
    for options in (("--overlap", "first"), ("--preset", "cmip"), ("--new-dimension", "member", "--units", "tas=degC")):
        status, _, err = run("extract", index, *options, "-o", out, "--overwrite")
        assert status == 2 and f"{options[0]} does not change an index" in err and "or give the data files" in err
    for units, words in (("pr=K", "no such variable; the variables are: tas"), ("tas=furlong", "do not convert")):
        with pytest.raises(SystemExit, match="1"):
            main(["extract", str(index), "--units", units, "-o", str(out), "--overwrite"])
        assert words in capsys.readouterr().err
    assert aa.open(out)["tas"].units == "degC"


def test_the_command_line_is_history_without_secrets(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    out = index.with_name("out.zarr")
    asked = ("extract", index, "-v", "tas", "--storage", "secret=x1y2", "--sel", "lat=0:", "-o", out)
    assert run(*asked)[0] == 0
    with xr.open_zarr(out) as result:
        line = f"aggarray extract {index} -v tas --storage secret=... --sel lat=0: -o {out}"
        assert result.attrs["history"] == f"1970-01-01T00:00:00Z: {line}"
    assert run(*asked) == (0, f"{out}: unchanged\n", "")
    files = [index.parent / "data" / f"{number}.nc" for number in range(2)] * 5
    assert run("extract", *files, "--storage=secret=x1y2", "-o", out, "--overwrite")[0] == 0
    with xr.open_zarr(out) as result:
        assert result.attrs["history"].endswith(f" aggarray extract ... --storage=secret=... -o {out} --overwrite")


@pytest.mark.heavy
def test_a_dataset_of_a_real_archive(shared_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    archive, index, out = shared_data / "cmip6", tmp_path / "cmip6.nca", tmp_path / "all.nc"
    assert run("aggregate", archive, "-o", index)[0] == 0
    with pytest.raises(SystemExit, match="1"):
        main(["extract", str(index), "-o", str(out)])
    err = capsys.readouterr().err
    assert (
        "76 datasets instead of one: they differ in source_id: ACCESS-CM2, " in err
        and " and 38 more; table_id: Amon, day" in err
    )
    advice = err.partition("for example with ")[2].split()
    assert run("extract", index, *advice, "-o", tmp_path / "one.nc")[0] == 0
    chosen = ("--where", "source_id=EC-Earth3", "--where", "table_id=Amon")
    assert run("extract", index, *chosen, "-o", out, "--compress", "zlib:9", "--units", "ta=degC")[0] == 0
    assert run("extract", index, *chosen, "-o", out, "--compress", "zlib:9", "--units", "ta=degC")[1] == f"{out}: unchanged\n"
    files = sorted(archive.rglob("ta_Amon_EC-Earth3_*.nc"))
    same = {"data_vars": "minimal", "coords": "minimal", "compat": "override"}
    with xr.open_mfdataset(files, combine="nested", concat_dim="time", **same) as expected, xr.open_dataset(out) as result:
        np.testing.assert_allclose(result.ta.values, expected.ta.values - 273.15, rtol=0, atol=2e-4)
        assert result.encoding["unlimited_dims"] == {"time"} and result.attrs["source_id"] == "EC-Earth3"
    identifiers = []
    for file in files:
        with xr.open_dataset(file) as one:
            identifiers.append(one.attrs["tracking_id"])
    assert result.attrs["tracking_id"].split("\n") == identifiers
    with xr.open_dataset(files[0]) as first:
        line, _, history = result.attrs["history"].partition("\n")
        assert history == first.attrs["history"] and f"the history of {files[0].name} follows" in line


def complete(line: str, cwd: Path) -> list[str]:
    """Return what bash would suggest at the end of a line."""
    words = line.split(" ")
    asked = {"_AGGARRAY_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    done = subprocess.run(
        [sys.executable, "-m", "aggarray"], cwd=cwd, env={**os.environ, **asked}, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    return [text.partition(",")[2] for text in done.stdout.splitlines() if text]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("aggarray ex", ["explain", "extract"]),
        ("aggarray extract tas.nca -v ", ["tas"]),
        ("aggarray extract tas.nca -v p", []),
        ("aggarray extract tas.nca --sel l", ["lat=", "lon="]),
        ("aggarray extract nowhere.nca -v ", []),
        ("aggarray extract data -v ", []),
        ("aggarray aggregate data --over", ["--overlap"]),
        ("aggarray aggregate data --overlap ", ["refuse", "first", "last"]),
        ("aggarray completion ", ["bash", "zsh", "fish"]),
    ],
)
def test_a_shell_completes(index: Path, line: str, expected: list[str]) -> None:
    assert complete(line, index.parent) == expected


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script(shell: str) -> None:
    status, text, _ = run("completion", shell)
    assert status == 0 and f"_AGGARRAY_COMPLETE={shell}_complete" in text


def test_rules_are_options(tmp_path: Path) -> None:
    for number in range(2):
        write(tmp_path / "data" / f"{number}.nc", cube([number, number + 1]), {"member": str(number)})
    out = tmp_path / "tas.nca"
    for options, shape in [
        ((), None),
        (("--overlap", "first"), (3, 3, 2)),
        (("--new-dimension", "member", "--along", "member"), None),
        (("--overlap", "last", "--units", "tas=degC", "--tolerance", "0.1", "--trust", "assume"), (3, 3, 2)),
        (("--preset", "cmip", "--separate-by", "member"), None),
    ]:
        assert run("aggregate", tmp_path / "data", "-o", out, *options)[0] == 0
        agg = aa.open(out)
        assert len(agg) == 2 if shape is None else agg["tas"].shape == shape
    rules = aa.open(out)._provenance.rules
    assert rules.holes == "refuse" and rules.separate_by == ("member",)


def test_which_files_are_read_is_an_option(index: Path, tmp_path: Path) -> None:
    os.rename(tmp_path / "data", tmp_path / "moved")
    moved = ("--relocate", f"data={tmp_path / 'moved'}")
    assert run("check", index)[0] == 1
    assert run("check", index, *moved) == (0, "no problems\n", "")
    assert run("extract", index, *moved, "-o", tmp_path / "a.nc")[0] == 0
    status, out, _ = run("extract", index, "--fill-missing", "-o", tmp_path / "b.nc")
    assert status == 0 and "tas (time: 40, lat: 9, lon: 2)" in out
    with xr.open_dataset(tmp_path / "b.nc") as result:
        assert result.tas.isnull().all()
