"""Results of other software for the sample pairs equal the table of docs/howto/migrating.md."""

import importlib
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aggarray as aa
from sample_data.pairs import PAIRS, expected, main, write
from tests.support.examples import heavy
from tests.support.paths import ROOT

PAGE = ROOT / "docs" / "howto" / "migrating.md"

#: Pairs whose arrays must stay separate: joining them, or repeating times, is wrong even if the numbers are right.
SEPARATE = {"overlap", "models", "calendars"}

#: Days since 2001-01-01, longitudes, values in K.
Found = tuple[Any, Any, Any]


def with_aggarray(paths: Sequence[str]) -> Iterator[Found]:
    for array in aa.open(list(paths)):
        yield array.coords["time"][:], array.coords["lon"][:], array[:]


def with_xarray(paths: Sequence[str]) -> Iterator[Found]:
    import xarray as xr

    chosen: Any = {"data_vars": "minimal", "coords": "minimal", "compat": "override", "join": "exact"}
    with xr.open_mfdataset(paths, **chosen) as result:
        yield days(result), result["lon"].values, result["tas"].transpose("time", "lon").values


def with_mfdataset(paths: Sequence[str]) -> Iterator[Found]:
    import netCDF4

    with netCDF4.MFDataset(list(paths)) as result:
        yield result["time"][:], result["lon"][:], result["tas"][:]


def with_cf(paths: Sequence[str]) -> Iterator[Found]:
    import cf

    for field in cf.read(list(paths)):
        time = field.coordinate("time").copy()
        time.Units = cf.Units("days since 2001-01-01", time.Units._calendar)
        yield time.array, field.coordinate("longitude").array, field.array


def with_kerchunk(paths: Sequence[str]) -> Iterator[Found]:
    import xarray as xr
    from kerchunk.combine import MultiZarrToZarr
    from kerchunk.hdf import SingleHdf5ToZarr

    single = [SingleHdf5ToZarr(path).translate() for path in paths]
    how: Any = {"concat_dims": ["time"], "identical_dims": ["lon"], "coo_map": {"time": "cf:time"}}
    references = MultiZarrToZarr(single, **how).translate()
    with xr.open_dataset(references, engine="kerchunk") as result:
        yield days(result), result["lon"].values, result["tas"].values


def with_iris(paths: Sequence[str]) -> Iterator[Found]:
    import iris
    from iris.util import unify_time_units

    cubes = iris.load(paths)
    unify_time_units(cubes)
    for cube in cubes.concatenate():
        yield cube.coord("time").points, cube.coord("longitude").points, np.ma.filled(cube.data, np.nan)


def with_virtualizarr(paths: Sequence[str]) -> Iterator[Found]:
    import xarray as xr
    from obspec_utils.registry import ObjectStoreRegistry
    from obstore.store import LocalStore
    from virtualizarr import open_virtual_mfdataset
    from virtualizarr.parsers import HDFParser

    chosen: Any = {"data_vars": "minimal", "coords": "minimal", "compat": "override", "join": "exact", "combine": "by_coords"}
    addresses, registry = [f"file://{path}" for path in paths], ObjectStoreRegistry({"file://": LocalStore()})
    decoded: Any = {"loadable_variables": ["time", "lon"], "decode_times": True}
    virtual = open_virtual_mfdataset(addresses, registry=registry, parser=HDFParser(), **decoded, **chosen)
    with xr.open_dataset(virtual.vz.to_kerchunk(format="dict"), engine="kerchunk") as result:
        yield days(result), result["lon"].values, result["tas"].transpose("time", "lon").values


def days(found: Any) -> Any:
    """Return decoded times as days since 2001-01-01."""
    return (found["time"].values.astype("M8[s]") - np.datetime64("2001-01-01", "s")) / np.timedelta64(1, "D")


PEERS: dict[str, tuple[str, Callable[[Sequence[str]], Iterator[Found]]]] = {
    "aggarray": ("aggarray", with_aggarray),
    "open_mfdataset": ("dask", with_xarray),
    "MFDataset": ("netCDF4", with_mfdataset),
    "cf-python": ("cf", with_cf),
    "kerchunk": ("kerchunk", with_kerchunk),
    "iris": ("iris", with_iris),
    "VirtualiZarr": ("virtualizarr", with_virtualizarr),
}


def outcome(name: str, read: Callable[[Sequence[str]], Iterator[Found]], paths: Sequence[str]) -> str:
    """Return the outcome of a pair in one word."""
    try:
        result = list(read(paths))
    except Exception:  # other software raises anything
        return "error"
    if len(result) > 1:
        return "separate"
    times, longitudes, values = result[0]
    right = (
        name not in SEPARATE
        and len(longitudes) == 4
        and bool((np.diff(times) > 0).all())
        and np.allclose(values, expected(times, longitudes), atol=1e-3, rtol=0)
    )
    return "right" if right else "wrong"


def table() -> dict[str, dict[str, str]]:
    """Return the table of the page: the word by pair and peer."""
    rows = re.findall(r"^\|(.*)\|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    cells = [[cell.strip().strip("`*") for cell in row.split("|")] for row in rows]
    head = next(row for row in cells if "aggarray" in row)
    return {row[0]: dict(zip(head[2:], row[2:], strict=True)) for row in cells if row[0] in PAIRS}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("peer", heavy(PEERS, only=["cf-python"]))
def test_table_matches_results(peer: str, tmp_path: Path) -> None:
    library, read = PEERS[peer]
    try:
        importlib.import_module(library)
    except (ImportError, RuntimeError, OSError) as error:
        pytest.skip(f"{peer} does not load: {error}")
    main(tmp_path)
    result = {name: outcome(name, read, [str(tmp_path / name / f"{letter}.nc") for letter in "ab"]) for name in PAIRS}
    assert result == {name: row[peer] for name, row in table().items()}


def test_pairs_contain_the_expected_values(tmp_path: Path) -> None:
    for name, pair in PAIRS.items():
        for what in pair:
            write(tmp_path / "one.nc", what)
            (array,) = aa.open(tmp_path / "one.nc")
            time = array.coords["time"].to_units("days since 2001-01-01")[:]
            difference = array.to_units("K")[:] - expected(time, array.coords["lon"][:])
            assert np.ptp(difference) < 1e-3, name
            assert abs(difference.mean()) < 1e-3 or name in SEPARATE, name
