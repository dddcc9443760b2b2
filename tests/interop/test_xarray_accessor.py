"""The accessor ``aggarray`` of DataArrays: reductions of lazy arrays without dask."""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

import aggarray as aa
from aggarray.interop.xarray_accessor import master_array_of
from tests.support.netcdf import cube, write
from tests.support.paths import ROOT

ARCHIVE = str(ROOT / "sample_data" / "archive")


def opened(**options: Any) -> xr.Dataset:
    return xr.open_dataset(ARCHIVE, engine="aggarray", **options)


@pytest.mark.parametrize("operation", ["mean", "sum", "min", "max", "std", "var", "count", "any", "all", "argmin", "argmax"])
@pytest.mark.parametrize("dim", ["time", "lat"])
def test_equal_to_the_methods_of_xarray(operation: str, dim: str) -> None:
    lazy, ours = opened()["tas"], opened()["tas"]
    theirs = getattr(lazy, operation)(dim)
    reduced = getattr(ours.aggarray, operation)(dim)
    assert isinstance(reduced, xr.DataArray) and reduced.dims == theirs.dims and reduced.name == "tas"
    np.testing.assert_allclose(reduced, theirs, rtol=1e-12)
    for name in theirs.coords:
        assert reduced[name].variable.identical(theirs[name].variable), name


def test_groups_and_weights() -> None:
    lazy, ours = opened()["tas"], opened()["tas"]
    monthly = ours.aggarray.mean("time", by="month")
    np.testing.assert_allclose(monthly, lazy.groupby("time.month").mean(), rtol=1e-12)
    assert monthly.dims == ("month", "lat", "lon") and monthly["month"].values.tolist() == list(range(1, 13))
    assert monthly.attrs["units"] == "K" and "time: mean" in monthly.attrs["cell_methods"]
    area = np.cos(np.radians(lazy["lat"]))
    for weights in (area, {"lat": area.values}):
        mean = ours.aggarray.mean("lat", weights=weights)
        np.testing.assert_allclose(mean, lazy.weighted(area).mean("lat"), rtol=1e-12)
    labels = xr.DataArray(np.arange(365) % 3, dims="time")
    np.testing.assert_allclose(ours.aggarray.max("time", by=labels), lazy.groupby(labels.rename("group")).max())
    assert np.isclose(ours.aggarray.reduce("mean"), lazy.mean(), rtol=1e-12)


def test_climatologies_anomalies_quantiles_and_running_means() -> None:
    lazy, ours = opened()["tas"].astype("f8"), opened()["tas"].rename(lat="y")
    groups = lazy.groupby("time.season")
    season = ours.aggarray.climatology("season")
    assert season.dims == ("season", "y", "lon") and season["season"].values.tolist() == ["DJF", "MAM", "JJA", "SON"]
    np.testing.assert_allclose(season, groups.mean().sel(season=season["season"].values), rtol=1e-12)
    anomaly = ours.aggarray.anomaly("season")
    np.testing.assert_allclose(anomaly, (groups - groups.mean()).transpose(*lazy.dims), atol=1e-10)
    assert anomaly["time"].identical(ours["time"])
    np.testing.assert_allclose(ours.aggarray.anomaly("season", climatology=season), anomaly, atol=1e-10)
    running = ours.aggarray.running_mean(10)
    np.testing.assert_allclose(running, lazy.rolling(time=10).mean()[9:], rtol=1e-12)
    np.testing.assert_allclose(ours.aggarray.running_mean(3, "y"), lazy.rolling(lat=3).mean()[:, 2:], rtol=1e-12)
    np.testing.assert_allclose(ours.aggarray.quantile([0.1, 0.5], "y"), lazy.quantile([0.1, 0.5], "lat"), rtol=1e-12)
    np.testing.assert_allclose(ours.aggarray.median("time"), lazy.median("time"), rtol=1e-12)
    with pytest.raises(aa.NotFoundError, match="no dimension 'lat' to reduce"):
        ours.aggarray.running_mean(3, "lat")


