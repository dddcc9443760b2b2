"""Every sample file is what sample_data/README.md says, according to other libraries than aggarray."""

import base64
import struct
from pathlib import Path

import cftime
import h5py
import netCDF4
import numpy as np
import pytest
import zarr

from sample_data import generate
from sample_data.generate import ARCHIVE, TILES, Month, days_of, expected_tas

pytestmark = pytest.mark.quick

BY_NUMBER = {month.number: month for month in ARCHIVE}
MAGIC = {
    "NETCDF3_CLASSIC": b"CDF\x01",
    "NETCDF3_64BIT_OFFSET": b"CDF\x02",
    "NETCDF3_64BIT_DATA": b"CDF\x05",
    "NETCDF4": b"\x89HDF",
    "HDF5": b"\x89HDF",
}


def raw(path: Path) -> tuple[dict[str, np.ndarray], dict[str, dict[str, object]]]:
    """Return the stored values and the attributes of every variable, undecoded."""
    if path.is_dir():
        group = zarr.open_group(path, mode="r")
        arrays = dict(sorted(group.arrays()))
        return {n: np.asarray(a[...]) for n, a in arrays.items()}, {n: dict(a.attrs) for n, a in arrays.items()}
    with netCDF4.Dataset(path) as data:
        data.set_auto_maskandscale(False)
        return (
            {n: np.asarray(v[...]) for n, v in data.variables.items()},
            {n: {k: v.getncattr(k) for k in v.ncattrs()} for n, v in data.variables.items()},
        )


def missing_value(attributes: dict[str, object], path: Path) -> object:
    """Return the missing value of a variable, from where its format stores it."""
    value = attributes.get("_FillValue", attributes.get("missing_value"))
    return struct.unpack("<d", base64.standard_b64decode(value))[0] if isinstance(value, str) else value


def in_kelvin(path: Path, month: Month) -> np.ndarray:
    """Return a month's temperatures in K, float64, (time, lat, lon) from south to north, NaN where missing."""
    values, attributes = raw(path)
    stored, about = values["tas"], attributes["tas"]
    gone = stored == np.asarray(missing_value(about, path)).astype(stored.dtype)
    result = stored.astype("f8") * np.float64(about.get("scale_factor", 1)) + np.float64(about.get("add_offset", 0))
    result += 273.15 if about["units"] == "degC" else 0
    result = np.where(gone, np.nan, result).transpose([month.dimensions.index(d) for d in ("time", "lat", "lon")])
    return result if values["lat"][0] < values["lat"][-1] else result[:, ::-1]


@pytest.mark.parametrize("month", ARCHIVE, ids=lambda month: month.name)
def test_values_and_coordinates(sample_archive: Path, month: Month) -> None:
    path = sample_archive / month.name
    # Half a step of the packing; the rounding of float32 in degC; otherwise exact.
    tolerance = 0.0051 if month.packing else 2e-6 if month.units == "degC" else 0
    np.testing.assert_allclose(in_kelvin(path, month), expected_tas()[days_of(month.number)], rtol=0, atol=tolerance)
    values, attributes = raw(path)
    dates = cftime.num2date(values["time"], attributes["time"]["units"], attributes["time"]["calendar"])
    assert [(d.year, d.month, d.day, d.hour) for d in dates] == [
        (2001, month.number, day, 12) for day in range(1, 1 + len(dates))
    ]
    assert len(dates) == generate.DAYS[month.number - 1]
    for name in ("time", "lat", "lon"):
        assert np.array_equal(values[f"{name}_bnds"].mean(axis=1), values[name])
    assert sorted(values["lat"]) == list(range(-85, 90, 10))
    assert values["height"] == 2 and values["height"].shape == ()


@pytest.mark.parametrize("month", [m for m in ARCHIVE if m.format in MAGIC], ids=lambda month: month.name)
def test_kind_of_file(sample_archive: Path, month: Month) -> None:
    path = sample_archive / month.name
    assert path.read_bytes()[:4] == MAGIC[month.format]
    with netCDF4.Dataset(path) as data:
        assert data["tas"].dimensions == month.dimensions
        assert data.dimensions["time"].isunlimited() == (month.unlimited and month.format != "HDF5")
        assert {data.getncattr(name) for name in ("source_id", "table_id", "grid_label")} == {"SAMPLE-1-0", "day", "gn"}
    if month.format in ("NETCDF4", "HDF5"):
        with h5py.File(path) as data:
            assert ("_NCProperties" in data.attrs) == (month.format == "NETCDF4")
            assert (data["tas"].compression, data["tas"].shuffle) == ("gzip", True)
            assert data["tas"].dims[1][0] == data[month.dimensions[1]]


