"""The CF-1.13 part of an index: its rules, and other readers."""

import os
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import unquote, urlsplit

import netCDF4
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aggarray as aa
from tests.index import test_round_trip as kinds
from tests.support.examples import examples
from tests.support.netcdf import LAT, LON, TAS, TIME, cube, field, write
from tests.support.tilings import tilings

FORBIDDEN = ("grid_mapping_name", "dimensions", "geometry_type", "interpolation_name", "cf_role")


def words(variable: Any, attribute: str) -> list[str]:
    return variable.getncattr(attribute).split() if attribute in variable.ncattrs() else []


def aggregated(file: netCDF4.Dataset) -> dict[str, dict[str, Any]]:
    """Return the aggregation variables by name with their terms, checking the rules of CF section 2.8."""
    result = {}
    for name, variable in file.variables.items():
        assert re.fullmatch(r"[^\s/]+", name)
        if "aggregated_data" not in variable.ncattrs():
            assert "aggregated_dimensions" not in variable.ncattrs()
            continue
        assert variable.dimensions == ()
        assert not set(variable.ncattrs()) & {"scale_factor", "add_offset", *FORBIDDEN}
        dimensions = words(variable, "aggregated_dimensions")
        assert all(d in file.dimensions for d in dimensions) and len(set(dimensions)) == len(dimensions)
        pairs = words(variable, "aggregated_data")
        assert all(k.endswith(":") for k in pairs[::2]) and len(pairs) % 2 == 0
        features = {k[:-1]: file.variables[v] for k, v in zip(pairs[::2], pairs[1::2], strict=True)}
        assert set(features) in ({"map", "uris", "identifiers"}, {"map", "unique_values"})
        result[name] = {"dimensions": dimensions, **features}
        check_map(file, dimensions, features)
        if "uris" in features:
            check_uris(file, features)
    return result


def sizes(features: dict[str, Any], dimensions: list[str]) -> list[list[int]]:
    """Return the sizes of the fragments along each dimension."""
    rows = np.ma.filled(features["map"][...], -1)
    if not dimensions:
        assert rows.shape == () and rows == 1
        return []
    assert rows.dtype.kind == "i" and rows.shape[0] == len(dimensions)
    kept = [[n for n in row if n > 0] for row in rows.tolist()]
    # Padding comes last, and at least one row has none.
    for row, own in zip(rows.tolist(), kept, strict=True):
        assert row[: len(own)] == own
    assert max(map(len, kept)) == rows.shape[1]
    return kept


def check_map(file: netCDF4.Dataset, dimensions: list[str], features: dict[str, Any]) -> None:
    along = sizes(features, dimensions)
    assert [sum(row) for row in along] == [len(file.dimensions[d]) for d in dimensions]
    for feature in ("uris", "unique_values"):
        if feature in features:
            assert list(features[feature].shape) == [len(row) for row in along]


def check_uris(file: netCDF4.Dataset, features: dict[str, Any]) -> None:
    """Check that URIs resolve against the folder of the file, and that fragments have their variable."""
    uris, names = features["uris"], features["identifiers"]
    assert uris.dtype is str and names.dtype is str
    assert names.shape in ((), uris.shape)
    for uri, name in np.broadcast(np.asarray(uris[...]), np.asarray(names[...])):
        path = resolved(file.filepath(), str(uri))
        assert os.path.exists(path), path
        if os.path.isfile(path):
            with netCDF4.Dataset(path) as data:
                assert str(name) in data.variables or (str(name).startswith("/") and data[str(name)] is not None)


def resolved(index: str, uri: str) -> str:
    """Resolve a URI with the standard library (RFC 3986)."""
    parts = urlsplit(uri)
    assert parts.query == "" and parts.fragment == ""
    if parts.scheme:
        assert parts.scheme == "file" and parts.netloc == "" and parts.path.startswith("/")
        return unquote(parts.path, errors="surrogateescape")
    assert not uri.startswith(("/", "#")) and uri.isascii() and " " not in uri
    return os.path.join(os.path.dirname(index), unquote(parts.path, errors="surrogateescape"))


