"""DAP: examples of the specifications, round trips and faults."""

import array
import copy
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from aggarray.dap import (
    Block,
    Cyclic,
    Distribution,
    LocalArray,
    Unstructured,
    convert,
    num_owned_indices,
    validate,
    validate_all,
)
from aggarray.errors import ProtocolError
from aggarray.maps.dim_data import FaultList, map_types, parse_dimension
from tests.support.distributions import VERSIONS, distributions, normal
from tests.support.paths import FIXTURES

pytestmark = pytest.mark.quick

EXAMPLES = json.loads((FIXTURES / "dap_examples.json").read_text(encoding="utf-8"))
D = Distribution
U30 = [
    [19, 1, 0, 12, 2, 15, 4],
    [6, 13, 3],
    [10, 25, 5, 21, 7, 18, 11, 26, 29, 24, 23, 28, 14, 20, 9, 16, 27, 8, 17, 22],
]
ROWS, COLUMNS = [[3, 0], [4, 2, 1]], [[2, 3, 7, 1], [6, 5, 8, 0, 4]]

#: The worked examples, made by this library. 2.11 is laid over a grid of 2 x 2, 2.12 over 2 x 2 x 2.
MADE = {
    "2.1": D.regular((2, 10), "bb", (2, 1)),
    "2.2": D.regular((18,), "b", (2,), padding={0: (1, 1)}),
    "2.3": D((Unstructured(30, U30),)),
    "2.4": D.regular((5, 9), "bb", (3, 1), padding={0: (0, 0), 1: (0, 0)}),
    "2.5": D.regular((5, 9), "bb", (1, 3), padding={0: (0, 0), 1: (0, 0)}),
    "2.6": D.regular((5, 9), "bb", (2, 2)),
    "2.7": D.regular((5, 9), "bc", (2, 2)),
    "2.8": D.regular((5, 9), "cc", (2, 2)),
    "2.9": D((Block([0, 1, 5], (0, 0)), Block([0, 2, 9], (0, 0)))),
    "2.10": D.regular((5, 9), "cc", (2, 2), block_size={0: 2, 1: 2}),
    "2.11": D((Unstructured(5, ROWS), Unstructured(9, COLUMNS))),
    "2.12": D.regular((5, 9, 3), "cbc", (2, 2, 2)),
    "7.1": D.regular((2, 10), "bb", (2, 1)),
    "7.2": D.regular((18,), "b", (2,), padding={0: (1, 1)}),
    "7.3": D((Unstructured(30, U30),)),
}


def exports_of(section: str) -> list[dict[str, Any]]:
    """Return the corrected exports of all processes of an example."""
    example = EXAMPLES[section]
    result = []
    for dim_data, shape in zip(example["dim_data"], example["local_shapes"], strict=True):
        entries = tuple({k: np.array(v) if k == "indices" else v for k, v in entry.items()} for entry in dim_data)
        result.append({"__version__": example["version"], "buffer": np.zeros(shape), "dim_data": entries})
    return result


def exported(d: Distribution, version: str = "0.10.0", dtype: Any = "f8") -> list[dict[str, Any]]:
    """Return the exports of all processes of a distribution."""
    return [
        {"__version__": version, "buffer": np.zeros(d.local_shape(r), dtype), "dim_data": d.dim_data(r, version)}
        for r in range(d.nprocs)
    ]


def normals(dim_data: Any) -> list[dict[str, Any]]:
    return [normal(entry) for entry in dim_data]


@pytest.mark.parametrize("section", EXAMPLES)
def test_examples_are_valid(section: str) -> None:
    exports = exports_of(section)
    for export in exports:
        validate(export)
    validate_all(exports)


@pytest.mark.parametrize("section", EXAMPLES)
def test_examples_are_made(section: str) -> None:
    example, d = EXAMPLES[section], MADE[section]
    assert d.nprocs == len(example["dim_data"]) and list(d.shape) == example["shape"]
    assert [n for n in d.grid] == example["grid"]
    for rank, dim_data in enumerate(example["dim_data"]):
        assert normals(d.dim_data(rank, example["version"])) == normals(dim_data)
        assert list(d.local_shape(rank)) == example["local_shapes"][rank]
        assert [i.tolist() for i in d.indices(rank)] == example["indices"][rank]
        assert [num_owned_indices(e, example["version"]) for e in d.dim_data(rank, example["version"])] == (
            example["num_owned"][rank]
        )


