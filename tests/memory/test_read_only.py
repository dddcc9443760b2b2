"""Tests that memory shared read-only cannot be made writable by owners, blocks or copies."""

import copy
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import aggarray as aa
from aggarray.dap import Distribution, LocalArray
from aggarray.memory import Access, Array, Block, array, asarray, view
from aggarray.memory.immutable import restorable

pytestmark = pytest.mark.quick

READ, READ_WRITE, READ_IMMUTABLE = Access.READ, Access.READ | Access.WRITE, Access.READ | Access.IMMUTABLE
TEXT = np.dtypes.StringDType()
KINDS = ("f8", ">i4", "?", "M8[D]", "U3", "V5", TEXT, np.dtype([("x", "i1"), ("y", "f8")], align=True))


def owners(found: np.ndarray) -> Iterator[Any]:
    """Yield an array and the chain of its bases."""
    base: Any = found
    while base is not None:
        yield base
        base = base.base if isinstance(base, np.ndarray) else base.obj if isinstance(base, memoryview) else None


def assert_locked(found: np.ndarray) -> None:
    """Assert that setting flags from the owner down to the view raises errors and leaves the array read-only."""
    for one in reversed(list(owners(found))):
        if isinstance(one, np.ndarray):
            with pytest.raises(ValueError, match="WRITEABLE"):
                one.flags.writeable = True
            with pytest.raises(ValueError, match="WRITEABLE"):
                one.setflags(write=True)
    assert not found.flags.writeable


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(), (0,), (2, 3)])
def test_immutable_copies_have_no_writable_owner(kind: Any, shape: tuple[int, ...]) -> None:
    values = np.zeros(shape, kind)
    frozen = array(values, READ_WRITE)
    frozen[...] = values[..., :1] if shape else values
    for a in (array(values), array(values, READ), frozen.freeze(), array(values)[..., :1] if shape else array(values)):
        assert_locked(np.asarray(a))
        assert_locked(a.block.owner)
        with pytest.raises(ValueError, match="read-only"):
            a.block.owner[...] = values
    assert Access.WRITE in asarray(array(values), READ_WRITE).access


def test_text_in_memory_has_no_writable_owner() -> None:
    piece = aa.SubArray.from_array(["a", "b" * 40])
    result = piece.read(copy=False)
    assert_locked(result)
    assert_locked(result[1:])
    assert piece.read().tolist() == ["a", "b" * 40]
    locked = np.array(["a"], TEXT)
    locked.flags.writeable = False  # until its owner sets it again
    assert restorable(locked) and not np.shares_memory(np.asarray(asarray(locked)), locked)


def test_blocks_of_read_only_views_are_read_only() -> None:
    values = np.zeros(3)
    piece = aa.SubArray.from_array(values)
    for a in (view(values, READ), view(values, READ)[1:], view(piece.read(copy=False)), view(bytearray(24), READ)):
        assert a.block.access == a.access == READ
        over = Array.over(a.block, "f8", (1,))
        assert over.access == READ and not np.asarray(over).flags.writeable
        with pytest.raises(aa.AccessError, match="cannot be writable"):
            Array(a.block, values, READ_WRITE)
        with pytest.raises(AttributeError):
            a.block.access = READ_WRITE  # type: ignore[misc]
    assert view(values).access == view(values).block.access == READ_WRITE


def test_writable_block_over_read_only_memory() -> None:
    block = Block("external", b"ab", READ_WRITE, 2)
    values = np.frombuffer(b"ab", "u1")
    for access in (None, READ_WRITE):
        with pytest.raises(aa.AccessError, match="values are read-only"):
            Array(block, values, access)
    assert Array(block, values, READ).access == READ


@pytest.mark.parametrize("kind", ["f8", TEXT])
def test_copies_of_arrays_are_counted(kind: Any) -> None:
    a = array(np.zeros(3, kind), READ_WRITE)
    same = copy.copy(a)
    assert same.block is a.block and a.block.references == 2
    with pytest.raises(aa.AccessError, match="is shared"):
        a.freeze()
    del same
    assert a.block.references == 1 and a.freeze() is a
    for other in (pickle.loads(pickle.dumps(a[::2])), copy.deepcopy(a[::2])):
        assert other.block is not a.block and (other.access, other.block.references) == (READ_IMMUTABLE, 1)
        np.testing.assert_array_equal(np.asarray(other), np.zeros(2, kind))
        assert_locked(np.asarray(other))


