"""Tests of master arrays from sub-arrays at given locations, and of the errors of pieces that do not fit."""

import tracemalloc
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import aggarray as aa
from aggarray import MasterArray, SubArray
from tests.support.tilings import same, tilings

pytestmark = pytest.mark.quick

TEXT = np.dtypes.StringDType()


def piece(*shape: int, start: int = 0, dtype: str = "f8", **options: Any) -> SubArray:
    return SubArray.from_array(np.arange(start, start + int(np.prod(shape)), dtype=dtype).reshape(shape), **options)


def refused(kind: type[Exception], pieces: list[Any], *words: str, **options: Any) -> None:
    """Expect an error of one line with all these words."""
    with pytest.raises(kind) as caught:
        MasterArray.from_subarrays(pieces, **options)
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message, message


def test_misaligned_edges_make_virtual_partitions() -> None:
    pieces = [
        ([(0, 2), (0, 3)], piece(2, 3)),
        ([(2, 5), (0, 1)], piece(3, 1, start=10)),
        ([(2, 5), (1, 3)], piece(3, 2, start=20)),
    ]
    a = MasterArray.from_subarrays(pieces, dimensions=("y", "x"), name="v")
    assert (a.shape, a.pmshape, a.pmdimensions, a.name) == ((5, 3), (2, 2), ("y", "x"), "v")
    assert [e.tolist() for e in a.partitions.edges] == [[0, 2, 5], [0, 1, 3]]
    first, second = a.partitions[0, 0], a.partitions[0, 1]
    assert first.virtual and first.part == (slice(0, 2, 1), slice(0, 1, 1)) and first.location == ((0, 2), (0, 1))
    assert second.part == (slice(0, 2, 1), slice(1, 3, 1)) and second.shape == (2, 2)
    assert not a.partitions[1, 0].virtual and a.partitions[1, 1].index == (1, 1) and not a.partitions[-1, -1].virtual
    expected = np.vstack([np.arange(6.0).reshape(2, 3), np.hstack([[[10.0], [11], [12]], np.arange(20.0, 26).reshape(3, 2)])])
    same(a[:], expected)


def test_reversed_and_transposed_pieces() -> None:
    source = np.arange(6.0).reshape(2, 3)
    turned = SubArray.from_array(source[::-1].T, dimensions=("x", "y"), directions=(True, False), units="km")
    a = MasterArray.from_subarrays([([(0, 2), (0, 3)], turned)], dimensions=("y", "x"), units="m")
    same(a[:], source * 1000)
    cell = a.partitions[()]
    assert (cell.pdimensions, cell.pdirections, cell.punits, cell.pcalendar) == (("x", "y"), (True, False), "km", None)
    assert cell.part == (slice(0, 3, 1), slice(0, 2, 1)) and not cell.virtual
    down = MasterArray.from_subarrays([([(0, 2), (0, 3)], turned)], dimensions=("y", "x"), directions=(False, True))
    same(down[:], source[::-1])
    assert down.units == "km"
    named = SubArray.from_array(source, dimensions=("dim_0", "dim_1"))
    same(MasterArray.from_subarrays([([(0, 3), (0, 2)], named)], dimensions=("dim_1", "dim_0"))[:], source.T)


def test_part_counts_in_the_direction_of_the_sub_array() -> None:
    down = SubArray.from_array(np.arange(10.0), dimensions=("x",), directions=(False,))
    a = MasterArray.from_subarrays([([(0, 10)], down)], dimensions=("x",)).lazy[1:4]
    assert a.partitions[()].part == (slice(6, 9, 1),)
    same(a[:], np.array([8.0, 7, 6]))


