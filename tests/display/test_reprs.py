"""Representations of aggregations, arrays, refusals and reports: short, and tables."""

import copy
import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import aggarray as aa
from aggarray.display.reprs import MOST_ARRAYS
from aggarray.display.table import MOST_ROWS
from aggarray.opening.provenance import Listing
from tests.support.netcdf import TAS, cube, write


@pytest.fixture
def agg(tmp_path: Path) -> aa.Aggregation:
    """Two models; of A, one file overlaps and another is damaged; of B, steps are missing."""
    for model in "AB":
        write(tmp_path / model / "0.nc", cube([0, 1, 2, 3]), {"source_id": model, "institution_id": f"I{model}"})
    made = cube([2, 3, 4])
    odd = {**made, "tas": (made["tas"][0], made["tas"][1] + 1, TAS)}
    write(tmp_path / "A" / "1.nc", odd, {"source_id": "A", "institution_id": "IA"})
    write(tmp_path / "B" / "1.nc", cube([6, 7]), {"source_id": "B", "institution_id": "IB"})
    (tmp_path / "A" / "x.nc").write_text("no data")
    return aa.open(tmp_path)


def test_an_aggregation_is_a_table(agg: aa.Aggregation) -> None:
    lines = [line.split() for line in repr(agg).splitlines()]
    assert repr(agg).splitlines()[0] == "<aggarray.Aggregation: 3 arrays of 4 files, 312 B of values>"
    assert " ".join(lines[1]) == "all: name tas, type float32, units K"
    assert lines[2] == ["source_id", "file", "shape", "time", "files", "size"]
    assert lines[-2][:1] == ["B"] and lines[-2][-3:] == ["2", "144", "B"]
    assert " ".join(lines[-1]) == "1 array not joined, 1 file skipped: see refusals and skipped"
    assert "1 array of 2 files, " in repr(agg.select(source_id="B"))
    assert repr(aa.Aggregation(())) == "<aggarray.Aggregation: 0 arrays of 0 files, 0 B of values>"


def test_refusals_are_a_table_and_a_tuple(agg: aa.Aggregation) -> None:
    text = str(agg.refusals)
    first, head, _, row, *_, last = text.splitlines()
    assert first == "2 refusals" and head.split() == ["rule", "arrays", "reason"]
    assert row.startswith(
        "overlap  tas     they overlap at time 2000-01-03 to 2000-01-04: 0.nc, 1.nc; give Rules(overlap='first')"
    )
    assert last == "2 datasets stay separate because they differ in source_id; iterate to see each"
    plain = tuple(agg.refusals)
    assert agg.refusals == plain and hash(agg.refusals) == hash(plain) and isinstance(agg.refusals, tuple)
    assert isinstance(agg.refusals[0], aa.Refusal) and agg.refusals[:1] == plain[:1]
    for same in (pickle.loads(pickle.dumps(agg.refusals)), copy.deepcopy(agg.refusals)):
        assert same == plain and str(same) == text


def test_skipped_files_are_a_table(agg: aa.Aggregation, tmp_path: Path) -> None:
    first, folder, head, _, row, *_ = str(agg.skipped).splitlines()
    assert (first, folder) == ("1 skipped", f"in {tmp_path}/A") and head.split() == ["file", "reason"]
    assert row.startswith("x.nc  not a data file of a known format")
    assert str(agg.skipped + agg.skipped).startswith("(Skipped(")
    assert str(aa.Aggregation(()).skipped) == "()" == str(aa.Aggregation(()).refusals)


def test_skipped_variables_have_a_column(tmp_path: Path) -> None:
    items = Listing([aa.Skipped("/data/a/b.nc", "x", "odd"), aa.Skipped("/data/c.nc", None, "damaged")])
    assert str(items).splitlines() == [
        "2 skipped",
        "in /data",
        "file    variable  reason",
        "------  --------  -------",
        "a/b.nc  x         odd",
        "c.nc              damaged",
    ]


def test_a_report_is_a_table(agg: aa.Aggregation, tmp_path: Path) -> None:
    report = agg.check()
    first, head, _, row, *_ = str(report).splitlines()
    assert first == "Report: 2 problems: gap 1, unreadable 1" and head.split() == ["kind", "problem"]
    assert row == "gap         tas: 2 steps of time missing between 2000-01-04 and 2000-01-07: 0.nc, 1.nc"
    assert pickle.loads(pickle.dumps(report)) == report == aa.Report(False, tuple(report.problems))
    assert repr(aa.Report(True, ())) == "Report: no problems"
    assert repr(aa.open(tmp_path / "A" / "0.nc").check()) == "Report: no problems"


def test_duplicates_are_a_table(tmp_path: Path) -> None:
    for name in "ab":
        write(tmp_path / f"{name}.nc", cube([0, 1]))
    (duplicate,) = (agg := aa.open(tmp_path)).duplicates
    lines = str(agg.duplicates).splitlines()
    assert lines[:2] == ["1 duplicate", f"in {tmp_path}"] and lines[-1].split() == ["tas", "b.nc", "a.nc"]
    assert duplicate.file == str(tmp_path / "b.nc")


def test_long_lists_are_cut() -> None:
    many = Listing([aa.Refusal(("a", "b"), ("a.nc", "b.nc"), "overlap", f"reason {n}") for n in range(100)])
    lines = str(many).splitlines()
    assert lines[0] == "100 refusals" and lines[-1] == f"... and {100 - MOST_ROWS} more" and len(lines) == MOST_ROWS + 4


def test_lines_fit_a_terminal(agg: aa.Aggregation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "70")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    for shown in (agg, agg.refusals, agg.check()):
        assert max(map(len, repr(shown).splitlines())) <= 70


def test_an_array_names_its_dataset_and_files(agg: aa.Aggregation) -> None:
    array = next(a for a in agg if a.file_attrs["source_id"] == "B")
    assert repr(array).splitlines() == [
        "<aggarray.MasterArray tas (time: 6, lat: 3, lon: 2) float32 K>",
        "  dataset: B",
        "  partitions: 2 time, 2 files",
        "  coords: time, lat, lon",
    ]
    piece = aa.SubArray.from_array(np.zeros(3), dimensions=("x",))
    plain = aa.MasterArray.from_subarrays([([(0, 3)], piece)], dimensions=("x",))
    coords = {f"c{n}": plain for n in range(14)}
    plain = replace(plain, coords=coords)
    assert repr(plain).splitlines()[1:] == ["  partitions: 1", f"  coords: {', '.join(list(coords)[:12])} and 2 more"]


def test_a_real_archive_is_short(shared_data: Path) -> None:
    agg = aa.open(shared_data / "cmip6")
    lines = repr(agg).splitlines()
    assert len(lines) == MOST_ARRAYS + 5 and max(map(len, lines)) <= 120 and lines[-1] == "  ... and 56 more"
    assert len(str(agg.refusals).splitlines()) == 2 and "76 datasets stay separate" in str(agg.refusals)
    assert {r.rule for r in agg.refusals} == {"source_id", "table_id"}
    assert "dataset: MIROC6, historical, r1i1p1f1, day, gn" in repr(agg.select(source_id="MIROC6", table_id="day")["ta"])
