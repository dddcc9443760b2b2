"""Round trip of an aggregation through an index, moved or not."""

import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

import aggarray as aa
from aggarray.index.decoder import unplain
from aggarray.index.encoder import plain
from aggarray.opening.aggregation import Aggregation
from tests.support.examples import examples
from tests.support.index_files import same, same_array, same_value, same_values, save_and_open
from tests.support.netcdf import LAT, LON, NOLEAP, TAS, TIME, cube, field, write
from tests.support.paths import ROOT
from tests.support.tilings import FILL, Tile, keys, tilings


def moved(old: Path, new: Path) -> Callable[[str], str]:
    return lambda uri: uri.replace(f"{old}/", f"{new}/")


def on_disk(tile: Tile, path: Path, form: str) -> aa.SubArray:
    """Write a tile as a variable of a netCDF file, with coordinates for its directions."""
    with netCDF4.Dataset(path, "w", format=form) as file:
        for name, size, forward in zip(tile.dimensions, tile.values.shape, tile.directions, strict=True):
            file.createDimension(name, size)
            line = np.arange(float(size))
            file.createVariable(name, "f8", (name,))[:] = line if forward else line[::-1]
        variable = file.createVariable("v", tile.values.dtype.newbyteorder("="), tile.dimensions, fill_value=FILL)
        variable.units = tile.units
        variable[...] = tile.values.filled(FILL)
    return aa.SubArray.from_file(path, "v")


# Random tilings


@given(st.lists(tilings(), min_size=1, max_size=3))
@settings(max_examples=examples(40))
def test_tilings_in_memory(tmp_path_factory: pytest.TempPathFactory, drawn: list[Any]) -> None:
    path = tmp_path_factory.mktemp("memory") / "index.nc"
    agg = Aggregation(tuple(t.master() for t in drawn))
    same(save_and_open(agg, path), agg)