def test_holes_are_missing_partitions() -> None:
    a = MasterArray.from_subarrays([([(2, 4)], piece(2))], dimensions=("x",), shape=(6,))
    assert a.pmshape == (3,) and [p.data is None for p in a.partitions] == [True, False, True]
    hole = a.partitions[0]
    assert (hole.location, hole.shape, hole.virtual, hole.index) == (((0, 2),), (2,), False, (0,))
    np.testing.assert_array_equal(a[:], [np.nan, np.nan, 0, 1, np.nan, np.nan])
    empty = MasterArray.from_subarrays([], dimensions=("x",), shape=(3,), dtype="i2", units="m")
    same(empty[:], np.full(3, -32767, "i2"))
    assert empty.units == "m" and len(empty.partitions) == 1 and empty.partitions[()].data is None


def test_overlap_names_both_pieces(tmp_path: Path) -> None:
    path = tmp_path / "f.nc"
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("x", 4)
        file.createVariable("tas", "f4", ("x",))[:] = 0
    pieces = [([(0, 3)], piece(3)), ([(4, 6)], piece(2)), ([(2, 6)], SubArray.from_file(path, "tas"))]
    words = ("piece 0 (in memory)", f"piece 2 ({path}, variable 'tas')", "x 2:3", "leave one out")
    refused(aa.AggregationError, pieces, *words, dimensions=("x",))
    twice = [([], piece())] * 2
    refused(aa.AggregationError, twice, "piece 0", "piece 1", "overlap", dimensions=())


@given(st.data())
def test_overlaps_are_found(data: st.DataObject) -> None:
    count_of_pairs = 2 * data.draw(st.integers(2, 4))
    pairs = [sorted(data.draw(st.tuples(st.integers(0, 6), st.integers(0, 6)))) for _ in range(count_of_pairs)]
    boxes = [tuple(map(tuple, pairs[i : i + 2])) for i in range(0, len(pairs), 2)]
    count = np.zeros((6, 6), int)
    for (a, b), (c, d) in boxes:
        count[a:b, c:d] += 1
    pieces = [(box, piece(*(stop - start for start, stop in box))) for box in boxes]
    if (count > 1).any():
        with pytest.raises(aa.AggregationError, match="overlap"):
            MasterArray.from_subarrays(pieces, dimensions=("y", "x"))
    else:
        array = MasterArray.from_subarrays(pieces, dimensions=("y", "x"), shape=(6, 6))
        np.testing.assert_array_equal(array.read(masked=True).mask, count == 0)


def test_too_many_partitions_are_refused() -> None:
    n = 3300
    diagonal = [([(i, i + 1), (i, i + 1), (0, 2)], piece(1, 1, 2)) for i in range(n)]
    words = ("y (3299 cuts), x (3299 cuts)", "more than 10000000", "align")
    refused(aa.AggregationError, diagonal, *words, dimensions=("y", "x", "z"))


def test_zero_length_and_zero_dimensions() -> None:
    scalar = MasterArray.from_subarrays([([], piece(start=7))], dimensions=())
    assert (scalar.shape, scalar.pmshape, scalar[()].tolist(), scalar[...].shape) == ((), (), 7.0, ())
    assert MasterArray.from_subarrays([], dimensions=())[()] != 0
    one = MasterArray.from_subarrays([([(0, 1)], piece(start=7))], dimensions=("x",))
    assert one[:].tolist() == [7.0]
    gone = MasterArray.from_subarrays([([], piece(1, 1, start=7))], dimensions=())
    assert gone[()] == 7.0
    empty = MasterArray.from_subarrays([([(0, 0), (0, 3)], piece(0, 3))], dimensions=("t", "x"))
    assert empty[:].shape == (0, 3) and empty.partitions[()].data is not None and empty[:, ::-1].shape == (0, 3)
    split = MasterArray.from_subarrays(
        [([(0, 0), (0, 2)], piece(0, 2)), ([(0, 0), (2, 5)], piece(0, 3))], dimensions=("t", "x")
    )
    assert split.lazy[:, 1:].flip("x").transpose()[...].shape == (4, 0) and split.flip().directions == (False, False)
    among = MasterArray.from_subarrays([([(0, 0)], piece(0)), ([(0, 2)], piece(2))], dimensions=("x",))
    assert among.pmshape == () and among[:].tolist() == [0, 1]


