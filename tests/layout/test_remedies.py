"""The lines that findings give are run as they stand, and remove the finding."""

import os
import shlex
import shutil
import subprocess
import sys
import uuid
from dataclasses import replace
from pathlib import Path

import h5py
import netCDF4
import numpy as np
import pytest
import zarr

import aggarray as aa
from aggarray.aggregate.report import Problem
from tests.layout.archives import FAULTS, SHAPE, STEPS, Fault, clean, every, every_attrs, second, write
from tests.support.examples import heavy


def run(line: str, folder: Path) -> None:
    """Run a line in a shell; skip where its program is not installed."""
    program = shlex.split(line)[0]
    if program == "aggarray":
        line = f"{shlex.quote(sys.executable)} -m {line}"
    elif program == "python":
        line = f"{shlex.quote(sys.executable)}{line.removeprefix('python')}"
    elif shutil.which(program) is None:
        pytest.skip(f"no {program}")
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(line, shell=True, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def mend(problem: Problem, folder: Path) -> Path:
    """Run the remedy of a finding for each of its files; return what to check again."""
    assert problem.remedy is not None and problem.remedy == problem.remedies[0]
    if problem.remedy.startswith("aggarray extract"):
        out = folder / "mended"
        out.mkdir()
        run(problem.remedy, out)
        return out
    assert len(problem.remedies) == len(problem.files)
    for line in problem.remedies:
        run(line, folder)
    return folder / "a"


def values_in(folder: Path) -> np.ndarray:
    return aa.open(folder).arrays[0][...]


WITHOUT = {"file name", "no bounds", "lost bounds"}


WITH = [f for f in FAULTS if f.name not in WITHOUT]


@pytest.mark.parametrize("fault", heavy(WITH, but=WITH[::4]), ids=lambda fault: fault.name)
def test_a_remedy_removes_its_finding(tmp_path: Path, fault: Fault) -> None:
    folder = write(tmp_path / "a", fault.change(clean(fault.profile)))
    before = values_in(folder)
    # A line mends one thing, such as the bounds of time beside the time.
    for _ in range(3):
        found = [p for p in aa.open(folder).check_layout(fault.profile).problems if p.kind == fault.kind]
        if not found:
            break
        folder = mend(found[0], tmp_path)
    assert not found
    after = values_in(folder)
    assert after.dtype.kind == before.dtype.kind and np.array_equal(after, before, equal_nan=True)


@pytest.mark.parametrize("fault", [f for f in FAULTS if f.name in WITHOUT], ids=lambda fault: fault.name)
def test_findings_without_a_line_say_what_to_do(tmp_path: Path, fault: Fault) -> None:
    folder = write(tmp_path / "a", fault.change(clean(fault.profile)))
    for problem in aa.open(folder).check_layout(fault.profile).problems:
        assert problem.remedy is None and any(word in problem.message for word in ("rename", "correct", "write", "settbounds"))


def test_each_file_gets_a_new_identifier(tmp_path: Path) -> None:
    """Also where the line of one file is repeated for the others, and after a second run."""
    same = {"tracking_id": "hdl:21.14100/12", "mip_era": "CMIP6"}
    folder = write(tmp_path / "a", every_attrs(**same)(clean()))
    (problem, *_) = (p for p in aa.open(folder).check_layout().problems if p.message.startswith("tracking_id malformed"))
    for line in [*problem.remedies, str(problem.remedy).replace(problem.files[0], problem.files[1])]:
        run(line, tmp_path)
        identifiers = [identifier_of(file) for file in problem.files]
        if line == problem.remedies[-1]:
            earlier = identifiers
    assert len({*identifiers, *earlier}) == 5
    for text in identifiers:
        prefix, _, identifier = text.rpartition("/")
        assert prefix == "hdl:21.14100" and uuid.UUID(identifier).version == 4
    assert aa.open(folder).check_layout().ok


def identifier_of(path: str) -> str:
    with netCDF4.Dataset(path) as file:
        return str(file.tracking_id)


def test_files_are_renamed_by_their_attributes(tmp_path: Path) -> None:
    """Where these and the dates give a name that no other file has."""
    files = clean("cmip7")
    names = [f.name for f in files]
    odd = ["tas_20000101-20000101.nc", "other_20000102-20000102.nc", f"x_{names[3].rpartition('_')[2]}", names[3]]
    folder = write(tmp_path / "a", [replace(f, name=name) for f, name in zip(files, odd, strict=True)])
    (problem,) = aa.open(folder).check_layout("cmip7").problems
    assert {Path(file).name for file in problem.files} == {*odd[:3]} and "give no new name" in problem.message
    assert len(problem.remedies) == 2
    for line in problem.remedies:
        run(line, tmp_path)
    assert sorted(path.name for path in folder.iterdir()) == sorted([*names[:2], *odd[2:]])


def test_bounds_of_points_are_deleted(tmp_path: Path) -> None:
    lost = {"bounds": "", "climatology": "climatology_bnds"}
    changed = every(time_attrs=lost, variable_attrs={"cell_methods": "time: point"})(clean(count=2))
    folder = write(tmp_path / "a", changed)
    (problem,) = aa.open(folder).check_layout().problems
    assert problem.kind == "bounds" and "ncatted" in str(problem.remedy)
    mend(problem, tmp_path)
    assert aa.open(folder).check_layout().ok


def test_chunk_shapes_of_cmip7(tmp_path: Path) -> None:
    """Shapes are equal in all files, which need not end with a chunk: years differ in length."""
    profile = profile_of(tmp_path, 'base = "cmip7"\nchunk_size = false\nmetadata = false\nnames = false\n')
    files = every(storage={"zlib": True}, chunks=(50, *SHAPE))(clean())
    assert aa.open(write(tmp_path / "b", files)).check_layout(profile).ok
    folder = write(tmp_path / "a", second(chunks=(50, 9, 36))(files))
    (problem,) = aa.open(folder).check_layout(profile).problems
    assert problem.kind == "regularity" and str(problem.remedy).startswith("h5repack")
    mend(problem, tmp_path)
    assert aa.open(folder).check_layout(profile).ok


def profile_of(tmp_path: Path, text: str) -> str:
    path = tmp_path / "own.toml"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize("paged", [False, True])
def test_scattered_metadata(tmp_path: Path, paged: bool) -> None:
    profile = profile_of(tmp_path, f'base = "none"\nmetadata = {{ paged = {str(paged).lower()}, tiny = 0, scattered = 0 }}\n')
    # More chunks than a node of a B-tree has entries: later nodes lie behind the first chunks.
    folder = write(tmp_path / "a", every(chunks=(1, *SHAPE))(clean(count=2)))
    (problem,) = aa.open(folder).check_layout(profile).problems
    assert problem.kind == "metadata" and len(problem.files) == 2 and "behind the first chunk" in problem.message
    before = values_in(folder)
    mend(problem, tmp_path)
    assert aa.open(folder).check_layout(profile).ok
    assert np.array_equal(values_in(folder), before)
    with h5py.File(problem.files[0]) as file:
        strategy = file.id.get_create_plist().get_file_space_strategy()[0]
    assert strategy == (h5py.h5f.FSPACE_STRATEGY_PAGE if paged else h5py.h5f.FSPACE_STRATEGY_FSM_AGGR)


def test_compression(tmp_path: Path) -> None:
    profile = profile_of(tmp_path, 'base = "cloud"\ncompression = { least = 100000 }\n')
    folder = write(tmp_path / "a", second(storage={}, chunks=None)(clean()))
    (problem,) = aa.open(folder).check_layout(profile).problems
    assert problem.kind == "compression" and len(problem.files) == 1 and "233.3 kB" in problem.message
    assert aa.open(mend(problem, tmp_path)).check_layout(profile).ok


def test_chunk_indexes_of_many_blocks(tmp_path: Path) -> None:
    profile = profile_of(tmp_path, "chunk_index = { most = 2 }\nchunk_size = { least = 10 }\n")
    folder = write(tmp_path / "a", every(chunks=(1, *SHAPE))(clean(count=2)))
    (problem,) = aa.open(folder).check_layout(profile).problems
    with netCDF4.Dataset(problem.files[0]) as file:
        assert file["tas"].chunking() == [1, *SHAPE]
    assert problem.kind == "chunk_index" and f"{STEPS} chunks" in problem.message and "B-tree of version 1" in problem.message
    assert aa.open(mend(problem, tmp_path)).check_layout(profile).ok


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_consolidated_metadata_of_stores(tmp_path: Path, version: int) -> None:
    path = tmp_path / "a" / "b.zarr"
    group = zarr.open_group(path, mode="w", zarr_format=version)
    names = {"dimension_names": ["x"]} if version == 3 else {"attributes": {"_ARRAY_DIMENSIONS": ["x"]}}
    group.create_array("tas", shape=(10,), dtype="f4", **names)[...] = np.arange(10)
    (problem,) = aa.open(path).check_layout("cloud").problems
    assert problem.kind == "metadata" and "consolidated" in problem.message
    mend(problem, tmp_path)
    assert aa.open(path).check_layout("cloud").ok
