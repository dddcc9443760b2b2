"""xarray: datasets, trees, and the form of their variables."""

import inspect
import pickle
import sys
from collections.abc import Mapping
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import cftime
import netCDF4
import numpy as np
import pytest

pytest.importorskip("xarray", reason="arrays become datasets of xarray: install the extra 'xarray'")

import xarray as xr

import aggarray as aa
from aggarray import MasterArray, SubArray
from aggarray.xarray_engine import OPTIONS, RULES
from aggarray.xarray_engine import AggarrayBackendEntrypoint as Engine
from tests.support.foreign_indexes import fragment
from tests.support.netcdf import LAT, TAS, cube, write


def paths_of(tree: xr.DataTree) -> dict[str, list[str]]:
    """Return the names of the data variables of every node that has any."""
    return {node.path.strip("/"): sorted(map(str, node.data_vars)) for node in tree.subtree if node.data_vars}


# One dataset, or a tree


def renamed(variables: Mapping[str, Any], name: str, **attrs: Any) -> dict[str, Any]:
    """Return the variables of a `tas` file with another one in place of `tas`."""
    result = dict(variables)
    dimensions, values, stated = result.pop("tas")
    return {**result, name: (dimensions, values + 1, {**stated, "standard_name": name, **attrs})}


def test_arrays_of_one_grid_are_one_dataset(tmp_path: Path) -> None:
    for number, days in enumerate(([0, 1], [2])):
        write(tmp_path / f"tas_{number}.nc", cube(days), {"title": "t", "history": str(number)})
        write(tmp_path / f"pr_{number}.nc", renamed(cube(days), "pr"), {"title": "t"})
    result = aa.open(tmp_path).to_xarray()
    assert isinstance(result, xr.Dataset) and result.attrs == {"title": "t"}
    assert {"tas", "pr"} <= set(result.data_vars) and result.sizes["time"] == 3
    assert np.array_equal(result["pr"].values, result["tas"].values + 1)
    assert result["tas"].encoding["preferred_chunks"]["time"] == 2
    assert isinstance(aa.open(tmp_path).select("tas").to_xarray(), xr.Dataset)


def test_grids_are_nodes_named_by_their_variables(tmp_path: Path) -> None:
    write(tmp_path / "tas.nc", cube([0, 1]))
    write(tmp_path / "pr.nc", renamed(cube([0, 1], lats=(1.0, 2.0)), "pr"))
    result = aa.open(tmp_path).to_xarray()
    assert isinstance(result, xr.DataTree)
    assert set(paths_of(result)) == {"tas", "pr"} and result["pr"].sizes["lat"] == 2
    assert result["tas"]["tas"].shape == (2, 3, 2)


def test_coordinates_of_different_values_are_different_grids(tmp_path: Path) -> None:
    high, low = ((("height",), ((), value, {"units": "m", "standard_name": "height"})) for value in (2.0, 10.0))
    for (_, (dims, value, attrs)), name in ((high, "tas"), (low, "uas")):
        result = renamed(cube([0, 1]), name, coordinates="height")
        write(tmp_path / f"{name}.nc", {**result, "height": (dims, value, attrs)})
    tree = aa.open(tmp_path).to_xarray()
    assert float(tree["tas"]["height"]) == 2 and float(tree["uas"]["height"]) == 10


