"""Fair measurement of aggarray and its peers in one run.

Every measurement is a fresh process (`worker`), so that no contestant profits from caches of another. The contestants take
turns, in reversed order every other round, and medians are compared. The first round is not timed: it warms the file system's
cache, and its results must be equal. A contestant that has used `PATIENCE` seconds is not measured again.
"""

import functools
import importlib
import json
import pkgutil
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from tests.support.paths import ROOT

Size = Mapping[str, int]

#: Seconds of all processes of a contestant after which it is not measured again.
PATIENCE = 20.0


class BenchmarkError(Exception):
    """A contestant that failed, or returned other values than the first."""


@dataclass(frozen=True, slots=True)
class Contestant:
    """One way to do the work.

    ``prepare(folder, size)``: imports libraries and returns ``given`` (not timed); ``work(given)``: the timed work;
    ``values(given, result)``: named arrays to compare with those of the first contestant that have the same name;
    ``needs``: modules, and programs as ``program:NAME``, without which the contestant is left out.
    """

    name: str
    prepare: Callable[[Path, Size], Any]
    work: Callable[[Any], Any]
    values: Callable[[Any, Any], dict[str, np.ndarray]]
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A benchmark and its contestants, aggarray first.

    ``make(folder, size)`` writes the data; ``sizes``: "full" and "tiny", numbers for ``make`` and the contestants; ``needs``:
    modules required to make the data; ``per``: the entry of ``sizes`` with the number of pieces of the work: the table then
    shows microseconds per piece, the median divided by that number.
    """

    name: str
    title: str
    sizes: Mapping[str, Size]
    make: Callable[[Path, Size], None]
    contestants: tuple[Contestant, ...]
    needs: tuple[str, ...] = ()
    per: str = ""


@dataclass(slots=True)
class Measured:
    """Measurements of one contestant, one per round: seconds of the work and of the process, bytes of additional memory."""

    name: str
    work: list[float] = field(default_factory=list)
    process: list[float] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)


def benchmarks() -> dict[str, Benchmark]:
    """Return the benchmarks of all modules of this package."""
    here = Path(__file__).parent
    names = sorted(m.name for m in pkgutil.iter_modules([str(here)]) if m.name not in ("__main__", "harness", "worker"))
    modules = [importlib.import_module(f"tests.bench.{name}") for name in names]
    return {b.name: b for module in modules for b in getattr(module, "BENCHMARKS", ())}


def present(benchmark: Benchmark) -> tuple[Benchmark, list[str]]:
    """Return the benchmark without contestants whose modules are not installed, and a line for each of these.

    The benchmark has no contestants if its data cannot be made.
    """
    lines = [f"{benchmark.name} is left out: {name} is not installed" for name in _absent(benchmark.needs)]
    if lines:
        return replace(benchmark, contestants=()), lines
    absent = {c.name: _absent(c.needs) for c in benchmark.contestants}
    lines = [f"{name} is left out: {', '.join(modules)} not installed" for name, modules in absent.items() if modules]
    return replace(benchmark, contestants=tuple(c for c in benchmark.contestants if not absent[c.name])), lines


def _absent(modules: Sequence[str]) -> list[str]:
    return [name for name in modules if not _loads(name)]


@functools.cache
def _loads(name: str) -> bool:
    if name.startswith("program:"):
        return shutil.which(name.removeprefix("program:")) is not None
    try:
        importlib.import_module(name)
    except (ImportError, OSError):  # the module, or a system library that it needs, is not installed
        return False
    return True


def run(benchmark: Benchmark, size: str, repeats: int, say: Callable[[str], None]) -> list[Measured]:
    """Measure every contestant ``repeats`` times. Raises BenchmarkError if one fails or values differ."""
    with tempfile.TemporaryDirectory(prefix="aggarray-bench-") as name:
        folder = Path(name) / "data"
        folder.mkdir()
        say(f"{benchmark.name}: writing data")
        benchmark.make(folder, benchmark.sizes[size])
        _check(benchmark, size, folder, Path(name), say)
        measured = {c.name: Measured(c.name) for c in benchmark.contestants}
        for number, contestant in _rounds(benchmark.contestants, repeats):
            say(f"{benchmark.name}: round {number + 1} of {repeats}, {contestant.name}")
            result = measured[contestant.name]
            if sum(result.process) > PATIENCE:
                continue
            started = time.perf_counter()
            answer = _fresh_process(benchmark, contestant, size, [str(folder)])
            result.process.append(time.perf_counter() - started)
            result.work.append(answer["seconds"])
            result.memory.append(answer["bytes"])
        return list(measured.values())


def _rounds(contestants: Sequence[Contestant], repeats: int) -> Iterator[tuple[int, Contestant]]:
    for number in range(repeats):
        yield from ((number, c) for c in (contestants if number % 2 == 0 else contestants[::-1]))


def _check(benchmark: Benchmark, size: str, folder: Path, beside: Path, say: Callable[[str], None]) -> None:
    """Run every contestant once and compare the results."""
    first: dict[str, np.ndarray] = {}
    for number, contestant in enumerate(benchmark.contestants):
        say(f"{benchmark.name}: comparing values, {contestant.name}")
        path = beside / f"{number}.npz"
        _fresh_process(benchmark, contestant, size, [str(folder), str(path)])
        with np.load(path) as result:
            values = dict(result)
        path.unlink()
        first = first or values
        common = first.keys() & values.keys()
        wrong = sorted(n for n in common if not same_values(first[n], values[n]))
        if wrong or not common:
            what = ", ".join(wrong) or "all values"
            raise BenchmarkError(f"{benchmark.name}: {contestant.name}: {what} differ from {benchmark.contestants[0].name}'s")


def same_values(a: np.ndarray, b: np.ndarray) -> bool:
    """Return whether arrays have equal shape and values, with NaN equal to NaN."""
    return np.array_equal(a, b, equal_nan=a.dtype.kind in "fcmM" and b.dtype.kind in "fcmM")


def _fresh_process(benchmark: Benchmark, contestant: Contestant, size: str, places: list[str]) -> dict[str, Any]:
    order = [sys.executable, "-m", "tests.bench.worker", benchmark.name, contestant.name, size, *places]
    done = subprocess.run(order, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BenchmarkError(f"{benchmark.name}: {contestant.name} failed\n{done.stderr}")
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def table(benchmark: Benchmark, size: str, measured: Sequence[Measured]) -> str:
    """Return the results as a Markdown table; "times" compares medians (in brackets minima) with those of the first line."""
    sizes = ", ".join(f"{name} {number:,}" for name, number in benchmark.sizes[size].items())
    lines = [f"### {benchmark.name}: {benchmark.title}", "", f"{sizes}; {len(measured[0].work)} rounds", ""]
    heads = ["", "work, s", "times", "whole process, s", "times", "memory, MB"]
    heads += [f"µs, one of {benchmark.per}"] if benchmark.per else []
    lines += [_row(heads), _row(["---"] * len(heads))]
    for one in measured:
        name = one.name if len(one.work) == len(measured[0].work) else f"{one.name} ({_count(len(one.work), 'round')})"
        cells = [name, _spread(one.work), _times(one.work, measured[0].work), _spread(one.process)]
        cells += [_times(one.process, measured[0].process), f"{median(one.memory) / 1e6:,.0f}"]
        cells += [f"{median(one.work) / benchmark.sizes[size][benchmark.per] * 1e6:.2f}"] if benchmark.per else []
        lines.append(_row(cells))
    return "\n".join(lines)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |".replace("|  |", "| |")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _spread(seconds: Sequence[float]) -> str:
    return f"{median(seconds):.3f} ({min(seconds):.3f} to {max(seconds):.3f})"


def _times(seconds: Sequence[float], first: Sequence[float]) -> str:
    return f"{median(seconds) / median(first):.2f} ({min(seconds) / min(first):.2f})"
