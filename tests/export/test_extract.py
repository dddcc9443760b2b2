"""`extract`: values, resumed runs, and errors."""

import fcntl
import filecmp
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import pytest
import xarray as xr
import zarr
from hypothesis import given
from hypothesis import strategies as st
from numcodecs.jenkins import jenkins_lookup3

import aggarray as aa
from aggarray.export.extract import extract, is_extracted, pieces
from aggarray.output import layout, netcdf_file
from aggarray.partition import block_shapes
from tests.support.examples import examples
from tests.support.netcdf import cube, write
from tests.support.paths import ROOT

#: Arrays of a few kilobytes are chunked as large ones are.
SMALL = {"WHOLE": 200, "_MIN_BYTES": 600, "_MAX_BYTES": 1200, "BLOCK": 5000}
SUFFIXES = ("nc", "zarr")


@pytest.fixture(autouse=True)
def date(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give all extracts one date, so that their bytes can be compared."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1000000000")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, number in SMALL.items():
        module = next(m for m in (layout, block_shapes, pieces) if hasattr(m, name))
        monkeypatch.setattr(module, name, number)


def archive(folder: Path) -> list[str]:
    """Write files of a variable with holes, the second with other units and a decreasing longitude."""
    values = np.arange(6 * 9 * 14, dtype="f4").reshape(6, 9, 14)
    values[2, 3, :5] = 1e20
    attrs = {"units": "K", "standard_name": "air_temperature", "_FillValue": np.float32(1e20)}
    lats, lons = np.linspace(-40, 40, 9), np.linspace(0, 130, 14)
    one = cube(range(6), lats, lons, tas=(("time", "lat", "lon"), values, attrs))
    two = cube(range(6, 12), lats, lons[::-1], tas=(("time", "lat", "lon"), values[:, :, ::-1] * np.float32(2), attrs))
    two["tas"][1][two["tas"][1] > 1e19] = 1e20
    return [write(folder / "a.nc", one, {"title": "t"}), write(folder / "b.nc", two, {"title": "t"})]


def files_below(path: Path) -> dict[str, bytes]:
    result = [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]
    return {str(p.relative_to(path)): p.read_bytes() for p in result}


def opened(path: Path) -> xr.Dataset:
    return xr.open_dataset(path, engine="zarr" if path.suffix == ".zarr" else "netcdf4")


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_xarray_reads_the_selected_values(tmp_path: Path, suffix: str) -> None:
    files = archive(tmp_path / "data")
    out = tmp_path / f"out.{suffix}"
    tas = aa.open(files)["tas"].sel(time=slice("2000-01-03", "2000-01-10"), lat=slice(-30, 20))
    done = extract(tas, out)
    assert (
        done.path == str(out)
        and not done.unchanged
        and done.resumed == 0
        and set(done.variables) == {"tas", "time", "lat", "lon"}
    )
    with xr.open_dataset(files[0]) as one, xr.open_dataset(files[1]) as two, opened(out) as result:
        whole = xr.concat([one, two.isel(lon=slice(None, None, -1))], "time")
        expected = whole.sel(time=slice("2000-01-03", "2000-01-10"), lat=slice(-30, 20)).load()
        assert done.nbytes == sum(v.nbytes for v in expected.variables.values())
        xr.testing.assert_equal(result.load(), expected)
        assert result.tas.attrs == expected.tas.attrs and result.lat.attrs == expected.lat.attrs
        assert result.attrs["title"] == "t" and result.tas.encoding["_FillValue"] == np.float32(1e20)
        assert result.time.encoding["units"] == "days since 2000-01-01" and np.isnan(result.tas).any()
    assert not list(tmp_path.glob("*.part"))


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_sample_archive(tmp_path: Path, sample_archive: Path, suffix: str) -> None:
    tas = aa.open(sample_archive)["tas"]
    part = tas.sel(time=slice("2001-02", "2001-05")).sel(lon=100, method="nearest")
    extract(part, tmp_path / f"out.{suffix}")
    with opened(tmp_path / f"out.{suffix}") as result:
        assert (
            result.tas.dims == ("time", "lat") and result.lon.shape == () and float(result.lon) == float(part.coords["lon"][()])
        )
        np.testing.assert_array_equal(result.tas.values, part[:])
        np.testing.assert_array_equal(result.time.values, part.coords["time"].datetimes())
        assert result.tas.attrs["cell_methods"] == "area: time: mean" and result.time.attrs["bounds"] == "time_bnds"
    again = aa.open(tmp_path / f"out.{suffix}")["tas"]
    np.testing.assert_array_equal(again[:], part[:])
    assert again.units == "K" and set(again.coords) >= {"time", "lat", "lon", "height", "time_bnds", "lat_bnds"}


