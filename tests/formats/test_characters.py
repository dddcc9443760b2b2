"""Character arrays: last dimensions that are string lengths, and last dimensions that are not."""

from collections.abc import Callable
from pathlib import Path

import h5py
import netCDF4
import numpy as np
import pytest
import zarr

import aggarray as aa
from aggarray import formats

pytestmark = pytest.mark.quick

FLAGS = np.array(list("abc"), "S1")
GRID = np.array([list("abc"), list("def")], "S1")
NAMES = np.array([list("one "), list("two "), list("four")], "S1")
Given = dict[str, tuple[tuple[str, ...], np.ndarray]]

#: Characters along real dimensions, and texts along `time`, as data and as a coordinate.
VARIABLES: Given = {
    "time": (("time",), np.array([0.0, 1.0, 2.0])),
    "flag": (("time",), FLAGS),
    "grid": (("y", "time"), GRID),
    "names": (("time", "length"), NAMES),
    "word": (("length",), NAMES[2]),
}


def write_netcdf(path: Path, given: Given, kind: str, unlimited: str = "", group: str = "") -> None:
    with netCDF4.Dataset(path, "w", format=kind) as file:
        file.set_auto_chartostring(False)
        for name, (dimensions, values) in given.items():
            for d, n in zip(dimensions, values.shape, strict=True):
                if d not in file.dimensions:
                    file.createDimension(d, None if d == unlimited else n)
            place = file.createGroup(group) if group and values.dtype.kind == "S" else file
            place.createVariable(name, values.dtype, dimensions)[:] = values


def write_hdf5(path: Path, given: Given) -> None:
    """Write plain HDF5: scales name the dimensions, and only scales with values are variables."""
    with h5py.File(path, "w") as file:
        for name, (_, values) in given.items():
            file[name] = values
        file["time"].make_scale("time")
        for d, n in (("y", 2), ("length", 4)):
            file[d] = np.zeros(n, "f4")
            file[d].make_scale(f"This is a netCDF dimension but not a netCDF variable.{n:10}")
        for name, (dimensions, _) in given.items():
            for axis, d in enumerate(dimensions):
                if name != d:
                    file[name].dims[axis].attach_scale(file[d])


def write_zarr(path: Path, given: Given, version: int) -> None:
    root = zarr.open_group(path, mode="w", zarr_format=version)
    for name, (dimensions, values) in given.items():
        names = {"dimension_names": dimensions} if version == 3 else {}
        array = root.create_array(name, shape=values.shape, dtype=values.dtype, **names)
        array[...] = values
        if version == 2:
            array.attrs["_ARRAY_DIMENSIONS"] = list(dimensions)


WRITERS: dict[str, Callable[[Path], None]] = {
    **{
        f"{kind} {'record' if unlimited else 'fixed'}": lambda p, k=kind, u=unlimited: write_netcdf(p, VARIABLES, k, u)
        for kind in ("NETCDF3_CLASSIC", "NETCDF3_64BIT_OFFSET", "NETCDF3_64BIT_DATA", "NETCDF4")
        for unlimited in ("", "time")
        # In netCDF-3 only the first dimension can be unlimited.
        if not (unlimited and kind.startswith("NETCDF3"))
    },
    "groups": lambda p: write_netcdf(p, VARIABLES, "NETCDF4", group="inner"),
    "HDF5": lambda p: write_hdf5(p, VARIABLES),
}


def check(path: Path, prefix: str = "") -> None:
    """Compare shapes, values and boxes of `scan` and `read` with the characters written."""
    shapes = {v.name: (v.shape, v.dimensions) for v in formats.scan(path).variables}
    assert shapes[f"{prefix}flag"] == ((3,), ("time",))
    assert shapes[f"{prefix}grid"] == ((2, 3), ("y", "time"))
    assert shapes[f"{prefix}names"] == ((3,), ("time",))
    assert shapes[f"{prefix}word"] == ((), ())
    agg = aa.open(path)
    for name, values in (("flag", FLAGS), ("grid", GRID)):
        text = values.astype("U")
        array = agg[f"{prefix}{name}"]
        assert array[...].tolist() == text.tolist()
        assert array[..., ::-2].tolist() == text[..., ::-2].tolist()
        assert array[..., 1].tolist() == text[..., 1].tolist()
    assert agg[f"{prefix}names"][1:].tolist() == ["two", "four"]
    assert str(agg[f"{prefix}word"][()]) == "four"
    assert agg.skipped == ()


@pytest.mark.parametrize("writer", WRITERS)
def test_characters_over_a_dimension_with_a_coordinate_keep_it(tmp_path: Path, writer: str) -> None:
    WRITERS[writer](tmp_path / "a.nc")
    check(tmp_path / "a.nc", "inner/" if writer == "groups" else "")


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("version", [2, 3])
def test_zarr_characters_over_a_dimension_with_a_coordinate_keep_it(tmp_path: Path, version: int) -> None:
    write_zarr(tmp_path / "a.zarr", VARIABLES, version)
    check(tmp_path / "a.zarr")


@pytest.mark.parametrize("kind", ["NETCDF3_CLASSIC", "NETCDF3_64BIT_DATA", "NETCDF4"])
def test_unlimited_dimensions_are_not_string_lengths(tmp_path: Path, kind: str) -> None:
    write_netcdf(tmp_path / "a.nc", {"flag": (("record",), FLAGS), "names": (("record", "length"), NAMES)}, kind, "record")
    agg = aa.open(tmp_path / "a.nc")
    assert agg["flag"].dimensions == ("record",) and agg["flag"][:].tolist() == ["a", "b", "c"]
    assert agg["names"][:].tolist() == ["one", "two", "four"]


@pytest.mark.parametrize("kind", ["NETCDF3_CLASSIC", "NETCDF4"])
def test_a_scan_reads_coordinates_of_characters(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "a.nc"
    write_netcdf(path, VARIABLES | {"tas": (("time",), np.arange(3.0))}, kind)
    with netCDF4.Dataset(path, "a") as file:
        file["tas"].coordinates = "flag names"
    known = {v.name: v.values for v in formats.scan(path).variables}
    assert known["flag"].tolist() == ["a", "b", "c"] and known["names"].tolist() == ["one", "two", "four"]
    coords = aa.open(path)["tas"].coords
    assert coords["flag"].dimensions == coords["names"].dimensions == ("time",)
    assert coords["flag"][:].tolist() == ["a", "b", "c"]


def test_characters_are_joined_along_their_dimension(tmp_path: Path) -> None:
    for number in range(2):
        time = np.array([0.0, 1.0, 2.0]) + 3 * number
        write_netcdf(tmp_path / f"{number}.nc", {"time": (("time",), time), "flag": (("time",), FLAGS)}, "NETCDF4", "time")
        with netCDF4.Dataset(tmp_path / f"{number}.nc", "a") as file:
            file["time"].setncatts({"units": "days since 2000-01-01", "standard_name": "time"})
    [flag] = aa.open(tmp_path)
    assert flag.shape == (6,) and flag[:].tolist() == list("abcabc")


def test_a_variable_of_the_same_name_in_another_group_is_not_a_coordinate(tmp_path: Path) -> None:
    write_netcdf(tmp_path / "a.nc", {"names": (("n", "length"), NAMES), "length": ((), np.float64(4))}, "NETCDF4")
    assert aa.open(tmp_path / "a.nc")["names"][:].tolist() == ["one", "two", "four"]
