"""The stored fuzz inputs are read or refused. Each is run once.

`python -m tests.fuzz TARGET` looks for more; see docs/contributing.md.
"""

import os
import random
from pathlib import Path

import pytest

import aggarray as aa
from tests.fuzz.target import BrokenError, check
from tests.fuzz.targets import TARGETS
from tests.fuzz.trees import crossed, dumped, loaded, mutator, unfolded

CORPUS = Path(__file__).parents[1] / "fuzz" / "corpus"
every = pytest.mark.parametrize("name", list(TARGETS))
INPUTS = [path for name in TARGETS for path in sorted((CORPUS / name).iterdir())]


@pytest.mark.parametrize("path", INPUTS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_stored_inputs_give_no_finding(path: Path) -> None:
    with aa.set_options(threads=1):
        TARGETS[path.parent.name].run(path.read_bytes())


@every
def test_valid_inputs_are_accepted(name: str) -> None:
    refused = [seed for seed, data in TARGETS[name].seeds().items() if not TARGETS[name].run(data)]
    assert not refused


@every
def test_mutations_are_run(name: str) -> None:
    target = TARGETS[name]
    seeds = list(target.seeds().values())
    for number in range(30):
        chance = random.Random(number)
        data = chance.choice(seeds)
        if target.mutate is not None:
            data = target.mutate(data, target.longest, number)
            data = target.mutate(data, target.longest, number + 1)
            assert len(data) <= max(target.longest, *map(len, seeds))
        else:
            at = chance.randrange(len(data))
            data = data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]
        target.run(data)


def test_the_corpus_is_short() -> None:
    assert {path.name for path in CORPUS.iterdir()} == set(TARGETS)
    assert all(0 < len(list((CORPUS / name).iterdir())) <= 60 for name in TARGETS)
    assert sum(path.stat().st_size for path in INPUTS) < 150_000


def test_findings_are_not_errors_of_aggarray() -> None:
    with pytest.raises(BrokenError, match="seven"):
        check(False, "seven")
    assert not issubclass(BrokenError, aa.AggarrayError)


def test_trees_stay_documents() -> None:
    start = dumped({"a": [1, {"b": '{"c": [1, 2]}'}], "d": 0.5, "e": {"$tuple": [1, {"$array": ["i2", [3]]}]}})
    mutate, seen = mutator(["word", {"x": 1}]), {start}
    for seed in range(300):
        seen.add(mutate(start, 400, seed))
        seen.add(crossed(start, b'{"z": ["y"]}', 400, seed))
    assert len(seen) > 100 and all(isinstance(loaded(data), dict | list) and len(data) <= 400 for data in seen)
    assert any(b"word" in data for data in seen)
    # Invalid JSON becomes a document.
    assert loaded(mutate(b"\xff", 400, 0)) == {} and crossed(b"{", start, 400, 0) == b"{"
    assert unfolded(loaded(start))["e"][0] == 1


def test_without_atheris(tmp_path: Path) -> None:
    import subprocess
    import sys

    (tmp_path / "atheris.py").write_text("raise ImportError('none')", encoding="utf-8")
    paths = os.pathsep.join([str(tmp_path), str(CORPUS.parents[2])])
    command = [sys.executable, "-m", "tests.fuzz", "chunks"]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": paths}, cwd=CORPUS.parents[2], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1 and "pip install '.[fuzz]'" in done.stderr