def made(values: Any, dimensions: tuple[str, ...], name: str = "a", **more: Any) -> aa.MasterArray:
    values = np.asarray(values)
    piece = aa.SubArray.from_array(values, dimensions=dimensions, **more)
    place = [(0, n) for n in values.shape]
    return aa.MasterArray.from_subarrays([(place, piece)], dimensions=dimensions, name=name, fill_value=more.get("fill_value"))


KINDS = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8", ">i4", ">f8"]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("dtype", KINDS)
def test_types(tmp_path: Path, suffix: str, dtype: str) -> None:
    values = np.random.default_rng(1).integers(0, 100, (11, 40)).astype(dtype)
    extract(made(values, ("y", "x")), tmp_path / f"out.{suffix}")
    with opened(tmp_path / f"out.{suffix}") as result:
        assert result.a.dtype == np.dtype(dtype).newbyteorder("=")
        np.testing.assert_array_equal(result.a.values, values)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_odd_shapes_and_kinds(tmp_path: Path, suffix: str) -> None:
    text = np.array(["Ω", "", "abc"], dtype=object).astype(np.dtypes.StringDType())
    arrays = [
        made(np.float32(3), (), "scalar"),
        made(np.zeros((0, 3)), ("none", "x"), "empty"),
        made([7], ("one",), "single"),
        made(text, ("x",), "text"),
        made(np.arange(300, dtype="i2"), ("n",), "missing", fill_value=-1),
    ]
    hole = [([(0, 100)], aa.SubArray.from_array(np.arange(100, dtype="i2"), dimensions=("m",)))]
    arrays.append(aa.MasterArray.from_subarrays(hole, dimensions=("m",), shape=(250,), fill_value=-9, name="hole"))
    extract(arrays, tmp_path / f"out.{suffix}")
    with opened(tmp_path / f"out.{suffix}") as result:
        assert float(result.scalar) == 3 and result.empty.shape == (0, 3) and result.single.values.tolist() == [7]
        assert result.text.values.tolist() == ["Ω", "", "abc"]
        np.testing.assert_array_equal(result.missing.values, np.arange(300))
        assert np.isnan(result.hole.values[100:]).all() and result.hole.encoding["_FillValue"] == -9
        np.testing.assert_array_equal(result.hole.values[:100], np.arange(100))


def test_dtypes_that_only_zarr_has(tmp_path: Path) -> None:
    for values in (np.array([True, False]), np.array([1 + 2j, np.nan])):
        array = made(values, ("x",))
        path = tmp_path / f"{values.dtype}.zarr"
        extract(array, path)
        np.testing.assert_array_equal(zarr.open_group(path, mode="r")["a"][:], values)
        with pytest.raises(
            aa.AggregationError, match=f"cannot be written: a: the format has no type for {values.dtype}.*out.nc"
        ):
            extract(array, tmp_path / "out.nc")


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_conflicting_names_get_suffixes(tmp_path: Path, suffix: str) -> None:
    one = aa.open(write(tmp_path / "one.nc", cube([0, 1])))["tas"]
    two = aa.open(write(tmp_path / "two.nc", cube([5, 6, 7])))["tas"]
    extract([one, two], tmp_path / f"out.{suffix}")
    with opened(tmp_path / f"out.{suffix}") as result:
        np.testing.assert_array_equal(result.tas.values, one[:])
        np.testing.assert_array_equal(result.tas_2.values, two[:])
        assert result.tas_2.dims == ("time_2", "lat", "lon") and result.tas.dims == ("time", "lat", "lon")


