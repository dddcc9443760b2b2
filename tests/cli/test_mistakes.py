"""Mistakes of users: one clear line, the exit status, and no traceback."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from aggarray.cli import main
from tests.support.paths import ROOT


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an index, files, and things that are neither."""
    folder = tmp_path_factory.mktemp("mistakes")
    shutil.copytree(ROOT / "sample_data" / "archive", folder / "archive")
    (folder / "text.txt").write_text("hello\n")
    (folder / "bad.toml").write_text("[[[")
    (folder / "empty.toml").write_text("")
    (folder / "typo.toml").write_text("[input]\nsource = 'archive'\n[index]\npaht = 'x'\n")
    (folder / "type.toml").write_text("[input]\nsource = 7\n")
    (folder / "rules.toml").write_text("[input]\nsource = 'archive'\n[rules]\noverlap = 'best'\n")
    (folder / "latin.toml").write_bytes(b"# \xe9\n")
    (folder / "there.nc").write_text("something else")
    (folder / "dir").mkdir()
    with pytest.raises(SystemExit) as stop:
        main(["aggregate", str(folder / "archive"), "-o", str(folder / "t.nca")])
    assert not stop.value.code
    return folder


MISTAKES = [
    ("info nowhere", 1, "no such file"),
    ("info text.txt", 1, "not a data file"),
    ("info dir", 1, "no files in this folder"),
    ("info t.nca -v pr", 1, "no data variable 'pr'"),
    ("info", 2, "Missing argument"),
    ("info archive --order time", 2, "of the form DIM=given"),
    ("info archive --root dir", 1, "name its folder in --root"),
    ("explain nowhere", 1, "no such file"),
    ("explain archive --tolerance 7", 2, "from 0 to 0.5"),
    ("check nowhere", 1, "no such file"),
    ("check t.nca --relocate x", 2, "of the form OLD=NEW"),
    ("distribute nowhere -n 2", 1, "no such file"),
    ("distribute t.nca", 2, "the number of processes is missing"),
    ("aggregate archive", 2, "--output"),
    ("aggregate archive -o dir", 1, "give another name"),
    ("aggregate archive -o no/where.nca", 1, "cannot be written"),
    ("aggregate archive -o text.txt", 1, "not an index"),
    ("aggregate archive -o x.nca --along nope", 1, "--along names 'nope', which no array has"),
    ("aggregate archive -o x.nca --preset cmip7", 2, "cmip"),
    ("aggregate archive -o x.nca --units tas", 2, "NAME=UNITS"),
    ("aggregate archive -o x.nca --new-dimension a=(", 2, "does not compile"),
    ("append t.nca nowhere", 1, "no such file"),
    ("append nowhere archive", 1, "no such file"),
    ("append text.txt archive", 2, "neither an index nor a data file; the first argument must be an index"),
    ("append nowhere t.nca", 1, "the first argument must be an index, which `aggarray aggregate` makes"),
    ("append archive/tas_200101.nc t.nca", 2, "write aggarray append t.nca archive/tas_200101.nc"),
    ("append archive/tas_200101.nc a$b.nc t.nca", 2, "write aggarray append t.nca archive/tas_200101.nc 'a$b.nc'"),
    ("append archive t.nca", 2, "it is a folder; the first argument must be an index"),
    ("append archive/*.nc t.nca", 1, "no such file: archive/*.nc; the first argument must be an index"),
    ("aggregate archive -o x.nca --units tas=furlong", 1, "units do not convert: 'K' to 'furlong'"),
    ("info archive --units tas=K --units tas=degC", 2, "'tas=degC' contradicts tas=K"),
    ("check t.nca --relocate /a=/b --relocate /a=/c", 2, "'/a=/c' contradicts /a=/b"),
    ("info archive --units tas=furlong", 1, "correct --units tas=furlong"),
    ("explain archive --units time=K", 1, "correct --units time=K"),
    ("explain archive --units nothing=K", 1, "--units names 'nothing', which no array has"),
    ("info archive --order nothing=name", 1, "--order names 'nothing', which no array has"),
    ("info archive --separate-by nothing", 1, "--separate-by names 'nothing', an attribute that no file has"),
    ("info archive --new-dimension nothing", 1, "no file has an attribute 'nothing'"),
    ("info archive -v nothing", 1, "no data variable 'nothing'"),
    ("info archive -v tas -v nothing", 1, "no data variable 'nothing'"),
    ("extract t.nca", 2, "--output"),
    ("extract t.nca -v pr -o a.nc", 1, "no data variable 'pr'"),
    ("extract t.nca --sel lat -o a.nc", 2, "of the form DIMENSION=LABEL"),
    ("extract t.nca --sel lat=x -o a.nc", 1, "'x' is not a number"),
    ("extract t.nca --sel lat=7 -o a.nc", 1, "the nearest is 5.0"),
    ("extract t.nca --sel lat=95:99 -o a.nc", 1, "lat=95:99 selects nothing of tas; lat runs from -85.0 to 85.0"),
    ("extract t.nca --sel time=1950:1960 -o a.nc", 1, "time runs from 2001-01-01T12:00:00 to 2001-12-31T12:00:00"),
    (
        "extract t.nca --sel lat=96 --method nearest -o a.nc",
        1,
        "96 not found by method 'nearest' in -85.0 to 85.0, the nearest is 85.0",
    ),
    (
        "extract t.nca --sel lat=96 --method nearest -o a.nc",
        1,
        "reaches one step of lat: give one of its values, or --tolerance",
    ),
    ("extract t.nca --sel lat=0,1000 --method nearest -o a.nc", 1, "1000 not found"),
    ("extract t.nca --sel lat=1000 --method pad -o a.nc", 1, "1000 not found by method 'pad'"),
    ("extract t.nca --sel time=2003 --method nearest -o a.nc", 1, "'2003' not found by method 'nearest'"),
    ("extract t.nca --sel lon=-10 -o a.nc", 1, "lon runs from 5.0 to 355.0: write 350 for -10"),
    ("extract t.nca --sel lon=-10 --method nearest -o a.nc", 1, "write 350 for -10"),
    ("extract t.nca --sel lon=-20:20 -o a.nc", 1, "which runs from 5.0 to 355.0; select 340: and :20 separately"),
    ("extract t.nca --sel lon=-40:-20 -o a.nc", 1, "lon=-40:-20 lies outside lon, which runs from 5.0 to 355.0; write 320:340"),
    ("extract t.nca --sel lon=350:10 -o a.nc", 1, "write 10:350, or select 350: and :10 separately"),
    ("extract t.nca --sel lat=0:9 --method nearest --tolerance lat=3 -o a.nc", 2, "'lat' is selected by a slice"),
    ("extract t.nca --sel lat=1 --sel lat=2 -o a.nc", 2, "selected twice"),
    ("extract t.nca --sel time=1950 -o a.nc", 1, "'1950' not found"),
    ("extract t.nca --sel time=foo -o a.nc", 1, "not a date"),
    ("extract t.nca --sel lat=7 --tolerance 3 -o a.nc", 2, "a tolerance needs a method"),
    ("extract t.nca --sel lat=7 --method nearest --tolerance =3 -o a.nc", 2, "DIMENSION=12h"),
    ("extract t.nca --sel lat=7 --method nearest --tolerance lon=3 -o a.nc", 2, "'lon' is not selected"),
    ("extract t.nca --sel lat=7 --method nearest --tolerance 1 --tolerance 2 -o a.nc", 2, "second tolerance"),
    ("extract t.nca --sel lat=7 --method nearest --tolerance 12h -o a.nc", 1, "tolerance='12h' is not a distance"),
    ("extract t.nca --sel lat=7 --method nearest --tolerance 1 -o a.nc", 1, "wider tolerance"),
    ("extract t.nca --sel time=2001-01-01 --method nearest --tolerance 5 -o a.nc", 1, "give a duration"),
    ("extract t.nca --sel q=1 -o a.nc", 1, "the dimensions are: lat, lon, time"),
    ("extract t.nca --where source_id=X -o a.nc", 1, "source_id is SAMPLE-1-0"),
    ("extract t.nca --where source_id -o a.nc", 2, "NAME=VALUE"),
    ("extract t.nca -o dir", 2, ".zarr or .nc"),
    ("extract t.nca -o a.grib", 2, ".zarr or .nc"),
    ("extract t.nca -o no/a.nc", 1, "make it first"),
    ("extract t.nca -o there.nc", 1, "--overwrite"),
    ("extract archive/tas_200101.nc --overwrite -o archive/tas_200101.nc", 2, "the output is also an input"),
    ("aggregate archive -o archive/tas_200101.nc", 2, "the output is also an input"),
    ("aggregate archive -o archive", 2, "which is read"),
    ("view archive -o archive/tas_200101.nc", 2, "the output is also an input"),
    ("append archive/tas_200101.nc archive/tas_200102.nc", 2, "it looks like a data file (HDF5)"),
    ("run nowhere.toml", 2, "No such file"),
    ("run dir", 2, "Is a directory"),
    ("run bad.toml", 2, "not TOML"),
    ("run latin.toml", 2, "not TOML"),
    ("run empty.toml", 2, "'input' is missing"),
    ("run typo.toml", 2, "[index]: unknown key 'paht'; did you mean 'path'?"),
    ("run type.toml", 2, "source = 7 is invalid; give a text, or a list of texts"),
    ("run rules.toml", 2, "give one of refuse, first, last"),
    ("completion tcsh", 2, "not one of"),
    ("nonsense", 2, "No such command"),
]


