"""Tests of `debug_repr` against the layout of DyND's document."""

import re
from pathlib import Path

import numpy as np
import pytest

import aggarray as aa
from aggarray.dap import Distribution, LocalArray
from aggarray.memory import Access, Block, Ragged, array, debug_repr, view

pytestmark = pytest.mark.quick


def shown(text: str) -> list[str]:
    """Return the lines without indentation, addresses replaced by X (and NULL by 0)."""
    lines = [line.strip() for line in text.splitlines()]
    return [re.sub(r"\b[0-9A-F]{16}\b", lambda m: "X" if int(m[0], 16) else "0", line) for line in lines]


def test_a_copy() -> None:
    a = array(np.array([[1, 2, 3], [4, 5, 6]], "i4"))
    assert shown(debug_repr(a)) == [
        *("------ array", "address: X", "refcount: 1"),
        *("type:", "pointer: X", "type: strided * strided * int32"),
        *("arrmeta:", "flags: 5 (read_access immutable )", "type-specific arrmeta:"),
        *("strided_dim arrmeta", "stride: 12", "size: 2", "strided_dim arrmeta", "stride: 4", "size: 3"),
        *("data:", "pointer: X", "reference: 0 (embedded in array memory)", "------"),
    ]


def test_element_of_a_copy() -> None:
    a = array(np.array([1, 2, 3], "i4"))
    part = a[1]
    assert shown(debug_repr(part)) == [
        *("------ array", "address: X", "refcount: 1", "type:", "pointer: X", "type: int32"),
        *("arrmeta:", "flags: 5 (read_access immutable )"),
        *("data:", "pointer: X", "reference: X", "------ memory_block at X", "reference count: 2"),
        *("type: array", "type: strided * int32", "------", "------"),
    ]
    addresses = re.findall(r"(address|pointer|reference): ([0-9A-F]{16})", debug_repr(part))
    whole = re.findall(r"(address|pointer|reference): ([0-9A-F]{16})", debug_repr(a))
    assert int(addresses[2][1], 16) == int(whole[2][1], 16) + 4, "one stride further"
    assert addresses[3][1] == whole[0][1], "the block is the array that it was made with"


def test_external_memory() -> None:
    memory = np.zeros(9, "i1")
    a = memory[1:].view("i4")
    assert shown(debug_repr(view(a))) == [
        *("------ array", "address: X", "refcount: 1", "type:", "pointer: X", "type: strided * unaligned[int32]"),
        *("arrmeta:", "flags: 3 (read_access write_access )", "type-specific arrmeta:"),
        *("strided_dim arrmeta", "stride: 4", "size: 2"),
        *("data:", "pointer: X", "reference: X", "------ memory_block at X", "reference count: 1"),
        *("type: external", "object void pointer: X (ndarray)", "free function: Py_DECREF", "------", "------"),
    ]
    pointer = re.findall(r"pointer: ([0-9A-F]{16})", debug_repr(view(a)))
    assert int(pointer[1], 16) == a.ctypes.data and int(pointer[2], 16) == id(a)
    assert shown(debug_repr(a)) == shown(debug_repr(view(a)))


def test_text() -> None:
    assert shown(debug_repr(array("This is a string")))[5:11] == [
        *("type: string", "arrmeta:", "flags: 5 (read_access immutable )"),
        *("type-specific arrmeta:", "string arrmeta", "------ NULL memory block"),
    ]
    lines = shown(debug_repr(array(["This", "is", "text"])))
    assert "type: strided * string" in lines and lines.index("string arrmeta") > lines.index("size: 3")


def test_records() -> None:
    lines = shown(debug_repr(view(np.zeros(2, np.dtype([("x", "i4"), ("y", ">f8")], align=True)))))
    assert "type: strided * {x: int32, y: byteswap[float64]}" in lines
    assert lines[lines.index("struct arrmeta") + 1] == "field offsets: 0, 8"


