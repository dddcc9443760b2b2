"""Protection of the files that the command line reads, and its refusals."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import zarr

import aggarray as aa
from aggarray.cli import main
from aggarray.export.extract import extract
from tests.support.netcdf import cube, write
from tests.support.paths import ROOT
from tests.support.servers import free_of_proxies, web_server


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    """Return exit status, standard output and standard error."""
    with pytest.raises(SystemExit) as stop:
        main(list(map(str, arguments)))
    out, err = capsys.readouterr()
    return int(stop.value.code or 0), out, err


def shell(line: str) -> tuple[int, str, str]:
    """Run a line of a shell in which ``aggarray`` is the command."""
    command = f'aggarray() {{ "{sys.executable}" -m aggarray "$@"; }}; {line}'
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, cwd=ROOT, check=False)
    return done.returncode, done.stdout, done.stderr


def everything(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of two files, an index of them, a group inside a Zarr store, and a data file that lies in a store."""
    for number in range(2):
        write(tmp_path / "data" / f"{number}.nc", cube([2.0 * number, 2.0 * number + 1]))
    aa.open(tmp_path / "data").save(tmp_path / "tas.nc")
    extract(aa.open(tmp_path / "data")["tas"], tmp_path / "s.zarr")
    shutil.copytree(tmp_path / "s.zarr", tmp_path / "s.zarr" / "grp")
    zarr.create_group(tmp_path / "in.zarr")
    shutil.copy(tmp_path / "data" / "0.nc", tmp_path / "in.zarr")
    os.link(tmp_path / "data" / "0.nc", tmp_path / "hard.nc")
    (tmp_path / "link.nc").symlink_to(tmp_path / "data" / "0.nc")
    return tmp_path


