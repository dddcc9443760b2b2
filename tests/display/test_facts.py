"""Words that distinguish arrays of one name, and short names of files."""

from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pytest

import aggarray as aa
from aggarray.aggregate.differences import labels, short_paths
from aggarray.display.facts import aggregation_facts, time_range
from aggarray.display.report import page
from aggarray.partition.file_names import common_folder
from tests.support.netcdf import TAS, cube, write

pytestmark = pytest.mark.quick


def opened(folder: Path, files: dict[str, dict[str, Any]], **changes: dict[str, Any]) -> aa.Aggregation:
    """Open a file of `cube` per name with its global attributes; ``changes``: attributes of `tas` by stem."""
    for name, attrs in files.items():
        made = cube([0, 1])
        made["tas"] = (*made["tas"][:2], {**TAS, **changes.get(Path(name).stem, {})})
        write(folder / name, made, attrs)
    return aa.open(folder)


def test_no_word_where_no_other_has_the_name(tmp_path: Path) -> None:
    agg = opened(tmp_path, {"a.nc": {"source_id": "A"}})
    assert labels(agg.arrays) == [""] and "[" not in repr(agg)


def test_facets_that_differ_and_no_others(tmp_path: Path) -> None:
    same = {"mip_era": "CMIP6", "table_id": "day", "history": "x"}
    agg = opened(tmp_path, {"a.nc": {**same, "source_id": "A"}, "b.nc": {**same, "source_id": "B"}, "c.nc": same})
    assert labels(agg.arrays) == ["source_id: A", "source_id: B", ""]
    assert ["A", "(time:"] in [line.split()[:2] for line in repr(agg).splitlines()]
    facts = aggregation_facts(agg)
    assert [f["which"] for f in facts] == labels(agg.arrays)
    assert facts[1]["facets"] == {"mip_era": "CMIP6", "source_id": "B", "table_id": "day"}


def test_numbers_and_table_names(tmp_path: Path) -> None:
    table = "Table Omon (26 July 2011) 25bb94"
    attrs = {"table_id": table, "model_id": "M"}
    agg = opened(tmp_path, {"a.nc": {**attrs, "realization": 1}, "b.nc": {**attrs, "realization": 2}})
    assert labels(agg.arrays) == ["realization: 1", "realization: 2"]
    assert aggregation_facts(agg)[0]["facets"]["table_id"] == "Omon"
    with pytest.raises(aa.NotFoundError, match="they differ in realization: 1, 2"):
        agg["tas"]


def test_other_attributes_where_facets_are_alike(tmp_path: Path) -> None:
    files: dict[str, Any] = {n: {"source_id": "A", "tracking_id": n} for n in ("a.nc", "b.nc")} | {"c.nc": {"source_id": "B"}}
    agg = opened(tmp_path, files, b={"units": "Pa"})
    assert labels(agg.arrays) == ["source_id: A, units: K", "source_id: A, units: Pa", "source_id: B"]
    with pytest.raises(aa.NotFoundError, match="they differ in source_id: A, B; units: K, Pa"):
        agg["tas"]


def test_only_units_and_the_like_follow_facets_that_distinguish(tmp_path: Path) -> None:
    files: dict[str, Any] = {f"{n}.nc": {"source_id": n.upper(), "cmor_version": f"3.{n}"} for n in "ab"}
    with pytest.raises(aa.NotFoundError, match=r"they differ in source_id: A, B$"):
        opened(tmp_path, files)["tas"]
    with pytest.raises(aa.NotFoundError, match=r"they differ in source_id: A, B; units: K, Pa$"):
        opened(tmp_path, files, b={"units": "Pa"})["tas"]


def test_folders_and_files_where_nothing_else_differs(tmp_path: Path) -> None:
    for name, shift in (("a/x.nc", 0.0), ("b/x.nc", 1.0), ("b/y.nc", 2.0)):
        write(tmp_path / name, cube([0, 1], lats=[10 + shift, 20 + shift * 2, 33]))
    agg = aa.open(tmp_path)
    assert labels(agg.arrays) == [f"in {tmp_path}/a", f"in {tmp_path}/b", f"in {tmp_path}/b"]
    assert labels(agg.arrays[1:]) == ["from x.nc", "from y.nc"]
    reasons = " ".join(r.reason for r in agg.refusals)
    assert "a/x.nc, b/x.nc" in reasons and "x.nc, y.nc" in reasons and len(agg.refusals) == 2


def test_a_file_that_is_named_once(tmp_path: Path) -> None:
    made = cube([0, 1])
    write(tmp_path / "a.nc", {**made, "other": (*made["tas"][:2], {**TAS, "units": "Pa"})})
    (refusal,) = aa.open(tmp_path).refusals
    assert refusal.files == (str(tmp_path / "a.nc"),) and refusal.arrays == ("tas", "other")
    assert refusal.reason.endswith(": a.nc") and refusal.reason.count("a.nc") == 1
    refusals = aa.open(tmp_path, rules=aa.Rules(units={"air_temperature": "degC"})).refusals
    assert [r.arrays for r in refusals] == [("tas", "other"), ("other",)]
    assert [r.reason.count("a.nc") for r in refusals] == [1, 1] and "'degC'" in refusals[1].reason