def check_names(file: netCDF4.Dataset) -> None:
    """Check that attributes refer to existing variables, and coordinate variables are stored by value."""
    for variable in file.variables.values():
        for attribute in ("coordinates", "bounds", "climatology", "grid_mapping", "cell_measures"):
            stated = words(variable, attribute)
            named = (
                [w for w in stated if not w.endswith(":")] if attribute == "cell_measures" else [w.rstrip(":") for w in stated]
            )
            assert all(n in file.variables for n in named), (variable.name, attribute, stated)
            if attribute in ("bounds", "climatology") and stated:
                bounds = file.variables[stated[0]]
                assert bounds.dimensions[: len(variable.dimensions)] == variable.dimensions
    for name, variable in file.variables.items():
        if name in file.dimensions and variable.dimensions == (name,):
            assert "aggregated_data" not in variable.ncattrs() and "coordinates" not in variable.ncattrs()


def assemble(file: netCDF4.Dataset, name: str, features: dict[str, Any]) -> np.ma.MaskedArray:
    """Assemble an aggregation variable of plain fragments with netCDF4."""
    along = sizes(features, features["dimensions"])
    out = np.ma.masked_all(tuple(sum(row) for row in along), file.variables[name].dtype)
    if "uris" not in features:
        return out
    edges = [np.cumsum([0, *row]) for row in along]
    uris, names = np.asarray(features["uris"][...]), np.asarray(features["identifiers"][...])
    for cell in np.ndindex(*map(len, along)):
        where = tuple(slice(e[i], e[i + 1]) for e, i in zip(edges, cell, strict=True))
        with netCDF4.Dataset(resolved(file.filepath(), str(uris[cell]))) as data:
            values = data[str(names[cell] if names.shape else names[()])][...]
        out[where] = values.reshape(out[where].shape)
    return out


@pytest.mark.parametrize("make", kinds.KINDS, ids=lambda k: k.__name__)
@pytest.mark.parametrize("relative", [True, False])
def test_rules_of_the_convention(tmp_path: Path, make: Callable[[Path], None], relative: bool) -> None:
    make(tmp_path / "data")
    agg = aa.open(tmp_path / "data")
    report = agg.save(tmp_path / "index.nc", relative=relative)
    with netCDF4.Dataset(tmp_path / "index.nc") as file:
        assert file.Conventions.split() == ["CF-1.13"]
        result = aggregated(file)
        check_names(file)
        told = " ".join(p.message for p in report.problems)
        written = [n for n in file.variables if n in result]
        assert len(written) + len(report.problems) >= len(agg)
        for array in agg:
            base = str(array.name).rpartition("/")[2]
            here = [n for n in result if n == base or n.startswith(f"{base}_")]
            assert here or str(array.name) in told
        for name, features in result.items():
            if "uris" in features:
                uris = [str(u) for u in np.atleast_1d(features["uris"][...]).ravel()]
                assert all(u.startswith("file:///") != relative for u in uris), name
    assert not [p for p in report.problems if p.kind != "convention"]


@given(st.lists(tilings(native=True), min_size=1, max_size=2))
@settings(max_examples=examples(30))
def test_rules_of_tilings_in_memory(tmp_path_factory: pytest.TempPathFactory, drawn: list[Any]) -> None:
    path = tmp_path_factory.mktemp("cf") / "index.nc"
    arrays = tuple(t.master() for t in drawn)
    report = aa.Aggregation(arrays).save(path)
    with netCDF4.Dataset(path) as file:
        result = aggregated(file)
        check_names(file)
        plain = [
            v
            for n, v in file.variables.items()
            if n.startswith("unnamed") and n not in result and "_unique" not in n and "_map" not in n
        ]
        assert len(result) + len(plain) + len(report.problems) == len(arrays)
        for variable in plain:
            fitting = [a.read(masked=True) for a in arrays if a.shape == variable.shape]
            assert any(compare(variable[...], values) for values in fitting)


def compare(found: np.ma.MaskedArray, wanted: np.ma.MaskedArray) -> bool:
    """Compare values with those of netCDF, for which NaN is missing too."""
    one, other = (np.ma.masked_invalid(np.ma.atleast_1d(a).astype("f8")).filled(1e30) for a in (found, wanted))
    return np.array_equal(one, other)


