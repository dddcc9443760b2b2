"""Scanning of files, in this process or by workers."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from aggarray.errors import AggarrayError
from aggarray.formats import scan_one
from aggarray.formats.base import Structure

if TYPE_CHECKING:
    from aggarray.scan.progress import Progress

#: A file and its structure or error.
Scanned = tuple[str, Structure | AggarrayError]


def scan_files(paths: Sequence[str], processes: int | None = None, progress: "Progress | None" = None) -> list[Scanned]:
    """Scan every file, in the order given; an unreadable one yields its error."""
    if len(paths) == 1 and progress is None:
        results = [scan_one((paths[0], None))]
    else:
        from aggarray.scan.progress import step
        from aggarray.scan.workers import WorkerPool

        with WorkerPool(processes) as pool:
            results = pool.run([(path, None) for path in paths], step(progress, len(paths)))
    return [(p, r) for p, r in zip(paths, results, strict=True) if isinstance(r, Structure | AggarrayError)]
