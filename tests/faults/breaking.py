"""Does each promise have a test that fails without the code that keeps it? ``python -m tests.faults.breaking [WORDS ...]``.

Each guard is broken in a copy of the project, one after the other, and its test is run there: it has to fail. ``WORDS``: only
promises that have one of them. ``--table`` prints the promises as the page about reliability has them.
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

from tests.faults.promises import Promise, promises

ROOT = Path(__file__).resolve().parents[2]
#: Seconds after which a test that hangs without its guard has failed.
PATIENCE = 300
_LEFT_OUT = shutil.ignore_patterns(".*", "__pycache__", "build", "*.egg-info")


def broken(promise: Promise, root: Path) -> str:
    """Break a promise in a copy of the project, run its test there, and mend it; return what became of the test."""
    path = root / "aggarray" / promise.code
    whole = path.read_text()
    path.write_text(whole.replace(promise.guard, promise.instead))
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
        path.write_text(whole)
    if done.returncode < 0:
        return "fails"  # by a signal: what the guard keeps away crashes
    return {0: "PASSES WITHOUT IT", 1: "fails"}.get(done.returncode, f"DOES NOT RUN ({done.stdout[-200:]})")


def table(listed: Sequence[Promise]) -> Iterator[str]:
    """Yield the promises of each kind as Markdown."""
    for area, some in groupby(listed, lambda p: p.area):
        yield from (f"### {area}", "", "| promise | kept by | tested by |", "| --- | --- | --- |")
        yield from (f"| {p.says} | `{p.code}` | `{p.test}` |" for p in some)
        yield ""


def main(arguments: list[str] | None = None) -> int:
    """Return 1 where a test passes though the guard that it is about is gone."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.breaking", description="Break each guard once.")
    parser.add_argument("words", nargs="*", metavar="WORDS", help="only promises that have one of these in them")
    parser.add_argument("--table", action="store_true", help="print the promises, break nothing")
    options = parser.parse_args(arguments)
    if options.table:
        print("\n".join(table(promises())))
        return 0
    wanted = [
        p for p in promises() if not options.words or any(word in f"{p.area} {p.says} {p.code}" for word in options.words)
    ]
    kept = True
    with tempfile.TemporaryDirectory(prefix="aggarray-broken-") as name:
        root = Path(name) / "project"
        shutil.copytree(ROOT, root, ignore=_LEFT_OUT)
        for promise in wanted:
            found = broken(promise, root)
            kept = kept and not found.isupper() and "DOES" not in found
            print(f"{found}: {promise.says}", flush=True)
    return int(not kept)


if __name__ == "__main__":
    sys.exit(main())