def test_models_are_nodes_named_by_facets(tmp_path: Path) -> None:
    for model in ("A", "B"):
        for run in ("r1", "r2/x"):
            facets = {"mip_era": "CMIP6", "source_id": model, "variant_label": run, "table_id": "day"}
            number = "AB".index(model) + (run == "r1") / 2
            for name in ("tas", "pr"):
                variables = renamed(cube([0, 1]), name) if name == "pr" else cube([0, 1])
                variables[name] = (variables[name][0], variables[name][1] + number, variables[name][2])
                write(tmp_path / f"{model}_{run[:2]}_{name}.nc", variables, facets)
    tree = aa.open(tmp_path).to_xarray()
    paths = paths_of(tree)
    assert set(paths) == {"A/r1", "A/r2_x", "B/r1", "B/r2_x"}
    assert all({"tas", "pr"} <= set(names) for names in paths.values())
    opened = xr.open_datatree(str(tmp_path), engine=Engine)
    xr.testing.assert_identical(opened, tree)
    one = xr.open_dataset(str(tmp_path), engine=Engine, group="B/r1")
    assert one.attrs["source_id"] == "B" and one.attrs["variant_label"] == "r1"
    xr.testing.assert_identical(one, xr.open_dataset(str(tmp_path), engine=Engine, group="/B/r1/"))
    select = {"source_id": "B", "variant_label": "r1"}
    xr.testing.assert_identical(one, xr.open_dataset(str(tmp_path), engine=Engine, select=select))


def test_arrays_of_one_name_are_nodes_named_by_an_attribute(tmp_path: Path) -> None:
    write(tmp_path / "mean.nc", cube([0, 1]))
    dimensions, values, _ = cube([0, 1])["tas"]
    write(tmp_path / "max.nc", {**cube([0, 1]), "tas": (dimensions, values + 5, {**TAS, "cell_methods": "time: maximum"})})
    tree = aa.open(tmp_path).to_xarray()
    assert set(paths_of(tree)) == {"time: mean", "time: maximum"}
    assert float((tree["time: maximum"]["tas"] - tree["time: mean"]["tas"]).mean()) == 5


def test_arrays_without_a_difference_are_numbered_nodes(tmp_path: Path) -> None:
    for number, lat in enumerate((10.0, 11.0, 12.5)):
        write(tmp_path / f"{number}.nc", cube([number], lats=(lat, lat + 7)))
    tree = aa.open(tmp_path, rules=aa.Rules(along=("time",))).to_xarray()
    assert len(paths_of(tree)) == 3 and sum(names.count("tas") for names in paths_of(tree).values()) == 3


def test_groups_of_a_file_are_nodes(tmp_path: Path) -> None:
    write(
        tmp_path / "a.nc",
        {"x": (("x",), [1.0, 2.0]), "one/a": (("x",), [1, 2]), "two/a": (("x",), [3, 4]), "b": (("x",), [5, 6])},
    )
    tree = xr.open_datatree(tmp_path / "a.nc", engine=Engine)
    assert paths_of(tree) == {"": ["b"], "one": ["a"], "two": ["a"]}
    assert tree["two"]["a"].values.tolist() == [3, 4]


def test_an_empty_selection_is_an_empty_dataset(tmp_path: Path) -> None:
    agg = replace(aa.open(write(tmp_path / "a.nc", cube([0]))), arrays=())
    assert agg.to_xarray().identical(xr.Dataset())


# Errors and options


def test_engine_errors(tmp_path: Path) -> None:
    write(tmp_path / "tas.nc", cube([0, 1]))
    write(tmp_path / "pr.nc", renamed(cube([0, 1], lats=(1.0, 2.0)), "pr"))

    def opened(**options: Any) -> xr.Dataset:
        return xr.open_dataset(str(tmp_path), engine=Engine, **options)

    with pytest.raises(aa.AggregationError, match=r"2 datasets.*'pr' \(pr\); 'tas' \(tas\).*group=.*select=.*open_datatree"):
        opened()
    assert "pr" in opened(variables=["pr"]) and "tas" in opened(drop_variables="pr") and "tas" in opened(group="tas")
    with pytest.raises(aa.NotFoundError, match="no group 'nothing'; the groups are 'pr', 'tas'"):
        opened(group="nothing")
    with pytest.raises(aa.NotFoundError, match=r"no array has units='m': .*; units is 'K'"):
        opened(select={"units": "m"})
    with pytest.raises(aa.AggregationError, match="select='units' is not a mapping; give a mapping"):
        opened(select="units")
    with pytest.raises(aa.AggregationError, match="no option 'colour'; the options are: rules, variables"):
        opened(colour="red")
    with pytest.raises(aa.NotFoundError, match="no data variable 'x'"):
        opened(variables=["x"])
    with open(tmp_path / "tas.nc", "rb") as file:
        for source in (file, BytesIO(b"CDF"), {"a": 1}, 5):
            with pytest.raises(aa.AggregationError, match=r"cannot open a .*; give a path"):
                Engine().open_dataset(source)  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError):
        xr.open_dataset(str(tmp_path / "nothing.nc"), engine=Engine)


