"""Reader and writer of CFA-0.4."""

import json
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import aggarray as aa
from aggarray.index.conventions.cfa04_write import aggregation_attributes, inexpressible
from tests.support.foreign_indexes import fragment, opened
from tests.support.messages import says
from tests.support.netcdf import LAT, TIME, cube, write

pytestmark = pytest.mark.quick

VALUES = np.arange(20, dtype="f4").reshape(5, 4)
LOCATIONS = ([[0, 1], [0, 3]], [[2, 4], [0, 3]])


def part(number: int, rows: int, **changes: Any) -> dict[str, Any]:
    """Return a partition as JSON; ``changes`` replace (None: remove) keys of it, or of its sub-array."""
    result = {"index": [number], "location": LOCATIONS[number], "subarray": {}}
    sub = {"shape": [rows, 4], "file": f"{'ab'[number]}.nc", "ncvar": "tas", "format": "netCDF", "dtype": "float32"}
    for key, value in changes.items():
        (sub if key in (*sub, "varid", "pshape") else result)[key] = value
    result["subarray"] = {k: v for k, v in sub.items() if v is not None}
    return {k: v for k, v in result.items() if v is not None}


def index(folder: Path, partitions: Any, attrs: Any = None, more: Any = None, format: str = "NETCDF4", **given: Any) -> str:
    """Write an aggregation file over (time: 5, x: 4); ``given`` replace or (None) remove keys of the JSON."""
    text: dict[str, Any] = {"pmdimensions": ["time"], "pmshape": [2], "base": "", "Partitions": partitions, **given}
    result = {"cf_role": "cfa_variable", "cfa_dimensions": "time x", "units": "K"}
    result["cfa_array"] = json.dumps({k: v for k, v in text.items() if v is not None})
    result = {k: v for k, v in {**result, **(attrs or {})}.items() if v is not None}
    variables = {
        "time": (("time",), np.arange(5.0), TIME),
        "xx": (("x",), np.arange(4.0)),
        "tas": ((), np.float32(0), result),
        **(more or {}),
    }
    return write(folder / "index.nca", variables, {"Conventions": "CF-1.5 CFA-0.4"}, format)


@pytest.fixture
def pair(tmp_path: Path) -> Path:
    """Write two fragments of VALUES, three rows below two, into one folder."""
    fragment(tmp_path / "a.nc", VALUES[:2])
    fragment(tmp_path / "b.nc", VALUES[2:])
    return tmp_path


@pytest.mark.parametrize("format", ["NETCDF4", "NETCDF3_CLASSIC"])
def test_partitions_make_one_array(pair: Path, format: str) -> None:
    arrays = opened(index(pair, [part(0, 2), part(1, 3)], format=format))
    tas = arrays["tas"]
    assert (tas.shape, tas.dimensions, tas.pmshape, tas.units) == ((5, 4), ("time", "x"), (2,), "K")
    np.testing.assert_array_equal(tas[...], VALUES)
    assert not any(k.startswith(("cfa_", "cf_role")) for k in tas.attrs) and set(arrays) == {"tas", "xx"}


@pytest.mark.parametrize("without", ["pmshape", "index", "pmdimensions", "location_shape"])
def test_optional_keys(pair: Path, without: str) -> None:
    change: dict[str, Any] = {"index": None} if without == "index" else {"shape": None} if "shape" in without else {}
    given: dict[str, Any] = {"pmshape": None} if without.startswith("pm") else {}
    given |= {"pmdimensions": None} if without == "pmdimensions" else {}
    change |= {"index": None} if without == "pmdimensions" else {}
    np.testing.assert_array_equal(opened(index(pair, [part(0, 2, **change), part(1, 3, **change)], **given))["tas"], VALUES)


@pytest.mark.parametrize("shape", [None, 1])
def test_half_open_locations(pair: Path, shape: Any) -> None:
    change: dict[str, Any] = {"shape": None} if shape is None else {}
    open_ended = ([[0, 2], [0, 4]], [[2, 5], [0, 4]])
    partitions = [part(n, rows, location=open_ended[n], **change) for n, rows in ((0, 2), (1, 3))]
    np.testing.assert_array_equal(opened(index(pair, partitions))["tas"], VALUES)


