"""Reductions that `extract` writes in place of arrays: names, errors, progress, replacement."""

from pathlib import Path

import netCDF4
import numpy as np
import pytest
import xarray as xr

import aggarray as aa
from aggarray.export.extract import extract, is_extracted
from aggarray.export.extract.reductions import Reduction

pytestmark = pytest.mark.quick


@pytest.fixture
def tas(sample_archive: Path) -> aa.MasterArray:
    return aa.open(sample_archive)["tas"]


def test_progress_counts_every_pass(tas: aa.MasterArray, tmp_path: Path) -> None:
    reduction = Reduction((("mean", ("time",)), ("max", ("lat", "lon")), ("count", ("time",)), ("median", ("time",))))
    told: list[tuple[int, int, str]] = []
    extract(tas, tmp_path / "out.nc", reduction=reduction, progress=lambda *facts: told.append(facts))
    steps = [(done, total) for done, total, what in told if what == "reducing"]
    assert steps == sorted(steps) and steps[-1] == (3 * tas.nbytes, 3 * tas.nbytes) and len(steps) >= 3


def test_an_update_replaces_only_extracts(tas: aa.MasterArray, tmp_path: Path) -> None:
    path, monthly = tmp_path / "out.nc", Reduction((("mean", ("time",)),), by="month")
    assert not is_extracted(tas, path, reduction=monthly)
    done = extract(tas, path, reduction=monthly, exists="update")
    assert done.variables[-1] == "tas" and not done.unchanged and is_extracted(tas, path, reduction=monthly)
    again = extract(tas, path, reduction=monthly)
    assert again.unchanged and set(again.variables) == set(done.variables) and again.nbytes == done.nbytes
    for other in (Reduction((("mean", ("time",)),)), Reduction((("max", ("time",)),), by="month"), None):
        assert not is_extracted(tas, path, reduction=other)
    with pytest.raises(aa.AggregationError, match="already exists"):
        extract(tas, path, reduction=Reduction((("max", ("time",)),)))
    extract(tas, path, reduction=Reduction((("max", ("time",)),)), exists="update")
    with xr.open_dataset(path) as dataset:
        assert dataset["tas"].dims == ("lat", "lon") and "time: maximum" in dataset["tas"].attrs["cell_methods"]


def test_results_of_one_name(tas: aa.MasterArray, tmp_path: Path) -> None:
    twice = Reduction((("mean", ("time",)), ("mean", ("time",))))
    with pytest.raises(aa.AggregationError, match="two results are named 'tas_mean_time'"):
        extract(tas, tmp_path / "out.nc", reduction=twice)
    with pytest.raises(aa.AggregationError, match="a reduction cannot be appended"):
        extract(tas, tmp_path / "out.nc", reduction=Reduction((("mean", None),)), append=True)


def test_dimensions_keep_their_names(tas: aa.MasterArray, tmp_path: Path) -> None:
    both = Reduction((("mean", ("time",)), ("max", ("lat", "lon"))))
    extract(tas, tmp_path / "out.nc", reduction=both)
    with netCDF4.Dataset(tmp_path / "out.nc") as file:
        assert file["tas_mean"].dimensions == ("lat", "lon") and file["tas_max"].dimensions == ("time",)
        assert file["time"].dimensions == ("time",) and file["lat"].dimensions == ("lat",)
        # The time of the mean and the place of the maximum are scalar coordinates of other names.
        (scalar,) = [n for n in file["tas_mean"].coordinates.split() if n.startswith("time")]
        bounds = file[file["time"].bounds][:]
        assert file[scalar].dimensions == () and np.allclose(file[file[scalar].bounds][:], [bounds[0, 0], bounds[-1, 1]])
    with xr.open_dataset(tmp_path / "out.nc") as dataset:
        np.testing.assert_allclose(dataset["tas_mean"], np.nanmean(tas[:], axis=0), rtol=1e-12)
        np.testing.assert_array_equal(dataset["tas_max"], np.nanmax(tas[:], axis=(1, 2)))


def test_missing_results(tmp_path: Path) -> None:
    values = np.array([[1, -9, 3], [-9, -9, 4]], "i4")
    piece = aa.SubArray.from_array(values, dimensions=("y", "x"), fill_value=-9)
    array = aa.MasterArray.from_subarrays([([(0, 2), (0, 3)], piece)], dimensions=("y", "x"), name="n")
    operations = tuple((name, ("y",)) for name in ("sum", "mean", "max", "count", "any", "argmax"))
    for suffix in ("nc", "zarr"):
        path = tmp_path / f"out.{suffix}"
        extract(array, path, reduction=Reduction(operations))
        with xr.open_dataset(path) if suffix == "nc" else xr.open_zarr(path) as dataset:
            assert np.array_equal(dataset["n_sum"], [1, np.nan, 7], equal_nan=True)
            assert np.array_equal(dataset["n_mean"], [1, np.nan, 3.5], equal_nan=True)
            assert np.array_equal(dataset["n_max"], [1, np.nan, 4], equal_nan=True)
            assert dataset["n_count"].values.tolist() == [1, 0, 2] and dataset["n_argmax"].values.tolist() == [0, -1, 1]
