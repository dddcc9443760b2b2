"""Names of xarray that arrays take, and errors of what they do not compute."""

import copy
import operator
import pickle
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aggarray as aa
from aggarray import MasterArray, SubArray
from aggarray.arrays import hints

pytestmark = pytest.mark.quick

VALUES = np.arange(24.0).reshape(4, 3, 2)
NAMES = ("time", "lat", "lon")


@pytest.fixture
def array() -> MasterArray:
    """An array of two pieces with a coordinate."""
    pieces = [
        ([(n, n + 2), (0, 3), (0, 2)], SubArray.from_array(VALUES[n : n + 2], dimensions=NAMES, units="K")) for n in (0, 2)
    ]
    a = MasterArray.from_subarrays(pieces, dimensions=NAMES, name="tas")
    lat = SubArray.from_array([-45.0, 0.0, 45.0], dimensions=("lat",))
    lat_array = MasterArray.from_subarrays([([(0, 3)], lat)], dimensions=("lat",), name="lat")
    return replace(a, coords={"lat": lat_array})


def test_names_of_xarray(array: MasterArray) -> None:
    assert (array.dims, array.sizes) == (NAMES, {"time": 4, "lat": 3, "lon": 2})
    assert np.array_equal(array.values, VALUES) and array.values is not array.values
    with pytest.raises(TypeError, match="immutable"):
        array.sizes["time"] = 5  # type: ignore[index]
    piece = array.partitions[0].data
    assert piece is not None
    assert (piece.dims, dict(piece.sizes)) == (NAMES, {"time": 2, "lat": 3, "lon": 2})
    assert (piece.ndim, piece.size, piece.nbytes) == (3, 12, 96) and np.array_equal(piece.values, VALUES[:2])
    assert (array.partitions.dims, dict(array.partitions.sizes)) == (("time",), {"time": 2})


@pytest.mark.parametrize(
    "indexers",
    [
        {"time": 0},
        {"time": -1, "lon": np.int64(1)},
        {"lat": slice(None, None, -1), "time": [3, 0, 2]},
        {"lat": np.array([True, False, True]), "lon": slice(0, 0)},
        {},
    ],
)
def test_isel_matches_xarray(array: MasterArray, indexers: dict[str, Any]) -> None:
    xr = pytest.importorskip("xarray")
    expected = xr.DataArray(VALUES, dims=NAMES, coords={"lat": [-45.0, 0.0, 45.0]}).isel(indexers)
    for selection in (array.isel(**indexers), array.isel(indexers)):
        assert isinstance(selection, MasterArray) and (selection.dims, dict(selection.sizes)) == (expected.dims, expected.sizes)
        assert np.array_equal(selection.values, expected.values)
        assert np.array_equal(selection.coords["lat"].values, expected["lat"].values)
        assert np.array_equal(pickle.loads(pickle.dumps(selection)).values, expected.values)


def test_isel_errors(array: MasterArray) -> None:
    with pytest.raises(aa.SelectionError, match=r"no dimension 'latt'.*'tas'; did you mean 'lat'. .*: time, lat, lon"):
        array.isel(latt=0)
    with pytest.raises(aa.SelectionError, match="index 4 is out of range for dimension 'time'"):
        array.isel(time=4)
    with pytest.raises(aa.NotFoundError, match=r"no dimension 'Lat'.*did you mean 'lat'"):
        array.sel(Lat=0)
    with pytest.raises(aa.SelectionError, match=r"no labels to select: sel\('2001'\).*; give dimension=label"):
        array.sel("2001")
    with pytest.raises(aa.SelectionError, match=r"'lat' .variable 'tas'.; the coordinate is .coords\['lat'\]"):
        array["lat"]
    with pytest.raises(aa.SelectionError, match=r"select by coordinate values with .sel"):
        array["2001"]


