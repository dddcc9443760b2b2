"""The shell's ``extract``: labels, attributes, what it prints; and what a shell completes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from click.testing import CliRunner

import aggarray as aa
from aggarray.cli import commands, main
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
    assert (status, err) == (0, "") and text.startswith(f"{out}: tas ")
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
    assert "choose one by --where" in err and "source_id: M1, M2" in err
    assert run("extract", tmp_path / "data", "--where", "source_id=M2", "-o", out)[0] == 0
    with xr.open_dataset(out) as result:
        assert result.attrs["source_id"] == "M2" and result.tas.attrs["units"] == "degC"


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
    assert status == 0 and "tas 40 x 9 x 2" in out
    with xr.open_dataset(tmp_path / "b.nc") as result:
        assert result.tas.isnull().all()
