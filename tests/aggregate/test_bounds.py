"""Bounds in the units, calendar and direction of coordinates (CF 7.1)."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import cf_units
import netCDF4
import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

import aggarray as aa
from aggarray.export.extract import extract
from tests.support.examples import examples
from tests.support.netcdf import TIME, one_array, write

pytestmark = pytest.mark.quick

LEVELS = np.array([1000.0, 850.0, 500.0])
PAIRS = np.stack([LEVELS + 50, LEVELS - 50], axis=-1)


def levels(path: Path, days: Any = (0.0, 1.0), **bounds: Any) -> str:
    """Write times and levels with bounds; ``bounds``: attributes of the last."""
    days = np.asarray(days)
    made = {
        "time": (("time",), days, {**TIME, "bounds": "time_bnds"}),
        "time_bnds": (("time", "nv"), np.stack([days - 0.5, days + 0.5], axis=-1)),
        "plev": (("plev",), LEVELS, {"units": "hPa", "standard_name": "air_pressure", "bounds": "plev_bnds"}),
        "plev_bnds": (("plev", "nv"), PAIRS * bounds.pop("factor", 1), bounds),
        "ta": (("time", "plev"), days[:, None] + LEVELS, {"units": "K"}),
    }
    return write(path, made)


RULES = aa.Rules(units={"plev": "kPa", "time": "hours since 1999-12-31"}, directions={"plev": True})


def check(array: Any) -> None:
    """Compare the coordinates that `RULES` ask for."""
    coords = array.coords
    assert {(c.units, c.calendar) for n, c in coords.items() if "time" in n} == {("hours since 1999-12-31", "standard")}
    assert (coords["plev"].units, coords["plev_bnds"].units) == ("kPa", "kPa")
    np.testing.assert_allclose(coords["plev"][:], LEVELS[::-1] / 10, rtol=1e-15)
    np.testing.assert_allclose(coords["plev_bnds"][:], PAIRS[::-1, ::-1] / 10, rtol=1e-15)
    assert coords["time_bnds"][:].tolist() == [[12.0 + 24 * n, 36.0 + 24 * n] for n in range(len(coords["time"]))]


@pytest.fixture
def joined(tmp_path: Path) -> aa.Aggregation:
    """Return two files joined by `RULES`, with bounds in different units."""
    paths = [levels(tmp_path / "a.nc"), levels(tmp_path / "b.nc", (2.0, 3.0), units="Pa", factor=100)]
    return aa.open(paths, rules=RULES)


def test_reads_and_selections(joined: aa.Aggregation) -> None:
    array = one_array(joined, "ta")
    check(array)
    check(array.lazy[:, ::-1].lazy[:, ::-1])
    check(array.flip("plev").flip("plev"))
    part = array.sel(plev=slice(40, 90))
    assert part.coords["plev_bnds"][:].tolist() == [[45, 55], [80, 90]] and part.coords["plev_bnds"].units == "kPa"


@pytest.mark.parametrize("convention", ["CF-1.13", "CFA-0.4"])
def test_indexes(joined: aa.Aggregation, tmp_path: Path, convention: str) -> None:
    path = tmp_path / "index.nca"
    joined.save(path, convention=convention)
    check(one_array(aa.open(path), "ta"))
    # CF cannot say that a fragment runs against its array: the index of another program holds files as they run.
    paths = [levels(tmp_path / "a.nc"), levels(tmp_path / "b.nc", (2.0, 3.0))]
    aa.open(paths, rules=aa.Rules(units=RULES.units)).save(path, convention=convention)
    with netCDF4.Dataset(path, "a") as file:
        for group in list(file.groups):
            file.renameGroup(group, "of_another_program")
    check(aa.open(path)["ta"].flip("plev"))


@pytest.mark.parametrize("suffix", ["nc", "zarr"])
def test_extracts(joined: aa.Aggregation, tmp_path: Path, suffix: str) -> None:
    out = tmp_path / "out" / f"x.{suffix}"
    out.parent.mkdir()
    extract(one_array(joined, "ta"), out)
    check(one_array(aa.open(out), "ta"))
    with xr.open_dataset(out, decode_times=False) as there:
        np.testing.assert_allclose(there["plev_bnds"].values, PAIRS[::-1, ::-1] / 10, rtol=1e-15)
        assert there["time_bnds"].values.tolist()[0] == [12, 36]


def test_xarray_and_references(joined: aa.Aggregation, tmp_path: Path) -> None:
    result = joined.to_xarray()
    np.testing.assert_allclose(result["plev_bnds"].values, PAIRS[::-1, ::-1] / 10, rtol=1e-15)
    assert "units" not in result["plev_bnds"].attrs
    assert result["time_bnds"].values[0].astype("M8[h]").astype(str).tolist() == ["1999-12-31T12", "2000-01-01T12"]
    paths = [levels(tmp_path / f"{n}.nc", (2.0 * n, 2.0 * n + 1)) for n in range(2)]
    out = tmp_path / "refs" / "refs.json"
    out.parent.mkdir()
    aa.open(paths, rules=aa.Rules(units=RULES.units)).to_kerchunk(out)
    there = one_array(aa.open(out), "ta").coords
    np.testing.assert_allclose(there["plev_bnds"][:], PAIRS / 10, rtol=1e-15)
    assert there["plev_bnds"].units == "kPa" and there["time_bnds"][:].tolist()[0] == [12, 36]


def test_a_coordinate_alone(tmp_path: Path) -> None:
    """A coordinate without data variables is an array with its own bounds."""
    made = {"plev": (("plev",), LEVELS, {"units": "hPa", "bounds": "b"}), "b": (("plev", "nv"), PAIRS)}
    path = write(tmp_path / "a.nc", made)
    by_rules = one_array(aa.open(path, rules=aa.Rules(units={"plev": "kPa"})), "plev")
    for array in (one_array(aa.open(path), "plev").to_units("kPa"), by_rules):
        assert array[:].tolist() == (LEVELS / 10).tolist() and array.directions == (False,)
        assert (array.units, array.coords["b"].units) == ("kPa", "kPa")
        np.testing.assert_allclose(array.coords["b"][:], PAIRS / 10, rtol=1e-15)
        assert array.lazy[::-1].coords["b"][:].tolist() == array.coords["b"][::-1, ::-1].tolist()


@pytest.mark.parametrize(
    ("attrs", "words"),
    [
        ({"units": "m"}, "different quantities"),
        ({"units": "widgets"}, "not a unit"),
        ({"units": "days since 2000-01-01"}, "time"),
    ],
)
def test_unconvertible_bounds_are_skipped(tmp_path: Path, attrs: Any, words: str) -> None:
    agg = aa.open(levels(tmp_path / "a.nc", **attrs))
    (skipped,) = agg.skipped
    assert skipped.variable == "plev_bnds" and "bounds of 'plev'" in skipped.reason and words in skipped.reason
    assert "plev_bnds" not in agg["ta"].coords and agg["ta"].coords["plev"].units == "hPa"


def test_a_calendar_of_their_own(tmp_path: Path) -> None:
    path = levels(tmp_path / "a.nc")
    with netCDF4.Dataset(path, "a") as file:
        file["time_bnds"].setncatts({"units": "days since 2000-01-01", "calendar": "360_day"})
    (skipped,) = aa.open(path).skipped
    assert "calendars 360_day and standard are not the same" in skipped.reason


def test_integer_bounds_in_units_of_their_own(tmp_path: Path) -> None:
    """Whole days become whole hours; hours become fractional days."""
    made = {
        "time": (("time",), np.array([12]), {"units": "hours since 2000-01-01", "bounds": "b"}),
        "b": (("time", "nv"), np.array([[0, 10**8]], "i4"), {"units": "days since 2000-01-01"}),
        "ta": (("time",), np.zeros(1)),
    }
    result = one_array(aa.open(write(tmp_path / "a.nc", made)), "ta").coords["b"]
    assert result.dtype == np.int64 and result[:].tolist() == [[0, 24 * 10**8]]
    made["time"] = (("time",), np.array([0]), {"units": "days since 2000-01-01", "bounds": "b"})
    made["b"] = (("time", "nv"), np.array([[-12, 12]], "i4"), {"units": "hours since 2000-01-01"})
    result = one_array(aa.open(write(tmp_path / "b.nc", made)), "ta").coords["b"]
    assert result.dtype == np.float64 and result[:].tolist() == [[-0.5, 0.5]]


@pytest.mark.parametrize("own", [{}, {"units": "minutes since 2000-01-01"}])
def test_fragments_of_bounds_in_units_of_their_own(tmp_path: Path, own: Any) -> None:
    """Fragments of bounds are converted to the units of the aggregated time.

    The aggregation variable is in hours, its time in days, its fragments in various units.
    """
    factor = 60 if own else 1
    for name, days in (("a", [0, 1]), ("b", [2, 3, 4])):
        hours = np.array([[24.0 * d, 24.0 * d + 24] for d in days]) * factor
        write(tmp_path / f"{name}.nc", {"time_bnds": (("time", "nv"), hours, own)})
    stated = {"aggregated_dimensions": "time nv", "aggregated_data": "map: m uris: u identifiers: i"}
    made = {
        "time": (("time",), np.arange(5.0), {**TIME, "bounds": "time_bnds"}),
        "time_bnds": ((), np.float64(0), {"units": "hours since 2000-01-01", **stated}),
        "ta": (("time",), np.zeros(5)),
        "nv": (("nv",), np.arange(2.0)),
        "m": (("rank", "most"), np.array([[2, 3], [2, -1]], "i4"), {"_FillValue": np.int32(-1)}),
        "u": (("ft", "fx"), np.array([["a.nc"], ["b.nc"]])),
        "i": ((), np.array("time_bnds")),
    }
    result = aa.open(write(tmp_path / "index" / "i.nc", made | {"u": (("ft", "fx"), np.array([["../a.nc"], ["../b.nc"]]))}))
    bounds = result["ta"].coords["time_bnds"]
    assert bounds.units == "days since 2000-01-01" and bounds[:].tolist() == [[d, d + 1] for d in range(5)]


UNITS = st.sampled_from(("hPa", "Pa", "kPa", "bar", "mmHg"))


@given(UNITS, st.none() | UNITS, UNITS, st.booleans(), st.booleans())
@settings(max_examples=examples(25), deadline=None)
def test_any_units_and_directions(
    tmp_path_factory: pytest.TempPathFactory, unit: str, own: str | None, wanted: str, up: bool, turned: bool
) -> None:
    """Bounds enclose their coordinate in its units and direction."""

    def in_units(values: np.ndarray, to: str) -> np.ndarray:
        return np.asarray(cf_units.Unit("hPa").convert(values, to))

    run: Callable[[np.ndarray], np.ndarray] = np.flip if up else np.asarray
    made = {
        "plev": (("plev",), in_units(run(LEVELS), unit), {"units": unit, "bounds": "b"}),
        "b": (("plev", "nv"), in_units(run(PAIRS), own or unit), {} if own is None else {"units": own}),
        "ta": (("plev",), np.zeros(3)),
    }
    path = write(tmp_path_factory.mktemp("any") / "a.nc", made)
    coords = one_array(aa.open(path, rules=aa.Rules(units={"plev": wanted}, directions={"plev": up ^ turned})), "ta").coords
    expected = np.flip if up ^ turned else np.asarray
    assert coords["plev"].units == coords["b"].units == wanted
    np.testing.assert_allclose(coords["b"][:], in_units(expected(PAIRS), wanted), rtol=1e-12)
    low, high = np.sort(coords["b"][:], axis=1).T
    assert ((low < coords["plev"][:]) & (coords["plev"][:] < high)).all()
