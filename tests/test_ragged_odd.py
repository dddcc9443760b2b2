"""Do files of rows that are odd, but right, give what is in them, and wrong ones an error that says so?"""

from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import pytest

import aggarray as aa
from aggarray.report import page
from aggarray.report._data import packed


def stored(path: Path, variables: dict[str, tuple[tuple[str, ...], Any, dict[str, Any]]]) -> Path:
    """Write variables, {name: (dimensions, values, attributes)}, as a netCDF-4 file."""
    with netCDF4.Dataset(path, "w") as file:
        for name, (dimensions, values, attributes) in variables.items():
            numbers = np.asarray(values)
            for dimension, size in zip(dimensions, numbers.shape, strict=True):
                if dimension not in file.dimensions:
                    file.createDimension(dimension, size)
            made = file.createVariable(name, str if numbers.dtype.kind in "UO" else numbers.dtype, dimensions)
            made.setncatts(attributes)
            made[:] = numbers.astype(object) if numbers.dtype.kind == "U" else numbers
    return path


def by_size(sizes: Any, values: Any, **attributes: Any) -> dict[str, tuple[tuple[str, ...], Any, dict[str, Any]]]:
    """Return the variables of a contiguous representation: ``v`` along ``obs``, its row sizes ``n`` along ``i``."""
    return {"n": (("i",), sizes, {"sample_dimension": "obs"}), "v": (("obs",), values, attributes)}


@pytest.mark.parametrize("dtype", [">i2", ">f8", "<u4", ">c8"])
def test_rows_of_either_byte_order(tmp_path: Path, dtype: str) -> None:
    rows = [[1, 2], [], [300]]
    with h5py.File(tmp_path / "a.h5", "w") as file:
        made = file.create_dataset("v", (3,), h5py.vlen_dtype(dtype))
        for number, row in enumerate(rows):
            made[number] = np.array(row, dtype)
    a = aa.open(tmp_path / "a.h5")["v"]
    assert a[:].tolist() == rows and a[2].tolist() == rows[2] and a.dtype == np.dtype(dtype).newbyteorder("=")


def test_row_sizes_take_no_name_that_there_is(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        group = file.create_group("g")
        group.create_dataset("v", (2,), h5py.vlen_dtype("f4"))[0] = [1, 2]
        group.create_dataset("v_row_size", data=[7, 8, 9])
    agg = aa.open(tmp_path / "a.h5")
    agg.save(tmp_path / "a.nca")
    for one in (agg, aa.open(tmp_path / "a.nca")):
        assert one["g/v"][:].tolist() == [[1, 2], []] and one["g/v_row_size"][:].tolist() == [7, 8, 9]


def test_rows_that_are_not_read_are_named(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("v", (2, 2), h5py.vlen_dtype("f4"))
    (skipped,) = aa.open(tmp_path / "a.h5").skipped
    assert skipped.variable == "v" and "rows of numbers along one dimension" in skipped.reason


def test_pictures_show_the_samples_of_several_files(sample_stations: Path) -> None:
    agg = aa.open(sample_stations)
    a = agg["temperature"]
    for shown in (a._repr_html_(), a.lazy[3:9]._repr_html_(), agg._repr_html_()):
        assert "partitions: 4 obs, 4 files" in shown and "profile: " in shown and "<path" in shown
    drawn = packed([a])
    assert drawn["arrays"][0]["shape"] == (4,) and [Path(n).name for n in drawn["files"]] == [
        f"profiles_200{n}.nc" for n in range(1, 5)
    ]
    assert "temperature" in page(agg)
