"""Problems found by a check: gaps, holes, duplicates, damaged files."""

import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import cftime
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

import aggarray as aa
from aggarray.aggregate.gaps import Gap, gaps
from aggarray.aggregate.report import boxes
from tests.support.netcdf import LAT, LON, TIME, cube, field, write

pytestmark = pytest.mark.quick


def days(values: Any) -> np.ndarray:
    """Return times, given as days."""
    return np.datetime64("2001-01-01", "us") + np.round(np.asarray(values, float) * 86400e6).astype("m8[us]")


def months(*values: str) -> np.ndarray:
    return np.array(values, "M8[us]")


# Gaps


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        (days([0, 1]), []),
        (days([0, 1, 2]), []),
        (days([0, 7, 14]), []),
        (days([0, 1, 4]), [(1, 2)]),
        (days([0, 3, 4]), [(0, 2)]),
        (days([0, 0.25, 1]), [(1, 2)]),
        (days([0, 1, 2, 3, 5.5]), []),
        (days([0, 2, 5]), []),
        (days([0, 1, 2, 4, 6, 8, 10, 12, 13]), [(n, 1) for n in range(2, 7)]),
        (days([*range(20), 20.5, 21.5, 24.5]), [(21, 2)]),
        (days([0.0, 0.31, 1.02, 2.9, 4.4, 4.6, 9.1]), []),
        (days([*range(0, 365, 8), *range(365, 730, 8)]), []),
        (days([*range(0, 365, 8), *range(365, 600, 8), *range(613, 730, 8)]), [(75, 1)]),
        (months("2001-01", "2001-02", "2001-05"), [(1, 2)]),
        (months("2001-01", "2001-02", "2001-03", *(f"2001-{m:02}" for m in range(5, 12, 2))), [(n, 1) for n in range(2, 6)]),
        (months("2001-01", "2001-03", "2001-05"), []),
        (months("2001-01-31", "2001-02-28", "2001-03-31", "2001-05-31"), [(2, 1)]),
        (months("2001-01-31", "2001-03-01", "2001-03-31T23:59", "2001-05-01"), []),
        (months(*(f"{y}-12-31" for y in (1999, 2000, 2001, 2004))), [(2, 2)]),
        (months(*(f"2001-{m:02}-{d}" for m in range(1, 13) for d in ("01", "11", "21"))), []),
        (months("2001-12", "2002-01", "2002-02", "2002-12", "2003-01", "2003-02"), [(2, 9)]),
    ],
)
def test_gaps(times: np.ndarray, expected: list[tuple[int, int]]) -> None:
    assert gaps(times) == [Gap(*pair) for pair in expected]
    dated = np.array([cftime.DatetimeProlepticGregorian(*t.timetuple()[:6], t.microsecond) for t in times.tolist()])
    assert gaps(dated) == [Gap(*pair) for pair in expected]


@pytest.mark.parametrize("seed", range(20))
def test_axes_without_a_step_have_no_gaps(seed: int) -> None:
    """Overpasses at any time, and daily times that are off by an hour or so."""
    rng = np.random.default_rng(seed)
    assert gaps(days(np.sort(rng.uniform(0, 100, 50)))) == []
    assert gaps(days(np.delete(np.arange(50), rng.integers(1, 49, 3)) + rng.uniform(-0.002, 0.002, 1))) != []
    assert gaps(days(np.arange(50) + rng.uniform(-0.05, 0.05, 50))) == []