def test_errors_of_labels(sample_archive: Path) -> None:
    array = aa.open(sample_archive)["tas"]
    with pytest.raises(aa.NotFoundError, match=r"no dimension 'latitude' .*; did you mean 'lat'."):
        array.sel(latitude=0)
    with pytest.raises(aa.NotFoundError, match=r"dimension 'lat': 500 not found .*method='nearest'; lat is in degrees_north$"):
        array.sel(lat=500)
    with pytest.raises(aa.SelectionError, match=r"2001 \(int\) is not a label .*; give text, '2001', or other dates"):
        array.sel(time=2001)
    with pytest.raises(aa.UnitsError, match=r"the times are .coords\['time'\].datetimes\(\)$"):
        array.datetimes()


def test_coordinates_print_one_in_a_line(array: MasterArray) -> None:
    lines = repr(array.coords).splitlines()
    assert lines == ["{'lat': <aggarray.MasterArray lat (lat: 3) float64> ...}"]
    both = replace(array, coords={"lat": array.coords["lat"], "height": array.coords["lat"]}).coords
    assert [line.partition(":")[0] for line in repr(both).splitlines()] == ["{'lat'", " 'height'"]
    assert repr(array.sizes) == "{'time': 4, 'lat': 3, 'lon': 2}" and repr(array.attrs) == "{}"


OPERATIONS: list[Callable[[Any], Any]] = [
    *(lambda a: a + 1, lambda a: 1 + a, lambda a: a - a, lambda a: a * np.float64(2), lambda a: np.float64(2) * a),
    *(lambda a: VALUES - a, lambda a: a / VALUES, lambda a: a**2, lambda a: a > 3, lambda a: a <= a, lambda a: a @ a),
    *(operator.neg, operator.pos, abs, lambda a: divmod(a, 2), lambda a: a & True, lambda a: ~a),
    *(np.sin, lambda a: np.add(a, 1), np.sum, np.max, lambda a: np.multiply.outer(a, a), np.isnan),
]


@pytest.mark.parametrize("number", range(len(OPERATIONS)))
def test_arithmetic_raises_with_the_way_to_compute(array: MasterArray, number: int) -> None:
    with pytest.raises(TypeError, match=r"no arithmetic \([a-z._]+\): tas; use \.to_xarray\(\) .*chunks={}.* or a\[\.\.\.\]$"):
        OPERATIONS[number](array)
    with pytest.raises(TypeError, match=r"SubArray has no arithmetic \([a-z._]+\); use \.read\(\)$"):
        OPERATIONS[number](array.partitions[0].data)


def test_arithmetic_in_place_raises(array: MasterArray) -> None:
    values = VALUES.copy()
    with pytest.raises(TypeError, match="no arithmetic"):
        values += array
    values[...] = array
    assert np.array_equal(values, VALUES)


def test_equality_is_identity(array: MasterArray) -> None:
    other = copy.copy(array)
    assert array == array and array != other and array != 3
    assert len({array, array, other}) == 2 and array in [other, array]
    with pytest.raises(TypeError, match=r"no arithmetic \(equal\)"):
        array == VALUES  # noqa: B015


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("cumsum", r"use .to_xarray\(\).cumsum \(chunks={} computes lazily\) or a\[...\].cumsum"),
        ("groupby", r"use .mean\('time', by='month'\) and the like, or .to_xarray\(\).groupby$"),
        ("rolling", r"use .running_mean\(steps\), or .to_xarray\(\).rolling$"),
        ("ffill", r"use .to_xarray\(\).ffill \(chunks={} computes lazily\)$"),
        *((n, rf"use .to_xarray\(\).{n} ") for n in ("where", "to_netcdf", "to_dataframe")),
        ("tolist", r"use a\[...\].tolist$"),
        ("plot", r"use .to_xarray\(\).plot, or .plot_coverage\(\)"),
        ("T", r"use .transpose\(\)"),
        ("loc", r"use .sel\(...\)"),
        ("chunks", "use .partitions.edges"),
        ("lat", r"the coordinate is .coords\['lat'\]"),
        ("dimension", "did you mean 'dimensions'"),
        ("nothing_like_it", "has no attribute 'nothing_like_it'$"),
    ],
)
def test_missing_attributes_name_the_way(array: MasterArray, name: str, text: str) -> None:
    assert not hasattr(array, name) and getattr(array, name, 5) == 5
    with pytest.raises(AttributeError, match=text) as caught:
        getattr(array, name)
    assert (caught.value.name, caught.value.obj) == (name, array)


