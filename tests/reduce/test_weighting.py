"""Weights: areas on the sphere, lengths of times, arrays."""

from typing import Any

import numpy as np
import pytest
import xarray as xr

from aggarray import MasterArray
from aggarray.errors import NotFoundError, SelectionError
from aggarray.reduce.cell_areas import RADIUS
from aggarray.reduce.weighting import weight_units, weights_of
from tests.reduce.arrays import LATITUDE, LONGITUDE, array, series

pytestmark = pytest.mark.quick

SPHERE = 4 * np.pi * RADIUS**2


def grid(
    latitudes: Any, longitudes: Any, lat_bounds: Any = None, lon_bounds: Any = None, units: str | None = None, **attrs: Any
) -> MasterArray:
    """Return an array over latitudes and longitudes; ``units``: of the bounds."""
    coords: dict[str, Any] = {}
    each = (("lat", latitudes, lat_bounds, LATITUDE), ("lon", longitudes, lon_bounds, LONGITUDE))
    for name, values, bounds, own in each:
        coords[name] = ((name,), np.asarray(values, float), {**own, **({} if bounds is None else {"bounds": f"{name}_bnds"})})
        if bounds is not None:
            coords[f"{name}_bnds"] = ((name, "bnds"), np.asarray(bounds, float), {"units": units or own["units"]})
    return array(np.zeros((len(latitudes), len(longitudes))), ("lat", "lon"), coords, {"units": "K", **attrs})


def weights(a: MasterArray, dims: Any, given: Any) -> np.ndarray:
    """Return the outer product of the factors over ``dims``."""
    factors = weights_of(a, dims, given)
    assert factors is not None
    total = np.ones((1,) * len(dims))
    for names, values in factors:
        order = [dims.index(n) for n in names]
        shape = [1] * len(dims)
        for axis, size in zip(order, values.shape, strict=True):
            shape[axis] = size
        total = total * values.transpose(np.argsort(order)).reshape(shape)
    return np.broadcast_to(total, tuple(a.sizes[d] for d in dims))


def pairs(edges: Any) -> np.ndarray:
    return np.stack([edges[:-1], edges[1:]], axis=1)


LATITUDES, LONGITUDES = np.linspace(-90, 90, 7), np.linspace(0, 360, 9)
CENTRES = (LATITUDES[1:] + LATITUDES[:-1]) / 2, (LONGITUDES[1:] + LONGITUDES[:-1]) / 2
EXACT = np.diff(np.sin(np.radians(LATITUDES)))[:, None] * np.diff(np.radians(LONGITUDES))[None] * RADIUS**2


@pytest.mark.parametrize("with_bounds", [True, False])
@pytest.mark.parametrize("decreasing", [False, True])
def test_areas_of_a_regular_grid(with_bounds: bool, decreasing: bool) -> None:
    turn = slice(None, None, -1 if decreasing else 1)
    bounds = (pairs(LATITUDES)[turn], pairs(LONGITUDES)) if with_bounds else (None, None)
    a = grid(CENTRES[0][turn], CENTRES[1], *bounds)
    np.testing.assert_allclose(weights(a, ("lat", "lon"), "area"), EXACT[turn], rtol=1e-12)
    assert weights(a, ("lat", "lon"), "area").sum() == pytest.approx(SPHERE, rel=1e-12)
    factors = weights_of(a, ("lat", "lon"), "area")
    assert factors is not None and [names for names, _ in factors] == [("lat",)]  # equal longitudes need no factor


def test_bounds_in_either_order_and_in_radians() -> None:
    a = grid(*CENTRES, pairs(LATITUDES)[:, ::-1], pairs(LONGITUDES)[:, ::-1])
    np.testing.assert_allclose(weights(a, ("lat", "lon"), "area"), EXACT, rtol=1e-12)
    a = grid(*CENTRES, np.radians(pairs(LATITUDES)), np.radians(pairs(LONGITUDES)), units="radian")
    np.testing.assert_allclose(weights(a, ("lat", "lon"), "area"), EXACT, rtol=1e-12)


def test_latitudes_at_the_poles_have_half_cells() -> None:
    a = grid([90, 45, 0, -45, -90], [0.0])
    expected = -np.diff(np.sin(np.radians([90, 67.5, 22.5, -22.5, -67.5, -90])))
    np.testing.assert_allclose(weights(a, ("lat",), "area"), expected * RADIUS, rtol=1e-12)