@given(st.data())
def test_every_missing_step_is_found(data: st.DataObject) -> None:
    """A regular axis of any step, less than half of it gone."""
    count, step = data.draw(st.integers(8, 60)), data.draw(st.sampled_from([1 / 24, 0.25, 1, 5, 7]))
    gone = data.draw(st.sets(st.integers(1, count - 2), max_size=count // 3))
    kept = [n for n in range(count) if n not in gone]
    expected = [Gap(i, b - a - 1) for i, (a, b) in enumerate(pairwise(kept)) if b - a > 1]
    assert gaps(days(np.array(kept) * step)) == expected or (np.diff(kept) == 1).sum() < len(kept) / 3


# Holes


@given(arrays(bool, array_shapes(min_dims=0, max_dims=4, max_side=6)))
def test_boxes_cover_each_element_once(marked: np.ndarray) -> None:
    result = np.zeros(marked.shape, int)
    for box in boxes(marked).tolist():
        result[tuple(slice(*ends) for ends in box)] += 1
    np.testing.assert_array_equal(result, marked)


def test_a_block_is_one_box() -> None:
    marked = np.zeros((40, 50), bool)
    marked[5:30, 10:40] = True
    assert boxes(marked).tolist() == [[[5, 30], [10, 40]]]
    marked[35] = True
    assert len(boxes(marked)) == 2


def test_neighbouring_holes_are_one_problem(tmp_path: Path) -> None:
    for t in range(4):
        for y in range(5):
            if not (t in (1, 2) and y in (2, 3)):
                write(tmp_path / f"{t}{y}.nc", cube([t], lats=[10.0 * y]))
    agg = aa.open(tmp_path)
    holes = [p.message for p in agg.check().problems if p.kind == "hole"]
    assert holes == ["tas: no file covers time 2000-01-02 to 2000-01-03, lat 20 to 30, beside 02.nc"]


# Files


def with_orography(times: Any) -> dict[str, tuple[Any, ...]]:
    """Return variables of `tas`, and one that is the same in every file."""
    made = cube(times)
    made["orog"] = (("lat", "lon"), field([0], (10.0, 20.0, 30.0), (0.0, 5.0))[0], {"units": "m", "standard_name": "orography"})
    return made


def test_variables_without_time_are_not_duplicates(tmp_path: Path) -> None:
    for start in (0, 2, 4):
        write(tmp_path / f"{start}.nc", with_orography([start, start + 1]))
    agg = aa.open(tmp_path)
    assert len(agg.duplicates) == 2 and agg.check() == aa.Report(True, ())


def test_a_file_that_repeats_another_is_one_problem(tmp_path: Path) -> None:
    for name, start in (("a", 0), ("b", 2), ("c", 2)):
        write(tmp_path / f"{name}.nc", with_orography([start, start + 1]))
    agg = aa.open(tmp_path)
    (problem,) = agg.check().problems
    assert (problem.kind, problem.file) == ("duplicate", str(tmp_path / "c.nc"))
    assert all(word in problem.message for word in ("tas", "orog", "b.nc", "c.nc repeats"))
    assert len(agg.duplicates) == 3


@pytest.mark.parametrize("format", ["NETCDF4", "NETCDF3_CLASSIC", "NETCDF3_64BIT_DATA"])
def test_a_file_truncated_after_opening(tmp_path: Path, format: Any) -> None:
    paths = [write(tmp_path / f"{n}.nc", cube([2 * n, 2 * n + 1]), format=format) for n in range(3)]
    agg = aa.open(tmp_path)
    assert agg.check().ok
    os.truncate(paths[0], 620)  # some writers pad files, whose ends are of no account
    os.remove(paths[2])
    problems = agg.check().problems
    assert [(p.kind, p.file) for p in problems] == [("unreadable", paths[0]), ("missing", paths[2])]
    assert all(p.file and p.file in p.message and "\n" not in p.message for p in problems)


def test_files_that_were_skipped_are_unreadable(tmp_path: Path) -> None:
    write(tmp_path / "a.nc", {"lat": (("lat",), [1.0], LAT), "lon": (("lon",), [1.0], LON), **cube([0])})
    (tmp_path / "b.nc").write_bytes(b"no data")
    (problem,) = aa.open(tmp_path).check().problems
    assert (problem.kind, problem.file) == ("unreadable", str(tmp_path / "b.nc"))
    assert problem.message.endswith(f"({tmp_path}/b.nc)") and problem.message.count("b.nc") == 1


def test_files_of_one_name_around_a_gap(tmp_path: Path) -> None:
    for folder, values in (("x", [0, 1]), ("y", [4, 5])):
        write(tmp_path / folder / "tas.nc", cube(values, time=(("time",), np.array(values, "f8"), TIME)))
    (problem,) = aa.open(tmp_path).check().problems
    assert problem.message.endswith(": x/tas.nc, y/tas.nc")


# Numbers of NumPy in the rules


@pytest.mark.parametrize(
    ("name", "value"), [("tolerance", np.float32(1e-6)), ("coverage", np.int64(1)), ("coverage", np.float64(0))]
)
def test_numbers_of_numpy(name: str, value: Any) -> None:
    rules = aa.Rules(**{name: value})
    assert getattr(rules, name) == value and type(getattr(rules, name)) is float and rules == aa.Rules(**{name: float(value)})


@pytest.mark.parametrize(
    "bad", [{"versions": 3}, {"versions": ""}, {"tolerance": np.bool(True)}, {"coverage": np.nan}], ids=str
)
def test_invalid_values(bad: dict[str, Any]) -> None:
    with pytest.raises(aa.AggregationError, match=next(iter(bad))):
        aa.Rules(**bad)


def test_selections_share_the_list_of_files(tmp_path: Path) -> None:
    """Every file repeats the same `orog` beside its own steps of `tas`."""
    for number in range(3):
        write(tmp_path / f"{number}.nc", cube([number], orog=(("lat", "lon"), np.ones((3, 2)), {"units": "m"})))
    agg = aa.open(tmp_path)
    assert agg.check().ok and len(agg.duplicates) == 2
    assert agg.select("orog").check().ok
