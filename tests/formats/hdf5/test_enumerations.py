"""Enumerated types are integers with flags of CF (section 3.5): scanned, saved, joined and written."""

from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import aggarray as aa
from aggarray.export.extract import extract
from aggarray.formats.hdf5.library import scan_by_library
from tests.support import scans

CLOUDS = {"Cumulus": 7, "Clear": 0, "Missing": 255}


def write(path: Path, members: dict[str, int], values: list[int], time: float = 0, flags: dict[str, Any] | None = None) -> Path:
    """Write a variable of an enumerated type over time."""
    with netCDF4.Dataset(path, "w") as file:
        kind = file.createEnumType(np.uint8, "cloud_t", members)
        file.createDimension("time", len(values))
        axis = file.createVariable("time", "f8", ("time",))
        axis.units = "days since 2000-01-01"
        axis[:] = time + np.arange(len(values))
        made = file.createVariable("cloud", kind, ("time",))
        made.setncatts(flags or {})
        made[:] = values
    return path


def flags_of(array: Any) -> dict[int, str]:
    """Return the meaning of each value."""
    return dict(zip(np.ravel(array.attrs["flag_values"]).tolist(), array.attrs["flag_meanings"].split(), strict=True))


def test_members_are_flags_in_the_order_of_values(tmp_path: Path) -> None:
    path = write(tmp_path / "a.nc", CLOUDS, [0, 7, 255])
    structure = scans.direct(path)
    assert list(scans.differences(structure, scans.by_netcdf4(path))) == []  # type: ignore[arg-type]
    [cloud] = [v for v in scan_by_library(str(path)).variables if v.name == "cloud"]
    assert flags_of(cloud) == {0: "Clear", 7: "Cumulus", 255: "Missing"}
    a = aa.open(path)["cloud"]
    assert a.attrs["flag_values"].dtype == a.dtype == np.uint8 and a[...].tolist() == [0, 7, 255]
    with netCDF4.Dataset(path) as file:
        assert flags_of(a) == {value: name for name, value in file["cloud"].datatype.enum_dict.items()}
    assert list(flags_of(a)) == [0, 7, 255]


def test_flags_of_the_file_stay(tmp_path: Path) -> None:
    given = {"flag_values": np.array([0, 7], "u1"), "flag_meanings": "none some"}
    assert flags_of(aa.open(write(tmp_path / "a.nc", CLOUDS, [0, 7], flags=given))["cloud"]) == {0: "none", 7: "some"}
    masks = aa.open(write(tmp_path / "b.nc", CLOUDS, [0, 7], flags={"flag_masks": np.array([1, 2], "u1")}))["cloud"]
    assert "flag_values" not in masks.attrs and "flag_meanings" not in masks.attrs


@given(
    st.dictionaries(st.text("ab c-é", min_size=1, max_size=4), st.integers(-100, 100), min_size=1, max_size=6),
    st.sampled_from(["<i1", ">i2", "<i4", ">i8"]),
)
def test_random_members_equal_those_of_h5py(tmp_path_factory: pytest.TempPathFactory, members: Any, dtype: str) -> None:
    path = tmp_path_factory.mktemp("enum") / "a.h5"
    distinct = {value: name for name, value in members.items()}  # HDF5 refuses repeated values
    with h5py.File(path, "w") as file:
        file.create_dataset("v", (2,), h5py.enum_dtype({name: value for value, name in distinct.items()}, dtype))
    structure = scans.direct(path)
    assert list(scans.differences(structure, scan_by_library(str(path)))) == []
    with h5py.File(path) as file:
        there = h5py.check_enum_dtype(file["v"].dtype)
    expected = [(value, "_".join(name.split()) or "_") for name, value in sorted(there.items(), key=lambda m: m[1])]
    flags = structure.variables[0].attrs
    assert list(zip(np.ravel(flags["flag_values"]).tolist(), flags["flag_meanings"].split(" "), strict=True)) == expected


def test_equal_members_join_and_an_index_and_extracts_keep_them(tmp_path: Path) -> None:
    write(tmp_path / "a.nc", CLOUDS, [0, 7])
    write(tmp_path / "b.nc", dict(reversed(CLOUDS.items())), [255, 0], time=2)
    agg = aa.open(tmp_path)
    assert agg["cloud"][...].tolist() == [0, 7, 255, 0]
    agg.save(tmp_path / "i.nca")
    opened = aa.open(tmp_path / "i.nca")["cloud"]
    assert flags_of(opened) == {0: "Clear", 7: "Cumulus", 255: "Missing"}
    for name in ("o.nc", "o.zarr"):
        extract(opened, tmp_path / name)
        again = aa.open(tmp_path / name)["cloud"]
        assert flags_of(again) == flags_of(opened) and again[...].tolist() == [0, 7, 255, 0]


@pytest.mark.parametrize("other", [{"Cumulus": 0, "Clear": 7, "Missing": 255}, {**CLOUDS, "Haze": 3}])
def test_other_members_stay_separate(tmp_path: Path, other: dict[str, int]) -> None:
    write(tmp_path / "a.nc", CLOUDS, [0, 7])
    write(tmp_path / "b.nc", other, [0, 7], time=2)
    agg = aa.open(tmp_path)
    assert len(agg) == 2 and agg.refusals[0].rule.startswith("flag_")
    assert "flag_" in agg.refusals[0].reason and "a.nc, b.nc" in agg.refusals[0].reason


def test_trust_does_not_mix_members(tmp_path: Path) -> None:
    for n in range(12):
        write(tmp_path / f"{n:02}.nc", CLOUDS if n != 5 else {**CLOUDS, "Clear": 7, "Cumulus": 0}, [0, 7], time=2 * n)
    agg = aa.open(tmp_path, rules=aa.Rules(trust="assume"))
    with pytest.raises(aa.FormatError, match=r"flag_.*05\.nc|05\.nc.*flag_"):
        agg["cloud"][...]