def test_a_single_partition_of_everything(tmp_path: Path) -> None:
    fragment(tmp_path / "a.nc", VALUES)
    path = index(tmp_path, [part(0, 5, index=None, location=None)], pmdimensions=None, pmshape=None)
    np.testing.assert_array_equal(opened(path)["tas"], VALUES)


@pytest.mark.parametrize("base", [None, "", "data", "./data/", "absolute"])
def test_base(tmp_path: Path, base: str | None) -> None:
    folder = tmp_path / "data" if base and base != "absolute" else tmp_path
    fragment(folder / "a.nc", VALUES[:2])
    fragment(folder / "b.nc", VALUES[2:])
    (tmp_path / "sub").mkdir()
    where = tmp_path / "sub" if base in (None, "absolute") else tmp_path
    names = [str(folder / f"{n}.nc") if base is None else f"{n}.nc" for n in "ab"]
    base = str(tmp_path) if base == "absolute" else base
    path = index(where, [part(0, 2, file=names[0]), part(1, 3, file=names[1])], base=base)
    np.testing.assert_array_equal(opened(path)["tas"], VALUES)


def test_file_names_are_not_references(tmp_path: Path) -> None:
    """CFA-0.4 has file names, not URIs: a percent sign is part of the name."""
    fragment(tmp_path / "a%20.nc", VALUES[:2])
    fragment(tmp_path / "a .nc", VALUES[:2] + 100)
    fragment(tmp_path / "b.nc", VALUES[2:])
    path = index(tmp_path, [part(0, 2, file="a%20.nc"), part(1, 3, file=f"file://{tmp_path}/b.nc")])
    np.testing.assert_array_equal(opened(path)["tas"], VALUES)


def test_variables_by_number(tmp_path: Path) -> None:
    for name, rows, format in (("a", VALUES[:2], "NETCDF3_CLASSIC"), ("b", VALUES[2:], "NETCDF4")):
        variables = {"z": (("x",), np.zeros(4)), "tas": (("time", "x"), rows, {"units": "K"}), "a": (("x",), np.zeros(4))}
        write(tmp_path / f"{name}.nc", variables, format=format)
    path = index(tmp_path, [part(0, 2, ncvar=None, varid=1), part(1, 3, varid=None)])
    np.testing.assert_array_equal(opened(path)["tas"], VALUES)
    tas = opened(index(tmp_path, [part(0, 2, ncvar=None, varid=7), part(1, 3, ncvar=None, varid=1)]))["tas"]
    np.testing.assert_array_equal(tas[2:], VALUES[2:])
    with pytest.raises(aa.FormatError, match="the file has 3 variables: z, tas, a"):
        tas[...]


def test_keys_of_other_writers(tmp_path: Path) -> None:
    fragment(tmp_path / "a.nc", VALUES[:2])
    fragment(tmp_path / "b.nc", VALUES[2:][::-1, ::-1])
    second = part(1, 3, flip=["x", "time"])
    second["data"] = second.pop("subarray")
    np.testing.assert_array_equal(opened(index(tmp_path, [part(0, 2), second]))["tas"], VALUES)


