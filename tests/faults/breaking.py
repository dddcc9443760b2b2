"""Break the guard of each promise and run its test, which must fail: ``python -m tests.faults.breaking [WORDS ...]``.

Guards are broken one at a time in a copy of the project. ``WORDS``: only promises that contain one of them. ``--table``
prints the promises as listed in docs/reliability.md.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

from tests.faults.promises import Guard, Promise, guards, promises, without_guard
from tests.support.paths import ROOT

#: Seconds after which a test that hangs without its guard counts as failed.
PATIENCE = 300
_LEFT_OUT = shutil.ignore_patterns(".*", "__pycache__", "build", "*.egg-info")


def broken(promise: Promise, guard: Guard, root: Path) -> str:
    """Break a guard in a copy of the project, run its test there, restore it, and return the outcome."""
    path = root / "aggarray" / guard.code
    source = path.read_text(encoding="utf-8")
    path.write_text(without_guard(source, guard.line, promise.instead), encoding="utf-8")
    order = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", f"tests/{promise.test}", "-k", promise.only]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    try:
        done = subprocess.run(
            order,
            cwd=root,
            env=environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            start_new_session=True,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "hangs"
    finally:
        path.write_text(source, encoding="utf-8")
    if done.returncode < 0:
        return "fails"  # killed by a signal
    return {0: "PASSES WITHOUT IT", 1: "fails"}.get(done.returncode, f"DOES NOT RUN ({done.stdout[-200:]})")


def table(listed: Sequence[Promise]) -> Iterator[str]:
    """Yield the promises of each area as a Markdown table."""
    marked = guards(ROOT / "aggarray")
    for area, some in groupby(listed, lambda p: p.area):
        yield from (f"### {area}", "", "| promise | kept by | tested by |", "| --- | --- | --- |")
        yield from (f"| {p.says} | `{marked[p.id].code}` | `{p.test}` |" for p in some)
        yield ""


def main(arguments: list[str] | None = None) -> int:
    """Return 1 if the test of a broken guard passes or does not run."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.breaking", description="Break each guard once.")
    parser.add_argument("words", nargs="*", metavar="WORDS", help="only promises that contain one of these")
    parser.add_argument("--table", action="store_true", help="print the promises, break nothing")
    options = parser.parse_args(arguments)
    if options.table:
        print("\n".join(table(promises())))
        return 0
    marked = guards(ROOT / "aggarray")
    chosen = [
        (p, marked[p.id])
        for p in promises()
        if not options.words or any(word in f"{p.id} {p.area} {p.says} {marked[p.id].code}" for word in options.words)
    ]
    failing = True
    with tempfile.TemporaryDirectory(prefix="aggarray-broken-") as name:
        root = Path(name) / "project"
        shutil.copytree(ROOT, root, ignore=_LEFT_OUT)
        for promise, guard in chosen:
            outcome = broken(promise, guard, root)
            failing = failing and outcome in ("fails", "hangs")
            print(f"{outcome}: {promise.id}: {promise.says}", flush=True)
    return int(not failing)


if __name__ == "__main__":
    sys.exit(main())