def test_values_assembled_with_netcdf4(tmp_path: Path) -> None:
    for t in range(3):
        for y in range(2):
            write(tmp_path / "data" / f"{t}{y}.nc", cube([t, t + 0.5], lats=[y * 10.0, y * 10.0 + 1, y * 10.0 + 2]))
    agg = aa.open(tmp_path / "data")
    assert agg.save(tmp_path / "index.nc").ok
    with netCDF4.Dataset(tmp_path / "index.nc") as file:
        [(name, features)] = aggregated(file).items()
        assert name == "tas" and features["dimensions"] == ["time", "lat", "lon"]
        values = assemble(file, "tas", features)
        for d in features["dimensions"]:
            np.testing.assert_array_equal(file.variables[d][...], agg["tas"].coords[d][...])
            assert file.variables[d].units == agg["tas"].coords[d].units
        assert (file.variables["tas"].units, file.variables["tas"].standard_name) == ("K", "air_temperature")
    np.testing.assert_array_equal(values.filled(np.nan), agg["tas"][...])
    assert values.dtype == agg["tas"].dtype


def test_a_coordinate_with_missing_values(tmp_path: Path) -> None:
    attrs = {"units": "m", "_FillValue": -9.0}
    write(
        tmp_path / "a.nc",
        cube(
            [0],
            depth=(("lat",), [1.0, -9.0, 3.0], attrs),
            tas=(("time", "lat", "lon"), np.zeros((1, 3, 2)), {**TAS, "coordinates": "depth"}),
        ),
    )
    aa.open(tmp_path / "a.nc").save(tmp_path / "index.nc")
    with netCDF4.Dataset(tmp_path / "index.nc") as file:
        aggregated(file)
        result = file.variables["depth"][...]
        assert np.ma.getmaskarray(result).tolist() == [False, True, False]


def test_conflicting_names(tmp_path: Path) -> None:
    """Two datasets with different latitudes of one name, and variables with names of dimensions and tables."""
    for source, lats in (("A", (1.0, 2.0)), ("B", (1.0, 2.5)), ("C", (1.0, 2.0, 3.0))):
        for t in range(2):
            values = field([t], lats, (0, 5))
            content = cube(
                [t],
                lats=lats,
                tas_uris=(("time", "lat"), values[:, :, 0], {"units": "1"}),
                fragments_2=(("time",), [float(t)], {"units": "1"}),
            )
            write(tmp_path / "data" / f"{source}{t}.nc", content, {"source_id": source})
    agg = aa.open(tmp_path / "data")
    assert agg.save(tmp_path / "index.nc").ok
    with netCDF4.Dataset(tmp_path / "index.nc") as file:
        result = aggregated(file)
        check_names(file)
        assert len(result) == len(agg)
        seen = []
        for name, features in result.items():
            lat = [d for d in features["dimensions"] if d.startswith("lat")]
            seen += [
                tuple(file.variables[d][...].tolist())
                for d in lat
                if name.startswith("tas") and len(features["dimensions"]) == 3
            ]
            values = assemble(file, name, features)
            assert any(a.shape == values.shape and np.array_equal(a[...], values) for a in agg)
        assert sorted(seen) == [(1.0, 2.0), (1.0, 2.0, 3.0), (1.0, 2.5)]
        assert len({v.dimensions for n, v in file.variables.items() if n in file.dimensions and n.startswith("time")}) == 1


@pytest.mark.parametrize(
    "name", ["a b.nc", "per%cent.nc", "per%20cent.nc", "a:b.nc", "ü.nc", "#a?b.nc", "a;b=c&d.nc", "~a.nc", "[a].nc"]
)
@pytest.mark.parametrize("where", [".", "deep/er", "../up", "with space", "c:d"])
def test_unusual_paths(tmp_path: Path, name: str, where: str) -> None:
    folder = tmp_path / "home" / where
    target = os.path.normpath(folder / name)
    write(target, cube([0]))
    index = tmp_path / "home" / "in dex.nc"
    index.parent.mkdir(exist_ok=True)
    for relative in (True, False):
        assert aa.open([target]).save(index, relative=relative).ok
        with netCDF4.Dataset(index) as file:
            [features] = aggregated(file).values()
            uri = str(np.asarray(features["uris"][...]).ravel()[0])
            assert os.path.normpath(resolved(str(index), uri)) == target
            assert uri.startswith("file:///") != relative
        index.unlink()


