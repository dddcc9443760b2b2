"""Extraction of arrays to a Zarr store or a netCDF-4 file.

Memory use is bounded, and a stopped run can be resumed: chunks are written next to the result, which appears only when it is
complete. Two runs over the same pieces of the same files write the same bytes.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from aggarray.arrays import MasterArray
from aggarray.errors import AggregationError
from aggarray.export.extract import netcdf_file, zarr_store
from aggarray.export.extract.fingerprint import files_of, fingerprint
from aggarray.export.extract.layout import ExtractLayout, lay_out
from aggarray.export.extract.pieces import Pieces
from aggarray.export.extract.target import ATTRIBUTE, ExtractTarget, check_not_source, stored_fingerprint
from aggarray.formats import local_path
from aggarray.opening.verification import resolve_array
from aggarray.scan.progress import Progress, checked_progress
from aggarray.storage.locks import unlock

_KINDS = {".zarr": zarr_store.KINDS, ".nc": netcdf_file.KINDS, ".nc4": netcdf_file.KINDS}


@dataclass(frozen=True, slots=True)
class Extracted:
    """Result of `extract`.

    ``variables``: names, coordinates included; ``nbytes``: bytes of all values; ``resumed``: bytes that an earlier run had
    written; ``unchanged``: the result was up to date, nothing was written.
    """

    path: str
    variables: tuple[str, ...]
    nbytes: int
    resumed: int = 0
    unchanged: bool = False


def extract(
    arrays: MasterArray | Iterable[MasterArray],
    path: str | os.PathLike[str],
    *,
    exists: str = "raise",
    progress: bool | Progress | None = None,
) -> Extracted:
    """Write arrays with their coordinates to a Zarr store or netCDF-4 file.

    ``path`` ends with .zarr, .nc or .nc4. Coordinates that arrays share are written once; attributes, units, calendars and
    missing values are kept.
    ``exists``: what happens to an existing result: "raise", "overwrite", or "update": keep it if it holds the same pieces of
    the same files, unchanged since, else overwrite it if `extract` made it.
    ``progress``: True for a bar, or a callable (done, total, what) that receives bytes.

    The chunks are written to ``path`` + ".part" until the result is complete. A new run after a stop resumes there, unless
    the arrays or their files have changed. Raises AggregationError for arrays or paths that cannot be written.
    """
    layout, target = _make_plan(arrays, local_path(path), exists)
    done = Extracted(target.path, tuple(v.name for v in layout.variables), layout.nbytes)
    # promise: extract-rerun-sweeps
    swept = target.swept()
    if exists == "update" and stored_fingerprint(target.path) == target.fingerprint:
        unlock(target.path)
        return replace(done, unchanged=True)
    if swept:
        return replace(done, resumed=layout.nbytes)
    target.check(exists)
    report, resumed, written = checked_progress(progress, "bytes"), 0, 0

    def advance(nbytes: int, existed: bool) -> None:
        nonlocal resumed, written
        written, resumed = written + nbytes, resumed + nbytes * existed
        if report is not None:
            report(written, total, "extracting")

    total = sum(v.source.nbytes for v in layout.variables if v.chunks is not None)
    is_zarr = target.path.lower().endswith(".zarr")
    with target.held() as lock:
        pieces = Pieces(target.store, target.spare, zarr_store.encode if is_zarr else netcdf_file.encode)
        pieces.write(layout, advance)
        if is_zarr:
            zarr_store.finish(layout, target.store, target.spare)
        else:
            netcdf_file.write_file(layout, pieces, target.file)
        target.finish(target.store if is_zarr else target.file, lock)
    return replace(done, resumed=resumed)


def is_extracted(arrays: MasterArray | Iterable[MasterArray], path: str | os.PathLike[str]) -> bool:
    """Return whether `extract` has written these arrays there, and their files have not changed since."""
    _, target = _make_plan(arrays, local_path(path), "update")
    return stored_fingerprint(target.path) == target.fingerprint


def _make_plan(arrays: MasterArray | Iterable[MasterArray], path: str, exists: Any) -> tuple[ExtractLayout, ExtractTarget]:
    """Return the layout and target of an extraction. Raises AggregationError for invalid arguments."""
    if exists not in ("raise", "overwrite", "update"):
        raise AggregationError(f"exists={exists!r} is invalid", hint="give 'raise', 'overwrite' or 'update'")
    path = os.path.abspath(path)
    suffix = os.path.splitext(path)[1].lower()
    if suffix not in _KINDS:
        raise AggregationError(f"unknown suffix {suffix!r}", path=path, hint="give a name that ends with .zarr or .nc")
    items = [arrays] if isinstance(arrays, MasterArray) else list(arrays)
    wrong = [type(a).__name__ for a in items if not isinstance(a, MasterArray)]
    if wrong or not items:
        what = f"{wrong[0] if wrong else 'no arrays'} to write"
        raise AggregationError(what, path=path, hint="give arrays of an aggregation")
    layout = lay_out([resolve_array(a) for a in items], _KINDS[suffix], path)
    check_not_source(path, files_of(layout))
    mark = fingerprint(layout, suffix)
    layout.attributes[ATTRIBUTE] = mark
    return layout, ExtractTarget(path, mark)
