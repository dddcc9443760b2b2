"""`check_layout` of indexes, selections, several arrays, real data, and files that cannot be read."""

import math
import pickle
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyfive
import pytest
from hypothesis import given
from hypothesis import strategies as st

import aggarray as aa
from aggarray.aggregate.report import Problem, Report
from aggarray.layout.base import ArrayLayout, compare, suggested_chunks
from aggarray.scan.files import scanning_on
from tests.layout.archives import SHAPE, clean, every, second, second_attrs, write
from tests.support.servers import free_of_proxies, web_server


def facts(report: Report) -> list[tuple[str, str, tuple[str, ...]]]:
    return [(p.kind, p.message, p.files) for p in report.problems]


def test_an_index_has_the_findings_of_its_files(tmp_path: Path) -> None:
    folder = write(tmp_path / "a", second(fill=-1.0)(every(chunks=(10, *SHAPE))(clean())))
    agg = aa.open(folder)
    expected = agg.check_layout()
    assert [p.kind for p in expected.problems] == ["chunk_size", "packing"]
    agg.save(tmp_path / "a.nca")
    index = aa.open(tmp_path / "a.nca")
    assert facts(index.check_layout()) == facts(expected)
    assert f"aggarray extract {tmp_path / 'a.nca'} -v tas " in str(index.check_layout().problems[0].remedy)
    assert facts(aa.open(folder, rules=aa.Rules(trust="assume")).check_layout()) == facts(expected)
    assert facts(pickle.loads(pickle.dumps(agg)).check_layout()) == facts(expected)
    with ThreadPoolExecutor(2) as executor, scanning_on(executor):
        assert facts(agg.check_layout()) == facts(expected)


def test_a_selection_is_of_its_files(tmp_path: Path) -> None:
    folder = write(tmp_path / "a", second(fill=-1.0)(clean()))
    agg = aa.open(folder)
    assert not agg.check_layout().ok
    assert agg.isel(time=slice(0, 90)).check_layout().ok


def test_arrays_share_the_findings_of_their_files(tmp_path: Path) -> None:
    for model in ("A", "B"):
        files = [replace(f, attrs={**f.attrs, "source_id": model}) for f in clean()]
        files = [
            replace(
                f, attrs={**f.attrs, "tracking_id": f"{f.attrs['tracking_id'][:-2]}{model.lower()}{f.attrs['tracking_id'][-1]}"}
            )
            for f in files
        ]
        write(tmp_path / "a" / model, second(fill=-1.0)(files))
    agg = aa.open(tmp_path / "a")
    assert len(agg) == 2
    (problem,) = agg.check_layout().problems
    assert problem.kind == "packing" and len(problem.files) == 2 and "in 2 of 8 files" in problem.message
    assert "--where source_id=A" in str(problem.remedy)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    files = clean()
    folder = write(tmp_path / "a", files)
    agg = aa.open(folder)
    (folder / files[0].name).unlink()
    damaged = folder / files[1].name
    damaged.write_bytes(damaged.read_bytes()[:3000])
    report = agg.check_layout()
    assert [(p.kind, Path(str(p.file)).name) for p in report.problems] == [
        ("missing", files[0].name),
        ("unreadable", files[1].name),
    ]


def test_roots_are_kept(tmp_path: Path) -> None:
    aa.open(write(tmp_path / "b", clean(count=2))).save(tmp_path / "b.nca")
    agg = aa.open(tmp_path / "b.nca", roots=[str(tmp_path / "b")])
    # The folder is replaced by a link out of the roots.
    (tmp_path / "b").rename(tmp_path / "c")
    (tmp_path / "b").mkdir()
    for path in (tmp_path / "c").iterdir():
        (tmp_path / "b" / path.name).symlink_to(path)
    report = agg.check_layout()
    (problem,) = report.problems
    assert problem.kind == "unreadable" and len(problem.files) == 2
    assert "outside the folders" in problem.message and "and 1 other file" in problem.message


def test_values_of_every_file_are_one_finding(tmp_path: Path) -> None:
    files = [replace(f, packing={"scale_factor": np.float32(n + 2)}) for n, f in enumerate(clean(count=9))]
    files = [replace(f, attrs={**f.attrs, "region": f"r{n // 2}"}) for n, f in enumerate(files)]
    report = aa.open(write(tmp_path / "a", files)).check_layout()
    packing, *attributes = report.problems
    assert packing.kind == "packing" and "and 7 other values in 8 of 9 files" in packing.message
    assert [(p.kind, len(p.files)) for p in attributes] == [("attributes", 2)] * 3 + [("attributes", 1)]
    (names, *_) = (p for p in aa.open(tmp_path / "a").check_layout("cmip7").problems if p.kind == "names")
    assert len(names.files) == 9 and "'glb' in the name, 'r0' in the file" in names.message


def test_arrays_in_memory_have_no_layout() -> None:
    piece = aa.SubArray.from_array([1.0, 2.0])
    array = aa.MasterArray.from_subarrays([([(0, 2)], piece)], dimensions=("x",), name="tas")
    assert aa.Aggregation((array,)).check_layout().ok


def test_problems_without_findings_print_as_before() -> None:
    problem = Problem("gap", "a.nc", "text")
    assert repr(problem) == "Problem(kind='gap', file='a.nc', message='text')"
    assert repr(replace(problem, files=("a.nc",))).endswith(", files=('a.nc',), remedy=None)")
    assert Problem("gap", "a.nc", "text", ("a.nc",), ("echo \x1b[2J",)).remedy is None


