"""Appending to the columns of an index equals opening all files, without the files of the index."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import aggarray as aa
from aggarray.index import record_columns, records
from aggarray.index.record_columns import _equal_rows
from aggarray.opening import appending
from aggarray.opening.fixing import redefined_variables
from tests.support.index_files import same, save_and_open
from tests.support.netcdf import cube, write


@pytest.fixture
def no_files(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Fail if the structures of the files of an index are needed, except of an example of each kind, without values."""
    own = record_columns.RecordColumns.structures

    def fail(*_: Any) -> Any:
        raise AssertionError("the files of the index were joined again")

    def examples(self: record_columns.RecordColumns) -> Any:
        return fail() if self.values.arrays() else own(self)

    monkeypatch.setattr(record_columns.RecordColumns, "structures", examples)
    monkeypatch.setattr(appending, "_joined_again", fail)
    return monkeypatch


def _month(folder: Path, start: float, model: str = "X", **changes: Any) -> str:
    attrs = {"source_id": model, "tracking_id": f"{model}{start}", "title": "months"}
    return write(folder / model / f"{int(start):05d}.nc", cube([start, start + 1.0], **changes), attrs)


@pytest.mark.parametrize("few", [0, 1024])
def test_new_files_of_several_datasets(few: int, tmp_path: Path, no_files: pytest.MonkeyPatch) -> None:
    """New files are before and after the others; values are stored one by one or in columns."""
    no_files.setattr(records, "FEW_VALUES", few)
    first = [_month(tmp_path, start, model) for model in "XY" for start in (4, 12, 20)]
    agg = save_and_open(aa.open(first), tmp_path / "x.nca")
    steps = [[_month(tmp_path, 0)], [_month(tmp_path, 30, "Y"), _month(tmp_path, 40, "Y")], [_month(tmp_path, 30)]]
    for number, added in enumerate(steps):
        agg = agg.append([*first, *added] if number else added)
        first += added
        same(agg, aa.open(sorted(first)))
        agg = save_and_open(agg, tmp_path / "x.nca")
        same(agg, aa.open(sorted(first)))
    no_files.undo()
    rules = aa.Rules(along=("time",))
    same(save_and_open(aa.open(tmp_path / "x.nca", rules=rules), tmp_path / "y.nca"), aa.open(sorted(first), rules=rules))


def test_several_appends_before_a_save(tmp_path: Path, no_files: pytest.MonkeyPatch) -> None:
    files = [_month(tmp_path, 2.0 * n) for n in range(6)]
    agg = save_and_open(aa.open(files[:2]), tmp_path / "x.nca")
    for path in files[2:5]:
        agg = agg.append(path).append(files[:2])
    agg.save(tmp_path / "x.nca")
    agg = agg.append(files[5])
    agg.save(tmp_path / "x.nca")
    same(aa.open(tmp_path / "x.nca"), aa.open(files))
    no_files.undo()
    same(pickle.loads(pickle.dumps(agg)), aa.open(files))
    assert agg.check().ok == aa.open(files).check().ok


