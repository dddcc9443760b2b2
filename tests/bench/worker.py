"""Process that measures time and memory of one contestant.

Run by the harness as ``python -m tests.bench.worker BENCHMARK CONTESTANT SIZE FOLDER [SAVE]``; prints one line of JSON.
With SAVE, the values are stored there for comparison.
"""

import gc
import hashlib
import json
import resource
import sys
import time
from pathlib import Path

import numpy as np

from tests.bench.harness import benchmarks

#: Larger arrays, in bytes, are compared by their digest.
_LARGE = 1 << 24


def main(arguments: list[str]) -> None:
    """Do the work once."""
    benchmark = benchmarks()[arguments[0]]
    contestant = next(c for c in benchmark.contestants if c.name == arguments[1])
    given = contestant.prepare(Path(arguments[3]), benchmark.sizes[arguments[2]])
    gc.collect()
    before = memory_status("VmRSS")
    started = time.perf_counter()
    result = contestant.work(given)
    seconds = time.perf_counter() - started
    print(json.dumps({"seconds": seconds, "bytes": max(0, memory_status("VmHWM") - before)}), flush=True)
    if len(arguments) > 4:
        found = contestant.values(given, result)
        np.savez(arguments[4], **{name: _short(np.asarray(values)) for name, values in found.items()})


def memory_status(key: str) -> int:
    """Return the current ("VmRSS") or peak ("VmHWM") memory of this process in bytes."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(key + ":")), 0)


def _short(values: np.ndarray) -> np.ndarray:
    if values.nbytes <= _LARGE:
        return values
    digest = hashlib.sha256(f"{values.dtype} {values.shape}".encode() + np.ascontiguousarray(values).tobytes())
    return np.frombuffer(digest.digest(), np.uint8)


if __name__ == "__main__":
    main(sys.argv[1:])