def test_reversed_and_transposed_partitions_in_other_units(tmp_path: Path) -> None:
    fragment(tmp_path / "a.nc", (VALUES[:2] - np.float32(273.15)).T[::-1], ("x", "time"), units=None)
    fragment(tmp_path / "b.nc", VALUES[2:, ::-1, None].transpose(1, 2, 0), ("q", "z", "t"))
    first = part(0, 2, shape=[4, 2], pdimensions=["x", "time"], reverse=["x"], punits="degC")
    second = part(1, 3, shape=[4, 1, 3], pdimensions=["x", "z", "time"], reverse=["x"])
    tas = opened(index(tmp_path, [first, second]))["tas"]
    assert tas.partitions[0].punits == "degC" and tas.partitions[1].pdimensions == ("x", "z", "time")
    np.testing.assert_allclose(tas[...], VALUES, atol=1e-4)
    np.testing.assert_allclose(tas.lazy[1:4, ::2].flip("x")[...], VALUES[1:4, ::2][:, ::-1], atol=1e-4)
    lat = {"x": (("x",), np.array([3.0, 2.0, 1.0, 0.0]), LAT)}
    downwards = opened(index(tmp_path, [first, second], more=lat))["tas"]
    assert downwards.directions == (True, False) and downwards.partitions[0].pdirections == (True, True)
    np.testing.assert_allclose(downwards[...], VALUES, atol=1e-4)


def test_times_in_another_calendar(tmp_path: Path) -> None:
    fragment(tmp_path / "a.nc", VALUES[:2], units="days since 2000-01-01", calendar="360_day")
    attrs = {"units": "days since 2000-01-01"}
    with pytest.raises(aa.UnitsError, match="360_day"):
        opened(index(tmp_path, [part(0, 2)], attrs))["tas"][:2]
    said = part(0, 2, punits="hours since 2000-01-01", pcalendar="standard")
    np.testing.assert_allclose(opened(index(tmp_path, [said], attrs))["tas"][:2], VALUES[:2] / 24)


def test_parts(tmp_path: Path) -> None:
    big = np.arange(8 * 9 * 2, dtype="f4").reshape(8, 9, 2)
    fragment(tmp_path / "a.nc", big, ("time", "x", "z"))
    said = {"shape": [8, 9, 2], "pdimensions": ["time", "x", "z"]}
    first = part(0, 2, part="[[1, 4, 3], (0, 3, 4, 8), [1, 1, 1]]", **said)
    second = part(1, 3, file="a.nc", reverse=["time"], part="[(0, 2, 7), [2, 8, 2], (0,)]", **said)
    tas = opened(index(tmp_path, [first, second]))["tas"]
    expected = np.concatenate([big[1:5:3][:, [0, 3, 4, 8], 1], big[[0, 2, 7]][::-1, 2:9:2, 0]])
    np.testing.assert_array_equal(tas[...], expected)
    assert tas.partitions[0].part[0] == slice(1, 5, 3) and tas.partitions[0].virtual
    np.testing.assert_array_equal(tas.lazy[::-2, [0, 2]][...], expected[::-2][:, [0, 2]])


@pytest.mark.parametrize("text", ["[]", "[[0, 1, 1], [0, 3, 1]]", "[(0, 1), (0, 1, 2, 3)]", "([0,1,1],[0,3,1])"])
def test_the_spelling_of_parts(pair: Path, text: str) -> None:
    np.testing.assert_array_equal(opened(index(pair, [part(0, 2, part=text), part(1, 3)]))["tas"], VALUES)


def test_dimensions_of_the_matrix_in_another_order(tmp_path: Path) -> None:
    partitions = []
    for i, (t0, t1) in enumerate([(0, 1), (2, 4)]):
        for j, (x0, x1) in enumerate([(0, 0), (1, 3)]):
            values = VALUES[t0 : t1 + 1, x0 : x1 + 1]
            fragment(tmp_path / f"{i}{j}.nc", values)
            sub = {"shape": list(values.shape), "file": f"{i}{j}.nc", "ncvar": "tas"}
            partitions.append({"index": [j, i], "location": [[t0, t1], [x0, x1]], "subarray": sub})
    tas = opened(index(tmp_path, partitions[::-1], pmdimensions=["x", "time"], pmshape=[2, 2]))["tas"]
    np.testing.assert_array_equal(tas[...], VALUES)
    assert tas.pmshape == (2, 2)
    holes = opened(index(tmp_path, partitions[1:], pmdimensions=["x", "time"], pmshape=[2, 2]))["tas"]
    assert holes.read(masked=True).mask.sum() == 2


