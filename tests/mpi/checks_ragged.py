"""Checks of movements of rows and text.

All processes run them together.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pytest

import aggarray as aa
from aggarray.dap import Block, Distribution
from aggarray.memory import Ragged
from aggarray.mpi import AllSumReduce, Broadcast, HaloExchange, ProcessGroup, RaggedRepartition, Repartition, local, reduce
from aggarray.mpi import open as open_together
from tests.mpi.checks import random_map, section

TEXT = np.dtypes.StringDType()


def words(count: int, rng: np.random.Generator) -> np.ndarray:
    """Return text of many lengths, with characters of several bytes."""
    return np.array(["né€𝄞"[: rng.integers(5)] * int(rng.integers(9)) for _ in range(count)], TEXT)


def check_texts(root: ProcessGroup) -> None:
    """Text is moved unchanged between any distributions."""
    rng = np.random.default_rng(5)
    for shape in ((0,), (9,), (5, 4)):
        full = words(int(np.prod(shape)), rng).reshape(shape)
        grid = (root.size, *([1] * (len(shape) - 1)))
        source, target = (
            Distribution(tuple(random_map(n, p, rng) for n, p in zip(shape, grid, strict=True))) for _ in range(2)
        )
        moved = Repartition(root, root, source, target)(section(full, source, root.rank or 0))
        assert moved.dtype == TEXT
        assert moved.tolist() == section(full, target, root.rank or 0).tolist()
    told = Broadcast(root.include([0]), root)(words(6, np.random.default_rng(8)).reshape(2, 3))
    assert told.tolist() == words(6, np.random.default_rng(8)).reshape(2, 3).tolist()
    with pytest.raises(aa.ExchangeError, match="from_text"):
        AllSumReduce(root, axes_keep=())(words(3, rng))
    with pytest.raises(aa.ExchangeError, match="from_text"):
        HaloExchange(root, Distribution((Block.even(2 * root.size, root.size),)))(words(2, rng))


def check_rows(root: ProcessGroup) -> None:
    """Rows are moved, empty ones too, to other groups and back."""
    rng = np.random.default_rng(6)
    for count in (0, 3, 40):
        full = Ragged.from_rows([rng.random(int(rng.integers(5))) for _ in range(count)], float)
        source, target = (
            Distribution((Block([0, *np.sort(rng.integers(0, count + 1, root.size - 1)).tolist(), count]),)) for _ in range(2)
        )
        receivers = root.include(range(root.size)[::-1])
        move = RaggedRepartition(root, receivers, source, target)
        mine, expected = (
            full[slice(*d.maps[0].bounds[rank : rank + 2].tolist())]  # type: ignore[attr-defined]
            for d, rank in ((source, root.rank or 0), (target, receivers.rank or 0))
        )
        moved = move(mine)
        assert moved.tolist() == expected.tolist()
        assert move.adjoint(moved).tolist() == mine.tolist()
    one = root.include([root.size - 1])
    gathered = RaggedRepartition(root, one, source, Distribution((Block([0, count]),)))(mine)
    assert gathered.tolist() == (full.tolist() if one.active else [])
    with pytest.raises(aa.ExchangeError, match="Ragged"):
        move(mine.flat)
    with pytest.raises(aa.ExchangeError, match="blocks"):
        RaggedRepartition(root, root, source, Distribution.regular((count,), "c", (root.size,)))


def check_reading_rows(root: ProcessGroup, folder: Path) -> None:
    """Each process reads its rows; one process reads text."""
    agg = open_together([folder / "rows.nc"], root)
    a, names = agg["v"], agg["name"]
    distribution = Distribution.from_partitions(a, root.size)
    mine = local(a, distribution, root)
    bounds = distribution.maps[0].bounds  # type: ignore[attr-defined]
    assert mine.ragged.tolist() == a[slice(*bounds[mine.rank : mine.rank + 2].tolist())].tolist()
    sums = RaggedRepartition(root, root, distribution, Distribution((Block.even(len(a), root.size),)))(mine)
    assert sums.flat.dtype == a.dtype
    check_reductions(agg["v_int"], root)
    for how in (Distribution.regular(names.shape, "c", (root.size,)), Distribution((Block.even(len(names), root.size),))):
        assert local(names, how, root).buffer.tolist() == section(names[:], how, root.rank or 0).tolist()


def check_reductions(a: Any, root: ProcessGroup) -> None:
    """Reductions of samples ignore missing values."""
    mine = local(a, Distribution.from_partitions(a, root.size), root)
    full: Any = a.read(masked=True).flat
    assert full.mask.any()
    for part in (mine, mine.samples):
        for operation in ("sum", "min", "count"):
            result = reduce(part, operation, "obs", root).buffer.item()
            assert result == getattr(full, operation)(), operation
    with pytest.raises(aa.ExchangeError, match=f"the array has {a.flat.dimensions[0]}"):
        reduce(mine, "sum", "profile", root)


def make_rows(folder: Path, texts: int) -> None:
    """Write a file of rows and text."""
    rng = np.random.default_rng(7)
    with netCDF4.Dataset(folder / "rows.nc", "w") as file:
        counts = rng.integers(0, 6, 30)
        for name, size in (("profile", len(counts)), ("obs", counts.sum()), ("y", texts)):
            file.createDimension(name, size)
        rows = file.createVariable("size", "i4", ("profile",))
        rows.sample_dimension = "obs"
        rows[:] = counts
        file.createVariable("v", "f4", ("obs",))[:] = rng.random(counts.sum())
        full = rng.integers(0, 9, counts.sum())
        file.createVariable("v_int", "i2", ("obs",), fill_value=-99)[:] = np.where(full == 3, -99, full)
        file.createVariable("name", str, ("y",))[:] = words(texts, rng).astype(object)


RAGGED_CHECKS: tuple[Callable[[ProcessGroup], None], ...] = (check_texts, check_rows)
