"""Columns of the attributes that tell arrays apart."""

from pathlib import Path
from typing import Any

import pytest

import aggarray as aa
from aggarray.aggregate.differences import distinguishing_text
from aggarray.display.facets import facet_columns
from tests.support.netcdf import TAS, cube, write

CMIP6 = {"mip_era": "CMIP6", "activity_id": "CMIP", "experiment_id": "historical"}


def model(source: str, table: str, grid: str = "gn", institution: str | None = None, **attrs: Any) -> dict[str, Any]:
    frequency = {"Amon": "mon", "day": "day"}.get(table, table)
    own = {"source_id": source, "table_id": table, "grid_label": grid, "frequency": frequency}
    return {**CMIP6, **own, "institution_id": institution or f"I-{source}", **attrs}


def opened(folder: Path, *datasets: dict[str, Any], **changes: Any) -> aa.Aggregation:
    for number, attrs in enumerate(datasets):
        write(folder / f"{number}" / "a.nc", cube([0, 1], **changes), attrs)
    return aa.open(folder)


def test_facets_in_their_order_without_those_that_others_state(tmp_path: Path) -> None:
    agg = opened(tmp_path, model("M1", "Amon"), model("M1", "day"), model("M2", "day", "gr", model_id="M2"))
    names, rows = facet_columns(agg.arrays)
    assert names == ["source_id", "table_id", "grid_label"]
    assert rows == [("M1", "Amon", "gn"), ("M1", "day", "gn"), ("M2", "day", "gr")]


def test_a_facet_that_alone_tells_arrays_apart_is_a_column(tmp_path: Path) -> None:
    agg = opened(tmp_path, model("M1", "day", institution="A"), model("M1", "day", institution="B"), model("M2", "day"))
    assert facet_columns(agg.arrays) == (["institution_id", "source_id"], [("A", "M1"), ("B", "M1"), ("I-M2", "M2")])


def test_cmip5_has_models_and_tables(tmp_path: Path) -> None:
    def old(name: str, table: str, frequency: str) -> dict[str, str]:
        return {"model_id": name, "institute_id": f"I-{name}", "table_id": f"Table {table} (1 May)", "frequency": frequency}

    agg = opened(tmp_path, old("M1", "Amon", "mon"), old("M1", "day", "day"), old("M2", "day", "day"))
    assert facet_columns(agg.arrays) == (["model_id", "table_id"], [("M1", "Amon"), ("M1", "day"), ("M2", "day")])


def test_frequency_is_a_column_without_a_table(tmp_path: Path) -> None:
    agg = opened(tmp_path, {"source_id": "M1", "frequency": "mon"}, {"source_id": "M1", "frequency": "day"})
    assert facet_columns(agg.arrays) == (["frequency"], [("mon",), ("day",)])


def test_other_attributes_and_files_where_facets_are_equal(tmp_path: Path) -> None:
    for name, units in (("a", "K"), ("b", "Pa")):
        made = cube([0, 1])
        write(tmp_path / f"{name}.nc", {**made, "tas": (*made["tas"][:2], {**TAS, "units": units})}, {"source_id": "M1"})
    write(tmp_path / "c.nc", cube([0, 1]), {"source_id": "M2"})
    agg = aa.open(tmp_path)
    assert facet_columns(agg.arrays) == (["source_id", "units"], [("M1", "K"), ("M1", "Pa"), ("M2", "K")])
    for name, shift in (("x", 1.0), ("y", 2.0)):
        write(tmp_path / "more" / f"{name}.nc", cube([0, 1], lats=[10 + shift, 20 + shift * 2, 33]))
    agg = aa.open(tmp_path / "more")
    assert facet_columns(agg.arrays) == (["file"], [("x.nc",), ("y.nc",)])


def test_no_columns_for_one_array_or_for_different_names(tmp_path: Path) -> None:
    write(tmp_path / "a.nc", cube([0, 1]), {"source_id": "M1"})
    made = cube([0, 1])
    pr = (*made["tas"][:2], {"standard_name": "precipitation_flux", "units": "kg m-2 s-1"})
    write(tmp_path / "b.nc", {**_axes(made), "pr": pr}, {"source_id": "M1"})
    agg = aa.open(tmp_path)
    assert set(agg.names) == {"pr", "tas"} and facet_columns(agg.arrays) == ([], [(), ()])
    assert facet_columns([]) == ([], [])


def _axes(made: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in made.items() if name != "tas"}


def test_real_archive_has_three_columns(shared_data: Path) -> None:
    agg = aa.open(shared_data / "cmip6")
    names, rows = facet_columns(agg.arrays)
    assert names == ["source_id", "table_id", "grid_label"] and len(set(rows)) == len(agg) == 76
    assert distinguishing_text(agg.arrays).startswith("they differ in source_id: ACCESS-CM2, ")
    with pytest.raises(aa.NotFoundError, match="table_id: Amon, day"):
        agg["ta"]
