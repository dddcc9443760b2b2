"""Quantiles equal those of NumPy, in bounded memory."""

import tracemalloc
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import aggarray as aa
from aggarray.reduce import quantiles
from tests.reduce.test_operations import NAMES, arrays, example, joined
from tests.reduce.test_streaming import decoded, write

DRAWN = tuple[aa.MasterArray, np.ndarray, np.ndarray]


@given(arrays(), st.sampled_from([40, 200, 1 << 20]), st.sampled_from([1, 10, 1000]), st.data())
def test_quantiles(drawn: DRAWN, column: int, together: int, data: st.DataObject) -> None:
    array, values, mask = drawn
    axes = data.draw(st.lists(st.integers(0, values.ndim - 1), unique=True, min_size=1).map(sorted))
    skipna, least = data.draw(st.booleans()), data.draw(st.integers(0, 3))
    q = data.draw(st.sampled_from([0, 1, 0.5, 0.37, [0.1, 0.9], [0, 0.25, 1]]))
    plain = np.where(mask, np.nan, values.astype("f8"))
    column = max(column, 8 * int(np.prod([values.shape[d] for d in axes])))
    with mock.patch.multiple(quantiles, COLUMN=column, _SORTED=together):
        result = array.quantile(q, [NAMES[d] for d in axes], skipna=skipna, min_count=least)
    kept = [d for d in range(values.ndim) if d not in axes]
    rows = plain.transpose(*kept, *axes).reshape(*(values.shape[d] for d in kept), -1) if plain.size else None
    shape = (*np.shape(q), *(values.shape[d] for d in kept))
    expected = np.full(shape, np.nan)
    if rows is not None:
        count = (~np.isnan(rows)).sum(axis=-1)
        finite = np.where(np.isinf(rows), 1e6, rows)  # NumPy has no quantiles between infinite values
        with np.errstate(all="ignore"), pytest.warns(RuntimeWarning) if (count == 0).any() else mock.MagicMock():
            expected = np.nanquantile(finite, q, axis=-1)
        absent = (count < max(1, least)) | ((count < rows.shape[-1]) & (not skipna))
        expected = np.where(absent, np.nan, expected)
        own = np.where(np.isinf(result[...]), 1e6, result[...])
        between = np.isinf(rows).any(axis=-1) if np.ndim(q) == 0 else np.broadcast_to(np.isinf(rows).any(axis=-1), shape)
        assert np.allclose(own[~between], expected[~between], rtol=1e-12, atol=1e-9, equal_nan=True)
        # A quantile between a number and infinity may be NaN, as NumPy's.
        assert np.array_equal(np.isnan(result[...])[~between], np.isnan(expected)[~between])
    else:
        assert np.isnan(result[...]).all()
    assert result.shape == shape and result.dtype == np.float64
    assert result.dimensions == (*("quantile",) * np.ndim(q), *(NAMES[d] for d in kept))
    assert np.array_equal(result.coords["quantile"][...], q)


@given(arrays(), st.data())
def test_groups(drawn: DRAWN, data: st.DataObject) -> None:
    array, values, mask = drawn
    axis = data.draw(st.integers(0, values.ndim - 1))
    labels = np.array(data.draw(st.lists(st.integers(0, 3), min_size=values.shape[axis], max_size=values.shape[axis])), "i8")
    plain = np.where(mask | np.isinf(values), np.nan, values.astype("f8"))
    if np.isinf(values).any():
        return
    result = array.median(NAMES[axis], by=labels)
    assert result.dimensions == tuple("group" if d == axis else n for d, n in enumerate(array.dimensions))
    for number, label in enumerate(np.unique(labels)):
        own = plain.take(np.flatnonzero(labels == label), axis)
        expected = np.ma.filled(np.ma.median(np.ma.masked_invalid(own), axis=axis).astype("f8"), np.nan)
        assert np.allclose(result[...].take(number, axis), expected, rtol=1e-12, equal_nan=True)


