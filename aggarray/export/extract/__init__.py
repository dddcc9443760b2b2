"""How do values get out of many files into one? `extract` writes arrays to a Zarr store or to a netCDF-4 file.

In bounded memory, and so that a run that is stopped half way can go on: chunks are written beside the result, which appears
only when it is whole. Two runs over the same pieces of the same files give the same bytes.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass
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
from aggarray.scan.discovery import Progress
from aggarray.scan.progress import checked_progress
from aggarray.storage.locks import unlock

_KINDS = {".zarr": zarr_store.KINDS, ".nc": netcdf_file.KINDS, ".nc4": netcdf_file.KINDS}


@dataclass(frozen=True, slots=True)
class Extracted:
    """What `extract` did: where, the variables written (coordinates too), and bytes of their values.

    ``resumed``: bytes of values that an earlier run had written; ``unchanged``: all was there, and nothing was written.
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
    """Write arrays with their coordinates to a Zarr store (``path`` ends with .zarr) or a netCDF-4 file (.nc).

    What the arrays share is written once; attributes, units, calendars and missing values stay. ``exists``: what is done
    where there is something already: "raise", "overwrite", or "update": nothing where it holds the same pieces of the
    same files, which have not changed, else overwrite what an earlier `extract` made. ``progress``: True for a bar, or a
    callable (done, total, what) that is told bytes.

    What is written lies in ``path`` + ".part" until all is there: run again after a stop, it goes on from there, unless
    the arrays, or their files, have changed. Raises AggregationError for what cannot be written there.
    """
    plan = _planned(arrays, local_path(path), exists)
    place = ExtractTarget(plan.path, plan.fingerprint)
    # promise: extract-rerun-sweeps
    swept = place.swept()
    if exists == "update" and stored_fingerprint(plan.path) == plan.fingerprint:
        unlock(plan.path)
        return Extracted(plan.path, plan.names, plan.layout.nbytes, unchanged=True)
    if swept:
        return Extracted(plan.path, plan.names, plan.layout.nbytes, plan.layout.nbytes)
    place.check(exists)
    told, resumed, done = checked_progress(progress, "bytes"), 0, 0

    def advance(nbytes: int, was_there: bool) -> None:
        nonlocal resumed, done
        done, resumed = done + nbytes, resumed + nbytes * was_there
        if told is not None:
            told(done, total, "extracting")

    total = sum(v.source.nbytes for v in plan.layout.variables if v.chunks is not None)
    with place.held() as lock:
        is_zarr = plan.suffix == ".zarr"
        pieces = Pieces(place.store, place.spare, zarr_store.encode if is_zarr else netcdf_file.encode)
        pieces.write(plan.layout, advance)
        if is_zarr:
            zarr_store.finish(plan.layout, place.store, place.spare)
            place.finish(place.store, lock)
        else:
            netcdf_file.write_file(plan.layout, pieces, place.file)
            place.finish(place.file, lock)
    return Extracted(plan.path, plan.names, plan.layout.nbytes, resumed)


def is_extracted(arrays: MasterArray | Iterable[MasterArray], path: str | os.PathLike[str]) -> bool:
    """Tell whether `extract` has written these very arrays there, and their files have not changed since."""
    plan = _planned(arrays, local_path(path), "update")
    return stored_fingerprint(plan.path) == plan.fingerprint


@dataclass(frozen=True, slots=True)
class _Plan:
    path: str
    suffix: str
    layout: ExtractLayout
    fingerprint: str

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(v.name for v in self.layout.variables)


def _planned(arrays: MasterArray | Iterable[MasterArray], path: str, exists: Any) -> _Plan:
    """Return what would be written where; AggregationError for what does not fit."""
    if exists not in ("raise", "overwrite", "update"):
        raise AggregationError(f"exists={exists!r}: give 'raise', 'overwrite' or 'update'")
    path = os.path.abspath(path)
    suffix = os.path.splitext(path)[1].lower()
    if suffix not in _KINDS:
        raise AggregationError(f"{path}: give a name that ends with .zarr or .nc: it decides what is written")
    given = [arrays] if isinstance(arrays, MasterArray) else list(arrays)
    wrong = [type(a).__name__ for a in given if not isinstance(a, MasterArray)]
    if wrong or not given:
        raise AggregationError(f"{path}: {wrong[0] if wrong else 'no arrays'} to write: give arrays of an aggregation")
    layout = lay_out([resolve_array(a) for a in given], _KINDS[suffix], path)
    check_not_source(path, files_of(layout))
    mark = fingerprint(layout, suffix)
    layout.attributes[ATTRIBUTE] = mark
    return _Plan(path, suffix, layout, mark)