def test_the_engine_opens_the_sources_of_open() -> None:
    known = set(inspect.signature(aa.open).parameters) - {"source"}
    assert set(OPTIONS) == known | {"select", "preset", "regular_chunks", *RULES}


def test_options_reach_opening(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    write(tmp_path / "data" / "a.nc", cube([0, 1]))
    aa.open(tmp_path / "data").save(tmp_path / "a.nca", relative=False)
    with pytest.raises(aa.IndexFileError, match="outside"):
        xr.open_dataset(tmp_path / "a.nca", engine=Engine, roots=[tmp_path / "elsewhere"])
    (tmp_path / "data").rename(tmp_path / "moved")
    moves = {str(tmp_path / "data"): str(tmp_path / "moved")}
    assert xr.open_dataset(tmp_path / "a.nca", engine=Engine, relocate=moves)["tas"].values.shape == (2, 3, 2)
    filled = xr.open_dataset(tmp_path / "a.nca", engine=Engine, missing="fill")["tas"]
    assert np.isnan(filled.values).all()


def test_guess_can_open(tmp_path: Path) -> None:
    path = write(tmp_path / "a.nc", cube([0, 1]))
    aa.open(path).save(tmp_path / "index.anything")
    (tmp_path / "text.nca").write_text("no index")
    engine = Engine()
    assert engine.guess_can_open(str(tmp_path / "index.anything")) and engine.guess_can_open(tmp_path / "index.anything")
    for other in (path, tmp_path, tmp_path / "text.nca", tmp_path / "nothing.nca", b"bytes", 5, "http://h/a.nca"):
        assert not engine.guess_can_open(other)


def test_xarray_finds_the_engine() -> None:
    result = xr.backends.list_engines().get("aggarray")
    assert isinstance(result, Engine), "install aggarray anew: its entry points have changed"
    assert result.supports_groups and "many" in result.description


# Form of the variables


def test_conformed_pieces_are_passed_as_read(tmp_path: Path) -> None:
    kelvin, celsius = cube([0, 1]), cube([2, 3])
    dimensions, values, attrs = celsius["tas"]
    attrs = {**attrs, "units": "degC", "scale_factor": 0.1, "_FillValue": np.int16(2100)}
    celsius["tas"] = (dimensions, (values * 10).astype("i2"), attrs)
    write(tmp_path / "a.nc", kelvin)
    write(tmp_path / "b.nc", celsius)
    array = aa.open(tmp_path)["tas"]
    result = array.to_xarray()
    assert np.array_equal(result.values, array[...], equal_nan=True) and np.isnan(result.values).any()
    assert result.attrs["units"] == "K" and result.dtype == array.dtype and np.isnan(result.encoding["_FillValue"])


def test_holes_are_missing_in_any_dtype() -> None:
    for values, fill in (([1, 2], None), ([1, 2], -1), ([1.5, 2.5], None)):
        piece = SubArray.from_array(np.array(values), dimensions=("x",), fill_value=fill)
        array = MasterArray.from_subarrays([([(0, 2)], piece), ([(4, 6)], piece)], dimensions=("x",), name="a")
        result = array.to_xarray()
        assert np.array_equal(result.values, [*values, np.nan, np.nan, *values], equal_nan=True)
        unmasked = xr.Dataset({"a": result}).load()
        assert unmasked["a"].dtype.kind == "f"


@pytest.mark.parametrize("kind", ["f4", "i2"])
def test_limits_and_several_missing_values(tmp_path: Path, kind: str) -> None:
    attrs: dict[str, Any] = {
        "_FillValue": np.dtype(kind).type(-1),
        "valid_min": np.dtype(kind).type(0),
        "valid_max": np.dtype(kind).type(50),
    }
    write(tmp_path / "a.nc", {"a": (("x",), np.array([-1, 5, 60, 50], kind), attrs)})
    result = xr.open_dataset(tmp_path / "a.nc", engine=Engine)["a"]
    assert np.array_equal(result.values, [np.nan, 5, np.nan, 50], equal_nan=True)
    assert result.attrs == {"valid_min": 0, "valid_max": 50} and result.encoding["_FillValue"] == -1
    attrs = {"missing_value": np.array([5, 60], kind)}
    write(tmp_path / "b.nc", {"a": (("x",), np.array([-1, 5, 60, 50], kind), attrs)})
    result = xr.open_dataset(tmp_path / "b.nc", engine=Engine)["a"]
    assert np.array_equal(result.values, [-1, np.nan, np.nan, 50], equal_nan=True)


def test_indexes_of_other_programs(tmp_path: Path) -> None:
    for number in range(2):
        fragment(tmp_path / f"{number}.nc", [[1 + number, 2], [3, 4]], missing_value=np.int64(4))
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as file:
        for name, size in (("time", 4), ("x", 2), ("f_time", 2), ("f_x", 1), ("i", 2), ("j", 2)):
            file.createDimension(name, size)
        tas = file.createVariable("tas", "i8", ())
        tas.setncatts({"units": "K", "aggregated_dimensions": "time x", "aggregated_data": "map: m uris: u identifiers: n"})
        file.createVariable("m", "i4", ("i", "j"), fill_value=-1)[...] = np.ma.masked_equal([[2, 2], [2, -1]], -1)
        file.createVariable("u", str, ("f_time", "f_x"))[...] = np.array([["0.nc"], ["1.nc"]], object)
        file.createVariable("n", str, ())[...] = "tas"
        file.Conventions = "CF-1.13"
    assert Engine().guess_can_open(tmp_path / "a.nc")
    result = xr.open_dataset(tmp_path / "a.nc", engine=Engine)["tas"]
    assert np.array_equal(result.values, [[1, 2], [3, np.nan], [2, 2], [3, np.nan]], equal_nan=True)


def test_lazy_operations_before_xarray(tmp_path: Path) -> None:
    write(tmp_path / "a.nc", cube([0, 1]))
    write(tmp_path / "b.nc", cube([2, 3]))
    array = aa.open(tmp_path)["tas"]
    for one in (
        array.flip("time"),
        array.transpose(),
        array.sel(lat=slice(15, None)),
        array.to_units("degC"),
        array.lazy[::2, 1],
    ):
        result = pickle.loads(pickle.dumps(one.to_xarray()))
        assert result.dims == one.dimensions and np.array_equal(result.values, one[...], equal_nan=True)
    turned = array.flip("lat").to_xarray()
    assert turned["lat"].values.tolist() == [30, 20, 10] and turned["lat"].attrs["units"] == LAT["units"]


def test_arrays_in_memory_and_without_a_name() -> None:
    piece = SubArray.from_array(np.arange(3.0), dimensions=("x",), units="m")
    array = MasterArray.from_subarrays([([(0, 3)], piece)], dimensions=("x",))
    result = array.to_xarray()
    assert result.name is None and result.values.tolist() == [0, 1, 2] and result.attrs == {"units": "m"}
    assert array.lazy[0].to_xarray().values.tolist() == 0


def test_without_xarray(monkeypatch: pytest.MonkeyPatch) -> None:
    piece = SubArray.from_array(np.arange(3.0), dimensions=("x",))
    array = MasterArray.from_subarrays([([(0, 3)], piece)], dimensions=("x",))
    for module in ("dask", "xarray_store"):
        monkeypatch.delitem(sys.modules, f"aggarray.interop.{module}", raising=False)
    for library in ("dask", "dask.array", "xarray"):
        monkeypatch.setitem(sys.modules, library, None)
    for call in (array.to_dask, array.to_xarray):
        with pytest.raises(aa.AggregationError, match=r"pip install '.*\[xarray\]'"):
            call()


def test_bounds_grid_mappings_and_measures(tmp_path: Path) -> None:
    variables: dict[str, Any] = cube([0, 1])
    dimensions, values, attrs = variables["tas"]
    variables["time"] = (*variables["time"][:2], {**variables["time"][2], "bounds": "time_bnds"})
    variables["time_bnds"] = (("time", "bnds"), [[0.0, 1.0], [1.0, 2.0]])
    variables["crs"] = ((), np.int32(0), {"grid_mapping_name": "latitude_longitude"})
    variables["area"] = (("lat", "lon"), np.ones((3, 2)), {"units": "m2", "standard_name": "cell_area"})
    variables["tas"] = (dimensions, values, {**attrs, "grid_mapping": "crs", "cell_measures": "area: area"})
    path = write(tmp_path / "a.nc", variables)
    for flag in (True, "all", False):
        with xr.open_dataset(path, decode_coords=flag) as expected:
            xr.testing.assert_identical(xr.open_dataset(path, engine=Engine, decode_coords=flag), expected)
    result = aa.open(path)["tas"].to_xarray()
    assert result.attrs["grid_mapping"] == "crs" and set(result.coords) == {"time", "lat", "lon"}


def test_coordinates_that_no_attribute_lists(tmp_path: Path) -> None:
    for number in range(2):
        variables: dict[str, Any] = {k: v for k, v in cube([number]).items() if k != "time"}
        dimensions, values, attrs = variables["tas"]
        variables["tas"] = (dimensions[1:], values[0], {**attrs, "coordinates": "time run"})
        variables["time"] = ((), float(number), {"standard_name": "time", "units": "days since 2000-01-01"})
        variables["run"] = ((), number + 0.5, {"standard_name": "forecast_reference_time", "units": "days since 2000-01-01"})
        write(tmp_path / f"{number}.nc", variables)
    result = aa.open(tmp_path).to_xarray()
    assert "run" in result.coords and result["tas"].dims[0] == "time" and result["run"].dims == ("time",)


@pytest.mark.parametrize(
    ("unit", "calendar", "days"),
    [
        ("weeks", "standard", 7.0),
        ("months", "standard", 365.242198781 / 12),
        ("months", "360_day", 365.242198781 / 12),
        ("years", "noleap", 365.242198781),
        ("common_years", "noleap", 365.0),
    ],
)
def test_times_in_units_that_xarray_does_not_decode(tmp_path: Path, unit: str, calendar: str, days: float) -> None:
    """Times and their bounds are converted to days, with the values of `datetimes`."""
    attrs = {"units": f"{unit} since 2000-01-01", "calendar": calendar, "bounds": "b"}
    made = {
        "time": (("time",), np.array([1.0, 2.0]), attrs),
        "b": (("time", "nv"), np.array([[1.0, 2.0], [2.0, 3.0]])),
        "x": (("time",), np.zeros(2)),
    }
    array = aa.open(write(tmp_path / "a.nc", made))["x"]
    result = aa.open(tmp_path / "a.nc").to_xarray()
    assert result["time"].encoding["units"] == "days since 2000-01-01" and result["b"].values[0, 1] == result["time"].values[1]
    for dates in (result["time"].values, array.to_xarray()["time"].values, array.coords["time"].datetimes()):
        seconds = [_seconds(date, calendar) for date in dates]
        np.testing.assert_allclose(seconds, [days * 86400, 2 * days * 86400], atol=1e-5)


def _seconds(date: Any, calendar: str) -> float:
    if isinstance(date, np.datetime64):
        return float((date - np.datetime64("2000-01-01")) / np.timedelta64(1, "s"))
    return float(cftime.date2num(date, "seconds since 2000-01-01", calendar))
