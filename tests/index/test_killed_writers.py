"""Killed writers: the old or the new index always remains."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import aggarray as aa
from tests.support.index_files import files_below, same
from tests.support.netcdf import cube, write
from tests.support.paths import ROOT

KILLS = 36

#: Prints the duration of a save; forks a writer for each "go", kills it at "kill", and prints its exit status.
FORKER = """
import os, signal, sys, time
import aggarray as aa
index, one, two = sys.argv[1:]
states = [aa.open(one), aa.open([one, two])]
for state in states:
    start = time.perf_counter()
    state.save(index + ".warm")
print(time.perf_counter() - start, flush=True)
os.unlink(index + ".warm")
for turn, line in enumerate(sys.stdin):
    child = os.fork()
    if not child:
        # The writer overwrites, so that saves of other writers do not matter.
        while True:
            turn += 1
            states[turn % 2]._provenance.saved.clear()
            states[turn % 2].save(index)
    print(child, flush=True)
    sys.stdin.readline()
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    print(-os.WTERMSIG(status) if os.WIFSIGNALED(status) else f"ended {status}", flush=True)
"""

#: One append, saved at "save".
APPENDER = """
import sys
import aggarray as aa
index, new = sys.argv[1:]
agg = aa.open(index).append(new)
print("ready", flush=True)
sys.stdin.readline()
agg.save(index)
"""


def start(code: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def killed(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)


def sources(folder: Path) -> list[Path]:
    for t in range(2):
        write(folder / f"{t}.nc", cube([t]))
    return [folder / "0.nc", folder / "1.nc"]


@pytest.mark.heavy
def test_writers_killed_at_random_moments(tmp_path: Path) -> None:
    """Forked writers save in a loop and are killed; a valid index is found every time."""
    one, two = sources(tmp_path / "data")
    place = tmp_path / "place"
    place.mkdir()
    index = place / "index.nc"
    states = [aa.open(one), aa.open([one, two])]
    states[0].save(index)
    chance, seen = random.Random(5), set()
    # One process that forks: a new Python process per kill takes longer than the saves.
    forker = start(FORKER, index, one, two)
    assert forker.stdout is not None and forker.stdin is not None
    try:
        duration = float(forker.stdout.readline())
        for _ in range(KILLS):
            forker.stdin.write("go\n")
            forker.stdin.flush()
            writer = int(forker.stdout.readline())
            time.sleep(chance.uniform(0.0, 4 * duration))
            forker.stdin.write("kill\n")
            forker.stdin.flush()
            assert forker.stdout.readline() == f"{-signal.SIGKILL}\n", writer
            agg = aa.open(index)
            steps = agg["tas"].shape[0]
            same(agg, states[steps - 1])
            agg._provenance.structures()
            seen.add(steps)
            # Only the files of the last killed writer may remain.
            assert len([n for n in files_below(place) if n.endswith(".tmp")]) <= 1
    finally:
        forker.stdin.close()
        forker.wait(timeout=60)
        forker.stdout.close()
    assert seen == {1, 2}
    # The next save removes them, and does not wait for the lock of a killed process.
    states[1].save(index)
    same(aa.open(index), states[1])
    assert files_below(place) == ["index.nc"]


def test_a_killed_append_can_be_repeated(tmp_path: Path) -> None:
    one, two = sources(tmp_path / "data")
    index = tmp_path / "index.nc"
    aa.open(one).save(index)
    old, new = aa.open(one), aa.open([one, two])
    for delay in (0.0, 0.005, 0.02):
        writer = start(APPENDER, index, two)
        assert writer.stdout is not None and writer.stdin is not None and writer.stdout.readline() == "ready\n"
        writer.stdin.write("go\n")
        writer.stdin.flush()
        time.sleep(delay)
        killed(writer)
        agg = aa.open(index)
        same(agg, old if agg["tas"].shape[0] == 1 else new)
        grown = agg.append(two)
        same(grown, new)
        aa.open(one).save(index)
    aa.open(index).append(two).save(index)
    same(aa.open(index), new)


def test_the_lock_of_a_killed_writer_is_released(tmp_path: Path) -> None:
    """The waiting writer continues."""
    _, two = sources(tmp_path / "data")
    index = tmp_path / "index.nc"
    lock = tmp_path / ".index.nc.lock"
    hold = "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.flock(f, 2); print('held', flush=True); sys.stdin.read()"
    holder = start(hold, lock)
    assert holder.stdout is not None and holder.stdout.readline() == "held\n"
    waiter = start(APPENDER.replace("aa.open(index).append(new)", "aa.open(new)"), index, two)
    assert waiter.stdout is not None and waiter.stdin is not None and waiter.stdout.readline() == "ready\n"
    waiter.stdin.write("go\n")
    waiter.stdin.flush()
    time.sleep(0.3)
    assert waiter.poll() is None and not index.exists()
    killed(holder)
    waiter.communicate(timeout=60)
    assert waiter.returncode == 0
    same(aa.open(index), aa.open(two))
    assert [n for n in files_below(tmp_path) if n.startswith(".")] == []