SELECTIONS: dict[str, Callable[[xr.DataArray], xr.DataArray]] = {
    "isel": lambda a: a.isel(time=slice(300, 10, -7), lat=[4, 1, 9]),
    "isel of isel": lambda a: a.isel(time=slice(100, None)).isel(time=[3, 2, 1], lon=-1),
    "sel": lambda a: a.sel(time=slice("2001-03", "2001-05"), lat=slice(0, 60)),
    "one": lambda a: a.sel(time="2001-03-04T12:00").isel(lat=[2]),
    "transpose": lambda a: a.transpose("lon", "lat", "time"),
    "transpose of isel": lambda a: a.isel(time=slice(7, 9), lat=3).transpose("lon", "time"),
    "rename": lambda a: a.rename(lat="y", lon="x").isel(y=slice(2, 9)),
    "isel of transpose": lambda a: a.transpose("lat", "lon", "time").isel(lat=slice(1, 3), lon=[4, 5]),
    "coordinates": lambda a: a.assign_coords(lat=range(18), region="all", row=("lat", list("abcdefghijklmnopqr"))).rename(
        "t2m"
    ),
    "one latitude": lambda a: a.isel(lat=[3], lon=[5]).transpose("lon", "lat", "time"),
}


@pytest.mark.parametrize("name", SELECTIONS)
@pytest.mark.parametrize("last", [True, False])
def test_a_selection_is_applied_first(name: str, last: bool) -> None:
    select = SELECTIONS[name]
    dim = select(opened()["tas"]).dims[-1 if last else 0]
    theirs, ours = select(opened()["tas"]).mean(dim), select(opened()["tas"]).aggarray.mean(dim)
    assert ours.dims == theirs.dims and ours.name == theirs.name
    np.testing.assert_allclose(ours, theirs, rtol=1e-12)
    for coordinate in theirs.coords:
        assert ours[coordinate].variable.identical(theirs[coordinate].variable), coordinate


@given(st.data())
def test_any_chain_of_selections(data: st.DataObject) -> None:
    values = np.arange(60.0).reshape(3, 4, 5)
    piece = aa.SubArray.from_array(values, dimensions=("x", "y", "z"))
    array = aa.MasterArray.from_subarrays([([(0, n) for n in values.shape], piece)], dimensions=("x", "y", "z"), name="v")
    lazy = array.to_xarray()
    for _ in range(data.draw(st.integers(0, 4))):
        dim = data.draw(st.sampled_from(lazy.dims)) if lazy.dims else None
        if dim is None or lazy.sizes[dim] == 0:
            break
        size = lazy.sizes[dim]
        indices = st.integers(-size, size - 1)
        key = data.draw(st.one_of(st.slices(size), indices, st.lists(indices, min_size=1, max_size=6)))
        lazy = lazy.isel({dim: key})
        if data.draw(st.booleans()):
            lazy = lazy.transpose(*data.draw(st.permutations(lazy.dims)))
    is_renamed = data.draw(st.booleans())
    if is_renamed:
        lazy = lazy.rename(dict(zip(lazy.dims, data.draw(st.permutations(lazy.dims)), strict=True)))
    try:
        master, names = master_array_of(lazy)
    except aa.AggregationError as error:
        assert "no elements" in str(error) or "point by point" in str(error)
        return
    assert tuple(names) == lazy.dims and tuple(names.values()) == master.dimensions
    assert np.array_equal(master[...], lazy.values) and (is_renamed or master.dimensions == lazy.dims)


def test_dimensions_whose_names_are_exchanged() -> None:
    values = np.arange(16.0).reshape(4, 4)
    piece = aa.SubArray.from_array(values, dimensions=("x", "y"))
    array = aa.MasterArray.from_subarrays([([(0, 4), (0, 4)], piece)], dimensions=("x", "y"), name="v")
    for dims in (("x", "y"), ("y", "x")):
        lazy, plain = (
            a.transpose(*dims).rename(x="y", y="x") for a in (array.to_xarray(), xr.DataArray(values, dims=["x", "y"]))
        )
        for name in ("x", "y"):
            assert lazy.aggarray.sum(name).values.tolist() == plain.sum(name).values.tolist()


