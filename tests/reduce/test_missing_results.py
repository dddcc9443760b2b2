"""Results that are missing, and those that only look so: in memory, in files, of several processes."""

from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pytest
import xarray as xr

import aggarray as aa
from aggarray import mpi
from aggarray.dap import Distribution
from aggarray.export.extract import extract
from aggarray.export.extract.reductions import Reduction
from aggarray.mpi import ProcessGroup

pytestmark = pytest.mark.quick


def write(path: Path, values: Any, fill: Any) -> aa.MasterArray:
    """Write one file of (time, x) and return its array."""
    values = np.asarray(values)
    with netCDF4.Dataset(path, "w") as file:
        for name, size in zip(("time", "x"), values.shape, strict=True):
            file.createDimension(name, size)
        variable = file.createVariable("v", values.dtype, ("time", "x"), fill_value=fill)
        variable.set_auto_mask(False)
        variable[:] = values
    return aa.open(path)["v"]


def masked(values: Any, dtype: Any) -> np.ma.MaskedArray:
    """Return a DataArray as a masked array of a dtype."""
    own = values.to_masked_array()
    return np.ma.MaskedArray(own.filled(0).astype(dtype), np.ma.getmaskarray(own))


def results(array: aa.MasterArray, operation: str, folder: Path) -> list[np.ma.MaskedArray]:
    """Return a result over time in memory, by xarray, by way of a file, and of a process."""
    whole = array.reduce(operation, "time")
    extract(array, folder / "out.nc", reduction=Reduction(((operation, ("time",)),)))
    with xr.open_dataset(folder / "out.nc") as dataset:
        stored = masked(dataset["v"], whole.dtype)
    with ProcessGroup.serial() as group:
        local = mpi.local(array, Distribution.regular(array.shape, "bb", (1, 1)), group)
        own: Any = mpi.reduce(local, operation, "time", group)
        mpi.write(own, group, folder / "mpi.nc")
    with xr.open_dataset(folder / "mpi.nc") as dataset:
        written = masked(dataset["v"], whole.dtype)
    assert own.dtype == whole.dtype
    return [whole.read(masked=True), masked(whole.to_xarray(), whole.dtype), stored, written]


@pytest.mark.parametrize(
    ("dtype", "fill", "values", "expected"),
    [
        ("u1", 255, [[200, 255, 100], [55, 255, 255]], [255, None, 100]),
        ("i2", -3, [[-1, -3, 5], [-2, -3, -3]], [-3, None, 5]),
        ("u8", 7, [[2**63, 7, 3], [2**62 + 1, 7, 4]], [2**63 + 2**62 + 1, None, 7]),
    ],
)
def test_sums_equal_to_the_fill_value(tmp_path: Path, dtype: str, fill: int, values: Any, expected: list[Any]) -> None:
    array = write(tmp_path / "a.nc", np.array(values, dtype), fill)
    whole, *others, of_processes = results(array, "sum", tmp_path)
    assert whole.dtype == ("u8" if dtype == "u8" else "i8") and whole.tolist() == expected
    assert array.sum("time").fill_value not in (fill, *expected)
    for other in others:
        mask = np.ma.getmaskarray(other)
        assert mask.tolist() == [value is None for value in expected]
        # Readers of netCDF hold integers with missing values as float64.
        assert np.allclose(other.compressed().astype("f8"), [float(v) for v in expected if v is not None], rtol=1e-15)
    assert np.allclose(of_processes.astype("f8"), [float(v or 0) for v in expected], rtol=1e-15)  # of no values: 0


def test_counts_equal_to_the_fill_value(tmp_path: Path) -> None:
    array = write(tmp_path / "a.nc", np.array([[1, 2, 5], [1, 2, 2]], "i2"), 2)
    for counts in results(array, "count", tmp_path):
        assert counts.tolist() == [2, 0, 1]


def test_extremes_keep_the_fill_value(tmp_path: Path) -> None:
    array = write(tmp_path / "a.nc", np.array([[1, -9], [4, -9]], "i2"), -9)
    assert array.max("time").fill_value == -9
    for values in results(array, "max", tmp_path):
        assert values.tolist() == [4, None]


@pytest.mark.parametrize(("operation", "expected"), [("any", [True, False, False]), ("all", [False, True, False])])
def test_any_and_all_of_no_values(tmp_path: Path, operation: str, expected: list[bool]) -> None:
    array = write(tmp_path / "a.nc", np.array([[1, -9, 0], [0, -9, -9]], "i2"), -9)
    for values in results(array, operation, tmp_path):
        assert values.dtype == bool and values.tolist() == expected
    # At least two values were asked for.
    whole = array.reduce(operation, "time", min_count=2)
    wanted = [int(expected[0]), None, None]
    assert whole.dtype == np.int8 and whole.read(masked=True).tolist() == wanted
    assert whole.to_xarray().to_masked_array().tolist() == wanted
    extract(array, tmp_path / "least.nc", reduction=Reduction(((operation, ("time",)),), min_count=2))
    with xr.open_dataset(tmp_path / "least.nc") as dataset:
        assert dataset["v"].to_masked_array().tolist() == wanted
    assert array.reduce(operation, "time", skipna=False).read(masked=True).tolist() == wanted


def test_weights_of_zero(tmp_path: Path) -> None:
    array = write(tmp_path / "a.nc", np.array([[1, 9], [9, 9], [4, 2]], "f4"), 9)
    weights = np.array([0, 1, 2.0])
    for operation in ("mean", "std", "var"):
        values = array.reduce(operation, "time", weights=weights, by=[0, 0, 1]).read(masked=True)
        assert np.ma.getmaskarray(values).tolist() == [[True, True], [False, False]], operation
        assert np.isnan(values.data[0]).all()


def test_variances_of_large_values() -> None:
    rows = np.array([[1e200, 1e200], [-1e200, 2e200]])
    pieces = [([(n, n + 1), (0, 2)], aa.SubArray.from_array(rows[n : n + 1])) for n in range(2)]
    array = aa.MasterArray.from_subarrays(pieces, dimensions=("time", "x"))
    assert array.var("time")[:].tolist() == array.std("time")[:].tolist() == [np.inf, np.inf]
    assert array.lazy[:1].var("time")[:].tolist() == [0, 0]


def test_empty_dimensions_warn_of_nothing(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    array = write(tmp_path / "a.nc", np.array([[1, 9], [9, 9]], "f4"), 9)
    for operation in ("mean", "std", "var", "min", "sum", "any"):
        empty = array.lazy[0:0].reduce(operation, "time").read(masked=True)
        assert np.ma.getmaskarray(empty).tolist() == [operation != "any"] * 2
    assert not [w for w in recwarn if issubclass(w.category, RuntimeWarning)]