@pytest.mark.parametrize("section", EXAMPLES)
def test_examples_are_read(section: str) -> None:
    example = EXAMPLES[section]
    dim_data = [e["dim_data"] for e in exports_of(section)]
    assert D.from_dim_data(dim_data, example["version"]) == D.from_dim_data(
        [MADE[section].dim_data(r, example["version"]) for r in range(len(dim_data))], example["version"]
    )


def test_lists_of_indices_are_valid_in_0_9_only() -> None:
    for section in ("2.3", "7.3"):
        exports = exports_of(section)
        for export in exports:
            export["dim_data"][0]["indices"] = export["dim_data"][0]["indices"].tolist()
        if section == "7.3":
            validate_all(exports)
        else:
            with pytest.raises(ProtocolError, match=r"process 0, dimension 0, 'indices'.*buffer"):
                validate_all(exports)


@pytest.mark.parametrize("sections", [("2.1", "7.1"), ("2.2", "7.2"), ("2.3", "7.3")])
def test_examples_convert(sections: tuple[str, str]) -> None:
    new, old = (exports_of(s) for s in sections)
    for one, other in zip(new, old, strict=True):
        assert normals(convert(one["dim_data"], "0.9.0")) == normals(other["dim_data"])
        assert normals(convert(other["dim_data"], "0.10.0")) == normals(one["dim_data"])


@given(st.data())
def test_round_trips(data: Any) -> None:
    version = data.draw(st.sampled_from(VERSIONS))
    d = data.draw(distributions(version))
    try:
        exports = exported(d, version)
    except ProtocolError:
        assume(False)
    validate_all(exports)
    for export in exports:
        validate(export)
        assert all(type(v) in (int, str, bool, tuple, np.ndarray) for entry in export["dim_data"] for v in entry.values())
    wraps = any(isinstance(m, Block) and m.outer == "wrap" and m.padding is not None for m in d.maps)
    if wraps and any(isinstance(m, Block) and m.outer == "wrap" and _outer(m) for m in d.maps):
        with pytest.raises(ProtocolError, match="wraps"):
            D.from_dim_data([e["dim_data"] for e in exports], version)
        return
    again = D.from_dim_data([e["dim_data"] for e in exports], version, [e["buffer"].shape for e in exports])
    for rank in range(d.nprocs):
        assert [i.tolist() for i in again.indices(rank)] == [i.tolist() for i in d.indices(rank)]
        assert again.owned_slices(rank) == d.owned_slices(rank)
        assert normals(again.dim_data(rank, version)) == normals(d.dim_data(rank, version))
        assert [num_owned_indices(e, version) for e in d.dim_data(rank, version)] == [
            m.num_owned(c) for m, c in zip(d.maps, d.coords(rank), strict=True)
        ]


def _outer(m: Block) -> bool:
    pads = np.asarray(m.padding)
    return bool(pads[0, 0] or pads[-1, 1])


@given(distributions())
def test_conversion_and_back(d: Distribution) -> None:
    for rank in range(d.nprocs):
        new = d.dim_data(rank)
        try:
            old = d.dim_data(rank, "0.9.0")
        except ProtocolError:  # boundary padding of a periodic dimension
            continue
        assert normals(convert(new, "0.9.0")) == normals(old)
        assert normals(convert(old, "0.10.0")) == normals(new)
        assert normals(convert(new, "0.10.2", source="0.10.0")) == normals(new)
        assert normals(convert(old, "0.9.0", source="0.9.1")) == normals(old)


def test_inexpressible_dim_data_raises() -> None:
    wrapped = Block.even(6, 3, (1, 1), True, "wrap")
    for rank in (0, 2):
        with pytest.raises(ProtocolError, match="wrap"):
            convert((wrapped.dim_dict(rank, "0.9.0"),), "0.10.0")
    assert convert((wrapped.dim_dict(1, "0.9.0"),), "0.10.0")[0]["padding"] == (1, 1)
    one = Block([0, 4], (1, 1), True, "wrap").dim_dict(0, "0.9.0")
    assert one == {"dist_type": "n", "size": 4, "padding": (1, 1), "periodic": True}
    with pytest.raises(ProtocolError, match="wrap"):
        convert((one,), "0.10.0")
    with pytest.raises(ProtocolError, match="periodic"):
        convert((Block([0, 3, 4], [(1, 0), (0, 0)], True).dim_dict(0),), "0.9.0")
    with pytest.raises(ProtocolError, match="shape"):
        convert(({},), "0.9.0")
    assert convert(({},), "0.9.0", shape=(4,)) == ({"dist_type": "n", "size": 4},)
    periodic = {"dist_type": "c", "size": 4, "proc_grid_size": 2, "proc_grid_rank": 1, "start": 1, "periodic": True}
    assert convert((periodic,), "0.9.0", source="0.9.0") == (periodic,)
    with pytest.raises(ProtocolError, match="'c'"):
        convert((periodic,), "0.10.0")
    wide = {"dist_type": "b", "size": 9, "proc_grid_size": 3, "proc_grid_rank": 1, "start": 4, "stop": 5, "padding": (3, 0)}
    with pytest.raises(ProtocolError, match="padding"):
        convert((wide,), "0.10.0")
    assert convert((wide,), "0.9.0", source="0.9.0") == (wide,)


