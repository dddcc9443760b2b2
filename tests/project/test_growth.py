"""Time and memory grow with the size of an archive at most in proportion: counted in calls, not timed.

`tests.bench.growth` measures the same steps.
"""

import functools
import gc
import tracemalloc
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import pytest

from tests.bench import growth
from tests.bench.growth_steps import STEPS, Place, make, measured
from tests.support.calls import calls_of
from tests.support.examples import heavy

SIZES = [1000, 2000, 4000]
#: Steps whose functions run as often for any number of partitions: they work on columns.
ON_COLUMNS = {"open the index", "sel", "plan a slice of 50", "to_xarray", "repr", "HTML of a notebook"}
#: Steps that need dask.
ON_DASK = {"to_dask", "dask alone", "to_xarray"}
#: Most bytes, and functions, that each of many partitions adds: long columns are worked on in blocks.
EACH = {
    "sel": (16, 0.01),
    "to_dask": (48, 0.01),
    "to_xarray": (48, 0.01),
    "repr": (32, 0.01),
    "Distribution.from_partitions": (128, 0.01),
    "HTML of a notebook": (32, 0.01),
    "HTML page": (100, 2.0),
    "append 100 files": (420, 0.5),
    "save": (450, 6.0),
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    made = {"files": [100, 200, 400], "partitions": SIZES}
    result = {}
    for kind, counts in made.items():
        folder = tmp_path_factory.mktemp(kind)
        make(folder, kind, counts)
        result[kind] = [Place(folder, kind, count) for count in counts]
    return result


#: Counts functions of Python and C.
all_calls = functools.partial(calls_of, builtin=True)


def peak_of(call: Callable[[], object]) -> int:
    """Return the bytes that a call allocates at its peak."""
    gc.collect()
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def cases() -> Iterator[Any]:
    for name, step in STEPS.items():
        marks = [pytest.mark.skipif(not find_spec("dask"), reason="needs dask")] if name in ON_DASK else []
        yield from (pytest.param(name, kind, id=f"{name}, {kind}", marks=marks) for kind in step.kinds)


@pytest.mark.parametrize(("name", "kind"), heavy(cases(), but=list(cases())[::16]))
def test_calls_and_bytes_grow_in_proportion(name: str, kind: str, folders: dict[str, Any]) -> None:
    step, places = STEPS[name], folders[kind]
    step.work(step.prepare(places[0]))  # imports, and caches that stay
    for cost, slack in ((all_calls, 500), (peak_of, 300_000)):
        costs = []
        for place in places:
            # The lower of two: threads of earlier tests and late imports allocate, too.
            costs.append(min(cost(functools.partial(step.work, step.prepare(place))) for _ in range(2)))
        # Twice the size adds at most twice the increase, and 10 %.
        assert costs[2] - costs[1] <= 2.2 * max(costs[1] - costs[0], 0) + slack, (cost.__name__, costs)
        if name in ON_COLUMNS and cost is all_calls:
            assert costs[2] <= costs[1] + 500, costs


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> list[Place]:
    folder, counts = tmp_path_factory.mktemp("many"), [100_000, 200_000]
    make(folder, "partitions", counts)
    return [Place(folder, "partitions", count) for count in counts]


@pytest.mark.parametrize("name", heavy(EACH, but=["sel"]))
def test_bytes_and_calls_of_each_partition(name: str, many: list[Place]) -> None:
    if name in ON_DASK:
        pytest.importorskip("dask.array", reason="needs dask")
    step = STEPS[name]
    step.work(step.prepare(many[0]))  # imports, and caches that stay
    for cost, most in zip((peak_of, all_calls), EACH[name], strict=True):
        few, more = (cost(functools.partial(step.work, step.prepare(place))) for place in many)
        assert (more - few) / (many[1].count - many[0].count) <= most, (cost.__name__, few, more)


def test_a_step_is_measured(folders: dict[str, Any]) -> None:
    cost = measured("sel", folders["files"][0])
    assert cost.keys() == {"seconds", "processor", "bytes", "peak"}
    assert 0 < cost["seconds"] < 60 and 1e6 < cost["peak"] < 1e10


def costs_of(seconds: Callable[[int], float]) -> dict[int, list[dict[str, float]]]:
    return {n: [{"seconds": s, "processor": s, "bytes": s * 1e6, "peak": s * 1e9}] for n in SIZES for s in [seconds(n)]}


def test_exponents_leave_the_constant_out() -> None:
    for power in (0.5, 1.0, 1.5):
        fitted = growth.exponent({n: 7.0 + (n / 1000) ** power for n in (1, 1000, 10_000, 100_000)}, 0.01)
        assert fitted == pytest.approx(power, abs=0.01)
    assert growth.exponent({1: 5.0, 1000: 5.0, 10_000: 5.0}, 0.01) is None


def test_limits_that_are_not_kept_are_named() -> None:
    linear = growth.Growth("files", "save", costs_of(lambda n: n / 1000))
    assert growth.broken([linear]) == []
    text = growth.tables([linear])
    assert "| save | 1 | 2 | 4 | 1.00 |" in text and "Every limit is kept." in text
    square = growth.Growth("files", "save", costs_of(lambda n: (n / 1000) ** 2))
    assert growth.broken([square])[0].startswith("save, files: the exponent of processor is 1.46")
    opened = growth.Growth("partitions", "open the index", costs_of(lambda n: n / 900))
    assert growth.broken([opened]) == ["open the index, 4,000 partitions: 4.44 s, at most 4,444 MB"]
    planned = growth.Growth("partitions", "plan a slice of 50", costs_of(lambda n: 0.006))
    assert growth.broken([planned]) == ["plan a slice of 50, 4,000 partitions: 6.0 ms"]
