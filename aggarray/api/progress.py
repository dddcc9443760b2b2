"""How is progress shown: not at all, as a bar, or by whoever asked?"""

import sys

from aggarray.errors import AggregationError
from aggarray.scan import Progress


def checked_progress(progress: bool | Progress | None) -> Progress | None:
    if progress is None or progress is False:
        return None
    if progress is not True and not callable(progress):
        raise AggregationError(f"progress={progress!r}: give True, None or a callable (done, total, what)")
    return _bar if progress is True else progress


def _bar(done: int, total: int, what: str) -> None:
    """Draw a bar on standard error; the last step ends its line."""
    if done < total and done % max(1, total // 200):
        return
    width = 30
    filled = width * done // max(1, total)
    end = "\n" if done == total else ""
    print(f"\r{what} [{'#' * filled}{'.' * (width - filled)}] {done}/{total}{end}", end="", file=sys.stderr, flush=True)
