"""The xarray engine, compared with the engines of xarray.

xarray is the oracle: datasets that it writes and reads by its own engines, in the style of its tests of backends.
"""

import pickle
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import cftime
import numpy as np
import pytest

pytest.importorskip("xarray", reason="the engine needs xarray: install the extra 'xarray'")
pytest.importorskip("dask.array", reason="chunks need dask: install the extra 'xarray'")

import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

import aggarray as aa
from aggarray.xarray_engine import AggarrayBackendEntrypoint as Engine
from tests.support.netcdf import cube, write

# The specification of Zarr 3 does not have the strings that xarray writes yet.
pytestmark = [
    pytest.mark.filterwarnings("ignore:The data type:zarr.errors.UnstableSpecificationWarning"),
    pytest.mark.filterwarnings("ignore:Consolidated metadata:zarr.errors.ZarrUserWarning"),
]

FORMATS = ("NETCDF4", "NETCDF3_64BIT", "zarr2", "zarr3")


def stored(dataset: Any, path: Path, form: str) -> tuple[str, str]:
    """Write a dataset; return the path, and the engine of xarray that reads it."""
    if form.startswith("zarr"):
        dataset.to_zarr(path, zarr_format=int(form[-1]))
        return str(path), "zarr"
    dataset.to_netcdf(path, format=form, engine="netcdf4")
    return str(path), "netcdf4"


def packed(**encoding: Any) -> Any:
    """Return a dataset of a variable with missing values, with this encoding."""
    result = xr.Dataset({"a": ("x", [1.0, np.nan, 3.0])}, {"x": [10, 20, 30]})
    result["a"].encoding = encoding
    return result


def sample() -> Any:
    """Return a dataset like that of xarray's own tests: several dimensions, coordinates, times, text."""
    random = np.random.default_rng(0)
    result = xr.Dataset({n: (d, random.normal(size=(8, 9)[: len(d)])) for n, d in (("a", ("y", "x")), ("b", ("y",)))})
    result["c"] = (("z", "y"), random.normal(size=(10, 8)), {"units": "K", "numbers": np.array([1, 2, 3])})
    result = result.assign_coords(
        x=0.5 * np.arange(9),
        z=list("abcdefghij"),
        time=("time", np.array(["2000-01-01T00", "2000-01-01T06", "2000-01-03T00"], "M8[ns]")),
        number=("z", np.array([0, 1, 2, 0, 0, 1, 1, 2, 2, 3])),
    )
    return result.assign(when=("time", np.array([1, 2, 3], "i2"))).assign_attrs(title="ü", number=np.float32(3))


