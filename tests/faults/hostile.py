"""Processes that open hostile files, and checks of their output."""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import zarr

from tests.support.netcdf import cube, write
from tests.support.paths import ROOT


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a case.

    ``steps``: for each step its name, the class of the error or None, its output, "done", "told" or "fault", and seconds;
    ``memory``: peak memory in bytes; ``crash``: the output of a process that crashed.
    """

    case: Any
    steps: tuple[tuple[Any, ...], ...]
    seconds: float = 0.0
    memory: int = 0
    crash: str = ""

    @property
    def faults(self) -> list[Any]:
        """Return the steps that failed with an error of another package, and crashes."""
        greedy = [step for step in self.steps if "Unable to allocate" in step[2] or "MemoryError" in step[2]]
        return [step for step in self.steps if step[3] == "fault"] + greedy + ([self.crash] if self.crash else [])

    @property
    def texts(self) -> list[str]:
        """Return all output."""
        return [step[2] for step in self.steps]


def outcomes(cases: Sequence[Any], scratch: Path) -> list[Outcome]:
    """Run cases, which are paths or arguments of `aggarray.open`, in as many consecutive processes as needed."""
    left, result = list(cases), []
    while left:
        lines = "".join(f"{json.dumps(case)}\n" for case in left)
        command = [sys.executable, "-m", "tests.faults.hostile_child", str(scratch)]
        done = subprocess.run(command, input=lines, capture_output=True, text=True, cwd=ROOT, check=False)
        answers = [json.loads(line) for line in done.stdout.splitlines()]
        ended = [answer for answer in answers if answer != ["begun"]]
        for case, (steps, seconds, memory) in zip(left, ended, strict=False):
            result.append(Outcome(case, tuple(map(tuple, steps)), seconds, memory))
        left = left[len(ended) :]
        if (left and done.returncode == 0) or not answers:
            raise RuntimeError(done.stderr)
        if left:
            result.append(Outcome(left.pop(0), (), crash=f"{done.returncode}: {done.stderr[-3000:]}"))
    return result


def looked_at(cases: Mapping[str, Any], scratch: Path) -> dict[str, Outcome]:
    """Run cases by name."""
    good = [write(scratch / "good.nc", cube([1.0])), str(scratch / "good.zarr")]
    zarr.create_array(good[1], data=np.arange(3.0), dimension_names=["good"])
    # The first cases load libraries, which takes memory.
    return dict(zip(cases, outcomes([*good, *cases.values()], scratch)[2:], strict=True))


def unborne(found: Mapping[str, Outcome], memory: int = 96 << 20) -> dict[str, Any]:
    """Return, by name, the cases with a crash, an error of another package, too much memory, or unescaped output."""
    told: dict[str, Any] = {}
    for name, one in found.items():
        wild = [text[:200] for text in one.texts if any(not c.isprintable() and c != "\n" for c in text)]
        several = [step[2] for step in one.steps if step[1] is not None and "\n" in step[2]]
        much = [one.memory] if one.memory > memory else []
        if one.faults or wild or several or much:
            told[name] = {"faults": one.faults, "wild": wild, "lines": several, "memory": much}
    return told
