"""How time and memory of each step grow with the size of an archive: ``python -m tests.bench growth``.

Archives of `SIZES` files, and indexes of as many partitions, are made once: the step `save` writes the index that later steps
open. Every step is done in a process of its own (`growth_steps`), once per size and repetition; the least counts. A step costs
a constant, such as imports and first use of caches, and what grows. The exponent is that of the growing part: the slope of a
line through log(cost - smallest cost) over log(size - smallest size), for the sizes above the smallest. It is 1 if the cost is
a constant and a multiple of the size. Increases below `NOISE` are not fitted: such a cost is constant, as far as it can be
measured.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tests.bench.growth_steps import STEPS
from tests.bench.harness import BenchmarkError
from tests.support.paths import ROOT

NAME, TITLE = "growth", "how time and memory grow with the size of an archive"
#: Sizes of the archives of each kind.
SIZES: Mapping[str, Mapping[str, list[int]]] = {
    "full": {"files": [1000, 10_000, 100_000], "partitions": [10_000, 100_000, 1_000_000, 10_000_000]},
    "tiny": {"files": [10, 20, 30], "partitions": [10, 20, 30]},
}
#: Seconds of processors, and bytes, that measurements of the same vary by.
NOISE = {"processor": 0.03, "bytes": 4e6}
#: The largest exponent; seconds and bytes of the largest index that is opened; seconds of a planned slice.
MOST_EXPONENT, OPEN_SECONDS, OPEN_PEAK, PLAN_SECONDS = 1.1, 4.0, 3e9, 0.005


@dataclass(slots=True)
class Growth:
    """Measurements of a step: by size, those of each repetition, as `growth_steps.measured` returns them."""

    kind: str
    step: str
    costs: dict[int, list[dict[str, float]]] = field(default_factory=dict)

    def least(self, key: str) -> dict[int, float]:
        """Return the least cost of each size."""
        return {size: min(cost[key] for cost in costs) for size, costs in self.costs.items()}

    def exponent(self, key: str) -> float | None:
        """Return the exponent of the growing part of a cost, None if it does not grow."""
        return exponent(self.least(key), NOISE[key])


def exponent(costs: Mapping[int, float], noise: float) -> float | None:
    """Return the exponent of the growing part of costs by size, None if fewer than two exceed the noise.

    >>> round(exponent({10: 5.1, 100: 6.0, 1000: 15.0}, 0.1), 2), exponent({10: 5.0, 100: 5.0, 1000: 5.05}, 0.1)
    (1.0, None)
    """
    first, *others = sorted(costs)
    grown = [(n - first, costs[n] - costs[first]) for n in others if costs[n] - costs[first] > noise]
    if len(grown) < 2:
        return None
    sizes, increases = np.log(np.array(grown, float)).T
    return float(np.polyfit(sizes, increases, 1)[0])


def run(size: str, repeats: int, say: Callable[[str], None]) -> list[Growth]:
    """Measure every step at every size. Raises BenchmarkError if one fails."""
    results = []
    for kind, counts in SIZES[size].items():
        with tempfile.TemporaryDirectory(prefix="aggarray-growth-") as folder:
            say(f"{NAME}: writing {kind}")
            _process([folder, kind, ",".join(map(str, counts))])
            for name, step in STEPS.items():
                growth = Growth(kind, name)
                for count in counts if kind in step.kinds else ():
                    for number in range(repeats if count <= step.most else 0):
                        say(f"{NAME}: {name}, {count:,} {kind}, {number + 1} of {repeats}")
                        growth.costs.setdefault(count, []).append(json.loads(_process([folder, kind, str(count), name])))
                results += [growth] if growth.costs else []
    return results


def _process(arguments: Sequence[str]) -> str:
    order = [sys.executable, "-m", "tests.bench.growth_steps", *arguments]
    done = subprocess.run(order, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BenchmarkError(f"{NAME}: {' '.join(arguments[1:])} failed\n{done.stderr}")
    return done.stdout.splitlines()[-1] if done.stdout else ""


def tables(results: Sequence[Growth]) -> str:
    """Return Markdown tables of seconds, bytes and exponents, and a line on each limit that was not kept."""
    lines = [f"### {NAME}: {TITLE}"]
    for kind in dict.fromkeys(growth.kind for growth in results):
        own = [growth for growth in results if growth.kind == kind]
        sizes = sorted({size for growth in own for size in growth.costs})
        lines += _table(f"seconds by {kind}", own, sizes, "seconds", "processor", 1)
        lines += _table(f"MB by {kind}", own, sizes, "bytes", "bytes", 1e6)
    return "\n".join([*lines, "", *(broken(results) or ["Every limit is kept."])])


def _table(title: str, own: Sequence[Growth], sizes: Sequence[int], key: str, fitted: str, unit: float) -> list[str]:
    lines = ["", _row([title, *(f"{size:,}" for size in sizes), "exponent"]), _row(["---"] * (len(sizes) + 2))]
    for growth in own:
        least, power = growth.least(key), growth.exponent(fitted)
        cells = [f"{least[size] / unit:.3g}" if unit == 1 else f"{least[size] / unit:,.0f}" for size in sizes if size in least]
        cells += ["-"] * (len(sizes) - len(cells))
        lines.append(_row([growth.step, *cells, "0" if power is None else f"{power:.2f}"]))
    return lines


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def broken(results: Sequence[Growth]) -> list[str]:
    """Return a line for each limit that was not kept."""
    lines = []
    for growth in results:
        for key in NOISE:
            power = growth.exponent(key)
            if power is not None and power > MOST_EXPONENT:
                lines.append(f"{growth.step}, {growth.kind}: the exponent of {key} is {power:.2f}, above {MOST_EXPONENT}")
        largest = max(growth.costs)
        seconds, peak = growth.least("seconds")[largest], growth.least("peak")[largest]
        if growth.step == "open the index" and (seconds > OPEN_SECONDS or peak > OPEN_PEAK):
            lines.append(f"{growth.step}, {largest:,} {growth.kind}: {seconds:.2f} s, at most {peak / 1e6:,.0f} MB")
        if growth.step.startswith("plan") and seconds > PLAN_SECONDS:
            lines.append(f"{growth.step}, {largest:,} {growth.kind}: {1000 * seconds:.1f} ms")
    return lines
