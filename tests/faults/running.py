"""How are damaged files read by processes of their own, and what is made of what these say?"""

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.faults.specimens import files_of

ROOT = Path(__file__).parents[2]
Case = tuple[str, list[Any]]


class Outcome(NamedTuple):
    """What came of a case: ``kind``: right, wrong, error, fault or killed; ``told``: what more is known; ``seconds``; ``path``."""

    case: Case
    kind: str
    told: list[Any]
    seconds: float
    path: str


def cuts(path: str, dense: int, more: int, seed: int) -> Iterator[Case]:
    """Yield truncations: at every length up to ``dense``, and at ``more`` beyond, of each file of a specimen."""
    chance = random.Random(seed)
    for name in files_of(path):
        size = _size(path, name)
        lengths = {*range(min(dense, size)), *(chance.randrange(size) for _ in range(more if size > dense else 0)), size - 1}
        for length in sorted(lengths):
            yield name, ["cut", length]


def flips(path: str, count: int, seed: int, head: int = 0) -> Iterator[Case]:
    """Yield ``count`` damages by chance: bits, bytes, several of them, stretches; ``head``: within so many bytes of the beginning."""
    chance = random.Random(seed)
    names = files_of(path)
    sizes = [_size(path, name) for name in names]
    for _ in range(count):
        (at,) = chance.choices(range(len(names)), [s + 50 for s in sizes])
        name, size = names[at], sizes[at]
        within = min(size, head) if head else size
        kind = chance.random()
        if not within:
            continue
        if kind < 0.5:
            yield name, ["flip", [[chance.randrange(within), 1 << chance.randrange(8)]]]
        elif kind < 0.8:
            yield (
                name,
                ["flip", [[chance.randrange(within), chance.randrange(1, 256)] for _ in range(chance.choice((1, 2, 4)))]],
            )
        else:
            yield (
                name,
                ["set", chance.randrange(within), chance.choice((1, 2, 4, 8, 64, 512)), chance.choice((0, 255, 127, 128))],
            )


def _size(path: str, name: str) -> int:
    return os.path.getsize(os.path.join(path, name) if name else path)


def outcomes(path: str, scratch: Path, cases: Iterable[Case], start: Sequence[str] = ()) -> list[Outcome]:
    """Have cases read, by as many processes one after the other as it takes; ``start``: what they are started through."""
    left = list(cases)
    found: list[Outcome] = []
    scratch.mkdir(parents=True, exist_ok=True)
    while left:
        lines = "".join(f"{json.dumps(case)}\n" for case in left)
        command = [*start, sys.executable, "-m", "tests.faults.worker", path, str(scratch)]
        done = subprocess.run(command, input=lines, capture_output=True, text=True, cwd=ROOT, check=False)
        answers = [json.loads(line) for line in done.stdout.splitlines()]
        ended = [answer for answer in answers if answer != ["begun"]]
        for case, (kind, *told, seconds, where) in zip(left, ended, strict=False):
            found.append(Outcome(case, kind, told, seconds, where))
        left = left[len(ended) :]
        if (left and done.returncode == 0) or not answers:
            raise RuntimeError(done.stderr)
        if left:
            found.append(Outcome(left.pop(0), "killed", [done.returncode, done.stderr[-3000:]], 0.0, ""))
    return found