def test_huge_shapes_take_no_memory() -> None:
    huge = 2**40
    pieces = [([(0, 2), (5, 6)], piece(2, 1)), ([(huge - 3, huge), (7, 9)], piece(3, 2))]
    tracemalloc.start()
    a = MasterArray.from_subarrays(pieces, dimensions=("y", "x"), shape=(huge, huge))
    b = a.lazy[1 : huge - 1 : 2].transpose().flip("x").astype("f4").lazy[:, -1]
    parts = [p.location for p in b.partitions]
    corner = a[huge - 2 :, 7:9]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert a.size == huge**2 and a.nbytes == 8 * huge**2 and len(a) == huge and len(parts) > 1
    same(corner, np.array([[2.0, 3], [4, 5]]))
    assert peak < 3_000_000
    assert b[huge - 8 - 1] == 3.0 or not np.isnan(b[huge - 10 : huge]).all()


def test_units_calendars_and_dtypes_differ() -> None:
    pieces = [
        ([(0, 2)], piece(2, dtype="i2", units="days since 2000-01-01")),
        ([(2, 4)], piece(2, dtype=">i4", units="hours since 2000-01-03", calendar="gregorian")),
        ([(4, 5)], piece(1, dtype="f4", units="days since 2000-01-01", calendar="proleptic_gregorian")),
    ]
    a = MasterArray.from_subarrays(pieces, dimensions=("x",))
    assert (a.units, a.calendar, a.dtype) == ("days since 2000-01-01", "standard", np.dtype("f8"))
    same(a[:], np.array([0, 1, 2, 2 + 1 / 24, 0]))
    exact = MasterArray.from_subarrays(pieces[:2], dimensions=("x",), units="hours since 2000-01-01")
    same(exact[:], np.array([0, 24, 48, 49], "i4"))
    inexact = MasterArray.from_subarrays(pieces[:2], dimensions=("x",))
    assert inexact.dtype == np.dtype("f8")
    wrong = [pieces[0], ([(2, 4)], piece(2, units="days since 2000-01-01", calendar="360_day"))]
    refused(aa.UnitsError, wrong, "piece 1 (in memory)", "360_day", "standard", dimensions=("x",))
    refused(aa.UnitsError, [([(0, 2)], piece(2, units="K"))], "piece 0", "'m'", dimensions=("x",), units="m")


@pytest.mark.parametrize(
    ("dtypes", "common"),
    [
        (("i1", ">i2"), "i2"),
        (("u1", "i1"), "i2"),
        (("f4", "i4"), "f8"),
        (("f2", "f4"), "f4"),
        (("?", "i1"), "i1"),
        (("f4", "c8"), "c8"),
        (("M8[D]", "M8[s]"), "M8[s]"),
        (("U3", TEXT), TEXT),
    ],
)
def test_mixtures_of_dtypes(dtypes: tuple[Any, ...], common: Any) -> None:
    parts = [np.ones(2, "i1").astype(d) for d in dtypes]
    a = MasterArray.from_subarrays(
        [([(2 * i, 2 * i + 2)], SubArray.from_array(p)) for i, p in enumerate(parts)], dimensions=("x",)
    )
    native = [p.astype(TEXT) if p.dtype.kind == "U" else p for p in parts]
    same(a[:], np.concatenate(native).astype(common))


