"""Sizes of stored chunks, and one writer per chunk."""

from math import ceil, prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggarray.dap import Block, Cyclic, Distribution
from aggarray.mpi.schedule.chunk_grid import chunk_layout

pytestmark = pytest.mark.quick

_MOST = 16 << 20


@st.composite
def distributions(draw: st.DrawFn) -> Distribution:
    """Distributions of blocks and cyclic dimensions over up to four processes."""
    result = []
    for _ in range(draw(st.integers(1, 3))):
        size, nprocs = draw(st.integers(0, 20_000)), draw(st.integers(1, 4))
        inner = draw(st.lists(st.integers(0, size), min_size=nprocs - 1, max_size=nprocs - 1))
        kinds = [Block.even(size, nprocs), Block([0, *sorted(inner), size]), Cyclic(size, nprocs)]
        result.append(draw(st.sampled_from(kinds)))
    return Distribution(tuple(result))


@given(distributions(), st.sampled_from([1, 4, 8]))
def test_every_chunk_has_one_writer(distribution: Distribution, itemsize: int) -> None:
    chunks, blocks = chunk_layout(distribution, itemsize)
    assert blocks.shape == distribution.shape and blocks.grid == distribution.grid
    assert prod(chunks) * itemsize <= _MOST or max(chunks) == 1
    for side, one in zip(chunks, blocks.maps, strict=True):
        assert isinstance(one, Block)
        assert all(cut % side == 0 or cut == one.size for cut in one.bounds.tolist())
        assert (np.diff(one.bounds) >= 0).all()


@pytest.mark.parametrize(
    ("shape", "grid"), [((3659, 720), (1, 1)), ((4_000_037,), (1,)), ((14_611, 180, 360), (1, 2, 2)), ((7919, 1009), (3, 1))]
)
def test_prime_sizes_have_few_chunks(shape: tuple[int, ...], grid: tuple[int, ...]) -> None:
    chunks, _ = chunk_layout(Distribution.regular(shape, "b" * len(shape), grid), 8)
    count = prod(ceil(n / side) for n, side in zip(shape, chunks, strict=True))
    assert count <= 8 * max(prod(shape) * 8 // _MOST, prod(grid))