def test_latitudes_alone_and_longitudes_alone() -> None:
    a = grid(*CENTRES, pairs(LATITUDES), pairs(LONGITUDES))
    np.testing.assert_allclose(weights(a, ("lat",), "area"), np.diff(np.sin(np.radians(LATITUDES))) * RADIUS, rtol=1e-12)
    np.testing.assert_allclose(weights(a, ("lon",), "area"), np.full(8, np.pi / 4 * RADIUS), rtol=1e-12)
    assert weight_units(a, ("lat",), "area") == "m" and weight_units(a, ("lat", "lon"), "area") == "m2"


@pytest.mark.parametrize(
    ("centres", "bounds", "widths"),
    [
        ([0, 1, 359], [[359.5, 0.5], [0.5, 1.5], [358.5, 359.5]], [1, 1, 1]),
        ([0, 1, 359], [[-0.5, 0.5], [0.5, 1.5], [358.5, 359.5]], [1, 1, 1]),
        ([358, 359, 0, 2], None, [1, 1, 1.5, 2]),
        ([179, -179, -175], [[178, 180], [180, -178], [-178, -172]], [2, 2, 6]),
        ([180], [[0, 360]], [360]),
        ([0], None, [360]),
        ([125], [[-10, 260]], [270]),
        ([20, 10, 5], [[25, 15], [15, 7.5], [7.5, 2.5]], [10, 7.5, 5]),
    ],
)
def test_cyclic_longitudes(centres: list[float], bounds: Any, widths: list[float]) -> None:
    a = grid([0.0], centres, None, bounds)
    np.testing.assert_allclose(weights(a, ("lon",), "area"), np.radians(widths) * RADIUS, rtol=1e-12)


def test_irregular_longitudes_have_a_factor() -> None:
    edges = np.array([0, 10, 30, 60, 100, 360])
    a = grid(CENTRES[0], (edges[1:] + edges[:-1]) / 2, pairs(LATITUDES), pairs(edges))
    expected = np.diff(np.sin(np.radians(LATITUDES)))[:, None] * np.diff(np.radians(edges)) * RADIUS**2
    np.testing.assert_allclose(weights(a, ("lat", "lon"), "area"), expected, rtol=1e-12)


def test_cell_measures_come_first() -> None:
    areas = np.ma.array(np.arange(48.0).reshape(6, 8), mask=np.eye(6, 8, dtype=bool))
    a = grid(*CENTRES, cell_measures="area: areacella")
    own = array(areas.filled(np.nan), ("lat", "lon"), {}, {"units": "km2"}, name="areacella")
    from dataclasses import replace

    with_areas = replace(a, coords={**a.coords, "areacella": own})
    np.testing.assert_allclose(weights(with_areas, ("lat", "lon"), "area"), areas.filled(0) * 1e6)
    factors = weights_of(with_areas, ("lat",), "area")
    assert factors is not None and factors[0][0] == ("lat", "lon")  # the areas differ along longitudes
    # A measure that is not among the coordinates cannot be used.
    np.testing.assert_allclose(weights(a, ("lat", "lon"), "area"), EXACT, rtol=1e-12)


def curvilinear(with_bounds: bool) -> MasterArray:
    lat, lon = np.meshgrid(*CENTRES, indexing="ij")
    low, east = np.meshgrid(LATITUDES, LONGITUDES, indexing="ij")

    def corners(v: np.ndarray) -> np.ndarray:
        return np.stack([v[:-1, :-1], v[:-1, 1:], v[1:, 1:], v[1:, :-1]], axis=-1)

    names = {"bounds": "lat_bnds"}, {"bounds": "lon_bnds"}
    coords: dict[str, Any] = {
        "lat": (("j", "i"), lat, {**LATITUDE, **(names[0] if with_bounds else {})}),
        "lon": (("j", "i"), lon, {**LONGITUDE, **(names[1] if with_bounds else {})}),
    }
    if with_bounds:
        coords["lat_bnds"] = ("j", "i", "v"), corners(low), {}
        coords["lon_bnds"] = ("j", "i", "v"), corners(east), {}
    return array(np.zeros((6, 8)), ("j", "i"), coords)