def test_sub_arrays_in_the_index_itself(pair: Path) -> None:
    more = {"own": (("three", "x"), VALUES[2:], {"cf_role": "cfa_private", "units": "K"})}
    for change in ({"file": None}, {"file": ""}):
        arrays = opened(index(pair, [part(0, 2), part(1, 3, ncvar="own", **change)], more=more))
        np.testing.assert_array_equal(arrays["tas"], VALUES)
        assert "own" not in arrays


def test_scalar_data(tmp_path: Path) -> None:
    write(tmp_path / "a.nc", {"tas": ((), np.float32(7), {"units": "K"})})
    for words in (None, "", " "):
        sub = {"shape": [], "file": "a.nc", "ncvar": "tas"}
        path = index(tmp_path, [{"subarray": sub}], {"cfa_dimensions": words}, pmdimensions=None, pmshape=None)
        assert opened(path)["tas"][...] == 7


def test_the_older_spelling(tmp_path: Path) -> None:
    fragment(tmp_path / "a.nc", VALUES[:2, ::-1])
    fragment(tmp_path / "b.nc", VALUES[2:] - np.float32(273.15))
    first = {"index": [0], "location": LOCATIONS[0], "pdirections": {"time": True, "x": True}}
    second = {"index": [1], "location": LOCATIONS[1], "units": "degC"}
    first["data"] = {"pshape": [2, 4], "pdtype": "float32", "file": "a.nc", "ncvar": "tas"}
    second["data"] = {"pshape": [3, 4], "file": "b.nc", "ncvar": "tas"}
    text = {"directions": {"time": True, "x": False}, "base": "", "Partitions": [first, second]}
    attrs = {"nca_array": json.dumps(text), "nca_dimensions": "time x", "cf_role": "nca_variable"}
    path = index(tmp_path, [], {**attrs, "cfa_array": None, "cfa_dimensions": None})
    np.testing.assert_allclose(opened(path)["tas"], VALUES, atol=1e-4)


@pytest.mark.parametrize(
    ("partitions", "given", "words"),
    [
        (
            [part(0, 2), part(1, 4)],
            {},
            r"partition 1: length of location \[2, 4\] along 'time' differs",
        ),
        ([part(0, 2), part(1, 3, location=[[1, 3], [0, 3]])], {}, "partition 0 and partition 1 overlap"),
        ([part(0, 2), part(1, 4, location=[[2, 5], [0, 3]])], {}, "end 6 along 'time' is out of range for size 5"),
        ([part(0, 2, location=[[0, -5], [0, 3]])], {}, "location"),
        ([part(0, 2, location=[[0, 1]])], {}, r"give \[start, stop\] for each of"),
        ([part(0, 2, location=None), part(1, 3)], {}, "no location"),
        ([part(0, 2, location="all")], {}, "write a JSON list"),
        ([part(0, 2, index=[2])], {}, "out of range for pmshape"),
        ([part(0, 2)], {"pmshape": [10**9]}, "more than 10000000 partitions"),
        ([part(0, 2)], {"pmshape": [-1]}, "a positive integer"),
        ([part(0, 2)], {"pmshape": [2, 2]}, "a positive integer for each"),
        ([part(0, 2)], {"pmdimensions": ["y"]}, "pmdimensions"),
        ([part(0, 2)], {"pmdimensions": [["y"]]}, "pmdimensions"),
        ([part(0, 2, shape=[2, 4, 1])], {}, "give pdimensions"),
        ([part(0, 2, shape=[2, 4, 2], pdimensions=["time", "x", "z"])], {}, "only dimensions of size 1 may be added"),
        ([part(0, 2, pdimensions=["x", "x"])], {}, "each dimension once"),
        ([part(0, 2, reverse=["y"])], {}, "reverse"),
        ([part(0, 2, part="[[0, 9, 1], [0, 3, 1]]")], {}, "out of range for the sub-array's shape"),
        ([part(0, 2, part="[[0, 1, 1]]")], {}, "give one item for each of"),
        ([part(0, 2, part="__import__('os')")], {}, "write text such as"),
        ([part(0, 2, part="[(1, 0), [0, 3, 1]]")], {}, "give increasing positions from 0 on"),
        ([part(0, 2, part="[[1, 0, -1], [0, 3, 1]]")], {}, "the step at least 1"),
        ([part(0, 2, ncvar=None)], {}, "neither ncvar nor varid"),
        ([part(0, 2, file=3)], {}, "write text"),
        ([part(0, 2, file="a\0b")], {}, "contains a null byte"),
        ([part(0, 2, file="", ncvar="tas")], {}, "an aggregation variable"),
        ([part(0, 2, shape=[2, 1 << 70])], {}, "write integers from 0 on"),
        ([part(0, 2, shape=[True, 4])], {}, "write integers from 0 on"),
        ([part(0, 2)], {"base": 3}, "base"),
        (["all"], {}, "write a JSON object"),
        ("all", {}, "a list of Partitions"),
    ],
)
def test_invalid_content(tmp_path: Path, partitions: Any, given: Any, words: str) -> None:
    with pytest.raises(aa.IndexFileError, match=says(words, r"variable 'tas' in .*index\.nca")):
        opened(index(tmp_path, partitions, **given))


