"""Opening a file and reading all of its variables takes work linear in their number, in every format.

Work is counted in calls of Python functions: twice as many variables take at most a little more than twice the work.
"""

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import pytest
import zarr

import aggarray as aa
from aggarray import formats
from aggarray.formats import open_file
from aggarray.formats.hdf5.metadata import data
from aggarray.formats.hdf5.metadata import lookup as h5_file
from aggarray.formats.hdf5.metadata import validation as survey_module
from aggarray.formats.hdf5.metadata.groups import attributes_at
from aggarray.formats.hdf5.metadata.validation import validate
from aggarray.storage.lru_cache import LRUCache
from tests.support.calls import calls_of
from tests.support.examples import heavy

#: Number of variables of the smaller file, and the largest ratio of work for twice as many.
COUNT, MOST_TIMES = 150, 2.3


def hdf5(path: Path, count: int, libver: str = "earliest", nested: bool = False, **options: Any) -> None:
    with h5py.File(path, "w", libver=libver) as file:
        for number in range(count):
            group = file.require_group(f"g{number // 5}") if nested else file
            group.create_dataset(f"v{number}", data=np.arange(3.0) + number, **options)


def text(path: Path, count: int) -> None:
    with h5py.File(path, "w") as file:
        for number in range(count):
            file[f"v{number}"] = [f"text {number}"]


def netcdf(path: Path, count: int, form: Any = "NETCDF4", size: int | None = None, nested: bool = False) -> None:
    with netCDF4.Dataset(path, "w", format=form) as file:
        file.createDimension("time", size)
        file.createVariable("time", "f8", ("time",))[:] = np.arange(3.0)
        for number in range(count):
            name = f"g{number // 5}" if nested else ""
            group = (file.groups.get(name) or file.createGroup(name)) if nested else file
            group.createVariable(f"v{number}", "f4", ("time",))[:] = np.arange(3.0) + number


def store(path: Path, count: int, version: Any) -> None:
    group = zarr.open_group(path, mode="w", zarr_format=version)
    for number in range(count):
        group.create_array(f"v{number}", data=np.arange(3.0) + number)


def references(path: Path, count: int) -> None:
    path.with_suffix(".bin").write_bytes(np.repeat(np.arange(count, dtype="<f8"), 3).tobytes())
    array = {"zarr_format": 2, "shape": [3], "chunks": [3], "dtype": "<f8", "compressor": None, "filters": None, "order": "C"}
    refs: dict[str, Any] = {".zgroup": '{"zarr_format": 2}'}
    for number in range(count):
        refs[f"v{number}/.zarray"] = json.dumps(array | {"fill_value": None})
        refs[f"v{number}/.zattrs"] = '{"_ARRAY_DIMENSIONS": ["x"]}'
        refs[f"v{number}/0"] = [str(path.with_suffix(".bin")), 24 * number, 24]
    path.write_text(json.dumps({"version": 1, "refs": refs}))


CASES: dict[str, Callable[[Path, int], None]] = {
    "old groups": hdf5,
    "new groups": lambda path, count: hdf5(path, count, "latest"),
    "chunked": lambda path, count: hdf5(path, count, chunks=(2,), maxshape=(None,)),
    "nested groups": lambda path, count: hdf5(path, count, nested=True),
    "text": text,
    "read by h5py": lambda path, count: hdf5(path, count, chunks=(3,), scaleoffset=4),
    "netCDF-4": lambda path, count: netcdf(path, count, size=3),
    "netCDF-4 that grows": netcdf,
    "netCDF-4 groups": lambda path, count: netcdf(path, count, nested=True),
    "netCDF-3": lambda path, count: netcdf(path, count, "NETCDF3_64BIT_OFFSET"),
    "Zarr 2": lambda path, count: store(path, count, 2),
    "Zarr 3": lambda path, count: store(path, count, 3),
    "kerchunk": references,
}


def read_all(path: Path, count: int) -> None:
    archive = aa.open(path, processes=1)
    assert len(archive) == count
    for array in archive:
        array.read()