def test_files_of_the_user_are_not_replaced(tmp_path: Path, sample_tiles: Path) -> None:
    value = aa.open(sample_tiles)["value"]
    folder = tmp_path / "thesis.zarr"
    folder.mkdir()
    (folder / "thesis.tex").write_text("years of work")
    (tmp_path / "file.zarr").write_text("a file")
    (tmp_path / "folder.nc").mkdir()
    (tmp_path / "other.nc.part").mkdir()
    (tmp_path / "other.nc.part" / "thesis.tex").write_text("more work")
    shutil.copy(next(sample_tiles.glob("*.nc")), tmp_path / "data.nc")
    for name, exists, words in [
        ("thesis.zarr", "overwrite", "is a folder and not a Zarr store"),
        ("file.zarr", "overwrite", "is a file and not a Zarr store"),
        ("folder.nc", "overwrite", "is a folder"),
        ("other.nc", "raise", "is a folder with other content: .*other.nc.part"),
        ("data.nc", "raise", "already exists"),
        ("data.nc", "update", "was not extracted by aggarray"),
        ("no/where.nc", "raise", "no folder"),
        ("out.grib", "raise", "ends with .zarr or .nc"),
        ("out.nc", "perhaps", "give 'raise', 'overwrite' or 'update'"),
    ]:
        before = files_below(tmp_path)
        with pytest.raises(aa.AggregationError, match=words):
            extract(value, tmp_path / name, exists=exists)
        assert files_below(tmp_path) == before
    for exists in ("overwrite", "update"):
        with pytest.raises(aa.AggregationError, match=r"the output is also an input.*data\.nc"):
            extract(aa.open(tmp_path / "data.nc"), tmp_path / "data.nc", exists=exists)
    with pytest.raises(aa.AggregationError, match="no arrays"):
        extract([], tmp_path / "out.nc")
    with pytest.raises(aa.AggregationError, match="str to write"):
        extract(["tas"], tmp_path / "out.nc")  # type: ignore[list-item]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_overwrite_and_update(tmp_path: Path, suffix: str) -> None:
    files = archive(tmp_path / "data")
    tas, out = aa.open(files)["tas"], tmp_path / f"out.{suffix}"
    assert not is_extracted(tas, out)
    extract(tas, out)
    before = files_below(out)
    assert is_extracted(tas, out) and not is_extracted(tas.lazy[:3], out)
    for exists in ("update", "raise"):
        assert extract(tas, out, exists=exists).unchanged and files_below(out) == before
    with pytest.raises(aa.AggregationError, match="already exists"):
        extract(tas.lazy[:3], out)
    assert not extract(tas, out, exists="overwrite").unchanged and files_below(out) == before
    assert not extract(tas.lazy[:3], out, exists="update").unchanged
    assert aa.open(out)["tas"].shape == (3, 9, 14)
    os.utime(files[0], (1, 1))
    assert not is_extracted(aa.open(files)["tas"].lazy[:3], out)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["data", out.name]


