"""Fields of `Rules` and presets as options of the xarray engine."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

import aggarray as aa
from tests.support.netcdf import cube, write

xr = pytest.importorskip("xarray")
Engine = pytest.importorskip("aggarray.xarray_engine").AggarrayBackendEntrypoint


def shifted(steps: list[int], by: float) -> dict[str, Any]:
    """Return the variables of a file whose values differ from those of other files."""
    variables = cube(steps)
    names, values, attrs = variables["tas"]
    return {**variables, "tas": (names, values + by, attrs)}


@pytest.fixture
def members(tmp_path: Path) -> Path:
    """Two members of two steps each."""
    for member in (1, 2):
        for step in range(2):
            write(tmp_path / f"r{member}_{step}.nc", shifted([step], member), {"variant_label": f"r{member}i1p1f1"})
    return tmp_path


@pytest.fixture
def overlapping(tmp_path: Path) -> Path:
    """Two files that share a step with different values."""
    for number, steps in enumerate(([0, 1], [1, 2])):
        write(tmp_path / f"{number}.nc", shifted(steps, number))
    return tmp_path


def test_the_engine_takes_every_rule() -> None:
    names = {field.name for field in dataclasses.fields(aa.Rules)} | {"preset", "rules"}
    assert names <= set(Engine.open_dataset_parameters)


@pytest.mark.parametrize("as_list", [False, True])
def test_new_dimension(members: Path, as_list: bool) -> None:
    source: Any = [str(path) for path in sorted(members.glob("*.nc"))] if as_list else str(members)
    ds = xr.open_dataset(source, engine=Engine, new_dimension="variant_label")
    assert ds["tas"].dims[0] == "variant_label" and ds["variant_label"].values.tolist() == ["r1i1p1f1", "r2i1p1f1"]
    assert ds.identical(aa.open(source, rules=aa.Rules(new_dimension="variant_label")).to_xarray())
    by_path = xr.open_dataset(source, engine=Engine, new_dimension=r"member=(r\d)_", separate_by=[], chunks={})
    assert by_path.sizes["member"] == 2


def test_rules_of_an_index_change(overlapping: Path) -> None:
    aa.open(overlapping).save(overlapping / "a.nca")
    for source in (sorted(map(str, overlapping.glob("*.nc"))), str(overlapping / "a.nca")):
        for overlap in ("first", "last"):
            ds = xr.open_dataset(source, engine=Engine, overlap=overlap, along=["time"])
            expected = aa.open(source, rules=aa.Rules(overlap=overlap, along=["time"]))
            assert ds.sizes["time"] == 3 and ds.identical(expected.to_xarray())


def test_fields_change_given_rules_and_presets(overlapping: Path) -> None:
    source = str(overlapping)
    rules = aa.Rules(units={"tas": "degC"})
    ds = xr.open_dataset(source, engine=Engine, rules=rules, overlap="first")
    assert ds["tas"].attrs["units"] == "degC" and ds.sizes["time"] == 3
    ds = xr.open_dataset(source, engine=Engine, preset="cmip", overlap="last", units={"tas": "degC"})
    assert ds["tas"].attrs["units"] == "degC" and ds.sizes["time"] == 3
    tree = xr.open_datatree(source, engine=Engine, preset="era5", overlap="first")
    assert tree.sizes["time"] == 3


def test_a_preset_decides_about_holes(tmp_path: Path) -> None:
    for lat, lon in ((0, 0), (0, 9), (9, 0)):
        write(tmp_path / f"{lat}{lon}.nc", cube([0], lats=(lat, lat + 1.0), lons=(lon, lon + 1.0)))
    filled = xr.open_dataset(str(tmp_path), engine=Engine)
    assert (filled.sizes["lat"], filled.sizes["lon"]) == (4, 4)
    tree = xr.open_datatree(str(tmp_path), engine=Engine, preset="cmip")
    assert len(tree.children) > 1


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"overlapp": "first"}, r"no option 'overlapp'; did you mean 'overlap'. the options are: rules, .*, group$"),
        ({"new_dimensions": "a"}, "did you mean 'new_dimension'"),
        ({"preset": "cmp"}, "preset='cmp' is invalid; give one of cmip, era5"),
        ({"preset": "cmip", "rules": aa.Rules()}, "rules and preset='cmip'; give one of them"),
        ({"rules": {"overlap": "first"}}, "rules={'overlap': 'first'} is invalid; give aggarray.Rules"),
        ({"rules": {}, "overlap": "first"}, "rules={} is invalid; give aggarray.Rules"),
        ({"overlap": "best"}, "overlap='best' is invalid; give one of refuse, first, last"),
    ],
)
def test_invalid_rules(overlapping: Path, options: dict[str, Any], text: str) -> None:
    with pytest.raises(aa.AggregationError, match=text):
        xr.open_dataset(str(overlapping), engine=Engine, **options)