def test_columns_of_values_keep_every_structure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All kinds of values: small and large ones, texts, those without elements, and what rows gave."""
    monkeypatch.setattr(records, "FEW_VALUES", 0)
    lats = np.linspace(-90, 90, 9000)
    names = (("lat",), np.array([f"s{n}" for n in range(len(lats))]), {"long_name": "station"})
    own = {"names": names, "tas": None, "v": (("time", "lat"), np.ones((1, len(lats))), {"coordinates": "names"})}
    files = [write(tmp_path / f"{n}.nc", cube([n], lats=lats, lons=(0.0,), **own)) for n in range(3)]
    agg = aa.open([(path, {"variant_label": f"r{n}"} if n else {"note": "x"}) for n, path in enumerate(files)])
    before = list(agg._provenance.structures())
    again = save_and_open(save_and_open(agg, tmp_path / "x.nca"), tmp_path / "y.nca")
    for old, new in zip(before, again._provenance.structures(), strict=True):
        assert (old.uri, old.stamp, old.given, dict(old.attrs)) == (new.uri, new.stamp, new.given, dict(new.attrs))
        for one, other in zip(old.variables, new.variables, strict=True):
            assert (one.name, one.dtype, one.shape, one.dimensions) == (other.name, other.dtype, other.shape, other.dimensions)
            assert (one.values is None) == (other.values is None)
            if one.values is not None:
                np.testing.assert_array_equal(one.values, other.values)


@pytest.mark.parametrize(
    "changes",
    [
        {"lats": (10.0, 20.0, 31.0)},
        {"lats": (10.0, 20.0, 30.0000001)},
        {"lats": (30.0, 20.0, 10.0)},
        {"times": [1.0, 2.0]},
        {"times": [0.0, 1.0]},
        {"times": [0.5]},
        {"times": [2.25, 2.5]},
        {"time": (("time",), np.array([3.0, 4.0]), {"units": "days since 2001-01-01", "standard_name": "time"})},
    ],
)
def test_files_that_are_not_alike(changes: dict[str, Any], tmp_path: Path) -> None:
    """Overlaps, copies, other coordinates and units: the same as opening all files."""
    files = [write(tmp_path / f"{n}.nc", cube([2.0 * n, 2.0 * n + 1])) for n in range(3)]
    added = write(tmp_path / "added.nc", cube(changes.pop("times", [6.0, 7.0]), **changes))
    agg = save_and_open(aa.open(files), tmp_path / "x.nca").append(added)
    same(agg, aa.open([*files, added]))
    same(save_and_open(agg, tmp_path / "x.nca"), aa.open([*files, added]))


def test_memory_of_an_index_does_not_grow(tmp_path: Path) -> None:
    """Values that the files share are stored once, however often files are appended."""
    lats = np.linspace(-90, 90, 5000)
    sizes = []
    agg = save_and_open(aa.open(write(tmp_path / "0.nc", cube([0.0], lats=lats, lons=(0.0,)))), tmp_path / "x.nca")
    for day in range(1, 8):
        agg = agg.append(write(tmp_path / f"{day}.nc", cube([float(day)], lats=lats, lons=(0.0,))))
        agg = save_and_open(agg, tmp_path / "x.nca")
        sizes.append((tmp_path / "x.nca").stat().st_size)
    assert sizes[-1] - sizes[1] < 8192


FIXES = [
    aa.Fix(variable="tas", set={"units": "degC"}),
    aa.Fix(where={"source_id": "Y"}, shift_time=(12, "hours")),
    aa.Fix(where="Y/*.nc", variable="tas", rename="t2m"),
    aa.Fix(where={"title": "months"}, rename={"title": "heading"}),
    aa.Fix(where={"heading": "months"}, variable="lat", set={"long_name": "latitude"}),
]


def test_fixed_files_are_appended_without_the_others(tmp_path: Path, no_files: pytest.MonkeyPatch) -> None:
    first = [_month(tmp_path, start, model) for model in "XY" for start in (4, 12)]
    agg = save_and_open(aa.open(first, fixes=FIXES), tmp_path / "x.nca")
    for added in ([_month(tmp_path, 0)], [_month(tmp_path, 30, "Y"), _month(tmp_path, 40)]):
        agg, first = agg.append(added), first + added
        same(agg, aa.open(sorted(first), fixes=FIXES))
        agg = save_and_open(agg, tmp_path / "x.nca")
        same(agg, aa.open(sorted(first), fixes=FIXES))
    assert agg.names == ("t2m", "tas") or agg.names == ("tas", "t2m")
    no_files.undo()
    assert [p.kind for p in agg.check().problems if p.kind == "fix"] == []
    same(save_and_open(aa.open(tmp_path / "x.nca", fixes=None), tmp_path / "y.nca"), aa.open(sorted(first)))


@pytest.mark.parametrize("number", [*range(len(FIXES)), None])
def test_columns_name_the_variables_that_fixes_redefine(number: int | None, tmp_path: Path) -> None:
    files = [_month(tmp_path, start, model) for model in "XY" for start in (4, 12)]
    files.append(write(tmp_path / "Z.nc", {"g/tas": ((), 1.0, {"units": "K"}), **cube([50.0])}, {"source_id": "Y"}))
    fixes = FIXES if number is None else FIXES[number : number + 1]
    aa.open(files, fixes=fixes).save(tmp_path / "x.nca")
    provenance = aa.open(tmp_path / "x.nca")._provenance
    records = provenance.records()
    assert records is not None
    expected = redefined_variables(provenance.structures(), provenance.fixes)
    assert redefined_variables(records, provenance.fixes) == expected
    assert bool(expected) == (number in (0, 1, None))


@given(st.lists(st.tuples(st.lists(st.integers(0, 2), max_size=3), st.integers(0, 1)), max_size=12))
def test_equal_rows_are_one_kind(rows: list[tuple[list[int], int]]) -> None:
    numbers = np.array([n for row, _ in rows for n in row], np.int64)
    ends = np.cumsum([0, *(len(row) for row, _ in rows)])
    expected: dict[tuple[object, ...], list[int]] = {}
    for number, (row, other) in enumerate(rows):
        expected.setdefault((*row, "other", other), []).append(number)
    found = _equal_rows([(numbers, ends)], np.array([[other] for _, other in rows]).reshape(len(rows), 1))
    assert [own.tolist() for own in found] == list(expected.values())
