"""Which of the inputs that a run has gathered are kept, to be replayed by every test run?

Those that reach most of the lines of aggarray which no other one reaches, for their size. Findings, whose names begin with
``found``, stay as they are.
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
#: So many inputs are looked at, small and large ones.
_LOOKED_AT = 250
#: The most files of a target, and bytes of all of them together.
_FILES, _BYTES = 50, 24_000

Line = tuple[str, int, int]


def lines_of(target: Target, data: bytes) -> set[Line]:
    """Return the steps from line to line of aggarray that an input takes; none where it is a finding."""
    found: set[Line] = set()
    last: dict[FrameType, int] = {}

    def local(frame: FrameType, event: str, argument: Any) -> Any:
        """Note a line."""
        if event == "line":
            found.add((frame.f_code.co_filename, last.get(frame, 0), frame.f_lineno))
            last[frame] = frame.f_lineno
        return local

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        """Trace what is ours."""
        return local if frame.f_code.co_filename.startswith(_PACKAGE) else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        target.run(data)
    except Exception:  # a finding is kept by hand, once it is mended
        return set()
    finally:
        sys.settrace(before)
    return found


def chosen(target: Target, inputs: Iterable[bytes], known: set[Line]) -> list[bytes]:
    """Return the inputs to be kept, the one that adds most first; ``known``: lines that are reached without them."""
    by_input = {data: lines_of(target, data) for data in dict.fromkeys(inputs)}
    kept: list[bytes] = []
    room = _BYTES
    while len(kept) < _FILES:
        # New lines count for what they cost: a large input has to be worth several small ones.
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
    """Put what is worth it of a grown corpus in place of a kept one, and return how many files it has."""
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
