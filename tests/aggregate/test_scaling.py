"""The work of joining is linear in the number of arrays, by call counts."""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import aggarray as aa
from aggarray.aggregate import duplicates, group, runs
from aggarray.aggregate.candidate import AxisCoordinate
from aggarray.aggregate.stages import aggregate
from aggarray.aggregate.view import View
from aggarray.memory.selection import Range
from tests.support.netcdf import TIME, check, cube, one_array, write

pytestmark = pytest.mark.quick

RULES = aa.Rules()


def line(times: Sequence[float], values: Any = None) -> aa.MasterArray:
    """Return an array in memory along time; its values are its times."""
    at = np.asarray(times, "f8")

    def made(name: str, found: Any, **described: Any) -> aa.MasterArray:
        piece = aa.SubArray.from_array(np.asarray(found, "f8"), dimensions=("time",), **described)
        return aa.MasterArray.from_subarrays([([(0, len(at))], piece)], dimensions=("time",), name=name)

    time = replace(made("time", at, units=TIME["units"], calendar="standard"), attrs={"standard_name": "time"})
    return replace(made("tas", at if values is None else values), coords={"time": time})


def counted(monkeypatch: pytest.MonkeyPatch, where: Any, name: str) -> list[int]:
    """Count the calls of a function in the only element of a list."""
    calls, real = [0], getattr(where, name)

    def counting(*arguments: Any, **named: Any) -> Any:
        calls[0] += 1
        return real(*arguments, **named)

    monkeypatch.setattr(where, name, counting)
    return calls


def shared_step(n: int) -> list[list[float]]:
    """Return days; each has the first step of the next as well."""
    return [[i, i + 1] for i in range(n)]


def sliding(n: int) -> list[list[float]]:
    """Return forecasts of ten steps, one each step."""
    return [list(range(i, i + 10)) for i in range(n)]


def growing(n: int) -> list[list[float]]:
    """Return states of a file that grows."""
    return [list(range(i + 1)) for i in range(n)]