def test_uneven_padding_does_not_convert() -> None:
    d = D((Block([0, 4, 8], [(0, 1), (2, 0)]),))
    assert D.from_dim_data([d.dim_data(r, "0.9.0") for r in range(2)], "0.9.0") == d
    with pytest.raises(ProtocolError, match="equal widths"):
        d.dim_data(0)


def test_empty_dictionaries_are_whole_dimensions() -> None:
    result = D.from_dim_data([({}, {})], shapes=[(3, 0)])
    assert result == D((Block([0, 3]), Block([0, 0])))
    with pytest.raises(ProtocolError, match="not known: give the shape"):
        D.from_dim_data([({},)])
    validate_all([{"__version__": "0.10.0", "buffer": np.zeros((3, 0)), "dim_data": ({}, {})}])
    with pytest.raises(ProtocolError):
        num_owned_indices({})


def test_arrays_without_dimensions() -> None:
    validate_all([{"__version__": "0.10.0", "buffer": np.float64(1), "dim_data": ()}])
    assert D.from_dim_data([()]) == D(())
    assert convert((), "0.9.0") == ()


class Exporter:
    """An exporter of any value."""

    def __init__(self, export: Any) -> None:
        self.export = export

    def __distarray__(self) -> Any:
        if isinstance(self.export, Exception):
            raise self.export
        return self.export


def block(rank: int = 0, nprocs: int = 2, **changes: Any) -> dict[str, Any]:
    """Return the dictionary of an even block of size 10; ... removes a key."""
    result = {**Block.even(10, nprocs).dim_dict(rank), **changes}
    return {k: v for k, v in result.items() if v is not ...}


def cyclic(rank: int = 0, **changes: Any) -> dict[str, Any]:
    result = {**Cyclic(7, 2, 2).dim_dict(rank), **changes}
    return {k: v for k, v in result.items() if v is not ...}


def listed(**changes: Any) -> dict[str, Any]:
    result = {"dist_type": "u", "size": 9, "proc_grid_size": 2, "proc_grid_rank": 0, "indices": np.array([7, -2, 5]), **changes}
    return {k: v for k, v in result.items() if v is not ...}


def export(entry: Any, extent: int = 5, version: Any = "0.10.0") -> dict[str, Any]:
    return {"__version__": version, "buffer": np.zeros(extent), "dim_data": (entry,)}


class Odd:
    """An object without any protocol."""


class Broken:
    """An object whose ``__distarray__`` attribute fails."""

    @property
    def __distarray__(self) -> Any:
        raise RuntimeError("not today")


