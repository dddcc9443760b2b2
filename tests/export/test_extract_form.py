"""`extract`: compression, unlimited dimensions, and the attributes that tell the origin."""

import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import pytest
import xarray as xr
import zarr

import aggarray as aa
from aggarray.export.extract import extract, is_extracted, lineage
from aggarray.output import source_files
from aggarray.storage.access import Access
from tests.support.netcdf import TIME, cube, write

DATE = "2001-09-09T01:46:40Z"


@pytest.fixture
def date(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1000000000")


def archive(folder: Path, steps: int = 4, history: str | None = None) -> list[str]:
    """Write three files with a tracking_id each; "{}" in ``history`` is their number."""
    lats, lons, files = np.linspace(-40, 40, 9), np.linspace(0, 130, 14), []
    for n in range(3):
        attrs = {"title": "t", "tracking_id": f"hdl:{n}"} | ({"history": history.format(n)} if history else {})
        files.append(write(folder / f"{n}.nc", cube(np.arange(steps) + steps * n, lats, lons), attrs))
    return files


# Compression


def plain(path: Path) -> Any:
    """Return the compression of `tas` according to netCDF4 or zarr."""
    if path.suffix == ".zarr":
        return [(c.to_dict()["name"], c.to_dict()["configuration"]) for c in zarr.open_group(path)["tas"].compressors[:-1]]
    with netCDF4.Dataset(path) as file:
        filters = file["tas"].filters()
        return {name for name, on in filters.items() if on is True}, filters["complevel"]


@pytest.mark.parametrize(
    ("compress", "suffix", "expected"),
    [
        ("zlib:4", "nc", ({"zlib", "shuffle"}, 4)),
        ("zlib:9", "nc4", ({"zlib", "shuffle"}, 9)),
        ("ZLIB", "nc", ({"zlib", "shuffle"}, 4)),
        ("zstd:3", "nc", ({"zstd"}, 3)),
        ("none", "nc", (set(), 0)),
        ("zlib:4", "zarr", [("gzip", {"level": 4})]),
        ("zstd:19", "zarr", [("zstd", {"level": 19, "checksum": False})]),
        ("zstd", "zarr", [("zstd", {"level": 3, "checksum": False})]),
        ("none", "zarr", []),
    ],
)
def test_compression(tmp_path: Path, compress: str, suffix: str, expected: Any) -> None:
    """Small arrays are compressed too, and other libraries read the values."""
    tas, out = aa.open(archive(tmp_path / "data"))["tas"], tmp_path / f"out.{suffix}"
    extract(tas, out, compress=compress)
    assert plain(out) == expected
    with xr.open_dataset(out, engine="zarr" if suffix == "zarr" else "netcdf4") as result:
        np.testing.assert_array_equal(result.tas.values, tas[:])
    np.testing.assert_array_equal(aa.open(out)["tas"][:], tas[:])


def test_blosc_is_the_default_of_zarr(tmp_path: Path) -> None:
    large = aa.open(archive(tmp_path / "data", steps=60))["tas"]
    for compress, level in ((None, 5), ("blosc:9", 9)):
        extract(large, tmp_path / "out.zarr", compress=compress, exists="overwrite")
        ((name, settings),) = plain(tmp_path / "out.zarr")
        assert (name, settings["cname"], settings["clevel"], settings["shuffle"]) == ("blosc", "zstd", level, "shuffle")


@pytest.mark.parametrize("suffix", ["nc", "zarr"])
def test_another_compression_is_another_extract(tmp_path: Path, suffix: str) -> None:
    tas, out = aa.open(archive(tmp_path / "data"))["tas"], tmp_path / f"out.{suffix}"
    extract(tas, out)
    assert is_extracted(tas, out) and not is_extracted(tas, out, compress="zstd:3")
    with pytest.raises(aa.AggregationError, match="already exists"):
        extract(tas, out, compress="zstd:3")
    assert not extract(tas, out, compress="zstd:3", exists="update").unchanged and "zstd" in str(plain(out))
    assert extract(tas, out, compress="zstd:3", exists="update").unchanged
    assert not extract(tas, out, compress="zstd:4", exists="update").unchanged
    assert not extract(tas, out, compress="none", exists="update").unchanged and "zstd" not in str(plain(out))


@pytest.mark.parametrize("suffix", ["nc", "zarr"])
def test_a_stopped_run_does_not_resume_with_another_compression(
    tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tas, out = aa.open(archive(tmp_path / "data"))["tas"], tmp_path / f"out.{suffix}"
    with monkeypatch.context() as patch:
        patch.setattr("aggarray.export.extract.target.put_in_place", lambda *paths: (_ for _ in ()).throw(OSError(28, "full")))
        with pytest.raises(aa.AggregationError, match="full"):
            extract(tas, out, compress="zlib:1")
    assert (tmp_path / f"out.{suffix}.part").is_dir()
    assert extract(tas, out, compress="zlib:2").resumed == 0
    assert plain(out) == (({"zlib", "shuffle"}, 2) if suffix == "nc" else [("gzip", {"level": 2})])


@pytest.mark.parametrize("compress", ["lzma", "zlib:10", "zlib:0", "zlib:", "zstd:x", "zstd:²", "none:3", ""])
def test_other_compressions_are_an_error(tmp_path: Path, compress: str) -> None:
    tas = aa.open(archive(tmp_path / "data"))["tas"]
    for suffix, words in (
        ("nc", "give zlib:1 to 9, zstd:1 to 22, blosc:1 to 9, or none"),
        ("zarr", "give blosc:1 to 9, zlib:1 to 9"),
    ):
        with pytest.raises(aa.AggregationError, match=f"{re.escape(repr(compress))} is invalid for .{suffix}; {words}"):
            extract(tas, tmp_path / f"out.{suffix}", compress=compress)
    assert [p.name for p in tmp_path.iterdir()] == ["data"]


def test_a_netcdf_library_without_zstd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tas = aa.open(archive(tmp_path / "data"))["tas"]
    monkeypatch.setattr(netCDF4.Dataset, "has_zstd_filter", lambda self: False)
    with pytest.raises(aa.AggregationError, match=r"no zstd: .*out\.nc; give zlib, or write to \.zarr"):
        extract(tas, tmp_path / "out.nc", compress="zstd:3")
    assert not extract(tas, tmp_path / "out.zarr", compress="zstd:3").unchanged


# Unlimited dimensions


def test_time_is_unlimited(tmp_path: Path) -> None:
    tas, out = aa.open(archive(tmp_path / "data"))["tas"], tmp_path / "out.nc"
    for compress in (None, "zlib:4", "none"):
        extract(tas, out, compress=compress, exists="overwrite")
        with netCDF4.Dataset(out) as file:
            assert [d.name for d in file.dimensions.values() if d.isunlimited()] == ["time"]
            assert {d.name: len(d) for d in file.dimensions.values()} == {"time": 12, "lat": 9, "lon": 14}
            assert file["time"].chunking() == [512] and file["tas"].chunking() == [12, 9, 14]
            assert file["lat"].chunking() == "contiguous"
        with h5py.File(out) as file:
            assert file["tas"].maxshape == (None, 9, 14) and file["time"].maxshape == (None,)
            np.testing.assert_array_equal(file["tas"][:], tas[:])
        with xr.open_dataset(out, engine="h5netcdf" if "h5netcdf" in xr.backends.list_engines() else None) as result:
            assert set(result.encoding["unlimited_dims"]) == {"time"}
            np.testing.assert_array_equal(result.tas.values, tas[:])


@pytest.mark.parametrize("compress", ["zlib:4", "none", None])
@pytest.mark.parametrize("tool", ["cdo", "ncks"])
def test_tools_of_climate_science_read_an_extract(tmp_path: Path, tool: str, compress: str | None) -> None:
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed")
    tas, out = aa.open(archive(tmp_path / "data", steps=40))["tas"], tmp_path / "out.nc"
    extract(tas, out, compress=compress)
    select = ["cdo", "-s", "-f", "nc4", "seltimestep,100/120"] if tool == "cdo" else ["ncks", "-O", "-d", "time,99,119"]
    done = subprocess.run([*select, out, tmp_path / "part.nc"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    with netCDF4.Dataset(tmp_path / "part.nc") as file:
        assert file.dimensions["time"].isunlimited()
        np.testing.assert_array_equal(file["tas"][:], tas[99:120])
        assert "aggarray extract of tas(" in file.history and "hdl:0" in file.tracking_id


def test_an_extract_can_be_extended_by_other_software(tmp_path: Path) -> None:
    tas, out = aa.open(archive(tmp_path / "data"))["tas"], tmp_path / "out.nc"
    extract(tas, out)
    with netCDF4.Dataset(out, "a") as file:
        file["tas"][12:14] = 5
        file["time"][12:14] = [12, 13]
    after = aa.open(out)["tas"]
    assert after.shape == (14, 9, 14) and (after[12:] == 5).all()
    np.testing.assert_array_equal(after[:12], tas[:])


def test_bounds_texts_and_large_coordinates_of_an_unlimited_dimension(tmp_path: Path) -> None:
    steps = 12_000
    bounds = np.stack([np.arange(steps) - 0.5, np.arange(steps) + 0.5], axis=1)
    labels = np.array([f"s{n}" for n in range(steps)], object)
    given = {
        "time": (("time",), np.arange(float(steps)), {**TIME, "bounds": "time_bnds"}),
        "time_bnds": (("time", "b"), bounds),
        "label": (("time",), labels.astype("U")),
        "v": (("time",), np.arange(steps, dtype="f4"), {"coordinates": "label"}),
        "few": (("x", "time"), np.zeros((2, steps), "i1")),
    }
    agg = aa.open(write(tmp_path / "a.nc", given))
    extract(agg, tmp_path / "out.nc")
    with xr.open_dataset(tmp_path / "a.nc") as expected, xr.open_dataset(tmp_path / "out.nc") as result:
        assert result.encoding["unlimited_dims"] == {"time"} and result.few.dims == ("x", "time")
        for name in ("v", "few", "time", "time_bnds"):
            np.testing.assert_array_equal(result[name].values, expected[name].values)
        assert result.label.values.tolist() == labels.tolist()


def test_joined_dimensions_without_coordinates_are_unlimited(tmp_path: Path) -> None:
    for n in range(2):
        write(tmp_path / "data" / f"{n}.nc", {"v": (("record", "x"), np.full((3, 2), n, "i4")), "x": (("x",), [1.0, 2.0])})
    v = aa.open(tmp_path / "data", rules=aa.Rules(order={"record": "name"}))["v"]
    extract(v, tmp_path / "out.nc")
    with netCDF4.Dataset(tmp_path / "out.nc") as file:
        assert {d.name: (len(d), d.isunlimited()) for d in file.dimensions.values()} == {"record": (6, True), "x": (2, False)}
        np.testing.assert_array_equal(file["v"][:], v[:])


def test_tiles_are_not_unlimited(tmp_path: Path, sample_tiles: Path) -> None:
    extract(aa.open(sample_tiles)["value"], tmp_path / "out.nc")
    with netCDF4.Dataset(tmp_path / "out.nc") as file:
        assert not any(d.isunlimited() for d in file.dimensions.values())


# Origin


def attributes(path: Path) -> dict[str, Any]:
    if path.suffix == ".zarr":
        return dict(zarr.open_group(path, mode="r").attrs)
    with netCDF4.Dataset(path) as file:
        return {name: file.getncattr(name) for name in file.ncattrs()}


@pytest.mark.usefixtures("date")
@pytest.mark.parametrize("suffix", ["nc", "zarr"])
def test_history_and_tracking_ids_are_kept(tmp_path: Path, suffix: str) -> None:
    files, out = archive(tmp_path / "data", history="made"), tmp_path / f"out.{suffix}"
    extract(aa.open(files)["tas"], out, command="aggarray extract data -o out")
    attrs = attributes(out)
    assert attrs["history"] == f"{DATE}: aggarray extract data -o out\nmade" and attrs["title"] == "t"
    assert attrs["tracking_id"] == "hdl:0\nhdl:1\nhdl:2"
    # Only the files that were read, without a command, and again.
    extract(aa.open(files)["tas"].lazy[5:], out, exists="overwrite")
    extract(aa.open(out)["tas"], tmp_path / f"again.{suffix}")
    attrs = attributes(tmp_path / f"again.{suffix}")
    lines = [f"{DATE}: aggarray extract of tas(time=7, lat=9, lon=14)"] * 2
    assert attrs["history"].split("\n") == [*lines, "made"] and attrs["tracking_id"] == "hdl:1\nhdl:2"


@pytest.mark.usefixtures("date")
def test_of_differing_histories_that_of_the_first_file_is_kept(tmp_path: Path) -> None:
    extract(aa.open(archive(tmp_path / "data", history="made {}\nfrom scratch"))["tas"], tmp_path / "out.nc", command="c")
    expected = [f"{DATE}: c (3 files; the history of 0.nc follows)", "made 0", "from scratch"]
    assert attributes(tmp_path / "out.nc")["history"].split("\n") == expected


@pytest.mark.usefixtures("date")
def test_variables_of_different_files(tmp_path: Path) -> None:
    """Each variable has one file, whose attributes the others do not have."""
    for name in ("tas", "pr"):
        values = (("time", "lat", "lon"), np.zeros((2, 3, 2)), {"units": "K", "standard_name": name})
        attrs = {"tracking_id": f"hdl:{name}", "history": f"made {name}", "title": "t"}
        write(tmp_path / "data" / f"{name}.nc", cube([0, 1], **{"tas": None, name: values}), attrs)
    agg = aa.open(tmp_path / "data")
    extract([agg["tas"], agg["pr"]], tmp_path / "out.nc", command="c")
    attrs = attributes(tmp_path / "out.nc")
    assert attrs["tracking_id"] == "hdl:tas\nhdl:pr" and attrs["title"] == "t"
    assert attrs["history"] == f"{DATE}: c (2 files; the history of tas.nc follows)\nmade tas"


def test_files_without_either_attribute(tmp_path: Path) -> None:
    write(tmp_path / "a.nc", cube([0, 1]))
    extract(aa.open(tmp_path / "a.nc"), tmp_path / "out.nc")
    attrs = attributes(tmp_path / "out.nc")
    assert "tracking_id" not in attrs and re.fullmatch(
        r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ: aggarray extract of tas\(.*\)", attrs["history"]
    )
    assert set(attrs) == {"Conventions", "aggarray_extract", "history"}


@pytest.mark.parametrize("suffix", ["nc", "zarr"])
def test_an_extract_stays_up_to_date_whatever_its_history(tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    agg, out = aa.open(archive(tmp_path / "data")), tmp_path / f"out.{suffix}"
    extract(agg, out, command="one")
    before = attributes(out)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "2000000000")
    assert extract(agg["tas"], out, command="two", exists="update").unchanged and attributes(out) == before


def test_an_aggregation_knows_the_attributes_of_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    aa.open(archive(tmp_path / "data")).save(tmp_path / "tas.nca")
    agg, scanned = aa.open(tmp_path / "tas.nca"), []
    monkeypatch.setattr(source_files, "scan", scanned.append)
    extract(agg, tmp_path / "one.nc")
    extract([agg["tas"].lazy[:9]], tmp_path / "two.nc", aggregation=agg)
    assert not scanned and attributes(tmp_path / "one.nc")["tracking_id"] == "hdl:0\nhdl:1\nhdl:2"
    assert attributes(tmp_path / "two.nc")["tracking_id"] == "hdl:0\nhdl:1\nhdl:2"


def test_assumed_files_are_asked_for_their_own_attributes(tmp_path: Path) -> None:
    agg = aa.open(archive(tmp_path / "data"), rules=aa.Rules(trust="assume"))
    extract(agg, tmp_path / "out.nc")
    assert attributes(tmp_path / "out.nc")["tracking_id"] == "hdl:0\nhdl:1\nhdl:2"


@pytest.mark.parametrize("suffix", ["nc", "zarr"])
def test_the_files_are_listed_beside_the_data(tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lineage, "MOST", 10)
    files, out = archive(tmp_path / "data"), tmp_path / f"out.{suffix}"
    tas, engine = aa.open(files)["tas"], "zarr" if suffix == "zarr" else "netcdf4"
    assert "tracking_id" not in extract(tas, out).variables and "tracking_id" not in attributes(out)
    with xr.open_dataset(out, engine=engine, group="source_files") as listed:
        assert listed.uri.values.tolist() == files and listed.uri.dims == ("source_file",)
        assert listed.tracking_id.values.tolist() == ["hdl:0", "hdl:1", "hdl:2"]
    with xr.open_dataset(out, engine=engine) as data:
        assert set(data.variables) == {"tas", "time", "lat", "lon"} and set(data.sizes) == {"time", "lat", "lon"}
    again = aa.open(out)
    assert again.names == ("tas",) and not again.skipped
    assert extract(tas, out, exists="update").unchanged
    # Of a part, the files of the part; without identifiers, their addresses alone.
    extract(tas.lazy[5:], out, exists="overwrite")
    with xr.open_dataset(out, engine=engine, group="source_files") as listed:
        assert listed.uri.values.tolist() == files[1:]
    write(tmp_path / "plain" / "a.nc", cube([0, 1]))
    extract(aa.open(tmp_path / "plain"), out, exists="overwrite")
    with xr.open_dataset(out, engine=engine, group="source_files") as listed:
        assert set(listed.variables) == {"uri"}


def test_values_in_memory_have_no_list_of_files(tmp_path: Path) -> None:
    piece = aa.SubArray.from_array([1.0, 2.0], dimensions=("x",))
    extract(aa.MasterArray.from_subarrays([([(0, 2)], piece)], dimensions=("x",), name="v"), tmp_path / "out.nc")
    with netCDF4.Dataset(tmp_path / "out.nc") as file:
        assert not file.groups


def test_cdo_and_ncdump_read_data_beside_the_list_of_files(tmp_path: Path) -> None:
    if not (cdo := shutil.which("cdo")) or not (ncdump := shutil.which("ncdump")):
        pytest.skip("neither cdo nor ncdump")
    extract(aa.open(archive(tmp_path / "data"))["tas"], tmp_path / "out.nc")
    done = subprocess.run([cdo, "-s", "showname", tmp_path / "out.nc"], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["tas"] and "Error" not in done.stderr  # it warns of the group
    done = subprocess.run([ncdump, "-g", "source_files", tmp_path / "out.nc"], capture_output=True, text=True, check=True)
    assert f'"{tmp_path}/data/0.nc"' in done.stdout and 'tracking_id = "hdl:0", "hdl:1", "hdl:2"' in done.stdout


def test_missing_files_have_no_attributes(tmp_path: Path) -> None:
    files = archive(tmp_path / "data")
    tas = aa.open(files, missing="fill")["tas"]
    Path(files[1]).unlink()
    extract(tas, tmp_path / "out.nc")
    assert attributes(tmp_path / "out.nc")["tracking_id"] == "hdl:0\nhdl:2"
    with xr.open_dataset(tmp_path / "out.nc", group="source_files") as listed:
        assert listed.uri.values.tolist() == [files[0], files[2]]


def test_files_outside_the_roots_are_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scanned = list[str]()
    tas = replace(aa.open(archive(tmp_path / "data"))["tas"], _access=Access(roots=(str(tmp_path / "other"),)))
    monkeypatch.setattr(source_files, "scan", scanned.append)
    with pytest.raises(aa.ForbiddenPathError, match="lies outside"):
        extract(tas, tmp_path / "out.nc")
    assert not scanned


def test_lists_of_texts_are_lines(tmp_path: Path) -> None:
    path = write(tmp_path / "a.nc", cube([0, 1]))
    with h5py.File(path, "a") as file:
        file.attrs["history"] = np.array(["one", "two"], h5py.string_dtype())
        file.attrs["tracking_id"] = np.array(["hdl:a", "hdl:b"], h5py.string_dtype())
    extract(aa.open(path)["tas"], tmp_path / "out.nc")
    attrs = attributes(tmp_path / "out.nc")
    assert attrs["history"].split("\n")[1:] == ["one", "two"] and attrs["tracking_id"] == "hdl:a\nhdl:b"


def test_xarray_reads_zstd_without_aggarray(tmp_path: Path) -> None:
    extract(aa.open(archive(tmp_path / "data"))["tas"], tmp_path / "out.nc", compress="zstd:3")
    code = f"import xarray; print(float(xarray.open_dataset({str(tmp_path / 'out.nc')!r}, engine='netcdf4').tas.sum()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(done.stdout) == pytest.approx(float(aa.open(tmp_path / "data")["tas"][:].sum(dtype="f8")), rel=1e-5)