DATASETS: Mapping[str, Callable[[], Any]] = {
    "sample": sample,
    "text": lambda: xr.Dataset({"x": ("t", ["ab", "cdef", "é"]), "y": ("t", np.array(["a", "", "b"], object))}),
    "boolean": lambda: xr.Dataset({"x": ("t", [True, False, False])}),
    "no dimensions": lambda: xr.Dataset({"a": 1, "b": 2.5, "s": "text", "d": np.datetime64("2000-01-01", "ns")}),
    "no elements": lambda: xr.Dataset({"a": ("t", np.zeros(0)), "b": (("t", "x"), np.zeros((0, 3), "f4"))}),
    "no times": lambda: xr.Dataset({"t": ("x", np.array(["2000-01-01", "NaT"], "M8[ns]"))}),
    "calendar": lambda: xr.Dataset({"t": ("x", [cftime.Datetime360Day(2000, 2, 30), cftime.Datetime360Day(2000, 3, 1)])}),
    "two-dimensional coordinates": lambda: xr.Dataset(
        {"t2": (("y", "x"), np.ones((2, 3)))},
        {"lat": (("y", "x"), np.arange(6.0).reshape(2, 3)), "lon": (("y", "x"), np.arange(6.0).reshape(2, 3)), "h": 2.0},
    ),
    "coordinates of nothing": lambda: xr.Dataset({"a": ("x", [1, 2])}, {"z": ("q", [1.0, 2.0]), "w": 5}),
    "missing": packed,
    "packed": lambda: packed(dtype="int16", scale_factor=0.1, add_offset=5.0, _FillValue=-1),
    "packed in float32": lambda: packed(dtype="int16", scale_factor=np.float32(0.1), add_offset=np.float32(5), _FillValue=-1),
    "integers": lambda: packed(dtype="int32", _FillValue=-1),
    "small integers": lambda: packed(dtype="int16", _FillValue=-1),
    "unsigned": lambda: packed(dtype="i1", _FillValue=np.int8(-1), _Unsigned="true"),
    "big-endian": lambda: xr.Dataset({"a": ("x", np.arange(3, dtype=">f4")), "b": ("x", np.arange(3, dtype=">i2"))}),
    "types": lambda: xr.Dataset({t: ("x", np.array([0, 100], t)) for t in ("i1", "i2", "i4", "f4", "f8")}),
}
FLAGS: tuple[dict[str, Any], ...] = (
    {},
    {"mask_and_scale": False},
    {"decode_times": False},
    {"decode_cf": False},
    {"decode_coords": "all"},
    {"drop_variables": ["a", "x"]},
)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("name", DATASETS)
def test_a_file_equals_that_of_xarray(tmp_path: Path, name: str, form: str) -> None:
    path, engine = stored(DATASETS[name](), tmp_path / f"a.{form}", form)
    for flags in FLAGS:
        if form == "NETCDF3_64BIT" and "decode_cf" in flags and name in ("sample", "text", "no dimensions"):
            continue  # character variables are always text here
        with xr.open_dataset(path, engine=engine, **flags) as expected:
            result = xr.open_dataset(path, engine=Engine, **flags)
            xr.testing.assert_identical(result, expected)
            for variable, one in expected.variables.items():
                assert one.dtype == result[variable].dtype or one.dtype.kind in "OUT", variable


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("name", DATASETS)
def test_a_written_copy_equals_that_of_xarray(tmp_path: Path, name: str, form: str) -> None:
    path, _ = stored(DATASETS[name](), tmp_path / "a.nc", "NETCDF4")
    result = xr.open_dataset(path, engine=Engine)
    again, engine = stored(result, tmp_path / f"b.{form}", form)
    with xr.open_dataset(path) as expected:
        theirs, _ = stored(expected, tmp_path / f"c.{form}", form)
        with xr.open_dataset(again, engine=engine) as copy, xr.open_dataset(theirs, engine=engine) as other:
            xr.testing.assert_identical(copy, other)
            if "float32" not in name or not form.startswith("zarr"):  # Zarr does not keep the dtype of a scale factor
                xr.testing.assert_equal(copy, expected)
            for variable in other.variables:
                assert same_encoding(copy[variable].encoding, other[variable].encoding), variable