#: What is wrong with one export, and words of the fault that is named.
WRONG: list[tuple[Any, str]] = [
    (None, "no method __distarray__"),
    (5, "no method __distarray__"),
    (Exporter(None), "returns NoneType"),
    (Broken(), "fails: RuntimeError: not today"),
    (Exporter([1]), "returns list"),
    (Exporter(RuntimeError("broken")), "fails: RuntimeError: broken"),
    (Exporter(KeyError("x")), "fails: KeyError"),
    ({}, "'__version__': the key is missing"),
    ({"__version__": "0.10.0", "dim_data": ({},)}, "'buffer': the key is missing"),
    ({"__version__": "0.10.0", "buffer": b"ab"}, "'dim_data': the key is missing"),
    (export(block(), version="0.10"), "major.minor.patch"),
    (export(block(), version="0.11.0"), "only 0.9 and 0.10"),
    (export(block(), version="1.0.0"), "only 0.9 and 0.10"),
    (export(block(), version=(0, 10, 0)), "major.minor.patch"),
    (export(block(), version=0.10), "major.minor.patch"),
    (export(block(), version=None), "major.minor.patch"),
    (export(block(), version="v0.10.0"), "major.minor.patch"),
    (export(block(), version="0.10.0\n"), "major.minor.patch"),
    (export(block()) | {"dim_data": block()}, "not dict; .* without a comma"),
    (export(block()) | {"dim_data": [block()]}, "not list"),
    (export(block()) | {"dim_data": None}, "not NoneType"),
    (export(block()) | {"dim_data": ()}, "0 dictionaries for a buffer of 1 dimensions"),
    (export(block()) | {"dim_data": (block(), block())}, "2 dictionaries"),
    (export(block()) | {"dim_data": (5,)}, "dimension 0: 5 .* must be a dict"),
    (export(block()) | {"buffer": [0.0] * 5}, "'buffer': list has no buffer"),
    (export(block()) | {"buffer": Odd()}, "'buffer': Odd has no buffer"),
    (export(block()) | {"buffer": None}, "'buffer': NoneType has no buffer"),
    (export(block(dist_type="x")), "dimension 0, 'dist_type' = 'x': must be one of"),
    (export(block(dist_type="n")), "'dist_type' = 'n': must be one of 'b', 'c', 'u'"),
    (export(block(dist_type=["b"])), "'dist_type'"),
    (export(block(dist_type=...)), "'dist_type': the key is missing"),
    (export(block(size=...)), "'size': the key is missing"),
    (export(block(size=10.0)), "'size' = 10.0: must be an integer"),
    (export(block(size=-1)), "'size' = -1"),
    (export(block(size=2**64)), "'size' = 18446744073709551616"),
    (export(block(size="10")), "'size' = '10'"),
    (export(block(size=None)), "'size'"),
    (export(block(proc_grid_size=0)), "'proc_grid_size' = 0"),
    (export(block(proc_grid_size=...)), "'proc_grid_size': the key is missing"),
    (export(block(proc_grid_rank=2)), r"'proc_grid_rank' = 2: must be less than proc_grid_size \(2\)"),
    (export(block(proc_grid_rank=-1)), "'proc_grid_rank' = -1"),
    (export(block(proc_grid_rank=False)), "'proc_grid_rank' = False: must be an integer"),
    (export(block(proc_grid_rank=np.bool(False))), "'proc_grid_rank'"),
    (export(block(start=...)), "'start': the key is missing"),
    (export(block(stop=...)), "'stop': the key is missing"),
    (export(block(start=0.0)), "'start' = 0.0"),
    (export(block(stop=True)), "'stop' = True"),
    (export(block(start=-1)), "'start' = -1"),
    (export(block(start=1), 4), "'start' = 1: the first process must start at 0"),
    (export(block(1, stop=9), 4), r"'stop' = 9: the last process must stop at size \(10\)"),
    (export(block(1, stop=11), 6), r"'stop' = 11: must not be more than size"),
    (export(block(1, start=11, stop=10), 0), "'stop' = 10: must not be less than start"),
    (export(block(), 4), "'buffer' = 4: the buffer must have size 5 along"),
    (export(block(padding=(1, -1))), r"'padding' = \(1, -1\): must be a tuple of two integers"),
    (export(block(padding=(1,))), "'padding'"),
    (export(block(padding=1)), "'padding'"),
    (export(block(padding=None)), "'padding'"),
    (export(block(padding=(1.0, 0))), "'padding'"),
    (export(block(padding=(True, 0))), "'padding'"),
    (export(block(padding=(3, 3))), r"'padding' = \(3, 3\): must not be wider than the buffer \(5\)"),
    (export(block(periodic=1)), "'periodic' = 1: must be True or False"),
    (export(block(periodic=None)), "'periodic'"),
    (export(cyclic(start=1), 4), "'start' = 1: must be proc_grid_rank"),
    (export(cyclic(1, start=0), 3), "'start' = 0: must be proc_grid_rank"),
    (export(cyclic(start=...), 4), "'start': the key is missing"),
    (export(cyclic(block_size=0), 4), "'block_size' = 0"),
    (export(cyclic(block_size=2.0), 4), "'block_size' = 2.0"),
    (export(cyclic(), 5), "'buffer' = 5: the buffer must have size 4"),
    (export(cyclic(padding=(1, 0)), 4), "'padding' = .* has no meaning"),
    (export(cyclic(periodic=True), 4), "'periodic' = True: has no meaning"),
    (export(listed(indices=...), 3), "'indices': the key is missing"),
    (export(listed(indices=None), 3), "'indices'"),
    (export(listed(indices=5), 3), "'indices'"),
    (export(listed(indices=[7, -2, 5]), 3), "'indices'.*buffer"),
    (export(listed(indices=np.array([7.0, -2.0, 5.0])), 3), "'indices'.*float64"),
    (export(listed(indices=np.array([True, False])), 2), "'indices'.*bool"),
    (export(listed(indices=np.array([2], object)), 1), "'indices'.*Python objects"),
    (export(listed(indices=np.array([[1, 2]])), 2), "'indices'.*one-dimensional"),
    (export(listed(indices=np.array([1, 2, 1])), 3), "'indices' = 1: must not repeat"),
    (export(listed(), 4), "'buffer' = 4: the buffer must have size 3"),
    (export(listed(size=2), 3), r"'indices'.*must not be more than size \(2\)"),
    (export(listed(one_to_one=1), 3), "'one_to_one' = 1"),
    (export(listed(proc_grid_size=1), 3), "must be as many as size"),
    (export({}, version="0.9.0"), "'dist_type': the key is missing"),
    (export({"dist_type": "n"}, version="0.9.0"), "'size': the key is missing"),
    (export({"dist_type": "n", "size": 4}, version="0.9.0"), "the buffer must have size 4"),
    (export({"dist_type": "n", "size": 5.0}, version="0.9.0"), "'size' = 5.0"),
    (export({"dist_type": "n", "size": 5, "proc_grid_size": 2}, version="0.9.0"), "'proc_grid_size' = 2: must be 1"),
    (export({"dist_type": "n", "size": 5, "proc_grid_rank": 1}, version="0.9.0"), "'proc_grid_rank' = 1: must be 0"),
    (export({"dist_type": "n", "size": 5, "padding": (1, 1), "periodic": True}, version="0.9.0"), "size 7"),
    (export(block(start=5, stop=7, proc_grid_rank=1, proc_grid_size=3, padding=(6, 0)), 8, "0.9.0"), "beyond the dimension"),
]


