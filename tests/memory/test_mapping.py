"""Tests of views of mapped files: shared, safe, and closed with the last view."""

import gc
import os
from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import pytest

import aggarray as aa
from aggarray.dap import Distribution
from aggarray.memory import Access, debug_repr, view
from aggarray.memory.creation import _holder, mapped
from aggarray.memory.mapping import _mapped
from aggarray.read import close_files

pytestmark = pytest.mark.quick

VALUES = np.arange(12.0).reshape(4, 3)
KINDS = ("classic", "records", "hdf5")
PROC = pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="the system does not list what is mapped")


def stored(folder: Path, kind: str) -> aa.SubArray:
    """Write `VALUES` and return them as a sub-array; records have 28 bytes, so that doubles are not aligned."""
    path = folder / f"{kind}.nc"
    if kind == "hdf5":
        with h5py.File(path, "w") as file:
            file["v"] = VALUES
        return aa.SubArray.from_file(path, "v")
    with netCDF4.Dataset(path, "w", format="NETCDF3_64BIT_OFFSET") as file:
        file.createDimension("t", None if kind == "records" else 4)
        file.createDimension("x", 3)
        file.createVariable("v", "f8", ("t", "x"))[:] = VALUES
        file.createVariable("w", "i2", ("t",))[:] = np.arange(4)
    return aa.SubArray.from_file(path, "v")


def opened(path: str) -> tuple[int, int]:
    """Return the number of descriptors and of maps that this process has of a file."""
    links = []
    for number in os.listdir("/proc/self/fd"):
        try:
            links.append(os.readlink(f"/proc/self/fd/{number}"))
        except FileNotFoundError:  # the descriptor of the listing
            continue
    maps = Path("/proc/self/maps").read_text(encoding="utf-8")
    return links.count(path), maps.count(path)


@PROC
@pytest.mark.parametrize("kind", KINDS)
def test_slice_outlives_its_array_and_closes_the_file(tmp_path: Path, kind: str) -> None:
    piece = stored(tmp_path, kind)
    path = str(piece.uri)
    whole = aa.MasterArray.from_subarrays([([(0, 4), (0, 3)], piece)], dimensions=piece.dimensions)
    all_of_it = whole.read(copy=False)
    part = whole.read((slice(1, None), 1), copy=False)[::-1]
    assert np.shares_memory(part, all_of_it) and not part.flags.writeable
    close_files()
    assert opened(path)[1] == 1, "one shared map"
    del piece, whole, all_of_it
    gc.collect()
    os.unlink(path)
    assert part.tolist() == [10.0, 7.0, 4.0]
    for one in (part, part[:], part.view("u1")) if part.flags.c_contiguous else (part, part[:]):
        with pytest.raises(ValueError, match="WRITEABLE"):
            one.flags.writeable = True
    gone = f"{path} (deleted)"
    assert opened(gone)[1] == 1
    last = part[1:2]
    del part, one
    assert opened(gone)[1] == 1 and last.tolist() == [7.0]
    del last
    assert opened(gone) == (0, 0)


@PROC
def test_maps_are_shared(tmp_path: Path) -> None:
    piece = stored(tmp_path, "classic")
    first, second = piece.read(copy=False), piece.read((slice(None, None, 2), 0), copy=False)
    block = view(first).block
    assert view(second).block is block
    assert block.references == 2
    del block
    address = first.ctypes.data
    del first
    third = piece.read(copy=False)
    assert third.ctypes.data == address
    close_files()
    del second, third
    assert opened(str(piece.uri)) == (0, 0)


