"""Aggregations as mappings and context managers, and selection along the dimensions of all their arrays."""

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aggarray as aa
from aggarray.read import close_files
from tests.support.netcdf import cube, write

pytestmark = pytest.mark.quick


@pytest.fixture
def agg(tmp_path: Path) -> aa.Aggregation:
    """`tas` of two models over other times, `pr` of one, and `orog` without time."""
    for model, steps in (("X", range(4)), ("Y", range(2, 6))):
        for step in steps:
            variables = cube([step])
            if model == "X":
                variables["pr"] = (variables["tas"][0], variables["tas"][1], {"units": "mm"})
            write(tmp_path / f"{model}{step}.nc", variables, {"source_id": model})
    fixed = {name: variable for name, variable in cube([0]).items() if name in ("lat", "lon")}
    fixed["orog"] = (("lat", "lon"), np.ones((fixed["lat"][1].size, fixed["lon"][1].size)), {"units": "m"})  # type: ignore[attr-defined]
    write(tmp_path / "orog.nc", fixed, {"source_id": "X"})
    return aa.open(tmp_path)


def test_keys_values_and_items(agg: aa.Aggregation) -> None:
    assert agg.keys() == agg.names and sorted(agg.keys()) == ["orog", "pr", "tas"]
    assert list(agg.values()) == list(agg) and len(agg.values()) == 4
    assert [(name, array) for name, array in agg.items()] == [(a.name, a) for a in agg]
    unique = agg.select(source_id="X")
    assert dict(unique) == dict(unique.items()) == {a.name: a for a in unique}  # type: ignore[call-overload]
    assert agg._ipython_key_completions_() == list(agg.names)
    assert {"sel", "isel", "keys", "items", "select", "to_xarray", "arrays", "names", "close"} <= set(dir(agg))


def test_selection_along_dimensions(agg: aa.Aggregation) -> None:
    step, point = agg.isel(time=0, lat=[0, 1]), agg.sel(lat=slice(-90, 90)).sel({"lon": agg["pr"].coords["lon"][0].item()})
    for before, one, other in zip(agg, step, point, strict=True):
        key: Any = (0, [0, 1]) if "time" in before.dims else ([0, 1],)
        assert np.array_equal(one[...], before[key], equal_nan=True) and np.array_equal(other[...], before[..., 0])
    assert (step.refusals, step.skipped) == (agg.refusals, agg.skipped)
    assert step["orog"].dims == ("lat", "lon") and agg.isel()["orog"] is agg["orog"]
    assert pickle.loads(pickle.dumps(step))["pr"].sizes == step["pr"].sizes
    for by in ({"method": "nearest"}, {"method": "nearest", "tolerance": 5.0}):
        lat = agg["pr"].coords["lat"][1].item() + 0.1
        assert np.array_equal(agg.sel(lat=lat, **by)["pr"][...], agg["pr"][:, 1])  # type: ignore[arg-type]


def test_a_selection_is_saved_checked_and_opened(agg: aa.Aggregation, tmp_path: Path) -> None:
    selection = agg.isel(lat=slice(1, 2))
    selection.save(tmp_path / "selection.nca")
    again = aa.open(tmp_path / "selection.nca")
    assert [(a.name, a.sizes) for a in again] == [(a.name, a.sizes) for a in selection]
    for a, b, before in zip(again, selection, agg, strict=True):
        assert np.array_equal(a[...], b[...]) and np.array_equal(a[...], before.isel(lat=slice(1, 2))[...])
    assert selection.check().ok and again.check().ok


def test_new_files_join_a_selection(agg: aa.Aggregation, tmp_path: Path) -> None:
    """The names and attributes that were selected hold for new files too; a selection equals that of the whole."""
    few = aa.open(sorted(tmp_path.glob("*[03].nc")), variables=["tas"]).select(source_id="X").isel(lat=0)
    few.save(tmp_path / "few.nca")
    for before in (few, aa.open(tmp_path / "few.nca")):
        after = before.append(sorted(tmp_path.glob("*.nc")))
        assert set(after.names) == {"tas"} and {a.file_attrs["source_id"] for a in after} == {"X"}
        assert few["tas"].sizes in [a.sizes for a in after]


def test_names_of_the_package() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'opn'; did you mean 'open'"):
        aa.opn  # type: ignore[attr-defined]  # noqa: B018
    assert not hasattr(aa, "__wrapped__")