def test_numpy_views_show_their_block() -> None:
    a = array(np.arange(6), Access.READ | Access.WRITE)
    part = np.asarray(a)[::2][1:]
    lines = shown(debug_repr(part))
    assert "stride: 16" in lines and "size: 2" in lines and "reference count: 1" in lines and "type: array" in lines
    assert "flags: 3 (read_access write_access )" in lines
    part.flags.writeable = False
    assert "flags: 1 (read_access )" in shown(debug_repr(part))


def test_sections() -> None:
    values = np.arange(6.0)
    piece = aa.SubArray.from_array(values, fill_value=-1.0)
    whole = aa.MasterArray.from_subarrays([([(0, 6)], piece)], dimensions=("x",))
    dist = Distribution.regular((6,), "b", (2,))
    local = whole.local(dist, 1)
    before = shown(debug_repr(local))
    assert "not in memory: not read yet; its buffer is read when it is first used" in before
    assert "type: strided * ?float64" in before and "size: 3" in before and not any("stride:" in line for line in before)
    local.buffer  # noqa: B018
    after = shown(debug_repr(local))
    assert "type: pod" in after and "size: 24" in after and "reference count: 1" in after and "stride: 8" in after
    assert "type: strided * ?float64" in after
    imported = shown(debug_repr(LocalArray.from_distarray(local.__distarray__())))
    assert "type: pod" in imported and "flags: 3 (read_access write_access )" in imported
    viewed = shown(debug_repr(whole.lazy[1:3]))
    assert "type: external" in viewed and "flags: 1 (read_access )" in viewed and "reference count: 1" in viewed


def test_arrays_not_in_memory_give_the_reason(sample_archive: Path) -> None:
    tas = aa.open(sample_archive)["tas"]
    lines = shown(debug_repr(tas))
    assert "size: 365" in lines and any(line.startswith("not in memory: ") and "12 partitions" in line for line in lines)
    assert lines[0] == "------ array" and lines[-1] == "------"


def test_objects_without_memory() -> None:
    with pytest.raises(aa.AggarrayError, match="no view of list"):
        debug_repr([1, 2])
    block = Block("pod", bytearray(4), Access.READ, 4)
    assert "size: 4" in debug_repr(type(array([1])).over(block, "u1", (4,)))


def test_ragged_arrays() -> None:
    samples = np.arange(5, dtype=">f4")
    rows = Ragged(samples, np.array([0, 2, 5]))
    assert shown(debug_repr(rows)) == [
        *("------ array", "address: X", "refcount: 1"),
        *("type:", "pointer: X", "type: strided * var * byteswap[float32]"),
        *("arrmeta:", "flags: 3 (read_access write_access )", "type-specific arrmeta:"),
        *("strided_dim arrmeta", "stride: 8", "size: 2", "var_dim arrmeta", "stride: 4", "offset: 0"),
        *("------ memory_block at X", "reference count: 1", "type: external"),
        *("object void pointer: X (ndarray)", "free function: Py_DECREF", "------"),
        *("data:", "pointer: X", "reference: X", "------ memory_block at X", "reference count: 1", "type: external"),
        *("object void pointer: X (ndarray)", "free function: Py_DECREF", "------", "------"),
    ]
    pointers = [int(p, 16) for p in re.findall(r" pointer: ([0-9A-F]{16})", debug_repr(rows))]
    assert rows.offsets.ctypes.data in pointers
    masked = shown(debug_repr(Ragged(np.ma.array([1, 2], mask=[True, False]), [0, 2])))
    assert masked[masked.index("size: 1") + 1] == "var_dim arrmeta" and "size: var" not in masked
    text = shown(debug_repr(Ragged(array(["a", "b"]), [0, 2])))
    assert "type: strided * var * string" in text and "string arrmeta" in text


def test_scalars_show_their_address() -> None:
    values = np.array(3.0)
    lines = shown(debug_repr(aa.SubArray.from_array(values)))
    assert "flags: 1 (read_access )" in lines and f"pointer: {values.ctypes.data:016X}" in debug_repr(
        aa.SubArray.from_array(values)
    )
