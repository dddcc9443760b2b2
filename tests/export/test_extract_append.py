"""`extract(append=True)`: new positions behind those of an earlier extract."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pytest
import xarray as xr
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

import aggarray as aa
from aggarray.export.extract import extract, lineage
from aggarray.export.extract.target import ExtractTarget
from aggarray.formats import scan
from aggarray.output.layout import Variable
from tests.support.examples import examples, heavy
from tests.support.netcdf import TIME, cube, write
from tests.support.paths import ROOT

LATS, LONS = np.linspace(-40, 40, 9), np.linspace(0, 130, 14)
STEPS = 7
FORMS: list[tuple[str, dict[str, Any]]] = [
    ("zarr", {}),
    ("zarr", {"chunks": {"time": 4, "lat": 5}}),
    ("zarr", {"chunks": {"time": 4, "lat": 5}, "shards": {"time": 12}}),
    ("zarr", {"compress": "zstd:3"}),
    ("zarr", {"compress": "none", "chunks": {"time": 5}}),
    ("nc", {}),
    ("nc", {"chunks": {"time": 4, "lat": 5}}),
    ("nc", {"compress": "zstd:3"}),
    ("nc", {"compress": "none"}),
]


def archive(folder: Path, steps: Sequence[int] = (STEPS,) * 4) -> list[str]:
    """Write files of values and bounds, with missing values and a tracking_id each."""
    files, start = [], 0
    for n, size in enumerate(steps):
        times = np.arange(start, start + size, dtype=float)
        values = (times[:, None, None] * 1000 + np.arange(9 * 14).reshape(9, 14)).astype("f4")
        values[::3, 2, 3] = 1e20
        attrs = {"units": "K", "_FillValue": np.float32(1e20)}
        bounds = (("time", "bnds"), np.stack([times, times + 1], 1))
        time = (("time",), times, {**TIME, "bounds": "time_bnds"})
        given = cube(times, LATS, LONS, tas=(("time", "lat", "lon"), values, attrs), time=time, time_bnds=bounds)
        given["count"] = (("time",), times.astype("i4"), {"_FillValue": np.int32(-1)})
        files.append(write(folder / f"{n}.nc", given, {"tracking_id": f"id{n}", "history": f"made {n}"}))
        start += size
    return files


def content(path: Path) -> dict[str, Any]:
    """Return the values of all variables, as stored."""
    if path.suffix == ".zarr":
        return {name: array[...].tolist() for name, array in zarr.open_group(path, mode="r").arrays()}
    with netCDF4.Dataset(path) as file:
        file.set_auto_maskandscale(False)
        return {name: variable[...].tolist() for name, variable in file.variables.items()}


def opened(path: Path, group: str | None = None) -> xr.Dataset:
    return xr.open_dataset(path, engine="zarr" if path.suffix == ".zarr" else "netcdf4", group=group)


def stats(path: Path) -> dict[str, tuple[int, int]]:
    """Return what changes when a file below a path is written again."""
    return {str(p.relative_to(path)): (p.stat().st_ino, p.stat().st_mtime_ns) for p in path.rglob("*") if p.is_file()}


@pytest.mark.parametrize(("suffix", "how"), FORMS)
def test_appended_in_portions(tmp_path: Path, suffix: str, how: dict[str, Any]) -> None:
    files, out = archive(tmp_path / "data"), tmp_path / f"out.{suffix}"
    for number, appended in ((1, 0), (2, STEPS), (2, None), (4, 2 * STEPS)):
        agg = aa.open(files[:number])
        done = extract(agg, out, append=True, aggregation=agg, **how)
        assert (done.unchanged, done.appended) == (appended is None, appended or 0)
        assert done.dimension == ("time" if appended else None)
        np.testing.assert_array_equal(aa.open(out)["tas"][...], agg["tas"][...])
    extract(agg, tmp_path / f"whole.{suffix}", **how)
    assert content(out) == content(tmp_path / f"whole.{suffix}")
    with opened(out) as result, opened(tmp_path / f"whole.{suffix}") as whole:
        xr.testing.assert_equal(result.load(), whole.load())
        assert result.attrs["tracking_id"] == whole.attrs["tracking_id"] == "id0\nid1\nid2\nid3"
        lines = result.attrs["history"].split("\n")
        assert len(lines) == 4 and lines[-1] == "made 0" and all("aggarray extract of" in line for line in lines[:3])
        assert result.tas.encoding["chunks" if suffix == "zarr" else "chunksizes"][0] in (4, 5, STEPS)
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(["data", out.name, f"whole.{suffix}"])


@pytest.mark.parametrize("how", [how for suffix, how in FORMS if suffix == "zarr"])
def test_complete_chunks_are_not_written_again(tmp_path: Path, how: dict[str, Any]) -> None:
    files, out = archive(tmp_path / "data"), tmp_path / "out.zarr"
    extract(aa.open(files[:2]), out, **how)
    before = stats(out)
    extract(aa.open(files), out, append=True, **how)
    array = zarr.open_group(out, mode="r")["tas"]
    side = (array.shards or array.chunks)[0]
    after = stats(out)
    for name, state in before.items():
        is_complete = name.startswith("tas/c/") and (int(name.split("/")[2]) + 1) * side <= 2 * STEPS
        if is_complete or name.startswith(("lat/c", "lon/c")):
            assert after[name] == state


def test_files_of_earlier_steps_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Except those of the last step, which is compared."""
    files = archive(tmp_path / "data")
    agg = aa.open(files[:3])
    agg.save(tmp_path / "a.nca")
    for suffix in ("zarr", "nc"):
        extract(agg, tmp_path / f"out.{suffix}", aggregation=agg)
    agg = aa.open(tmp_path / "a.nca").append(files[3])
    agg.save(tmp_path / "b.nca")
    for file in files[:2]:
        Path(file).unlink()
    agg = aa.open(tmp_path / "b.nca")
    for suffix in ("zarr", "nc"):
        assert extract(agg, tmp_path / f"out.{suffix}", append=True, aggregation=agg).appended == STEPS


