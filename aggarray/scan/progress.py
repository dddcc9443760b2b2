"""Progress display: none, a bar, or a callable."""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable
from typing import Any

from aggarray.dataclass import dataclass, field
from aggarray.errors import AggregationError, printable

#: Called with (done, total, what).
Progress = Callable[[int, int, str], None]

_WIDTH = 24
#: Seconds between two updates of a bar, and from the start until a rate is shown.
_PAUSE, _WARMUP = 0.1, 0.5


def checked_progress(progress: bool | Progress | None, unit: str = "files") -> Progress | None:
    """Return the progress callable or None; AggregationError for others."""
    if progress is None or progress is False:
        return None
    if progress is not True and not callable(progress):
        raise AggregationError(f"progress={progress!r} is invalid", hint="give True, None or a callable (done, total, what)")
    return Bar(unit) if progress is True else progress


def reporting(progress: Progress | None, total: int, receive: Callable[[int, Any], Any]) -> Callable[[int, Any], Any]:
    """Return ``receive``, which then also reports one more of ``total`` files."""
    if progress is None:
        return receive
    done = itertools.count(1)

    def received(number: int, result: Any) -> Any:
        kept = receive(number, result)
        progress(next(done), total, "scanning")
        return kept

    return received


@dataclass(slots=True)
class Bar:
    """Progress bar on standard error, with rate and remaining time."""

    unit: str = "files"
    clock: Callable[[], float] = time.monotonic
    _start: tuple[float, int] | None = field(default=None, init=False)
    _drawn: float = field(default=float("-inf"), init=False)

    def __call__(self, done: int, total: int, what: str) -> None:
        """Draw the bar, at most every 0.1 s."""
        now = self.clock()
        if self._start is None:
            self._start = now, done
        if done < total and now - self._drawn < _PAUSE:
            return
        self._drawn = now
        filled = _WIDTH * done // max(1, total)
        counts = f"{amount(done, self.unit)}/{amount(total, self.unit)}"
        (then, before), speed = self._start, ""
        if now - then >= _WARMUP and done > before:
            rate = (done - before) / (now - then)
            unit = "" if self.unit == "bytes" else f" {self.unit}"
            left = f", {duration((total - done) / rate)} left" if done < total else f", {duration(now - then)}"
            speed = f", {amount(round(rate), self.unit)}{unit}/s{left}"
        # promise: escape-progress
        line = f"{printable(what)} [{'#' * filled}{'.' * (_WIDTH - filled)}] {counts}{speed}"
        end = "\n" if done >= total else ""
        # Padding overwrites a longer line drawn before.
        print(f"\r{line:<78}{end}", end="", file=sys.stderr, flush=True)
        if end:
            self._start, self._drawn = None, float("-inf")


def amount(number: int, unit: str) -> str:
    """Format a number; bytes as kB, MB, GB or TB.

    >>> amount(1234, "files"), amount(999, "bytes"), amount(1234567, "bytes"), amount(25_000_000_000, "bytes")
    ('1234', '999 B', '1.2 MB', '25.0 GB')
    """
    if unit != "bytes":
        return str(number)
    size, names = float(number), ["B", "kB", "MB", "GB", "TB"]
    while size >= 1000 and len(names) > 1:
        size, names = size / 1000, names[1:]
    return f"{number} B" if names[0] == "B" else f"{size:.1f} {names[0]}"


def duration(seconds: float) -> str:
    """Format a duration.

    >>> duration(7.2), duration(75), duration(7384)
    ('7 s', '1:15', '2:03:04')
    """
    total = round(seconds)
    hours, minutes, rest = total // 3600, total // 60 % 60, total % 60
    if total < 60:
        return f"{total} s"
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