def packing_faults(path: str, variable: str) -> set[str]:
    """Return the checks that a file fails, as the check of CMIP7 defines them, by pyfive."""
    with pyfive.File(path) as file:
        faults = set() if file.consolidated_metadata else {"metadata"}
        names = ["time"] if "time" in file else []
        if names and "bounds" in file["time"].attrs:
            bounds = file["time"].attrs["bounds"]
            names.append(bounds.decode() if isinstance(bounds, bytes) else str(bounds))
        if any(n in file and file[n].chunks is not None and file[n].id.get_num_chunks() > 1 for n in names):
            faults.add("time_chunks")
        chunks, item = file[variable].chunks, file[variable].dtype.itemsize
        if chunks is not None and file[variable].id.get_num_chunks() > 1:
            step = math.prod(chunks[1:]) * item if len(chunks) > 1 else 0
            if math.prod(chunks) * item + step < 4 * 2**20:
                faults.add("chunk_size")
    return faults


def compare_with_cmip7(agg: aa.Aggregation, variable: str) -> None:
    kinds = ("metadata", "time_chunks", "chunk_size")
    found: dict[str, set[str]] = {}
    for problem in agg.check_layout("cmip7").problems:
        for file in problem.files if problem.kind in kinds else ():
            found.setdefault(file, set()).add(problem.kind)
    files = sorted({str(uri) for array in agg for uri in array._matrix.references.uris})
    assert {f: faults for f in files if (faults := packing_faults(f, variable))} == found


@pytest.mark.parametrize("chunks", [(1, *SHAPE), (10, *SHAPE), (90, 9, 9)])
def test_cmip7_agrees_with_its_own_check(tmp_path: Path, chunks: tuple[int, ...]) -> None:
    files = every(chunks=chunks, unlimited=("time",))(clean())
    compare_with_cmip7(aa.open(write(tmp_path / "a", second(time_chunk=1)(files))), "tas")


@pytest.mark.heavy
def test_cmip7_agrees_with_its_own_check_on_real_data(shared_data: Path) -> None:
    compare_with_cmip7(aa.open(shared_data / "cmip6"), "ta")


def test_real_data_are_examined(shared_data: Path) -> None:
    agg = aa.open(shared_data / "cmip6")
    report = agg.check_layout()
    # Two files of the archive have the same identifier.
    (problem,) = (p for p in report.problems if p.kind == "tracking_id")
    assert "repeated" in problem.message and "CESM2-FV2" in str(problem.file)


def test_a_field_that_differs_in_every_file_describes_the_file(tmp_path: Path) -> None:
    files = [replace(f, attrs={**f.attrs, "remark": f.name}) for f in clean()]
    assert aa.open(write(tmp_path / "a", files)).check_layout().ok
    files = second_attrs(remark="other")([replace(f, attrs={**f.attrs, "remark": "usual"}) for f in clean()])
    assert [p.kind for p in aa.open(write(tmp_path / "b", files)).check_layout().problems] == ["attributes"]


@given(
    sizes=st.lists(st.integers(1, 5000), min_size=1, max_size=4),
    itemsize=st.sampled_from([1, 2, 4, 8]),
    limits=st.sampled_from([(100_000, 16_000_000), (4_194_304, 0), (10, 1000)]),
)
def test_suggested_chunks_are_within_limits(sizes: list[int], itemsize: int, limits: tuple[int, int]) -> None:
    by_name = {f"d{n}": size for n, size in enumerate(sizes)}
    chunks = suggested_chunks(ArrayLayout(0, "x", by_name, itemsize, (), ()), limits)
    assert list(chunks) == list(by_name)
    sides = [by_name[n] if c == -1 else c for n, c in chunks.items()]
    assert all(1 <= side <= size for side, size in zip(sides, sizes, strict=True))
    least, most = limits
    nbytes = math.prod(sides) * itemsize
    assert not most or nbytes <= max(most, itemsize)
    assert nbytes >= least or sides == sizes


@given(values=st.lists(st.integers(0, 3), max_size=12))
def test_compare_counts_every_file(values: list[int]) -> None:
    result = compare((str(number), value) for number, value in enumerate(values))
    others: Mapping[Any, list[str]] = result.others
    assert result.examined == len(values) and result.number + sum(map(len, others.values())) == len(values)
    assert all(len(files) <= result.number for files in others.values())
    assert all(values[int(file)] == value for value, files in others.items() for file in files)


def test_remote_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("fsspec")
    for name, value in free_of_proxies().items():
        monkeypatch.setenv(name, value)
    files = second_attrs(tracking_id=None)(second(fill=-1.0)(clean(count=3)))
    write(tmp_path / "a", files)
    with web_server(tmp_path) as web:
        urls = [f"{web.url}/a/{file.name}" for file in files]
        report = aa.open(urls).check_layout()
        packing, identifier = report.problems
        assert (packing.kind, identifier.kind) == ("packing", "tracking_id")
        assert packing.files == identifier.files == (urls[1],)
        assert str(packing.remedy).startswith(f"aggarray extract {web.url}")
        # No tool mends a file on a server in place.
        assert identifier.remedy is None and "fetch" in identifier.message
