"""Damage many files, run by hand: ``python -m tests.faults.sweep [WORDS ...] [--seconds 60] [--seed 1]``.

Damages specimens whose names contain one of ``WORDS`` and prints the number of right, wrong (values without a checksum) and
error outcomes, and one line per fault (a crash, a hang, an exception of another package). Exits with status 1 after a fault.
"""

import argparse
import contextlib
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path

from tests.faults import rarities  # noqa: F401 - enters specimens
from tests.faults.running import cuts, faults_in, flips, outcomes
from tests.faults.specimens import SPECIMENS

#: Damages per specimen and round, and the number of truncations among them.
_AT_ONCE, _CUTS = 60, 6
#: Seconds of a slow case; libraries time out after fifteen.
_SLOW = 25


def main(arguments: list[str] | None = None) -> int:
    """Damage files until the time is over."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.sweep", description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*", help="only specimens that have one of them in their names")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    names = [name for name in SPECIMENS if not options.words or any(word in name for word in options.words)]
    counts: Counter[str] = Counter()
    faults = []
    end, seed = time.monotonic() + options.seconds, options.seed
    with tempfile.TemporaryDirectory(prefix="aggarray-sweep-") as folder, contextlib.suppress(KeyboardInterrupt):
        made: dict[str, str] = {}
        while time.monotonic() < end:
            for name in names:
                path = made.get(name) or _make(name, Path(folder) / name)
                made[name] = path
                cases = [*flips(path, _AT_ONCE, seed), *cuts(path, 0, _CUTS, seed)]
                result = outcomes(Path(folder) / "scratch", cases)
                counts.update(one.kind for one in result)
                faults += [f"{name}, seed {seed}: {fault}" for fault in faults_in(result)]
                slow = [one for one in result if one.seconds > _SLOW]
                faults += [f"{name}, seed {seed}: {one.case}: {one.seconds:.0f} seconds" for one in slow]
                if faults:
                    print(*faults, sep="\n", flush=True)
                    counts["fault found"] += len(faults)
                    faults.clear()
                if time.monotonic() > end:
                    break
            seed += 1
    print(f"seeds {options.seed} to {seed}:", ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items())))
    return 1 if counts["fault found"] else 0


def _make(name: str, folder: Path) -> str:
    folder.mkdir()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return SPECIMENS[name](folder)


if __name__ == "__main__":
    sys.exit(main())
