"""Tests of arrays in memory: views, ownership, and read-only sharing."""

import array as builtin_array
import gc
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import aggarray as aa
from aggarray.memory import Access, Array, Block, array, asarray, view

pytestmark = pytest.mark.quick

READ, READ_WRITE, READ_IMMUTABLE = Access.READ, Access.READ | Access.WRITE, Access.READ | Access.IMMUTABLE
TEXT = np.dtypes.StringDType()
KINDS = ("?", "i1", ">i2", "<u4", "f2", ">f8", "c8", ">c16", "g", "M8[s]", ">m8[ms]", "S3", "U2", ">U2", "V5")


def refused(*words: str) -> Any:
    """Expect an AggarrayError with these words in their order."""
    return pytest.raises(aa.AggarrayError, match=".*".join(words))


def unwritable(values: np.ndarray) -> None:
    """Assert that no view of an array can be made writable, by its flag or by a buffer."""
    for one in (values, values[...], values.view(), values.reshape(-1)[:1], np.asarray(values), values.T):
        if one.size and not np.shares_memory(one, values):  # a copy is its own
            continue
        with pytest.raises(ValueError, match="WRITEABLE"):
            one.flags.writeable = True
        with pytest.raises(ValueError, match="WRITEABLE"):
            one.setflags(write=True)
    if values.dtype.kind in "iufcb?":
        assert memoryview(values).readonly


@given(hnp.arrays(st.sampled_from(KINDS[:8]), hnp.array_shapes(min_dims=0, min_side=0, max_dims=4)), st.data())
def test_slicing_equals_numpy_without_copies(values: np.ndarray, data: st.DataObject) -> None:
    a = view(values)
    key = data.draw(hnp.basic_indices(values.shape, allow_newaxis=False))
    keys = key if isinstance(key, tuple) else (key,)
    part, expected = a[key], values[keys if Ellipsis in keys else (*keys, ...)]
    assert part.block is a.block and (part.shape, part.dtype, part.access) == (expected.shape, expected.dtype, a.access)
    np.testing.assert_array_equal(np.asarray(part), expected)
    if expected.size:
        assert np.shares_memory(np.asarray(part), values)
        assert part.strides == expected.strides
    deeper = data.draw(hnp.basic_indices(part.shape, allow_newaxis=False))
    np.testing.assert_array_equal(np.asarray(part[deeper]), expected[deeper])


@pytest.mark.parametrize("key", [[0, 1], np.array([True, False]), None, "x", 1.0, True, (0, [1])])
def test_keys_that_need_a_copy(key: Any) -> None:
    with pytest.raises(aa.SelectionError, match="integers, slices and Ellipsis"):
        view(np.zeros((2, 3)))[key]


@pytest.mark.parametrize("key", [2, (0, 3), (0, 0, 0), slice(None, None, 0), (..., ...)])
def test_keys_that_do_not_fit(key: Any) -> None:
    with pytest.raises(aa.SelectionError, match=r"shape \(2, 3\)"):
        view(np.zeros((2, 3)))[key]


@pytest.mark.parametrize("kind", [*KINDS, TEXT, np.dtype([("x", "i4"), ("y", ">f8", (2,))], align=True)])
@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (1,), (3, 4)])
def test_dtypes_round_trip(kind: Any, shape: tuple[int, ...]) -> None:
    values = np.zeros(shape, kind)
    for a in (view(values), array(values), asarray(values), array(values, READ_WRITE)):
        result = np.asarray(a)
        assert result.dtype == values.dtype and result.shape == shape and a.shape == shape and a.nbytes == values.nbytes
        np.testing.assert_array_equal(result, values)
        assert result.flags.writeable == (Access.WRITE in a.access)
    unwritable(np.asarray(array(values)))
    assert view(values).strides == values.strides


@pytest.mark.parametrize("kind", ["f8", ">i4", "M8[D]", "S3"])
def test_shared_read_only(kind: str) -> None:
    values = np.zeros((3, 4), kind)
    a = view(values, READ)
    for part in (a, a[1:], a[:, ::-1], a[0, 0]):
        unwritable(np.asarray(part))
        with refused("access read cannot be written to", "copy it"):
            part[...] = values[0, 0]
        with refused("cannot be made writable"):
            part.with_access(READ_WRITE)
        with refused("writable"):
            view(part, READ_WRITE)
        with refused("writable"):
            Array(part.block, values, READ_WRITE) if Access.WRITE not in part.block.access else part.with_access(READ_WRITE)
    assert values.flags.writeable, "the owner may still write"
    assert view(values).access == READ_WRITE
    np.asarray(view(values))[0] = values[1]


