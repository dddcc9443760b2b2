"""Pictures of many partitions, made in blocks, show the same as those of all partitions at once."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from aggarray import MasterArray, SubArray
from aggarray.aggregate.gaps import coordinate_gaps
from aggarray.display import cells, timeline
from aggarray.display.cells import cells_of, spans, virtual_count

pytestmark = pytest.mark.quick


def grid(times: np.ndarray, holes: Any = ()) -> MasterArray:
    """Return an array of one time per partition, in three partitions of another dimension."""
    pieces = [
        (((n, n + 1), (m, m + 1)), SubArray.from_array(np.zeros((1, 1)), dimensions=("time", "x")))
        for n in range(len(times))
        for m in range(3)
        if (n, m) not in holes
    ]
    array = MasterArray.from_subarrays(pieces, dimensions=("time", "x"), shape=(len(times), 3))
    time = SubArray.from_array(times, dimensions=("time",), units="hours since 2000-01-01")
    axis = MasterArray.from_subarrays([([(0, len(times))], time)], dimensions=("time",), name="time")
    return replace(array, coords={"time": axis})


def shown(array: MasterArray) -> Any:
    merged = cells_of(array, (7, 2))
    line = timeline.timeline(array)
    assert line is not None
    columns = merged.files, merged.virtual, merged.holes, merged.templates, *merged.starts
    return [c.tolist() for c in columns], line.covered, line.holes, line.gaps, line.dates, virtual_count(array._matrix)


@pytest.mark.parametrize("block", [1, 2, 3, 10, 31])
def test_blocks_show_the_same(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    times = np.delete(np.arange(40.0), [5, 6, 17, 33])
    holes = [(3, 0), (3, 1), (3, 2), (4, 0), (10, 1), (11, 1), (29, 2), (30, 0), (30, 1), (30, 2)]
    array = grid(times, holes)
    expected = shown(array)
    assert len(expected[1]) > 3 and len(expected[2]) > 2
    monkeypatch.setattr(cells, "BLOCK", block)
    monkeypatch.setattr(timeline, "BLOCK", block)
    assert shown(array) == expected


def test_spans_of_some_partitions_are_those_of_all() -> None:
    edges, values = np.array([0, 2, 3, 3, 7, 9]), np.array([0.0, 1, 2, 6, 7, 8, 9, 20, 21])
    own = spans(edges, values)
    begin, end = own.at(np.arange(5))
    for some in ([0], [4], [1, 3], [3, 4]):
        assert np.array_equal(own.at(np.array(some)), (begin[some], end[some]))
    assert own.limits() == (begin[0], end[4])


def test_regular_times_are_judged_by_the_first() -> None:
    regular = grid(np.arange(0, 3000, 6.0)).coords["time"]
    found = coordinate_gaps(regular, regular)
    assert found is not None and len(found[0]) == 100 and not found[1]
    broken = grid(np.delete(np.arange(0, 3000, 6.0), 400)).coords["time"]
    found = coordinate_gaps(broken, broken)
    assert found is not None and len(found[0]) == 499 and [(gap.after, gap.count) for gap in found[1]] == [(399, 1)]
