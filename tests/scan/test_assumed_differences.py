"""Detection of files that differ from their group, opened with `Rules(trust="assume")`."""

import json
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pytest
import xarray as xr

import aggarray as aa
from aggarray.scan.resolution import _descriptions
from tests.support.messages import says
from tests.support.netcdf import LAT, TAS, TIME, cube, field, write

ASSUME = aa.Rules(trust="assume")
LATS, LONS = np.array([10.0, 20.0, 30.0]), np.array([0.0, 5.0])
DIMENSIONS = ("time", "lat", "lon")
HEIGHT = ((), 2.0, {"units": "m", "standard_name": "height"})

Files = Callable[[int, bool], tuple[dict[str, Any], dict[str, Any]]]


@pytest.fixture(autouse=True)
def forget() -> None:
    _descriptions._cache.clear()


def series(folder: Path, make: Files, odd: int | None = 4, count: int = 8) -> list[str]:
    """Write files of three steps each, one of which may differ."""
    return [write(folder / f"tas_{n:02}.nc", *make(n, n == odd)) for n in range(count)]


def data(n: int, attrs: Any = None, dtype: Any = "f4") -> tuple[Any, ...]:
    """Return the data variable of a file."""
    return DIMENSIONS, field(3 * n + np.arange(3), LATS, LONS, dtype), {**TAS, **(attrs or {})}


def file(n: int, **changes: Any) -> dict[str, Any]:
    return cube(3 * n + np.arange(3), **changes)


def assumed_files(agg: aa.Aggregation) -> list[str]:
    return [Path(s.uri).name for s in agg._provenance.structures() if s.assumed is not None]


def bare_dimension(n: int, odd: bool) -> Any:
    return file(n, lat=(("lat",), LATS, LAT) if odd else None), {}


def global_coordinates(n: int, odd: bool) -> Any:
    return file(n, height=HEIGHT if odd else None), {"coordinates": "height"} if odd else {}


def dangling_coordinates(n: int, odd: bool) -> Any:
    return file(n, tas=data(n, {"coordinates": "height"}), height=HEIGHT if odd else None), {}


def dangling_bounds(n: int, odd: bool) -> Any:
    bounds = (("lat", "bnds"), np.stack([LATS - 5, LATS + 5], 1))
    return file(n, lat=(("lat",), LATS, {**LAT, "bounds": "lat_bnds"}), lat_bnds=bounds if odd else None), {}


def dangling_mapping(n: int, odd: bool) -> Any:
    mapping = ((), 0, {"grid_mapping_name": "latitude_longitude"})
    return file(n, tas=data(n, {"grid_mapping": "crs"}), crs=mapping if odd else None), {}


def dangling_measure(n: int, odd: bool) -> Any:
    area = (("lat", "lon"), np.ones((3, 2)), {"units": "m2", "standard_name": "cell_area"})
    return file(n, tas=data(n, {"cell_measures": "area: areacella"}), areacella=area if odd else None), {}


def instances(n: int, odd: bool) -> Any:
    stations = (("lat",), np.array([7, 8, 9]), {"cf_role": "timeseries_id"})
    return file(n, station=stations if odd else None), {}


def claimed_as_coordinate(n: int, odd: bool) -> Any:
    other = (DIMENSIONS, np.ones((3, 3, 2)), {"standard_name": "rain", "coordinates": "tas"})
    return file(n, other=other if odd else None), {}


def claimed_as_bounds(n: int, odd: bool) -> Any:
    parent = (("time", "lat"), np.ones((3, 3)), {"standard_name": "rain", "units": "degC", "bounds": "tas"})
    attrs = {"standard_name": "air_temperature"}
    tas = (DIMENSIONS, field(3 * n + np.arange(3), LATS, LONS), attrs)
    return file(n, tas=tas, parent=parent if odd else None), {}


def own_facet(n: int, odd: bool) -> Any:
    return file(n, tas=data(n, {"source_id": "N" if odd else "M"})), {}


def facet_of_a_group(n: int, odd: bool) -> Any:
    return {f"in/{name}": v for name, v in file(n).items()}, {}


