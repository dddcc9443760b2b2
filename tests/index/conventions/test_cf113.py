"""Reader of CF-1.13 aggregation variables, compared with cfdm and NumPy."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pytest
import zarr

import aggarray as aa
from aggarray.index import Opening
from aggarray.index.conventions.foreign import convention_of
from aggarray.index.loading import load
from aggarray.index.saving import IndexContents, save
from aggarray.index.uris import path_map
from aggarray.storage.access import Access
from tests.support.foreign_indexes import cfdm_library, cfdm_values, foreign, fragment, opened
from tests.support.messages import says
from tests.support.netcdf import LAT, TIME, write

DATA = "map: m uris: u identifiers: i"
VALUES = np.arange(20, dtype="f4").reshape(5, 4)


def index(folder: Path, uris: Any, sizes: Any = ((2, 3), (4, -1)), **changes: Any) -> str:
    """Write an aggregation file over (time: 5, x: 4).

    ``changes``: ``attrs`` of tas, ``dtype``, ``ids``, variables to add.
    """
    attrs = {"units": "K", "aggregated_dimensions": "time x", "aggregated_data": DATA, **changes.get("attrs", {})}
    uris, sizes = np.array(uris), np.array(sizes, "i4")
    variables = {
        "time": (("time",), np.arange(5.0), TIME),
        "xx": (("x",), np.arange(4.0)),
        "tas": ((), np.zeros((), changes.get("dtype", "f4")), attrs),
        "m": (("rank", "most")[: sizes.ndim] if sizes.ndim else (), sizes, {"_FillValue": np.int32(-1)}),
        "u": (("ft", "fx")[: uris.ndim], uris),
        "i": ((), np.array(changes.get("ids", "tas"))),
        **changes.get("more", {}),
    }
    return write(folder / "index.nc", variables, {"Conventions": "CF-1.13"}, changes.get("format", "NETCDF4"))


def pair(folder: Path, **attrs: Any) -> list[list[str]]:
    """Write two fragments of VALUES, three rows below two, and return their names for an index."""
    fragment(folder / "a.nc", VALUES[:2], **attrs)
    fragment(folder / "b.nc", VALUES[2:], **attrs)
    return [["a.nc"], ["b.nc"]]


def put(group: Any, name: str, values: Any, dimensions: list[str], **attrs: Any) -> None:
    """Write an array of a Zarr group, of either version."""
    values, version = np.asarray(values), group.metadata.zarr_format
    if values.dtype.kind == "U":
        values = values.astype(object if version == 2 else np.dtypes.StringDType())
    settings: dict[str, Any] = {"dimension_names": dimensions} if version == 3 else {}
    kind = "string" if values.dtype.kind in "OT" else values.dtype
    array = group.create_array(name, shape=values.shape, dtype=kind, fill_value="" if kind == "string" else None, **settings)
    array[...] = values
    array.attrs.update({**attrs, **({"_ARRAY_DIMENSIONS": dimensions} if version == 2 else {})})


def test_fragments_make_one_array(tmp_path: Path) -> None:
    path = index(tmp_path, pair(tmp_path))
    tas = opened(path)["tas"]
    assert (tas.shape, tas.dimensions, tas.units, tas.pmshape) == ((5, 4), ("time", "x"), "K", (2,))
    np.testing.assert_array_equal(tas[...], VALUES)
    np.testing.assert_array_equal(tas[::-2, 1:3], VALUES[::-2, 1:3])
    assert sorted(tas.coords) == ["time"] and set(opened(path)) == {"tas", "xx"}
    assert not any(k.startswith("aggregated") for k in tas.attrs)


def test_values_are_those_of_cfdm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = index(tmp_path, pair(tmp_path))
    np.testing.assert_array_equal(cfdm_values(path, "tas", tmp_path, monkeypatch), opened(path)["tas"][...])


@pytest.mark.parametrize("fmt", ["NETCDF4", "NETCDF3_CLASSIC", "ZARR3"])
def test_files_written_by_cfdm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fmt: str) -> None:
    cfdm = cfdm_library()
    monkeypatch.chdir(tmp_path)
    for name, part in (("a", slice(0, 2)), ("b", slice(2, 5))):
        values = VALUES[part]
        time = (("time",), np.arange(5.0)[part], TIME)
        write(f"{name}.nc", {"time": time, "tas": (("time", "x"), values, {"units": "K"})}, {"Conventions": "CF-1.12"})
    whole = cfdm.Field.concatenate(cfdm.read("a.nc") + cfdm.read("b.nc"), axis=0)
    target = "agg.zarr" if fmt == "ZARR3" else "agg.nc"
    try:
        cfdm.write(whole, target, fmt=fmt, cfa="field")
    except (ValueError, TypeError, NotImplementedError) as error:
        pytest.skip(f"this cfdm writes no {fmt}: {error}")
    tas = opened(target)["tas"]
    np.testing.assert_array_equal(tas[...], VALUES)
    assert tas.pmshape == (2,)


def test_nothing_is_opened_before_the_first_read(tmp_path: Path) -> None:
    tas = opened(index(tmp_path, [["a.nc"], ["gone.nc"]]))["tas"]
    partition = tas.partitions[0]
    assert (partition.punits, partition.data.dtype, partition.data.uri) == ("K", np.dtype("f4"), str(tmp_path / "a.nc"))
    fragment(tmp_path / "a.nc", VALUES[:2].astype("f8") - 273.15, units="degC")
    np.testing.assert_allclose(tas[:2], VALUES[:2], rtol=1e-6)
    partition = tas.partitions[0]
    assert (partition.punits, partition.data.dtype) == ("degC", np.dtype("f8"))
    with pytest.raises(aa.MissingFileError, match=r"no such file.*variable 'tas' in .*gone\.nc"):
        tas[...]


def test_a_relative_name_is_relative_to_the_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    fragment(tmp_path / "in dex" / "a b.nc", VALUES[:2])
    fragment(tmp_path / "b%20.nc", VALUES[2:])
    (tmp_path / "in dex").mkdir(exist_ok=True)
    tas = opened(index(tmp_path / "in dex", [["a%20b.nc"], ["../b%20.nc"]]))["tas"]
    np.testing.assert_array_equal(tas[...], VALUES)


@pytest.mark.parametrize("form", ["file://{}", "file://localhost{}", "file:{}", "{}"])
def test_absolute_names(tmp_path: Path, form: str) -> None:
    pair(tmp_path)
    names = [[form.format(tmp_path / n)] for n in ("a.nc", "b.nc")]
    (tmp_path / "sub").mkdir()
    np.testing.assert_array_equal(opened(index(tmp_path / "sub", names))["tas"][...], VALUES)


def test_urls_raise_on_read(tmp_path: Path) -> None:
    path = index(tmp_path, [["https://host/a.nc"], ["s3://b/b.nc"]])
    assert opened(path)["tas"].partitions[1].data.uri == "s3://b/b.nc"
    with pytest.raises(aa.IndexFileError, match=r"https://host/a\.nc.*roots="):
        aa.open(path)["tas"][...]


def test_a_file_of_another_host_names_the_variable(tmp_path: Path) -> None:
    with pytest.raises(aa.IndexFileError, match=r"invalid file name 'file://far/a\.nc'.*variable 'tas'"):
        opened(index(tmp_path, [["file://far/a.nc"], ["b.nc"]]))


def test_prefixes_of_names_are_replaced(tmp_path: Path) -> None:
    path = index(tmp_path, [["old/a.nc"], ["old/b.nc"]])
    matrix = foreign(path, path_map({"old": "/new"})).matrices["tas"]
    assert list(matrix.references.uris) == ["/new/a.nc", "/new/b.nc"]


# Fragments


def test_omitted_dimensions_of_size_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = []
    for t in range(5):
        names.append([f"{t}.nc"])
        fragment(tmp_path / f"{t}.nc", VALUES[t], ("x",))
    path = index(tmp_path, names, ((1, 1, 1, 1, 1), (4, -1, -1, -1, -1)))
    np.testing.assert_array_equal(opened(path)["tas"][...], VALUES)


def test_an_omitted_dimension_under_other_names(tmp_path: Path) -> None:
    fragment(tmp_path / "a.nc", VALUES[0], ("points",))
    fragment(tmp_path / "b.nc", VALUES[1:], ("t", "points"))
    path = index(tmp_path, [["a.nc"], ["b.nc"]], ((1, 4), (4, -1)))
    np.testing.assert_array_equal(opened(path)["tas"][...], VALUES)


def test_extra_dimensions_of_size_one(tmp_path: Path) -> None:
    fragment(tmp_path / "a.nc", VALUES[:2, None], ("time", "height", "x"))
    fragment(tmp_path / "b.nc", VALUES[None, 2:], ("time_", "t", "x"))
    np.testing.assert_array_equal(opened(index(tmp_path, [["a.nc"], ["b.nc"]]))["tas"][...], VALUES)


def test_a_transposed_fragment(tmp_path: Path) -> None:
    values = np.arange(5 * 4).reshape(5, 4)
    fragment(tmp_path / "a.nc", values.T, ("x", "time"))
    tas = opened(index(tmp_path, [["a.nc"]], ((5,), (4,))))["tas"]
    np.testing.assert_array_equal(tas[...], values)
    np.testing.assert_array_equal(tas[1:4, ::-1], values[1:4, ::-1])
    assert tas.partitions[()].pdimensions == ("x", "time")
    np.testing.assert_array_equal(tas.partitions[()].data.read(), values.T)


@pytest.mark.parametrize(
    ("shape", "dimensions", "words"),
    [
        ((3, 4), ("time", "x"), r"dimension 'time' has size 3, but 2 in the index"),
        ((1, 4), ("time", "x"), r"dimension 'time' has size 1, but 2 in the index"),
        ((2, 5), ("t", "z"), r"dimension 'z' has size 5, but 4 for 'x' in the index"),
        ((4,), ("x",), r"its dimensions are \{'x': 4\}, but \{'time': 2, 'x': 4\} in the index"),
        ((2, 2, 4), ("r", "time", "x"), r"only those of size 1 may differ"),
    ],
)
def test_a_fragment_of_another_size(tmp_path: Path, shape: tuple[int, ...], dimensions: tuple[str, ...], words: str) -> None:
    names = pair(tmp_path)
    tas = opened(index(tmp_path, names))["tas"]
    fragment(tmp_path / "a.nc", np.zeros(shape), dimensions)
    np.testing.assert_array_equal(tas[2:], VALUES[2:])
    with pytest.raises(aa.FormatError, match=says(words, r"variable 'tas' in .*a\.nc")):
        tas[...]


def test_units_dtype_packing_and_missing_values_of_a_fragment(tmp_path: Path) -> None:
    pair(tmp_path)
    packed = {"scale_factor": 0.5, "add_offset": 1.0, "_FillValue": np.int16(-9), "units": "degC"}
    fragment(tmp_path / "a.nc", np.array([[0, 2, -9, 4]] * 2, "i2"), **packed)
    tas = opened(index(tmp_path, [["a.nc"], ["b.nc"]]))["tas"]
    assert tas.dtype == np.float32
    np.testing.assert_allclose(tas[0], np.array([1, 2, np.nan, 3], "f4") + np.float32(273.15))
    assert tas.read(masked=True).mask[0].tolist() == [False, False, True, False]


def test_a_fragment_without_units_has_those_of_the_master(tmp_path: Path) -> None:
    tas = opened(index(tmp_path, pair(tmp_path, units=None)))["tas"]
    np.testing.assert_allclose(tas.to_units("degC")[...], VALUES.astype("f8") - 273.15, rtol=1e-6)
    assert tas.partitions[0].punits == "K"


def test_units_that_do_not_convert(tmp_path: Path) -> None:
    names = pair(tmp_path)
    fragment(tmp_path / "b.nc", VALUES[2:], units="m")
    with pytest.raises(aa.UnitsError, match=r"units 'm' do not convert to 'K'.*variable 'tas' in .*b\.nc"):
        opened(index(tmp_path, names))["tas"][...]


def test_calendars_are_not_mixed(tmp_path: Path) -> None:
    days = {"units": "days since 2000-01-01", "calendar": "standard"}
    names = pair(tmp_path, **{**days, "calendar": "360_day"})
    with pytest.raises(aa.UnitsError, match="360_day"):
        opened(index(tmp_path, names, attrs=days))["tas"][...]


def test_a_packed_aggregation_variable_is_unpacked_after_assembly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = np.array([[10, 20, -1, 40]] * 5, "i2")
    fragment(tmp_path / "a.nc", stored[:2])
    fragment(tmp_path / "b.nc", stored[2:].astype("i4"))
    packing = {"scale_factor": 0.1, "add_offset": 200.0, "_FillValue": np.int16(-1)}
    path = index(tmp_path, [["a.nc"], ["b.nc"]], attrs=packing, dtype="i2")
    tas = opened(path)["tas"]
    expected = np.where(stored == -1, np.nan, stored * 0.1 + 200.0)
    assert tas.dtype == np.float64
    np.testing.assert_array_equal(tas[...], expected)
    np.testing.assert_array_equal(tas.astype("f4")[...], expected.astype("f4"))
    assert tas.read(masked=True).mask.sum() == 5


def test_missing_values_of_the_aggregation_variable(tmp_path: Path) -> None:
    values = VALUES.copy()
    values[0, 1] = values[4, 2] = -999
    fragment(tmp_path / "a.nc", values[:2])
    fragment(tmp_path / "b.nc", values[2:], _FillValue=np.float32(-999))
    tas = opened(index(tmp_path, [["a.nc"], ["b.nc"]], attrs={"_FillValue": np.float32(-999)}))["tas"]
    np.testing.assert_array_equal(tas[...], np.where(values == -999, np.nan, values))
    # A file with the same missing value needs no additional step.
    assert tas.partitions[1].data.read(masked=True).mask.sum() == 1


def test_integers_keep_their_own_missing_value(tmp_path: Path) -> None:
    values = VALUES.astype("i4")
    fragment(tmp_path / "a.nc", values[:2], _FillValue=np.int32(0))
    fragment(tmp_path / "b.nc", values[2:])
    tas = opened(index(tmp_path, [["a.nc"], ["b.nc"]], dtype="i4", attrs={"_FillValue": np.int32(-5)}))["tas"]
    assert tas[...].ravel().tolist() == [-5, *range(1, 20)]


def test_a_missing_file_may_be_filled(tmp_path: Path) -> None:
    pair(tmp_path)
    tas = replace(opened(index(tmp_path, [["a.nc"], ["gone.nc"]]))["tas"], _access=Access("fill"))
    np.testing.assert_array_equal(tas[...], np.concatenate([VALUES[:2], np.full((3, 4), np.nan)]))
    assert tas.read(masked=True).mask.sum() == 12


def test_nothing_outside_the_roots_is_opened(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    pair(tmp_path)
    result = opened(index(tmp_path / "in", [["../a.nc"], ["../b.nc"]]))["tas"]
    tas = replace(result, _access=Access(roots=(str(tmp_path / "in"),)))
    with pytest.raises(aa.IndexFileError, match=r"lies outside the folders.*a\.nc"):
        tas[...]
    assert tas.partitions[0].data.dimensions == ("time", "x")
    np.testing.assert_array_equal(replace(result, _access=Access(roots=(str(tmp_path),)))[...], VALUES)


def test_a_changed_file_is_opened_again(tmp_path: Path) -> None:
    tas = opened(index(tmp_path, pair(tmp_path)))["tas"]
    np.testing.assert_array_equal(tas[...], VALUES)
    (tmp_path / "a.nc").unlink()
    fragment(tmp_path / "a.nc", VALUES[:2].T.astype("f8") - 273.15, ("x", "time"), units="degC")
    np.testing.assert_allclose(tas[...], VALUES, rtol=1e-5, atol=1e-5)


def test_a_view_without_a_copy(tmp_path: Path) -> None:
    tas = opened(index(tmp_path, pair(tmp_path)))["tas"]
    view = tas.read(slice(0, 2), copy=False)
    assert not view.flags.writeable
    np.testing.assert_array_equal(view, VALUES[:2])


def test_a_missing_variable(tmp_path: Path) -> None:
    tas = opened(index(tmp_path, pair(tmp_path), ids="pr"))["tas"]
    with pytest.raises(aa.FormatError, match=r"no such variable.*variable 'pr' in .*a\.nc.*; it has tas"):
        tas[...]


def test_an_aggregation_of_an_aggregation(tmp_path: Path) -> None:
    names = pair(tmp_path)
    inner = Path(index(tmp_path, names)).rename(tmp_path / "inner.nc")
    tas = opened(index(tmp_path, [[inner.name]], ((5,), (4,))))["tas"]
    with pytest.raises(aa.IndexFileError, match="an aggregation variable itself"):
        tas[...]


# Lazy operations on fragments that were not opened


def test_lazy_operations_on_unresolved_fragments(tmp_path: Path) -> None:
    fragment(tmp_path / "a.nc", VALUES[:2].T, ("x", "time"))
    fragment(tmp_path / "b.nc", VALUES[2:] - np.float32(273.15), units="degC")
    tas = opened(index(tmp_path, [["a.nc"], ["b.nc"]]))["tas"]
    chain = tas.lazy[::-1, 1:].transpose().flip("x").to_units("degC").astype("f8")
    expected = VALUES[::-1, 1:].T[::-1] - np.float32(273.15)
    np.testing.assert_allclose(chain[...], expected, rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(tas.lazy[[4, 0, 1], [0, 3]][...], VALUES[np.ix_([4, 0, 1], [0, 3])], rtol=1e-5, atol=1e-4)
    np.testing.assert_array_equal(tas.lazy[1, 2][...], VALUES[1, 2])


def test_arrays_of_an_index_are_joined(tmp_path: Path) -> None:
    tas = opened(index(tmp_path, pair(tmp_path)))["tas"]
    both = aa.concat([tas, tas.lazy[1:]], "time")
    np.testing.assert_array_equal(both[...], np.concatenate([VALUES, VALUES[1:]]))
    data = tas.partitions[1].data
    again = aa.MasterArray.from_subarrays([([(0, 3), (0, 4)], data)], dimensions=("time", "x"))
    np.testing.assert_array_equal(again[...], VALUES[2:])


def test_fragments_have_the_directions_of_the_master(tmp_path: Path) -> None:
    """Decreasing coordinates reverse nothing."""
    lat = {"x": (("x",), np.array([3.0, 2.0, 1.0, 0.0]), LAT)}
    tas = opened(index(tmp_path, pair(tmp_path), more=lat))["tas"]
    assert tas.directions == (True, False)
    np.testing.assert_array_equal(tas[...], VALUES)
    np.testing.assert_array_equal(tas.flip("x")[...], VALUES[:, ::-1])
    assert tas.partitions[0].pdirections == (True, False)


def test_a_coordinate_that_is_an_aggregation_variable(tmp_path: Path) -> None:
    names = pair(tmp_path)
    for name, part in (("a", slice(0, 2)), ("b", slice(2, 5))):
        with netCDF4.Dataset(tmp_path / f"{name}.nc", "a") as file:
            file.createVariable("time", "f8", ("time",))[:] = np.arange(5.0)[part]
            file["time"].units = TIME["units"]
    # netCDF-4 files cannot hold a scalar variable that is named like a dimension.
    group = zarr.open_group(tmp_path / "index.zarr", mode="w")
    time = {**TIME, "aggregated_dimensions": "time", "aggregated_data": "map: mt uris: ut identifiers: it"}
    put(group, "time", 0.0, [], **time)
    put(group, "mt", np.array([[2, 3]], "i4"), ["one", "most"])
    put(group, "ut", ["a.nc", "b.nc"], ["ft"])
    put(group, "it", "/time", [])
    put(group, "tas", np.float32(0), [], units="K", aggregated_dimensions="time x", aggregated_data=DATA)
    put(group, "m", np.array([[2, 3], [4, 0]], "i4"), ["rank", "most"], _FillValue=0)
    put(group, "u", names, ["ft", "fx"])
    put(group, "i", "tas", [])
    tas = opened(tmp_path / "index.zarr")["tas"]
    np.testing.assert_array_equal(tas[...], VALUES)
    np.testing.assert_array_equal(tas.coords["time"][...], np.arange(5.0))


def test_a_resolved_foreign_index_is_saved(tmp_path: Path) -> None:
    stored = np.array([[10, 20, -1, 40]] * 5, "i2")
    fragment(tmp_path / "a.nc", stored[:2].T, ("x", "time"))
    fragment(tmp_path / "b.nc", stored[2:])
    packing = {"scale_factor": 0.1, "_FillValue": np.int16(-1)}
    tas = opened(index(tmp_path, [["a.nc"], ["b.nc"]], attrs=packing, dtype="i2"))["tas"]
    save(str(tmp_path / "ours.nc"), IndexContents([tas]))
    (again,) = load(str(tmp_path / "ours.nc"), Opening()).arrays
    assert again._matrix.references.templates == tas._matrix.references.templates
    np.testing.assert_array_equal(again[...], np.where(stored == -1, np.nan, stored * 0.1))


# Forms of an index


@pytest.mark.parametrize("fmt", ["NETCDF3_CLASSIC", "NETCDF3_64BIT_OFFSET"])
def test_characters_in_classic_files(tmp_path: Path, fmt: str) -> None:
    pair(tmp_path)
    path = str(tmp_path / "index.nc")
    with netCDF4.Dataset(path, "w", format=fmt) as file:
        for name, size in (("time", 5), ("x", 4), ("rank", 2), ("most", 2), ("ft", 2), ("fx", 1), ("length", 9)):
            file.createDimension(name, size)
        tas = file.createVariable("tas", "f4", ())
        tas.setncatts({"units": "K", "aggregated_dimensions": "time x", "aggregated_data": DATA})
        file.createVariable("m", "i4", ("rank", "most"))[:] = np.ma.array([[2, 3], [4, 0]], mask=[[0, 0], [0, 1]])
        file.createVariable("u", "S1", ("ft", "fx", "length"))[:] = netCDF4.stringtochar(np.array([["a.nc"], ["b.nc"]], "S9"))
        file.createVariable("i", "S1", ("length",))[:] = netCDF4.stringtochar(np.array("tas", "S9"))
    np.testing.assert_array_equal(opened(path)["tas"][...], VALUES)


@pytest.mark.parametrize("version", [2, 3])
def test_a_zarr_store_with_raw_padding(tmp_path: Path, version: int) -> None:
    pair(tmp_path)
    group = zarr.open_group(tmp_path / "index.zarr", mode="w", zarr_format=version)
    put(group, "tas", np.float32(0), [], units="K", aggregated_dimensions="time x", aggregated_data=DATA)
    put(group, "m", np.array([[2, 3], [4, -2147483647]], "i4"), ["rank", "most"])
    put(group, "u", [["a.nc"], ["b.nc"]], ["ft", "fx"])
    put(group, "i", "tas", [])
    tas = opened(tmp_path / "index.zarr")["tas"]
    assert (tas.dimensions, tas.shape) == (("time", "x"), (5, 4))
    np.testing.assert_array_equal(tas[...], VALUES)


def test_identifiers_for_each_fragment(tmp_path: Path) -> None:
    write(tmp_path / "both.nc", {"up/one": (("time", "x"), VALUES[:2]), "two": (("y", "x"), VALUES[2:])})
    path = index(tmp_path, [["both.nc"], ["both.nc"]], ids="")
    with netCDF4.Dataset(path, "a") as file:
        ids = file.createVariable("ids", str, ("ft", "fx"))
        ids[:] = np.array([["/up/one"], ["two"]], object)
        file["tas"].aggregated_data = "uris: u identifiers: ids map: m"
        del file["tas"].units
    tas = opened(path)["tas"]
    np.testing.assert_array_equal(tas[...], VALUES)
    assert len(tas._matrix.references.uris) == 1


def test_scalar_data(tmp_path: Path) -> None:
    write(tmp_path / "a.nc", {"tas": ((), np.float32(7), {"units": "K"})})
    path = index(tmp_path, "a.nc", np.int32(1), attrs={"aggregated_dimensions": ""})
    tas = opened(path)["tas"]
    assert tas.shape == () and tas[...] == 7 and len(tas.partitions) == 1


def test_unique_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    more = {"v": (("ft", "fv"), np.array([[1.5, 2.5], [3.5, -1]], "f4"), {"_FillValue": np.float32(-1)})}
    attrs = {"aggregated_data": "map: m unique_values: v", "_FillValue": np.float32(-1)}
    path = index(tmp_path, [["a.nc"], ["b.nc"]], ((2, 3), (1, 3)), more=more, attrs=attrs)
    tas = opened(path)["tas"]
    expected = np.repeat(np.repeat(np.array([[1.5, 2.5], [3.5, np.nan]], "f4"), [2, 3], 0), [1, 3], 1)
    np.testing.assert_array_equal(tas[...], expected)
    np.testing.assert_array_equal(tas[::-2, [3, 0, 1]], expected[::-2, [3, 0, 1]])
    np.testing.assert_array_equal(tas.lazy[1:, 1:3].flip("time").astype("f8")[...], expected[1:, 1:3][::-1])
    np.testing.assert_array_equal(aa.concat([tas, tas], "x")[...], np.concatenate([expected, expected], 1))
    assert tas.partitions[1, 0].data.read().shape == (2, 2)
    theirs = cfdm_values(path, "tas", tmp_path, monkeypatch)
    there = ~np.isnan(expected)  # cfdm reads 0 for the missing fragment
    np.testing.assert_array_equal(np.ma.getdata(theirs)[there], expected[there])


def test_names_in_groups(tmp_path: Path) -> None:
    fragment(tmp_path / "a.nc", VALUES[:2])
    fragment(tmp_path / "b.nc", VALUES[2:])
    attrs = {"units": "K", "aggregated_dimensions": "time x", "aggregated_data": "map: m uris: /deep/u identifiers: i"}
    variables = {
        "time": (("time",), np.arange(5.0), TIME),
        "m": (("rank", "most"), np.array([[9, 9], [9, 9]], "i4")),
        "i": ((), np.array("tas")),
        "g/xx": (("x",), np.arange(4.0)),
        "g/tas": ((), np.float32(0), attrs),
        "g/m": (("rank", "most"), np.array([[2, 3], [4, -1]], "i4"), {"_FillValue": np.int32(-1)}),
        "deep/u": (("ft", "fx"), np.array([["a.nc"], ["b.nc"]])),
    }
    tas = opened(write(tmp_path / "index.nc", variables))["g/tas"]
    np.testing.assert_array_equal(tas[...], VALUES)
    np.testing.assert_array_equal(tas.coords["time"][...], np.arange(5.0))


def test_text_aggregation(tmp_path: Path) -> None:
    write(tmp_path / "a.nc", {"tas": (("time", "x"), np.full((5, 4), "word"))})
    path = index(tmp_path, [["a.nc"]], ((5,), (4,)), dtype="U1")
    assert set(opened(path)["tas"][...].ravel().tolist()) == {"word"}


# Invalid indexes


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        (((2, 4), (4, -1)), "is 6, that of the dimension 5"),
        (((2, -7), (4, -1)), "fragment of size -7"),
        (((-1, 5), (4, -1)), "write the sizes first"),
        (((5, 0), (4, -1)), "fragment of size 0"),
        (((-1, -1), (4, -1)), "write the sizes first"),
        (((2, 3),), "a row of sizes for each of 2 dimensions"),
    ],
)
def test_invalid_maps(tmp_path: Path, sizes: Any, words: str) -> None:
    with pytest.raises(aa.IndexFileError, match=says(words, r"variable 'tas' in .*index\.nc")):
        opened(index(tmp_path, [["a.nc"], ["b.nc"]], sizes))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"aggregated_data": "map: m uris: u"}, "has the terms"),
        ({"aggregated_data": "Map: m uris: u identifiers: i"}, "has the terms"),
        ({"aggregated_data": "map m uris: u"}, "write 'term: variable' pairs"),
        ({"aggregated_data": "map: m map: u"}, "each term once"),
        ({"aggregated_data": "map: m uris: nowhere identifiers: i"}, "'nowhere', which does not exist"),
        ({"aggregated_data": "map: m uris: tas identifiers: i"}, "an aggregation variable itself"),
        ({"aggregated_data": "map: u uris: u identifiers: i"}, "sizes of fragments are integers"),
        ({"aggregated_data": "map: m uris: m identifiers: i"}, "give texts of shape"),
        ({"aggregated_data": "map: m uris: u identifiers: u3"}, "give texts of shape"),
        ({"aggregated_data": "map: m unique_values: m"}, "unique_values 'm' have shape"),
        ({"aggregated_dimensions": "time y"}, "no dimension 'y' in the file"),
        ({"aggregated_dimensions": "time time"}, "each dimension once"),
        ({"aggregated_dimensions": 3}, "not text"),
        ({"scale_factor": "much"}, "scale_factor"),
    ],
)
def test_invalid_attributes(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    more = {"u3": (("three",), np.array(["a", "b", "c"]))}
    with pytest.raises(aa.IndexFileError, match=says(words, r"variable 'tas'")):
        opened(index(tmp_path, [["a.nc"], ["b.nc"]], attrs=change, more=more))


def test_a_fragment_without_a_name(tmp_path: Path) -> None:
    with pytest.raises(aa.IndexFileError, match=r"fragment \(1, 0\) has no text in 'u'"):
        opened(index(tmp_path, [["a.nc"], [""]]))


def test_fragments_that_are_the_index_itself(tmp_path: Path) -> None:
    with pytest.raises(aa.IndexFileError, match="'tas' of the index itself, which is an aggregation variable"):
        opened(index(tmp_path, [["index.nc"], ["b.nc"]]))
    with pytest.raises(aa.IndexFileError, match="'pr' of the index itself, which does not exist"):
        opened(index(tmp_path, [["index.nc"], ["b.nc"]], ids="pr"))
    more = {"all": (("time", "x"), VALUES)}
    path = index(tmp_path, [["index.nc"]], ((5,), (4,)), ids="all", more=more)
    np.testing.assert_array_equal(opened(path)["tas"][...], VALUES)


def test_huge_maps_allocate_no_memory(tmp_path: Path) -> None:
    path = str(tmp_path / "index.nc")
    with netCDF4.Dataset(path, "w") as file:
        for name, size in (("time", 5), ("rank", 1), ("most", 2**40), ("f", 3)):
            file.createDimension(name, size)
        file.createVariable("tas", "f4", ()).setncatts({"aggregated_dimensions": "time", "aggregated_data": DATA})
        file.createVariable("m", "i4", ("rank", "most"), chunksizes=(1, 1000))
        file.createVariable("u", str, ("f",))
        file.createVariable("i", str, ())
    with pytest.raises(aa.IndexFileError, match="1099511627776 elements, more than 10000000"):
        opened(path)


def test_sums_that_overflow(tmp_path: Path) -> None:
    group = zarr.open_group(tmp_path / "index.zarr", mode="w")
    for name, values, dimensions in (("m", np.full((1, 8), 2**61), ["r", "n"]), ("tas", np.float32(0), [])):
        array = group.create_array(name, shape=values.shape, dtype=values.dtype, dimension_names=dimensions)
        array[...] = values
    group["tas"].attrs.update({"aggregated_dimensions": "time", "aggregated_data": "map: m unique_values: m"})
    with pytest.raises(aa.IndexFileError, match="sizes are positive integers"):
        opened(tmp_path / "index.zarr")


def test_a_plain_file_is_not_an_index(tmp_path: Path) -> None:
    from aggarray.formats import scan

    assert convention_of(scan(fragment(tmp_path / "a.nc", VALUES))) is None


def test_a_million_fragments(tmp_path: Path) -> None:
    """Columns only: a million fragments take seconds, and share their template."""
    count = 1_000_000
    path = str(tmp_path / "index.nc")
    with netCDF4.Dataset(path, "w") as file:
        for name, size in (("time", 2 * count), ("rank", 1), ("most", count)):
            file.createDimension(name, size)
        file.createVariable("tas", "f4", ()).setncatts({"aggregated_dimensions": "time", "aggregated_data": DATA})
        file.createVariable("m", "i4", ("rank", "most"))[:] = 2
        file.createVariable("u", str, ("most",))[:] = np.array([f"{i % 1000}.nc" for i in range(count)], object)
        file.createVariable("i", str, ())[...] = "tas"
    references = foreign(path).matrices["tas"].references
    assert (len(references), len(references.uris), len(references.templates)) == (count, 1000, 1)
