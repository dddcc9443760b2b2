"""Tests of lazy operations: they open no file, compose, and equal eager chains."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aggarray as aa
from aggarray import MasterArray, SubArray
from aggarray.storage.access import Access
from tests.support.examples import examples
from tests.support.tilings import keys, pick, same, same_masked, tilings

Eager = tuple[np.ndarray, np.ndarray]


def line(values: Any, **options: Any) -> MasterArray:
    """Return a master array along ``x`` of pieces of three elements."""
    values = np.ma.asarray(values)
    pieces = []
    for start in range(0, len(values), 3):
        part = values[start : start + 3]
        pieces.append(([(start, start + len(part))], SubArray.from_array(part, dimensions=("x",), **options)))
    return MasterArray.from_subarrays(pieces, dimensions=("x",), shape=(len(values),))


def known(a: MasterArray) -> MasterArray:
    """Return an array with known values, as after a scan."""
    values = a.read(masked=True)
    return replace(a, _known=(np.ma.getdata(values), np.ma.getmaskarray(values)))


def rewrapped(a: MasterArray) -> MasterArray:
    """Return an array of the values that were read of an array."""
    values = a.read(masked=True)
    piece = SubArray.from_array(values, dimensions=a.dimensions, directions=a.directions, units=a.units, calendar=a.calendar)
    location = [(0, n) for n in a.shape]
    return MasterArray.from_subarrays([(location, piece)], dimensions=a.dimensions, directions=a.directions, dtype=a.dtype)


@given(st.data())
@settings(max_examples=examples(150))
def test_chains_of_selections_match_numpy(data: st.DataObject) -> None:
    tiling = data.draw(tilings())
    a, values, mask = known(tiling.master()), tiling.values, tiling.mask
    dimensions = list(tiling.dimensions)
    for _ in range(data.draw(st.integers(1, 4))):
        kind = data.draw(st.sampled_from(["lazy", "lazy", "transpose", "flip"]))
        if kind == "lazy":
            key = data.draw(keys(a.shape))
            a, values, mask = a.lazy[key], pick(values, key), pick(mask, key)
            dimensions = [d for d, k in zip(dimensions, key, strict=True) if not isinstance(k, int)]
        elif kind == "transpose":
            order = data.draw(st.permutations(range(len(dimensions))))
            dimensions = [dimensions[i] for i in order]
            a, values, mask = a.transpose(dimensions), values.transpose(order), mask.transpose(order)
        else:
            axes = [i for i in range(len(dimensions)) if data.draw(st.booleans())]
            before = a.directions
            if axes:
                a, values, mask = a.flip(*(dimensions[i] for i in axes)), np.flip(values, axes), np.flip(mask, axes)
            assert a.directions == tuple(forward != (i in axes) for i, forward in enumerate(before))
        assert (a.shape, a.dimensions) == (values.shape, tuple(dimensions))
        same_masked(a.read(masked=True), values, mask)
    for partition in a.partitions:
        check_partition(a, partition)
    assert a._known is not None
    np.testing.assert_array_equal(a._known[0], a[...])
    np.testing.assert_array_equal(a._known[1], mask)
    key = data.draw(keys(a.shape))
    same_masked(a.read(key, masked=True), pick(values, key), pick(mask, key))


def check_partition(a: MasterArray, partition: aa.Partition) -> None:
    """Read a partition by its documented parameters, and compare it with the array there."""
    where = tuple(slice(*pair) for pair in partition.location)
    if partition.data is None:
        assert np.ma.getmaskarray(a.read(where, masked=True)).all()
        return
    block = partition.data.read(masked=True)
    for axis, part in enumerate(partition.part):
        assert (isinstance(part, slice) and part.step >= 1) or (isinstance(part, np.ndarray) and part.dtype == np.int64)
        block = block[(slice(None),) * axis + (part,)]
    directions = dict(zip(a.dimensions, a.directions, strict=True))
    for axis, (name, forward) in enumerate(zip(partition.pdimensions, partition.pdirections, strict=True)):
        if directions.get(name, forward) != forward:
            block = np.flip(block, axis)
    kept = [d for d in a.dimensions if d in partition.pdimensions]
    block = block.reshape([n for d, n in zip(partition.pdimensions, block.shape, strict=True) if d in kept])
    names = [d for d in partition.pdimensions if d in kept]
    block = block.transpose([names.index(d) for d in kept]).reshape(partition.shape)
    factor = {"m": 1, "km": 1000, "cm": 0.01}[str(partition.punits)]
    result = a.read(where, masked=True)
    np.testing.assert_array_equal(np.ma.getmaskarray(result), np.ma.getmaskarray(block))
    np.testing.assert_allclose(result.filled(0).astype("f8"), block.filled(0).astype("f8") * factor)


OPERATIONS: dict[str, Any] = {
    "f8": lambda a: a.astype("f8"),
    "f4": lambda a: a.astype(">f4"),
    "i4": lambda a: a.astype("i4"),
    "i8": lambda a: a.astype(np.int64),
    "cm": lambda a: a.to_units("cm"),
    "km": lambda a: a.to_units("km"),
    "inch": lambda a: a.to_units("inch"),
    "[::-1]": lambda a: a.lazy[::-1],
    "[repeats]": lambda a: a.lazy[[0, 4, 4, 1, 3]] if len(a) > 4 else a,
}


@given(st.lists(st.sampled_from(sorted(OPERATIONS)), max_size=5), st.sampled_from(["i2", "f4", "f8"]))
@settings(max_examples=examples(150))
def test_chains_equal_eager_chains(names: list[str], dtype: str) -> None:
    values = np.ma.MaskedArray(np.array([3, -7, 1234, 5, 11, 0, 77]).astype(dtype) / 1, [0, 0, 0, 1, 0, 0, 0]).astype(dtype)
    lazy = eager = known(line(values, units="m"))
    for name in names:
        lazy, eager = OPERATIONS[name](lazy), rewrapped(OPERATIONS[name](eager))
        assert (lazy.dtype, lazy.units, lazy.shape) == (eager.dtype, eager.units, eager.shape)
    result, expected = lazy.read(masked=True), eager.read(masked=True)
    same_masked(result, expected.data, np.ma.getmaskarray(expected))
    assert lazy._known is not None and lazy._known[0].dtype == lazy.dtype
    remembered = np.ma.MaskedArray(*lazy._known) if lazy._known[1] is not None else np.ma.MaskedArray(lazy._known[0])
    same_masked(remembered, expected.data, np.ma.getmaskarray(expected))


def test_lossy_casts_stay_lossy() -> None:
    a = line([1.75, -2.5, 300.25, 4.0])
    same(a.astype("i2").astype("f8")[:], np.array([1, -2, 300, 4.0]))
    same(a.astype("f4").astype("i4").astype("f4")[:], np.array([1, -2, 300, 4], "f4"))
    same(a.astype("?").astype("i1")[:], np.ones(4, "i1"))
    exact = line([2**53 + 1, 1, 2])
    same(exact.astype("f8").astype("i8")[:], np.array([2**53, 1, 2]))
    same(line([1.5, 2.5]).astype("U8")[:], np.array(["1.5", "2.5"], np.dtypes.StringDType()))
    same(line(["1", "2"]).astype("i4")[:], np.array([1, 2], "i4"))


def test_to_units() -> None:
    whole = line([0, 100, 20]).to_units
    with pytest.raises(aa.UnitsError, match="one has units, the other has none"):
        whole("m")
    celsius = line(np.array([0, 100, 20], "i2"), units="degC")
    same(celsius.to_units("K")[:], np.array([273.15, 373.15, 293.15]))
    same(celsius.to_units("degC")[:], np.array([0.0, 100, 20]))
    assert celsius.to_units("K").units == "K"
    same(line(np.array([0, 100, 20], "f4"), units="degC").to_units("K")[:], np.array([273.15, 373.15, 293.15], "f4"))
    days = line(np.array([1, 2]), units="days since 2000-01-01")
    hours = days.to_units("hours since 2000-01-01")
    assert hours.calendar == "standard"
    same(hours[:], np.array([24.0, 48.0]))
    for wrong in ("m", "days", "nonsense"):
        with pytest.raises(aa.UnitsError):
            celsius.to_units(wrong)
    with pytest.raises(aa.UnitsError, match="noleap"):
        days.to_units("hours since 2000-01-01", calendar="noleap")
    for values in (["a"], np.array([True]), np.array([1 + 1j])):
        with pytest.raises(aa.UnitsError):
            line(values, units="degC").to_units("K")


def test_astype_errors_are_raised_at_once() -> None:
    for wrong in ("O", "V4", "nonsense", [("a", "i4")]):
        with pytest.raises(aa.AggregationError, match="dtype"):
            line([1.0]).astype(wrong)
    with pytest.raises(aa.AggregationError, match="do not convert to"):
        line(["a"]).astype("f8")[:]


def test_transpose_and_flip_errors() -> None:
    a = line([1.0, 2.0])
    with pytest.raises(aa.SelectionError, match="once"):
        a.transpose("y")
    with pytest.raises(aa.AggregationError, match="no dimension 'y'"):
        a.flip("y")
    assert a.flip("x").directions == (False,) and a.flip().directions == (False,)
    single = line([1.0])
    assert single.flip("x").directions == (False,) and single.flip("x").flip("x").directions == (True,)


def test_directions_of_lazy_reversal() -> None:
    a = line(np.arange(7))
    for key in (slice(None, None, -1), slice(5, 1, -2), [6, 3, 1]):
        b = a.lazy[key]
        assert b.directions == (False,)
        same(b[:], np.arange(7)[key])
        assert all(
            p.part[0].step >= 1 if isinstance(p.part[0], slice) else (np.diff(p.part[0]) > 0).all() for p in b.partitions
        )
    assert a.lazy[[6, 1, 3]].directions == (True,)


def test_unsorted_indices_become_runs() -> None:
    a = line(np.arange(9))
    b = a.lazy[[7, 8, 0, 2, 2, 3]]
    same(b[:], np.array([7, 8, 0, 2, 2, 3]))
    assert b.partitions.edges[0].tolist() == [0, 2, 4, 5, 6]
    assert [p.location for p in b.partitions] == [((0, 2),), ((2, 4),), ((4, 5),), ((5, 6),)]
    assert [p.part for p in b.partitions] == [(slice(1, 3, 1),), (slice(0, 3, 2),), (slice(2, 3, 1),), (slice(0, 1, 1),)]


@pytest.mark.parametrize(
    ("edges", "index", "error"),
    [
        ([(0, 4)], 0, r"an index for a single partition; write partitions\[\(\)\]"),
        ([(0, 2), (2, 4)], (0, 0), r"one index per dimension for \(2,\) partitions along \('x',\); give 1, not 2"),
        ([(0, 2), (2, 4)], 2, "partition 2 along 'x' is out of range; give an integer from -2 to 1"),
    ],
)
def test_wrong_indices_of_partitions_are_explained(edges: list[tuple[int, int]], index: Any, error: str) -> None:
    pieces = [([edge], SubArray.from_array(np.arange(edge[1] - edge[0]))) for edge in edges]
    with pytest.raises(aa.SelectionError, match=error):
        MasterArray.from_subarrays(pieces, dimensions=("x",)).partitions[index]


def test_part_is_composed() -> None:
    a = MasterArray.from_subarrays([([(0, 20)], SubArray.from_array(np.arange(20)))], dimensions=("x",))
    once = a.lazy[2:18:3]
    assert once.partitions[()].part == (slice(2, 18, 3),) and once.partitions[()].virtual
    twice = once.lazy[::-2]
    assert twice.partitions[()].part == (slice(5, 18, 6),) and twice.directions == (False,)
    irregular = a.lazy[[1, 2, 4, 8]].lazy[1:]
    np.testing.assert_array_equal(irregular.partitions[()].part[0], [2, 4, 8])
    assert not a.lazy[:].partitions[()].virtual
    scalar = a.lazy[[1, 2, 4, 8]].lazy[3]
    assert scalar.partitions[()].part == (slice(8, 9, 1),) and scalar[()] == 8


def test_coordinates_follow() -> None:
    lat = line(np.array([10.0, 0, -10, -20]), units="degrees_north")
    bounds = MasterArray.from_subarrays(
        [([(0, 4), (0, 2)], SubArray.from_array(np.arange(8.0).reshape(4, 2)))], dimensions=("x", "b")
    )
    scalar = MasterArray.from_subarrays([([], SubArray.from_array(2.0))], dimensions=())
    a = replace(line(np.arange(4)), coords={"x": lat, "bounds": bounds, "height": scalar})
    b = a.lazy[::-1].lazy[[0, 2]]
    same(b.coords["x"][:], np.array([-20.0, 0]))
    same(b.coords["bounds"][:], np.array([[6.0, 7], [2, 3]]))
    assert b.coords["height"][()] == 2 and b.coords["x"].directions == b.directions
    assert a.lazy[1].coords["x"].shape == () and a.lazy[1].coords["x"][()] == 0
    assert a.flip("x").coords["x"].directions == (False,)
    assert a.coords["x"].directions == (True,)


def test_no_file_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pieces = []
    for i in range(3):
        path = tmp_path / f"{i}.nc"
        with netCDF4.Dataset(path, "w") as file:
            file.createDimension("x", 4)
            variable = file.createVariable("v", "i2", ("x",))
            variable.units, variable[:] = "m", np.arange(4) + 4 * i
        pieces.append(([(4 * i, 4 * i + 4)], SubArray.from_file(path, "v")))
    a = MasterArray.from_subarrays(pieces, dimensions=("x",))
    kept = [(p, p.read_bytes()) for p in sorted(tmp_path.iterdir())]
    for path, _ in kept:
        path.unlink()

    def refused(*args: Any, **options: Any) -> None:
        raise RuntimeError("a file was touched")

    with monkeypatch.context() as patch:
        for module, name in (("builtins", "open"), ("os", "open"), ("os", "stat")):
            patch.setattr(f"{module}.{name}", refused)
        b = a.lazy[1:].lazy[[3, 2, 9]].flip("x").to_units("cm").astype("i4").transpose("x")
        scalar, text, parts = b.lazy[0], repr(b), [(p.location, p.part) for p in b.partitions]
    assert "partitions" in text and len(parts) == 3
    with pytest.raises(aa.MissingFileError) as caught:
        b[:]
    message = str(caught.value)
    assert "\n" not in message and os.fspath(tmp_path) in message and "'v'" in message and "missing='fill'" in message
    assert replace(b, _access=Access("fill")).read(masked=True).mask.all()
    for path, content in kept:
        path.write_bytes(content)
    same(b[:], np.array([1000, 300, 400], "i4"))
    assert scalar[()] == 1000


def test_selections_of_too_many_runs() -> None:
    a = MasterArray.from_subarrays(
        [([(0, 9000), (0, 9000)], SubArray.from_array(np.zeros((9000, 9000), "i1")))], dimensions=("y", "x")
    )
    order = np.random.default_rng(0).permutation(9000)
    with pytest.raises(aa.SelectionError, match="10000000; sort the indices"):
        _ = a.lazy[order, order]
