"""Time to join the arrays of many scanned files by the rules.

Structures are built as a scan returns them: monthly files with latitude, longitude, time, their bounds and forty attributes.
Half and twice the number show whether the time grows linearly.
"""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from tests.bench.harness import Benchmark, Contestant, Size


def _nothing(_folder: Path, _size: Size) -> None:
    """Make no files."""


def _variables(number: int, steps: int) -> list[tuple[str, tuple[str, ...], np.ndarray | None, dict[str, Any]]]:
    """Return (name, dimensions, values, attributes) of the variables of one file."""
    time = np.arange(steps, dtype="f8") + steps * number
    lat, lon = np.linspace(-88.75, 88.75, 72), np.arange(144) * 2.5
    axes = {"time": (time, "days since 1850-01-01"), "lat": (lat, "degrees_north"), "lon": (lon, "degrees_east")}
    names = {"time": "time", "lat": "latitude", "lon": "longitude"}
    result: list[tuple[str, tuple[str, ...], np.ndarray | None, dict[str, Any]]] = []
    for name, (values, units) in axes.items():
        result.append((name, (name,), values, {"units": units, "standard_name": names[name], "bounds": f"{name}_bnds"}))
        result.append((f"{name}_bnds", (name, "bnds"), np.stack([values - 0.5, values + 0.5], -1), {}))
    tas = {"units": "K", "standard_name": "air_temperature", "cell_methods": "time: mean"}
    return [*result, ("tas", ("time", "lat", "lon"), None, tas)]


def _scanned(count: int, steps: int) -> SimpleNamespace:
    from aggarray.aggregate.rules import Rules
    from aggarray.aggregate.stages import aggregate
    from aggarray.aggregate.variables import arrays_of
    from aggarray.formats.base import Structure, Variable
    from aggarray.scan.structure_table import StructureTable

    arrays, table = [], StructureTable()
    for number in np.random.default_rng(0).permutation(count).tolist():
        variables = [
            Variable(
                name,
                np.dtype("f4" if values is None else "f8"),
                (steps, 72, 144) if values is None else values.shape,
                d,
                a,
                values,
            )
            for name, d, values, a in _variables(number, steps)
        ]
        attrs = {**{f"attribute_{n}": f"text {n}" for n in range(40)}, "tracking_id": str(number)}
        structure = Structure(f"/archive/tas_{number:06}.nc", "netCDF4", attrs, tuple(variables), {})
        arrays += arrays_of(table[table.add(structure)])[0]
    return SimpleNamespace(arrays=arrays, work=lambda: aggregate(arrays, Rules()).arrays[0])


def _all(_folder: Path, size: Size) -> SimpleNamespace:
    return _scanned(size["arrays"], size["steps"])


def _half(_folder: Path, size: Size) -> SimpleNamespace:
    return _scanned(size["arrays"] // 2, size["steps"])


def _twice(_folder: Path, size: Size) -> SimpleNamespace:
    return _scanned(size["arrays"] * 2, size["steps"])


def _work(given: Any) -> Any:
    return given.work()


def _times(_given: Any, result: Any) -> dict[str, np.ndarray]:
    return {"time": result.coords["time"][:10]}


_SIZES = {"full": {"arrays": 10_000, "steps": 10}, "tiny": {"arrays": 20, "steps": 10}}

BENCHMARKS = (
    Benchmark(
        "aggregate",
        "scanned files, joined by the rules in random order",
        _SIZES,
        _nothing,
        (
            Contestant("aggarray", _all, _work, _times),
            Contestant("aggarray, half as many", _half, _work, _times),
            Contestant("aggarray, twice as many", _twice, _work, _times),
        ),
    ),
)