@pytest.mark.parametrize(("wrong", "words"), WRONG)
def test_invalid_exports_raise(wrong: Any, words: str) -> None:
    for check in (validate, lambda e: validate_all([e])):
        with pytest.raises(ProtocolError, match=words) as error:
            check(wrong)
        assert "\n" not in str(error.value) and all(line in str(error.value) for line in error.value.faults)


def test_all_faults_of_an_export_are_listed() -> None:
    wrong = {"__version__": "0.10.0", "buffer": np.zeros((3, 4)), "dim_data": (block(size=-1, start=0.5), listed(one_to_one=2))}
    with pytest.raises(ProtocolError) as error:
        validate(wrong)
    assert len(error.value.faults) == 4
    assert [line.split(":")[0] for line in error.value.faults] == [
        "process 0, dimension 0, 'size' = -1",
        "process 0, dimension 0, 'start' = 0.5",
        "process 0, dimension 1, 'one_to_one' = 2",
        "process 0, dimension 1, 'buffer' = 4",
    ]


def test_unusual_exports_are_valid() -> None:
    validate(export(block(start=np.int16(0), stop=np.uint8(5))))
    validate(export(block(periodic=np.bool(True), padding=[np.int8(1), 0])))
    validate(export(cyclic(1, size=2, start=2, block_size=9), 0))
    validate(export(cyclic(1, size=2, start=9, block_size=9), 0))
    validate(export(block(1, start=10), 0))
    validate(export(listed(indices=np.array([])), 0))
    validate(export(listed(indices=array.array("q", [3, 1]), size=2), 2))
    validate(export(listed(indices=np.array([3, -1], ">i2")), 2))
    validate(export(listed(indices=memoryview(b"ab")), 2))
    for buffer in (bytearray(5), array.array("d", [0] * 5), np.zeros(10, ">f2")[::2], memoryview(b"abcde")):
        validate(export(block()) | {"buffer": buffer})
        validate(Exporter(export(block(), version="0.10.7") | {"buffer": buffer}))
    fortran = np.asfortranarray(np.zeros((5, 5)))
    fortran.flags.writeable = False
    validate({"__version__": "0.10.0", "buffer": fortran, "dim_data": (block(), block())})


def change(rank: int, d: int = 0, **values: Any) -> Callable[[list[dict[str, Any]]], None]:
    """Return a function that changes a dictionary; ... removes a key."""

    def apply(exports: list[dict[str, Any]]) -> None:
        entry = exports[rank]["dim_data"][d]
        entry.update(values)
        for key in [k for k, v in entry.items() if v is ...]:
            del entry[key]

    return apply


def resized(rank: int, shape: tuple[int, ...], **values: Any) -> Callable[[list[dict[str, Any]]], None]:
    def apply(exports: list[dict[str, Any]]) -> None:
        change(rank, **values)(exports)
        exports[rank]["buffer"] = np.zeros(shape)

    return apply


