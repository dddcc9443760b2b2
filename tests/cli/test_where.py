"""``--where``: arrays chosen by their attributes, for every command."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aggarray as aa
from aggarray.cli import main
from tests.support.netcdf import cube, write

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def command(*arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as stop:
            main([str(a) for a in arguments])
        captured = capsys.readouterr()
        return int(stop.value.code or 0), captured.out, captured.err

    return command


def dataset(folder: Path, model: str, table: str, start: int = 0, **attrs: Any) -> None:
    facets = {"source_id": model, "table_id": table, "realization": np.int32(1), "source": f"{model}, 2017", **attrs}
    write(folder / f"{model}_{table}_{start}.nc", cube([start, start + 1]), facets)


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    folder = tmp_path / "archive"
    for model in ("MIROC6", "MIROC-ES2L", "CanESM5"):
        for table in ("Amon", "day"):
            dataset(folder, model, table)
            dataset(folder, model, table, 2)
    return folder


def models(text: str) -> list[str]:
    return [f"{fact['facets']['source_id']} {fact['facets']['table_id']}" for fact in json.loads(text)]


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (["source_id=MIROC6"], ["MIROC6 Amon", "MIROC6 day"]),
        (["source_id=MIROC6,CanESM5", "table_id=day"], ["CanESM5 day", "MIROC6 day"]),
        (["source_id=MIROC6", "source_id=CanESM5", "table_id=day"], ["CanESM5 day", "MIROC6 day"]),
        (["source_id=MIROC*", "table_id=A*"], ["MIROC-ES2L Amon", "MIROC6 Amon"]),
        (["source=MIROC6, 2017", "table_id=day"], ["MIROC6 day"]),
        (["name=tas", "source_id=MIROC6"], ["MIROC6 Amon", "MIROC6 day"]),
        (["realization=1", "units=K", "source_id=C*5"], ["CanESM5 Amon", "CanESM5 day"]),
    ],
)
def test_values_lists_and_patterns(run: Run, archive: Path, where: list[str], expected: list[str]) -> None:
    status, out, _ = run("info", archive, "--json", *(word for text in where for word in ("--where", text)))
    assert status == 0 and models(out) == expected


@pytest.mark.parametrize(
    ("where", "status", "words"),
    [
        (
            ["sorce_id=MIROC6"],
            1,
            "no array has an attribute 'sorce_id'; did you mean source_id=MIROC6? the arrays differ in source_id",
        ),
        (["source_id=MIROC7"], 1, "did you mean 'MIROC6'? source_id is CanESM5, MIROC-ES2L, MIROC6"),
        (["model=nothing"], 1, "--where model: no array has an attribute 'model'; the arrays differ in source_id"),
        (["sourceid=nothing"], 1, "did you mean 'source_id'? the arrays differ in source_id"),
        (["source_id=canesm5"], 1, "did you mean 'CanESM5'? source_id is"),
        (["source_id=,"], 1, "source_id=: no array has this value; source_id is CanESM5"),
        (["source_id=MIROC6,X*"], 1, "--where source_id=X*: no array has this value"),
        (["table_id=day", "source_id=mon"], 1, "source_id is CanESM5"),
        (["table_id"], 2, "NAME=VALUE"),
        (["=day"], 2, "NAME=VALUE"),
    ],
)
def test_absent_attributes_and_values_list_what_there_is(
    run: Run, archive: Path, where: list[str], status: int, words: str
) -> None:
    code, out, err = run("info", archive, *(word for text in where for word in ("--where", text)))
    assert (code, out) == (status, "") and words in err


def test_arrays_without_attributes_say_so(run: Run, tmp_path: Path) -> None:
    write(tmp_path / "a.nc", {"x": (("y",), np.arange(2.0), {})})
    status, _, err = run("info", tmp_path / "a.nc", "--where", "source_id=A")
    assert status == 1 and "the arrays have no attributes" in err


def test_values_that_no_array_has_together(run: Run, archive: Path) -> None:
    dataset(archive, "NorESM2", "fx")
    status, _, err = run("info", archive, "--where", "source_id=MIROC6", "--where", "table_id=fx")
    assert status == 1
    assert err == "aggarray: --where table_id=fx: no array has this value and source_id=MIROC6; table_id is Amon, day\n"


def test_every_command_that_opens_a_source(run: Run, archive: Path, tmp_path: Path) -> None:
    chosen, index = ("--where", "source_id=MIROC6", "--where", "table_id=day"), tmp_path / "day.nca"
    assert run("aggregate", archive, *chosen, "-o", index)[1] == f"{index}: 1 array of 2 files\n"
    assert [len(json.loads(run("explain", source, *chosen, "--json")[1])["arrays"]) for source in (archive, index)] == [1, 1]
    assert run("check", archive, *chosen)[0] == 0
    assert json.loads(run("distribute", archive, *chosen, "-n", "2", "--json")[1])["shape"] == [4, 3, 2]
    assert run("view", archive, *chosen, "-o", tmp_path / "p.html")[1] == f"{tmp_path / 'p.html'}: 1 array of 2 files\n"
    assert run("extract", archive, *chosen, "-o", tmp_path / "x.nc")[0] == 0
    assert "choose one, for example with --where " in run("distribute", archive, "-n", "2")[2]


def test_check_of_a_selection_sees_its_files_only(run: Run, archive: Path, tmp_path: Path) -> None:
    index = tmp_path / "all.nca"
    assert run("aggregate", archive, "-o", index)[0] == 0
    (archive / "CanESM5_day_2.nc").unlink()
    assert run("check", index)[0] == 1
    assert run("check", index, "--where", "source_id=CanESM5", "--where", "table_id=day")[0] == 1
    assert run("check", index, "--where", "source_id=MIROC*")[:2] == (0, "no problems\n")


def test_an_index_keeps_its_selection_when_files_are_appended(run: Run, archive: Path, tmp_path: Path) -> None:
    index = tmp_path / "miroc.nca"
    assert run("aggregate", archive, "--where", "source_id=MIROC*", "--where", "table_id=day", "-o", index)[0] == 0
    dataset(archive, "MIROC6", "day", 4)
    dataset(archive, "MIROC7", "day")
    dataset(archive, "CanESM5", "day", 4)
    status, out, err = run("append", index, archive)
    assert (status, out) == (0, f"{index}: 3 arrays of 6 files\n")
    agg = aa.open(index)
    assert sorted((a.file_attrs["source_id"], a.shape[0]) for a in agg) == [("MIROC-ES2L", 4), ("MIROC6", 6), ("MIROC7", 2)]
    status, out, err = run("append", index, archive, "--where", "source_id=MIROC6")
    assert status == 2 and "an index keeps the selection it was made with" in err
    assert "--where" not in run("append", "--help")[1]


def test_refusals_are_those_between_the_selected_arrays(run: Run, archive: Path) -> None:
    alone = json.loads(run("explain", archive, "--where", "source_id=MIROC6", "--where", "table_id=day", "--json")[1])
    assert alone["refusals"] == []
    kept = json.loads(run("explain", archive, "--where", "table_id=day", "--json")[1])
    assert all("_day_" in file for r in kept["refusals"] for file in r["files"])
    assert len(aa.open(archive).refusals) == 5 > len(kept["refusals"])


def test_jobs_select_the_input_and_each_output(run: Run, archive: Path, tmp_path: Path) -> None:
    job = tmp_path / "job.toml"
    text = """
[input]
source = "archive"
where = { source_id = ["MIROC*", "CanESM5"], table_id = "day" }
[index]
path = "day.nca"
[[extract]]
path = "x.zarr"
where = { source_id = "MIROC6" }
[[page]]
path = "p.html"
where = { source_id = "MIROC*" }
"""
    job.write_text(text)
    status, _, err = run("run", job)
    assert (status, err) == (0, "") and len(aa.open(tmp_path / "day.nca")) == 3
    assert "unchanged" in run("run", job)[1] and "3 arrays" not in run("run", job)[1]
    dataset(archive, "MIROC7", "day")
    dataset(archive, "MIROC7", "Amon")
    assert run("run", job)[0] == 0 and len(aa.open(tmp_path / "day.nca")) == 4
    job.write_text(text.replace('"MIROC*", ', ""))
    assert run("run", job)[0] == 1 and len(aa.open(tmp_path / "day.nca")) == 1
    job.write_text(text.replace('"day" }', '"fx" }'))
    status, _, err = run("run", job)
    assert status == 1 and "where table_id=fx: no array has this value; table_id is Amon, day" in err
    job.write_text(text.replace('"day" }', "{ a = 1 } }"))
    assert run("run", job)[0] == 2
