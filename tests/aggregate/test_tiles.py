"""Join of tiles along several dimensions at once, against NumPy."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import aggarray as aa
from tests.support.netcdf import TAS, check, cube, field, one_array, write

pytestmark = pytest.mark.quick


def tiles(folder: Path, cuts: Any, lats: Any, lons: Any, leave: Any = (), step: float = 0) -> None:
    """Write the rectangles ``cuts`` of one matrix, except those in ``leave``.

    Each is ((y0, y1), (x0, x1)).
    """
    for number, ((y0, y1), (x0, x1)) in enumerate(cuts):
        if number not in leave:
            write(folder / f"{number}.nc", cube([step], lats[y0:y1], lons[x0:x1]))


LATS, LONS = np.arange(4) * 10.0, np.arange(6) * 5.0
QUARTERS = [((0, 2), (0, 3)), ((0, 2), (3, 6)), ((2, 4), (0, 3)), ((2, 4), (3, 6))]


def test_misaligned_tiles(tmp_path: Path) -> None:
    tiles(tmp_path, [((0, 2), (0, 4)), ((0, 1), (4, 6)), ((1, 4), (4, 6)), ((2, 4), (0, 1)), ((2, 4), (1, 4))], LATS, LONS)
    array = one_array(aa.open(tmp_path))
    check(array, [0], LATS, LONS)
    assert set(array.pmdimensions) == {"lat", "lon"}


def test_a_hole_is_missing(tmp_path: Path) -> None:
    tiles(tmp_path, QUARTERS, LATS, LONS, leave=[2])
    array = one_array(aa.open(tmp_path))
    expected = field([0], LATS, LONS)
    expected[:, 2:, :3] = np.nan
    np.testing.assert_array_equal(array[...], expected)
    np.testing.assert_array_equal(array.coords["lat"][...], LATS)
    np.testing.assert_array_equal(array.coords["lon"][...], LONS)


@pytest.mark.parametrize(("coverage", "joined"), [(0.74, True), (0.75, False), (0.76, False)])
def test_coverage_must_be_more(tmp_path: Path, coverage: float, joined: bool) -> None:
    tiles(tmp_path, QUARTERS, LATS, LONS, leave=[2])
    agg = aa.open(tmp_path, rules=aa.Rules(coverage=coverage))
    assert (len(agg) == 1) is joined
    if not joined:
        assert agg.refusals[0].rule == "coverage" and "75%" in agg.refusals[0].reason
        # Nothing is lost: what can be joined without holes is.
        assert sum(a.size for a in agg) == 3 * 6 and len(agg) == 2


def test_two_corner_tiles_are_not_joined(tmp_path: Path) -> None:
    tiles(tmp_path, QUARTERS, LATS, LONS, leave=[1, 2])
    agg = aa.open(tmp_path)
    assert len(agg) == 2 and [r.rule for r in agg.refusals] == ["coverage"]
    for array, ((y0, y1), (x0, x1)) in zip(agg, (QUARTERS[0], QUARTERS[3]), strict=True):
        check(array, [0], LATS[y0:y1], LONS[x0:x1])


def test_holes_refused(tmp_path: Path) -> None:
    tiles(tmp_path, QUARTERS, LATS, LONS, leave=[2])
    agg = aa.open(tmp_path, rules=aa.Rules(holes="refuse"))
    assert [r.rule for r in agg.refusals] == ["coverage"] and len(agg) == 2


def test_two_dimensional_coordinates_of_tiles_are_joined(tmp_path: Path) -> None:
    whole = np.add.outer(LATS, LONS / 100)
    for number, ((y0, y1), (x0, x1)) in enumerate(QUARTERS):
        made = cube([0], LATS[y0:y1], LONS[x0:x1], area=(("lat", "lon"), whole[y0:y1, x0:x1], {"units": "m2"}))
        made["tas"] = (*made["tas"][:2], {**TAS, "cell_measures": "area: area"})
        write(tmp_path / f"{number}.nc", made)
    array = one_array(aa.open(tmp_path))
    np.testing.assert_array_equal(array.coords["area"][...], whole)


@st.composite
def tilings(draw: st.DrawFn) -> tuple[list[tuple[tuple[int, int], ...]], tuple[int, int, int]]:
    """Draw a division of a (time, lat, lon) box by recursive cuts."""
    shape = (draw(st.integers(1, 5)), draw(st.integers(2, 6)), draw(st.integers(2, 6)))
    boxes = [tuple((0, n) for n in shape)]
    for _ in range(draw(st.integers(0, 5))):
        number = draw(st.integers(0, len(boxes) - 1))
        box = boxes[number]
        axis = draw(st.integers(0, 2))
        low, high = box[axis]
        if high - low > 1:
            cut = draw(st.integers(low + 1, high - 1))
            boxes[number] = (*box[:axis], (low, cut), *box[axis + 1 :])
            boxes.append((*box[:axis], (cut, high), *box[axis + 1 :]))
    return boxes, shape


@given(data=st.data())
def test_any_tiling_in_any_order(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    boxes, shape = data.draw(tilings())
    folder = tmp_path_factory.mktemp("tiling")
    times, lats, lons = (np.cumsum(data.draw(st.lists(st.integers(1, 9), min_size=n, max_size=n))) * 1.0 for n in shape)
    names = data.draw(st.permutations(range(len(boxes))))
    flips = data.draw(st.lists(st.booleans(), min_size=len(boxes), max_size=len(boxes)))
    orders = data.draw(st.lists(st.permutations(["time", "lat", "lon"]), min_size=len(boxes), max_size=len(boxes)))
    for box, name, flip, order in zip(boxes, names, flips, orders, strict=True):
        t, y, x = (c[low:high] for c, (low, high) in zip((times, lats, lons), box, strict=True))
        made = cube(t, y[::-1] if flip else y, x)
        axes = [("time", "lat", "lon").index(d) for d in order]
        made["tas"] = (tuple(order), made["tas"][1].transpose(axes), TAS)
        write(folder / f"{name}.nc", made, format=data.draw(st.sampled_from(["NETCDF4", "NETCDF3_CLASSIC"])))
    array = one_array(aa.open(folder))
    lats = lats if array.directions[array.dimensions.index("lat")] else lats[::-1]
    expected = field(times, lats, lons).transpose([("time", "lat", "lon").index(d) for d in array.dimensions])
    np.testing.assert_array_equal(array[...], expected)
    for name, values in (("time", times), ("lat", lats), ("lon", lons)):
        np.testing.assert_array_equal(array.coords[name][...], values)


@given(data=st.data())
def test_any_selection_of_tiles(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Each value is at its own coordinates, with tiles omitted and repeated.

    Other values are missing; duplicates serve once.
    """
    boxes, shape = data.draw(tilings())
    folder = tmp_path_factory.mktemp("selection")
    coordinates = [np.arange(n) * 10.0 for n in shape]
    chosen = data.draw(st.lists(st.sampled_from(range(len(boxes))), min_size=1, max_size=6))
    for number, box in enumerate(chosen):
        write(folder / f"{number}.nc", cube(*(c[low:high] for c, (low, high) in zip(coordinates, boxes[box], strict=True))))
    agg = aa.open(folder)
    result = []
    for array in agg:
        values = array[...]
        expected = field(*(array.coords[d][...] for d in ("time", "lat", "lon")))
        here = ~np.isnan(values)
        np.testing.assert_array_equal(values[here], expected[here])
        result += sorted(values[here].tolist())
    once = dict.fromkeys(chosen)
    written = [v for b in once for v in field(*(c[a:z] for c, (a, z) in zip(coordinates, boxes[b], strict=True))).ravel()]
    assert len(agg.duplicates) == len(chosen) - len(once)
    assert sorted(result) == sorted(float(v) for v in written)
    assert (len(agg) == 1) == (not agg.refusals)