def test_cells_of_a_curvilinear_grid() -> None:
    found = weights(curvilinear(True), ("j", "i"), "area")
    assert found.sum() == pytest.approx(SPHERE, rel=1e-12)
    np.testing.assert_allclose(found, EXACT, rtol=0.2)  # edges are arcs of great circles, not parallels
    with pytest.raises(SelectionError, match=r"needs cell areas, or bounds of lat and lon, along 'j', 'i'.*give an array"):
        weights_of(curvilinear(False), ("j", "i"), "area")


def test_no_horizontal_dimension() -> None:
    with pytest.raises(SelectionError, match="'area' without latitudes or longitudes along 'time'"):
        weights_of(series([0.0, 1.0]), ("time",), "area")
    coords = {"x": (("x",), [0.0], {}), "lat": (("lat",), [0.0], LATITUDE)}
    with pytest.raises(SelectionError, match=r"along 'x'.*reduce some of lat, or"):
        weights_of(array(np.zeros((1, 1)), ("x", "lat"), coords), ("x",), "area")


def test_radius_of_the_grid_mapping() -> None:
    from dataclasses import replace

    mapping = array(np.int32(0), (), {}, {"grid_mapping_name": "latitude_longitude", "earth_radius": 1000.0}, name="crs")
    a = grid(*CENTRES)
    found = weights(replace(a, coords={**a.coords, "crs": mapping}), ("lat", "lon"), "area")
    assert found.sum() == pytest.approx(4 * np.pi * 1000.0**2)


@pytest.mark.parametrize("calendar", ["standard", "noleap", "360_day"])
def test_lengths_of_months(calendar: str) -> None:
    expected = xr.date_range("2000-01", periods=26, freq="MS", calendar=calendar, use_cftime=True)
    starts = np.array([(t - expected[0]).days for t in expected], float)
    days = np.diff(starts)
    a = series(starts[:-1] + 14, calendar=calendar)
    assert weights(a, ("time",), "time").tolist() == (days * 86400).tolist()
    with_bounds = series(starts[:-1], calendar=calendar, bounds=pairs(starts))
    assert weights(with_bounds, ("time",), "time").tolist() == (days * 86400).tolist()
    assert weight_units(a, ("time",), "time") == "s"


def test_lengths_of_other_steps() -> None:
    assert weights(series(np.arange(5) / 4), ("time",), "time").tolist() == [21600.0] * 5
    instants = np.arange(5.0)
    a = series(instants, bounds=np.stack([instants, instants], axis=1))
    assert weights(a, ("time",), "time").tolist() == [86400.0] * 5
    years = series([182.0, 548.0, 913.0])
    assert weights(years, ("time",), "time").tolist() == [366 * 86400.0, 365 * 86400.0, 365 * 86400.0]
    assert weights(series([45.0], frequency="mon"), ("time",), "time").tolist() == [29 * 86400.0]
    assert weights(series([0.0, np.nan, 1.0, 2.0]), ("time",), "time").tolist() == [86400.0, 0.0, 86400.0, 86400.0]
    for times in ([0.0, 1.0, 5.5, 9.1], [0.0, 91.0, 182.0, 274.0]):  # irregular; quarters, whose months are unknown
        with pytest.raises(SelectionError, match="'time' has no bounds, and no step"):
            weights_of(series(times), ("time",), "time")
    with pytest.raises(SelectionError, match="without a time dimension"):
        weights_of(grid([0.0], [0.0]), ("lat",), "time")


def test_arrays() -> None:
    a = grid(*CENTRES)
    given = np.arange(48.0).reshape(6, 8)
    assert weights(a, ("lat", "lon"), given).tolist() == given.tolist()
    assert weights(a, ("lat", "lon"), given.tolist()).tolist() == given.tolist()
    named = array(given.T, ("lon", "lat"), {n: (c.dimensions, c[:], {"units": c.units}) for n, c in a.coords.items()})
    assert weights(a, ("lat", "lon"), named).tolist() == given.tolist()
    assert weights(a, ("lat", "lon"), xr.DataArray(given.T, dims=("lon", "lat"))).tolist() == given.tolist()
    one = np.arange(6) % 2
    assert weights(a, ("lat", "lon"), {"lat": one}).tolist() == np.broadcast_to(one[:, None], (6, 8)).tolist()
    assert weights_of(a, ("lat", "lon"), None) is None
    assert weight_units(a, ("lat", "lon"), given) is None