def test_arrays_that_the_convention_cannot_express(tmp_path: Path) -> None:
    """They are in the group only, the report has the reason, and the other arrays are written."""
    for t in range(2):
        write(tmp_path / f"{t}.nc", cube([t], lats=(3.0, 2.0, 1.0)))
    tas = aa.open([tmp_path / "0.nc", tmp_path / "1.nc"])["tas"]
    from dataclasses import replace

    piece = aa.SubArray.from_array(np.zeros((1, 3, 2), "f4"), dimensions=tas.dimensions, units="K", directions=tas.directions)
    file0 = aa.SubArray.from_file(tmp_path / "0.nc", "tas")
    mixed = aa.MasterArray.from_subarrays(
        [([(0, 1), (0, 3), (0, 2)], file0), ([(1, 2), (0, 3), (0, 2)], piece)],
        dimensions=tas.dimensions,
        directions=tas.directions,
    )
    hole = aa.MasterArray.from_subarrays(
        [([(0, 1), (0, 3), (0, 2)], file0)], dimensions=tas.dimensions, shape=(2, 3, 2), directions=tas.directions
    )
    cases = {
        "part": tas.lazy[:, 1:],
        "picked": tas.lazy[:, [0, 2]],
        "flipped": tas.flip("lat"),
        "turned": tas.transpose(),
        "mixed": mixed,
        "hole": hole,
        "chain": tas.to_units("degC").to_units("K"),
        "flags": aa.MasterArray.from_subarrays([([(0, 1)], aa.SubArray.from_array([True]))], dimensions=("x",)),
        "dates": aa.MasterArray.from_subarrays(
            [([(0, 1)], aa.SubArray.from_array(np.array(["2000"], "M8[ns]")))], dimensions=("x",)
        ),
        "nothing": aa.MasterArray.from_subarrays([], dimensions=("x",), shape=(0,)),
    }
    arrays = tuple(replace(a, name=n) for n, a in cases.items())
    report = aa.Aggregation((*arrays, tas)).save(tmp_path / "index.nc")
    told = {p.message.partition(":")[0]: p.message for p in report.problems}
    assert set(told) == set(cases) and not report.ok
    assert all(p.file == str(tmp_path / "index.nc") and "only aggarray can read it" in p.message for p in report.problems)
    for name, text in (
        ("part", "lat|part"),
        ("flipped", "revers"),
        ("turned", "order"),
        ("mixed", "memory"),
        ("hole", "missing"),
        ("dates", "type"),
    ):
        assert re.search(text, told[name].partition(":")[2]), told[name]
    with netCDF4.Dataset(tmp_path / "index.nc") as file:
        assert list(aggregated(file)) == ["tas"]
        check_names(file)


def test_attributes_that_refer_to_variables(tmp_path: Path) -> None:
    """Bounds, measures, mappings, ancillary variables and formula terms of files of two datasets."""
    for source in ("A", "B"):
        lats = np.array([1.0, 2.0]) + (source == "B") / 4
        content = {
            "time": (("time",), [0.0], TIME),
            "lev": (
                ("lev",),
                [0.5, 0.25],
                {"standard_name": "atmosphere_sigma_coordinate", "units": "1", "formula_terms": "sigma: lev ps: ps ptop: ptop"},
            ),
            "lat": (("lat",), lats, {**LAT, "bounds": "lat_bnds"}),
            "lat_bnds": (("lat", "nv"), np.stack([lats - 0.5, lats + 0.5], -1)),
            "lon": (("lon",), [0.0, 5.0], LON),
            "ptop": ((), 1.0, {"units": "Pa"}),
            "ps": (("time", "lat"), np.ones((1, 2)), {"units": "Pa"}),
            "area": (("lat", "lon"), np.ones((2, 2)) * lats[0], {"units": "m2", "standard_name": "cell_area"}),
            "crs": ((), np.int32(0), {"grid_mapping_name": "latitude_longitude", "earth_radius": lats[0]}),
            "tas": (
                ("time", "lev", "lat", "lon"),
                np.zeros((1, 2, 2, 2)),
                {
                    **TAS,
                    "cell_measures": "area: area",
                    "grid_mapping": "crs: lat lon",
                    "ancillary_variables": "quality",
                    "cell_methods": "lat: mean",
                },
            ),
            "quality": (("time", "lat"), np.ones((1, 2), "i1"), {"units": "1", "standard_name": "air_temperature status_flag"}),
        }
        write(tmp_path / f"{source}.nc", content, {"source_id": source})
    agg = aa.open(tmp_path)
    agg.save(tmp_path / "index.idx")
    with netCDF4.Dataset(tmp_path / "index.idx") as file:
        result = aggregated(file)
        check_names(file)
        for name in [n for n in result if n.startswith("tas") and "lev" in " ".join(result[n]["dimensions"])]:
            variable = file.variables[name]
            lat = next(d for d in result[name]["dimensions"] if d.startswith("lat"))
            mapping = variable.grid_mapping.split()
            assert mapping[1:] == [lat, "lon"] and mapping[0].endswith(":")
            assert float(file.variables[mapping[0][:-1]].earth_radius) == file.variables[lat][0]
            area = variable.cell_measures.split()[1]
            assert file.variables[area][...].ravel()[0] == file.variables[lat][0]
            assert file.variables[file.variables[lat].bounds].shape == (2, 2)
            assert variable.cell_methods == f"{lat}: mean"


