"""Time and memory grow with the size of an archive at most in proportion: counted in calls, not timed.

`tests.bench.growth` measures the same steps.
"""

import gc
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from typing import Any, NamedTuple

import pytest

from tests.bench import growth
from tests.bench.growth_steps import STEPS, Place, Step, make, measured
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


class Cost(NamedTuple):
    """What a step costs: functions of Python and C that run, and bytes allocated at the peak."""

    calls: int
    peak: int


def cost_of(step: Step, place: Place) -> Cost:
    """Return what the work of a step costs."""
    given = step.prepare(place)
    gc.collect()
    tracemalloc.start()
    try:
        return Cost(calls_of(lambda: step.work(given), builtin=True), tracemalloc.get_traced_memory()[1])
    finally:
        tracemalloc.stop()


def least(step: Step, places: Sequence[Place], faults: Callable[[list[Cost]], list[str]]) -> list[str]:
    """Return the faults of the costs of a step, lowest of three: threads of earlier tests and late imports allocate, too."""
    step.work(step.prepare(places[0]))  # imports, and caches that stay
    costs = [cost_of(step, place) for place in places]
    for _ in range(2):
        if faults(costs):
            again = [cost_of(step, place) for place in places]
            costs = [Cost(*map(min, one, other)) for one, other in zip(costs, again, strict=True)]
    return faults(costs)


def cases() -> Iterator[Any]:
    for name, step in STEPS.items():
        marks = [pytest.mark.skipif(not find_spec("dask"), reason="needs dask")] if name in ON_DASK else []
        yield from (pytest.param(name, kind, id=f"{name}, {kind}", marks=marks) for kind in step.kinds)


@pytest.mark.parametrize(("name", "kind"), heavy(cases(), but=list(cases())[::16]))
def test_calls_and_bytes_grow_in_proportion(
    name: str, kind: str, folders: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def faults(costs: list[Cost]) -> list[str]:
        result = []
        for (few, more, most), slack in zip(zip(*costs, strict=True), Cost(500, 300_000), strict=True):
            # Twice the size adds at most twice the increase, and 10 %.
            result += [f"{few}, {more}, {most}"] * (most - more > 2.2 * max(more - few, 0) + slack)
        calls = [cost.calls for cost in costs]
        return result + [f"not on columns: {calls}"] * (name in ON_COLUMNS and calls[2] > calls[1] + 500)

    # Slow files would start processes, which need more memory.
    monkeypatch.setattr("aggarray.scan.workers.usual_processes", lambda files: 1)
    assert not least(STEPS[name], folders[kind], faults)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> list[Place]:
    folder, counts = tmp_path_factory.mktemp("many"), [100_000, 200_000]
    make(folder, "partitions", counts)
    return [Place(folder, "partitions", count) for count in counts]


@pytest.mark.parametrize("name", heavy(EACH, but=["sel"]))
def test_bytes_and_calls_of_each_partition(name: str, many: list[Place]) -> None:
    if name in ON_DASK:
        pytest.importorskip("dask.array", reason="needs dask")
    count, most = many[1].count - many[0].count, Cost(*reversed(EACH[name]))

    def faults(costs: list[Cost]) -> list[str]:
        each = [(more - few) / count for few, more in zip(*costs, strict=True)]
        return [f"{cost} of a partition" for cost, allowed in zip(each, most, strict=True) if cost > allowed]

    assert not least(STEPS[name], many, faults)


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