@pytest.mark.parametrize("transposed_first", [False, True])
def test_a_position_selected_twice_beside_a_single_one(transposed_first: bool) -> None:
    values = np.arange(60.0).reshape(3, 4, 5)
    piece = aa.SubArray.from_array(values, dimensions=("x", "y", "z"))
    array = aa.MasterArray.from_subarrays([([(0, n) for n in values.shape], piece)], dimensions=("x", "y", "z"), name="v")
    lazy = array.to_xarray().isel(x=[1])
    lazy = lazy.transpose("y", "x", "z").isel(y=[2, 2]) if transposed_first else lazy.isel(y=[2, 2]).transpose("y", "x", "z")
    assert lazy.aggarray.sum("z").values.tolist() == [[values[1, 2].sum()]] * 2


def test_packed_and_integer_values(tmp_path: Path) -> None:
    with xr.open_dataset(Path(ARCHIVE) / "tas_200108.nc", engine="aggarray") as packed:
        theirs = packed["tas"].copy(deep=True).astype("f8").mean("time")
        np.testing.assert_allclose(packed["tas"].aggarray.mean("time"), theirs, rtol=1e-6)
    flags = np.array([[1, -1], [3, -1], [2, 5]], "i2")
    write(tmp_path / "a.nc", {"v": (("x", "y"), flags, {"_FillValue": np.int16(-1)})})
    lazy = xr.open_dataset(tmp_path / "a.nc", engine="aggarray")["v"]
    assert lazy.aggarray.mean("x").values.tolist() == [2, 5] and lazy.aggarray.count("y").values.tolist() == [1, 1, 2]


def test_without_dask_and_without_loading() -> None:
    lazy = opened()["tas"]
    with mock.patch.dict("sys.modules", {"dask": None, "dask.array": None}):
        lazy.aggarray.mean("time")
    assert not lazy.variable._in_memory
    again = pickle.loads(pickle.dumps(lazy))
    assert again.aggarray.max().item() == lazy.aggarray.max().item()


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda a: a.load(), "tas is not read from files: its values are in memory; use the methods of xarray"),
        (lambda a: a + 1, "in memory"),
        (lambda a: a.time, "time is not read from files"),
        (lambda a: a.chunk({"time": 30}), "tas is a dask array; open it without chunks="),
        (lambda a: a.isel(time=xr.DataArray([1, 2], dims="p"), lat=xr.DataArray([1, 2], dims="p")), "selected point by point"),
        (lambda a: opened(mask_and_scale=False)["tas"].assign_attrs(_FillValue=1e20), "open it with mask_and_scale=True"),
        (lambda a: xr.DataArray([1.0], dims="time"), "in memory"),
    ],
)
def test_what_aggarray_does_not_read(change: Callable[[xr.DataArray], xr.DataArray], text: str) -> None:
    pytest.importorskip("dask")
    with pytest.raises(aa.AggregationError, match=text):
        change(opened()["tas"]).aggarray.mean("time")


def test_invalid_arguments() -> None:
    lazy = opened()["tas"].rename(lat="y")
    with pytest.raises(aa.NotFoundError, match="no dimension 'lat' to reduce; the dimensions are"):
        lazy.aggarray.mean("lat")
    with pytest.raises(TypeError, match="ddof"):
        lazy.aggarray.std("y", ddof=1)
    with pytest.raises(aa.AggarrayError, match="'moth'"):
        lazy.aggarray.mean("time", by="moth")


def test_a_tree_and_a_group(tmp_path: Path) -> None:
    for model, size in (("A", 3), ("B", 4)):
        write(tmp_path / f"{model}.nc", cube(np.arange(5.0), np.linspace(-40, 40, size)), {"source_id": model})
    tree = xr.open_datatree(tmp_path, engine="aggarray")
    assert [float(tree[m]["tas"].aggarray.count()) for m in ("A", "B")] == [30, 40]


def test_dimensions_by_the_name_of_xarray() -> None:
    ours = opened()["tas"].aggarray
    assert ours.mean(dim="time").identical(ours.mean("time"))
    assert ours.reduce("max", dim=["lat", "lon"]).identical(ours.max(["lat", "lon"]))
    assert ours.quantile(0.5, dim="time").identical(ours.quantile(0.5, "time"))
    assert ours.running_mean(3, dim="time").identical(ours.running_mean(3))
    with pytest.raises(TypeError, match="give one of them"):
        ours.mean("time", dim="time")
    with pytest.raises(TypeError, match="unexpected keyword argument 'axis'"):
        ours.mean("time", axis=0)