PADDED = D.regular((12,), "b", (3,), padding={0: (1, 1)})
GRID = D.regular((6, 8), "bc", (2, 3))
LABELS = D((Unstructured(4, [[0, 1], [2, 3]], one_to_one=True),))
UNEVEN = D((Block([0, 4, 8, 12], [(0, 1), (2, 1), (3, 0)]),))

#: Distribution, version, what is changed, words of the fault.
TOGETHER: list[tuple[Distribution, str, Any, str]] = [
    (PADDED, "0.10.0", lambda e: e.pop(), "a grid of 3 processes, but there are 2"),
    (PADDED, "0.10.0", lambda e: e.reverse(), "process 0, dimension 0, 'proc_grid_rank' = 2: must be 0"),
    (PADDED, "0.10.0", change(1, size=13), "process 1, dimension 0, 'size' = 13: process 0 has 12"),
    (PADDED, "0.10.0", change(1, periodic=True), "process 1, dimension 0, 'periodic' = True: process 0 has False"),
    (PADDED, "0.10.0", change(2, proc_grid_size=4), "process 2, dimension 0, 'proc_grid_size' = 4: process 0 has 3"),
    (PADDED, "0.10.0", resized(1, (5,), start=4), "a gap|an overlap|widths at a cut"),
    (PADDED, "0.10.0", resized(1, (5,), stop=8), "process 2, dimension 0, 'start' = 8: a gap: rank 1 owns up to 7"),
    (PADDED, "0.10.0", resized(1, (7,), start=2), "process 1, dimension 0, 'start' = 3: an overlap: rank 0 owns up to 4"),
    (PADDED, "0.10.0", change(1, padding=(0, 1)), "widths at a cut must be equal"),
    (PADDED, "0.10.0", change(1, padding=...), "widths at a cut must be equal"),
    (PADDED, "0.10.0", change(1, dist_type="c", start=1), "process 1, dimension 0, 'dist_type' = 'c': process 0 has 'b'"),
    (GRID, "0.10.0", change(4, 1, block_size=2, start=2), "process 4, dimension 1, 'block_size' = 2: process 0 has 1"),
    (GRID, "0.10.0", change(5, 0, proc_grid_rank=0, start=0), "process 5, dimension 0, 'proc_grid_rank' = 0: must be 1"),
    (GRID, "0.10.0", resized(4, (2, 3), start=4), "process 4, dimension 0, 'start' = 4: process 3, of the same proc_grid_rank"),
    (GRID, "0.10.0", lambda e: e[3].update(__version__="0.9.0"), "'__version__': must be the same on all processes"),
    (
        GRID,
        "0.10.0",
        lambda e: e[3].update(dim_data=e[3]["dim_data"][:1], buffer=np.zeros(3)),
        "'dim_data': must have the same length on all processes: 1 on process 3, 2 on process 0",
    ),
    (LABELS, "0.10.0", change(1, indices=np.array([2, 0])), "process 1, dimension 0, 'indices' = 0: rank 0 has it too"),
    (LABELS, "0.10.0", change(1, indices=np.array([2, 0])), "'size' = 4: the processes have 3 distinct"),
    (LABELS, "0.10.0", change(1, one_to_one=False), "process 1, dimension 0, 'one_to_one' = False: process 0 has True"),
    (UNEVEN, "0.9.0", change(1, start=3), "an overlap"),
    (UNEVEN, "0.9.0", resized(1, (5,), padding=...), "process 1, dimension 0, 'padding': the key is missing, though"),
    (UNEVEN, "0.9.0", resized(2, (9,), padding=(5, 0)), "must not be wider than what rank 1 owns"),
]


@pytest.mark.parametrize(("d", "version", "spoil", "words"), TOGETHER)
def test_conflicting_exports_raise(d: Distribution, version: str, spoil: Any, words: str) -> None:
    exports = exported(d, version)
    validate_all(exports)
    exports = copy.deepcopy(exports)
    spoil(exports)
    with pytest.raises(ProtocolError, match=words):
        validate_all(exports)
    if not words.startswith("'__version__'"):
        with pytest.raises(ProtocolError):
            D.from_dim_data([e["dim_data"] for e in exports], version)