@pytest.mark.parametrize(("times", "joined"), [(shared_step, 2), (sliding, 10), (growing, 60)])
def test_overlaps_are_decided_at_once(
    times: Callable[[int], list[list[float]]], joined: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each array is examined twice: with all others, and with its group.

    Each separate result has a refusal.
    """
    found = [line(t) for t in times(60)]
    views, values = counted(monkeypatch, View, "__init__"), counted(monkeypatch, AxisCoordinate, "values")
    outcome = aggregate(found, RULES)
    assert len(outcome.arrays) == joined
    assert [r.rule for r in outcome.refusals] == ["overlap"] * (joined - 1)
    assert views[0] <= joined + 2
    assert values[0] <= 2 * 60 + 2 * joined


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 5)), min_size=2, max_size=8, unique=True))
@example([(0, 4), (1, 2), (2, 6), (3, 1), (6, 2)])
def test_rounds_equal_successive_overlaps(spans: list[tuple[int, int]]) -> None:
    """The rounds equal those of removing one overlap after the other."""
    result = [line(range(start, start + size), np.arange(size) + 100.0 * n) for n, (start, size) in enumerate(spans)]
    once = aggregate(result, RULES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(group, "_deciding_axis", lambda view: None)
        again = aggregate(result, RULES)
    assert [a.shape for a in once.arrays] == [a.shape for a in again.arrays]
    for a, b in zip(once.arrays, again.arrays, strict=True):
        np.testing.assert_array_equal(a[...], b[...])
        np.testing.assert_array_equal(a.coords["time"][...], b.coords["time"][...])
    assert [r.rule for r in once.refusals] == [r.rule for r in again.refusals]


def test_interleaved_arrays_are_examined_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each array is examined once, independent of the number of its runs."""
    result = [line(range(0, 200, 2)), line(range(199, 0, -2))]
    select, chosen = (counted(monkeypatch, aa.MasterArray, name) for name in ("_selected", "_chosen"))
    outcome = aggregate(result, RULES)
    assert select == chosen == [0]
    assert len(outcome.arrays) == 1 and not outcome.refusals
    assert outcome.arrays[0].pmshape == (200,)
    np.testing.assert_array_equal(outcome.arrays[0][...], np.arange(200.0))


@given(st.data())
def test_range_selector_equals_lazy_selection(data: st.DataObject) -> None:
    """Also after selections, and turned round."""
    array = line(range(20))
    array = data.draw(st.sampled_from([array, array.flip(), array.lazy[3:17:2], array.lazy[15::-3], array.lazy[[1, 2, 4, 9]]]))
    stop = data.draw(st.integers(1, array.shape[0]))
    start = data.draw(st.integers(0, stop - 1))
    wanted = {"time": Range(start, stop - start)}
    result = runs._range_selector(array, ["time"])(wanted, {})
    expected = array._selected(wanted)
    assert result.shape == expected.shape and result.directions == expected.directions
    np.testing.assert_array_equal(result[...], expected[...])
    np.testing.assert_array_equal(result[...], array[...][start:stop])


def test_interleaved_where_one_has_an_idle_dimension(tmp_path: Path) -> None:
    """A dimension of size 1 in only one array does not prevent the join."""
    for name, times, extra in (("a", [0, 2], ()), ("b", [1, 3], ("idle",))):
        values = np.asarray(times, "f8").reshape(2, *[1] * len(extra))
        time = (("time",), np.asarray(times, "f8"), TIME)
        write(tmp_path / f"{name}.nc", {"time": time, "ta": (("time", *extra), values, {"units": "K"})})
    np.testing.assert_array_equal(one_array(aa.open(tmp_path), "ta")[...], np.arange(4))


def test_interleaved_in_two_dimensions(tmp_path: Path) -> None:
    """Times and levels interleave, one of them downwards."""
    level = {"standard_name": "air_pressure", "units": "hPa"}
    for name, times, levels in (
        ("a", [0, 2], [900, 500]),
        ("b", [1, 3], [900, 500]),
        ("c", [0, 2], [700]),
        ("d", [1, 3], [700]),
    ):
        values = np.add.outer(np.asarray(times) * 1000.0, levels)
        made = {"time": (("time",), np.asarray(times, "f8"), TIME), "lev": (("lev",), np.asarray(levels, "f8"), level)}
        write(tmp_path / f"{name}.nc", {**made, "ta": (("time", "lev"), values, {"units": "K"})})
    array = one_array(aa.open(tmp_path), "ta")
    np.testing.assert_array_equal(array.coords["lev"][...], [900, 700, 500])
    np.testing.assert_array_equal(array[...], np.add.outer(np.arange(4) * 1000.0, [900, 700, 500]))


def _static(folder: Path, n: int, changed: int | None = None) -> None:
    """Write files of one step each with the same mask, but in one file."""
    for i in range(n):
        mask = np.arange(24.0).reshape(6, 4)
        mask[4, 2] += 1 if i == changed else 0
        write(folder / f"{i}.nc", cube([i], mask=(("y", "x"), mask, {"units": "1"})))


def test_duplicates_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The array that is kept is not read again for every repeat."""
    _static(tmp_path, 8)
    reads = counted(monkeypatch, aa.MasterArray, "read")
    agg = aa.open(tmp_path)
    assert reads == [8]
    assert len(agg["mask"]._matrix.references.uris) == 1 and len(agg.duplicates) == 7
    check(agg["tas"], range(8))


def test_arrays_are_read_up_to_their_difference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrays are read in small blocks up to their first difference."""
    _static(tmp_path, 4, changed=2)
    monkeypatch.setattr(duplicates, "BLOCK", 3)
    reads = counted(monkeypatch, aa.MasterArray, "read")
    agg = aa.open(tmp_path)
    assert len(agg.select("mask")) == 2 and len(agg.duplicates) == 2
    assert [r.rule for r in agg.refusals] == ["overlap"]
    # Six rows in two blocks each; the difference is in the last element of a row's first block.
    assert reads == [12 * 3 + 9]


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_one_file_under_two_names_is_not_read(
    link: Callable[[Path, Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A link to a file, symbolic or hard, repeats it."""
    write(tmp_path / "a.nc", cube([0, 1]))
    link(tmp_path / "a.nc", tmp_path / "b.nc")
    reads = counted(monkeypatch, aa.MasterArray, "read")
    agg = aa.open(tmp_path)
    assert reads == [0]
    assert [Path(d.file).name for d in agg.duplicates] == ["b.nc"]
    check(one_array(agg), [0, 1])


def test_many_different_arrays_at_one_position(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is compared by its first block, and the copy among them found."""
    for i in range(12):
        write(
            tmp_path / f"{i:02}.nc", cube([0], tas=(("time", "lat", "lon"), np.full((1, 3, 2), min(i, 10.0)), {"units": "K"}))
        )
    reads = counted(monkeypatch, aa.MasterArray, "read")
    agg = aa.open(tmp_path, rules=aa.Rules(overlap="first"))
    assert reads == [12]
    assert [(Path(d.file).name, Path(d.kept).name) for d in agg.duplicates] == [("11.nc", "10.nc")]


#: What rounding makes equal in one dtype and not in another.
NUMBERS = [*(0, 1, -1, 2**24 + 1, 2**53, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1, -(2**63)), *(-0.0, 0.5, 0.1, 1e300, np.nan)]
DTYPES = ["i1", "u1", "i4", "i8", "u8", "f2", "f4", "f8", "?"]


def held(numbers: Sequence[float], dtype: str) -> np.ndarray:
    """Return numbers as a dtype holds them: those that it cannot hold are 1."""
    kind = np.dtype(dtype).kind
    if kind == "f":
        with np.errstate(over="ignore"):
            return np.array([float(n) for n in numbers]).astype(dtype)
    limits = (0, 1) if kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    whole = [isinstance(n, int) and limits[0] <= n <= limits[1] for n in numbers]
    return np.array([n if fits else 1 for n, fits in zip(numbers, whole, strict=True)], dtype)


@given(st.lists(st.sampled_from(NUMBERS), max_size=2), st.lists(st.sampled_from(NUMBERS), max_size=2), st.data())
def test_digests_are_equal_where_values_are(x: list[float], y: list[float], data: st.DataObject) -> None:
    """Python compares integers and floats exactly; the dtype does not matter."""
    y = data.draw(st.sampled_from([x, y]))
    a, b = (held(numbers, data.draw(st.sampled_from(DTYPES))) for numbers in (x, y))
    if len(a) == len(b):
        equal = all(p == q or (p != p and q != q) for p, q in zip(a.tolist(), b.tolist(), strict=True))
        assert (duplicates.digest(np.ma.asarray(a)) == duplicates.digest(np.ma.asarray(b))) == equal


@pytest.mark.parametrize(
    ("a", "b", "equal"),
    [
        (np.ma.array([1, 2], mask=[False, True]), np.ma.array([1.0, 9.0], mask=[False, True]), True),
        (np.ma.array([1, 1], mask=[False, True]), np.ma.array([1, 1], mask=[True, False]), False),
        (np.ma.array([1, 2], mask=[False, False]), np.ma.array([1, 2]), True),
        (np.ma.array([1 + 2j, -0.0]), np.ma.array([1 + 2j, 0.0]), True),
        (np.ma.array([1 + 2j]), np.ma.array([2 + 1j]), False),
        (np.ma.array(["a", "bc"]), np.ma.array(["ab", "c"]), False),
    ],
)
def test_digests_of_masked_and_other_values(a: Any, b: Any, equal: bool) -> None:
    """What lies under a mask does not count, where it lies does."""
    assert (duplicates.digest(a) == duplicates.digest(b)) == equal


@given(st.lists(st.integers(0, 6), max_size=4).map(tuple))
def test_blocks_cover_an_array_once(shape: tuple[int, ...]) -> None:
    """Blocks are within the maximum size and in the order of the elements."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(duplicates, "BLOCK", 5)
        numbers = np.arange(int(np.prod(shape))).reshape(shape)
        blocks = [numbers[key].ravel() for key in duplicates._keys(shape)]
    assert all(b.size <= 6 for b in blocks)
    assert np.concatenate([*blocks, np.zeros(0, int)]).tolist() == numbers.ravel().tolist()