@pytest.mark.parametrize(
    ("arguments", "options", "error", "text"),
    [
        ((2, "t"), {}, aa.AggregationError, "invalid q=2; give numbers from 0 to 1: 0.95 for percentile 95|invalid q=2"),
        ((["a"], "t"), {}, aa.AggregationError, "invalid q="),
        (([], "t"), {}, aa.AggregationError, "invalid q="),
        ((0.5, "z"), {}, aa.NotFoundError, "no dimension 'z'"),
        ((0.5,), {"min_count": -1}, aa.AggregationError, "invalid min_count=-1"),
        ((0.5,), {"weights": "area"}, TypeError, "unexpected keyword argument 'weights'"),
    ],
)
def test_errors(arguments: tuple[Any, ...], options: dict[str, Any], error: type[Exception], text: str) -> None:
    with mock.patch.object(aa.MasterArray, "read", side_effect=AssertionError), pytest.raises(error, match=text):
        example().quantile(*arguments, **options)


def test_what_does_not_fit_is_refused() -> None:
    array = joined(np.ma.MaskedArray(np.zeros((50, 4))), [[], []])[0]
    with mock.patch.object(quantiles, "COLUMN", 1000):
        assert array.median("t")[...].tolist() == [0] * 4
        with pytest.raises(
            aa.AggregationError, match=r"sort all values of a result in memory: 200 over t, y need 0 MB, 0 MB are"
        ):
            array.median()
    values = np.broadcast_to(np.float32(1), (10**8,))
    large = aa.MasterArray.from_subarrays([([(0, 10**8)], aa.SubArray.from_array(values))], dimensions=("t",), name="v")
    with pytest.raises(
        aa.AggregationError,
        match=r"100,000,000 over t need 400 MB, 34 MB are allowed .*select a part, or reduce fewer dimensions",
    ):
        large.quantile(0.9)


def test_chunks_are_decoded_once_where_columns_fit(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    values = rng.normal(280, 20, (60, 30, 48)).astype("f4")
    for number in range(2):
        write(tmp_path / f"{number}.nc", values[30 * number : 30 * number + 30], 30 * number, (15, 10, 12))
    array = aa.open(tmp_path)["tas"]
    stored = 2 * 2 * 3 * 4
    column = 60 * 10 * 12 * 4
    for budget, times in (1 << 25, 1), (column, 1), (column - 1, 2), (column // 3, 3):
        with decoded() as count, aa.set_options(cache_bytes=0), mock.patch.object(quantiles, "COLUMN", budget):
            median = array.median("time")
        assert count[0] <= times * stored and np.allclose(median[...], np.median(values.astype("f8"), axis=0), rtol=1e-12)


@pytest.mark.heavy
def test_memory(tmp_path: Path) -> None:
    values = np.broadcast_to(np.float32(1), (400, 180, 360)).copy()
    values[::3] = 2
    for number in range(3):
        write(tmp_path / f"{number}.nc", values, 400 * number, (1, 180, 360))
    array = aa.open(tmp_path)["tas"]
    array.lazy[:2].median("time")
    tracemalloc.start()
    result = array.median("time")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (result[...] == 1).all() and array.nbytes > 3 * (64 << 20) and peak < result.nbytes + (64 << 20)
    assert array.quantile(0.7, "time")[0, 0] == 2


def test_sample_archive(sample_archive: Path) -> None:
    xr = pytest.importorskip("xarray")
    array = aa.open(sample_archive)["tas"]
    loaded = array.to_xarray().load().astype("f8")
    expected = loaded.quantile([0.05, 0.5], "time")
    assert np.allclose(array.quantile([0.05, 0.5], "time")[...], expected.values, rtol=1e-12, equal_nan=True)
    monthly = loaded.groupby("time.month").quantile(0.9)
    own = array.quantile(0.9, "time", by="month")
    assert np.allclose(own[...], monthly.transpose("month", "lat", "lon").values, rtol=1e-12, equal_nan=True)
    median = array.median(["lat", "lon"])
    assert median.attrs["cell_methods"].endswith("lat: lon: median") and median.dimensions == ("time",)
    assert isinstance(own.to_xarray(), xr.DataArray) and float(own.to_xarray()["quantile"]) == 0.9