@pytest.mark.parametrize("case", heavy(CASES, but=[*CASES][::4]))
@pytest.mark.filterwarnings("ignore")
def test_work_is_linear_in_the_number_of_variables(case: str, tmp_path: Path) -> None:
    counted = []
    for times in (0, 1, 2):
        # The first run imports modules.
        path = tmp_path / f"a{times}.json"
        CASES[case](path, COUNT * times or 2)
        counted.append(calls_of(lambda path=path, count=COUNT * times or 2: read_all(path, count)))  # type: ignore[misc]
    assert counted[2] < MOST_TIMES * counted[1]


@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_a_group_of_many_links_is_read_once(libver: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The heap of this many new-style links has indirect blocks. Oracle: h5py."""
    path, count = tmp_path / "a.h5", 30_000
    with h5py.File(path, "w", libver=libver) as file:
        made = [file.create_dataset(f"a dataset of number {number:06d}", data=[float(number)]) for number in range(3)]
        for number in range(3, count):
            file[f"a dataset of number {number:06d}"] = made[number % 3]
        told = {name.encode(): h5py.h5o.get_info(file.id, name.encode()).addr for name in file}
    validate(str(path))
    parsed = []
    real = h5_file.links_of
    monkeypatch.setattr(h5_file, "links_of", lambda *given: parsed.append(1) or real(*given))
    for _ in range(3):
        with contextlib.closing(h5_file.H5File(str(path))) as direct:
            assert direct.has(f"a dataset of number {count - 1:06d}")
    assert len(parsed) == 1
    assert direct._groups[""] == told


@pytest.mark.parametrize("dense", [False, True])
def test_attributes_in_a_multi_level_heap_are_read(dense: bool, tmp_path: Path) -> None:
    """Oracle: h5py."""
    path = tmp_path / "a.h5"
    with h5py.File(path, "w", libver="latest", track_order=True) as file:
        for number in range(4000 if dense else 4):
            file.attrs.create(f"attribute {number}", np.full(30, float(number)))
        file["x"] = [1.0]
        told = {name: value.tolist() for name, value in file.attrs.items()}
    validate(str(path))
    with contextlib.closing(h5_file.H5File(str(path))) as direct:
        result = attributes_at(direct.data, direct.root).shown
    assert {name: value.tolist() for name, value in result.items()} == told


@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_cached_links_follow_changes_of_the_file(libver: str, tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    for names in (["a", "b"], ["b", "a"]):
        # The two datasets swap their names.
        with h5py.File(path, "w", libver=libver) as file:
            for name in names:
                file[name] = [ord(name)]
        with contextlib.closing(open_file(path)) as handle:
            result = {name: handle.mapped(name) for name in names}
        assert {name: None if values is None else values.tolist() for name, values in result.items()} == {"a": [97], "b": [98]}


def test_link_cache_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(h5_file, "_CACHE_SIZE", 100)
    kept = LRUCache(lambda: 100, h5_file._groups._size)
    monkeypatch.setattr(h5_file, "_groups", kept)
    for number in range(20):
        hdf5(tmp_path / f"{number}.h5", 10)
        read_all(tmp_path / f"{number}.h5", 10)
        assert 0 < kept._total <= 100
    # A group with more links than the limit is cached alone.
    hdf5(tmp_path / "large.h5", 200)
    read_all(tmp_path / "large.h5", 200)
    assert [path for path, _, _ in kept._items] == [str(tmp_path / "large.h5")]


def test_metadata_limit_grows_with_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.h5"
    hdf5(path, 3000, nested=True)
    monkeypatch.setattr(data, "MOST", 1)
    monkeypatch.setattr(survey_module, "_skip_unsupported", contextlib.nullcontext)
    validate(str(path))


def test_deeply_nested_groups(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["/".join("g" * 200) + "/x"] = np.arange(3.0)
        file["y"] = np.arange(3.0)
    result = formats.scan(path)
    assert [v.name for v in result.variables] == ["y"]
    assert [why for _, why in result.skipped] == ["groups nested more than 64 deep; rewrite the file with fewer levels"]
    with contextlib.closing(open_file(path)) as handle:
        assert handle.read("/".join("g" * 200) + "/x", (slice(0, 3, 1),)).tolist() == [0, 1, 2]