def other_name(n: int, odd: bool) -> Any:
    attrs = {"standard_name": "unknown", "long_name": "of the sea" if odd else "of the air"}
    return file(n, tas=data(n, attrs)), {}


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (bare_dimension, "its coordinates are lat, lon, time, not lon, time as in"),
        (global_coordinates, "its coordinates are height, not nothing as in"),
        (dangling_coordinates, "its coordinates are height, lat, lon, time, not lat, lon, time as in"),
        (dangling_bounds, "its coordinates are lat_bnds, not nothing as in"),
        (dangling_mapping, "its coordinates are crs, lat, lon, time, not lat, lon, time as in"),
        (dangling_measure, "its coordinates are areacella, lat, lon, time, not lat, lon, time as in"),
        (instances, "(its coordinates are lat, lon, station, time, not lat, lon, time as in|are station, not nothing as in)"),
        (claimed_as_coordinate, "is a coordinate, not data as in"),
        (claimed_as_bounds, "bounds of parent, not of nothing as in"),
        (own_facet, "source_id is 'N', not 'M' as in"),
        (other_name, "long_name is 'of the sea', not 'of the air' as in"),
    ],
)
def test_deviating_variables_raise_errors(tmp_path: Path, make: Files, text: str) -> None:
    paths = series(tmp_path, make)
    verified, agg = aa.open(tmp_path), aa.open(tmp_path, rules=ASSUME)
    apart = [a for a in verified if paths[4] in a._matrix.references.uris and a.name == "tas"]
    assert all(a.shape[0] < 24 or a.units != agg["tas"].units or set(a.coords) != set(agg["tas"].coords) for a in apart)
    assert agg["tas"].shape == (24, 3, 2)
    for array in (a for a in agg if paths[4] in a._matrix.references.uris):
        with pytest.raises(aa.FormatError, match=says(text, r"tas_00\.nc.*tas_04\.nc.*trust='verify'")):
            array[...]
    with pytest.raises(aa.FormatError, match=text):
        agg.save(tmp_path / "index.nca")
    assert [p.file for p in agg.check().problems if "trust='verify'" in p.message] == [paths[4]]
    # Equal files give no problem.
    assert aa.open([*paths[:4], *paths[5:]], rules=aa.Rules(trust="assume")).check().problems == tuple(
        aa.open([*paths[:4], *paths[5:]]).check().problems
    )


def test_absent_cell_measure(tmp_path: Path) -> None:
    paths = series(tmp_path, lambda n, odd: dangling_measure(n, not odd))
    agg = aa.open(tmp_path, rules=ASSUME)  # joining compares, and so verifies, cell measures
    (refusal,) = agg.refusals
    told = "its coordinates are lat, lon, time, not areacella, lat, lon, time as in"
    assert refusal.files[-1] == paths[4] and told in refusal.reason
    assert any(told in p.message for p in agg.check().problems)


def test_facets_of_groups(tmp_path: Path) -> None:
    paths = series(tmp_path, facet_of_a_group)
    for path in paths:
        with netCDF4.Dataset(path, "a") as opened:
            opened["in"].source_id = "N" if path == paths[4] else "M"
    agg = aa.open(tmp_path, rules=ASSUME)
    assert len(aa.open(tmp_path)) == 2 and len(agg) == 1
    with pytest.raises(aa.FormatError, match=r"source_id of group 'in' is 'N', not 'M' as in.*tas_04\.nc.*verify"):
        agg["in/tas"][...]
    assert not agg.check().ok


def test_global_coordinates_attribute_of_one_probe(tmp_path: Path) -> None:
    for odd in (0, 7):
        folder = tmp_path / str(odd)
        series(folder, lambda n, _, odd=odd: (file(n, height=HEIGHT), {"coordinates": "height"} if n == odd else {}))
        assert assumed_files(aa.open(folder, rules=ASSUME)) == []


# Checks