@given(st.data())
@settings(max_examples=examples(40))
def test_tilings_of_files_and_memory_move(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Some pieces are in files, some in memory; the folder moves and the index is opened from elsewhere."""
    folder = tmp_path_factory.mktemp("mixed")
    old, new = folder / "old", folder / "new"
    old.mkdir()
    tiling = data.draw(tilings(min_size=1, native=True))
    form = data.draw(st.sampled_from(["NETCDF4", "NETCDF3_CLASSIC"]))
    where = [data.draw(st.booleans()) for _ in tiling.tiles]

    def piece(tile: Tile) -> aa.SubArray:
        number = next(n for n, t in enumerate(tiling.tiles) if t is tile)
        stored = where[number] and tile.values.size  # in netCDF a dimension of size 0 is unlimited
        return on_disk(tile, old / f"{number}.nc", form) if stored else tile.in_memory()

    agg = Aggregation((tiling.master(piece),))
    values, mask = agg.arrays[0][...], np.ma.getmaskarray(agg.arrays[0].read(masked=True))
    same(save_and_open(agg, old / "index.nc"), agg)
    os.rename(old, new)
    again = aa.open(new / "index.nc")
    same(again, agg, values=False, renamed=moved(old, new))
    np.testing.assert_array_equal(again.arrays[0][...], values)
    np.testing.assert_array_equal(np.ma.getmaskarray(again.arrays[0].read(masked=True)), mask)


@given(st.data())
@settings(max_examples=examples(40))
def test_lazy_arrays(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Selections with picks and steps, reversals, transpositions, chains of units and dtypes."""
    tiling = data.draw(tilings(min_size=1))
    array = tiling.master()
    for _ in range(data.draw(st.integers(1, 3))):
        what = data.draw(st.sampled_from(["lazy", "flip", "transpose", "units", "dtype"]))
        if what == "lazy":
            array = array.lazy[data.draw(keys(array.shape))]
        elif what == "flip" and array.ndim:
            array = array.flip(data.draw(st.sampled_from(array.dimensions)))
        elif what == "transpose":
            array = array.transpose()
        elif what == "units":
            array = array.to_units(data.draw(st.sampled_from(["km", "m", "cm"])))
        elif what == "dtype":
            array = array.astype(data.draw(st.sampled_from(["f4", "f8"])))
    agg = Aggregation((array,))
    same(save_and_open(agg, tmp_path_factory.mktemp("lazy") / "index.nc"), agg)


# Files of all kinds


def packed(times: Any, **more: Any) -> dict[str, tuple[Any, ...]]:
    values = np.arange(len(times) * 6, dtype="i2").reshape(len(times), 3, 2)
    attrs = {**TAS, "scale_factor": np.float32(0.5), "add_offset": np.float32(250.0), "_FillValue": np.int16(3), **more}
    return cube(times, tas=(("time", "lat", "lon"), values, attrs))


def store(path: Path, times: Any) -> None:
    root = zarr.open_group(path, mode="w", zarr_format=2)
    for name, (dimensions, values, attrs) in cube(times).items():
        made = root.create_array(name, shape=np.shape(values), dtype=np.asarray(values).dtype, chunks=np.shape(values))
        made[...] = values
        made.attrs.update({**attrs, "_ARRAY_DIMENSIONS": list(dimensions)})


def several_units(folder: Path) -> None:
    write(folder / "0.nc", cube([0, 1]))
    celsius = field([2, 3], (10, 20, 30), (0, 5)) - np.float32(273.15)
    write(folder / "1.nc", cube([2, 3], tas=(("time", "lat", "lon"), celsius, {**TAS, "units": "degC"})))
    write(folder / "2.nc", packed([4, 5]))
    write(folder / "3.nc", packed([6], valid_range=np.array([0, 4], "i2")))
    backwards = cube([7], lats=(30.0, 20.0, 10.0))
    write(folder / "4.nc", backwards, format="NETCDF3_CLASSIC")
    turned = np.ascontiguousarray(field([8], (10, 20, 30), (0, 5)).transpose(2, 0, 1))
    write(folder / "5.nc", cube([8], tas=(("lon", "time", "lat"), turned, TAS)), format="NETCDF3_64BIT_OFFSET")
    store(folder / "6.zarr", [9, 10])


def with_holes(folder: Path) -> None:
    for t in range(3):
        for lat in range(3):
            if (t, lat) != (1, 1):
                write(folder / f"{t}{lat}.nc", cube([t], lats=[lat * 10.0, lat * 10 + 5.0]))


def calendars(folder: Path) -> None:
    for name, attrs in (("a", NOLEAP), ("b", {**TIME, "calendar": "360_day"}), ("c", TIME)):
        for t in range(2):
            write(folder / name / f"{t}.nc", cube([t], time=(("time",), [float(t)], attrs)), {"source_id": name})
    write(
        folder / "c" / "2.nc",
        cube([2], time=(("time",), [48.0], {**TIME, "units": "hours since 2000-01-01"})),
        {"source_id": "c"},
    )


def grids(folder: Path) -> None:
    """Return an archive with two-dimensional coordinates, bounds, a grid mapping, cell measures, text and groups."""
    for t in range(3):
        content = {
            "time": (("time",), [float(t)], {**TIME, "bounds": "time_bnds"}),
            "time_bnds": (("time", "nv"), [[t - 0.5, t + 0.5]]),
            "lat2d": (("y", "x"), np.arange(6.0).reshape(2, 3), {**LAT}),
            "lon2d": (("y", "x"), np.arange(6.0).reshape(2, 3) * 2, {**LON}),
            "station": (("x",), np.array(["Köln", "", "a b"]), {"long_name": "station"}),
            "height": ((), 2.0, {"standard_name": "height", "units": "m"}),
            "crs": ((), np.int32(0), {"grid_mapping_name": "rotated_latitude_longitude", "grid_north_pole_latitude": 39.25}),
            "area": (("y", "x"), np.full((2, 3), 4.0, "f4"), {"standard_name": "cell_area", "units": "m2"}),
            "tas": (
                ("time", "y", "x"),
                np.arange(6, dtype="f4").reshape(1, 2, 3) + t * 10,
                {**TAS, "coordinates": "lat2d lon2d station height", "grid_mapping": "crs", "cell_measures": "area: area"},
            ),
            "deep/er/pr": (("time", "y"), np.full((1, 2), t, "i4"), {"units": "kg m-2 s-1", "_FillValue": np.int32(-5)}),
        }
        write(folder / f"{t}.nc", content)


def two_of_a_name(folder: Path) -> None:
    for source, lats in (("A", (10.0, 20.0, 30.0)), ("B", (11.0, 21.0, 31.0, 41.0))):
        for t in range(2):
            write(folder / f"{source}{t}.nc", cube([t], lats=lats), {"source_id": source, "only": source})


def odd(folder: Path) -> None:
    """Return an archive with refusals, an unreadable file, a duplicate, scalars, empty arrays and text."""
    write(folder / "0.nc", cube([0, 1]))
    write(folder / "1.nc", cube([1, 2], tas=(("time", "lat", "lon"), field([7, 8], (10, 20, 30), (0, 5)), TAS)))
    write(folder / "copy" / "0.nc", cube([0, 1]))
    (folder / "bad.nc").write_bytes(b"\x89HDF\r\n\x1a\n and nothing")
    write(folder / "scalar.nc", {"answer": ((), np.int16(42), {"units": "1"}), "name": ((), np.array("Ärger"))})
    write(folder / "none.nc", {"empty": (("nothing", "z"), np.zeros((0, 3)))}, unlimited=("nothing",))
    write(folder / "words.nc", {"label": (("n",), np.array(["a", "ü", ""]))})


def attributes(folder: Path) -> None:
    given = {
        "text": "wörds",
        "none": "",
        "number": np.float32(0.1),
        "whole": np.int16(-3),
        "big": np.uint64(2**64 - 1),
        "several": np.array([1, 2, 3], "i2"),
        "few": np.array([0.1, np.nan, np.inf]),
        "texts": ["a", "", "ö"],
    }
    for t in range(2):
        write(
            folder / f"{t}.nc",
            cube([t], tas=(("time", "lat", "lon"), field([t], (10, 20, 30), (0, 5)), {**TAS, **given})),
            given,
        )


KINDS = (several_units, with_holes, calendars, grids, two_of_a_name, odd, attributes)


@pytest.mark.parametrize("make", KINDS, ids=lambda k: k.__name__)
def test_files_of_all_kinds(tmp_path: Path, make: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch) -> None:
    data, new = tmp_path / "data", tmp_path / "elsewhere" / "moved"
    data.mkdir()
    make(data)
    agg = aa.open(data)
    same(save_and_open(agg, data / "index.nc"), agg)
    same(save_and_open(agg, tmp_path / "absolute.nc", relative=False), agg)
    new.parent.mkdir()
    os.rename(data, new)
    monkeypatch.chdir(new.parent)
    again = aa.open("moved/index.nc")
    same(again, agg, values=False, renamed=moved(data, new))
    for array in again:
        array.read()
    # A moved index can be saved and opened again.
    same(save_and_open(again, "second.nc"), again)


@pytest.mark.parametrize("make", KINDS, ids=lambda k: k.__name__)
def test_no_data_file_is_touched(tmp_path: Path, make: Callable[[Path], None]) -> None:
    data = tmp_path / "data"
    make(data)
    agg = aa.open(data)
    agg.save(tmp_path / "index.nc")
    shutil.rmtree(data)
    again = aa.open(tmp_path / "index.nc")
    same(again, agg, values=False)
    for array, old in zip(again, agg, strict=True):
        for name, coordinate in array.coords.items():
            if coordinate._known is not None and coordinate.units and " since " in coordinate.units:
                same_value(coordinate.datetimes(), old.coords[name].datetimes())
        if "time" in array.dimensions and "time" in array.coords:
            first = array.coords["time"].datetimes(0)[()]
            assert array.sel(time=slice(first, first)).shape == old.sel(time=slice(first, first)).shape
    assert {p.kind for p in again.check().problems} >= {"missing"}


def test_open_an_index_with_other_rules(tmp_path: Path) -> None:
    with_holes(tmp_path / "data")
    odd(tmp_path / "data" / "odd")
    index = tmp_path / "index.nc"
    aa.open(tmp_path / "data").save(index)
    for rules in (
        aa.Rules(holes="refuse"),
        aa.Rules(overlap="last"),
        aa.Rules(along=["time"]),
        aa.Rules(units={"tas": "degC"}, directions={"lat": False}),
        aa.Rules(new_dimension=r"file=(\d)\.nc", separate_by=[]),
    ):
        expected = aa.open(tmp_path / "data", rules=rules)
        again = aa.open(index, rules=rules)
        same(again, expected)
        # A save then stores the other rules.
        again.save(tmp_path / "other.nc")
        same(aa.open(tmp_path / "other.nc"), expected)


def test_rules_and_names_are_kept(tmp_path: Path) -> None:
    odd(tmp_path / "data")
    rules = aa.Rules(
        overlap="first",
        tolerance=0.25,
        units={"tas": "degC"},
        directions={"lat": False},
    )
    agg = aa.open(tmp_path / "data", rules=rules, variables=["tas", "answer"])
    again = save_and_open(agg, tmp_path / "index.nc")
    assert again._provenance.rules == rules and again._provenance.variables == ("tas", "answer")
    same(again, agg)
    one = aa.open(tmp_path / "index.nc", variables=["answer"])
    assert one.names == ("answer",)
    with pytest.raises(aa.NotFoundError, match=r"nobody.*answer"):
        aa.open(tmp_path / "index.nc", variables=["nobody"])


@pytest.mark.parametrize("name", ["tas", "answer"])
def test_a_selection_is_kept(tmp_path: Path, name: str) -> None:
    odd(tmp_path / "data")
    some = aa.open(tmp_path / "data").select(name)
    again = save_and_open(some, tmp_path / "index.nc")
    assert len(again) == len(some) and again.names == some.names
    for one, other in zip(again, some, strict=True):
        same_array(one, other)
        same_values(one, other)


# Values in memory


MEMORY = (
    np.array([True, False]),
    np.array(["2000-01-01", "NaT"], "M8[ns]"),
    np.array([1, 2], "m8[s]"),
    np.array([1 + 2j, np.nan]),
    np.arange(6, dtype=">i4").reshape(2, 3),
    np.array(["a", "ü", ""]),
    np.array(7.5),
    np.zeros((0, 3)),
    np.array([1, 2, 3], "f2"),
    np.ma.MaskedArray([1, 2, 3], [False, True, False]),
    np.array([2**63, 2**64 - 1], "u8"),
)


@pytest.mark.parametrize("values", MEMORY, ids=lambda v: f"{v.dtype}{v.shape}")
def test_values_in_memory(tmp_path: Path, values: np.ndarray) -> None:
    piece = aa.SubArray.from_array(values)
    where = [tuple((0, n) for n in values.shape)]
    array = aa.MasterArray.from_subarrays([(where[0], piece)], dimensions=[f"d{i}" for i in range(values.ndim)], name="v")
    again = save_and_open(Aggregation((array,)), tmp_path / "index.nc")
    same(again, Aggregation((array,)))


ATTRIBUTES = (
    *("", "a b", "ü\udce9", 0, -1, 2**80, 0.1, float("nan"), float("inf"), True, None),
    *(
        np.float32(0.1),
        np.float64(np.nan),
        np.int8(-1),
        np.uint64(2**64 - 1),
        np.bool(True),
        np.float16(0.1),
        np.longdouble(1) / 3,
    ),
    *(np.arange(3, dtype="i2"), np.zeros(0), np.zeros((2, 2), "f4"), np.array(["a", "b"]), np.array([b"ab", b""])),
    *(np.datetime64("2000-01-01"), np.datetime64("NaT", "D"), np.timedelta64(3, "D"), np.array(["2000"], "M8[Y]")),
    *(["a", ""], [], ("a", 1), [1, [2.5, None]], {"a": 1, "b": [np.float32(1)]}, np.complex64(1j)),
    np.arange(3, dtype=">i4"),
    np.array(["a", "ü"], np.dtypes.StringDType()),
)


@pytest.mark.parametrize("value", ATTRIBUTES, ids=repr)
def test_any_attributes(tmp_path: Path, value: Any) -> None:
    array = aa.MasterArray.from_subarrays([([(0, 1)], aa.SubArray.from_array([1.0]))], dimensions=("x",), name="v")
    array = aa.MasterArray(
        *(getattr(array, n) for n in ("name", "dtype", "units", "calendar", "fill_value", "_matrix")), {"x": value}
    )
    again = save_and_open(Aggregation((array,)), tmp_path / "index.nc")["v"]
    same_value(again.attrs["x"], value)
    same_value(unplain(plain(value)), value)


NAMES = ("with blank", "a/b", "ü", "per%cent", "100", "_x", "a:b", "", "a\nb", ".", "x" * 300)


@pytest.mark.parametrize("name", NAMES)
def test_any_names(tmp_path: Path, name: str) -> None:
    piece = aa.SubArray.from_array([1.0, 2.0], dimensions=(name or "d",))
    array = aa.MasterArray.from_subarrays([([(0, 2)], piece)], dimensions=(name or "d",), name=name)
    nameless = aa.MasterArray.from_subarrays([([(0, 2)], piece)], dimensions=(name or "d",))
    agg = Aggregation((array, nameless, array))
    same(save_and_open(agg, tmp_path / "index.nc"), agg)


@pytest.mark.parametrize(
    "name", ["per%cent.nc", "per%20cent.nc", "a b.nc", "a:b.nc", "ü.nc", "#a?.nc", "a\nb.nc", b"\xff.nc", "a[1].nc"]
)
@pytest.mark.parametrize("where", ["with:colon", "", "a b%25", "../up"])
def test_any_paths(tmp_path: Path, name: Any, where: str) -> None:
    """Paths of the data and of the index, which moves with them."""
    home = tmp_path / "home"
    home.mkdir()
    folder = Path(os.path.normpath(home / where))
    folder.mkdir(exist_ok=True)
    write(home / "plain.nc", cube([0]))
    target = os.fsdecode(os.path.join(os.fsencode(folder), os.fsencode(name)))
    shutil.copy(home / "plain.nc", target)
    (home / "plain.nc").unlink()
    agg = aa.open([target])
    for relative in (True, False):
        index = home / "in dex%20.nc"
        same(save_and_open(agg, index, relative=relative), agg)
        index.unlink()


def test_a_file_with_an_encoded_twin(tmp_path: Path) -> None:
    """``a b.nc`` and ``a%20b.nc`` in one folder are different files."""
    for t, name in enumerate(("a b.nc", "a%20b.nc", "a%2520b.nc")):
        write(tmp_path / name, cube([t]))
    agg = aa.open(tmp_path)
    same(save_and_open(agg, tmp_path / "index.idx"), agg)


def test_many_files_fill_columns(tmp_path: Path) -> None:
    """Long columns and lists of texts are stored in variables."""
    for t in range(40):
        write(
            tmp_path / f"{t * 7 % 40:02d} {'x' * (t % 5)}.nc",
            cube([t * 1.0 + (t > 20)]),
            {"note": f"n{t}"},
            format="NETCDF3_CLASSIC",
        )
    agg = aa.open(tmp_path)
    same(save_and_open(agg, tmp_path / "index.idx"), agg)


# Other processes


def pickled(array: aa.MasterArray) -> bytes:
    data = pickle.dumps(array)
    same_values(pickle.loads(data), array)
    return data


def test_arrays_of_an_index_have_small_pickles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for t in range(30):
        write(tmp_path / "data" / f"{t}.nc", cube([t]), format="NETCDF3_CLASSIC")
    agg = save_and_open(aa.open(tmp_path / "data"), tmp_path / "index.nc")
    tas = agg["tas"]
    chain = tas.lazy[3:20:2, [2, 0]].flip("time").transpose("lon", "time", "lat").to_units("degC").astype("f8").sel(lon=5.0)
    assert len(pickled(tas)) < 600
    assert len(pickled(chain)) < 1200
    same_array(pickle.loads(pickle.dumps(chain)), chain)
    again = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(chain))))
    same_array(again, chain)
    for coordinate in chain.coords.values():
        pickled(coordinate)
    # Another process, another working directory.
    (tmp_path / "sent").write_bytes(pickle.dumps(chain))
    code = f"import pickle; a = pickle.load(open({str(tmp_path / 'sent')!r}, 'rb')); print(a[...].sum(), a.units)"
    run = subprocess.run(
        [sys.executable, "-c", code], cwd="/", capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    assert run.stdout.split() == [str(chain[...].sum()), "degC"], run.stderr
    # Opened by a relative path, pickled, and loaded in another directory.
    monkeypatch.chdir(tmp_path)
    data = pickle.dumps(aa.open("index.nc")["tas"])
    monkeypatch.chdir("/")
    same_values(pickle.loads(data), tas)


def test_the_index_of_a_pickled_array_was_saved_again(tmp_path: Path) -> None:
    write(tmp_path / "a.nc", cube([0]))
    write(tmp_path / "b.nc", cube([1]))
    agg = save_and_open(aa.open(tmp_path / "a.nc"), tmp_path / "index.nc")
    sent = pickle.dumps(agg["tas"])
    agg.append(tmp_path / "b.nc").save(tmp_path / "index.nc")
    with pytest.raises(aa.IndexFileError, match=r"index\.nc.*open it again"):
        pickle.loads(sent)
    (tmp_path / "index.nc").unlink()
    with pytest.raises(aa.AggarrayError, match=r"index\.nc"):
        pickle.loads(sent)


def test_pickles_of_changed_arrays(tmp_path: Path) -> None:
    write(tmp_path / "a.nc", cube([0, 1]))
    tas = save_and_open(aa.open(tmp_path / "a.nc"), tmp_path / "index.nc")["tas"]
    other = replace(tas, name="other")
    assert pickle.loads(pickle.dumps(other)).name == "other"
    filled = replace(tas, fill_value=np.float32(5))
    same_value(pickle.loads(pickle.dumps(filled)).fill_value, np.float32(5))
    unit = replace(tas, units="degC", dtype=np.dtype("f8"))
    assert (pickle.loads(pickle.dumps(unit)).units, pickle.loads(pickle.dumps(unit)).dtype) == ("degC", np.dtype("f8"))
    key = np.array([1, 0])
    picked = tas.lazy[key]
    key[:] = 0
    same_values(pickle.loads(pickle.dumps(picked)), picked)


# Saving more than once


def test_save_over_itself_and_under_other_names(tmp_path: Path) -> None:
    several_units(tmp_path / "data")
    agg = aa.open(tmp_path / "data")
    first = save_and_open(agg, tmp_path / "index.nc")
    first.save(tmp_path / "index.nc")
    first.save(tmp_path / "index.nc")
    same(save_and_open(first, tmp_path / "copy.nc"), agg)
    same(aa.open(tmp_path / "index.nc"), agg)


def test_save_reports_arrays_that_other_software_cannot_read(tmp_path: Path) -> None:
    with_holes(tmp_path / "data")
    write(tmp_path / "data" / "pr.nc", cube([0], pr=(("time",), [1.0], {"units": "mm"}), tas=None))
    report = aa.open(tmp_path / "data").save(tmp_path / "index.nc")
    [problem] = report.problems
    assert not report.ok and "tas" in problem.message and "missing" in problem.message
    assert aa.open(tmp_path / "data").select("pr").save(tmp_path / "pr.nc").ok


def test_arrays_of_concat(tmp_path: Path) -> None:
    write(tmp_path / "a.nc", cube([0]))
    write(tmp_path / "b.nc", cube([5]))
    joined = aa.concat([aa.open(tmp_path / n)["tas"] for n in ("b.nc", "a.nc")], "time")
    agg = Aggregation((joined,))
    same(save_and_open(agg, tmp_path / "index.nc"), agg)


def test_an_index_among_data_files_is_not_data(tmp_path: Path) -> None:
    write(tmp_path / "a.nc", cube([0]))
    write(tmp_path / "b.nc", cube([1]))
    aa.open(tmp_path).save(tmp_path / "index.nc")
    agg = aa.open(tmp_path)
    assert len(agg) == 1 and agg["tas"].shape == (2, 3, 2)
    assert [os.path.basename(s.file) for s in agg.skipped] == ["index.nc"]
    # If it is in the list of sources, its files join the others.
    write(tmp_path / "more" / "c.nc", cube([2]))
    both = aa.open([tmp_path / "index.nc", tmp_path / "more"])
    same(both, aa.open([tmp_path / "a.nc", tmp_path / "b.nc", tmp_path / "more"]))
