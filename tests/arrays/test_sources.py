"""Sources of a selection: read with netCDF4 and converted here, they give the values at their locations."""

import pickle
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import aggarray as aa
from aggarray import MasterArray, SubArray
from aggarray.arrays.sources import Sources
from aggarray.read import close_files
from aggarray.storage.access import Access
from tests.support.calls import calls_of
from tests.support.netcdf import cube, write
from tests.support.tilings import FACTORS, FILL, Tile, keys, pick, tilings


def stored(source: aa.Source, dimensions: tuple[str, ...]) -> np.ma.MaskedArray:
    """Return the values of a source in the units "m", in the order and direction of dimensions, by netCDF4 and its words."""
    assert source.uri is not None
    with netCDF4.Dataset(source.uri) as file:
        variable = file[source.variable]
        names, block = list(variable.dimensions), variable[...].astype("f8")
    for axis, indices in enumerate(source.part):
        block = block[(slice(None),) * axis + (indices,)]
    changes = dict(c.rsplit(" -> ", 1)[0].split(" ", 1) for c in source.conversions if c.startswith("units"))
    # A masked array would mask NaN in a division.
    block = np.ma.MaskedArray(np.ma.getdata(block) / FACTORS[changes.get("units", "m")], np.ma.getmaskarray(block))
    for change in source.conversions:
        if change.startswith("direction "):
            block = np.flip(block, names.index(change.split()[1]))
    for change in source.conversions:
        if change.endswith("-> without"):
            name = change.split()[3]
            block = block.take(0, names.index(name))
            names.remove(name)
    present = [d for d in dimensions if d in names]
    block = block.transpose([names.index(d) for d in present])
    assert all(d in names or f"size-1 dimension without {d} -> with" in source.conversions for d in dimensions)
    return block[tuple(slice(None) if d in names else np.newaxis for d in dimensions)]


@given(st.data())
def test_the_parts_of_random_keys_hold_the_values_at_their_locations(data: Any) -> None:
    tiling = data.draw(tilings(native=True))
    folder = Path(tempfile.mkdtemp())

    def placed(tile: Tile) -> SubArray:
        path = folder / f"{len(list(folder.iterdir()))}.nc"
        with netCDF4.Dataset(path, "w") as file:
            for d, n in zip(tile.dimensions, tile.values.shape, strict=True):
                file.createDimension(d, n or None)
            made = file.createVariable("v", tile.values.dtype, tile.dimensions, fill_value=tile.values.dtype.type(FILL))
            made.units = tile.units
            made[...] = tile.values
        sub = SubArray.from_file(path, "v")
        return replace(sub, template=replace(sub.template, directions=tile.directions))

    try:
        a = tiling.master(placed)
        if data.draw(st.booleans()) and a.ndim:
            key = data.draw(keys(a.shape))
            a = a.lazy[key]
        key = data.draw(keys(a.shape))
        expected = a.read(key, masked=True)
        filled = np.ma.masked_all(a.shape, "f8")
        for source in a.sources(key):
            where = np.ix_(*(np.arange(n)[p] for n, p in zip(a.shape, source.location, strict=True)))
            filled[where] = stored(source, a.dimensions)
        found = np.ma.MaskedArray(pick(filled.data, key), pick(np.ma.getmaskarray(filled), key))
        np.testing.assert_array_equal(np.ma.getmaskarray(found), np.ma.getmaskarray(expected))
        np.testing.assert_allclose(found.filled(0), expected.astype("f8").filled(0), rtol=1e-6)
    finally:
        close_files()
        shutil.rmtree(folder)


def test_what_is_converted_is_written_in_words(sample_archive: Path) -> None:
    tas = aa.open(sample_archive)["tas"]
    found = {Path(str(s.uri)).name: s for s in tas.sources()}
    assert "units degC -> K" in found["tas_200103.nc"].conversions
    assert "direction lat decreasing -> increasing" in found["tas_200104.nc"].conversions
    assert "packing int16 x 0.01 + 273.15 -> float32" in found["tas_200108.nc"].conversions
    assert "dimension order lon lat time -> time lat lon" in found["tas_200110.nc"].conversions
    assert found["tas_200111.nc"].conversions == ("missing value 1e+20 -> NaN",)
    assert found["tas_200102.nc"].location[0] == slice(31, 59, 1) and found["tas_200102.nc"].part[0] == slice(0, 28, 1)
    with netCDF4.Dataset(sample_archive / "tas_200102.nc") as file:
        assert found["tas_200102.nc"].tracking_id == file.tracking_id
    [chained] = tas.sel(time="2001-03-05").to_units("degF").sources()
    assert chained.conversions[0] == "units degC -> K -> degF"
    assert chained.part == (slice(4, 5, 1), slice(0, 18, 1), slice(0, 36, 1))
    assert chained.location == (slice(0, 1, 1), slice(0, 18, 1), slice(0, 36, 1))