def test_an_array_of_cell_areas() -> None:
    a = grid(*CENTRES)
    areas = np.arange(48.0).reshape(6, 8)
    areas[2, 3] = np.nan
    own = array(areas, ("lat", "lon"), {}, {"units": "km2", "standard_name": "cell_area"})
    assert weights(a, ("lat", "lon"), own).tolist() == (np.nan_to_num(areas) * 1e6).tolist()
    assert weight_units(a, ("lat", "lon"), own) == "m2"
    other = array(areas, ("lat", "lon"), {}, {"units": "km2"})
    with pytest.raises(SelectionError, match="a weight is missing: nan at lat=2, lon=3"):
        weights_of(a, ("lat", "lon"), other)


def test_weights_of_another_grid_are_refused() -> None:
    a = grid(*CENTRES)
    flipped = grid(CENTRES[0][::-1], CENTRES[1])
    with pytest.raises(SelectionError, match="other coordinates along 'lat': 75 and -75 at position 0"):
        weights_of(a, ("lat", "lon"), flipped)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (np.ones((6, 7)), r"shape \(6, 7\) for lat, lon of shape \(6, 8\)"),
        (np.ones(8), r"shape \(8,\) for lat, lon of shape \(6, 8\)"),
        (-np.ones((6, 8)), "a weight is negative: -1 at lat=0, lon=0"),
        (np.full((6, 8), np.nan), "a weight is missing"),
        (np.ma.masked_all((6, 8)), "a weight is missing"),
        (np.full((6, 8), np.inf), "a weight is infinite"),
        (np.zeros((6, 8)), "all weights along lat, lon are 0"),
        (np.full((6, 8), "a"), "are not numbers"),
        ({"lat": np.ones(5)}, r"shape \(5,\) for lat of shape \(6,\)"),
        ({"lta": np.ones(6)}, "weights of 'lta', which is not reduced; did you mean 'lat'"),
        ("area weights", "no weights 'area weights'.*area, time"),
        (xr.DataArray(np.ones(3), dims="depth"), "weights have a dimension 'depth'"),
    ],
)
def test_bad_weights(given: Any, words: str) -> None:
    with pytest.raises((SelectionError, NotFoundError), match=words):
        weights_of(grid(*CENTRES), ("lat", "lon"), given)


def test_an_array_of_weights_is_in_the_order_of_the_dimensions() -> None:
    rng = np.random.default_rng(0)
    values, given = rng.normal(size=(4, 4)), rng.random((4, 4))
    a = array(values, ("y", "x"), {})
    assert a.mean(("y", "x"), weights=given)[()] == pytest.approx(np.average(values, weights=given))
    assert a.mean(("x", "y"), weights=given)[()] == pytest.approx(np.average(values.T, weights=given))
    assert a.mean(weights=given)[()] == pytest.approx(np.average(values, weights=given))


def test_sums_over_a_single_cell_need_bounds() -> None:
    a = grid(*CENTRES)
    for key, name in (((slice(0, 1),), "lat"), ((slice(None), slice(0, 1)), "lon")):
        single = a.lazy[key]
        with pytest.raises(SelectionError, match=f"width of the only cell along '{name}'.*give cell areas or bounds"):
            single.sum(weights="area")
        assert single.mean(weights="area")[()] == 0
    bounded = grid(*CENTRES, pairs(LATITUDES), pairs(LONGITUDES))
    ones = array(
        np.ones((6, 8)),
        ("lat", "lon"),
        {n: (c.dimensions, c[:], {**c.attrs, "units": c.units}) for n, c in bounded.coords.items()},
    )
    assert ones.lazy[2:3, 4:5].sum(weights="area")[()] == pytest.approx(EXACT[2, 4])


@pytest.mark.parametrize("key", [np.s_[0:0], np.s_[:, 0:0], np.s_[0:0, 0:0]])
def test_no_cells(key: Any) -> None:
    assert np.isnan(grid(*CENTRES).lazy[key].mean(weights="area")[()])