def same_encoding(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether two variables are encoded alike."""
    keys = ("dtype", "units", "calendar", "_FillValue", "scale_factor", "add_offset", "_Unsigned", "coordinates")
    return all(str(one.get(key)) == str(other.get(key)) for key in keys)


def test_characters_without_an_encoding_are_text(tmp_path: Path) -> None:
    stored(xr.Dataset({"x": ("t", np.array([b"ab", b"cd"]))}), tmp_path / "a.nc", "NETCDF4")
    assert xr.open_dataset(tmp_path / "a.nc", engine=Engine)["x"].values.tolist() == ["ab", "cd"]


# Lazy indexing


def tiles(folder: Path) -> Path:
    """Write two files along time, with different encodings, and an index of them."""
    values = cube([0, 1, 2])
    write(folder / "a.nc", values)
    write(folder / "b.nc", cube([3, 4]))
    aa.open([folder / "a.nc", folder / "b.nc"]).save(folder / "ab.nca")
    return folder / "ab.nca"


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiles(tmp_path_factory.mktemp("tiles"))


def indexers(size: int) -> st.SearchStrategy[Any]:
    """Return integers, slices and lists of integers that index a dimension."""
    one = st.integers(-size, size - 1)
    return st.one_of(one, st.slices(size), st.lists(one, max_size=6))


@given(st.data())
def test_orthogonal_indexing(index: Path, data: st.DataObject) -> None:
    lazy = xr.open_dataset(index, engine=Engine, cache=False)["tas"]
    loaded = lazy.load()
    lazy = xr.open_dataset(index, engine=Engine, cache=False)["tas"]
    key = {d: data.draw(indexers(n), label=str(d)) for d, n in lazy.sizes.items() if data.draw(st.booleans())}
    xr.testing.assert_identical(lazy.isel(key), loaded.isel(key))
    again = {d: data.draw(indexers(n), label=str(d)) for d, n in lazy.isel(key).sizes.items() if n}
    xr.testing.assert_identical(lazy.isel(key).isel(again), loaded.isel(key).isel(again))


@given(st.lists(st.integers(-5, 4), min_size=1, max_size=5), st.lists(st.integers(-3, 2), min_size=1, max_size=5))
def test_vectorized_indexing(index: Path, days: list[int], rows: list[int]) -> None:
    lazy = xr.open_dataset(index, engine=Engine, cache=False)["tas"]
    count = min(len(days), len(rows))
    key = {"time": ("point", days[:count]), "lat": ("point", rows[:count])}
    xr.testing.assert_identical(lazy.isel(key), xr.open_dataset(index, engine=Engine)["tas"].load().isel(key))


def test_reads_are_lazy(index: Path, tmp_path: Path) -> None:
    home = tiles(tmp_path)
    (tmp_path / "b.nc").unlink()
    lazy = xr.open_dataset(home, engine=Engine, cache=False)["tas"]
    assert not lazy.variable._in_memory and lazy.isel(time=slice(0, 3)).values.shape == (3, 3, 2)
    with pytest.raises(aa.MissingFileError, match=r"b\.nc"):
        lazy.isel(time=3).load()


@pytest.mark.parametrize("chunks", [None, {}])
def test_pickles_are_small_and_complete(index: Path, chunks: Any) -> None:
    dataset = xr.open_dataset(index, engine=Engine, chunks=chunks)
    for item in (dataset, dataset["tas"], dataset["tas"].isel(time=slice(1, 4))):
        sent = pickle.dumps(item)
        xr.testing.assert_identical(pickle.loads(sent), item)
    assert len(pickle.dumps(xr.open_dataset(index, engine=Engine)["tas"].variable)) < 3000


# Many files


def test_many_files_equal_open_mfdataset(tmp_path: Path) -> None:
    whole = sample().drop_vars(["when"]).drop_dims("z")
    whole["t"] = (("time", "x"), np.random.default_rng(1).normal(size=(3, 9)).astype("f4"))
    for step in range(3):
        how = {"time": {"units": "hours since 1999-01-01"}}
        whole.isel(time=slice(step, step + 1)).to_netcdf(tmp_path / f"{step}.nc", encoding=how)
    expected = xr.open_mfdataset(
        str(tmp_path / "*.nc"), combine="by_coords", data_vars="minimal", coords="minimal", compat="override", join="exact"
    )
    for source in (str(tmp_path / "*.nc"), [tmp_path / f"{n}.nc" for n in (2, 0, 1)], tmp_path):
        xr.testing.assert_identical(xr.open_dataset(source, engine=Engine), expected)
    chunked = xr.open_dataset(str(tmp_path / "*.nc"), engine=Engine, chunks={})
    assert chunked["t"].chunks == expected["t"].chunks == ((1, 1, 1), (9,))
    expected.close()


def test_chunks(index: Path) -> None:
    def sizes(chunks: Any) -> Any:
        return xr.open_dataset(index, engine=Engine, chunks=chunks)["tas"].chunks

    assert sizes(None) is None and sizes({}) == ((3, 2), (3,), (2,))
    assert sizes("auto") == ((5,), (3,), (2,)) and sizes({"lat": 3}) == sizes({})
    with pytest.warns(UserWarning, match="separate the stored chunks"):
        assert sizes({"time": 2}) == ((2, 2, 1), (3,), (2,))
    array = aa.open(index)["tas"]
    assert array.to_xarray(chunks={}).chunks == sizes({}) and array.to_xarray(chunks={"time": -1}).chunks == sizes("auto")


# Real data


def of_one_dataset(folder: Path) -> list[list[Path]]:
    """Return the files of real model runs, one list per run of several files."""
    folders = sorted({path.parent for path in (folder / "cmip6").rglob("*.nc")})
    result = [sorted(one.glob("*.nc")) for one in folders]
    return [paths for paths in result if len(paths) > 1]


def test_real_files_equal_those_of_xarray(shared_data: Path) -> None:
    other = [shared_data / "ostia_monthly.nc", *(shared_data / "nemo").glob("*.nc")]
    for path in [*sorted((shared_data / "cmip6").rglob("*.nc"))[::9], *other]:
        with xr.open_dataset(path) as expected:
            xr.testing.assert_identical(xr.open_dataset(path, engine=Engine), expected)


@pytest.mark.heavy
def test_real_runs_equal_open_mfdataset(shared_data: Path, tmp_path: Path) -> None:
    runs = of_one_dataset(shared_data)
    assert len(runs) > 5
    for number, paths in enumerate(runs[::3]):
        how: dict[str, Any] = {"data_vars": "minimal", "coords": "minimal", "compat": "override", "join": "override"}
        expected = xr.open_mfdataset(paths, combine_attrs="drop_conflicts", **how)
        result = aa.open(paths)
        result.save(tmp_path / f"{number}.nca")
        for one in (result.to_xarray(), xr.open_dataset(tmp_path / f"{number}.nca", engine=Engine, chunks={})):
            xr.testing.assert_equal(one, expected)
            assert one["ta"].attrs == expected["ta"].attrs and one["time"].encoding["units"] and one["ta"].dtype == "f4"
        expected.close()
