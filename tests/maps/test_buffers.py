"""Buffers and indices of the DAP: PEP 3118 decides what can be exported."""

import array
import ctypes
import mmap
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import aggarray as aa
from aggarray.dap import Distribution, LocalArray, Unstructured, convert, num_owned_indices, picture, validate, validate_all
from aggarray.errors import ProtocolError, SelectionError
from tests.support.examples import examples

pytestmark = pytest.mark.quick

LARGE = 2**63


class Point(ctypes.Structure):
    """A structure of C."""

    _fields_ = (("x", ctypes.c_int), ("y", ctypes.c_double))


def export_of(buffer: Any, ndim: int, version: str = "0.10.0") -> dict[str, Any]:
    return {"__version__": version, "buffer": buffer, "dim_data": ({},) * ndim}


def has_buffer(item: Any) -> bool:
    try:
        memoryview(item)
    except (TypeError, ValueError, BufferError):
        return False
    return True


def accepted(export: Any) -> bool:
    try:
        validate(export)
    except ProtocolError as error:
        assert "buffer" in str(error) and "\n" not in str(error)
        return False
    return True


DTYPES = st.one_of(
    hnp.scalar_dtypes(),
    hnp.datetime64_dtypes(),
    hnp.timedelta64_dtypes(),
    hnp.unicode_string_dtypes(max_len=4),
    hnp.byte_string_dtypes(max_len=4),
    hnp.array_dtypes(),
    st.just(np.dtype(object)),
    st.just(np.dtypes.StringDType()),
    st.just(np.dtype("V5")),
    st.sampled_from(["g", "G", ">f8", ">c16", "?", "e"]).map(np.dtype),
)


@settings(max_examples=examples(300))
@given(st.data())
def test_arrays_with_buffers_are_valid(data: st.DataObject) -> None:
    dtype = data.draw(DTYPES)
    values = np.zeros(data.draw(hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)), dtype)
    for axis in range(values.ndim):
        values = np.flip(values, axis) if data.draw(st.booleans()) else values
    values = values.T if data.draw(st.booleans()) else values[..., ::2] if values.ndim else values
    if data.draw(st.booleans()):
        values.flags.writeable = False
    item: Any = values
    kind = data.draw(st.sampled_from(["array", "masked", "view", "scalar"]))
    if kind == "masked" and dtype.kind in "iufcb":
        item = values.view(np.ma.MaskedArray)
    elif kind == "view" and has_buffer(values):
        item = memoryview(values)
    elif kind == "scalar" and not values.ndim and dtype.kind in "iufcb":
        item = values[()]
    export = export_of(item, values.ndim)
    assert accepted(export) == has_buffer(values)
    if has_buffer(values):
        result = LocalArray.from_distarray(export).buffer
        assert result.shape == values.shape and result.dtype.itemsize == memoryview(values).itemsize
        assert not values.size or not isinstance(item, np.ndarray) or np.shares_memory(result, values) or not result.nbytes
        validate_all([export])


@pytest.mark.parametrize(
    ("item", "way"),
    [
        (np.zeros(3, "M8[ns]"), r"view\('int64'\)"),
        (np.zeros(3, ">m8[s]"), r"view\('int64'\)"),
        (np.zeros(3, [("t", "M8[s]")]), "its fields one by one"),
        (np.zeros(3, {"names": ["a", "b"], "formats": ["i4", "i4"], "offsets": [0, 2]}), "its fields one by one"),
        (np.zeros(3, np.dtypes.StringDType()), "Ragged.from_text"),
        ([1, 2, 3], "list has no buffer"),
        ("abc", "str has no buffer"),
    ],
)
def test_values_without_buffers_raise(item: Any, way: str) -> None:
    export = {
        **export_of(item, 1),
        "dim_data": ({"dist_type": "b", "size": 3, "proc_grid_size": 1, "proc_grid_rank": 0, "start": 0, "stop": 3},),
    }
    for call in (validate, lambda e: validate_all([e]), LocalArray.from_distarray):
        with pytest.raises(ProtocolError, match=way):
            call(export)


def test_foreign_buffers_are_not_copied() -> None:
    shared = mmap.mmap(-1, 8)
    items = [array.array("d", [1.0, 2.0]), bytearray(b"ab"), shared, (ctypes.c_int * 2)(), (ctypes.c_char * 2)()]
    for item in items:
        local = LocalArray.from_distarray(export_of(item, 1))
        assert local.buffer.shape == (len(item),) and local.buffer.flags.writeable
    local.buffer[0] = b"x"
    assert items[-1][0] == b"x"
    pointers = (ctypes.c_void_p * 2)()
    local = LocalArray.from_distarray(export_of(pointers, 1))
    assert local.buffer.dtype == np.dtype("V8") and local.buffer.shape == (2,)
    released = memoryview(b"abc")
    released.release()
    assert not accepted(export_of(released, 1))


def listed(indices: Any, size: int, rank: int = 0, nprocs: int = 1, **more: Any) -> dict[str, Any]:
    return {"dist_type": "u", "size": size, "proc_grid_size": nprocs, "proc_grid_rank": rank, "indices": indices, **more}


def exported(indices: Any, size: int, rank: int = 0, nprocs: int = 1, version: str = "0.10.0", **more: Any) -> dict[str, Any]:
    buffer = np.zeros(len(indices))
    return {"__version__": version, "buffer": buffer, "dim_data": (listed(indices, size, rank, nprocs, **more),)}


