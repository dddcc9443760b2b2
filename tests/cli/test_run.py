"""The command ``run``: jobs done once, new files added, problems shown."""

import errno
import fcntl
import json
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import aggarray as aa
from aggarray.cli import main
from aggarray.cli._job import KEYS
from aggarray.cli._running import _append
from tests.support.netcdf import TAS, cube, write
from tests.support.paths import ROOT

JOB = """
log = "job.log"

[input]
source = ["data/*.nc"]

[rules]
overlap = "first"
units = { tas = "degC" }

[index]
path = "tas.nca"

[[extract]]
path = "north.nc"
variables = "tas"
sel = { lat = "15:", time = "2000-01-02:2001" }

[[extract]]
path = "point.zarr"
sel = { lat = 12, lon = 0.0 }
method = "nearest"
tolerance = { lat = 3, lon = "0.5" }
where = { source_id = "M1" }

[check]
checksum = true
allow = ["gap"]
"""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    for number in range(3):
        write(tmp_path / "data" / f"{number}.nc", cube(np.arange(4.0) + 4 * number), {"source_id": "M1"})
    (tmp_path / "job.toml").write_text(JOB)
    return tmp_path / "job.toml"


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, list[str], str]:
    """Return exit status, the lines of standard output without the folder, and standard error."""
    with pytest.raises(SystemExit) as stop:
        main(["run", *map(str, arguments)])
    out, err = capsys.readouterr()
    folder = f"{Path(str(arguments[0])).parent}/"
    return int(stop.value.code or 0), out.replace(folder, "").splitlines(), err.replace(folder, "")


def state(folder: Path) -> dict[str, tuple[int, int]]:
    result = {str(p.relative_to(folder)): p.stat() for p in folder.rglob("*") if p.is_file() and p.name != "job.log"}
    return {name: (s.st_mtime_ns, s.st_ino) for name, s in result.items()}


