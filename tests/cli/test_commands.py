"""The command line, as a shell runs it."""

import errno
import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import click
import netCDF4
import numpy as np
import pytest

from aggarray import cli
from aggarray.cli import main
from aggarray.dap import validate_all
from aggarray.errors import MissingFileError
from tests.support.paths import ROOT


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    """Run a command in this process; return exit status, standard output, standard error."""
    with pytest.raises(SystemExit) as stop:
        main([str(a) for a in arguments])
    captured = capsys.readouterr()
    return int(stop.value.code or 0), captured.out, captured.err


def write(path: Path, time: list[float], units: str = "K", name: str = "tas") -> Path:
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("time", len(time))
        axis = file.createVariable("time", "f8", ("time",))
        axis.setncatts({"units": "days since 2000-01-01", "standard_name": "time"})
        axis[:] = time
        variable = file.createVariable(name, "f4", ("time",))
        variable.units = units
        variable[:] = np.arange(len(time))
    return path


def test_info_prints_a_table_with_one_row_per_array(
    capsys: pytest.CaptureFixture[str], sample_archive: Path, sample_tiles: Path
) -> None:
    status, out, err = run(capsys, "info", sample_archive, sample_tiles)
    lines = out.splitlines()
    assert (status, err) == (0, "")
    assert lines[:2] == ["2 arrays of 22 files, 1.9 MB of values", ""]
    head, rule, *rows = (re.split(r"\s{2,}", line) for line in lines[2:])
    assert head == ["name", "shape", "type", "units", "partitions", "time", "files", "size"]
    assert set("".join(rule)) == {"-"}
    assert rows == [
        ["tas", "(time: 365, lat: 18, lon: 36)", "float64", "K", "2001", "12", "1.9 MB"],
        ["value", "(y: 8, x: 7)", "float64", "1", "4 y x 6 x", "10", "448 B"],
    ]


def test_info_json_holds_the_same_as_data(capsys: pytest.CaptureFixture[str], sample_archive: Path) -> None:
    status, out, _ = run(capsys, "info", "--json", sample_archive)
    [fact] = json.loads(out)
    assert status == 0
    assert fact["name"] == "tas" and fact["shape"] == [365, 18, 36] and fact["units"] == "K" and fact["files"] == 12
    assert fact["type"] == "365 * 18 * 36 * ?float64"
    assert fact["partitions"] == {"dimensions": ["time"], "shape": [12], "missing": 0}
    assert fact["bytes"] == 365 * 18 * 36 * 8
    assert fact["time"] == ["2001-01-01T12:00:00", "2001-12-31T12:00:00"]


def test_explain_tells_what_is_conformed(capsys: pytest.CaptureFixture[str], sample_archive: Path) -> None:
    status, out, _ = run(capsys, "explain", sample_archive)
    assert status == 0
    rows = [re.split(r"\s{2,}", line.strip()) for line in out.splitlines()]
    assert ["units", "degC", "K", "1 of 12", "tas_200103.nc"] in rows
    assert ["direction", "lat decreasing", "increasing", "1 of 12", "tas_200104.nc"] in rows
    assert ["dimension order", "lon lat time", "time lat lon", "1 of 12", "tas_200110.nc"] in rows


def test_explain_shows_the_source_of_labels(capsys: pytest.CaptureFixture[str], sample_archive: Path) -> None:
    status, out, _ = run(capsys, "explain", sample_archive, "--sel", "time=2001-03-05", "--sel", "lat=5:25")
    assert status == 0 and out.startswith(f"tas: 1 source\nin {sample_archive}\n")
    row = re.split(r"\s{2,}", out.splitlines()[-1])
    assert row[:4] == ["tas_200103.nc", "tas", "4, 9:12, 0:36", "0, 0:3, 0:36"] and row[4].startswith("units degC -> K; ")
    status, out, _ = run(capsys, "explain", sample_archive, "--sel", "time=2001-03-05", "--json")
    [fact] = json.loads(out)
    [source] = fact["sources"]
    with netCDF4.Dataset(sample_archive / "tas_200103.nc") as file:
        assert (status, source["tracking_id"]) == (0, file.tracking_id)
    assert source["uri"] == str(sample_archive / "tas_200103.nc") and source["conversions"][0] == "units degC -> K"
    status, _, err = run(capsys, "explain", sample_archive, "--sel", "depth=3")
    assert status == 1 and "no dimension 'depth'" in err
    status, _, err = run(capsys, "explain", sample_archive, "--sel", "time=2001", "--group-by", "source_id")
    assert status == 2 and "--group-by" in err