def test_replaced_files_are_mapped_again(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(b"old values")
    old = mapped(str(path), 4, np.dtype("u1"), (6,))
    path.with_suffix(".new").write_bytes(b"new VALUES")
    path.with_suffix(".new").replace(path)
    new = mapped(str(path), 4, np.dtype("u1"), (6,))
    assert bytes(np.asarray(old)) == b"values" and bytes(np.asarray(new)) == b"VALUES"


@pytest.mark.parametrize("begin", [0, 1, 4095, 4096, 5000])
def test_any_offset(tmp_path: Path, begin: int) -> None:
    path = tmp_path / "a.bin"
    data = np.random.default_rng(0).integers(0, 256, 6000, "u1")
    path.write_bytes(data.tobytes())
    a = mapped(str(path), begin, np.dtype(">i2"), (2, 3), (200, 4))
    expected = np.ndarray((2, 3), ">i2", data, begin, (200, 4))
    np.testing.assert_array_equal(np.asarray(a), expected)
    assert (a.block.kind, a.block.nbytes, a.access) == ("memmap", 210, Access.READ)
    owner = a.block.owner
    assert (owner.path, owner.begin, owner.end) == (str(path), begin, begin + 210)
    assert a.block.buffer().readonly


def test_files_that_are_too_short(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(b"abc")
    with pytest.raises(ValueError, match="greater than file size"):
        mapped(str(path), 0, np.dtype("u1"), (4,))
    with pytest.raises(FileNotFoundError):
        mapped(str(tmp_path / "b.bin"), 0, np.dtype("u1"), (4,))


def test_map_of_a_view_cannot_be_closed(tmp_path: Path) -> None:
    a = view(stored(tmp_path, "hdf5").read(copy=False))
    base: Any = a.block.owner.buffer.obj
    with pytest.raises(BufferError):
        base.close()
    with pytest.raises(TypeError):
        base[0] = 1


@pytest.mark.parametrize("kind", KINDS)
def test_sections_of_processes_are_views_of_the_file(tmp_path: Path, kind: str) -> None:
    piece = stored(tmp_path, kind)
    whole = aa.MasterArray.from_subarrays([([(0, 4), (0, 3)], piece)], dimensions=piece.dimensions)
    local = whole.local(Distribution.regular((4, 3), "bb", (2, 1)), 1, copy=None)
    assert local.memory.block.kind == "memmap" and local.memory.block is view(piece.read(copy=False)).block
    np.testing.assert_array_equal(local, VALUES[2:])
    taken = aa.SubArray.from_local(local).read(copy=False)
    assert np.shares_memory(taken, local.buffer) and view(taken).block is local.memory.block
    fresh = whole.local(Distribution.regular((4, 3), "bb", (2, 1)), 1)
    assert fresh.memory.block.kind == "pod" and fresh.memory.access == Access.READ | Access.WRITE
    assert fresh.buffer is fresh.buffer and view(fresh.buffer).block is fresh.memory.block


def test_debug_repr_of_a_record_variable(tmp_path: Path) -> None:
    piece = stored(tmp_path, "records")
    result = piece.read(copy=False)
    lines = [line.strip() for line in debug_repr(result).splitlines()]
    assert "type: strided * strided * unaligned[byteswap[float64]]" in lines
    assert "flags: 1 (read_access )" in lines
    assert lines[lines.index("type-specific arrmeta:") + 1 :][:6] == [
        *("strided_dim arrmeta", "stride: 28", "size: 4"),
        *("strided_dim arrmeta", "stride: 8", "size: 3"),
    ]
    assert "type: memmap" in lines and f"file: {piece.uri}" in lines and "length: 108" in lines
    offset = int(next(line for line in lines if line.startswith("offset: ")).split()[1])
    data = Path(str(piece.uri)).read_bytes()
    np.testing.assert_array_equal(np.ndarray((4, 3), ">f8", data, offset, (28, 8)), VALUES)
    # netCDF4 fills what is not declared to be missing: a default fill value may be in any variable.
    option = "?" if piece.__datashape__().option else ""
    whole = aa.MasterArray.from_subarrays([([(0, 4), (0, 3)], piece)], dimensions=piece.dimensions)
    for obj in (piece, whole, whole.lazy[1:3], whole.local(Distribution.regular((4, 3), "bb", (1, 1)), 0, copy=None).memory):
        text = debug_repr(obj)
        assert "unaligned[byteswap[float64]]" in text and f"file: {piece.uri}" in text and "length: 108" in text
    assert f"* {option}unaligned[byteswap[float64]]" in debug_repr(whole)
    del obj
    assert "reference count: 1" in debug_repr(result)


def test_bit_fields_are_unsigned_numbers(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        made = h5py.h5d.create(file.id, b"v", h5py.h5t.STD_B8LE, h5py.h5s.create_simple((3,)))
        made.write(h5py.h5s.ALL, h5py.h5s.ALL, np.array([1, 2, 255], "u1"), h5py.h5t.STD_B8LE)
    piece = aa.SubArray.from_file(tmp_path / "a.h5", "v")
    assert piece.read().tolist() == piece.read(copy=None).tolist() == [1, 2, 255]
    assert piece.read(copy=False).tolist() == [1, 2, 255]


@pytest.mark.parametrize("kind", KINDS)
def test_maps_leave_descriptors_for_open_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    for name in "abc":
        (tmp_path / name).mkdir()
    pieces = [stored(tmp_path / name, kind) for name in "abc"]
    # Three eighths of the open files may be mapped.
    limit = "aggarray.memory.mapping.open_file_limit"
    monkeypatch.setattr(limit, lambda: -(-len(_mapped) * 8 // 3) if len(held) == 2 else 1 << 20)
    held: list[np.ndarray] = []
    held.extend([pieces[0].read(copy=False)])
    held.extend([pieces[1].read(copy=False)])
    assert view(pieces[1].read(copy=False)).block is view(held[1]).block, "mapped parts are reused"
    fresh = pieces[2].read(copy=None)
    assert fresh.flags.writeable and _holder(fresh) is None
    np.testing.assert_array_equal(fresh, VALUES)
    with pytest.raises(aa.AggregationError, match=r"mapped already.*delete some.*copy=None or copy=True"):
        pieces[2].read(copy=False)
    del held[0]
    assert view(pieces[2].read(copy=False)).block.kind == "memmap"