def test_kinds_of_zarr(sample_archive: Path) -> None:
    second, third = sample_archive / BY_NUMBER[6].name, sample_archive / BY_NUMBER[7].name
    assert zarr.open_group(second, mode="r").metadata.zarr_format == 2 and (second / ".zmetadata").is_file()
    group = zarr.open_group(third, mode="r")
    assert group.metadata.zarr_format == 3 and group.metadata.consolidated_metadata is None
    assert group["tas"].metadata.dimension_names == ("time", "lat", "lon")
    assert zarr.open_group(second, mode="r")["tas"].fill_value == np.float32(1e20)
    # In version 2 fill_value counts as _FillValue: coordinates, whose bounds contain zeros, must have none.
    assert zarr.open_group(second, mode="r")["lon_bnds"].fill_value is None


def test_deviations(sample_archive: Path) -> None:
    result = {number: raw(sample_archive / month.name) for number, month in BY_NUMBER.items()}
    assert {number for number, (_, about) in result.items() if about["tas"]["units"] == "degC"} == {3}
    assert {number for number, (values, _) in result.items() if values["lat"][0] > 0} == {4}
    assert result[4][0]["lat_bnds"][0].tolist() == [90, 80]
    assert {number for number, (_, about) in result.items() if "scale_factor" in about["tas"]} == {8}
    assert result[8][0]["tas"].dtype == np.int16 and result[8][1]["tas"]["_FillValue"] == -32768
    assert {number for number, (_, about) in result.items() if about["time"]["units"].startswith("hours since 1970")} == {9}
    assert {number for number, (values, _) in result.items() if values["tas"].shape[0] == 36} == {10}
    assert {number for number, (values, _) in result.items() if values["tas"].dtype == np.float64} == {11}
    assert result[12][1]["tas"]["missing_value"] == -999 and "_FillValue" not in result[12][1]["tas"]
    assert {number for number in result if np.isnan(expected_tas()[days_of(number)]).any()} == {2, 5, 8, 12}


def test_tiles_cover_the_matrix(sample_tiles: Path) -> None:
    matrix, count = np.zeros((8, 7)), np.zeros((8, 7), int)
    rows, columns = set(), set()
    for number, tile in enumerate(TILES, 1):
        with netCDF4.Dataset(sample_tiles / f"tile_{number:02d}.nc") as data:
            box = tuple(slice(int(data[name][0]), int(data[name][-1]) + 1) for name in ("y", "x"))
            assert box == tile
            assert data["value"].dtype == (np.float64 if number % 2 else np.float32)
            matrix[box] = data["value"][:]
        count[box] += 1
        rows.update((box[0].start, box[0].stop))
        columns.update((box[1].start, box[1].stop))
    assert (count == 1).all()
    assert np.array_equal(matrix, np.add.outer(10 * np.arange(8), np.arange(7)))
    assert (len(rows) - 1, len(columns) - 1) == (4, 6)


def test_generator_is_reproducible(tmp_path: Path, sample_archive: Path, sample_tiles: Path) -> None:
    generate.main([str(tmp_path)])
    for folder in (sample_archive, sample_tiles):
        made = tmp_path / folder.name
        assert sorted(p.name for p in made.iterdir()) == sorted(p.name for p in folder.iterdir())
        for path in folder.iterdir():
            (values, attributes), (again, attributes_again) = raw(path), raw(made / path.name)
            assert values.keys() == again.keys() and str(attributes) == str(attributes_again)
            for name, stored in values.items():
                np.testing.assert_array_equal(stored, again[name], err_msg=f"{path.name} {name}")


def test_size(sample_archive: Path) -> None:
    size = sum(path.stat().st_size for path in sample_archive.parent.rglob("*") if path.is_file())
    assert size < 3_000_000
