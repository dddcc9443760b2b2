"""``aggarray check --layout`` and ``aggarray view --layout``."""

import json
from pathlib import Path

import pytest

import aggarray as aa
from aggarray.display import report
from tests.cli.test_commands import run
from tests.layout.archives import SHAPE, clean, every, second, write

pytestmark = pytest.mark.quick


@pytest.fixture
def faulty(tmp_path: Path) -> Path:
    return write(tmp_path / "a", second(fill=-1.0)(every(chunks=(10, *SHAPE))(clean())))


def test_findings_are_listed_with_their_remedies(capsys: pytest.CaptureFixture[str], faulty: Path) -> None:
    status, out, err = run(capsys, "check", faulty, "--layout")
    lines = out.splitlines()
    assert (status, err, len(lines)) == (1, "", 4)
    assert lines[0].startswith("chunk_size: tas: chunks of 25.9 kB (10 x 18 x 36 values), less than 100.0 kB in 4 of 4 files (")
    assert lines[1] == f"    aggarray extract {faulty} -v tas --chunks time=-1,lat=-1,lon=-1 -o tas.nc"
    assert lines[2].startswith("packing: tas: _FillValue -1.0 in 1 of 4 files (") and lines[2].endswith("; 1e+20 in 3 files")


def test_json_has_files_and_remedies(capsys: pytest.CaptureFixture[str], faulty: Path) -> None:
    status, out, _ = run(capsys, "check", faulty, "--layout", "--profile", "default", "--json")
    result = json.loads(out)
    assert status == 1 and result["ok"] is False and result["profile"] == "default"
    assert [p["kind"] for p in result["problems"]] == ["chunk_size", "packing"]
    assert set(result["problems"][0]) == {"kind", "file", "message", "files", "remedy", "remedies"}
    assert len(result["problems"][0]["files"]) == 4 and result["problems"][0]["remedy"].startswith("aggarray extract ")


def test_an_archive_without_findings(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = write(tmp_path / "a", clean())
    assert run(capsys, "check", folder, "--layout", "--profile", "cloud") == (0, "no problems\n", "")
    result = json.loads(run(capsys, "check", folder, "--layout", "--json")[1])
    assert result == {"ok": True, "profile": "default", "problems": []}
    # A check of files prints as before.
    assert json.loads(run(capsys, "check", folder, "--json")[1]) == {"ok": True, "problems": []}


def test_groups_count_the_findings_of_any_of_their_files(capsys: pytest.CaptureFixture[str], faulty: Path) -> None:
    status, out, _ = run(capsys, "check", faulty, "--layout", "--group-by", "source_id")
    assert status == 1 and out.splitlines()[-1].split()[0] == "M1" and out.split()[-1] == "2"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--layout", "--profile", "clod"], "no profile 'clod'; did you mean 'cloud'?"),
        (["--layout", "--profile", "none.toml"], "no such file: none.toml"),
        (["--profile", "cloud"], "--profile is of --layout"),
        (["--layout", "--checksum"], "--layout compares no checksums"),
    ],
)
def test_wrong_usage(capsys: pytest.CaptureFixture[str], tmp_path: Path, options: list[str], words: str) -> None:
    status, out, err = run(capsys, "check", tmp_path / "missing", *options)
    assert (status, out) == (2, "") and words in err


def test_the_page_has_the_findings(capsys: pytest.CaptureFixture[str], faulty: Path, tmp_path: Path) -> None:
    page = tmp_path / "a.html"
    assert run(capsys, "view", faulty, "-o", page, "--layout")[0] == 0
    text = page.read_text()
    assert '<section id="layout"><h2>Layout (2)</h2>' in text and "less than 100.0 kB" in text
    assert f'<code tabindex="0">aggarray extract {faulty} -v tas --chunks time=-1,lat=-1,lon=-1 -o tas.nc</code>' in text
    assert run(capsys, "view", faulty, "-o", page, "--profile", "cloud")[0] == 2
    assert run(capsys, "view", faulty, "-o", page)[0] == 0
    assert "Layout" not in page.read_text()


def test_the_page_of_an_archive_without_findings(tmp_path: Path) -> None:
    agg = aa.open(write(tmp_path / "a", clean()))
    assert "The files are as the profile wants." in report.page(agg, layout=agg.check_layout())