def test_explain_tells_what_stayed_apart_and_what_was_skipped(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    write(tmp_path / "a.nc", [0, 1])
    write(tmp_path / "b.nc", [2, 3], units="Pa")
    (tmp_path / "c.nc").write_text("no data")
    status, out, _ = run(capsys, "explain", tmp_path)
    assert status == 1
    rows = [re.split(r"\s{2,}", line) for line in out.splitlines()]
    assert ["units", "tas", "units differ: 'K' and 'Pa' do not convert: a.nc, b.nc"] in rows
    unreadable = [row for row in rows if row[0] == "unreadable"]
    assert len(unreadable) == 1 and unreadable[0][1].startswith("not a data file") and f"({tmp_path}/c.nc)" in unreadable[0][1]
    assert "skipped" not in out
    status, out, err = run(capsys, "info", tmp_path)
    assert status == 0
    assert err == "1 array not joined, 1 file skipped; run aggarray explain for the reasons\n"


def test_explain_ends_with_1_where_there_are_problems_only(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    write(tmp_path / "a.nc", [0, 1])
    write(tmp_path / "b.nc", [2, 3], units="Pa")
    assert run(capsys, "explain", tmp_path)[0] == run(capsys, "explain", tmp_path, "--json")[0] == 0
    write(tmp_path / "c.nc", [7])
    for options in ([], ["--json"]):
        status, out, _ = run(capsys, "explain", tmp_path, *options)
        assert status == 1 and "5 steps of time missing" in out
    assert run(capsys, "info", tmp_path)[0] == 0


def test_arrays_of_one_name_are_told_apart(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for model in ("MIROC6", "IITM-ESM"):
        for table in ("day", "Amon"):
            for start in (0, 2):
                path = tmp_path / model / table / f"{start}.nc"
                path.parent.mkdir(parents=True, exist_ok=True)
                with netCDF4.Dataset(write(path, [start, start + 1]), "a") as file:
                    file.setncatts({"source_id": model, "table_id": table, "frequency": table.lower(), "mip_era": "CMIP6"})
    _, out, err = run(capsys, "info", tmp_path)
    first, common, _, head, _, row, *_ = (re.split(r"\s{2,}", line) for line in out.splitlines())
    assert (first, err) == (["4 arrays of 8 files, 64 B of values"], "") and common == ["all: name tas, type float32, units K"]
    assert head == ["source_id", "table_id", "shape", "time", "files", "size"]
    assert row == ["IITM-ESM", "Amon", "(time: 4)", "2000-01-01 to 2000-01-04", "2", "16 B"]
    status, out, _ = run(capsys, "explain", tmp_path)
    assert status == 0 and "tas [source_id: MIROC6, table_id: day] (time: 4)" in out
    assert f"from 2 files in {tmp_path}/MIROC6/day\n" in out
    assert "4 datasets stay separate because they differ in source_id, table_id; --all lists why\n" in out
    assert "Amon/0.nc, " not in out and "Amon/0.nc, " in run(capsys, "explain", tmp_path, "--all")[1]
    facts = json.loads(run(capsys, "info", tmp_path, "--json")[1])
    assert facts[3]["facets"] == {"mip_era": "CMIP6", "source_id": "MIROC6", "table_id": "day", "frequency": "day"}
    assert facts[3]["paths"] == [str(tmp_path / "MIROC6" / "day" / name) for name in ("0.nc", "2.nc")]


def test_explain_json(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    write(tmp_path / "a.nc", [0, 1])
    write(tmp_path / "b.nc", [2, 3], units="degC")
    _, out, _ = run(capsys, "explain", tmp_path, "--json")
    result = json.loads(out)
    [array] = result["arrays"]
    assert [(c["kind"], c["found"], c["master"], c["count"]) for c in array["conformed"]] == [("units", "degC", "K", 1)]
    assert array["paths"] == [str(tmp_path / "a.nc"), str(tmp_path / "b.nc")] and result["refusals"] == result["skipped"] == []


def test_variables_can_be_chosen(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    write(tmp_path / "a.nc", [0], name="tas")
    write(tmp_path / "b.nc", [0], name="pr")
    _, out, _ = run(capsys, "info", tmp_path, "-v", "pr", "--json")
    assert [fact["name"] for fact in json.loads(out)] == ["pr"]
    status, _, err = run(capsys, "info", tmp_path, "-v", "psl")
    assert status == 1 and "psl" in err and "tas" in err


@pytest.mark.parametrize("name", ["nowhere.nc", "*.none", "empty"])
def test_errors_are_one_clear_line(capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    status, out, err = run(capsys, "info", tmp_path / name)
    assert status == 1 and out == ""
    assert err.startswith("aggarray: ") and str(tmp_path / name) in err and err.count("\n") == 1


def test_the_page_of_the_commands_has_every_option_and_no_other() -> None:
    commands = [
        cli.commands,
        *(importlib.import_module(f"aggarray.cli.{name}").command for name in cli.commands.list_commands(None)),
    ]
    context = click.Context(cli.commands, help_option_names=["-h", "--help"])
    shown = [p for c in commands for p in c.get_params(context) if isinstance(p, click.Option) and not p.hidden]
    options = {name for option in shown for name in option.opts} - {"-h"}
    page = (ROOT / "docs/command-line.md").read_text(encoding="utf-8")
    assert set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", page)) == options


def test_help_lists_the_commands_of_the_folder_and_loads_nothing_heavy() -> None:
    script = "import sys\nfrom aggarray.cli import main\ntry: main(['--help'])\nexcept SystemExit: print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    text, modules = done.stdout.rsplit("\n", 2)[0], set(done.stdout.splitlines()[-1].split())
    listed = re.findall(r"^  ([a-z]+)  +[A-Z].*\.$", text, flags=re.MULTILINE)
    folder = {path.stem for path in Path(cli.__file__).parent.glob("[a-z]*.py")}
    assert set(listed) == folder and not re.search(r"\w\.\.\.", text)
    assert not modules & {"numpy", "h5py", "netCDF4", "zarr", "xarray", "aggarray.opening", "tomllib"}


def test_wrong_usage_gives_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "info")[0] == 2
    assert run(capsys, "nonsense")[0] == 2


def test_control_characters_of_names_are_escaped(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    write(tmp_path / "a.nc", [0], units="K\x1b[31m")
    _, out, _ = run(capsys, "info", tmp_path)
    assert "\x1b" not in out and r"K\x1b[31m" in out


def test_the_installed_command_runs_and_debug_shows_a_traceback(sample_tiles: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "aggarray.cli"]
    done = subprocess.run([*command, "info", str(sample_tiles)], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "4 y x 6 x" in done.stdout and done.stderr == ""
    failed = subprocess.run([*command, "--debug", "info", str(tmp_path / "x.nc")], capture_output=True, text=True, check=False)
    assert failed.returncode == 1 and "Traceback" in failed.stderr


def test_debug_is_taken_anywhere_on_the_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["info", "--debug", "nowhere.nc"], ["info", "nowhere.nc", "--debug"], ["--debug", "info", "nowhere.nc"]):
        with pytest.raises(MissingFileError, match=r"nowhere\.nc"):
            main(arguments)
    status, _, err = run(capsys, "info", "--", tmp_path / "--debug")
    assert status == 1 and err.startswith("aggarray: ")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
@pytest.mark.parametrize("arguments", [["info"], ["info", "--json"], ["explain"]])
def test_a_full_device_is_one_clear_line(sample_tiles: Path, arguments: list[str]) -> None:
    command = [sys.executable, "-m", "aggarray", *arguments, str(sample_tiles)]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == f"aggarray: the output cannot be written: {os.strerror(errno.ENOSPC)}\n"


def test_the_package_runs_as_the_command_does(sample_tiles: Path) -> None:
    command = [sys.executable, "-m", "aggarray"]
    done = subprocess.run([*command, "info", str(sample_tiles)], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "4 y x 6 x" in done.stdout and done.stderr == ""
    wrong = subprocess.run([*command, "nonsense"], capture_output=True, text=True, check=False)
    assert wrong.returncode == 2 and "Usage: aggarray" in wrong.stderr


def test_distribute_prints_the_sections_of_every_rank(capsys: pytest.CaptureFixture[str], sample_archive: Path) -> None:
    status, out, err = run(
        capsys, "distribute", sample_archive, "-v", "tas", "-n", 4, "--dist", "b,c", "--grid", "2x2", "--block-size", 2
    )
    rows = [re.split(r"\s{2,}", line) for line in out.splitlines()]
    assert (status, err) == (0, "")
    assert rows[0] == ["rank", "time", "lat", "lon", "local shape"]
    assert rows[2:] == [
        ["0", "b 0:183", "c 0::4 in blocks of 2", "b 0:36", "183 x 10 x 36"],
        ["1", "b 0:183", "c 2::4 in blocks of 2", "b 0:36", "183 x 8 x 36"],
        ["2", "b 183:365", "c 0::4 in blocks of 2", "b 0:36", "182 x 10 x 36"],
        ["3", "b 183:365", "c 2::4 in blocks of 2", "b 0:36", "182 x 8 x 36"],
    ]


@pytest.mark.parametrize(
    ("options", "version"),
    [
        (["-n", 4, "--dist", "b,c", "--grid", "2x2"], "0.10.0"),
        (["-n", 3], "0.10.0"),
        (["--grid", "3", "--protocol", "0.9.0"], "0.9.0"),
        (["-n", 5, "--partitions", "contiguous"], "0.10.0"),
        (["-n", 5, "--partitions", "cost"], "0.10.0"),
        (["--grid", "1X1x2", "--dist", "bcc"], "0.10.0"),
    ],
)
def test_distribute_json_is_dim_data(
    capsys: pytest.CaptureFixture[str], sample_archive: Path, options: list[object], version: str
) -> None:
    status, out, _ = run(capsys, "distribute", sample_archive, *options, "--json")
    result = json.loads(out)
    assert status == 0 and result["name"] == "tas" and result["shape"] == [365, 18, 36] and result["version"] == version
    exports = []
    for rank, one in enumerate(result["ranks"]):
        entries = tuple({k: np.array(v) if k == "indices" else v for k, v in entry.items()} for entry in one["dim_data"])
        exports.append({"__version__": version, "buffer": np.zeros(one["local_shape"], "i1"), "dim_data": entries})
        assert one["rank"] == rank and len(one["coords"]) == 3
    validate_all(exports)


def test_distribute_tables_of_other_kinds(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    write(tmp_path / "a.nc", [0, 1, 2, 3, 4])
    write(tmp_path / "b.nc", [5])
    write(tmp_path / "c.nc", [6, 7, 8])
    _, out, _ = run(capsys, "distribute", tmp_path, "-n", 4, "--partitions", "cost")
    assert [re.split(r"\s{2,}", line)[1] for line in out.splitlines()[2:]] == [
        "u 0, 1, 2, 3, ...",
        "u 6, 7, 8",
        "u 5",
        "u nothing",
    ]
    _, out, _ = run(capsys, "distribute", tmp_path, "-n", 1, "--protocol", "0.9.0")
    assert out.splitlines()[2].split() == ["0", "n", "0:9", "9"]


@pytest.mark.parametrize(
    ("options", "status", "words"),
    [
        ([], 2, "give -n or --grid"),
        (["-n", 0], 2, "-n"),
        (["-n", 4, "--grid", "3x2"], 2, "has 6 processes, not 4"),
        (["--grid", "2*2"], 2, "such as 2x2"),
        (["--grid", "0x2"], 2, "such as 2x2"),
        (["--grid", "1x1x1x2"], 2, "--grid has 4 numbers"),
        (["-n", 2, "--partitions", "cost", "--dist", "b"], 2, "--partitions excludes"),
        (["-n", 2, "--partitions", "odd"], 2, "contiguous"),
        (["-n", 2, "--dist", "u"], 2, "give 'b' or 'c'"),
        (["-n", 2, "--dist", "b,b,b,b"], 2, "3 dimensions"),
        (["-n", 2, "--block-size", 2], 2, "without a cyclic dimension"),
        (["-n", 2, "--protocol", "1.0.0"], 2, "0.9 and 0.10"),
        (["-n", 2, "-v", "pr"], 1, "pr"),
    ],
)
def test_distribute_tells_what_is_wrong(
    capsys: pytest.CaptureFixture[str], sample_archive: Path, options: list[object], status: int, words: str
) -> None:
    result, out, err = run(capsys, "distribute", sample_archive, *options)
    assert (result, out) == (status, "") and words in err


def test_distribute_balances_rows_by_samples(capsys: pytest.CaptureFixture[str], sample_stations: Path) -> None:
    _, out, _ = run(capsys, "distribute", sample_stations, "-v", "temperature", "-n", 3)
    shown = [re.split(r"\s{2,}", line.strip()) for line in out.splitlines()]
    assert shown[0] == ["rank", "profile", "local shape", "samples"]
    assert shown[2:] == [["0", "b 0:6", "6", "b 0:63"], ["1", "b 6:11", "5", "b 63:121"], ["2", "b 11:18", "7", "b 121:179"]]
    _, out, _ = run(capsys, "distribute", sample_stations, "-v", "temperature", "-n", 3, "--dist", "b", "--json")
    assert [one["dim_data"][0]["stop"] for one in json.loads(out)["ranks"]] == [6, 12, 18]
    _, out, _ = run(capsys, "distribute", sample_stations, "-v", "temperature", "-n", 1, "--protocol", "0.9.0")
    assert out.splitlines()[2].split() == ["0", "n", "0:18", "18", "n", "0:179"]
    status, _, err = run(capsys, "distribute", sample_stations, "-v", "temperature", "-n", 2, "--dist", "c")
    assert status == 2 and "instances in blocks" in err


def test_distribute_asks_which_variable(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    write(tmp_path / "a.nc", [0], name="tas")
    write(tmp_path / "b.nc", [0], name="pr")
    status, _, err = run(capsys, "distribute", tmp_path, "-n", 2)
    assert status == 2 and "choose one with -v" in err and "tas" in err and "pr" in err


def test_no_command_prints_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(capsys)
    assert status == 2 and "\nCommands:\n  aggregate " in out + err


def test_the_end_of_a_process_searches_no_cycles() -> None:
    script = (
        "import atexit, gc; atexit.register(lambda: print(gc.get_freeze_count() > 0)); from aggarray.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", script, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "True"
