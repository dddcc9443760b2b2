"""Sources of `open`, methods of `Aggregation`, and files that are not data."""

import os
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import pytest
import zarr

import aggarray as aa
from tests.support.netcdf import LAT, TAS, cube, field, write

STEPS = 4
EXPECTED = field(range(STEPS), (10.0, 20.0, 30.0), (0.0, 5.0))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of four files, two of them in a subfolder."""
    for step in range(STEPS):
        write(tmp_path / ("deep/er" if step % 2 else ".") / f"{step}.nc", cube([step]), {"source_id": "M"})
    return tmp_path


def check(agg: aa.Aggregation) -> None:
    assert agg.refusals == () and len(agg) == 1
    np.testing.assert_array_equal(agg["tas"][...], EXPECTED)


# Sources


def test_paths_globs_folders_and_lists(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for source in (
        *(folder, str(folder), f"{folder}/", f"{folder}/**/*.nc", [folder], iter([folder / "deep", f"{folder}/*.nc"])),
        *([folder / "deep" / "er" / "3.nc", folder / "2.nc", folder / "deep/er/1.nc", folder / "0.nc"],),
    ):
        check(aa.open(source))
    monkeypatch.chdir(folder)
    check(aa.open("."))
    agg = aa.open("**/*.nc")
    check(agg)
    assert all(os.path.isabs(p.data.uri) for p in agg["tas"].partitions)


def test_home_is_expanded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(folder))
    check(aa.open("~"))


def test_a_single_file(folder: Path) -> None:
    agg = aa.open(folder / "2.nc")
    assert len(agg) == 1 and agg.names == ("tas",) and agg.refusals == agg.skipped == ()
    array = agg["tas"]
    assert array.pmshape == () and len(array.partitions) == 1
    np.testing.assert_array_equal(array[...], EXPECTED[2:3])
    assert set(array.coords) == {"time", "lat", "lon"}


def test_hidden_files_and_names_with_magic(tmp_path: Path) -> None:
    write(tmp_path / "a[1].nc", cube([0]))
    write(tmp_path / ".hidden.nc", cube([1]))
    write(tmp_path / ".folder" / "b.nc", cube([2]))
    assert aa.open(tmp_path)["tas"].shape[0] == 1
    assert aa.open(tmp_path / "a[1].nc")["tas"].shape[0] == 1


@pytest.mark.parametrize("source", ["nothing.nc", "*.nc", "empty", []])
def test_missing_paths(tmp_path: Path, source: Any) -> None:
    (tmp_path / "empty").mkdir()
    where = [] if source == [] else tmp_path / source
    with pytest.raises(aa.MissingFileError, match=r"nothing\.nc|no file"):
        aa.open(where)


# Files that are not data


def test_odd_files_are_skipped_with_reasons(folder: Path) -> None:
    (folder / "README.md").write_text("# read me\n")
    (folder / "empty.nc").write_bytes(b"")
    whole = (folder / "0.nc").read_bytes()
    (folder / "truncated.nc").write_bytes(whole[: len(whole) // 2])
    classic = Path(write(folder / "classic.nc", cube([9]), format="NETCDF3_CLASSIC"))
    classic.write_bytes(classic.read_bytes()[:60])
    (folder / "noise.nc").write_bytes(np.random.default_rng(0).bytes(5000))
    os.symlink(folder / "gone.nc", folder / "link.nc")
    agg = aa.open(folder)
    check(agg)
    names = {Path(s.file).name for s in agg.skipped}
    assert names == {"empty.nc", "truncated.nc", "classic.nc", "noise.nc", "link.nc"}
    for skipped in agg.skipped:
        assert skipped.variable is None and skipped.reason and "\n" not in skipped.reason
        assert skipped.file not in skipped.reason
    assert list(agg.skipped) == sorted(agg.skipped, key=lambda s: s.file)


def test_a_missing_path_in_a_list_is_skipped(folder: Path) -> None:
    agg = aa.open([folder, folder / "gone.nc"])
    check(agg)
    assert [Path(s.file).name for s in agg.skipped] == ["gone.nc"]


@pytest.mark.parametrize("content", [b"", b"text\n", b"\x89HDF\r\n\x1a\n", b"CDF\x01"])
def test_no_readable_file(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "odd.nc").write_bytes(content)
    for source in (tmp_path, tmp_path / "odd.nc"):
        with pytest.raises(aa.FormatError, match=r"odd\.nc"):
            aa.open(source)


def test_unusable_variables_are_skipped(folder: Path) -> None:
    with h5py.File(folder / "odd.h5", "w") as file:
        file["good"] = np.arange(3.0)
        file["compound"] = np.zeros(3, [("a", "i4"), ("b", "f8")])
        made = file.create_dataset("vlen", (2, 2), dtype=h5py.vlen_dtype("i4"))
        made[0, 0] = [1, 2]
    agg = aa.open(folder)
    assert set(agg.names) == {"tas", "good"}
    assert {(Path(s.file).name, s.variable) for s in agg.skipped} == {("odd.h5", "compound"), ("odd.h5", "vlen")}
    assert all(s.reason for s in agg.skipped)


def test_unreadable_coordinate_affects_no_other_file(folder: Path) -> None:
    odd = folder / "odd.nc"
    with netCDF4.Dataset(odd, "w") as file:
        file.createDimension("time", 2000)
        file.createVariable("time", "f8", ("time",), zlib=True, chunksizes=(1000,))[:] = np.random.default_rng(1).random(2000)
        file["time"].setncatts({"standard_name": "time", "units": "days since 2000-01-01"})
        file.createVariable("tas", "f4", ("time",))[:] = 0
        file["tas"].setncatts(TAS)
    with h5py.File(odd) as file:
        info = file["time"].id.get_chunk_info(0)
    with open(odd, "r+b") as raw:
        raw.seek(info.byte_offset)
        raw.write(b"\xff" * min(64, info.size))
    agg = aa.open(folder)
    joined = [a for a in agg if a.shape == EXPECTED.shape]
    assert len(joined) == 1
    np.testing.assert_array_equal(joined[0][...], EXPECTED)
    told = [s.reason for s in agg.skipped if Path(s.file).name == "odd.nc"] + [r.reason for r in agg.refusals]
    assert told


def test_a_file_of_coordinates_only(tmp_path: Path) -> None:
    write(tmp_path / "grid.nc", {"lat": (("lat",), np.array([1.0, 2.0]), LAT)})
    agg = aa.open(tmp_path)
    assert agg.names == ("lat",) and agg["lat"][...].tolist() == [1, 2]


def test_an_empty_dataset(tmp_path: Path) -> None:
    write(tmp_path / "nothing.nc", {}, {"title": "nothing"})
    agg = aa.open(tmp_path)
    assert len(agg) == 0 and agg.names == () and list(agg) == []
    with pytest.raises(aa.NotFoundError, match="none"):
        agg["tas"]


def test_stores_are_one_file_each(tmp_path: Path) -> None:
    for step in range(2):
        store = zarr.open_group(tmp_path / f"{step}.zarr", mode="w", zarr_format=3)
        for name, (dimensions, values, attrs) in cube([step]).items():
            store.create_array(name, data=values, dimension_names=dimensions).attrs.update(attrs)
    for source in (tmp_path, f"{tmp_path}/*.zarr", f"{tmp_path}/**", [tmp_path / "0.zarr", tmp_path / "1.zarr"]):
        agg = aa.open(source)
        assert agg.skipped == () and len(agg) == 1
        np.testing.assert_array_equal(agg["tas"][...], EXPECTED[:2])


# Missing files


def test_missing_raise_and_fill(folder: Path) -> None:
    agg = aa.open(folder)
    filled = aa.open(folder, missing="fill")
    (folder / "2.nc").unlink()
    with pytest.raises(aa.MissingFileError, match=r"2\.nc"):
        agg["tas"][...]
    np.testing.assert_array_equal(agg["tas"][:2], EXPECTED[:2])
    expected = EXPECTED.copy()
    expected[2] = np.nan
    np.testing.assert_array_equal(filled["tas"][...], expected)
    assert filled["tas"].coords["time"][[0, 1, 3]].tolist() == [0, 1, 3]


# Arguments


def test_variables(folder: Path) -> None:
    made = cube([9])
    made["pr"] = (made["tas"][0], made["tas"][1], {"standard_name": "precipitation", "units": "mm"})
    write(folder / "pr.nc", made, {"source_id": "M"})
    assert set(aa.open(folder).names) == {"tas", "pr"}
    agg = aa.open(folder, variables=["pr"])
    assert agg.names == ("pr",) and set(agg["pr"].coords) == {"time", "lat", "lon"}
    assert aa.open(folder, variables=("tas", "pr"))["tas"].shape[0] == 5
    with pytest.raises(aa.NotFoundError, match=r"'ps'.*tas"):
        aa.open(folder, variables=["tas", "ps"])


BAD: list[tuple[dict[str, Any], str]] = [
    ({"variables": "tas"}, "list of names"),
    ({"missing": "ignore"}, "'ignore'"),
    ({"processes": 0}, "processes=0"),
    ({"processes": True}, "processes=True"),
    ({"processes": 1.5}, "1.5"),
    ({"rules": {"along": None}}, "Rules"),
]


@pytest.mark.parametrize(("arguments", "text"), BAD, ids=str)
def test_invalid_arguments(folder: Path, arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(aa.AggregationError, match=text):
        aa.open(folder, **arguments)


def test_progress(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    steps: list[tuple[int, int, str]] = []
    aa.open(folder, progress=lambda *step: steps.append(step))
    assert [(done, total) for done, total, _ in steps] == [(n, STEPS) for n in range(1, STEPS + 1)]
    assert all(isinstance(what, str) and what for *_, what in steps)
    assert capfd.readouterr() == ("", "")
    aa.open(folder, progress=True)
    out, err = capfd.readouterr()
    assert out == "" and f"{STEPS}/{STEPS}" in err and err.endswith("\n")
    aa.open(folder, progress=False)
    assert capfd.readouterr() == ("", "")


# Processes


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty data files and one other file: enough for two processes."""
    folder = tmp_path_factory.mktemp("many")
    for step in range(40):
        write(folder / f"{(7 * step) % 40:02}.nc", cube([step]))
    (folder / "odd.nc").write_text("no data")
    return folder


