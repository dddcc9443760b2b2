"""Roles of variables as CF defines them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aggarray as aa
from aggarray.aggregate.variables import arrays_of
from aggarray.formats import scan
from tests.support.netcdf import LAT, TAS, TIME, cube, write

pytestmark = pytest.mark.quick


def roles(path: str) -> dict[str, set[str]]:
    """Return the data variables of a file with the coordinates and similar variables of each."""
    arrays, skipped = arrays_of(scan(path))
    assert skipped == []
    return {a.name or "": set(a.coords) for a in arrays}


def tas(made: dict[str, Any], **attrs: Any) -> dict[str, Any]:
    made["tas"] = (*made["tas"][:2], {**TAS, **attrs})
    return made


GRID = {"time", "lat", "lon"}


def test_related_variables(tmp_path: Path) -> None:
    made = cube(
        [0],
        lat=(("lat",), np.array([10.0, 20.0, 30.0]), {**LAT, "bounds": "lat_bnds"}),
        lat_bnds=(("lat", "nv"), np.zeros((3, 2))),
        height=((), np.float64(2), {"standard_name": "height", "units": "m"}),
        area=(("lat", "lon"), np.zeros((3, 2)), {"units": "m2"}),
        crs=((), np.int32(0), {"grid_mapping_name": "latitude_longitude"}),
    )
    tas(made, coordinates="height", cell_measures="area: area", grid_mapping="crs")
    assert roles(write(tmp_path / "a.nc", made)) == {"tas": GRID | {"lat_bnds", "height", "area", "crs"}}


def test_extended_grid_mapping_and_climatology(tmp_path: Path) -> None:
    made = cube(
        [0],
        time=(("time",), np.array([0.0]), {**TIME, "climatology": "climatology_bounds"}),
        climatology_bounds=(("time", "nv"), np.array([[0.0, 9.0]])),
        crs=((), np.int32(0), {"grid_mapping_name": "latitude_longitude"}),
    )
    tas(made, grid_mapping="crs: lat lon")
    path = write(tmp_path / "a.nc", made)
    assert roles(path) == {"tas": GRID | {"climatology_bounds", "crs"}}
    assert aa.open(path)["tas"].coords["climatology_bounds"].units == TIME["units"]


def test_ancillary_variables_and_formula_terms_are_data(tmp_path: Path) -> None:
    made = cube(
        [0],
        lev=(("lev",), np.array([0.5]), {"standard_name": "atmosphere_sigma_coordinate", "formula_terms": "ps: ps a: a"}),
        ps=(("time", "lat", "lon"), np.zeros((1, 3, 2)), {"units": "Pa"}),
        a=(("lev",), np.array([1.0])),
        flag=(("time", "lat", "lon"), np.zeros((1, 3, 2), "i1")),
    )
    made["tas"] = (("time", "lev", "lat", "lon"), np.zeros((1, 1, 3, 2)), {**TAS, "ancillary_variables": "flag"})
    result = roles(write(tmp_path / "a.nc", made))
    assert result == {"tas": GRID | {"lev"}, "ps": GRID, "flag": GRID, "a": {"lev"}}


def test_variables_without_a_role_are_data(tmp_path: Path) -> None:
    made = cube([0], lonely=(("z",), np.arange(3.0)), depth=(("depth",), np.arange(2.0), {"units": "m"}))
    assert roles(write(tmp_path / "a.nc", made)) == {"tas": GRID, "lonely": set(), "depth": set()}


def test_unresolvable_names(tmp_path: Path) -> None:
    made = tas(cube([0]), coordinates="nothing here", cell_measures="area: elsewhere", grid_mapping="none")
    made["lat"] = (("lat",), np.array([10.0, 20.0, 30.0]), {**LAT, "bounds": "gone"})
    path = write(tmp_path / "a.nc", made)
    assert roles(path) == {"tas": GRID}
    np.testing.assert_array_equal(aa.open(path)["tas"].coords["lat"][...], [10, 20, 30])


def test_coordinate_of_other_dimensions_is_unrelated(tmp_path: Path) -> None:
    made = tas(cube([0], depth=(("z",), np.arange(3.0))), coordinates="depth")
    assert "depth" not in roles(write(tmp_path / "a.nc", made))["tas"]


def test_bounds_with_units_and_calendars_of_their_own(tmp_path: Path) -> None:
    made = cube(
        [0],
        time=(("time",), np.array([0.0]), {**TIME, "calendar": "noleap", "bounds": "time_bnds"}),
        time_bnds=(("time", "nv"), np.array([[0.0, 24.0]]), {"units": "hours since 2000-01-01"}),
    )
    bounds = aa.open(write(tmp_path / "a.nc", made))["tas"].coords["time_bnds"]
    assert (bounds.units, bounds.calendar) == ("days since 2000-01-01", "noleap")


def test_parameters_are_not_attributes(tmp_path: Path) -> None:
    made = cube([0])
    absent = {"_FillValue": np.int16(-1), "missing_value": np.int16(-1), "valid_min": np.int16(0)}
    packing = {"scale_factor": 0.5, "add_offset": 1.0, **absent}
    made["tas"] = (made["tas"][0], np.ones((1, 3, 2), "i2"), {**TAS, **packing, "comment": "c"})
    array = aa.open(write(tmp_path / "a.nc", made))["tas"]
    assert set(array.attrs) == {"standard_name", "cell_methods", "comment"}
    assert array.units == "K" and (array[...] == 1.5).all()


def test_coordinates_by_proximity(tmp_path: Path) -> None:
    variables = {
        "lat": (("lat",), np.array([1.0, 2.0]), LAT),
        "height": ((), np.float64(1)),
        "a/lat": (("lat",), np.array([3.0, 4.0]), LAT),
        "a/b/tas": (("lat",), np.zeros(2), {**TAS, "coordinates": "height"}),
        "c/tas": (("lat",), np.zeros(2), {**TAS, "coordinates": "/height"}),
    }
    arrays, _ = arrays_of(scan(write(tmp_path / "a.nc", variables)))
    result = {a.name: a for a in arrays}
    np.testing.assert_array_equal(result["a/b/tas"].coords["lat"][...], [3, 4])
    np.testing.assert_array_equal(result["c/tas"].coords["lat"][...], [1, 2])
    assert result["c/tas"].coords["height"][...] == result["a/b/tas"].coords["height"][...] == 1


def test_attributes_of_groups(tmp_path: Path) -> None:
    import netCDF4

    path = write(tmp_path / "a.nc", {"a/b/x": (("n",), np.zeros(2))}, {"title": "root", "source": "root"})
    with netCDF4.Dataset(path, "a") as file:
        file["a"].title = "a"
        file["a/b"].institution = "b"
    array = aa.open(path)["a/b/x"]
    assert array.file_attrs == {"title": "a", "source": "root", "institution": "b"}


def test_coordinate_values_come_from_the_scan(tmp_path: Path) -> None:
    path = Path(write(tmp_path / "a.nc", cube([0, 1])))
    array = aa.open(path)["tas"]
    path.unlink()
    assert array.sel(lat=10, lon=slice(4, 6)).shape == (2, 1)