@pytest.mark.parametrize(
    ("text", "words"),
    [("[" * 100_000, "nested too deeply"), ("{", "is not JSON"), ("[]", "a JSON object"), (None, "a JSON object")],
)
def test_invalid_json(tmp_path: Path, text: str | None, words: str) -> None:
    with pytest.raises(aa.IndexFileError, match=words) as error:
        opened(index(tmp_path, [], {"cfa_array": text}))
    assert "\n" not in str(error.value) and len(str(error.value)) < 500


# Writing


def written(array: aa.MasterArray, path: Path, format: str = "NETCDF4") -> str:
    """Write an array and its 1-d coordinates as CFA-0.4."""
    assert inexpressible(array) is None
    with netCDF4.Dataset(path, "w", format=format) as file:
        file.Conventions = "CF-1.13 CFA-0.4"
        for d, n in zip(array.dimensions, array.shape, strict=True):
            file.createDimension(d, n)
            if d in array.coords and array.coords[d].ndim:
                made = file.createVariable(d, array.coords[d].dtype, (d,))
                made[:] = array.coords[d][...]
                made.units = array.coords[d].units
        fill = array.dtype.type(array.fill_value) if array.dtype.kind in "iu" else None
        made = file.createVariable(array.name, array.dtype, (), fill_value=fill)
        described = {"units": array.units, "calendar": array.calendar, **aggregation_attributes(array, str(path.parent))}
        made.setncatts({**array.attrs, **{k: v for k, v in described.items() if v is not None}})
    return str(path)


def same(one: aa.MasterArray, other: aa.MasterArray) -> None:
    """Compare two arrays, and their partitions."""
    np.testing.assert_array_equal(one[...], other[...])
    np.testing.assert_array_equal(one.read(masked=True).mask, other.read(masked=True).mask)
    assert (one.dimensions, one.dtype, one.units, one.directions) == (
        other.dimensions,
        other.dtype,
        other.units,
        other.directions,
    )
    assert (one.pmdimensions, one.pmshape) == (other.pmdimensions, other.pmshape)
    for p, q in zip(one.partitions, other.partitions, strict=True):
        assert (p.location, p.pdimensions, p.pdirections) == (q.location, q.pdimensions, q.pdirections)
        assert (p.punits, p.pcalendar, p.virtual) == (q.punits, q.pcalendar, q.virtual)
        assert [np.arange(99)[i].tolist() for i in p.part] == [np.arange(99)[i].tolist() for i in q.part]
        if p.data is not None and q.data is not None:
            assert (p.data.uri, p.data.variable, p.data.shape) == (q.data.uri, q.data.variable, q.data.shape)