@pytest.mark.parametrize("processes", [1, 2, 3, None])
def test_processes_give_the_same(many: Path, processes: int | None) -> None:
    done: list[int] = []
    agg = aa.open(many, processes=processes, progress=lambda n, total, what: done.append(n))
    assert done == list(range(1, 42))
    assert len(agg) == 1 and [Path(s.file).name for s in agg.skipped] == ["odd.nc"]
    np.testing.assert_array_equal(agg["tas"][...], field(range(40), (10.0, 20.0, 30.0), (0.0, 5.0)))


def test_processes_from_a_script_without_a_main_guard(many: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        f"import aggarray as aa\nprint('once')\nagg = aa.open({str(many)!r}, processes=2)\nprint(agg['tas'].shape)\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "once\n(40, 3, 2)\n", "")


def test_processes_from_threads(many: Path) -> None:
    result: list[Any] = []
    threads = [threading.Thread(target=lambda: result.append(aa.open(many, processes=2)["tas"].shape)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert result == [(40, 3, 2)] * 3


# The aggregation


@pytest.fixture
def two(tmp_path: Path) -> aa.Aggregation:
    """`tas` of two models, `pr` of one."""
    for model, table in (("X", "Amon"), ("Y", "day")):
        for step in range(2):
            made = cube([step])
            if model == "X":
                made["pr"] = (made["tas"][0], made["tas"][1], {"standard_name": "precipitation", "units": "mm"})
            attrs = {"source_id": model, "table_id": table, "version": np.int32(len(table))}
            write(tmp_path / f"{model}{step}.nc", made, attrs)
    return aa.open(tmp_path)


def test_container(two: aa.Aggregation) -> None:
    assert len(two) == 3 and sorted(two.names) == ["pr", "tas"]
    assert [a.name for a in two] == [a.name for a in two.arrays] and len(list(two)) == 3
    assert "tas" in two and "pr" in two and "ps" not in two and 3 not in two
    assert isinstance(two["pr"], aa.MasterArray)
    assert "3 arrays" in repr(two) and "tas" in repr(two)


def test_absent_and_ambiguous_names(two: aa.Aggregation) -> None:
    with pytest.raises(aa.NotFoundError, match=r"'ps'.*tas"):
        two["ps"]
    with pytest.raises(aa.NotFoundError, match=r"2 arrays.*select.*(source_id: X, Y|table_id: Amon, day)") as caught:
        two["tas"]
    assert "source_id" in str(caught.value) and "table_id" in str(caught.value)
    assert isinstance(caught.value, KeyError) and not str(caught.value).startswith("'")


def test_select(two: aa.Aggregation) -> None:
    assert two.select("tas", source_id="Y")["tas"].file_attrs["table_id"] == "day"
    assert len(two.select(source_id="X")) == 2 and len(two.select("tas")) == 2
    assert len(two.select(units="K")) == 2 and len(two.select(standard_name="precipitation")) == 1
    assert len(two.select(version=3)) == 1 and len(two.select(version=4)) == 2
    assert isinstance(two.select("tas", source_id="Y"), aa.Aggregation)
    assert len(two.select()) == 3


def test_select_several_values(two: aa.Aggregation, tmp_path: Path) -> None:
    for several in (["X", "Y"], ("X", "Y"), {"X", "Y"}, np.array(["X", "Y"])):
        assert len(two.select(source_id=several)) == 3
    assert len(two.select(["tas", "pr"])) == 3 and len(two.select(["pr"])) == 1
    assert len(two.select(source_id=["Y"])) == 1 and len(two.select(version=[3, 4.0])) == 3
    for number in (3.0, np.int16(3), np.array(3), np.array([3]), [3.0]):
        assert len(two.select(version=number)) == 1
    # An index keeps the selection, also for files that are appended.
    two.select(source_id={"Y"}, version=[3]).save(tmp_path / "y.nca")
    assert [a.file_attrs["source_id"] for a in aa.open(tmp_path / "y.nca")] == ["Y"]


def test_select_what_no_array_has(two: aa.Aggregation) -> None:
    for attributes, text in (
        (
            {"model": "Y"},
            r"^no array has an attribute 'model'; did you mean source_id='Y'\? the arrays differ in source_id, t",
        ),
        ({"sorce_id": 3}, "no array has an attribute 'sorce_id'; did you mean 'source_id'\\? the arrays differ in source_id, "),
        ({"nothing": 1}, "no array has an attribute 'nothing'; the arrays differ in source_id, table_id$"),
        ({"source_id": "Z"}, "no array has source_id='Z'; source_id is 'X', 'Y'$"),
        ({"source_id": ["X", "Z"]}, "no array has source_id='Z'"),
        ({"standard_name": "Precipitatoin"}, "did you mean 'precipitation'\\? standard_name is"),
        ({"version": "3"}, "no array has version='3'; .*version is 3, 4"),
        ({"source_id": "Y", "version": 4}, "no array of source_id 'Y' has version=4; version is 3"),
    ):
        with pytest.raises(aa.NotFoundError, match=text):
            two.select(**attributes)
    with pytest.raises(aa.NotFoundError, match=r"^no array 'tos'; did you mean 'tas'\? the arrays are: "):
        two.select("tos")
    with pytest.raises(aa.NotFoundError, match="no array of name 'pr' has source_id='Y'"):
        two.select("pr", source_id="Y")


def test_file_attrs_are_those_equal_everywhere(folder: Path) -> None:
    for step in (4, 5):
        write(folder / f"{step}.nc", cube([step]), {"source_id": "M", "title": "t"})
    array = aa.open(folder)["tas"]
    assert array.file_attrs == {"source_id": "M"}
    assert array.attrs == {"standard_name": "air_temperature", "cell_methods": "time: mean"}


def test_result_is_independent_of_order(folder: Path) -> None:
    write(folder / "x.nc", cube([1.5]))
    paths = sorted(folder.rglob("*.nc"))
    one, other = aa.open(paths), aa.open(paths[::-1])
    assert [a.shape for a in one] == [a.shape for a in other]
    assert one.refusals == other.refusals
    for a, b in zip(one, other, strict=True):
        assert [p.data.uri for p in a.partitions] == [p.data.uri for p in b.partitions]


def test_absent_attribute_distinguishes_arrays(folder: Path) -> None:
    write(folder / "other.nc", cube([9]))
    agg = aa.open(folder)
    assert [r.rule for r in agg.refusals] == ["source_id"]
    with pytest.raises(aa.NotFoundError, match="source_id: M, none"):
        agg["tas"]


@pytest.mark.parametrize("by_netcdf", [True, False])
def test_variables_that_netcdf_leaves_out_are_listed_without_a_warning(tmp_path: Path, by_netcdf: bool) -> None:
    path = write(tmp_path / "a.nc", cube([0, 1]))
    with h5py.File(path, "a") as file:
        file["opaque"] = np.array([b"abcd"] * 3).view("V4")
        if not by_netcdf:
            del file.attrs["_NCProperties"]
    with pytest.warns(UserWarning, match="opaque"):
        netCDF4.Dataset(path).close()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        agg = aa.open(path)
    assert [(s.file, s.variable) for s in agg.skipped] == [(path, "opaque")] and "opaque type" in agg.skipped[0].reason
    assert seen == [] and agg.names == ("tas",) and agg["tas"].shape == (2, 3, 2)


@pytest.mark.parametrize("value", [np.int32(3), np.array([1, 2], "i4"), np.array([1.5, np.inf]), np.float64("nan"), "\x01"])
@pytest.mark.parametrize("where", ["tas", "time", "lat", ""])
def test_numeric_attributes_that_should_be_text(tmp_path: Path, where: str, value: Any) -> None:
    """Numbers in attributes that CF defines as text are ignored."""
    names = ("standard_name", "axis", "cf_role", "coordinates", "cell_methods", "cell_measures", "grid_mapping", "featureType")
    odd = dict.fromkeys((*names, "bounds", "compress", "long_name", "source_id"), value)
    for number in range(2):
        given = cube([2 * number, 2 * number + 1])
        for name, (dimensions, values, attrs) in list(given.items()):
            given[name] = (dimensions, values, {**attrs, **(odd if name == where else {})})
        write(tmp_path / f"{number}.nc", given, odd if not where else {}, format="NETCDF3_CLASSIC")
    agg = aa.open(tmp_path / "*.nc")
    tas = agg["tas"]
    assert tas.shape == (4, 3, 2) and agg.skipped == ()
    np.testing.assert_array_equal(tas[...], field(range(4), (10.0, 20.0, 30.0), (0.0, 5.0)))
    assert agg.check().ok and "tas" in repr(agg) and "tas" in agg._repr_html_()
    agg.save(tmp_path / "i.nca")
    assert aa.open(tmp_path / "i.nca")["tas"].shape == tas.shape


@pytest.mark.parametrize("saved", [False, True], ids=["file", "index"])
def test_a_single_file_is_opened_once(folder: Path, saved: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(folder / "tas.nca") if saved else write(folder / "9.nc", cube([9]))
    if saved:
        aa.open(folder).save(path)
    opened: list[str] = []
    real = os.open

    def noted(path: Any, *arguments: Any, **options: Any) -> int:
        opened.append(str(path))
        return real(path, *arguments, **options)

    monkeypatch.setattr(os, "open", noted)
    aa.open(path)
    assert opened.count(path) == 1
