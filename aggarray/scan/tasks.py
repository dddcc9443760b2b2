"""What is requested of a file, and the scan that answers it."""

from aggarray.errors import AggarrayError
from aggarray.formats import locate, scan, scan_partially
from aggarray.formats.base import Structure
from aggarray.formats.partial_scan import ChunkIndexRequest, PartialScan, PartialScanRequest, ScannedChunkIndexes

#: A file and what is requested of it; None: everything.
Task = tuple[str, PartialScanRequest | ChunkIndexRequest | None]
Result = Structure | PartialScan | ScannedChunkIndexes | AggarrayError


def scan_one(task: Task) -> Result:
    """Return the requested part of a file, or its error, never raised."""
    path, request = task
    try:
        if isinstance(request, ChunkIndexRequest):
            return locate(path, request)
        return scan(path) if request is None else scan_partially(path, request)
    except AggarrayError as error:
        return error