def test_check_reports_other_variables(tmp_path: Path) -> None:
    rain = (("time",), np.ones(3), {"standard_name": "rain"})
    cases: dict[str, tuple[dict[str, Any], str]] = {
        "none": (file(4, tas=None, pr=rain), "it has no 'tas' and also 'pr', unlike .*tas_00.nc"),
        "more": (file(4, pr=rain), "it has also 'pr', unlike .*tas_00.nc"),
        "group": ({**file(4), "in/tas": data(4)}, "it has also 'in/tas', unlike .*tas_00.nc"),
    }
    for name, (variables, text) in cases.items():
        paths = series(tmp_path / name, lambda n, _: (file(n), {}))
        write(paths[4], variables)
        agg = aa.open(paths, rules=ASSUME)
        (problem,) = agg.check().problems
        assert (problem.kind, problem.file) == ("unreadable", paths[4])
        assert re.search(text + r".*trust='verify'", problem.message)
        if name == "none":
            with pytest.raises(aa.FormatError, match=r"no such variable.*variable 'tas' in .*tas_04\.nc"):
                agg["tas"][...]
        else:
            np.testing.assert_array_equal(agg["tas"][...], field(np.arange(24), LATS, LONS))
        if name == "none":
            with pytest.raises(aa.FormatError, match=r"not as assumed: no such variable.*'tas' in .*tas_04\.nc.*verify"):
                agg.save(tmp_path / name / "index.nca")
            continue
        # An index is saved from verified files.
        agg.save(tmp_path / name / "index.nca")
        saved, verified = aa.open(tmp_path / name / "index.nca"), aa.open(paths)
        assert [(a.name, a.shape) for a in saved] == [(a.name, a.shape) for a in verified]


def test_check_reports_unusable_variables(tmp_path: Path) -> None:
    paths = series(tmp_path, lambda n, _: (file(n), {}))
    with netCDF4.Dataset(paths[4], "a") as opened:
        pair = opened.createCompoundType(np.dtype([("a", "f4"), ("b", "f4")]), "pair")
        opened.createVariable("wind", pair, ("time",))
    (problem,) = aa.open(paths, rules=ASSUME).check().problems
    assert "it has also 'wind'" in problem.message


@pytest.mark.parametrize("kind", ["NETCDF3_CLASSIC", "NETCDF3_64BIT_DATA"])
def test_a_file_of_another_format(tmp_path: Path, kind: str) -> None:
    paths = series(tmp_path, lambda n, _: (file(n), {}))
    write(paths[4], file(4), format=kind)
    agg = aa.open(paths, rules=ASSUME)
    with pytest.raises(aa.FormatError, match=r"it is netCDF3, not netCDF4 as in.*tas_04\.nc.*verify"):
        agg["tas"][...]
    assert ["it is netCDF3" in p.message for p in agg.check().problems] == [True]


@pytest.mark.filterwarnings("ignore:Consolidated metadata")
def test_store_with_variable_longer_than_coordinate(tmp_path: Path) -> None:
    def make(n: int, _: bool) -> Any:
        times = (("step",), 3.0 * n + np.arange(3), TIME)
        values = field(3 * n + np.arange(3), LATS, LONS)
        return file(n, time=times, tas=(("step", "lat", "lon"), values, {**TAS, "coordinates": "time"})), {}

    for n, path in enumerate(series(tmp_path / "nc", make)):
        with xr.open_dataset(path, decode_cf=False) as opened:
            opened.to_zarr(tmp_path / "zarr" / f"{n}.zarr", zarr_format=2)
    (tmp_path / "zarr" / "4.zarr" / ".zmetadata").unlink()
    meta = tmp_path / "zarr" / "4.zarr" / "tas" / ".zarray"
    meta.write_text(json.dumps({**json.loads(meta.read_text()), "shape": [4, 3, 2]}))
    agg = aa.open(tmp_path / "zarr", rules=ASSUME)
    text = "'tas': dimension 'step' has size 4, its coordinate 3"
    with pytest.raises(aa.FormatError, match=text):
        agg["tas"][...]
    assert [text in p.message for p in agg.check().problems] == [True]


