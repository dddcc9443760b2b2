"""Each known fault on a small file that has it, and its repair."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aggarray as aa
from aggarray.scan.fix_files import known_faults, read_fixes
from tests.support.netcdf import cube, write

pytestmark = pytest.mark.quick

Check = Callable[[aa.Aggregation], None]


def of(name: str, values: Any = (0.25, 0.5, 1.0), **attrs: Any) -> dict[str, Any]:
    return {name: (("lat",), np.array(values, "f4"), attrs), "lat": (("lat",), [0.0, 1.0, 2.0], {"units": "degrees_north"})}


def over_levels(name: str, level: str, **attrs: Any) -> dict[str, Any]:
    return {name: ((level,), np.arange(3, dtype="f4"), {"units": "1"}), level: ((level,), [5.0, 10.0, 20.0], attrs)}


def curvilinear(lat: str, lon: str) -> dict[str, Any]:
    values, units = np.arange(6.0).reshape(2, 3), ({"units": "degrees_north"}, {"units": "degrees_east"})
    tos = ("y", "x"), values.astype("f4"), {"units": "degC", "coordinates": f"{lat} {lon}"}
    return {"tos": tos, lat: (("y", "x"), values, units[0]), lon: (("y", "x"), values + 10, units[1])}


def has(**attrs: Any) -> Check:
    def check(agg: aa.Aggregation) -> None:
        (array,) = agg
        assert {name: array.file_attrs.get(name) for name in attrs} == attrs

    return check


def has_units(units: str, **attrs: Any) -> Check:
    def check(agg: aa.Aggregation) -> None:
        (array,) = agg
        assert array.units == units and {name: array.attrs[name] for name in attrs} == attrs
        assert array[...].tolist() == [0.25, 0.5, 1.0]

    return check


def has_values(*values: float) -> Check:
    def check(agg: aa.Aggregation) -> None:
        (array,) = agg
        assert array.dtype == "f4"
        np.testing.assert_array_equal(array[...], np.array(values, "f4"))

    return check


def has_coordinate(name: str, **attrs: Any) -> Check:
    def check(agg: aa.Aggregation) -> None:
        (array,) = agg
        coordinate = array.coords[name]
        assert {key: {"units": coordinate.units, **coordinate.attrs}[key] for key in attrs} == attrs

    return check


def converts(target: str, *values: float) -> Check:
    def check(agg: aa.Aggregation) -> None:
        (array,) = agg
        np.testing.assert_allclose(array.to_units(target)[...], values, rtol=1e-6)

    return check


def has_calendar(calendar: str) -> Check:
    def check(agg: aa.Aggregation) -> None:
        assert agg["tas"].coords["time"].calendar == calendar

    return check


def time_of(calendar: str) -> dict[str, Any]:
    made = cube([0, 1])
    made["time"] = *made["time"][:2], {**made["time"][2], "calendar": calendar}
    return made


PERCENT = {"units": "%"}
NBP = "surface_net_downward_mass_flux_of_carbon_dioxide_expressed_as_carbon_due_to_all_land_processes"
DEPTH = {"standard_name": "depth", "units": "m", "positive": "down"}
PLAIN = of("tas", units="K")
#: For each known fault in order: the attributes of a file, its variables, and what must hold with the fix.
FAULTS: dict[str, list[tuple[dict[str, Any], dict[str, Any], Check]]] = {
    "cmip6": [
        (
            {"source_id": "GFDL-CM4", "experiment_id": "historical", "branch_time_in_parent": 0.0},
            PLAIN,
            has(branch_time_in_parent=91250.0),
        ),
        (
            {"source_id": "GFDL-CM4", "experiment_id": "ssp585", "branch_time_in_child": 0.0},
            PLAIN,
            has(branch_time_in_child=60225.0),
        ),
        ({"source_id": "EC-Earth3-Veg"}, of("siconca", **PERCENT), converts("%", 25, 50, 100)),
        (
            {"source_id": "CNRM-CM6-1"},
            over_levels("clcalipso", "alt40", units="m"),
            has_coordinate("alt40", standard_name="altitude"),
        ),
        (
            {"source_id": "CNRM-CM6-1", "table_id": "Omon"},
            over_levels("thetao", "lev", units="m"),
            has_coordinate("lev", **DEPTH),
        ),
        ({"source_id": "IPSL-CM6A-LR"}, over_levels("thetao", "olevel", units="m"), has_coordinate("lev", **DEPTH)),
        ({"source_id": "IPSL-CM6A-LR"}, curvilinear("nav_lat", "nav_lon"), has_coordinate("lon", units="degrees_east")),
        ({"source_id": "MCM-UA-1-0"}, curvilinear("latitude", "longitude"), has_coordinate("lat", units="degrees_north")),
    ],
    "cmip5": [
        ({"model_id": "ACCESS1.0"}, time_of("proleptic_gregorian"), has_calendar("standard")),
        ({"model_id": "BNU-ESM"}, of("cl", **PERCENT), converts("%", 25, 50, 100)),
        ({"model_id": "EC-EARTH"}, of("sic", **PERCENT), converts("%", 25, 50, 100)),
        ({"model_id": "EC-EARTH"}, of("sftlf", **PERCENT), converts("%", 25, 50, 100)),
        (
            {"model_id": "EC-EARTH"},
            of("tos", [280, 273.15, 1e20], units="K", _FillValue=np.float32(1e20), missing_value=np.float32(1e20)),
            has_values(280, np.nan, np.nan),
        ),
        ({"model_id": "GFDL-CM2p1"}, of("areacello", units="m^-2"), has_units("m2")),
        (
            {"model_id": "GFDL-CM2.1"},
            of("tos", units="K", standard_name="sea_surface_skin_temperature"),
            has_units("degC", standard_name="sea_surface_temperature"),
        ),
        ({"model_id": "inmcm4"}, of("gpp", [1, -2, 0], units="kg m-2 s-1"), has_values(-1, 2, 0)),
        ({"model_id": "inmcm4"}, of("lai", [100, 250, 0], units="1"), has_values(1, 2.5, 0)),
        ({"model_id": "inmcm4"}, of("nbp", units="kg m-2 s-1"), has_units("kg m-2 s-1", standard_name=NBP)),
        ({"model_id": "MIROC5"}, of("sftof", **PERCENT), converts("%", 25, 50, 100)),
        (
            {"model_id": "MIROC5"},
            of("tos", [280, 0, 1e20], units="K", _FillValue=np.float32(1e20)),
            has_values(280, np.nan, np.nan),
        ),
    ],
}  # fmt: skip
CASES = [(library, number) for library in FAULTS for number in range(len(FAULTS[library]))]


def test_each_fault_has_a_case_and_names_its_source() -> None:
    assert known_faults() == sorted(FAULTS)
    for library, cases in FAULTS.items():
        fixes = read_fixes(library)
        assert len(fixes) == len(cases)
        assert all(fix.optional and fix.where and ("ESMValCore" in fix.note or "https://" in fix.note) for fix in fixes)


@pytest.mark.parametrize(("library", "number"), CASES)
def test_each_fault_and_its_repair(tmp_path: Path, library: str, number: int) -> None:
    attrs, variables, check = FAULTS[library][number]
    path = write(tmp_path / "a.nc", variables, attrs)
    with pytest.raises((AssertionError, KeyError, aa.UnitsError)):
        check(aa.open(path))
    check(aa.open(path, fixes=library))
    check(aa.open(path, fixes=read_fixes(library)[number]))
    other = write(tmp_path / "b.nc", variables, {**attrs, **dict.fromkeys(("source_id", "model_id"), "another")})
    with pytest.raises((AssertionError, KeyError, aa.UnitsError)):
        check(aa.open(other, fixes=list(FAULTS)))


def test_other_faults_of_a_library_are_no_problem(tmp_path: Path) -> None:
    path = write(tmp_path / "a.nc", PLAIN, {"source_id": "other"})
    agg = aa.open(path, fixes=["cmip5", "cmip6", aa.Fix(variable="tas", set={"units": "degC"})])
    assert agg.check().ok and agg["tas"].units == "degC" and len(agg.fixes) == 21
