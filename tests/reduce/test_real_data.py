"""Reductions of the sample archive and of CMIP6 files equal those of NumPy."""

from pathlib import Path

import numpy as np
import pytest

import aggarray as aa
from aggarray.reduce import reduce_array


def check(array: aa.MasterArray) -> None:
    """Compare means along the first dimension and over everything with those of NumPy in double precision."""
    masked = array.read(masked=True)
    values = np.where(np.ma.getmaskarray(masked), np.nan, np.ma.getdata(masked).astype("f8"))
    valid = ~np.isnan(values)
    for dims, axis in (array.dimensions[0], 0), (None, None):
        results = reduce_array(array, ["mean", "min", "max", "count", "std"], dims)
        count = valid.sum(axis=axis)
        with np.errstate(all="ignore"):
            mean = np.where(valid, values, 0).sum(axis=axis) / count
            std = np.sqrt(np.where(valid, (values - mean) ** 2, 0).sum(axis=axis) / count)
        assert np.array_equal(results["count"][...], count)
        scale = np.abs(values[valid]).max(initial=0)
        for name, expected in ("mean", mean), ("std", std):
            own = results[name][...]
            assert np.array_equal(np.isnan(own), count == 0), array
            close = np.abs(own - expected) <= 1e-12 * np.maximum(np.abs(expected), scale * (1e-3 if name == "mean" else 1))
            assert close[count > 0].all(), (array, name)
        for name, fill, function in ("min", np.inf, np.min), ("max", -np.inf, np.max):
            expected = function(np.where(valid, values, fill), axis=axis)
            assert np.array_equal(results[name].read(masked=True).filled(0)[count > 0], expected[count > 0]), (array, name)


def test_sample_archive(sample_archive: Path) -> None:
    check(aa.open(sample_archive)["tas"])


@pytest.mark.heavy
def test_cmip6(shared_data: Path) -> None:
    arrays = [a for a in aa.open(shared_data / "cmip6") if a.dtype.kind in "iuf" and a.ndim]
    assert len(arrays) >= 70
    for array in arrays:
        check(array)
