"""Selection of the fuzz inputs that every test run replays.

Selects inputs that reach the most lines of aggarray, relative to their size, that no other input reaches. Findings, whose names
begin with ``found``, are kept.
"""

import hashlib
import sys
from collections.abc import Iterable
from pathlib import Path
from types import FrameType
from typing import Any

import aggarray
from tests.fuzz.target import Target

_PACKAGE = str(Path(aggarray.__file__).parent)
#: Number of inputs considered, small and large ones.
_LOOKED_AT = 250
#: Limits per target: number of files, and their total size in bytes.
_FILES, _BYTES = 50, 24_000

Line = tuple[str, int, int]


def lines_of(target: Target, data: bytes) -> set[Line]:
    """Return the pairs of consecutive lines of aggarray that an input executes; none for a finding."""
    result: set[Line] = set()
    last: dict[FrameType, int] = {}

    def local(frame: FrameType, event: str, argument: Any) -> Any:
        """Record a line."""
        if event == "line":
            result.add((frame.f_code.co_filename, last.get(frame, 0), frame.f_lineno))
            last[frame] = frame.f_lineno
        return local

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        """Trace functions of aggarray."""
        return local if frame.f_code.co_filename.startswith(_PACKAGE) else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        target.run(data)
    except Exception:  # findings are added to the corpus by hand, once fixed
        return set()
    finally:
        sys.settrace(before)
    return result


def chosen(target: Target, inputs: Iterable[bytes], known: set[Line]) -> list[bytes]:
    """Return the inputs to keep, the most useful first; ``known``: lines reached without them."""
    by_input = {data: lines_of(target, data) for data in dict.fromkeys(inputs)}
    kept: list[bytes] = []
    room = _BYTES
    while len(kept) < _FILES:
        # New lines are weighted by size: a large input must be worth several small ones.
        best = max(by_input, key=lambda data: len(by_input[data] - known) / (200 + len(data)), default=b"")
        if not by_input or not by_input[best] - known:
            break
        lines = by_input.pop(best)
        if len(best) <= room or not kept:
            room -= len(best)
            kept.append(best)
            known |= lines
    return kept


def keep(target: Target, grown: Path, corpus: Path) -> int:
    """Replace the stored corpus by a selection from a grown one, and return its number of files."""
    corpus.mkdir(parents=True, exist_ok=True)
    findings = [path for path in corpus.iterdir() if path.name.startswith("found")]
    known = set[Line]().union(*(lines_of(target, path.read_bytes()) for path in findings))
    inputs = [path.read_bytes() for folder in (grown, corpus) for path in sorted(folder.iterdir())]
    ordered = sorted(inputs, key=len)
    kept = chosen(target, ordered[:: len(ordered) // _LOOKED_AT + 1], known)
    for path in corpus.iterdir():
        if path not in findings:
            path.unlink()
    for data in kept:
        (corpus / hashlib.sha256(data).hexdigest()[:12]).write_bytes(data)
    return len(findings) + len(kept)