def test_an_unsigned_variable_and_a_calendar(tmp_path: Path) -> None:
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as file:
        file.createDimension("x", 2)
        made = file.createVariable("v", "i1", ("x",))
        made.set_auto_maskandscale(False)
        made.setncatts({"_Unsigned": "true"})
        made[:] = [1, -1]
    [source] = aa.open(tmp_path)["v"].sources()
    assert source.conversions == ("_Unsigned int8 -> uint8",) and source.tracking_id is None


def test_values_in_memory_and_missing_partitions_have_no_file() -> None:
    pieces = [([(0, 2)], SubArray.from_array([1.0, 2.0])), ([(3, 4)], SubArray.from_array([4.0]))]
    a = MasterArray.from_subarrays(pieces, dimensions=("x",))
    assert [(s.uri, s.variable, s.location, s.tracking_id) for s in a.sources()] == [
        (None, None, (slice(0, 2, 1),), None),
        (None, None, (slice(3, 4, 1),), None),
    ]
    assert a.sources(2) == () and repr(a.sources(2)) == "no sources: all values are missing, or none is selected"
    with pytest.raises(aa.SelectionError, match="index 4 is out of range"):
        a.sources(4)


def test_ragged_arrays_name_the_samples(sample_stations: Path) -> None:
    a = next(a for a in aa.open(sample_stations) if a.name == "temperature")
    for key in (0, slice(1, 3), [4, 0]):
        samples = a.flat
        parts = [samples[s.location] for s in a.sources(key)]
        rows = a[key] if isinstance(key, int) else a[key].flat
        np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.sort(rows))


@pytest.mark.parametrize("trust", ["verify", "assume"])
def test_only_the_selected_files_are_opened(tmp_path: Path, trust: Any) -> None:
    for n in range(8):
        write(tmp_path / f"{n}.nc", cube([2 * n, 2 * n + 1]), {"tracking_id": f"hdl:{n}"})
    a = aa.open(tmp_path, rules=aa.Rules(trust=trust))["tas"]
    for n in range(8):
        if n != 5:
            (tmp_path / f"{n}.nc").unlink()
    [source] = a.sources(slice(10, 12))
    assert (source.uri, source.tracking_id) == (str(tmp_path / "5.nc"), "hdl:5")
    if trust == "assume":
        with pytest.raises(aa.MissingFileError, match="no such file"):
            a.sources()


def test_roots_hold_for_the_attribute_of_a_file(tmp_path: Path) -> None:
    write(tmp_path / "a.nc", cube([0]), {"tracking_id": "t"})
    [source] = aa.open(tmp_path / "a.nc")["tas"].sources()
    forbidden = replace(source, _access=Access(roots=(str(tmp_path / "other"),)))
    with pytest.raises(aa.ForbiddenPathError, match=r"a\.nc"):
        print(forbidden.tracking_id)


def test_sources_pickle_and_print(sample_archive: Path) -> None:
    sources = aa.open(sample_archive)["tas"].sources(slice(0, 40))
    again = pickle.loads(pickle.dumps(sources))
    assert isinstance(again, Sources) and [s.part for s in again] == [s.part for s in sources]
    lines = repr(sources).splitlines()
    assert lines[0] == "2 sources" and lines[2].split() == ["file", "variable", "part", "location", "conversions"]
    assert lines[4].split()[:4] == ["tas_200101.nc", "tas", "0:31,", "0:18,"]
    signed = aa.Source("https://h/a.nc?sig=secret", "v", (), (), ())
    assert "secret" not in repr(signed) and "secret" not in repr(Sources([signed]))


@pytest.mark.heavy
def test_a_selection_of_a_million_partitions_costs_what_its_pieces_do() -> None:
    one = SubArray.from_array([1.0], dimensions=("x",))
    few, many = (
        MasterArray.from_subarrays([([(n, n + 1)], one) for n in range(count)], dimensions=("x",)) for count in (1000, 200_000)
    )
    first, second = (calls_of(lambda a=a: a.sources(slice(300, 310)), builtin=True) for a in (few, many))
    assert second <= first + 100