def test_changes_by_the_owner_are_visible() -> None:
    values = np.zeros(3)
    a, writable = view(values, READ), view(values)
    writable[1:] = [5, 6]
    assert np.asarray(a).tolist() == values.tolist() == [0, 5, 6]
    copied = asarray(a, READ_WRITE)
    assert copied.block.kind == "array" and copied.access == READ_WRITE
    copied[0] = 9
    assert values[0] == 0


def test_read_only_flags_are_respected() -> None:
    values = np.zeros(3)
    lowered = values.view()
    lowered.flags.writeable = False
    assert view(lowered).access == READ
    unwritable(np.asarray(view(lowered)))


def test_text_is_shared_read_only_as_a_copy() -> None:
    values = np.array(["a", "b" * 40], TEXT)
    with refused("made writable again"):
        view(values).with_access(READ)
    lowered = values.view()
    lowered.flags.writeable = False
    with refused("made writable again", "asarray"):
        view(lowered)
    shared = asarray(lowered)
    assert shared.access == READ_IMMUTABLE and not np.shares_memory(np.asarray(shared), values)
    unwritable(np.asarray(shared[1:]))
    own = array(values, READ_WRITE)
    own[0] = "c"
    own.freeze()
    unwritable(np.asarray(own))
    assert np.asarray(own).tolist() == ["c", "b" * 40] and values[0] == "a"


@pytest.mark.parametrize(
    ("obj", "access", "values"),
    [
        (b"ab", READ_IMMUTABLE, [97, 98]),
        (bytearray(b"ab"), READ_WRITE, [97, 98]),
        (memoryview(bytearray(b"abcd"))[::2], READ_WRITE, [97, 99]),
        (memoryview(b"ab"), READ, [97, 98]),
        (builtin_array.array("d", [1, 2]), READ_WRITE, [1, 2]),
        (np.float32(3), READ, 3),
        (array([1, 2]), READ_IMMUTABLE, [1, 2]),
    ],
)
def test_buffers_are_viewed(obj: Any, access: Access, values: Any) -> None:
    a = view(obj)
    assert a.access == access and np.asarray(a).tolist() == values
    assert a.block is obj.block if isinstance(obj, Array) else (a.block.kind, a.block.owner) == ("external", obj)


class Interface:
    """What has nothing but NumPy's interface."""

    def __init__(self, values: np.ndarray) -> None:
        self.__array_interface__ = values.__array_interface__
        self.values = values