def test_one_process_at_a_time(tmp_path: Path, sample_tiles: Path) -> None:
    with open(tmp_path / ".out.nc.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(aa.AggregationError, match="another process is writing it"):
            extract(aa.open(sample_tiles)["value"], tmp_path / "out.nc")
    extract(aa.open(sample_tiles)["value"], tmp_path / "out.nc")


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_only_the_same_extract_resumes(tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tas, out = aa.open(archive(tmp_path / "data"))["tas"], tmp_path / f"out.{suffix}"
    calls = []
    read = layout.Variable.values

    def stopping(self: layout.Variable, key: Any) -> Any:
        calls.append(key)
        if len(calls) == limit:
            raise aa.FormatError("stopped")
        return read(self, key)

    monkeypatch.setattr(layout.Variable, "values", stopping)
    limit = 2
    with pytest.raises(aa.FormatError, match="stopped"):
        extract(tas, out)
    assert not out.exists()
    limit, seen = 0, list[tuple[int, int, str]]()
    done = extract(tas, out, progress=lambda *step: seen.append(step))
    assert 0 < done.resumed < tas.nbytes and seen[-1][0] == seen[-1][1] == tas.nbytes and seen[0][2] == "extracting"
    whole = files_below(out)
    limit, calls = len(calls) + 2, calls
    with pytest.raises(aa.FormatError, match="stopped"):
        extract(tas, out, exists="overwrite")
    assert files_below(out) == whole
    assert extract(tas.lazy[:, ::-1], out, exists="overwrite").resumed == 0
    np.testing.assert_array_equal(aa.open(out)["tas"][:], np.asarray(tas[:, ::-1]))


@pytest.mark.usefixtures("small")
def test_no_more_than_a_block_is_read_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes, read = [], layout.Variable.values

    def noting(self: layout.Variable, key: Any) -> Any:
        sizes.append(read(self, key).nbytes)
        return read(self, key)

    monkeypatch.setattr(layout.Variable, "values", noting)
    tas = aa.open(archive(tmp_path / "data"))["tas"]
    extract(tas, tmp_path / "out.zarr")
    assert max(sizes) <= SMALL["BLOCK"] and len(sizes) >= tas.nbytes / SMALL["BLOCK"]


#: Extracts in a child process for each number on standard input, and kills it at the step of that number in the folder.
KILLER = """
import os, signal, sys, tempfile
import aggarray as aa
from aggarray.export.extract import extract
from aggarray.export.extract import pieces
from aggarray.output import layout
from aggarray.partition import block_shapes as blocks
source, out, numbers = sys.argv[1], sys.argv[2], sys.argv[3:]
for number in numbers:
    name, _, value = number.partition("=")
    setattr(next(m for m in (layout, blocks, pieces) if hasattr(m, name)), name, int(value))
with tempfile.TemporaryDirectory() as folder:  # children find all modules imported
    extract(aa.open(source)["tas"], os.path.join(folder, os.path.basename(out)))
for line in sys.stdin:
    child = os.fork()
    if not child:
        left = int(line)
        def hook(event, arguments):
            global left
            if event in ("open", "os.rename", "os.mkdir", "os.remove", "os.rmdir") and out in str(arguments[:2]):
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
        tas = aa.open(source)["tas"]
        sys.addaudithook(hook)
        extract(tas, out)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    print(-os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status), flush=True)
"""


@pytest.fixture
def killer(tmp_path: Path) -> Iterator[Any]:
    processes = []

    def start(source: Path, out: Path) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", KILLER, str(source), str(out), *(f"{n}={v}" for n, v in SMALL.items())]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        processes.append(subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, **pipes))
        return processes[-1]

    yield start
    for process in processes:
        process.communicate(timeout=60)


def attempt(process: subprocess.Popen[str], number: int) -> int:
    assert process.stdin is not None and process.stdout is not None
    print(number, file=process.stdin, flush=True)
    return int(process.stdout.readline())


@pytest.mark.heavy
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_run_killed_anywhere_resumes_to_the_same_bytes(tmp_path: Path, suffix: str, killer: Any) -> None:
    archive(tmp_path / "data")
    undisturbed, out = tmp_path / f"whole.{suffix}", tmp_path / f"out.{suffix}"
    assert attempt(killer(tmp_path / "data", undisturbed), 0) == 0
    expected, process, kills, step = files_below(undisturbed), killer(tmp_path / "data", out), 0, 1
    while True:
        status = attempt(process, step)
        if status == 0:
            break
        assert status == -signal.SIGKILL
        kills += 1
        if out.exists():
            # The result is complete when it has its name; only the folder remains to be removed.
            assert files_below(out) == expected
        else:
            assert attempt(process, max(step - 3, 1)) in (0, -signal.SIGKILL)  # killed twice
        if not out.exists() or (tmp_path / f"out.{suffix}.part" / "extract.json").exists():
            assert attempt(process, 0) == 0
        assert files_below(out) == expected
        shutil.rmtree(out) if out.is_dir() else out.unlink()
        shutil.rmtree(tmp_path / f"out.{suffix}.part", ignore_errors=True)
        step += 5 * 50 // examples(50)
    assert kills > examples(10)


@given(
    st.lists(st.integers(0, 9), min_size=0, max_size=3),
    st.lists(st.integers(1, 12), min_size=3, max_size=3),
    st.integers(1, 200),
)
def test_blocks_cover_every_element_once(shape: list[int], sides: list[int], most: int) -> None:
    seen = np.zeros(shape, int)
    cuts = sides[: len(shape)]
    for box in block_shapes.in_blocks(shape, cuts, most):
        seen[box] += 1
        assert all(s.start % side == 0 for s, side in zip(box, cuts, strict=True))
        assert seen[box].size <= max(most, int(np.prod(cuts)))
    assert (seen == 1).all()


@given(st.lists(st.integers(1, 10**5), max_size=4), st.lists(st.integers(1, 10**5), min_size=4, max_size=4), st.integers(1, 16))
def test_chunk_sizes(shape: list[int], stored: list[int], itemsize: int) -> None:
    result = block_shapes.chunk_like(shape, itemsize, stored[: len(shape)])
    nbytes = int(np.prod([itemsize, *result], dtype=object))
    assert all(1 <= side <= size for side, size in zip(result, shape, strict=True)) and nbytes <= block_shapes._MAX_BYTES
    assert nbytes * 4 >= block_shapes._MIN_BYTES or result == tuple(shape)


def test_netcdf_library_agrees_on_the_chunks(tmp_path: Path, small: None) -> None:
    extract(aa.open(archive(tmp_path / "data"))["tas"], tmp_path / "out.nc")
    with netCDF4.Dataset(tmp_path / "out.nc") as file:
        variable = file["tas"]
        assert variable.filters()["shuffle"] and variable.filters()["zlib"] and variable.chunking() != "contiguous"
        assert file["lat"].chunking() == "contiguous" and variable.shape == (12, 9, 14)
    assert not filecmp.cmp(tmp_path / "out.nc", tmp_path / "data" / "a.nc", shallow=False)


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("place", ["cmip6/CMIP/MIROC/MIROC6", "cmip6/CMIP/CCCR-IITM", "nemo", "ostia_monthly.nc"])
def test_xarray_reads_real_data(shared_data: Path, tmp_path: Path, suffix: str, place: str) -> None:
    source = shared_data / place
    folder = min((p.parent for p in source.rglob("*.nc")), default=source) if source.is_dir() else source
    files = sorted(map(str, folder.glob("*.nc"))) if folder.is_dir() else [str(source)]
    extract([a for a in aa.open(files) if a.size], tmp_path / f"out.{suffix}")
    along = {"combine": "nested", "concat_dim": "time_counter" if place == "nemo" else "time"}
    same = {"data_vars": "minimal", "coords": "minimal", "compat": "override"}
    with xr.open_mfdataset(files, **along, **same) as expected, opened(tmp_path / f"out.{suffix}") as result:
        assert set(result.variables) <= set(expected.variables) and len(result.data_vars) >= 1
        for name in result.variables:
            xr.testing.assert_equal(
                result[name].drop_vars(result[name].coords), expected[name].drop_vars(expected[name].coords)
            )
            kept = {"units", "standard_name", "long_name", "cell_methods", "axis"} & set(expected[name].attrs)
            assert {k: result[name].attrs[k] for k in kept} == {k: expected[name].attrs[k] for k in kept}, name


@pytest.mark.usefixtures("small")
def test_other_filters_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tas, create, odd = aa.open(archive(tmp_path / "data"))["tas"], netCDF4.Dataset.createVariable, [True]

    def creating(self: Any, name: str, *arguments: Any, **how: Any) -> Any:
        return create(self, name, *arguments, **{**how, "shuffle": how.get("shuffle", False) and not (odd and odd.pop())})

    extract(tas, tmp_path / "once.nc")
    monkeypatch.setattr(netCDF4.Dataset, "createVariable", creating)
    extract(tas, tmp_path / "again.nc")
    assert not odd and filecmp.cmp(tmp_path / "once.nc", tmp_path / "again.nc", shallow=False)
    odd[:] = [True] * 99
    with pytest.raises(aa.AggregationError, match="gave variable 'tas' the filters"):
        extract(tas, tmp_path / "never.nc")
    odd.clear()
    assert extract(tas, tmp_path / "never.nc").resumed == tas.nbytes


def mandatory(path: str) -> None:
    """Make the filters of all compressed variables mandatory, as some versions of netCDF-C do."""
    with h5py.File(path) as file:
        result = [h5py.h5o.get_info(d.id).addr for d in file.values() if isinstance(d, h5py.Dataset) and d.compression]
    data = bytearray(Path(path).read_bytes())
    for at in result:
        assert data[at : at + 5] == b"OHDR\2" and not data[at + 5] & 48
        start = at + 6 + (1 << (data[at + 5] & 3))
        end = start + int.from_bytes(data[at + 6 : start], "little")
        message = data.index(b"\2\2\2\0\1\0\1\0", at, end)
        data[message + 4] = data[message + 14] = 0
        data[end : end + 4] = int(jenkins_lookup3(bytes(data[at:end]))).to_bytes(4, "little")
    Path(path).write_bytes(data)


@pytest.mark.usefixtures("small")
def test_filters_are_optional_whatever_the_library_sets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that resumes with other flags than the first does not fail, and gives the same bytes."""
    tas, declare, flags = aa.open(archive(tmp_path / "data"))["tas"], netcdf_file._declare_file, []
    extract(tas, tmp_path / "once.nc")

    def declaring(*arguments: Any) -> None:
        declare(*arguments)
        mandatory(arguments[-1])
        with h5py.File(arguments[-1]) as file:
            flags.append([file["tas"].id.get_create_plist().get_filter(n)[1] for n in range(2)])

    monkeypatch.setattr(netcdf_file, "_declare_file", declaring)
    extract(tas, tmp_path / "again.nc")
    assert flags == [[0, 0]] and filecmp.cmp(tmp_path / "once.nc", tmp_path / "again.nc", shallow=False)
    monkeypatch.setattr(netcdf_file, "_optional_filters", lambda *block: b"")
    extract(tas, tmp_path / "third.nc")
    np.testing.assert_array_equal(aa.open(tmp_path / "third.nc")["tas"][...], tas[...])


def test_damage_to_a_store_is_an_error_anywhere(tmp_path: Path) -> None:
    """Noise is stored uncompressed; checksums protect it, small arrays and text."""
    values = np.random.default_rng(0).random((4, 300)).astype("f4")
    letters = np.array([b"one", b"two", b"three", b"four"], "S5").view("S1").reshape(4, 5)
    given = {"name": (("t", "n"), letters), "v": (("t", "x"), values, {"coordinates": "name"})}
    source = write(tmp_path / "a.nc", {"t": (("t",), np.arange(4.0), {"units": "m"}), **given})
    extract(aa.open(source)["v"], tmp_path / "out.zarr")
    np.testing.assert_array_equal(aa.open(tmp_path / "out.zarr")["v"][...], values)
    np.testing.assert_array_equal(zarr.open_group(tmp_path / "out.zarr")["v"][...], values)
    for name, read in (("v", lambda a: a["v"][...]), ("t", lambda a: a["v"].coords["t"][...]), ("name", lambda a: a["v"])):
        chunk = next(p for p in sorted((tmp_path / "out.zarr" / name / "c").rglob("*")) if p.is_file())
        whole = chunk.read_bytes()
        for at in range(0, len(whole), 1 + len(whole) // 40):
            chunk.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
            with pytest.raises(aa.FormatError, match=rf"'{name}'.*out\.zarr"):
                read(aa.open(tmp_path / "out.zarr"))
        chunk.write_bytes(whole)