@pytest.mark.parametrize(
    ("uris", "short", "folder"),
    [
        ([], [], ""),
        (["/d/a.nc"], ["a.nc"], "/d"),
        (["/d/a.zarr/", "/d/b.zarr"], ["a.zarr", "b.zarr"], "/d"),
        (["/d/1/a.nc", "/d/2/a.nc", "/d/2/b.nc"], ["1/a.nc", "2/a.nc", "2/b.nc"], "/d"),
        (["/d/a.nc", "/d/2/a.nc"], ["a.nc", "2/a.nc"], "/d"),
        (["/1/a.nc", "2/a.nc"], ["/1/a.nc", "2/a.nc"], ""),
        (["/d/a.nc", "/d/a.nc"], ["a.nc", "a.nc"], "/d"),
    ],
)
def test_paths_as_short_as_they_can_be(uris: list[str], short: list[str], folder: str) -> None:
    assert short_paths(uris) == short and common_folder(uris) == folder


# Rules that name what no array has


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ({"new_dimension": r"lat=tas_(\d)"}, ("'lat' already", "tas_1.nc")),
        ({"new_dimension": r"time=tas_(\d)"}, ("'time' already",)),
        ({"new_dimension": r"height=tas_(\d)"}, ("'height' already",)),
        ({"units": {"tsa": "degC"}}, ("units names 'tsa'", "tas")),
        ({"units": {"tas": "foo"}}, ("'tas'", "'foo'")),
        ({"units": {"time": "days since yesterday"}}, ("days since yesterday",)),
        ({"versions": "nothere"}, ("versions='nothere'", "height")),
        ({"order": {"time": "name"}}, ("time has a coordinate, which gives the order",)),
    ],
)
def test_rules_that_fit_no_array(tmp_path: Path, rules: dict[str, Any], words: tuple[str, ...]) -> None:
    for step in range(2):
        write(tmp_path / f"tas_{step + 1}.nc", scalar_height(step))
    with pytest.raises((aa.AggregationError, aa.UnitsError)) as error:
        aa.open(tmp_path, rules=aa.Rules(**rules))
    assert "\n" not in str(error.value) and all(word in str(error.value) for word in words), error.value


@pytest.mark.parametrize(
    "rules",
    [
        aa.Rules.era5(),
        aa.Rules(versions="height"),
        *(aa.Rules(units={name: units}) for name, units in (("air_temperature", "degC"), ("tas", "K"), ("height", "km"))),
        aa.Rules(units={"time": "days since 1999-02-28"}),
        aa.Rules(new_dimension=r"member=tas_(\d)"),
    ],
    ids=str,
)
def test_rules_that_fit(tmp_path: Path, rules: aa.Rules) -> None:
    for step in range(2):
        write(tmp_path / f"tas_{step + 1}.nc", scalar_height(0 if rules.new_dimension else step))
    assert aa.open(tmp_path, rules=rules)["tas"].size == 12


def scalar_height(step: float) -> dict[str, tuple[Any, ...]]:
    """Return variables of one step, at a height that is a scalar coordinate."""
    made = cube([step])
    made["height"] = ((), 2.0, {"units": "m", "standard_name": "height"})
    made["tas"] = (*made["tas"][:2], {**TAS, "coordinates": "height"})
    return made


def test_order_of_a_dimension_with_a_coordinate_in_some_files(tmp_path: Path) -> None:
    write(tmp_path / "a.nc", cube([0, 1]))
    write(tmp_path / "b.nc", cube([0, 1], time=None))
    assert len(aa.open(tmp_path, rules=aa.Rules(order={"time": "name"}))) == 2


def test_times_of_rows_of_different_lengths(tmp_path: Path) -> None:
    for name, days in (("a", range(9)), ("b", range(20, 29))):
        with netCDF4.Dataset(tmp_path / f"{name}.nc", "w") as file:
            file.createDimension("station", 3)
            file.createDimension("obs", 9)
            sizes = file.createVariable("rowSize", "i4", ("station",))
            sizes.sample_dimension = "obs"
            sizes[:] = [2, 3, 4]
            station = file.createVariable("station", "i4", ("station",))
            station[:] = np.arange(3) + days[0]
            time = file.createVariable("time", "f8", ("obs",))
            time.setncatts({"units": "days since 2000-01-01", "standard_name": "time"})
            time[:] = np.array(days)
            temp = file.createVariable("temp", "f4", ("obs",))
            temp.setncatts({"units": "K", "coordinates": "time"})
            temp[:] = 280.0
    agg = aa.open(tmp_path)
    assert agg["temp"].shape == (6,) and agg.check().ok
    assert time_range(agg["temp"]) == ("2000-01-01", "2000-01-29")
    assert "2000-01-01 to 2000-01-29" in repr(agg)
    assert "2000-01-01" in page(agg) and agg["temp"]._repr_html_() and agg._repr_html_()
