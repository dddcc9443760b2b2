"""Does the command line leave alone what it reads, and say in one line, in time, what it will not do?"""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import zarr
from making import cube, write

import aggarray as aa
from aggarray.api import extract
from aggarray.cli import main

ROOT = Path(__file__).resolve().parents[1]


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
    (tmp_path / "link.nc").symlink_to(tmp_path / "data" / "0.nc")
    return tmp_path


@pytest.mark.parametrize(
    ("source", "output", "words"),
    [
        ("s.zarr/grp", "s.zarr", "which is read"),
        ("in.zarr/0.nc", "in.zarr", "which is read"),
        ("tas.nc", "tas.nc", "is read itself"),
        ("tas.nc", "data/1.nc", "is read itself"),
        ("data/*.nc", "data/1.nc", "is read itself"),
        ("data/0.nc", "tas.nc", "is an index"),
        ("data/0.nc", "link.nc", "is read itself"),
        ("link.nc", "link.nc", "is read itself"),
        ("s.zarr/grp", "s.zarr/grp/x.nc", "which is read"),
    ],
)
def test_what_is_read_is_never_replaced(
    folder: Path, source: str, output: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = everything(folder)
    selected = ("--sel", "time=2000-01-01") if source in ("tas.nc", "data/*.nc") else ()
    status, out, err = run(capsys, "extract", folder / source, *selected, "-o", folder / output, "--overwrite")
    assert (status, out) == (1, "") and words in err and err.count("\n") == 1
    assert everything(folder) == before


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
    found = shell("aggarray " + line.format(folder / "data"))
    assert (found[0], found[2]) == (status, err) and out in found[1] and bool(out) == bool(found[1])
