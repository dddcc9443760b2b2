"""Variable-length rows read without the library equal those read by h5py."""

from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aggarray.formats.hdf5 import h5py_files
from aggarray.formats.hdf5.handle import HDF5File
from tests.support.examples import examples

STORAGES: list[dict[str, Any]] = [
    {},
    {"chunks": (3,)},
    {"chunks": (4,), "compression": "gzip"},
]


def refused(path: str) -> Any:
    raise AssertionError(f"h5py is asked for {path}")


@pytest.fixture
def without_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(h5py_files, "open_file", refused)


def written(path: Path, rows: list[np.ndarray], dtype: str, libver: str, storage: dict[str, Any]) -> None:
    with h5py.File(path, "w", libver=libver, userblock_size=512 if libver == "latest" else 0) as file:
        made = file.create_group("g").create_dataset("v", (len(rows),), h5py.vlen_dtype(np.dtype(dtype)), **storage)
        for i, row in enumerate(rows):
            if len(row):
                made[i] = row.astype(dtype)


def check(path: Path, rows: list[np.ndarray], dtype: str, cut: tuple[int, int, int]) -> None:
    flat = np.concatenate([*rows, np.zeros(0)]).astype(dtype)
    file = HDF5File(str(path))
    start, stop, step = sorted(cut[:2])[0], sorted(cut[:2])[1], cut[2]
    inside = slice(min(start, len(flat)), min(stop, len(flat)), step)
    result = file.read("g/v", (inside,))
    assert result.dtype == np.dtype(dtype).newbyteorder("=")
    np.testing.assert_array_equal(result, flat[inside])
    sizes = file.read("g/v_row_size", (slice(0, len(rows), 1),))
    assert sizes.dtype == np.int64 and sizes.tolist() == [len(row) for row in rows]
    file.close()


@settings(max_examples=examples(60), deadline=None)
@given(
    sizes=st.lists(st.integers(0, 40) | st.just(0), max_size=14),
    dtype=st.sampled_from(["i1", "<i4", ">i2", "<f8", ">f4", "u8"]),
    libver=st.sampled_from(["earliest", "latest"]),
    storage=st.sampled_from(STORAGES),
    cut=st.tuples(st.integers(0, 200), st.integers(0, 200), st.integers(1, 3)),
)
def test_rows_of_any_length(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], dtype: str, libver: str, storage: dict[str, Any], cut: Any
) -> None:
    path = tmp_path_factory.mktemp("rows") / "a.h5"
    rows = [np.arange(n) + 3 * i for i, n in enumerate(sizes)]
    if "chunks" in storage:
        storage = {**storage, "chunks": (min(storage["chunks"][0], max(len(rows), 1)),), "maxshape": (None,)}
    written(path, rows, dtype, libver, storage)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(h5py_files, "open_file", refused)
        check(path, rows, dtype, cut)


@pytest.mark.usefixtures("without_library")
def test_rows_longer_than_a_collection_and_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows in several batches, and a row with a collection of its own."""
    monkeypatch.setattr("aggarray.formats.hdf5.metadata.rows._BATCH", 1 << 10)
    sizes = [3, 5000, 0, *([17] * 500), 2000]
    rows = [np.arange(n) * 0.5 + i for i, n in enumerate(sizes)]
    written(tmp_path / "a.h5", rows, "f8", "earliest", {})
    for cut in ((0, 20000, 1), (2, 5010, 7), (5100, 5200, 1), (4, 4, 1)):
        check(tmp_path / "a.h5", rows, "f8", cut)


@pytest.mark.usefixtures("without_library")
def test_a_committed_type(tmp_path: Path) -> None:
    """User-defined types of netCDF-4 are objects of the file, to which variables refer."""
    rows = [[1, 2], [], [3, 4, 5]]
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as file:
        file.createDimension("profile", None)
        kind = file.createVLType(np.int16, "rows")
        for name in ("v", "w"):
            made = file.createVariable(name, kind, ("profile",))
            for i, row in enumerate(rows):
                made[i] = np.array(row, np.int16)
    result = HDF5File(str(tmp_path / "a.nc"))
    for name in ("v", "w"):
        assert result.read(name, (slice(0, 5, 1),)).tolist() == [1, 2, 3, 4, 5]
    result.close()


@pytest.mark.usefixtures("without_library")
def test_numbers_of_a_committed_type(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["kind"] = np.dtype(">f4")
        file.create_dataset("v", data=np.arange(6.0).reshape(2, 3), dtype=file["kind"], chunks=(1, 3))
    result = HDF5File(str(tmp_path / "a.h5"))
    chunks = result.chunks("v")
    assert chunks is not None and chunks.dtype == np.dtype(">f4")
    result.close()


@pytest.mark.usefixtures("without_library")
def test_a_variable_with_the_name_of_row_sizes(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("v", (2,), h5py.vlen_dtype("i4"))[0] = [1, 2]
        file.create_dataset("v_row_size", (2,), h5py.vlen_dtype("f8"))[1] = [7.5]
    result = HDF5File(str(tmp_path / "a.h5"))
    assert result.read("v_row_size", (slice(0, 1, 1),)).tolist() == [7.5]
    assert result.read("v_row_size_", (slice(0, 2, 1),)).tolist() == [2, 0]
    result.close()