def test_views_of_files_are_pickled_as_copies(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["v"] = np.arange(3, dtype=">f4")
    a = view(aa.SubArray.from_file(tmp_path / "a.h5", "v").read(copy=False))
    other = pickle.loads(pickle.dumps(a))
    assert (other.block.kind, other.access, other.dtype) == ("array", READ, a.dtype)
    np.testing.assert_array_equal(np.asarray(other), np.asarray(a))


@pytest.mark.parametrize("kind", ["f8", ">i2", "?", "M8[s]"])
def test_views_without_dimensions(kind: str) -> None:
    values = np.zeros((), kind)
    piece = aa.SubArray.from_array(values)
    for source in (piece, aa.MasterArray.from_subarrays([([], piece)], dimensions=())):
        result = source.read(copy=False)
        assert np.shares_memory(result, values) and result.shape == () and result.dtype == values.dtype
        assert_locked(result)


def test_text_without_dimensions() -> None:
    piece = aa.SubArray.from_array("some")
    for source in (piece, aa.MasterArray.from_subarrays([([], piece)], dimensions=())):
        assert [source.read(copy=how)[()] for how in (True, None, False)] == ["some"] * 3
        assert source.read(masked=True)[()] == "some"


def test_values_of_files_without_dimensions_are_mapped(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["v"] = 3.0
    result = aa.SubArray.from_file(tmp_path / "a.h5", "v").read(copy=False)
    assert view(result).block.kind == "memmap" and result[()] == 3
    assert_locked(result)


def test_what_has_no_elements_is_viewed_too() -> None:
    values = np.arange(2.0)
    whole = aa.MasterArray.from_subarrays([([(0, 2)], aa.SubArray.from_array(values))], dimensions=("x",))
    dist = Distribution.regular((2,), "b", (4,))
    sections = [whole.local(dist, rank, copy=False).buffer for rank in range(4)]
    assert [one.tolist() for one in sections] == [[0], [1], [], []]
    for one in sections:
        assert_locked(one)
    assert whole.read(slice(0, 0), copy=False).dtype == values.dtype
    text = aa.SubArray.from_array(["a"])
    assert text.read(slice(1, 1), copy=False).dtype == TEXT


def test_sections_of_text_have_their_own_memory() -> None:
    piece = aa.SubArray.from_array(["a", "b"])
    whole = aa.MasterArray.from_subarrays([([(0, 2)], piece)], dimensions=("x",))
    local = whole.local(Distribution.regular((2,), "b", (1,)), 0)
    block = view(local.buffer).block
    assert block.kind == "pod" and local.memory.block is block and view(local.buffer[1:]).block is block
    local.buffer[0] = "c"
    assert local.buffer.tolist() == ["c", "b"]


@pytest.mark.parametrize("scalar", [np.datetime64("2020-01-01", "s"), np.timedelta64(3, "ms"), np.bytes_(b"ab"), np.str_("a")])
def test_scalars_keep_their_dtype(scalar: np.generic) -> None:
    for make in (view, array, asarray):
        a = make(scalar)
        assert a.dtype == scalar.dtype and a.shape == () and np.asarray(a)[()] == scalar


def test_object_arrays_of_text() -> None:
    words = np.array(["a", "bc"], object)
    assert array(words).dtype == TEXT and np.asarray(asarray(words)).tolist() == ["a", "bc"]
    with pytest.raises(aa.AccessError, match="Python objects"):
        array(np.array(["a", 1], object))


def test_errors_have_one_line() -> None:
    for obj in ([1, 2], "text", None, (1,)):
        with pytest.raises(aa.AccessError) as caught:
            view(obj)
        assert "http" not in str(caught.value) and "\n" not in str(caught.value) and "use asarray" in str(caught.value)
    with pytest.raises(aa.AccessError, match=r"data and its mask separately$"):
        view(np.ma.array([1]))


@pytest.mark.parametrize("kind", ["f8", ">i2", np.dtype([("x", "i4")])])
def test_imported_sections_are_as_read_only_as_their_export(kind: Any) -> None:
    values = np.zeros(4, kind)
    lowered = values.view()
    lowered.flags.writeable = False
    for exported, read_only in ((lowered, True), (lowered[::2], True), (values, False)):
        result = LocalArray.from_distarray({"__version__": "0.10.0", "buffer": exported, "dim_data": ({},)}).buffer
        assert np.shares_memory(result, values) and result.dtype == values.dtype and result.flags.writeable != read_only
        if read_only:
            assert_locked(result)
