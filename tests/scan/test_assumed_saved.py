"""Saving of aggregations opened with `trust="assume"`: the opened arrays are kept, or an error names a file."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aggarray as aa
from aggarray.scan.resolution import _descriptions
from tests.support.netcdf import LAT, TAS, TIME, field, write

ASSUME = aa.Rules(trust="assume")
LATS, LONS = np.array([10.0, 20.0, 30.0]), np.array([0.0, 5.0])
RAIN = {"units": "mm", "standard_name": "rainfall_amount"}


@pytest.fixture(autouse=True)
def forget() -> None:
    _descriptions._cache.clear()


def variables(n: int, **changes: Any) -> dict[str, Any]:
    """Return the variables of a file of three steps: two of data."""
    times = 3.0 * n + np.arange(3)
    result = {
        "time": (("time",), times, TIME),
        "lat": (("lat",), LATS, LAT),
        "lon": (("lon",), LONS, {"units": "degrees_east", "standard_name": "longitude"}),
        "tas": (("time", "lat", "lon"), field(times, LATS, LONS), TAS),
        "pr": (("time", "lat", "lon"), field(times, LATS, LONS) + 1, RAIN),
    }
    return {name: value for name, value in {**result, **changes}.items() if value is not None}


def gone(path: str) -> None:
    os.unlink(path)


def written(**changes: Any) -> Callable[[str], None]:
    return lambda path: write(path, variables(4, **changes)) and None


def turned(path: str) -> None:
    result = variables(4)
    values = result["tas"][1].transpose(1, 0, 2)
    write(path, variables(4, tas=(("lat", "time", "lon"), values, result["tas"][2])))


TIMES = 12.0 + np.arange(3)
SHAPE = ("time", "lat", "lon")
WITH_LEVEL = (("time", "level", "lat", "lon"), field(TIMES, LATS, LONS)[:, np.newaxis], TAS)
NARROW = {"lat": (("lat",), LATS[:2], LAT)}
SHORT = {name: (SHAPE, field(TIMES, LATS[:2], LONS), attrs) for name, attrs in (("tas", TAS), ("pr", RAIN))}
CASES: dict[str, tuple[Callable[[str], None], str]] = {
    "lost": (written(tas=None), "no such variable.*variable 'tas'"),
    "lost coordinate": (written(lat=None), "'lat': no such variable|'lat'"),
    "shape": (written(**NARROW, **SHORT), "'lat' has size 2, not 3"),
    "units": (
        written(tas=(("time", "lat", "lon"), field(TIMES, LATS, LONS), {**TAS, "units": "degC"})),
        "units is 'degC'",
    ),
    "coordinates": (written(lat=(("lat",), LATS + 1, LAT)), "'lat': values differ"),
    "dimension": (written(tas=WITH_LEVEL), "dimensions are"),
    "order": (turned, "dimensions are"),
    "gone": (gone, "no such file"),
}
WORKS: dict[str, Callable[[aa.Aggregation, Path], Any]] = {
    "save": lambda agg, folder: agg.save(folder / "i.nca"),
    "save a selection": lambda agg, folder: agg.select("tas").save(folder / "i.nca"),
    "append": lambda agg, folder: agg.append(folder / "data" / "tas_07.nc").save(folder / "i.nca"),
    "to_kerchunk": lambda agg, folder: agg.to_kerchunk(folder / "i.json"),
    "read": lambda agg, folder: agg["tas"][...],
}


def series(folder: Path) -> list[str]:
    folder.mkdir()
    return [str(write(folder / f"tas_{n:02}.nc", variables(n))) for n in range(8)]


@pytest.mark.parametrize("work", WORKS)
@pytest.mark.parametrize("case", CASES)
def test_deviating_file(tmp_path: Path, case: str, work: str) -> None:
    change, words = CASES[case]
    paths = series(tmp_path / "data")
    if case == "gone":
        agg = aa.open(paths, rules=ASSUME)
        change(paths[4])
    else:
        change(paths[4])
        agg = aa.open(paths, rules=ASSUME)
    assert agg["tas"].shape == (24, 3, 2)
    with pytest.raises(aa.FormatError, match=words) as caught:
        WORKS[work](agg, tmp_path)
    assert paths[4] in str(caught.value) and "\n" not in str(caught.value)
    assert sorted(os.listdir(tmp_path)) == ["data"]
    problems = agg.check().problems
    assert {p.file for p in problems} == {paths[4]} and problems


def test_unsaved_array_may_be_missing(tmp_path: Path) -> None:
    """The other array is the one that was opened."""
    paths = series(tmp_path / "data")
    write(paths[4], variables(4, pr=None))
    agg = aa.open(paths, rules=ASSUME)
    with pytest.raises(aa.FormatError, match=r"no such variable.*tas_00\.nc.*variable 'pr' in .*tas_04\.nc.*verify"):
        agg.save(tmp_path / "i.nca")
    agg.select("tas").save(tmp_path / "i.nca")
    saved = aa.open(tmp_path / "i.nca")
    assert saved.names == ("tas",) and saved["tas"].shape == (24, 3, 2)
    np.testing.assert_array_equal(saved["tas"][...], field(np.arange(24.0), LATS, LONS))


@pytest.mark.parametrize("number", [0, 3, 7])
def test_any_file_may_lack_a_variable(tmp_path: Path, number: int) -> None:
    """Whichever files are scanned, the verified archive is kept, or an error names a file."""
    paths = series(tmp_path / "data")
    write(paths[number], variables(number, tas=None))
    agg, verified = aa.open(paths, rules=ASSUME), aa.open(paths)
    try:
        agg.save(tmp_path / "i.nca")
    except aa.FormatError as error:
        assert paths[number] in str(error)
        return
    saved = aa.open(tmp_path / "i.nca")
    outlines = [[(a.name, a.shape, a.pmshape) for a in one] for one in (agg, saved, verified)]
    assert outlines[0] == outlines[1] == outlines[2]