@given(data=st.data())
@settings(max_examples=examples(25), deadline=None)
def test_random_portions(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("portions")
    files = archive(folder / "data", data.draw(st.lists(st.integers(1, 6), min_size=2, max_size=5)))
    suffix = data.draw(st.sampled_from(["zarr", "nc"]))
    how: dict[str, Any] = {}
    if data.draw(st.booleans()):
        how["chunks"] = {"time": data.draw(st.integers(1, 8)), "lat": data.draw(st.integers(1, 10))}
        if suffix == "zarr" and data.draw(st.booleans()):
            how["shards"] = {"time": how["chunks"]["time"] * data.draw(st.integers(1, 3)), "lat": -1}
    for end in [*sorted(data.draw(st.sets(st.integers(1, len(files) - 1)))), len(files)]:
        extract(aa.open(files[:end]), folder / f"out.{suffix}", append=True, **how)
    extract(aa.open(files), folder / f"whole.{suffix}", **how)
    assert content(folder / f"out.{suffix}") == content(folder / f"whole.{suffix}")
    np.testing.assert_array_equal(aa.open(folder / f"out.{suffix}")["tas"][...], aa.open(files)["tas"][...])


@pytest.mark.parametrize("suffix", ["zarr", "nc"])
def test_the_list_of_files_grows(tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aggarray.export.extract.lineage.MOST", 5)
    files, out = archive(tmp_path / "data"), tmp_path / f"out.{suffix}"
    for number in (1, 2, 3, 4):
        extract(aa.open(files[:number]), out, append=True)
        with opened(out) as result:
            names = [f"id{n}" for n in range(number)]
            assert result.attrs.get("tracking_id", "") == ("id0" if number == 1 else "")
        with opened(out, "source_files") as listed:
            assert listed.tracking_id.values.tolist() == names and listed.uri.values.tolist() == files[:number]
    assert extract(aa.open(files), out, append=True).unchanged
    with opened(out, "source_files") as listed:
        assert dict(listed.sizes) == {"source_file": 4}


@pytest.mark.parametrize("suffix", ["zarr", "nc"])
def test_an_extract_without_a_list_gets_no_incomplete_one(tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Earlier versions wrote identifiers alone, many of them as a variable."""
    monkeypatch.setattr("aggarray.export.extract.lineage.MOST", 8)
    files, out = archive(tmp_path / "data"), tmp_path / f"out.{suffix}"
    with monkeypatch.context() as before:

        def as_before(layout: Any, listed: Any, earlier: Any) -> None:
            lineage._add_variable(layout, "tracking_id", [identifier for _, identifier in listed], earlier)

        before.setattr(lineage, "_add_list", as_before)
        extract(aa.open(files[:3]), out)
    for number in (3, 4):
        extract(aa.open(files[:number]), out, append=True)
        with opened(out) as result:
            assert result.tracking_id.values.tolist() == [f"id{n}" for n in range(number)]
        assert "source_files/uri" not in [v.name for v in scan(out).variables]


@pytest.mark.parametrize("is_old", [True, False])
@pytest.mark.parametrize("suffix", ["zarr", "nc"])
def test_an_extract_of_default_options_grows(
    tmp_path: Path, suffix: str, is_old: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small arrays of an extract that was not made to be appended to are in one uncompressed piece."""
    files, out = archive(tmp_path / "data"), tmp_path / f"out.{suffix}"
    if is_old:  # as earlier releases wrote it, with pieces of the size of the array
        monkeypatch.setattr("aggarray.export.extract.zarr_store.set_pieces", lambda layout: None)
    extract(aa.open(files[:1]), out)
    for number in (2, 4):
        extract(aa.open(files[:number]), out, append=True)
        extract(aa.open(files[:number]), tmp_path / f"whole.{suffix}", exists="overwrite")
        assert content(out) == content(tmp_path / f"whole.{suffix}")


@pytest.mark.parametrize("suffix", ["zarr", "nc"])
def test_what_does_not_continue_the_extract_is_refused(tmp_path: Path, suffix: str) -> None:
    files, out = archive(tmp_path / "data"), tmp_path / f"out.{suffix}"
    agg = aa.open(files)
    early = aa.open(files[:2])
    extract(early, out, chunks={"time": 4})
    tas, count = agg["tas"], agg["count"]
    text = content(out)
    for arrays, how, words in [
        (tas, {}, "only the output has the variables count"),
        ([tas, count, tas.astype("f8").lazy[:, 0]], {}, "only the selection has the variables"),
        (
            [tas.lazy[1:], count.lazy[1:]],
            {},
            "values differ at time=0: .* in the output, .* now",
        ),
        ([tas.lazy[:, 1:], count], {}, "sizes of several dimensions differ: .*lat 9 in the output, 8 now"),
        ([tas.lazy[:3], count.lazy[:3]], {}, "the selection is shorter: time 14 in the output, 3 now"),
        ([tas.lazy[:, ::-1], count], {}, "values differ at lat=0: -40.0 in the output, 40.0 now"),
        ([tas.to_units("degC"), count], {}, "units differ: K in the output, degC now .variable 'tas'"),
        ([tas.astype("f8"), count], {}, "the type differs: float32 in the output, float64 now"),
        (
            [tas.transpose("lat", "time", "lon"), count],
            {},
            "dimensions differ: time, lat, lon in the output, lat, time, lon now",
        ),
        ([tas, count], {"chunks": {"time": 5}}, "chunks={'time': 5}: the output has 4 .variable 'tas'"),
        ([tas, count], {"compress": "zstd:3"}, "compress='zstd:3': the output has (zlib:4|blosc:5)"),
        ([tas, count], {"exists": "overwrite"}, "append=True keeps what exists"),
    ]:
        with pytest.raises(aa.AggregationError, match=words) as error:
            extract(arrays, out, append=True, **how)  # type: ignore[arg-type]
        assert "overwrite" in str(error.value)
        assert content(out) == text
    if suffix == "zarr":
        with pytest.raises(aa.AggregationError, match=r"shards=\{'time': 8\}: the output has no"):
            extract(agg, out, append=True, shards={"time": 8})
    extract(agg, out, append=True, chunks={"time": 4})


@pytest.mark.parametrize("suffix", ["zarr", "nc"])
def test_values_that_changed_in_the_last_step(tmp_path: Path, suffix: str) -> None:
    files, out = archive(tmp_path / "data"), tmp_path / f"out.{suffix}"
    extract(aa.open(files[:2]), out)
    with netCDF4.Dataset(files[1], "a") as file:
        file["tas"][-1, 4, 5] = -1
    with pytest.raises(aa.AggregationError, match=r"values differ at time=13, lat=4, lon=5: 13061\.0 in the output, -1\.0 now"):
        extract(aa.open(files), out, append=True)


def test_a_store_with_other_metadata(tmp_path: Path) -> None:
    files, out = archive(tmp_path / "data"), tmp_path / "out.zarr"
    extract(aa.open(files[:2]), out)
    document = json.loads((out / "zarr.json").read_text())
    del document["consolidated_metadata"]
    (out / "zarr.json").write_text(json.dumps(document))
    with pytest.raises(aa.AggregationError, match="its metadata are not those of an extract"):
        extract(aa.open(files), out, append=True)


@pytest.mark.parametrize("suffix", ["zarr", "nc"])
@pytest.mark.parametrize(("first", "second"), [(1e20, -5.0), (1e20, None), (None, 1e20), (None, None)])
def test_missing_values_stay_those_of_the_extract(
    tmp_path: Path, suffix: str, first: float | None, second: float | None
) -> None:
    for number, fill in enumerate((first, second)):
        values = np.arange(6.0, dtype="f4").reshape(2, 3, 1) + np.zeros((2, 3, 2), "f4") + 10 * number
        if fill is not None:
            values[1, 2] = fill
        attrs = {"units": "K"} | ({} if fill is None else {"_FillValue": np.float32(fill)})
        write(
            tmp_path / "data" / f"{number}.nc", cube([2 * number, 2 * number + 1], tas=(("time", "lat", "lon"), values, attrs))
        )
    out = tmp_path / f"out.{suffix}"
    extract(aa.open(tmp_path / "data" / "0.nc"), out, append=True)
    both = aa.open(tmp_path / "data")
    assert extract(both, out, append=True).appended == 2
    expected = both["tas"].read(masked=True)
    found = aa.open(out)["tas"].read(masked=True)
    np.testing.assert_array_equal(np.ma.filled(found, -1), np.ma.filled(expected, -1))
    with opened(out) as result:
        np.testing.assert_array_equal(result.tas.values, both["tas"][...])


@pytest.mark.parametrize("suffix", ["zarr", "nc"])
def test_missing_integers_need_a_missing_value(tmp_path: Path, suffix: str) -> None:
    for number, attrs in enumerate(({}, {"_FillValue": np.int32(3)})):
        count = (("time",), np.arange(4, dtype="i4"), attrs)
        write(tmp_path / "data" / f"{number}.nc", cube(np.arange(4.0) + 4 * number, count=count))
    out = tmp_path / f"out.{suffix}"
    extract(aa.open(tmp_path / "data" / "0.nc")["count"], out)
    with pytest.raises(aa.AggregationError, match="the missing value differs: none in the output, -2147483647 now"):
        extract(aa.open(tmp_path / "data")["count"], out, append=True)


@pytest.mark.parametrize("suffix", ["zarr", "nc"])
def test_other_files_are_not_appended_to(tmp_path: Path, suffix: str) -> None:
    files, out = archive(tmp_path / "data"), tmp_path / f"out.{suffix}"
    dataset = xr.open_mfdataset(files[:2], combine="by_coords")
    dataset.to_zarr(out, consolidated=False) if suffix == "zarr" else dataset.to_netcdf(out)
    dataset.close()
    before = stats(out) if suffix == "zarr" else out.read_bytes()
    with pytest.raises(aa.AggregationError, match="was not extracted by aggarray"):
        extract(aa.open(files), out, append=True)
    assert before == (stats(out) if suffix == "zarr" else out.read_bytes())


#: Reads the output again and again; prints the sizes that it saw, or what differed.
READER = """
import sys, numpy as np, netCDF4, zarr
out, expected, sizes = sys.argv[1], np.load(sys.argv[2]), []
print("begun", flush=True)
while not sizes or sizes[-1] < len(expected):
    if out.endswith(".zarr"):
        group = zarr.open_group(out, mode="r")
        values, times = group["tas"][...], group["time"][...]
    else:
        with netCDF4.Dataset(out) as file:
            file.set_auto_maskandscale(False)
            values, times = file["tas"][...], file["time"][...]
    assert values.tobytes() == expected[: len(values)].tobytes(), (len(values), len(times))
    assert times.tolist() == list(range(len(values)))
    sizes.append(len(values))
print(len(set(sizes)))
"""


@pytest.mark.heavy
@pytest.mark.parametrize("suffix", ["zarr", "nc"])
def test_readers_during_appends(tmp_path: Path, suffix: str) -> None:
    """Every reader sees a complete extract, of some number of steps."""
    files, out = archive(tmp_path / "data", (1,) * 8), tmp_path / f"out.{suffix}"
    extract(aa.open(files), tmp_path / f"whole.{suffix}", chunks={"time": 3})
    np.save(tmp_path / "whole.npy", np.array(content(tmp_path / f"whole.{suffix}")["tas"], "f4"))
    extract(aa.open(files[:1]), out, chunks={"time": 3})
    command = [sys.executable, "-c", READER, str(out), str(tmp_path / "whole.npy")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "begun\n"
        for number in range(2, 9):
            extract(aa.open(files[:number]), out, append=True)
        assert int(process.stdout.read()) > 1
    assert process.returncode == 0


@pytest.mark.parametrize("suffix", ["zarr", "nc"])
def test_another_process_has_appended_meanwhile(tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    files, out = archive(tmp_path / "data"), tmp_path / f"out.{suffix}"
    extract(aa.open(files[:2]), out)
    held, other = ExtractTarget.held, list[bool]()

    def late(self: ExtractTarget) -> Any:
        if not other:
            other.append(True)
            extract(aa.open(files[:3]), out, append=True)
        return held(self)

    monkeypatch.setattr(ExtractTarget, "held", late)
    with pytest.raises(aa.AggregationError, match=r"was modified by another process meanwhile: .*; run it again"):
        extract(aa.open(files), out, append=True)
    assert extract(aa.open(files), out, append=True).appended == STEPS
    np.testing.assert_array_equal(aa.open(out)["tas"][...], aa.open(files)["tas"][...])


@pytest.mark.parametrize("suffix", ["zarr", "nc"])
def test_an_append_resumes_and_another_one_does_not_use_its_chunks(
    tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chunks of a stopped append are of no use for an extract of other chunks."""
    files, out = archive(tmp_path / "data"), tmp_path / f"out.{suffix}"
    extract(aa.open(files[:1]), out, chunks={"time": 4})
    monkeypatch.setattr("aggarray.export.extract.pieces.BLOCK", 4 * 9 * 14 * 4)
    read, calls = Variable.values, list[Any]()

    def stopping(self: Any, key: Any) -> Any:
        calls.append(key)
        if len(calls) == 12:
            raise aa.FormatError("stopped")
        return read(self, key)

    monkeypatch.setattr(Variable, "values", stopping)
    with pytest.raises(aa.FormatError, match="stopped"):
        extract(aa.open(files), out, append=True)
    extract(aa.open(files[:1]), tmp_path / f"kept.{suffix}", chunks={"time": 4})
    copied = tmp_path / f"copy.{suffix}"
    shutil.copytree(out, copied) if out.is_dir() else shutil.copy(out, copied)
    shutil.copytree(f"{out}.part", f"{copied}.part")
    assert extract(aa.open(files), out, append=True).resumed > 0
    extract(aa.open(files[:1]), copied, chunks={"time": 5}, exists="update")
    assert extract(aa.open(files), copied, append=True).resumed == 0
    assert content(copied) == content(out)


#: Appends in a child process for each number on standard input, and kills it at that step.
KILLER = """
import os, signal, sys, tempfile
import aggarray as aa
from aggarray.export.extract import extract
out, files = sys.argv[1], sys.argv[2:]
with tempfile.TemporaryDirectory() as folder:  # children find all modules imported
    for some in (files[:1], files):
        extract(aa.open(some, processes=1), os.path.join(folder, os.path.basename(out)), append=True)
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
        agg = aa.open(files, processes=1)
        sys.addaudithook(hook)
        extract(agg, out, append=True)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    print(-os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status), flush=True)
"""


CHUNKED: tuple[str, dict[str, Any]] = ("zarr", {"chunks": {"time": 4}})


@pytest.mark.parametrize(
    ("suffix", "how"), heavy([CHUNKED, ("zarr", {"chunks": {"time": 2}, "shards": {"time": 6}}), ("nc", {})], but=[CHUNKED])
)
def test_killed_at_every_step(tmp_path: Path, suffix: str, how: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader sees the old extract or the new one, and the next run completes it."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1000000000")
    files, out, kept = archive(tmp_path / "data", (3, 4)), tmp_path / f"out.{suffix}", tmp_path / f"kept.{suffix}"
    extract(aa.open(files[:1]), kept, **how)
    old = content(kept)
    extract(aa.open(files), tmp_path / f"whole.{suffix}", **how)
    new = content(tmp_path / f"whole.{suffix}")
    command = [sys.executable, "-c", KILLER, str(out), *files]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, **pipes) as process:
        seen, steps = _kill_at_steps(process, kept, out, old, new)
    assert seen <= {"old", "new"} and "old" in seen and steps > 10


def _kill_at_steps(process: Any, kept: Path, out: Path, old: Any, new: Any) -> tuple[set[str], int]:
    """Return what readers saw after a kill at each step, and the number of steps."""

    def run(step: int) -> int:
        print(step, file=process.stdin, flush=True)
        return int(process.stdout.readline())

    step, seen = 1, set[str]()
    while True:
        shutil.rmtree(out) if out.is_dir() else out.unlink(missing_ok=True)
        shutil.copytree(kept, out) if kept.is_dir() else shutil.copy(kept, out)
        status = run(step)
        if status == 0:
            return seen, step
        assert status == -9
        now = content(out)
        seen.add("old" if now == old else "new" if now == new else f"mixed at {step}")
        assert run(0) == 0 and content(out) == new
        assert not out.with_name(f"{out.name}.part").exists()
        step += (2 + step // 30) * 50 // examples(50)