@pytest.mark.parametrize(("line", "status", "words"), MISTAKES, ids=[line for line, _, _ in MISTAKES])
def test_one_clear_line(
    ready: Path, line: str, status: int, words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ready)
    before = sorted(ready.rglob("*"))
    with pytest.raises(SystemExit) as stop:
        main(line.split())
    out, err = capsys.readouterr()
    assert (stop.value.code, out) == (status, "") and words in err and "Traceback" not in err and "remove" not in err
    told = [one for one in err.splitlines() if one and not one.startswith(("Usage:", "Try "))]
    assert len(told) == 1 and told[0].startswith(("aggarray: ", "Error: "))
    assert sorted(ready.rglob("*")) == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
@pytest.mark.parametrize(
    "line", ["aggregate archive -o locked/x.nca", "extract t.nca -o locked/x.nc", "extract t.nca -o locked/x.zarr"]
)
def test_no_permission(ready: Path, line: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ready)
    (ready / "locked").mkdir(mode=0o500)
    try:
        with pytest.raises(SystemExit) as stop:
            main(line.split())
    finally:
        (ready / "locked").rmdir()
    err = capsys.readouterr().err
    assert stop.value.code == 1 and "Permission denied" in err and err.count("\n") == 1


def test_a_closed_pipe_is_no_drama(ready: Path) -> None:
    command = [sys.executable, "-m", "aggarray", "explain", str(ready / "archive")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == ""
    process.stderr.close()
    assert process.wait(timeout=60) == 1


@pytest.mark.parametrize("line", ["extract archive -o stopped.nc", "aggregate archive -o stopped.nca"])
def test_ctrl_c_ends_with_130_and_no_traceback(ready: Path, line: str) -> None:
    # It comes when the source is opened: a line of its own tells when that is.
    script = (
        "import sys, time, aggarray.opening.sources\nfrom aggarray.cli import main\n"
        "def open(*a, **k): print('now', flush=True); time.sleep(60)\n"
        "aggarray.opening.sources.open = open\nmain(sys.argv[1:])"
    )
    command = [sys.executable, "-c", script, *line.split()]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen(command, cwd=ready, env={**os.environ, "PYTHONPATH": str(ROOT)}, **pipes, text=True)
    assert process.stdout is not None and process.stdout.readline() == "now\n"
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130 and err.strip() == "aggarray: interrupted"
    assert not (ready / "stopped.nc").exists() and not (ready / "stopped.nca").exists()
