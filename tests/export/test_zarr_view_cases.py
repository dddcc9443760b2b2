"""Zarr view: the archives of all cases, and of odd names, types and shapes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import pytest
import xarray as xr
import zarr

import aggarray as aa
from aggarray.export.extract import extract
from tests.aggregate.test_cases import CASES
from tests.support.cases import Folder, Outcome
from tests.support.examples import heavy
from tests.support.netcdf import cube, write

#: Cases that xarray reads differently from a store than `to_xarray` returns them, and why; their values are equal.
DIFFERENT = {
    "integers_with_two_missing_values": "a valid integer equals the missing value of the array",
    "months_and_common_years": "xarray decodes the units 'months' differently",
    "climatology_bounds": "xarray decodes the bounds of climatologies",
}


class Counted(dict[str, None]):
    """Dictionary that counts how often its keys are walked through, except to copy it."""

    walks = 0

    def __iter__(self) -> Any:
        """Count a walk."""
        self.walks += 1
        return super().__iter__()


def compare(agg: Any, *, by_xarray: bool = True) -> Any:
    """Compare all arrays with their values as zarr-python reads them, and as xarray does; return the store."""
    store = agg.to_zarr_store()
    truth = agg.to_xarray()
    for version in (2, 3):
        group = zarr.open_group(store, mode="r", zarr_format=version)
        for path, array in store.contents.arrays.items():
            values, expected = np.asarray(group[path][...]), array.variable.source[...]
            assert values.shape == expected.shape and (values.dtype == expected.dtype or expected.dtype.kind == "T")
            assert values.tolist() == expected.tolist() or values.tobytes() == np.ascontiguousarray(expected).tobytes()
        if by_xarray and isinstance(truth, xr.DataTree):
            xr.testing.assert_equal(xr.open_datatree(store, engine="zarr", zarr_format=version).compute(), truth.compute())
        elif by_xarray:
            xr.testing.assert_equal(xr.open_zarr(store, zarr_format=version, chunks=None).compute(), truth.compute())
    return store


@pytest.mark.filterwarnings("ignore::xarray.SerializationWarning")
@pytest.mark.parametrize("case", heavy(CASES, but=CASES[::4]), ids=lambda case: case.__name__)
def test_values_of_cases(case: Callable[[Folder], Outcome], tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    outcome = case(folder)
    agg = aa.open(folder.paths, rules=outcome.make_rules(), processes=1)
    compare(agg, by_xarray=case.__name__ not in DIFFERENT)


def test_types(tmp_path: Path) -> None:
    """Types of HDF5, among them float16, and missing values at the limits of integers."""
    with h5py.File(tmp_path / "types.h5", "w") as file:
        for name, values in {
            "half": np.array([0.5, np.nan, -np.inf], "f2"),
            "flag": np.array([True, False, True]),
            "complex": np.arange(3) * 1j,
            "big": np.arange(3, dtype=">f4"),
            "bytes": np.array([b"ab", b"c", b""]),
            "text": np.array(["\u00e4", "", "b"], object).astype(h5py.string_dtype()),
        }.items():
            file[name] = values
    store = compare(aa.open(tmp_path / "types.h5"))
    assert zarr.open_group(store, mode="r")["half"].dtype == np.float16
    with netCDF4.Dataset(tmp_path / "limits.nc", "w") as file:
        file.createDimension("x", 3)
        for name, dtype, missing in (("low", "i8", -(2**63)), ("high", "u8", 2**64 - 1)):
            file.createVariable(name, dtype, ("x",), fill_value=missing)[:] = np.array([1, missing, 2**62], dtype)
    store = compare(aa.open(tmp_path / "limits.nc"))
    assert zarr.open_group(store, mode="r")["low"].fill_value == -(2**63)


def test_an_extract_has_half_precision(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "half.h5", "w") as file:
        file["half"] = np.array([0.5, np.nan, 2], "f2")
    agg = aa.open(tmp_path / "half.h5")
    extract(agg, str(tmp_path / "half.zarr"))
    np.testing.assert_array_equal(zarr.open_group(tmp_path / "half.zarr", mode="r")["half"][...], agg["half"][...])


def test_shapes(tmp_path: Path) -> None:
    """A dimension without positions, a scalar, and files of different lengths."""
    with netCDF4.Dataset(tmp_path / "shapes.nc", "w") as file:
        file.createDimension("t", None)
        file.createDimension("x", 3)
        file.createVariable("empty", "f4", ("t", "x"))
        file.createVariable("scalar", "f8", ())[...] = 3.5
        file.createVariable("line", "i2", ("x",))[:] = 1
    store = compare(aa.open(tmp_path / "shapes.nc"))
    assert store.contents.arrays["empty"].grid == (0, 1)
    first = 0
    for length in (3, 7, 2, 11):
        write(tmp_path / "uneven" / f"{length}.nc", cube(np.arange(length) + first))
        first += length
    compare(aa.open(tmp_path / "uneven"))


def test_names(tmp_path: Path) -> None:
    """Arrays and groups with the names of documents, parts of keys, and characters that addresses escape."""
    names = ("zarr.json", "c", "0", "\u00fc", "q?a#%20")
    with netCDF4.Dataset(tmp_path / "names.nc", "w") as file:
        file.createDimension("x", 2)
        for number, name in enumerate(names):
            file.createVariable(name, "f8", ("x",))[:] = number
    assert {*compare(aa.open(tmp_path / "names.nc")).contents.arrays} == {*names}
    for number, model in enumerate(("A/B", "..", ".", "", "\u00fc x", "c", "zarr.json", "a.b")):
        tas = (("time", "lat", "lon"), np.full((2, 3, 2), number, "f4"), {"units": "K"})
        attrs = {"source_id": model, "mip_era": "CMIP6"}
        write(tmp_path / "groups" / f"{number}.nc", cube(np.arange(2), tas=tas), attrs)
    store = compare(aa.open(tmp_path / "groups"))
    contents = store.contents
    counted = Counted(contents.documents)
    contents.documents = counted
    for path in ("", *contents.groups, *contents.arrays):
        start = f"{path}/" if path else ""
        names = {key[len(start) :].partition("/")[0] for key in dict(counted) if key.startswith(start)}
        assert {*contents.members(path)} - {"c"} == names - {"c"}
    assert counted.walks == 1  # a store of many groups is listed in linear time
    paths = contents.arrays
    assert len(paths) == 32 and not any(part in ("", ".", "..") for path in paths for part in path.split("/"))