def test_pieces_that_do_not_fit() -> None:
    bad = aa.AggregationError
    refused(bad, [([(0, 3)], piece(2))], "piece 0", "x 0:3", "size 3", "size 2", "give", dimensions=("x",))
    refused(bad, [([(0, 3)], piece(3, 2, dimensions=("x", "y")))], "{'y': 2}", "size 1", dimensions=("x",))
    refused(bad, [([(0, 3), (0, 1)], piece(3))], "piece 0", "location", dimensions=("x",))
    refused(bad, [([(0, 1)], piece(1)), ([(1,)], piece(1))], "piece 1", "location", dimensions=("x",))
    for location in ([], [(0.5, 1)], None, [(0, "a")], 3):
        refused(bad, [(location, piece(1))], "piece 0", "location", "(start, stop)", dimensions=("x",))
    refused(bad, [([(3, 1)], piece(2))], "0 <= start <= stop", dimensions=("x",))
    refused(bad, [([(-1, 1)], piece(2))], "piece 0", dimensions=("x",))
    refused(bad, [([(0, 2)], piece(2))], "ends at 2 along x", "size 1", dimensions=("x",), shape=(1,))
    refused(bad, [([(0, 2)], piece(2))], "shape", dimensions=("x",), shape=(1, 2))
    refused(bad, [([(0, 2), (0, 2)], piece(2, 2))], "once", dimensions=("x", "x"))
    refused(bad, [([(0, 2)], piece(2))], "directions", dimensions=("x",), directions=(True, False))
    refused(bad, [], "neither pieces nor a shape", dimensions=("x",))
    refused(bad, [([(0, 2)], piece(2))], "dtype", dimensions=("x",), dtype="O")
    for wrong in (np.ones(2), ([(0, 2)],), ([(0, 2)], np.ones(2)), None):
        refused(bad, [wrong], "piece 0", "SubArray.from_array", dimensions=("x",))
    assert MasterArray.from_subarrays([([(0, 2)], piece(2, dimensions="time"))], dimensions="time").dimensions == ("time",)
    mixed = [([(0, 1)], SubArray.from_array(["a"])), ([(1, 2)], piece(1))]
    refused(bad, mixed, "no common data type", "float64", dimensions=("x",))
    times = [([(0, 1)], SubArray.from_array(np.array([1], "M8[s]"))), ([(1, 2)], piece(1))]
    refused(bad, times, "no common data type", dimensions=("x",))


def test_requested_dtype_and_fill_value() -> None:
    a = MasterArray.from_subarrays([([(1, 3)], piece(2, dtype="f8"))], dimensions=("x",), dtype=">i2", fill_value=-1)
    same(a[:], np.array([-1, 0, 1], "i2"))
    assert a.fill_value == -1 and a.dtype.isnative
    b = MasterArray.from_subarrays([([(1, 3)], SubArray.from_array([5, 6], fill_value=5))], dimensions=("x",))
    assert b.fill_value == 5 and b.read(masked=True).mask.tolist() == [True, True, False]


def test_errors_of_partition_indices() -> None:
    a = MasterArray.from_subarrays([([(0, 2)], piece(2)), ([(2, 4)], piece(2))], dimensions=("x",))
    pm = a.partitions
    assert (pm.shape, pm.dimensions, len(pm), repr(pm)) == ((2,), ("x",), 2, "<aggarray.PartitionMatrix 2 x, 0 missing>")
    assert pm[1].location == pm[-1].location == ((2, 4),) and pm[np.int64(1),].index == (1,)
    assert not pm.edges[0].flags.writeable
    for wrong in (2, -3, (0, 0), slice(0, 1), True, "x"):
        with pytest.raises(aa.SelectionError):
            pm[wrong]


@given(st.data())
def test_partitions_cover_the_array(data: st.DataObject) -> None:
    a = data.draw(tilings()).master()
    seen = np.zeros(a.shape, int)
    cells = list(a.partitions)
    assert len(cells) == len(a.partitions) and [c.index for c in cells] == [index for index in np.ndindex(a.pmshape)]
    for cell in cells:
        assert a.partitions[cell.index].location == cell.location
        seen[tuple(slice(*pair) for pair in cell.location)] += 1
    assert (seen == 1).all()
    for pair, n in zip(a.partitions.edges, a.shape, strict=True):
        assert pair[0] == 0 and pair[-1] == n