def test_xarray_opens_it_without_a_warning(tmp_path: Path) -> None:
    xarray = pytest.importorskip("xarray")
    kinds.grids(tmp_path / "data")
    kinds.two_of_a_name(tmp_path / "data" / "two")
    aa.open(tmp_path / "data").save(tmp_path / "index.nc")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with xarray.open_dataset(tmp_path / "index.nc", engine="netcdf4") as result:
            assert result.attrs["Conventions"] == "CF-1.13"
            assert {"tas", "tas_2"} <= set(result.variables)
            result.load()


# Another reader of the convention


@pytest.fixture(scope="module")
def cfdm() -> ModuleType:
    """Return cfdm, the reference implementation of the convention."""
    try:
        import cfdm
    except (ImportError, OSError) as error:  # OSError: a system library is missing
        pytest.skip(f"cfdm does not load: {error}")
    return cfdm


def differing(folder: Path) -> None:
    """Write files that differ in units, packing, missing values and dtype."""
    values = field([0], (10, 20, 30), (0, 5))
    values[0, 0, 0] = -1
    write(folder / "0.nc", cube([0], tas=(("time", "lat", "lon"), values, {**TAS, "_FillValue": np.float32(-1)})))
    celsius = field([1], (10, 20, 30), (0, 5)) - 273.15
    celsius[0, 1, 1] = 1e20
    write(
        folder / "1.nc",
        cube([1], tas=(("time", "lat", "lon"), celsius.astype("f8"), {**TAS, "units": "degC", "missing_value": 1e20})),
    )
    packed = np.arange(6, dtype="i2").reshape(1, 3, 2)
    more = {"scale_factor": 0.5, "add_offset": 250.0, "_FillValue": np.int16(3)}
    write(folder / "2.nc", cube([2], tas=(("time", "lat", "lon"), packed, {**TAS, **more})))
    write(folder / "3.nc", cube([3]), format="NETCDF3_CLASSIC")


def whole(folder: Path) -> None:
    for t in range(3):
        values = np.full((1, 3, 2), t, "i4")
        values[0, t, 0] = -9 - t
        attrs = {"units": "1", "long_name": "count", "_FillValue": np.int32(-9 - t)}
        write(folder / f"{t}.nc", cube([t], tas=None, count=(("time", "lat", "lon"), values, attrs)))


@pytest.mark.parametrize("make", [differing, whole], ids=lambda k: k.__name__)
@pytest.mark.parametrize("relative", [True, False])
def test_cfdm_reads_the_same(
    tmp_path: Path, cfdm: ModuleType, make: Callable[[Path], None], relative: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path / "data")
    agg = aa.open(tmp_path / "data")
    assert agg.save(tmp_path / "index.nc", relative=relative).ok
    # cfdm resolves relative URIs against the working directory.
    monkeypatch.chdir(tmp_path)
    [array] = agg
    [result] = cfdm.read("index.nc")
    values = result.data.array
    expected = array.read(masked=True)
    assert values.shape == expected.shape and values.dtype == expected.dtype
    np.testing.assert_array_equal(np.ma.getmaskarray(values), np.ma.getmaskarray(expected))
    np.testing.assert_allclose(np.ma.filled(values, 0), np.ma.filled(expected, 0), rtol=1e-6)
    assert result.get_property("units") == array.units