def test_every_way_exists(array: MasterArray) -> None:
    xr = pytest.importorskip("xarray")
    newer = {"drop_attrs", "load_async"}
    for name in sorted(hints._DATAARRAY):
        assert f".{name}" in str(hints._hint(array, name)) or name in hints._OWN
        assert name in newer or hasattr(xr.DataArray, name), name
    for way in hints._OWN.values():
        assert hasattr(array, re.split(r"\W", way)[0]), way
    with pytest.raises(AttributeError, match=r"use .read\(\).mean$"):
        array.partitions[0].data.mean  # type: ignore[union-attr]  # noqa: B018


def test_an_error_within_a_property_is_raised(array: MasterArray, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: MasterArray) -> None:
        raise AttributeError("within")

    monkeypatch.setattr(MasterArray, "pmshape", property(broken))
    with pytest.raises(AttributeError, match="within"):
        array.pmshape  # noqa: B018
    with pytest.raises(AttributeError, match="_matrix"):
        MasterArray.__new__(MasterArray)._matrix  # noqa: B018


def test_probes_of_other_libraries(array: MasterArray) -> None:
    """Libraries that look for attributes take the array as before: they convert it, or read it lazily."""
    assert np.array_equal(np.asarray(array), VALUES) and np.mean(np.asarray(array)) == VALUES.mean()
    assert not any(hasattr(array, n) for n in ("__array_interface__", "__array_function__", "__dask_graph__", "_repr_png_"))
    for copied in (copy.copy(array), copy.deepcopy(array), pickle.loads(pickle.dumps(array))):
        assert np.array_equal(copied.values, VALUES) and copied.sizes == array.sizes
    xr, da = pytest.importorskip("xarray"), pytest.importorskip("dask.array")
    assert np.array_equal(xr.Variable(NAMES, array).values, VALUES)
    assert np.array_equal(xr.DataArray(array, dims=NAMES) + 1, VALUES + 1)
    assert np.array_equal(xr.Dataset({"a": (NAMES, array)})["a"], VALUES)
    lazy = da.from_array(array, chunks=(2, 3, 2))
    assert lazy.numblocks == (2, 1, 1) and np.array_equal((lazy + 1).compute(), VALUES + 1)
    for other in (xr.DataArray(VALUES, dims=NAMES), da.ones((4, 3, 2))):
        for operation in (operator.add, operator.lt, np.subtract):
            for operands in ((array, other), (other, array)):
                with pytest.raises(TypeError, match=r"use .to_xarray\(\)"):
                    operation(*operands)


def test_plots_take_arrays(array: MasterArray) -> None:
    plt = pytest.importorskip("matplotlib.pyplot")
    figure, axes = plt.subplots()
    (line,) = axes.plot(array.isel(lat=0, lon=0))
    assert line.get_ydata().tolist() == VALUES[:, 0, 0].tolist()
    plt.close(figure)


def test_ragged_arrays(sample_stations: Path) -> None:
    array = aa.open(sample_stations)["temperature"]
    assert array.dims == array.dimensions and array.sizes == {array.dims[0]: len(array)}
    assert np.array_equal(array.isel({array.dims[0]: 1})[...], array[1])
    assert [row.tolist() for row in array.values] == [row.tolist() for row in array]
    for compute in (lambda: array + 1, lambda: np.sin(array)):
        with pytest.raises(TypeError, match=r"temperature; use .flat.to_xarray\(\) .*or a\[:\].flat$"):
            compute()
    with pytest.raises(AttributeError, match=r"use .flat.to_xarray\(\).cumsum .*or a\[:\].flat.cumsum$"):
        array.cumsum  # noqa: B018
    with pytest.raises(aa.AggregationError, match=r"rows of different lengths cannot be reduced: mean .*; reduce .flat$"):
        array.mean()
    assert array.flat.mean()[...] == np.nanmean(array.flat[...].astype("f8"))
