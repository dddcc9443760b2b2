"""Opening and joining of real archives. Skipped if the folder of real data is absent."""

from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import netCDF4
import numpy as np
import pytest

import aggarray as aa

MISSING = ("_FillValue", "missing_value")


def plain(path: Path, name: str) -> np.ndarray:
    """Read a variable with netCDF4: unpacked, and NaN exactly where it has a missing value that it declares."""
    with netCDF4.Dataset(path) as file:
        variable = file[name]
        variable.set_auto_maskandscale(False)
        values = variable[...]
        declared = [np.atleast_1d(variable.getncattr(a)) for a in MISSING if a in variable.ncattrs()]
        packing = {a: variable.getncattr(a) for a in ("scale_factor", "add_offset") if a in variable.ncattrs()}
    missing = np.isin(values, np.concatenate(declared)) if declared else np.zeros(values.shape, bool)
    if packing:
        values = values * packing.get("scale_factor", 1) + packing.get("add_offset", 0)
    return np.where(missing, np.nan, values) if missing.any() else values


def folders(root: Path) -> dict[Path, list[Path]]:
    """Return the files of each folder, sorted by the time in their names."""
    result: dict[Path, list[Path]] = defaultdict(list)
    for path in sorted(root.rglob("*.nc")):
        result[path.parent].append(path)
    return result


@pytest.fixture(scope="module")
def cmip6(shared_data: Path) -> Path:
    return shared_data / "cmip6"


@pytest.fixture(scope="module")
def everything(cmip6: Path) -> aa.Aggregation:
    return aa.open(cmip6)


@pytest.mark.heavy
def test_each_folder_is_one_array(cmip6: Path) -> None:
    result = folders(cmip6)
    assert len(result) > 50
    for folder, paths in result.items():
        agg = aa.open(folder)
        assert agg.names == ("ta",) and len(agg) == 1, folder
        assert not agg.skipped and not agg.refusals, folder
        ta, time = agg["ta"], agg["ta"].coords["time"]
        expected = np.concatenate([plain(p, "ta") for p in paths])
        assert ta.dtype == expected.dtype
        np.testing.assert_array_equal(ta[...], expected, err_msg=str(folder))
        with netCDF4.Dataset(paths[0]) as first:
            units, calendar = first["time"].units, first["time"].calendar
        dates = np.concatenate([_dates(p) for p in paths])
        np.testing.assert_array_equal(netCDF4.num2date(time[...], units, calendar), dates, err_msg=str(folder))
        assert time.units == units
        assert ta.partitions.shape == ((len(paths),) if len(paths) > 1 else ())


def _dates(path: Path) -> np.ndarray:
    with netCDF4.Dataset(path) as file:
        time = file["time"]
        time.set_auto_mask(False)
        return np.asarray(netCDF4.num2date(time[:], time.units, time.calendar))


def test_bounds_are_joined(cmip6: Path) -> None:
    for folder, paths in folders(cmip6).items():
        if len(paths) < 2:
            continue
        with netCDF4.Dataset(paths[0]) as first:
            name = getattr(first["time"], "bounds", None)
            units = first["time"].units
            if name is None or name not in first.variables:
                continue
        array = aa.open(folder)["ta"]
        bounds, time = array.coords[name][...], array.coords["time"][...]
        assert bounds.shape == (array.shape[0], 2) and array.coords[name].units == units
        assert (bounds[:, 0] <= time).all() and (time <= bounds[:, 1]).all(), folder


def test_tree_mixes_nothing(cmip6: Path, everything: aa.Aggregation) -> None:
    assert everything.skipped == ()
    assert len(everything) == len(folders(cmip6))
    seen = set()
    for array in everything:
        key = tuple(array.file_attrs[a] for a in ("source_id", "table_id", "grid_label"))
        assert key not in seen
        seen.add(key)
        uris = {p.data.uri for p in array.partitions}
        assert len({str(Path(u).parent) for u in uris}) == 1
    assert sum(len(a.partitions) for a in everything) == sum(map(len, folders(cmip6).values()))


def test_tree_explains_every_separation(everything: aa.Aggregation) -> None:
    assert len(everything.refusals) == len(everything) - 1
    for refusal in everything.refusals:
        assert refusal.arrays == ("ta", "ta")
        assert len(refusal.files) == 2
        assert all(Path(f).name in refusal.reason for f in refusal.files)
    told = {f for r in everything.refusals for f in r.files}
    for array in everything:
        assert told & {p.data.uri for p in array.partitions}


def test_tree_is_selected_by_attributes(everything: aa.Aggregation) -> None:
    with pytest.raises(aa.NotFoundError, match="source_id"):
        everything["ta"]
    result = everything.select("ta", source_id="MIROC6", table_id="Amon")
    assert result.names == ("ta",) and len(result) == 1
    assert result["ta"].file_attrs["source_id"] == "MIROC6"


def test_nemo_months_join(shared_data: Path) -> None:
    paths = sorted((shared_data / "nemo").glob("*.nc"))
    agg = aa.open(reversed(paths))
    with netCDF4.Dataset(paths[0]) as first:
        wanted = [n for n, v in first.variables.items() if "time_counter" in v.dimensions and v.ndim > 2]
    assert wanted
    for name in wanted:
        array = agg[name]
        axis = array.dimensions.index("time_counter")
        expected = np.concatenate([plain(p, name) for p in paths], axis=axis)
        np.testing.assert_array_equal(array[...], expected.astype(array.dtype))
        for coordinate in ("nav_lat", "nav_lon"):
            np.testing.assert_array_equal(array.coords[coordinate][...], plain(paths[0], coordinate))


def test_ostia_opens(shared_data: Path) -> None:
    path = shared_data / "ostia_monthly.nc"
    agg = aa.open(path)
    assert len(agg) >= 1 and not agg.refusals
    for array in agg:
        if array.ndim > 1:
            paths = [path] if path.is_file() else sorted(path.rglob("*.nc"))
            np.testing.assert_array_equal(array[..., :1], plain(paths[0], array.name)[..., :1].astype(array.dtype))


@pytest.mark.heavy
def test_the_archive_has_no_gaps(everything: aa.Aggregation) -> None:
    """Every time axis is regular in days or months of its calendar according to netCDF4, and no gap is reported."""
    for array in everything:
        times = np.concatenate([_dates(Path(p)) for p in dict.fromkeys(x.data.uri for x in array.partitions if x.data)])
        months = np.array([t.year * 12 + t.month for t in times])
        days = np.array([(b - a).total_seconds() for a, b in pairwise(times)]) / 86_400
        assert (np.diff(months) == 1).all() if array.file_attrs["table_id"] == "Amon" else (np.round(days) == 1).all()
    assert everything.check() == aa.Report(True, ())


def test_a_file_left_out_is_a_gap(cmip6: Path) -> None:
    checked = 0
    for paths in folders(cmip6).values():
        if len(paths) < 4:
            continue
        agg = aa.open([p for p in paths if p != paths[1]])
        report = agg.check()
        steps = len(_dates(paths[1]))
        assert not report.ok and [p.kind for p in report.problems] == ["gap"]
        assert f"{steps} step" in report.problems[0].message and paths[0].name in report.problems[0].message
        checked += 1
    assert checked >= 10