class Capsule:
    """What has nothing but DLPack."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values

    def __dlpack__(self, **expected: Any) -> Any:
        return self.values.__dlpack__(**expected)

    def __dlpack_device__(self) -> Any:
        return self.values.__dlpack_device__()


@pytest.mark.parametrize("wrapped", [Interface, Capsule])
def test_other_protocols_are_viewed(wrapped: Any) -> None:
    values = np.arange(4.0)
    assert np.shares_memory(np.asarray(view(wrapped(values))), values)


NUMBERS = [1, 2]


@pytest.mark.parametrize("obj", [NUMBERS, 5, "text", None, object(), [[1], [1, 2]], np.array([None])])
def test_what_has_no_memory_is_not_viewed(obj: Any) -> None:
    with refused("no view of|numbers, text or times"):
        view(obj)
    if type(obj) in (int, str) or obj is NUMBERS:
        assert np.asarray(asarray(obj)).tolist() == obj
    else:
        for make in (asarray, array):
            with refused("numbers, text or times"):
                make(obj)


def test_masked_arrays_are_two() -> None:
    for make in (view, asarray, array):
        with refused("masked array has no single buffer"):
            make(np.ma.array([1, 2], mask=[True, False]))


def test_copies_have_their_own_memory() -> None:
    values = np.arange(6, dtype=">i2").reshape(2, 3)[:, ::-1]
    a = array(values)
    assert (a.block.kind, a.access, a.dtype, a.embedded) == ("array", READ_IMMUTABLE, np.dtype(">i2"), True)
    assert not np.shares_memory(np.asarray(a), values) and a.strides == (6, 2)
    assert str(array(["one", "two"]).type) == "2 * string" and str(array([1.5]).type) == "1 * float64"
    assert not a[0].embedded and a[0].access == READ_IMMUTABLE


def test_copies_of_buffers_have_the_type_of_views() -> None:
    for obj in (b"ab", bytearray(b"ab"), memoryview(b"ab")):
        assert str(array(obj).type) == str(view(obj).type) == "2 * uint8" and array(obj).block.kind == "array"


def test_references_are_counted() -> None:
    values = np.zeros((2, 3))
    a = view(values)
    assert a.block.references == 1
    parts = [a[0], a[1:], a[..., 0]]
    assert a.block.references == 4
    numpys = [np.asarray(part) for part in parts]
    del parts[0]
    assert a.block.references == 4, "NumPy's view keeps its array"
    del numpys[0]
    assert a.block.references == 3
    block = a.block
    del a, parts
    assert block.references == 2
    assert "2 references" in repr(block)
    del numpys
    assert block.references == 0


def test_memory_lives_until_the_last_view() -> None:
    source = bytearray(b"abcd")
    result = np.asarray(view(source)[1:3])[::-1]
    with pytest.raises(BufferError):
        source.extend(b"e")
    gc.collect()
    assert result.tolist() == [99, 98]
    del result
    source.extend(b"e")


def test_freeze() -> None:
    own = array([1, 2, 3], READ_WRITE)
    own[0] = 7
    assert own.freeze() is own and own.access == own.block.access == READ_IMMUTABLE
    assert own.freeze() is own
    unwritable(np.asarray(own))
    with refused("cannot be written"):
        own[0] = 1


def test_freeze_needs_unshared_memory_or_an_assertion() -> None:
    own = array([1, 2, 3], READ_WRITE)
    part = own[1:]
    with refused("is shared", "asserted=True"):
        own.freeze()
    del part
    lent = np.asarray(own)
    del lent  # but NumPy may have passed it on
    with refused("is shared"):
        own.freeze()
    with refused("asserted=True"):
        own.with_access(READ_IMMUTABLE)
    asserted = own.with_access(READ_IMMUTABLE, asserted=True)
    assert asserted.access == READ_IMMUTABLE and asserted[1:].access == READ_IMMUTABLE and asserted.block is own.block
    unwritable(np.asarray(asserted))
    with refused("is shared"):
        view(np.zeros(2)).freeze()
    assert asarray(np.zeros(2), READ_IMMUTABLE).block.kind == "array", "writable memory is copied"
    assert view(b"ab").freeze().access == READ_IMMUTABLE


def test_aligned() -> None:
    values = np.zeros(17, "u1")[1:].view(">f8")
    a = view(values)
    b = a.aligned()
    assert b.dtype.isnative and np.asarray(b).flags.aligned and b.aligned() is b and b.access == READ_WRITE
    assert array([1]).aligned().access == READ_WRITE
    assert view(np.zeros((2, 2)).T).aligned().strides == (16, 8)


def test_blocks_by_hand() -> None:
    block = Block("pod", bytearray(24), READ_WRITE, 24)
    a = Array.over(block, ">f4", (2, 2), offset=4, strides=(8, 4))
    a[1] = [1, 2]
    assert bytes(block.owner)[12:20] == np.array([1, 2], ">f4").tobytes() and a.pointer % 4 == 0
    for wrong in (dict(shape=(7,)), dict(shape=(2,), offset=20), dict(shape=(2,), strides=(24,)), dict(shape=(-1,))):
        with refused("give an array within the block"):
            Array.over(block, "f4", **wrong)
    with refused("Python objects"):
        Array.over(block, "O", (1,))
    with refused("no buffer"):
        Array.over(Block("external", object(), READ, 0), "f4", (1,))
    with refused("kind of block 'heap'"):
        Block("heap", b"", READ, 0)
    for access in (0, Access.WRITE, 6, 7, 9, "rw"):
        with refused("give Access.READ"):
            Block("pod", b"", access, 0)  # type: ignore[arg-type]
    with refused("cannot be writable"):
        Array(Block("external", b"ab", READ, 2), np.zeros(2), READ_WRITE)
    assert "memory.Array 2 * 2 * byteswap[float32], pod, read write" in repr(a)


def test_sub_arrays_in_memory_are_read_only_views_on_external_blocks() -> None:
    values = np.arange(6.0).reshape(2, 3)
    piece = aa.SubArray.from_array(values)
    whole = aa.MasterArray.from_subarrays([([(0, 2), (0, 3)], piece)], dimensions=piece.dimensions)
    for result in (piece.read(copy=False), whole.read(copy=False), whole.flip("dim_0").read((0, slice(1, None)), copy=None)):
        unwritable(result)
        assert np.shares_memory(result, values)
        held = view(result)
        assert held.block.kind == "external" and held.block.owner is values and held.access == READ
    values[0, 0] = 5
    assert piece.read()[0, 0] == 5


def test_unpickled_arrays_are_shared_read_only() -> None:
    pieces = aa.SubArray.from_array(np.arange(3.0)), aa.SubArray.from_array(np.array(["a", "b"], TEXT))
    numbers, text = pickle.loads(pickle.dumps(pieces))
    unwritable(numbers.read(copy=False))
    with pytest.raises(aa.AggregationError, match=r"writable again.*copy=None or copy=True"):
        text.read(copy=False)
    assert text.read(copy=None).tolist() == ["a", "b"]


def test_text_in_memory_stays_read_only() -> None:
    values = np.array(["a", "b"], TEXT)
    piece = aa.SubArray.from_array(values)
    result = piece.read(copy=False)
    unwritable(result)
    assert result.tolist() == ["a", "b"]
    values[0] = "z"
    assert piece.read()[0] == "a"
