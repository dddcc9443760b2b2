"""Indexes, references and extracts of earlier releases still open. `tests/fixtures/pickles/make.py` wrote them."""

import json
import shutil
from importlib import metadata
from pathlib import Path

import h5py
import netCDF4
import numpy as np
import pytest
import zarr

import aggarray as aa
from aggarray.export.extract import extract, is_extracted
from sample_data.stations import expected_profiles
from tests.support.index_files import same_values
from tests.support.kerchunk import FOLDER as KERCHUNK
from tests.support.kerchunk import values as year
from tests.support.netcdf import check
from tests.support.pickles import KEPT, ROOT, in_one_place, same

SAMPLES = ROOT / "sample_data"
#: The global attribute with the fingerprint of an extract: part of the stored form.
ATTRIBUTE = "aggarray_extract"


def grid() -> np.ndarray:
    """Return the values of the sample tiles."""
    y, x = np.mgrid[0:8, 0:7]
    return np.asarray(10.0 * y + x)


def height() -> aa.MasterArray:
    """Return the array in memory of the stored extracts."""
    one = aa.SubArray.from_array(np.arange(6.0).reshape(2, 3), dimensions=("y", "x"), units="m")
    two = aa.SubArray.from_array(np.arange(3, dtype="i2").reshape(1, 3), dimensions=("y", "x"), units="km")
    pieces = [([(0, 2), (0, 3)], one), ([(3, 4), (0, 3)], two)]
    return aa.MasterArray.from_subarrays(pieces, dimensions=("y", "x"), name="height", fill_value=-1.0)


def copied(name: str, folder: Path) -> Path:
    """Return a writable copy of a stored file or store."""
    source = KEPT / name
    return Path(shutil.copytree(source, folder / name) if source.is_dir() else shutil.copy(source, folder / name))


# Indexes


def test_an_index_with_chunk_tables_opens() -> None:
    result, expected = aa.open(KEPT / "archive.nca"), aa.open(SAMPLES / "archive")
    assert result["tas"]._matrix.references.tables is not None
    same(result["tas"], expected["tas"])
    np.testing.assert_array_equal(result["tas"][...], expected["tas"][...])
    # Files of a checkout have other modification times and the same content.
    assert all(p.kind == "changed" and "modification time" in p.message for p in result.check().problems)


def test_index_keeps_its_rules() -> None:
    result = aa.open(KEPT / "joined.nca")
    assert result._provenance.rules == aa.Rules(
        along=("x", "time", "profile"),
        order={"profile": "given"},
        separate_by=("title",),
        tolerance=1e-4,
        overlap="first",
        holes="refuse",
        coverage=0.75,
        units={"tas": "degC"},
        directions={"lat": True},
    )
    tiles = [SAMPLES / "tiles" / f"tile_{n:02}.nc" for n in range(1, 5)]
    data = [*tiles, SAMPLES / "stations", KERCHUNK / "y0.nc3", KERCHUNK / "y0.nc4", KERCHUNK / "y1.nc4"]
    same_all(result, aa.open([*data, SAMPLES / "README.md"], rules=result._provenance.rules))
    np.testing.assert_array_equal(result.select("value").arrays[0][...], grid()[:2, :5])
    assert len(result.refusals) == 2 and len(result.skipped) == 1 and len(result.duplicates) == 2
    more, fifth = result.append(SAMPLES / "tiles" / "tile_05.nc"), SAMPLES / "tiles" / "tile_05.nc"
    same_all(more, aa.open([*data, SAMPLES / "README.md", fifth], rules=result._provenance.rules))


def same_all(found: aa.Aggregation, wanted: aa.Aggregation) -> None:
    """Compare two aggregations: arrays in order, refusals, skipped files, duplicates."""
    for one, other in zip(found, wanted, strict=True):
        same(one, other)
    assert set(found.refusals) == set(wanted.refusals) and len(found.refusals) == len(wanted.refusals)
    # Reasons are kept as they were worded then.
    assert [(s.file, s.variable) for s in found.skipped] == [(s.file, s.variable) for s in wanted.skipped]
    assert set(found.duplicates) == set(wanted.duplicates)


def test_index_keeps_its_selection() -> None:
    result = aa.open(KEPT / "rules.nca")
    assert result.names == ("temperature", "tas") and {a.units for a in result} == {"degC"}
    stored = np.concatenate([year(0)[0], year(1)[0]]).astype("f8")
    truth = np.where(stored > 1e19, np.nan, stored - 273.15)[:, ::-1]
    np.testing.assert_allclose(result["tas"][...], truth, rtol=1e-5, atol=1e-4)
    for row, expected in zip(result["temperature"][:], expected_profiles(), strict=True):
        np.testing.assert_allclose(row, expected, atol=0.01)