def test_boundary_padding_alone_may_differ_between_processes_of_a_rank() -> None:
    d = D.regular((6, 6), "bb", (2, 2), padding={0: (1, 1)})
    exports = copy.deepcopy(exported(d))
    exports[1]["dim_data"][0]["padding"] = (2, 1)
    validate_all(exports)
    with pytest.raises(ProtocolError, match=r"process 1, dimension 0, 'padding' = \(2, 1\): process 0 has \(1, 1\)"):
        D.from_dim_data([e["dim_data"] for e in exports])
    exports[1]["dim_data"][0]["padding"] = (1, 0)
    with pytest.raises(ProtocolError, match=r"process 1, dimension 0, 'padding'"):
        validate_all(exports)


@pytest.mark.parametrize("wrong", [None, [], {}, "ab", 5, {"a": 1}])
def test_invalid_lists_of_exports_raise(wrong: Any) -> None:
    with pytest.raises(ProtocolError):
        validate_all(wrong)
    with pytest.raises(ProtocolError):
        D.from_dim_data(wrong)


@pytest.mark.parametrize("wrong", [5, None, [5], [{}], [block()], [(5,)], [(None,)], [({"dist_type": "b"},)], [block(), 5]])
def test_invalid_dim_data_raises(wrong: Any) -> None:
    with pytest.raises(ProtocolError):
        D.from_dim_data(wrong)
    with pytest.raises(ProtocolError):
        convert(wrong, "0.9.0")


def test_invalid_versions_and_shapes_raise() -> None:
    dim_data = [PADDED.dim_data(r) for r in range(3)]
    for version in ("1.0.0", "0.10", None, 0.1):
        with pytest.raises(ProtocolError):
            D.from_dim_data(dim_data, version)
        with pytest.raises(ProtocolError):
            PADDED.dim_data(0, version)
        with pytest.raises(ProtocolError):
            convert(dim_data[0], version)
        with pytest.raises(ProtocolError):
            num_owned_indices(dim_data[0][0], version)
    with pytest.raises(ProtocolError):
        D.from_dim_data(dim_data, shapes=[(5,)])
    with pytest.raises(ProtocolError, match="size 6"):
        D.from_dim_data(dim_data, shapes=[(5,), (5,), (5,)])
    with pytest.raises(ProtocolError):
        D.from_dim_data(dim_data, shapes=[(5, 1), (6,), (5,)])
    for wrong in ([None] * 3, ["a", "b", "c"], [(5.0,)] * 3, 5, {}):
        with pytest.raises(ProtocolError, match="shape"):
            D.from_dim_data(dim_data, shapes=wrong)
    for wrong in ((5, 1), "a", (None,), 5.0, -1):
        with pytest.raises(ProtocolError):
            convert(dim_data[0], "0.9.0", shape=wrong)
    assert convert(({},), "0.9.0", shape=4) == ({"dist_type": "n", "size": 4},)
    with pytest.raises(ProtocolError):
        num_owned_indices(5)


KEYS = (
    "dist_type",
    "size",
    "proc_grid_size",
    "proc_grid_rank",
    "start",
    "stop",
    "padding",
    "block_size",
    "indices",
    "periodic",
)
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 12),
    st.integers(),
    st.floats(),
    st.text(max_size=2),
    st.sampled_from(["b", "c", "u", "n"]),
    st.tuples(st.integers(-1, 3), st.integers(-1, 3)),
    st.lists(st.integers(-2, 12), max_size=4),
    st.lists(st.integers(-2, 12), max_size=4).map(np.array),
)


@pytest.mark.parametrize("kind", map_types().values())
def test_every_type_of_distribution_reads_its_examples(kind: Any) -> None:
    """A part gives back the map of its process."""
    result = 0
    for section, example in EXAMPLES.items():
        for rank, dim_data in enumerate(e["dim_data"] for e in exports_of(section)):
            for d, entry in enumerate(dim_data):
                faults = FaultList()
                parsed = parse_dimension(entry, example["version"], example["local_shapes"][rank][d], faults.note(rank, d))
                assert not faults.lines and parsed is not None
                if parsed[0] is not kind:
                    continue
                part, result = parsed[1], result + 1
                alone = kind.from_part(part)
                assert alone.dist_type == kind.letter and (alone.size, alone.nprocs) == (part.size, part.nprocs)
                assert alone.indices(part.rank).tolist() == example["indices"][rank][d]
                assert alone.num_owned(part.rank) == part.count == example["num_owned"][rank][d]
                assert part.constants()["size"] == part.size
    assert result


