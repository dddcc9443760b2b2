"""Tests of the exchange of memory with other libraries."""

from typing import Any

import numpy as np
import pytest

import aggarray as aa
from aggarray.dap import Distribution, LocalArray
from aggarray.memory import Access, array, view

pytestmark = pytest.mark.quick

READ = Access.READ
TEXT = np.dtypes.StringDType()


def section(values: np.ndarray, copy: bool | None = None) -> LocalArray:
    """Return the second half of values in memory as the section of one process."""
    piece = aa.SubArray.from_array(values)
    whole = aa.MasterArray.from_subarrays([([(0, len(values))], piece)], dimensions=("x",))
    return whole.local(Distribution.regular((len(values),), "b", (2,)), 1, copy)


def both(values: np.ndarray) -> list[Any]:
    """Return values as an array in memory and as a section that views them."""
    return [view(values, READ), section(values)]


def refused(*words: str) -> Any:
    """Expect a BufferError with these words in their order."""
    return pytest.raises(BufferError, match=".*".join(words))


@pytest.mark.parametrize("kind", ["f8", ">f4", "i1", "?", "c16", "M8[s]"])
def test_numpy_shares_the_memory(kind: str) -> None:
    values = np.zeros(4, kind)
    for one in both(values):
        for result in (np.asarray(one), np.array(one, copy=False), np.asarray(one, dtype=kind)):
            assert np.shares_memory(result, values) and not result.flags.writeable and result.dtype == values.dtype
            assert view(result).block is one.memory.block
        assert not np.shares_memory(np.array(one), values) and np.array(one).flags.writeable
        interface = one.__array_interface__
        assert interface["version"] == 3 and interface["data"] == (one.memory.pointer, True)
        assert interface["typestr"] == values.dtype.str
    fresh = section(values, copy=True)
    assert np.shares_memory(np.asarray(fresh), fresh.buffer) and np.asarray(fresh).flags.writeable
    assert fresh.__array_interface__["data"] == (fresh.buffer.ctypes.data, False)
    with pytest.raises(ValueError, match="copy"):
        np.array(fresh, dtype="c8", copy=False)


def test_memory_outlives_the_section() -> None:
    local = section(np.arange(4.0), copy=True)
    result = np.asarray(local)[1:]
    del local
    assert result.tolist() == [3.0]


def test_buffers() -> None:
    values = np.zeros(17, "u1")[1:].view(">f8")
    values[:] = [1, 2]
    for one in (view(values, READ), view(values)[::-1], section(np.concatenate([values, values], dtype=">f8"))):
        buffer = one.memoryview()
        assert buffer.format == ">d" and buffer.readonly != (Access.WRITE in one.memory.access)
        np.testing.assert_array_equal(np.asarray(buffer), np.asarray(one))
    assert view(values)[::-1].memoryview().strides == (-8,)
    assert array(np.zeros((2, 3), "i2")).memoryview().shape == (2, 3)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (np.zeros(4, "M8[s]"), r"view\('i8'\)"),
        (np.zeros(4, "m8[s]"), r"view\('i8'\)"),
        (np.array(["a"] * 4, TEXT), "offsets and UTF-8"),
    ],
)
def test_dtypes_without_buffer(values: np.ndarray, words: str) -> None:
    for one in (array(values), section(values)):
        for call in (one.memoryview, one.__dlpack__):
            with refused(words) as caught:
                call()
            assert isinstance(caught.value, aa.AggarrayError) and "\n" not in str(caught.value)


def test_dlpack_shares_the_memory() -> None:
    values = np.arange(6.0).reshape(2, 3)
    a = view(values)[:, ::2]
    result = np.from_dlpack(a)
    assert np.shares_memory(result, values) and result.tolist() == [[0, 2], [3, 5]] and a.__dlpack_device__() == (1, 0)
    local = section(np.arange(4), copy=True)
    assert np.shares_memory(np.from_dlpack(local), local.buffer) and local.__dlpack_device__() == (1, 0)
    shared = np.from_dlpack(view(values, READ))
    assert np.shares_memory(shared, values) and not shared.flags.writeable
    del a, local
    values[0, 0] = 7
    assert result[0, 0] == 7


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (np.zeros(4, ">f8"), r"byteswap\[float64\].*byte order"),
        (np.zeros(33, "u1")[1:].view("f8"), r"unaligned\[float64\].*not aligned"),
        (np.frombuffer(bytes(32), "f8"), "readonly"),
    ],
)
def test_values_that_need_alignment_for_dlpack(values: np.ndarray, words: str) -> None:
    for one in (view(values), section(values)):
        with refused(words, r"aligned\(\)") as caught:
            one.__dlpack__()
        assert isinstance(caught.value, aa.AggarrayError)
        ready = one.aligned()
        assert np.from_dlpack(ready).tolist() == np.asarray(one).tolist()
        ready.__dlpack__()


def test_text_and_records_convert_by_array() -> None:
    text = np.array(["a", "b"] * 2, TEXT)
    for one in (array(text), section(text)):
        assert np.asarray(one).tolist()[-2:] == ["a", "b"] and not hasattr(one, "__array_interface__")
        with refused("numpy.asarray"):
            one.__array_interface__  # noqa: B018
    records = np.zeros(2, np.dtype([("x", "i1"), ("y", "f8")], align=True))
    a = view(records)
    assert np.shares_memory(np.asarray(a), records) and np.asarray(a)["y"].tolist() == [0, 0]
    assert view(np.asarray(a)).block is a.block and a.memoryview().format == memoryview(records).format


def test_numpy_functions_accept_arrays() -> None:
    values = np.arange(4.0)
    for one in both(values):
        assert np.add(one, 1).tolist() == (np.asarray(one) + 1).tolist()
        assert float(np.sum(one)) == float(np.asarray(one).sum())


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (np.zeros(2, "g"), "float64"),
        (np.zeros(2, "S3"), "pass numbers"),
        (np.zeros(2, "U3"), "pass numbers"),
        (np.zeros(2, [("x", "i4")]), "pass numbers: its fields"),
        (np.zeros(2, ">U3"), "pass numbers"),
    ],
)
def test_dtypes_that_dlpack_cannot_describe(values: np.ndarray, words: str) -> None:
    with refused(words) as caught:
        view(values).__dlpack__()
    assert "aligned()" not in str(caught.value)


def test_dlpack_of_other_devices() -> None:
    with refused(r"dl_device=\(1, 0\)"):
        view(np.zeros(2)).__dlpack__(dl_device=(2, 0))


@pytest.mark.parametrize(
    "values", [np.arange(3.0), np.arange(3, dtype=">i4"), np.frombuffer(b"1234567890", "u1")[1:9].view(">f4")]
)
def test_copies_by_dlpack_are_native(values: np.ndarray) -> None:
    result = np.from_dlpack(view(values, READ), copy=True)
    assert result.dtype.isnative and not np.shares_memory(result, values)
    np.testing.assert_array_equal(result, values)
