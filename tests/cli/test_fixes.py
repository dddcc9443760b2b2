"""Fixes in the shell and in job files."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

import aggarray as aa
from aggarray.cli import main
from tests.support.netcdf import cube, write

pytestmark = pytest.mark.quick

OWN = """
[[fix]]
where = "tas_1.nc"
variable = "tas"
set = { units = "degC" }
note = "declared as kelvin"

[[fix]]
variable = "lost"
drop = true
"""


Run = Callable[..., "Done"]


class Done(NamedTuple):
    """The exit status and output of a command."""

    exit_code: int
    stdout: str
    stderr: str


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def command(*arguments: object) -> Done:
        with pytest.raises(SystemExit) as stop:
            main(list(map(str, arguments)))
        return Done(int(stop.value.code or 0), *capsys.readouterr())

    return command


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for n in range(2):
        write(tmp_path / f"tas_{n}.nc", cube([n]), {"source_id": "M"})
    (tmp_path / "own.toml").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_an_index_with_fixes(run: Run, folder: Path) -> None:
    done = run("aggregate", "tas_*.nc", "-o", "all.nca", "--fixes", "own.toml", "--fixes", "cmip6")
    assert done.exit_code == 0 and "all.nca: 1 array of 2 files" in done.stdout
    assert "Fix(variable='lost', drop=True) matches no file" in done.stderr and done.stderr.count("matches no file") == 1
    agg = aa.open("all.nca")
    assert len(agg.fixes) == 10 and float(agg["tas"][1, 0, 0] - agg["tas"][0, 0, 0]) == pytest.approx(373.15)
    checked = run("check", "all.nca")
    assert checked.exit_code == 1 and "Fix(variable='lost', drop=True) matches no file" in checked.stdout
    explained = run("explain", "all.nca")
    assert "Fix(variable='lost', drop=True) matches no file" in explained.stdout
    lines = explained.stdout.partition("fixes\n")[2].splitlines()
    assert "tas_1.nc" in lines[2] and "set units=degC" in lines[2] and "declared as kelvin" in lines[2]
    assert "every file" in lines[3] and "lost" in lines[3] and lines[4] == "8 optional fixes match no file"
    facts = json.loads(run("explain", "all.nca", "--json").stdout)["fixes"]
    assert facts[0] == {
        **{"where": "tas_1.nc", "variable": "tas", "set": {"units": "degC"}, "note": "declared as kelvin", "files": 1},
    }
    assert [fix["files"] for fix in facts] == [1] + [0] * 9


def test_every_command_notes_fixes_that_match_no_file(run: Run, folder: Path) -> None:
    """On standard error, where its output does not list them."""
    words, given = "Fix(variable='lost', drop=True) matches no file", ("tas_*.nc", "--fixes", "own.toml")
    for arguments in (["info", *given], ["view", *given, "-o", "page.html"], ["extract", *given, "-o", "out.nc"]):
        done = run(*arguments)
        assert done.exit_code == 0 and done.stderr.count(words) == 1 and words not in done.stdout
    assert "lost&#x27;, drop=True) matches no file" in (folder / "page.html").read_text()
    done = run("explain", *given)
    assert done.exit_code == 1 and words in done.stdout and words not in done.stderr
    assert job(run, folder, "fixes = ['own.toml']").stderr.count(words) == 1


def test_an_append_applies_the_fixes(run: Run, folder: Path) -> None:
    (folder / "own.toml").write_text(OWN.replace("tas_1.nc", "tas_*.nc"))
    assert run("aggregate", "tas_0.nc", "-o", "all.nca", "--fixes", "own.toml").exit_code == 0
    assert run("append", "all.nca", "tas_1.nc").exit_code == 0
    assert aa.open("all.nca")["tas"].units == "degC"


def test_commands_open_files_with_fixes(run: Run, folder: Path) -> None:
    (folder / "own.toml").write_text(OWN.replace('where = "tas_1.nc"', ""))
    (facts,) = json.loads(run("info", "tas_*.nc", "--fixes", "own.toml", "--json").stdout)
    assert facts["units"] == "degC"
    assert run("extract", "tas_*.nc", "--fixes", "own.toml", "-o", "out.nc").exit_code == 0
    assert aa.open("out.nc")["tas"].units == "degC"


@pytest.mark.parametrize(
    ("name", "words"),
    [("nope", "the known faults are: cmip5, cmip6"), ("bad.toml", "unknown key"), ("gone.toml", "No such file")],
)
def test_invalid_fixes(run: Run, folder: Path, name: str, words: str) -> None:
    (folder / "bad.toml").write_text("[[fix]]\nvarable = 'tas'")
    done = run("aggregate", "tas_*.nc", "-o", "all.nca", "--fixes", name)
    assert done.exit_code and words in done.stderr
    assert not (folder / "all.nca").exists()


def job(run: Run, folder: Path, fixes: str) -> Done:
    (folder / "job.toml").write_text(f'[input]\nsource = "tas_*.nc"\n{fixes}\n[index]\npath = "all.nca"\n')
    return run("run", "job.toml")


def test_jobs_apply_fixes(run: Run, folder: Path) -> None:
    first = job(run, folder, "[[fix]]\nvariable = 'tas'\nset = { units = 'degC' }")
    assert first.exit_code == 0 and aa.open("all.nca")["tas"].units == "degC"
    assert "unchanged" in job(run, folder, "[[fix]]\nvariable = 'tas'\nset = { units = 'degC' }").stdout
    assert "saved" in job(run, folder, "[[fix]]\nvariable = 'tas'\nset = { units = 'degF' }").stdout
    assert aa.open("all.nca")["tas"].units == "degF"
    assert "saved" in job(run, folder, "fixes = ['own.toml', 'cmip5']").stdout
    assert len(aa.open("all.nca").fixes) == 14
    assert "saved" in job(run, folder, "").stdout
    assert aa.open("all.nca").fixes == () and aa.open("all.nca")["tas"].units == "K"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[[fix]]\nvarable = 1", "did you mean 'variable'"),
        ("[fix]\nvariable = 'tas'", "fix"),
        ("fixes = 'nope'", "known faults"),
        ("[[fix]]\nvariable = 'tas'", "changes nothing"),
    ],
)
def test_invalid_fixes_of_jobs(run: Run, folder: Path, text: str, words: str) -> None:
    done = job(run, folder, text)
    assert done.exit_code == 2 and words in done.stderr


def test_a_partial_index_has_no_fixes(run: Run, folder: Path) -> None:
    """It holds what was scanned, so that other fixes may follow an interruption."""
    from aggarray.opening.checkpoint import checkpointing

    with checkpointing(str(folder / "all.nca.partial"), False) as checkpoint:
        table = aa.open(["tas_0.nc", "tas_1.nc"], fixes="own.toml")._provenance.structures()
        checkpoint.save(table)  # type: ignore[arg-type]
    done = run("aggregate", "tas_*.nc", "-o", "all.nca", "--resume", "--fixes", "own.toml")
    assert "resumed: 2 of the files" in done.stderr
    assert [fix.variable for fix in aa.open("all.nca").fixes] == ["tas", "lost"]
    assert aa.open("all.nca", fixes=None)["tas"][1, 0, 0] == aa.open("tas_1.nc")["tas"][0, 0, 0]