@given(st.lists(st.dictionaries(st.sampled_from([*KEYS, "one_to_one", 5]), VALUES), max_size=2), st.sampled_from(VERSIONS))
def test_any_dictionary_is_valid_or_raises_protocol_errors(entries: list[dict[Any, Any]], version: str) -> None:
    given = {"__version__": version, "buffer": np.zeros((3,) * len(entries)), "dim_data": tuple(entries)}
    for check in (validate, lambda e: validate_all([e, e])):
        try:
            check(given)
        except ProtocolError as error:
            assert error.faults
    for call in (
        lambda: convert(tuple(entries), "0.9.0", source=version),
        lambda: D.from_dim_data([tuple(entries)] * 2, version),
    ):
        try:
            call()
        except ProtocolError as error:
            assert str(error)


@given(st.data())
def test_changed_values_raise_or_are_valid(data: Any) -> None:
    """A changed value raises an error, or every element still has an owner."""
    d = data.draw(distributions(most=2, largest=6))
    assume(d.maps)
    exports = copy.deepcopy(exported(d))
    entry = data.draw(st.sampled_from([e for one in exports for e in one["dim_data"]]))
    entry[data.draw(st.sampled_from(KEYS[1:8]))] = data.draw(VALUES)
    try:
        validate_all(exports)
        result = D.from_dim_data([e["dim_data"] for e in exports])
    except ProtocolError:
        return
    assert result.shape == d.shape
    for rank in range(d.nprocs):
        assert result.local_shape(rank) == d.local_shape(rank)


def test_keys_are_checked_separately() -> None:
    """Keys are checked where the common keys or the tuple are invalid."""
    wrong = block(size=10.0, start="x", stop=-3, padding=(-1, 0), periodic=3)
    with pytest.raises(ProtocolError) as error:
        validate({"__version__": "0.10.0", "buffer": np.zeros(3), "dim_data": (wrong,)})
    assert [line.split("'")[1] for line in error.value.faults] == ["size", "start", "stop", "padding", "periodic"]
    dealt = {
        "dist_type": "c",
        "size": -1,
        "proc_grid_size": 2,
        "proc_grid_rank": 0,
        "start": 0,
        "block_size": 0,
        "padding": (1, 1),
    }
    labelled = {"dist_type": "u", "size": -1, "proc_grid_size": 2, "proc_grid_rank": 0, "indices": np.array([1.5])}
    for one, keys in ((dealt, ["size", "block_size", "padding"]), (labelled, ["size", "indices"])):
        with pytest.raises(ProtocolError) as error:
            validate({"__version__": "0.10.0", "buffer": np.zeros(3), "dim_data": [one]})
        assert [line.split("'")[1] for line in error.value.faults] == ["dim_data", *keys]


class Unshowable:
    """An object whose repr fails."""

    def __repr__(self) -> str:
        raise KeyError("boom")


@pytest.mark.parametrize("value", [10**5000, Unshowable()], ids=["huge", "hostile"])
@pytest.mark.parametrize("key", ["size", "start", "padding", "dist_type", "proc_grid_rank"])
def test_values_without_repr(key: str, value: object) -> None:
    wrong = {"__version__": "0.10.0", "buffer": np.zeros(3), "dim_data": (block(**{key: value}),)}
    for check in (validate, lambda e: validate_all([e]), LocalArray.from_distarray):
        with pytest.raises(ProtocolError):
            check(wrong)


def test_conflicts_are_listed_for_different_sizes() -> None:
    parts = [(0, 3, 10), (3, 6, 11), (7, 10, 10)]
    exports = [
        {
            "__version__": "0.10.0",
            "buffer": np.zeros(3),
            "dim_data": (block(size=n, proc_grid_size=3, proc_grid_rank=r, start=a, stop=b),),
        }
        for r, (a, b, n) in enumerate(parts)
    ]
    with pytest.raises(ProtocolError) as error:
        validate_all(exports)
    assert len(error.value.faults) == 2
    assert "'size' = 11" in error.value.faults[0] and "gap" in error.value.faults[1]


def test_faults_name_the_rank_of_an_export() -> None:
    """The rank follows from proc_grid_rank along each dimension, in C order."""
    first = block(size=4, proc_grid_size=2, proc_grid_rank=1, start=2, stop=3)
    second = block(size=9, proc_grid_size=3, proc_grid_rank=1, start=3, stop=6)
    for dims, lead in (
        ((first, second), "process 4, "),
        (({**first, "proc_grid_rank": 7}, second), ""),
        ((block(size=-1, proc_grid_size=1), {}), ""),
    ):
        with pytest.raises(ProtocolError) as error:
            validate({"__version__": "0.10.0", "buffer": np.zeros((1, 3)), "dim_data": dims})
        assert error.value.faults[0].startswith(f"{lead}dimension 0")
