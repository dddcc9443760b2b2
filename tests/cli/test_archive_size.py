"""`info`, `explain` and `check` of archives: tables that fit, groups, expected and unexpected refusals."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from aggarray.cli import main
from tests.support.netcdf import TAS, cube, write

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    def command(*arguments: object, columns: int | None = None) -> tuple[int, str, str]:
        with monkeypatch.context() as patch, pytest.raises(SystemExit) as stop:
            if columns is not None:
                patch.setenv("COLUMNS", str(columns))
                patch.setattr("sys.stdout.isatty", lambda: True)
            main([str(a) for a in arguments])
        captured = capsys.readouterr()
        return int(stop.value.code or 0), captured.out, captured.err

    return command


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """Three models; of A, a file overlaps others; of B, one has other units; of C, steps are missing and a file is damaged."""
    folder = tmp_path / "archive"
    for model in "ABC":
        for number, times in enumerate(([0, 1, 2, 3], [4, 5, 6])):
            write(folder / model / f"{number}.nc", cube(times), {"source_id": model})
    made = cube([2, 3, 4])
    write(folder / "A" / "2.nc", {**made, "tas": (made["tas"][0], made["tas"][1] + 1, TAS)}, {"source_id": "A"})
    write(folder / "B" / "2.nc", {**made, "tas": (made["tas"][0], made["tas"][1], {**TAS, "units": "Pa"})}, {"source_id": "B"})
    write(folder / "C" / "2.nc", cube([9, 10]), {"source_id": "C"})
    (folder / "C" / "x.nc").write_text("no data")
    return folder


def cells(text: str) -> list[list[str]]:
    return [re.split(r"\s{2,}", line) for line in text.splitlines()]


@pytest.mark.heavy
def test_years_are_whole_in_narrow_terminals(run: Run, shared_data: Path) -> None:
    for group in ((), ("--group-by", "source_id,table_id")):
        lines = run("info", shared_data / "cmip6", *group, columns=62)[1].splitlines()
        assert max(map(len, lines)) <= 62 and sum("1950-2014" in line for line in lines) > 20
        assert not any("(tim" in line for line in lines)


def test_check_counts_arrays_that_were_not_joined(run: Run, archive: Path) -> None:
    _, out, err = run("check", archive)
    assert "x.nc" in out and "2 arrays not joined; run aggarray explain for the reasons" in err and "skipped" not in err


def test_arrays_not_joined_are_refused_with_the_reason(run: Run, archive: Path, tmp_path: Path) -> None:
    (archive / "B" / "2.nc").unlink()
    command = ("extract", archive, "-o", tmp_path / "a.nc", "--where", "source_id=A")
    status, _, err = run(*command)
    assert status == 1 and "they overlap at time" in err and "give --overlap first or --overlap last" in err
    assert run(*command, "--overlap", "first")[0] == 0
    distributed = ("distribute", archive, "-n", 2, "--where", "source_id=A")
    assert "run aggarray aggregate first: give --overlap first or" in run(*distributed)[2]
    assert run("aggregate", archive, "-o", tmp_path / "index.nca", "--overlap", "first")[0] == 0
    assert run("distribute", tmp_path / "index.nca", "-n", 2, "--where", "source_id=A")[0] == 0


def test_an_index_keeps_its_rules_beside_those_of_options(run: Run, archive: Path, tmp_path: Path) -> None:
    index = tmp_path / "index.nca"
    assert run("aggregate", archive, "-o", index, "--overlap", "first")[0] == 0
    facts = [
        json.loads(run("info", index, "--json", *options)[1]) for options in ((), ("--holes", "refuse"), ("--units", "tas=K"))
    ]
    assert [fact["shape"] for fact in facts[0]] == [fact["shape"] for fact in facts[1]] == [fact["shape"] for fact in facts[2]]
    assert len(json.loads(run("info", index, "--json", "--overlap", "refuse")[1])) == len(facts[0]) + 1


@pytest.mark.parametrize("columns", [80, 100, 140])
def test_info_of_a_real_archive_fits_the_terminal(run: Run, shared_data: Path, columns: int) -> None:
    status, out, err = run("info", shared_data / "cmip6", columns=columns)
    lines = out.splitlines()
    assert (status, err) == (0, "") or "scanning" in err
    assert max(map(len, lines)) <= columns and len(lines) <= 76 + 8
    assert lines[0] == "76 arrays of 326 files, 6.5 MB of values"
    assert (
        " ".join(lines[1 : lines.index("")])
        == "all: name ta, type float32, units K, experiment_id historical, variant_label r1i1p1f1"
    )
    assert "institution_id" not in out and "model_id" not in out and "frequency" not in out
    (row,) = [line for line in lines if line.startswith("MIROC6") and "Amon" in line]
    assert row.split()[:3] == ["MIROC6", "Amon", "gn"] and row.split()[-4:] == ["1950-2014", "7", "25.0", "kB"]
    shape = "(time: 780, plev: 2, lat: 2, lon: 2)" if columns > 80 else "(time: 780, …)"
    assert shape in row


def test_info_into_a_pipe_is_whole(run: Run, shared_data: Path) -> None:
    _, out, _ = run("info", shared_data / "cmip6")
    assert "…" not in out and "table_id  grid_label  shape" in out


@pytest.mark.heavy
def test_groups_of_a_real_archive(run: Run, shared_data: Path) -> None:
    status, out, _ = run("info", shared_data / "cmip6", "--group-by", "table_id")
    assert status == 0 and cells(out) == [
        ["table_id", "arrays", "time", "files", "size", "problems"],
        ["--------", "------", "---------", "-----", "------", "--------"],
        ["Amon", "42", "1850-2016", "270", "1.8 MB", "0"],
        ["day", "34", "1950-2014", "56", "4.7 MB", "0"],
    ]
    _, out, _ = run("info", shared_data / "cmip6", "--group-by", "source_id,table_id", "--json")
    groups = json.loads(out)
    assert len(groups) == 76 and sum(g["files"] for g in groups) == 326
    assert {"source_id": "MIROC6", "table_id": "day"} in [g["group"] for g in groups]


@pytest.mark.parametrize(("command", "problems"), [("info", ["0", "0", "1"]), ("check", ["0", "0", "1", "1"])])
def test_groups_count_their_problems(run: Run, archive: Path, command: str, problems: list[str]) -> None:
    status, out, _ = run(command, archive, "--group-by", "source_id")
    rows = cells(out)[2:]
    assert status == (command == "check") and [row[-1] for row in rows] == problems
    assert rows[0][:3] == ["A", "2", "2000-01-01 to 2000-01-07"]
    if command == "check":
        assert rows[-1] == ["no array", "0", "0", "0 B", "1"]


def test_group_facts_of_check_and_explain(run: Run, archive: Path) -> None:
    for command in ("check", "explain"):
        status, out, _ = run(command, archive, "--group-by", "source_id", "--group-by", "name", "--json")
        groups = json.loads(out)
        assert status == 1 and [g["arrays"] for g in groups] == [2, 2, 1, 0]
        assert groups[2]["group"] == {"source_id": "C", "name": "tas"}
        assert [p["kind"] for p in groups[2]["problems"]] == ["gap"] and groups[3]["problems"][0]["kind"] == "unreadable"
        assert groups[1]["files"] == 3 and groups[1]["time"] == ["2000-01-01", "2000-01-07"]


def test_groups_of_holes_and_duplicates(run: Run, tmp_path: Path) -> None:
    for model in "AB":
        for row, column in ((0, 0), (0, 1), (1, 0)):
            lats, lons = [10.0 + 20 * row, 20.0 + 20 * row], [5.0 * column * 2, 5.0 * column * 2 + 5]
            write(tmp_path / model / f"{row}{column}.nc", cube([0, 1], lats, lons), {"source_id": model})
    write(tmp_path / "B" / "copy.nc", cube([0, 1], [10.0, 20.0], [0.0, 5.0]), {"source_id": "B"})
    _, out, _ = run("info", tmp_path, "--group-by", "source_id")
    assert [(row[0], row[-1]) for row in cells(out)[2:]] == [("A", "1"), ("B", "2")]


def test_an_unknown_group_lists_the_attributes(run: Run, archive: Path) -> None:
    status, out, err = run("info", archive, "--group-by", "sourceid")
    assert (status, out) == (
        1,
        "",
    ) and "--group-by sourceid: no array has an attribute 'sourceid'; did you mean 'source_id'?" in err


def test_explain_counts_datasets_and_lists_the_unexpected(run: Run, archive: Path) -> None:
    hint = "give --overlap first or --overlap last to choose which one to use"
    status, out, _ = run("explain", archive)
    lines = out[out.index("not joined") :].splitlines()
    assert status == 1 and cells("\n".join(lines))[1:6:2] == [
        ["rule", "arrays", "dataset", "reason"],
        ["overlap", "tas", "A", f"they overlap at time 2000-01-03 to 2000-01-04: 0.nc, 2.nc; {hint}"],
        ["3 datasets stay separate because they differ in source_id; --all lists why"],
    ]  # fmt: skip
    assert cells(lines[4])[0][:3] == ["units", "tas", "B"] and "Rules(" not in out and "differs: 'A' and 'B'" not in out
    assert "differs: 'A' and 'B'" in run("explain", archive, "--all")[1]
    assert len(json.loads(run("explain", archive, "--json")[1])["refusals"]) == 4
    assert "3 datasets" not in run("explain", archive, "--where", "source_id=A")[1]


@pytest.mark.heavy
def test_explain_of_a_real_archive_is_a_table(run: Run, shared_data: Path) -> None:
    status, out, _ = run("explain", shared_data / "cmip6", columns=100)
    lines = out.splitlines()
    assert status == 0 and max(map(len, lines)) <= 100 and len(lines) < 90
    assert lines[-1] == "76 datasets stay separate because they differ in source_id, table_id, grid_label; --all lists why"
    everything = run("explain", shared_data / "cmip6", "--all", columns=100)[1]
    assert everything.count("differs: ") == 75 and "[source_id: MIROC6, table_id: day, grid_label: gn]" in everything
    assert len(everything) > 4 * len(out)


def test_the_numbers_of_info_have_their_plurals(run: Run, archive: Path) -> None:
    assert run("info", archive)[2] == "2 arrays not joined, 1 file skipped; run aggarray explain for the reasons\n"
    (archive / "A" / "2.nc").unlink()
    (archive / "C" / "y.nc").write_text("no data")
    assert run("info", archive)[2] == "1 array not joined, 2 files skipped; run aggarray explain for the reasons\n"


def test_view_groups_by_an_attribute(run: Run, archive: Path, tmp_path: Path) -> None:
    def grouped(*options: str) -> list[str]:
        status, _, err = run("view", archive, "-o", tmp_path / "page.html", *options)
        assert status == 0, err
        text = (tmp_path / "page.html").read_text()
        return [re.sub("<[^>]+>", "", match) for match in re.findall(r'<details class="group".*?</b>', text, flags=re.DOTALL)]

    assert grouped() == []
    assert grouped("--group-by", "units") == ["units K", "units Pa"]
    assert grouped("--group-by", "name") == ["name tas"]
    assert grouped("--group-by", "source_id") == ["source_id A", "source_id B", "source_id C"]
    status, _, err = run("view", archive, "-o", tmp_path / "page.html", "--group-by", "unit")
    assert status == 1 and "no array has an attribute 'unit'; did you mean 'units'?" in err
