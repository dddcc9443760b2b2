"""`concat` joins arrays in the order given, conformed to the first."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import aggarray as aa
from tests.support.netcdf import LAT, TAS, cube, field, write

pytestmark = pytest.mark.quick

LATS, LONS = (10.0, 20.0, 30.0), (0.0, 5.0)


def plain(values: Any, dimensions: tuple[str, ...] = ("x",), **more: Any) -> aa.MasterArray:
    """Return an array in memory, without coordinates."""
    values = np.asarray(values)
    piece = aa.SubArray.from_array(values, dimensions=dimensions, **more)
    return aa.MasterArray.from_subarrays([([(0, n) for n in values.shape], piece)], dimensions=dimensions)


def opened(path: Path, times: Any, lats: Any = LATS, **changes: Any) -> aa.MasterArray:
    write(path, cube(times, lats, **changes))
    return aa.open(path)["tas"]


def test_order_given(tmp_path: Path) -> None:
    parts = [opened(tmp_path / f"{t}.nc", [t, t + 1]) for t in (4, 0, 2)]
    array = aa.concat(parts, "time")
    np.testing.assert_array_equal(array.coords["time"][...], [4, 5, 0, 1, 2, 3])
    np.testing.assert_array_equal(array[...], field([4, 5, 0, 1, 2, 3], LATS, LONS))
    np.testing.assert_array_equal(array.coords["lat"][...], LATS)
    assert array.pmshape == (3,) and array.name == "tas" and array.units == "K"


def test_a_new_dimension_leads(tmp_path: Path) -> None:
    parts = [opened(tmp_path / f"{n}.nc", [0, 1], tas=(("time", "lat", "lon"), np.full((2, 3, 2), n), TAS)) for n in range(3)]
    array = aa.concat(parts, "member")
    assert array.dimensions == ("member", "time", "lat", "lon")
    np.testing.assert_array_equal(array[:, 0, 0, 0], [0, 1, 2])
    np.testing.assert_array_equal(array.coords["time"][...], [0, 1])


def test_without_coordinates() -> None:
    array = aa.concat([plain([1, 2]), plain([3]), plain([], dimensions=("x",))], "x")
    np.testing.assert_array_equal(array[...], [1, 2, 3])
    assert array.coords == {}


def test_the_same_array_twice_and_alone() -> None:
    one = plain([1, 2])
    np.testing.assert_array_equal(aa.concat([one, one], "x")[...], [1, 2, 1, 2])
    np.testing.assert_array_equal(aa.concat([one], "x")[...], [1, 2])
    assert aa.concat([one], "member").shape == (1, 2)


def test_conformed_to_the_first(tmp_path: Path) -> None:
    first = opened(tmp_path / "a.nc", [0, 1])
    values = field([2, 3], LATS[::-1], LONS).transpose(2, 1, 0) - np.float32(273.15)
    other = opened(
        tmp_path / "b.nc",
        [2, 3],
        LATS[::-1],
        time=(("time",), np.array([0, 24], "i4"), {"standard_name": "time", "units": "hours since 2000-01-03"}),
        tas=(("lon", "lat", "time"), values, {**TAS, "units": "degC"}),
    )
    array = aa.concat([first, other], "time")
    assert array.dimensions == first.dimensions and array.directions == first.directions and array.units == "K"
    np.testing.assert_allclose(array[...], field(range(4), LATS, LONS), rtol=1e-6)
    np.testing.assert_array_equal(array.coords["time"][...], range(4))
    assert array.coords["time"].units == first.coords["time"].units


def test_dtypes_and_missing_values() -> None:
    parts = [plain(np.array([1, -9], "i2"), fill_value=-9), plain(np.array([-9, -5], "i4"), fill_value=-5)]
    array = aa.concat(parts, "x")
    assert array.dtype == np.int32 and array.fill_value == -9
    result = array.read(masked=True)
    np.testing.assert_array_equal(np.ma.getmaskarray(result), [False, True, False, True])
    np.testing.assert_array_equal(array[...], [1, -9, -9, -9])


def test_along_another_dimension_with_bounds(tmp_path: Path) -> None:
    def bounded(lats: list[float]) -> dict[str, Any]:
        pairs = np.stack([np.array(lats) - 5, np.array(lats) + 5], axis=-1)
        return {"lat": (("lat",), np.array(lats), {**LAT, "bounds": "lat_bnds"}), "lat_bnds": (("lat", "nv"), pairs)}

    parts = [opened(tmp_path / f"{n}.nc", [0], lats, **bounded(lats)) for n, lats in enumerate(([30.0, 40.0], [10.0, 20.0]))]
    array = aa.concat(parts, "lat")
    np.testing.assert_array_equal(array.coords["lat_bnds"][...], [[25, 35], [35, 45], [5, 15], [15, 25]])
    np.testing.assert_array_equal(array[0], field([0], [30.0, 40.0, 10.0, 20.0], LONS)[0])


def test_scalar_coordinates_that_differ_are_joined(tmp_path: Path) -> None:
    parts = []
    for height in (2.0, 10.0):
        made = cube([0], height=((), np.float64(height), {"standard_name": "height", "units": "m"}))
        made["tas"] = (*made["tas"][:2], {**TAS, "coordinates": "height"})
        write(tmp_path / f"{height}.nc", made)
        parts.append(aa.open(tmp_path / f"{height}.nc")["tas"])
    array = aa.concat(parts, "height")
    assert array.dimensions[0] == "height" and array.shape == (2, 1, 3, 2)
    np.testing.assert_array_equal(array.coords["height"][...], [2, 10])


def test_joins_can_be_joined(tmp_path: Path) -> None:
    parts = [opened(tmp_path / f"{t}.nc", [t]) for t in range(4)]
    array = aa.concat([aa.concat(parts[:2], "time"), aa.concat(parts[2:], "time")], "time")
    np.testing.assert_array_equal(array[...], field(range(4), LATS, LONS))
    assert array.pmshape == (4,)


MISFITS: list[tuple[Any, Any, str]] = [
    (lambda: plain(np.zeros((2, 3)), ("x", "y")), lambda: plain(np.zeros((2, 4)), ("x", "y")), "'y' has size 3 and 4"),
    (lambda: plain(np.zeros((2, 3)), ("x", "y")), lambda: plain(np.zeros(2), ("x",)), "dimensions"),
    (lambda: plain([1.0], units="K"), lambda: plain([1.0], units="m"), "'K'|K and m|m and K"),
    (lambda: plain([1.0]), lambda: plain(np.array(["a"], np.dtypes.StringDType())), "no common data type"),
]


@pytest.mark.parametrize(("one", "other", "text"), MISFITS)
def test_arrays_that_do_not_fit(one: Any, other: Any, text: str) -> None:
    with pytest.raises(aa.AggregationError, match=text) as caught:
        aa.concat([one(), other()], "x")
    assert "\n" not in str(caught.value)


def test_coordinates_that_differ(tmp_path: Path) -> None:
    parts = [opened(tmp_path / "a.nc", [0]), opened(tmp_path / "b.nc", [1], [10.0, 20.5, 30.0])]
    with pytest.raises(aa.AggregationError, match=r"lat.*20 and 20\.5"):
        aa.concat(parts, "time")


def test_calendars_that_differ(tmp_path: Path) -> None:
    def dated(name: str, calendar: str) -> aa.MasterArray:
        attrs = {"standard_name": "time", "units": "days since 2000-01-01", "calendar": calendar}
        return opened(tmp_path / f"{name}.nc", [0], time=(("time",), np.array([0.0]), attrs))

    with pytest.raises(aa.AggregationError, match=r"calendar|noleap"):
        aa.concat([dated("a", "standard"), dated("b", "noleap")], "time")


def test_no_arrays() -> None:
    with pytest.raises(aa.AggregationError, match="no arrays"):
        aa.concat([], "x")
    with pytest.raises((aa.AggregationError, TypeError)):
        aa.concat([np.zeros(3)], "x")  # type: ignore[list-item]


@given(data=st.data())
def test_as_numpy_does(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=6))
    kinds = data.draw(st.lists(st.sampled_from(["i1", "u2", "i4", "f4", "f8"]), min_size=len(sizes), max_size=len(sizes)))
    axis = data.draw(st.integers(0, 1))
    names = ("x", "y")
    parts, arrays = [], []
    for n, kind in zip(sizes, kinds, strict=True):
        shape = (n, 3) if axis == 0 else (3, n)
        values = data.draw(st.lists(st.integers(0, 100), min_size=3 * n, max_size=3 * n))
        part = np.array(values, kind).reshape(shape)
        turned = data.draw(st.booleans())
        parts.append(part)
        arrays.append(plain(part.T if turned else part, names[::-1] if turned else names))
    array = aa.concat(arrays, names[axis]).transpose(*names)
    expected = np.concatenate(parts, axis=axis)
    np.testing.assert_array_equal(array[...], expected)
    assert array.dtype == expected.dtype


def test_directions_without_coordinates() -> None:
    """Arrays are reversed to the first's direction, but along the join."""
    values = np.arange(6.0).reshape(2, 3)

    def made(forward: bool, block: np.ndarray) -> aa.MasterArray:
        piece = aa.SubArray.from_array(block, dimensions=("y", "x"), directions=(forward, forward))
        location = [(0, n) for n in block.shape]
        return aa.MasterArray.from_subarrays([(location, piece)], dimensions=("y", "x"), directions=(forward, forward))

    down = made(False, values)
    same, turned = aa.concat([down, down], "y"), aa.concat([down, made(True, values)], "y")
    assert same.directions == turned.directions == (False, False)
    np.testing.assert_array_equal(same[...], np.concatenate([values, values]))
    np.testing.assert_array_equal(turned[...], np.concatenate([values, values[:, ::-1]]))
    np.testing.assert_array_equal(aa.concat([down, made(True, values)], "new")[1], values[::-1, ::-1])