@pytest.mark.parametrize("foreign", [False, True])
def test_a_cfa_0_4_file_opens(tmp_path: Path, foreign: bool) -> None:
    path = without_own_group(tmp_path, "tiles_cfa04.nc") if foreign else KEPT / "tiles_cfa04.nc"
    value = aa.open(path, relocate={"../../../sample_data": str(SAMPLES)})["value"]
    assert (value.pmshape, value.dimensions, value.units) == ((4, 6), ("y", "x"), "1")
    np.testing.assert_array_equal(value[...], grid())
    same_values(value, aa.open(SAMPLES / "tiles")["value"])


@pytest.mark.parametrize("foreign", [False, True])
def test_a_cf_1_13_file_opens(tmp_path: Path, foreign: bool) -> None:
    path = without_own_group(tmp_path, "alike_cf113.nc") if foreign else KEPT / "alike_cf113.nc"
    tas = aa.open(path, relocate={"alike/": f"{KEPT / 'alike'}/"})["tas"]
    check(tas, np.arange(16.0))
    same_values(tas, aa.open(KEPT / "alike")["tas"])
    assert tas.pmshape == (8,) and tas.attrs["cell_methods"] == "time: mean"


def without_own_group(folder: Path, name: str) -> Path:
    """Return a copy of an index without the additions of aggarray, as other software writes it."""
    path = copied(name, folder)
    with h5py.File(path, "r+") as file:
        del file["aggarray"]
    return path


# References


@pytest.mark.parametrize("name", ["references.json", "references.parq"])
def test_references_open(name: str) -> None:
    if name.endswith("parq"):
        pytest.importorskip("pyarrow")
    result = aa.open(KEPT / name)
    expected = aa.open([KERCHUNK / f"y{number}.nc4" for number in range(2)])
    assert sorted(result.names) == sorted(expected.names) == ["pr", "tas"]
    for array in expected:
        same_values(result[str(array.name)], array)
        assert result[str(array.name)].units == array.units
    tas, pr = (np.concatenate(both) for both in zip(year(0), year(1), strict=True))
    np.testing.assert_array_equal(result["tas"][...], np.where(tas > 1e19, np.float32(np.nan), tas))
    np.testing.assert_array_equal(result["pr"][...], np.where(pr == -1, np.nan, pr * 0.5))


# Extracts


@pytest.fixture
def same_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the versions of libraries to those of the stored fingerprint."""
    kept = json.loads((KEPT / "versions.json").read_text())
    version = metadata.version
    monkeypatch.setattr(metadata, "version", lambda name: kept.get(name) or version(name))


@pytest.mark.usefixtures("same_libraries")
@pytest.mark.parametrize("suffix", ["nc", "zarr"])
def test_an_extract_of_an_earlier_release_is_unchanged(tmp_path: Path, suffix: str) -> None:
    path = copied(f"memory.{suffix}", tmp_path)
    before = mark(path)
    assert is_extracted(height(), path)
    result = extract(height(), path, exists="update")
    assert result.unchanged and result.variables == ("height",) and mark(path) == before
    assert not extract(height().lazy[:2], path, exists="update").unchanged


@pytest.mark.usefixtures("same_libraries")
@pytest.mark.parametrize("suffix", ["nc", "zarr"])
def test_an_extract_of_files_is_unchanged(tmp_path: Path, suffix: str) -> None:
    path = copied(f"alike.{suffix}", tmp_path)
    with in_one_place(KEPT / "alike") as place:
        tas = aa.open(place)["tas"]
        assert is_extracted(tas, path) and extract(tas, path, exists="update").unchanged
        assert not is_extracted(tas.lazy[1:], path)


@pytest.mark.parametrize("suffix", ["nc", "zarr"])
def test_an_extract_of_an_earlier_release_is_updated(tmp_path: Path, suffix: str) -> None:
    """Its fingerprint matches the paths and times of its files, so that it may be replaced."""
    path = copied(f"days.{suffix}", tmp_path)
    days = aa.open(SAMPLES / "archive")["tas"].lazy[40:50, 3:9, ::4]
    was, before = values(path), mark(path)
    np.testing.assert_array_equal(was["tas"], days[...])
    same_values(aa.open(KEPT / f"days.{suffix}")["tas"], days)
    assert not extract(days.lazy[:5], path, exists="update").unchanged
    assert len(before) == 32 and mark(path) != before
    assert not extract(days, path, exists="update").unchanged and extract(days, path, exists="update").unchanged
    now = values(path)
    assert list(now) == list(was)
    for name in was:
        np.testing.assert_array_equal(now[name], was[name])


def mark(path: Path) -> str:
    """Return the fingerprint of an extract."""
    if path.is_dir():
        return str(zarr.open_group(path, mode="r").attrs[ATTRIBUTE])
    with netCDF4.Dataset(path) as file:
        return str(file.getncattr(ATTRIBUTE))


def values(path: Path) -> dict[str, np.ndarray]:
    """Return all variables of an extract, read by other libraries."""
    if path.is_dir():
        group = zarr.open_group(path, mode="r")
        return {name: np.asarray(group[name]) for name in sorted(group.array_keys())}
    with netCDF4.Dataset(path) as file:
        file.set_auto_mask(False)
        return {name: file[name][...] for name in sorted(file.variables)}