@pytest.mark.parametrize(
    "indices",
    [
        *(np.array([0, 1], dtype) for dtype in (object, "f8", "?", "c16", "S1", "U1", "M8[s]", "m8[s]", "i4,i4")),
        np.array([0, None], object),
        np.array(["0", "1"], np.dtypes.StringDType()),
        np.zeros(2, "V2"),
        memoryview(b"ab").cast("c"),
        np.zeros((2, 1), int),
        np.array(3),
    ],
    ids=lambda item: getattr(getattr(item, "dtype", None), "str", type(item).__name__),
)
@pytest.mark.parametrize("version", ["0.10.0", "0.9.0"])
def test_indices_are_buffers_of_integers(indices: Any, version: str) -> None:
    export = {"__version__": version, "buffer": np.zeros(2), "dim_data": (listed(indices, 2),)}
    calls = (
        lambda: validate(export),
        lambda: validate_all([export]),
        lambda: LocalArray.from_distarray(export),
        lambda: Distribution.from_dim_data([export["dim_data"]], version),
        lambda: num_owned_indices(export["dim_data"][0], version),
    )
    for call in calls:
        with pytest.raises(ProtocolError, match="'indices'"):
            call()


@given(st.data())
def test_indices_of_any_integers_and_any_layout(data: st.DataObject) -> None:
    dtype = np.dtype(data.draw(st.sampled_from("bBhHiIlLqQ"))).newbyteorder(data.draw(st.sampled_from("<>")))
    bounds = np.iinfo(dtype)
    labels = data.draw(st.lists(st.integers(bounds.min, bounds.max), unique=True, max_size=6))
    step = data.draw(st.sampled_from([1, -1, 2]))
    spread = np.zeros(len(labels) * 2, dtype)
    indices = spread[: len(labels)] if step == 1 else spread[: len(labels)][::-1] if step == -1 else spread[::2]
    indices[...] = labels
    given: Any = memoryview(indices) if data.draw(st.booleans()) else indices
    export = exported(given, len(labels))
    validate(export)
    validate_all([export])
    local = LocalArray.from_distarray(export)
    d = Distribution.from_dim_data([export["dim_data"]])
    assert d.indices(0)[0].tolist() == local.global_indices[0].tolist() == labels
    assert d.dim_data(0)[0]["indices"].tolist() == labels
    for place, label in enumerate(labels):
        assert d.maps[0].owner(label) == 0 and d.maps[0].holders([label])[0].tolist() == [0]
        assert d.maps[0].to_local(np.array([label])) == ([0], [place]) and d.maps[0].to_global(0, place) == label
    absent = data.draw(st.integers(-(2**63), 2**64 - 1).filter(lambda n: n not in labels))
    with pytest.raises(SelectionError):
        d.maps[0].owner(absent)


def test_unsigned_labels_are_exact() -> None:
    lists = [np.array([LARGE + 1, 5], "u8"), np.array([LARGE, 2**64 - 1], ">u8"), np.array([6], "i2")]
    exports = [exported(one, 5, rank, 3, one_to_one=True) for rank, one in enumerate(lists)]
    validate_all(exports)
    d = Distribution.from_dim_data([e["dim_data"] for e in exports])
    m = d.maps[0]
    assert m.owner([LARGE + 1, LARGE, 6, 5, 2**64 - 1]).tolist() == [0, 1, 2, 0, 1]
    assert m.owner(np.array([5, 6])).tolist() == [0, 2]
    for absent in (LARGE + 2, -1, 7, 2**64):
        with pytest.raises(SelectionError):
            m.owner(absent)
    assert [i.tolist() for i in map(m.indices, range(3))] == [[LARGE + 1, 5], [LARGE, 2**64 - 1], [6]]
    assert m == Distribution.from_dim_data([d.dim_data(r) for r in range(3)]).maps[0]
    assert Unstructured(1, [[-1]]) != Unstructured(1, [[2**64 - 1]])
    assert str(LARGE + 1) in picture(d) and num_owned_indices(exports[0]["dim_data"][0]) == 2
    assert convert(exports[0]["dim_data"], "0.9.0")[0]["indices"].tolist() == [LARGE + 1, 5]
    for rank, export in enumerate(exports):
        export["buffer"][...] = np.arange(len(lists[rank])) + 10 * rank
    again = aa.SubArray.from_local(exports[0])
    assert again.shape == (2,)
    whole = aa.MasterArray.from_locals(exports)
    assert whole[:].tolist() == [1, 20, 10, 0, 11]  # in the order of the labels 5, 6, 2**63, 2**63 + 1, 2**64 - 1


def test_labels_without_a_common_type_raise() -> None:
    lists = [np.array([-1]), np.array([LARGE], "u8")]
    exports = [exported(one, 2, rank, 2, one_to_one=True) for rank, one in enumerate(lists)]
    validate_all(exports)  # the protocol does not limit them
    with pytest.raises(ProtocolError, match=r"below 0 beside indices of 2\*\*63 or more"):
        Distribution.from_dim_data([e["dim_data"] for e in exports])
    double = [exported(np.array([LARGE + n], "u8"), 2, rank, 3, one_to_one=True) for rank, n in enumerate((0, 1, 1))]
    with pytest.raises(ProtocolError, match="rank 1 has it too"):
        validate_all(double)
    validate(exported([0, 2**63], 2, version="0.9.0"))
    for wrong in ([0, 2**64], [-1, 2**63], [0, True]):
        with pytest.raises(ProtocolError, match="'indices'"):
            validate(exported(wrong, 2, version="0.9.0"))
