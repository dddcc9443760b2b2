"""Regular chunk sizes: equal, at stored chunks where they can be."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggarray.partition.chunk_sizes import AxisCuts
from aggarray.partition.regular_sizes import regular_sizes

pytestmark = pytest.mark.quick


def axis(lengths: list[int], side: int | None = None, free: bool = False) -> AxisCuts:
    """Return an axis of partitions, cut at each ``side`` positions of each of them."""
    edges = np.concatenate([[0], np.cumsum(lengths)])
    cuts = [first + np.arange(side, n, side) for first, n in zip(edges, lengths, strict=False) if side]
    return AxisCuts(edges, np.concatenate([np.zeros(0, int), *cuts]), np.full(len(lengths), free))


def cut_chunks(along: AxisCuts, sizes: tuple[int, ...]) -> int:
    """Return the number of stored chunks that are cut."""
    allowed = {*along.edges.tolist(), *along.cuts.tolist()}
    return sum(end not in allowed for end in np.cumsum(sizes).tolist())


MONTHS = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]


@pytest.mark.parametrize(
    ("along", "nbytes", "sizes"),
    [
        (axis([120] * 4), 240, (240, 240)),
        (axis([120] * 4), 300, (240, 240)),
        (axis([120] * 4), 119, (120,) * 4),  # one stored chunk
        (axis([120] * 4), 1000, (480,)),
        (axis(MONTHS, 1), 100, (92, 92, 92, 89)),
        (axis(MONTHS, free=True), 100, (92, 92, 92, 89)),
        (axis(MONTHS), 365, (365,)),
        (axis([365, 366, 365, 365], 5), 500, (487, 487, 487)),
        (axis([0]), 10, (0,)),
    ],
)
def test_one_dimension(along: AxisCuts, nbytes: int, sizes: tuple[int, ...]) -> None:
    (found,) = regular_sizes([along], 1, nbytes)
    if len(found) == 3:  # years: no size ends at stored chunks
        assert len(set(found[:-1])) == 1 and max(found) <= nbytes and cut_chunks(along, found) <= cut_chunks(along, sizes)
    else:
        assert found == sizes


def test_months_cut_as_few_as_possible() -> None:
    for nbytes in (31, 60, 95, 200):
        (sizes,) = regular_sizes([axis(MONTHS)], 1, nbytes)
        others = [tuple([n] * (365 // n) + [365 % n]) for n in range(max(1, nbytes // 2), nbytes + 1) if 365 % n]
        assert cut_chunks(axis(MONTHS), sizes) <= min(cut_chunks(axis(MONTHS), other) for other in others)


def test_contiguous_values_are_not_cut_within_a_file() -> None:
    """Chunks take all values of a step before they take more steps: each file is read by few chunks."""
    time, lat, lon = axis([1] * 10_000, free=True), axis([18], free=True), axis([36], free=True)
    assert [sizes[0] for sizes in regular_sizes([time, lat, lon], 4, 1 << 23)] == [2500, 18, 36]
    assert [sizes[0] for sizes in regular_sizes([time, lat, lon], 4, 4 * 36 * 9)] == [1, 9, 36]
    # Stored chunks are joined along time first.
    chunked = axis([1] * 10_000), axis([18], 9), axis([36])
    assert [sizes[0] for sizes in regular_sizes(chunked, 4, 4 * 36 * 9 * 10_000)] == [10_000, 9, 36]


def test_several_dimensions() -> None:
    time, lat, lon = axis([12] * 5, 4), axis([90], 45), axis([180], 60)
    assert regular_sizes([time, lat, lon], 4, 4 * 4 * 45 * 60) == ((4,) * 15, (45, 45), (60, 60, 60))
    assert regular_sizes([time, lat, lon], 4, 4 * 20 * 45 * 60) == ((20, 20, 20), (45, 45), (60, 60, 60))
    assert regular_sizes([time, lat, lon], 4, 4 * 60 * 45 * 180) == ((60,), (45, 45), (180,))
    assert regular_sizes([], 4, 100) == ()


@given(st.lists(st.integers(1, 40), min_size=1, max_size=12), st.integers(0, 12), st.booleans(), st.integers(1, 300))
def test_any_partitions(lengths: list[int], side: int, free: bool, nbytes: int) -> None:
    along = axis(lengths, side or None, free)
    (sizes,) = regular_sizes([along], 1, nbytes)
    assert sum(sizes) == sum(lengths) and len(set(sizes[:-1])) <= 1 and sizes[-1] <= sizes[0]
    largest = 1 if free else int(np.diff(np.union1d(along.edges, along.cuts)).max())
    assert sizes[0] <= max(nbytes, largest)
    aligned = [n for n in range(1, max(nbytes, largest) + 1) if not cut_chunks(along, (*[n] * (sum(lengths) // n),))]
    if aligned and not free:
        assert cut_chunks(along, sizes) == 0


def test_a_million_partitions() -> None:
    along = axis([31, 28, 31, 30] * 250_000)
    (sizes,) = regular_sizes([along], 1, 3000)
    assert sizes[0] == 3000  # 25 times the sum of four months