def test_selection_errors(agg: aa.Aggregation) -> None:
    listed = "did you mean 'lat'. the dimensions are: .*lat, lon"
    with pytest.raises(aa.NotFoundError, match=f"no array has a dimension 'latt'; {listed}"):
        agg.sel(latt=0)
    with pytest.raises(aa.SelectionError, match=f"no array has a dimension 'latt'; {listed}"):
        agg.isel(latt=0)
    with pytest.raises(aa.SelectionError, match=r"not a mapping of labels: 'tas'; .*agg.select"):
        agg.sel("tas")  # type: ignore[arg-type]
    late = agg.select("tas", source_id="Y")["tas"].coords["time"].datetimes()[-1]
    with pytest.raises(aa.NotFoundError, match=r"variable 'tas'.*leave this array out \(source_id: X\).*agg.select"):
        agg.select("tas").sel(time=late)
    with pytest.raises(aa.NotFoundError, match=r"nearest.$"):
        agg.select("tas", source_id="X").sel(time=late)
    with pytest.raises(aa.SelectionError, match=r"index 9 is out of range.*'tas'.*leave this array out"):
        agg.select("tas").isel(time=9)


def test_absent_names_are_listed_with_near_ones(agg: aa.Aggregation) -> None:
    with pytest.raises(aa.NotFoundError, match=r"no array 'TASS'; did you mean 'tas'. the arrays are: "):
        agg["TASS"]
    with pytest.raises(aa.NotFoundError, match=r"no array 0; .*; agg.arrays\[0\] is the first"):
        agg[0]  # type: ignore[index]
    with pytest.raises(aa.NotFoundError, match=r"no array \['tas'\]; .*; select several by agg.select\(\[...\]\)"):
        agg[["tas"]]  # type: ignore[index]
    with pytest.raises(aa.NotFoundError, match="no array 0; the arrays are: "):
        agg.select(0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("tas", r"the array is agg\['tas'\]"),
        *((n, rf"use .to_xarray\(\).{n} ") for n in ("mean", "groupby", "to_netcdf", "data_vars", "sizes")),
        ("apend", "did you mean 'append'"),
        ("nothing_like_it", "no attribute 'nothing_like_it'$"),
    ],
)
def test_missing_attributes_name_the_way(agg: aa.Aggregation, name: str, text: str) -> None:
    assert not hasattr(agg, name) and not hasattr(agg, "__array__")
    with pytest.raises(AttributeError, match=text):
        getattr(agg, name)


def test_a_block_closes_the_files_of_its_arrays(agg: aa.Aggregation, tmp_path: Path) -> None:
    def opened() -> set[str]:
        links = (os.path.join("/proc/self/fd", name) for name in os.listdir("/proc/self/fd"))
        return {os.readlink(link) for link in links if os.path.exists(link)}

    if not os.path.isdir("/proc/self/fd"):
        pytest.skip("no /proc/self/fd")
    close_files()
    other = agg.select("tas", source_id="Y")["tas"]
    expected = other[...]
    kept = {file for file in opened() if file.startswith(str(tmp_path))}
    with aa.open(sorted(tmp_path.glob("X*.nc"))) as few:
        assert isinstance(few, aa.Aggregation)
        values = few["tas"][...]
        assert {file for file in opened() if file.startswith(str(tmp_path))} > kept > set()
    assert {file for file in opened() if file.startswith(str(tmp_path))} == kept
    assert np.array_equal(few["tas"][...], values) and np.array_equal(other[...], expected)
    few.close()
    few.close()
    assert {file for file in opened() if file.startswith(str(tmp_path))} == kept
    with pytest.raises(ValueError, match="within"), few:
        raise ValueError("within")


def test_a_block_closes_the_files_within_stores(tmp_path: Path) -> None:
    zarr = pytest.importorskip("zarr")
    group = zarr.open_group(tmp_path / "a.zarr", mode="w", zarr_format=2)
    group.create_array("tas", shape=(4,), chunks=(2,), dtype="f4")[:] = [1, 2, 3, 4]
    group["tas"].attrs["_ARRAY_DIMENSIONS"] = ["time"]
    with aa.open(tmp_path / "a.zarr") as agg:
        assert agg["tas"][...].tolist() == [1, 2, 3, 4]
    links = (os.path.join("/proc/self/fd", name) for name in os.listdir("/proc/self/fd"))
    assert not [link for link in links if os.path.exists(link) and os.readlink(link).startswith(str(tmp_path))]