def test_unwritten_time(tmp_path: Path) -> None:
    paths = series(tmp_path, lambda n, _: (file(n), {}))
    with netCDF4.Dataset(paths[4], "w") as opened:
        for name, size in (("time", None), ("lat", 3), ("lon", 2)):
            opened.createDimension(name, size)
        for name, (dimensions, values, attrs) in file(4).items():
            made = opened.createVariable(name, values.dtype, dimensions)
            made.setncatts(attrs)
            if name != "time":
                made[...] = values
    agg, verified = aa.open(paths, rules=ASSUME), aa.open(paths)
    assert [a.shape for a in agg] == [a.shape for a in verified]
    assert Path(paths[4]).name not in assumed_files(agg)


# Changes between opening and reading


REWRITTEN: dict[str, tuple[dict[str, Any], str]] = {
    "another year": (file(20), "'time'"),
    "units": (file(4, time=(("time",), 12.0 + np.arange(3), {**TIME, "units": "days since 2000-01-02"})), "'time'"),
    "calendar": (file(4, time=(("time",), 12.0 + np.arange(3), {**TIME, "calendar": "noleap"})), "'time'"),
    "type": (file(4, time=(("time",), 12 + np.arange(3), TIME)), "'time'"),
}


@pytest.mark.parametrize("name", REWRITTEN)
@pytest.mark.parametrize("before", [False, True])
def test_file_rewritten_after_opening(tmp_path: Path, name: str, before: bool) -> None:
    paths = series(tmp_path, lambda n, _: (file(n), {}))
    agg = aa.open(paths, rules=ASSUME)
    array = agg["tas"]
    lazy, part = array.lazy[12:14], array.partitions[4].data
    joined, sent = aa.concat([array.lazy[:13], array.lazy[13:]], "time"), pickle.dumps(array.lazy[10:14])
    if before:
        np.testing.assert_array_equal(array[...], field(np.arange(24), LATS, LONS))
    variables, text = REWRITTEN[name]
    write(paths[4], variables)
    reads: tuple[Callable[[], Any], ...] = (
        lambda: array[12],
        lambda: array.read(12, copy=None),
        lambda: lazy[...],
        lambda: part.read(),
        lambda: joined[...],
        lambda: pickle.loads(sent)[...],
        lambda: array.to_units("degC")[13],
        lambda: agg.save(tmp_path / "index.nca"),
    )
    for read in reads:
        with pytest.raises(aa.FormatError, match=rf"{text} changed since the files were opened.*tas_04\.nc.*; open them"):
            read()
    assert array.partitions[4].data.template.declared
    np.testing.assert_array_equal(array[:12], field(np.arange(12), LATS, LONS))
    assert any("open them again" in p.message for p in agg.check().problems)
    # Rewriting the same content raises no error.
    write(paths[4], file(4))
    np.testing.assert_array_equal(array[...], field(np.arange(24), LATS, LONS))


@pytest.mark.parametrize("kind", ["NETCDF4", "NETCDF3_CLASSIC"])
@pytest.mark.parametrize("value", [None, np.int32(3), 2.5, np.array([1, 2], "i4")])
def test_file_replaced_by_another_dataset(tmp_path: Path, kind: str, value: Any) -> None:
    def attrs(r: int) -> dict[str, Any]:
        return {"realization": f"r{r}i1" if value is None else value + r}

    for r in range(4):
        for n in range(4):
            write(tmp_path / f"r{r}" / f"{n}.nc", file(n), attrs(r), format=kind)
    agg = aa.open(tmp_path, rules=ASSUME)
    assert len(agg) == 4 and len(assumed_files(agg)) == 12
    for array in agg:
        np.testing.assert_array_equal(array[...], field(np.arange(12), LATS, LONS))
    assert agg.check().ok
    path = tmp_path / "r2" / "1.nc"
    write(path, file(1), attrs(3), format=kind)
    with pytest.raises(aa.FormatError, match=r"'time' or 'realization' changed since .*r2/1\.nc.*open them again"):
        agg.arrays[2][...]
    with pytest.raises(aa.FormatError, match=r"'realization' changed since .*r2/1\.nc.*open them again"):
        agg.save(tmp_path / "index.nca")
