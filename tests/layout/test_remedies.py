"""The lines that findings give are run as they stand, and remove the finding."""

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import h5py
import netCDF4
import numpy as np
import pytest
import zarr

import aggarray as aa
from aggarray.aggregate.report import Problem
from tests.layout.archives import FAULTS, SHAPE, STEPS, Fault, clean, every, second, write


def run(line: str, folder: Path) -> None:
    """Run a line in a shell; skip where its program is not installed."""
    program = shlex.split(line)[0]
    if program == "aggarray":
        line = f"{shlex.quote(sys.executable)} -m {line}"
    elif program == "python":
        line = f"{shlex.quote(sys.executable)}{line.removeprefix('python')}"
    elif shutil.which(program) is None:
        pytest.skip(f"no {program}")
    done = subprocess.run(line, shell=True, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def mend(problem: Problem, folder: Path) -> Path:
    """Run the remedy of a finding for each of its files; return what to check again."""
    assert problem.remedy is not None
    if problem.remedy.startswith("aggarray extract"):
        out = folder / "mended"
        out.mkdir()
        run(problem.remedy, out)
        return out
    for file in problem.files:
        run(problem.remedy.replace(problem.files[0], file), folder)
    return folder / "a"


def values_in(folder: Path) -> np.ndarray:
    return aa.open(folder).arrays[0][...]


WITHOUT = {"file name", "facet", "no bounds", "lost bounds"}


@pytest.mark.parametrize("fault", [f for f in FAULTS if f.name not in WITHOUT], ids=lambda fault: fault.name)
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