@pytest.mark.parametrize(
    ("source", "output", "words"),
    [
        ("s.zarr/grp", "s.zarr", "which is read"),
        ("in.zarr/0.nc", "in.zarr", "which is read"),
        ("tas.nc", "tas.nc", "the output is also an input"),
        ("tas.nc", "data/1.nc", "the output is also an input"),
        ("data/*.nc", "data/1.nc", "the output is also an input"),
        ("data/0.nc", "hard.nc", "the output is also an input"),
        ("data/*.nc", "hard.nc", "the output is also an input"),
        ("data/0.nc", "link.nc", "the output is also an input"),
        ("link.nc", "link.nc", "the output is also an input"),
        ("s.zarr/grp", "s.zarr/grp/x.nc", "which is read"),
    ],
)
def test_what_is_read_is_never_replaced(
    folder: Path, source: str, output: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = everything(folder)
    selected = ("--sel", "time=2000-01-01") if source in ("tas.nc", "data/*.nc") else ()
    status, out, err = run(capsys, "extract", folder / source, *selected, "-o", folder / output, "--overwrite")
    assert (status, out) == (2, "") and words in err and "Traceback" not in err
    assert everything(folder) == before


def test_an_index_is_not_replaced_by_an_extract(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = everything(folder)
    status, out, err = run(capsys, "extract", folder / "data/0.nc", "-o", folder / "tas.nc", "--overwrite")
    assert (status, out) == (1, "") and "is an index" in err and err.count("\n") == 1
    assert everything(folder) == before


@pytest.mark.parametrize("output", ["data/0.nc", "data/../data/0.nc", "link.nc", "hard.nc", "folder/0.nc"])
@pytest.mark.parametrize("source", ["data", "data/*.nc", "data/0.nc", "link.nc", "hard.nc", "folder"])
def test_an_output_that_is_an_input_is_wrong_usage(
    folder: Path, source: str, output: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "folder").symlink_to(folder / "data")
    before = everything(folder)
    for command, *options in (("aggregate",), ("view",), ("extract", "--overwrite")):
        status, _, err = run(capsys, command, folder / source, "-o", folder / output, *options)
        assert status == 2 and "the output is also an input" in err and everything(folder) == before
    job = folder.parent / f"{folder.name}.toml"
    for table in ("[[extract]]", "[index]", "[[page]]"):
        job.write_text(f"[input]\nsource = '{folder / source}'\n{table}\npath = '{folder / output}'\n")
        status, out, err = run(capsys, "run", job)
        assert (status, out) == (2, "") and "give another name" in err and everything(folder) == before


def test_outputs_of_a_job_may_lie_among_its_inputs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = folder / "job.toml"
    outputs = "[index]\npath = 'data/i.nc'\n[[extract]]\npath = 'data/o.nc'\n[[page]]\npath = 'data/p.html'\n"
    job.write_text(f"[input]\nsource = 'data'\n{outputs}")
    for _ in range(2):
        assert run(capsys, "run", job)[0] == 0
    # A file that is neither input nor an earlier output is not replaced.
    (folder / "data" / "p.html").write_text("mine")
    status, _, err = run(capsys, "run", job)
    assert status == 1 and "is not a page of aggarray" in err and (folder / "data" / "p.html").read_text() == "mine"
    write(folder / "data" / "o.nc", cube([9]))
    assert run(capsys, "run", job)[0] == 2


def test_arrays_themselves_keep_their_files(folder: Path) -> None:
    before = everything(folder)
    for source, output in (("s.zarr/grp", "s.zarr"), ("in.zarr/0.nc", "in.zarr"), ("tas.nc", "tas.nc")):
        with pytest.raises(aa.AggregationError, match=r"which is read|is an index"):
            extract(aa.open(folder / source)["tas"], folder / output, exists="overwrite")
    assert everything(folder) == before


@pytest.mark.parametrize(
    ("line", "status", "out", "err"),
    [
        ("info {} 2>&-", 0, "tas", ""),
        ("info {} <&-", 0, "tas", ""),
        ("info nowhere 2>&-", 1, "", ""),
        ("explain {} --json >&-", 1, "", "aggarray: the output cannot be written: Bad file descriptor\n"),
        ("info {} >&- 2>&-", 1, "", ""),
    ],
)
def test_outputs_that_a_shell_has_closed(folder: Path, line: str, status: int, out: str, err: str) -> None:
    result = shell("aggarray " + line.format(folder / "data"))
    assert (result[0], result[2]) == (status, err) and out in result[1] and bool(out) == bool(result[1])


@pytest.mark.parametrize("wanted", [("-n", "99999999999"), ("--grid", "99999x99999")])
def test_more_processes_than_can_be_listed(folder: Path, wanted: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(capsys, "distribute", folder / "data", *wanted)
    assert (status, out) == (2, "") and "at most 100000" in err


def test_memory_that_is_not_there(folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def greedy(*arguments: object, **options: object) -> None:
        raise MemoryError

    monkeypatch.setattr("aggarray.display.facts.aggregation_facts", greedy)
    told = (1, "", "aggarray: out of memory; select a smaller part\n")
    assert run(capsys, "info", folder / "data") == told


@pytest.mark.parametrize("line", ["info {}", "run {}", "extract data -o {}", "extract data --sel {}=3 -o x.nc"])
def test_names_that_do_not_print(
    folder: Path, line: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    _, _, err = run(capsys, *(word.format("a\nb\x1b[31m") for word in line.split()))
    told = [one for one in err.splitlines() if not one.startswith(("Usage:", "Try ")) and one]
    assert len(told) == 1 and "\x1b" not in err and "\\x1b[31m" in told[0]


def test_a_folder_of_somebody_else_stays(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    part = folder / "y.nc.part"
    for name in ("store/file", "lock", "extract.json", "spare/x"):
        (part / name).parent.mkdir(parents=True, exist_ok=True)
        (part / name).write_text("precious")
        status, _, err = run(capsys, "extract", folder / "data", "-o", folder / "y.nc")
        assert status == 1 and "is a folder with other content" in err and (part / name).read_text() == "precious"
        shutil.rmtree(part)
    part.mkdir()
    for name in ("lock", "extract.json"):
        (part / name).touch()
    assert run(capsys, "extract", folder / "data", "-o", folder / "y.nc")[0] == 0 and not part.exists()


INPUT = '[input]\nsource = "data"\n'


@pytest.mark.parametrize(
    "text",
    [
        'log = "job.toml"\n' + INPUT,
        'log = "notes.txt"\n' + INPUT,
        'log = "i.nca"\n' + INPUT + '[index]\npath = "i.nca"',
        INPUT + '[index]\npath = "x.nc"\n[[extract]]\npath = "data/../x.nc"',
        INPUT + '[[extract]]\npath = "x.nc"\n[[extract]]\npath = "x.nc"\nsel = {lat = 1}',
        INPUT + '[[extract]]\npath = "x.zarr"\n[[extract]]\npath = "x.zarr/y.nc"',
        INPUT + '[[extract]]\npath = "x.zarr/y.nc"\n[[extract]]\npath = "x.zarr"',
        '[input]\nsource = ["data/0.nc", "tas.nc"]\n[index]\npath = "data/0.nc"',
        INPUT + '[[extract]]\npath = "x.txt"',
        INPUT + '[[extract]]\npath = "s3://bucket/x.nc"',
        INPUT + '[[page]]\npath = ""',
        INPUT + "relocate = { a = 3 }",
        '[input]\nsource = ""',
        '[input]\nsource = ["data", "a\\u0000.nc"]',
    ],
)
def test_jobs_that_cannot_be_meant_so(folder: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "job.toml").write_text(text)
    (folder / "notes.txt").write_text("mine\n")
    before = everything(folder)
    for more in ((), ("--dry-run",)):
        status, out, err = run(capsys, "run", folder / "job.toml", *more)
        assert (status, out) == (2, "") and "job.toml" in err and everything(folder) == before


def test_outputs_of_a_job_are_no_inputs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outputs = 'path = "data/all.nca"\n[[extract]]\npath = "data/x.nc"\nsel = { lat = 10 }\n[[extract]]\npath = "data/x.zarr"\n'
    text = f'log = "data/log"\n{INPUT}[index]\n{outputs}[[page]]\npath = "data/p.html"\n[check]\n'
    (folder / "job.toml").write_text(text)
    status, first, err = run(capsys, "run", folder / "job.toml")
    assert (status, err) == (0, "") and "1 array of 2 files" in first
    (folder / "data" / "x.nc.part").mkdir()
    shutil.copy(folder / "data" / "x.nc", folder / "data" / "x.nc.part" / "file.nc")
    for _ in range(2):
        status, again, err = run(capsys, "run", folder / "job.toml")
        assert (status, err) == (0, "") and again.count(": unchanged") == 4
    assert run(capsys, "run", folder / "job.toml", "--dry-run")[1].count(": unchanged") == 4


def test_errors_of_a_job_name_a_path_once(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "there.nc").write_text("mine")
    (folder / "job.toml").write_text(INPUT + '[[extract]]\npath = "there.nc"')
    status, _, err = run(capsys, "run", folder / "job.toml")
    assert status == 1 and err.count("there.nc") == 1


def test_a_store_rewritten_in_place_is_extracted_anew(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "job.toml").write_text('[input]\nsource = "s.zarr/grp"\n[index]\npath = "i.nca"\n[[extract]]\npath = "x.nc"')
    assert run(capsys, "run", folder / "job.toml")[0] == 0
    assert run(capsys, "run", folder / "job.toml")[1].count("unchanged") == 2
    zarr.open_group(folder / "s.zarr" / "grp")["tas"][0, 0, :] = 123
    assert "x.nc: tas" in run(capsys, "run", folder / "job.toml")[1]
    assert (aa.open(folder / "x.nc")["tas"][0, 0] == 123).all()


def test_a_job_of_remote_files_keeps_an_index(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in free_of_proxies().items():
        monkeypatch.setenv(name, value)
    with web_server(folder / "data") as server:
        names = [f"{server.url}/{n}.nc" for n in range(2)]
        (folder / "job.toml").write_text(
            f'[input]\nsource = {names}\n[index]\npath = "i.nca"\n[[extract]]\npath = "x.nc"\n[check]'
        )
        status, out, err = run(capsys, "run", folder / "job.toml")
        assert (status, err) == (0, "") and "1 array of 2 files" in out
        for more in ((), ("--dry-run",)):
            status, out, err = run(capsys, "run", folder / "job.toml", *more)
            assert (status, err) == (0, "") and out.count("unchanged") == 2