@pytest.fixture
def archive(tmp_path: Path) -> aa.MasterArray:
    """Write three files: one reversed, one transposed and packed, one in degrees Celsius; latitudes decrease."""
    lats = (30.0, 20.0, 10.0)
    write(tmp_path / "in/a.nc", cube([0.0, 1.0], lats))
    write(tmp_path / "in/b.nc", cube([2.0, 3.0], lats[::-1]))
    warm = cube([4.0], lats)
    dimensions, values, attrs = warm["tas"]
    packed = {**attrs, "scale_factor": 0.5, "add_offset": 100.0, "_FillValue": np.int16(-1)}
    stored = np.full((2, 1, 3), 7, "i2")
    stored[0, 0, 1] = -1
    write(tmp_path / "in/c.nc", {**warm, "tas": (("lon", "time", "lat"), stored, packed)})
    write(tmp_path / "in/d.nc", cube([5.0], lats, tas=(dimensions, values, {**attrs, "units": "degC"})))
    return aa.open(tmp_path / "in")["tas"]


@pytest.mark.parametrize("format", ["NETCDF4", "NETCDF3_CLASSIC"])
def test_an_archive_reads_back(tmp_path: Path, archive: aa.MasterArray, format: str) -> None:
    (tmp_path / "out").mkdir()
    again = opened(written(archive, tmp_path / "out" / "index.nca", format))["tas"]
    again[...]  # its files are opened
    same(archive, again)
    text = json.loads(aggregation_attributes(archive, str(tmp_path / "out"))["cfa_array"])
    assert text["base"] == "" and text["Partitions"][0]["subarray"]["file"] == "../in/a.nc"
    absolute = json.loads(aggregation_attributes(archive, None)["cfa_array"])
    assert absolute["Partitions"][0]["subarray"]["file"] == str(tmp_path / "in" / "a.nc")


@given(data=st.data())
def test_selections_read_back(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("cfa")
    write(folder / "a.nc", cube([0.0, 1.0, 2.0], (30.0, 20.0, 10.0)))
    write(folder / "b.nc", cube([3.0, 4.0], (10.0, 20.0, 30.0)))
    array = aa.open(folder)["tas"]
    key: list[Any] = []
    for n in array.shape:
        picks = st.lists(st.integers(0, n - 1), min_size=1, max_size=4)
        starts, stops, steps = st.integers(0, n - 1), st.integers(1, n), st.sampled_from([1, 2, -1])
        key.append(
            data.draw(st.one_of(picks, st.integers(0, n - 1), st.builds(slice, starts, st.none(), steps), stops.map(slice)))
        )
    chosen = array.lazy[tuple(key)]
    chosen = chosen.transpose(*data.draw(st.permutations(chosen.dimensions))) if chosen.ndim else chosen
    again = opened(written(chosen, folder / "index.nca"))["tas"]
    np.testing.assert_array_equal(again[...], chosen[...])


def test_arrays_that_cfa_cannot_express(archive: aa.MasterArray) -> None:
    memory = aa.MasterArray.from_subarrays([([(0, 1)], aa.SubArray.from_array([1.0]))], dimensions=("x",), name="m")
    arrays = [memory, archive.to_units("degC"), archive]
    in_memory, converted, expressible = map(inexpressible, arrays)
    assert in_memory and "memory" in in_memory and converted and "converted" in converted and expressible is None


def test_integers_and_holes_read_back(tmp_path: Path) -> None:
    for number in (0, 2):
        values = np.array([[1, -7], [3, 4]], "i2") + number
        write(tmp_path / f"{number}.nc", {"n": (("y", "x"), values, {"_FillValue": np.int16(-7)})})
    pieces = [([(r, r + 2), (0, 2)], aa.SubArray.from_file(tmp_path / f"{r // 2}.nc", "n")) for r in (0, 4)]
    array = aa.MasterArray.from_subarrays(pieces, dimensions=("y", "x"), name="n")
    assert len(array.partitions) == 3
    again = opened(written(array, tmp_path / "index.nca"))["n"]
    np.testing.assert_array_equal(array[...], again[...])
    assert array.fill_value == again.fill_value == -7