def test_a_job_is_done_once_and_what_is_new_is_added(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = job.parent
    first = [
        "index tas.nca: saved, 1 array of 3 files: 3 new, 0 changed",
        "extract north.nc: tas (time: 11, lat: 2, lon: 2), 296 B of values",
        "extract point.zarr: tas (time: 12), 160 B of values",
        "check job.toml: 0 problems",
    ]
    assert run(capsys, job) == (0, first, "")
    with xr.open_dataset(folder / "north.nc") as north, xr.open_zarr(folder / "point.zarr") as point:
        assert north.tas.attrs["units"] == "degC" and north.tas.shape == (11, 2, 2)
        assert float(point.lat) == 10 and point.tas.shape == (12,)
    before = state(folder)
    again = ["index tas.nca: unchanged", "extract north.nc: unchanged", "extract point.zarr: unchanged", first[-1]]
    assert run(capsys, job) == (0, again, "") and state(folder) == before
    write(folder / "data" / "3.nc", cube([12.0, 13.0]), {"source_id": "M1"})
    more = [
        "index tas.nca: saved, 1 array of 4 files: 1 new, 0 changed",
        "extract north.nc: tas (time: 13, lat: 2, lon: 2), 344 B of values",
        "extract point.zarr: tas (time: 14), 184 B of values",
        first[-1],
    ]
    assert run(capsys, job) == (0, more, "")
    assert aa.open(folder / "north.nc")["tas"].shape == (13, 2, 2)
    log = (folder / "job.log").read_text().splitlines()
    assert len(log) == 18 and all(re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d\d:\d\d \w+ /", line) for line in log)


@pytest.mark.parametrize(
    "left", ["2", "2026-01-01T0", "2026-01-01T00:00:00+00:00 st", "2026-01-01T00:00:00+00:00 start /job\n2026"]
)
def test_a_log_that_a_killed_run_has_begun(left: str, job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Half a line ends, or goes away where it is all there is; what is whole stays."""
    (job.parent / "job.log").write_text(left)
    assert run(capsys, job)[0] == run(capsys, job)[0] == 0
    lines = (job.parent / "job.log").read_text().splitlines()
    assert len(lines) == 12 + 2 * ("\n" in left)
    assert all(re.match(r"\d{4}-\d\d-\d\dT\S+ \w+ /", line) for line in lines if line != "2026")


def test_a_lock_that_a_killed_run_has_left(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, job)
    lock = job.parent / ".tas.nca.lock"
    lock.touch()
    assert run(capsys, job)[1][0] == "index tas.nca: unchanged" and not lock.exists()


def test_a_line_that_does_not_fit_on_the_disk_is_not_in_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _append(str(tmp_path / "log"), b"first\n")
    write, written = os.write, list[int]()

    def fill(descriptor: int, content: bytes) -> int:
        if written:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written.append(write(descriptor, content[:3]))
        return 3

    monkeypatch.setattr(os, "write", fill)
    with pytest.raises(OSError, match="No space left"):
        _append(str(tmp_path / "log"), b"second\n")
    assert (tmp_path / "log").read_bytes() == b"first\n" and written == [3]


def test_a_dry_run_touches_nothing(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job.write_text(JOB + '[[page]]\npath = "page.html"\n')
    folder, before = job.parent, state(job.parent)
    outputs = [
        "index tas.nca: would be made of 3 files",
        "extract north.nc: would be written",
        "extract point.zarr: would be written",
        "page page.html: would be written",
        "check job.toml: would be done",
    ]
    assert run(capsys, job, "--dry-run") == (0, outputs, "")
    assert state(folder) == before and not (folder / "job.log").exists()
    run(capsys, job)
    (folder / "north.nc").unlink()
    before, log = state(folder), (folder / "job.log").read_text()
    foreseen = [
        "index tas.nca: unchanged",
        "extract north.nc: would be written",
        "extract point.zarr: unchanged",
        "page page.html: unchanged",
        "check job.toml: would be done",
    ]
    assert run(capsys, job, "--dry-run") == (0, foreseen, "")
    write(folder / "data" / "3.nc", cube([12.0]))
    os.utime(folder / "data" / "0.nc", (1, 1))
    assert run(capsys, job, "--dry-run")[1] == [
        "index tas.nca: would be updated: 1 new file, 1 changed",
        "extract north.nc: would be written",
        "extract point.zarr: would be written if its input has changed",
        "page page.html: would be written if its input has changed",
        "check job.toml: would be done",
    ]
    (folder / "data" / "3.nc").unlink()
    os.utime(folder / "data" / "0.nc", ns=(1, before["data/0.nc"][0]))
    assert state(folder) == before and (folder / "job.log").read_text() == log


def test_a_dry_run_foresees_errors(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An output that must not be replaced is an error before and after the index exists."""
    (job.parent / "north.nc").write_text("somebody's work")
    (job.parent / "page.html").write_text("mine")
    job.write_text(JOB + '[[page]]\npath = "page.html"\n')
    for _ in range(2):
        status, lines, err = run(capsys, job, "--dry-run")
        assert status == 1 and "north.nc: was not extracted by aggarray" in err and "not a page of aggarray" in err
        assert err.count("\n") == 2 and "check job.toml: would be done" in lines
        run(capsys, job)
    assert (job.parent / "tas.nca").exists()


def test_other_rules_make_the_index_anew(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, job)
    job.write_text(JOB.replace("degC", "K"))
    assert run(capsys, job, "--dry-run")[1][0] == "index tas.nca: would be made of 3 files"
    status, lines, _ = run(capsys, job)
    assert status == 0 and lines[0] == "index tas.nca: saved, 1 array of 3 files: 0 new, 0 changed"
    assert aa.open(job.parent / "tas.nca")["tas"].units == aa.open(job.parent / "north.nc")["tas"].units == "K"
    job.write_text(JOB.replace("degC", "K").replace('path = "tas.nca"', 'path = "tas.nca"\nconvention = "CFA-0.4"'))
    assert "saved" in run(capsys, job)[1][0] and run(capsys, job)[1][0] == "index tas.nca: unchanged"


def test_problems_end_with_1(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = job.parent
    run(capsys, job)
    (folder / "data" / "1.nc").unlink()
    status, lines, err = run(capsys, job, "--json")
    steps = json.loads("\n".join(lines))
    assert status == 1 and len(re.findall(r"no such file or folder: variable 'tas' in .*1\.nc", err)) == 2 and not steps["ok"]
    assert [s["step"] for s in steps["steps"]] == ["index", "error", "error", "problem", "check"]
    assert steps["steps"][3]["done"].startswith("[missing]")
    job.write_text(JOB.replace("[input]", '[input]\nmissing = "fill"').replace('["gap"]', '["gap", "missing"]'))
    assert run(capsys, job)[0] == 0 and np.isnan(aa.open(folder / "north.nc")["tas"][:]).sum() == 16
    job.write_text(JOB.replace('allow = ["gap"]', 'allow = ["gap", "missing"]'))
    shutil.rmtree(folder / "data")
    status, _, err = run(capsys, job)
    assert status == 1 and err.startswith("aggarray: index: ") and err.count("\n") == 1


def test_one_output_that_fails_keeps_no_other_from_being_written(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (job.parent / "north.nc").write_text("somebody's work")
    status, lines, err = run(capsys, job)
    assert status == 1 and "north.nc: was not extracted by aggarray" in err and err.count("\n") == 1
    assert (
        lines[1].startswith("extract point.zarr: tas (time: 12)") and (job.parent / "north.nc").read_text() == "somebody's work"
    )
    assert "error" in (job.parent / "job.log").read_text()
    job.write_text(JOB.replace('variables = "tas"', 'variables = "pr"'))
    assert "no variable 'pr'; the variables are: tas" in run(capsys, job)[2]


def test_units_and_compression_of_an_extract(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = '[input]\nsource = "data"\n[index]\npath = "tas.nca"\n[[extract]]\npath = "a.nc"\nunits = { tas = "degC" }\n'
    job.write_text(f'{asked}compress = "zlib:1"\n')
    assert run(capsys, job)[1][1] == "extract a.nc: tas (time: 12, lat: 3, lon: 2), 424 B of values"
    with xr.open_dataset(job.parent / "a.nc") as result:
        assert result.tas.attrs["units"] == "degC" and result.tas.encoding["complevel"] == 1
        history = result.attrs["history"]
        assert history.endswith(f"Z: aggarray run {job}") and history.count("\n") == 0
    assert aa.open(job.parent / "tas.nca")["tas"].units == "K"
    assert run(capsys, job)[1][1] == run(capsys, job, "--dry-run")[1][1] == "extract a.nc: unchanged"
    job.write_text(f'{asked}compress = "zlib:2"\n')
    assert run(capsys, job, "--dry-run")[1][1] == "extract a.nc: would be written"
    assert run(capsys, job)[1][1].startswith("extract a.nc: tas (time: 12,")
    job.write_text(asked.replace("tas =", "pr ="))
    assert "units of 'pr': no such variable; the variables are: tas" in run(capsys, job)[2]


def test_several_datasets_need_a_selection(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(job.parent / "data" / "other.nc", cube([0.0, 1.0]), {"source_id": "M2"})
    asked = '[input]\nsource = "data"\n[[extract]]\npath = "a.nc"\n'
    job.write_text(asked)
    status, _, err = run(capsys, job)
    assert status == 1 and "source_id: M1, M2; choose one, for example with where = { source_id = 'M1' }" in err
    job.write_text(f"{asked}where = {{ source_id = 'M1' }}\n")
    assert run(capsys, job)[0] == 0


def test_arrays_that_overlap_name_the_key_that_helps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "data" / "a.nc", cube([0, 1, 2]))
    made = cube([1, 2, 3])
    write(tmp_path / "data" / "b.nc", {**made, "tas": (made["tas"][0], made["tas"][1] + 1, TAS)})
    job = tmp_path / "job.toml"
    text = '[input]\nsource = "data"\n[[extract]]\npath = "out.nc"\n'
    job.write_text(text)
    status, _, err = run(capsys, job)
    assert status == 1 and "they overlap at time" in err and "give overlap = 'first' in [rules] or overlap = 'last' in" in err
    job.write_text(f"{text}[rules]\noverlap = 'first'\n")
    assert run(capsys, job)[0] == 0


def test_a_job_needs_no_index(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job.write_text('[input]\nsource = "data"\n[[extract]]\npath = "all.nc"\n')
    assert run(capsys, job)[:2] == (0, ["extract all.nc: tas (time: 12, lat: 3, lon: 2), 424 B of values"])
    assert run(capsys, job)[:2] == (0, ["extract all.nc: unchanged"])
    assert run(capsys, job, "--dry-run")[:2] == (0, ["extract all.nc: unchanged"])


def test_runs_do_not_overlap(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with open(job) as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        status, out, err = run(capsys, job)
    assert (status, out) == (1, []) and "is running already" in err


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('log = "job.log"', "log = 3", "log = 3 is invalid; give a text"),
        ("[check]", "[chek]", "unknown key 'chek'; did you mean 'check'?"),
        ("checksum = true", "checksum = 'yes'", "[check]: checksum = 'yes' is invalid; give true or false"),
        ('allow = ["gap"]', 'allow = ["gaps"]', "allow = 'gaps' is invalid; give some of missing, changed"),
        ("method =", "metod =", "[extract 2]: unknown key 'metod'; did you mean 'method'?"),
        ('method = "nearest"', 'method = "next"', "[extract 2]: method = 'next' is invalid; give one of nearest"),
        ("tolerance = { lat = 3", "tolerance = { lat = true", "give a number, a duration such as '12h'"),
        ('method = "nearest"', "", "tolerance: a tolerance needs a method"),
        ('path = "north.nc"', "", "[extract 1]: 'path' is missing"),
        (
            'variables = "tas"',
            'compress = "lzma"',
            "invalid for .nc: north.nc; give zlib:1 to 9, zstd:1 to 22, blosc:1 to 9, or none",
        ),
        ('variables = "tas"', "compress = 4", "[extract 1]: compress = 4 is invalid; give a text"),
        ('variables = "tas"', "units = { tas = 1 }", "give a table of units, such as { tas = 'degC' }"),
        ('source = ["data/*.nc"]', "source = []", "source = [] is invalid; give a text, or a list of texts"),
        ("lat = 12,", "lat = { a = 1 },", "give a table of labels"),
        ('overlap = "first"', 'overlap = "best"', "overlap='best'"),
        ('overlap = "first"', "tolerance = true", "tolerance = True is invalid; give a number"),
        ("[[extract]]", "[extract]", ""),
        ("[check]", "extract = 3\n[check]", ""),
    ],
)
def test_a_wrong_job_file_is_wrong_usage(job: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, words: str) -> None:
    assert old in JOB
    job.write_text(JOB.replace(old, new))
    before = state(job.parent)
    status, out, err = run(capsys, job)
    assert (status, out) == (2, []) and words in err and "job.toml" in err + str(words == "overlap='best'" and "job.toml")
    assert state(job.parent) == before and not (job.parent / "job.log").exists()


def test_pages_are_drawn_where_something_has_changed(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = job.parent / "page.html"
    asked = JOB.partition("[[extract]]")[0] + '[[page]]\npath = "page.html"\ntitle = "Days"\n'
    job.write_text(asked)
    assert run(capsys, job)[1][1:] == ["page page.html: written"] and "<h1>Days</h1>" in page.read_text()
    before = state(job.parent)
    assert run(capsys, job)[1][1:] == ["page page.html: unchanged"] and state(job.parent) == before
    job.write_text(asked.replace("Days", "Other days"))
    assert run(capsys, job, "--dry-run")[1][1:] == ["page page.html: would be written"] and state(job.parent) == {
        **before,
        "job.toml": state(job.parent)["job.toml"],
    }
    page.write_text("mine")
    status, _, error = run(capsys, job)
    assert status == 1 and "not a page of aggarray" in error and page.read_text() == "mine"


def test_every_key_is_documented() -> None:
    page = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
    rules = "`Rules`"
    missing = [f"{t}.{k}" for t, keys in KEYS.items() for k in keys if f"`{k}`" not in page and t != "rules"]
    assert not missing and rules in page
