"""Processes that read damaged files, and evaluation of their outcomes."""

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.faults.specimens import files_of
from tests.support.paths import ROOT

#: Path of a specimen, path of a file in it ("" for the specimen itself), damage.
Case = tuple[str, str, list[Any]]


class Outcome(NamedTuple):
    """The outcome of a case: ``kind`` (right, wrong, error, fault or killed), further output in ``told``, seconds, path."""

    case: Case
    kind: str
    told: list[Any]
    seconds: float
    path: str


def cuts(path: str, dense: int, more: int, seed: int) -> Iterator[Case]:
    """Yield truncations of each file of a specimen: at every length up to ``dense``, and at ``more`` larger lengths."""
    chance = random.Random(seed)
    for name in files_of(path):
        size = size_of(path, name)
        lengths = {*range(min(dense, size)), *(chance.randrange(size) for _ in range(more if size > dense else 0))}
        for length in sorted({*lengths, max(0, size - 1)}):
            yield path, name, ["cut", length]


def flips(path: str, count: int, seed: int) -> Iterator[Case]:
    """Yield ``count`` random damages: bits, bytes, several bytes, ranges."""
    chance = random.Random(seed)
    names = files_of(path)
    sizes = [size_of(path, name) for name in names]
    for _ in range(count):
        (at,) = chance.choices(range(len(names)), [s + 50 if s else 0 for s in sizes])
        within, kind = sizes[at], chance.random()
        if kind < 0.5:
            damage: list[Any] = ["flip", [[chance.randrange(within), 1 << chance.randrange(8)]]]
        elif kind < 0.8:
            times = chance.choice((1, 2, 4))
            damage = ["flip", [[chance.randrange(within), chance.randrange(1, 256)] for _ in range(times)]]
        else:
            damage = ["set", chance.randrange(within), chance.choice((1, 2, 4, 8, 64, 512)), chance.choice((0, 255, 127, 128))]
        yield path, names[at], damage


def size_of(path: str, name: str) -> int:
    """Return the size of a file of a specimen."""
    return os.path.getsize(os.path.join(path, name) if name else path)


def outcomes(scratch: Path, cases: Iterable[Case]) -> list[Outcome]:
    """Run cases in as many consecutive processes as needed."""
    left = list(cases)
    result: list[Outcome] = []
    scratch.mkdir(parents=True, exist_ok=True)
    while left:
        lines = "".join(f"{json.dumps(case)}\n" for case in left)
        command = [sys.executable, "-m", "tests.faults.worker", str(scratch)]
        done = subprocess.run(command, input=lines, capture_output=True, text=True, cwd=ROOT, check=False)
        answers = [json.loads(line) for line in done.stdout.splitlines()]
        ended = [answer for answer in answers if answer != ["begun"]]
        for case, (kind, *told, seconds, where) in zip(left, ended, strict=False):
            result.append(Outcome(case, kind, told, seconds, where))
        left = left[len(ended) :]
        if left and (not answers or answers[-1] != ["begun"]):
            raise RuntimeError(done.stderr)
        if left:
            result.append(Outcome(left.pop(0), "killed", [done.returncode, done.stderr[-3000:]], 0.0, ""))
    return result


def faults_in(found: Iterable[Outcome]) -> list[str]:
    """Describe crashes, hangs, exceptions of other packages, and errors with several lines or without the file."""
    faults = []
    for one in found:
        bad = one.kind in ("fault", "killed")
        if one.kind == "error":
            text = one.told[1]
            # An error may name a missing referenced file next to the case.
            named = (os.path.basename(one.path), os.path.dirname(one.case[0]))
            bad = not any(name in text for name in named) or "\n" in text
        if bad:
            faults.append(f"{one.case}: {one.kind} {one.told}")
    return faults
