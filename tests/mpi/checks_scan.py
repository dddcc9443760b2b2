"""Checks of scans that all processes share. All processes run them together."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

import aggarray as aa
from aggarray import mpi
from aggarray.dap import Distribution
from aggarray.errors import AggarrayError
from aggarray.mpi import ProcessGroup
from aggarray.mpi.transport.agreement import agree
from aggarray.scan import batch, workers
from tests.mpi.checks_files import shared_folder
from tests.support.executors import check_equal
from tests.support.netcdf import cube, write

FILES = 160


def _write_archive(folder: Path) -> None:
    for number in range(FILES):
        write(folder / f"{number:03}.nc", cube([number]), {"source_id": f"M{number % 3}"})
    (folder / "broken.nc").write_bytes(b"\x89HDF\r\n\x1a\n nothing")


def scanned_by(root: ProcessGroup, folder: Path, **how: object) -> tuple[aa.Aggregation, list[int]]:
    """Open a folder on all processes; return the aggregation and the number of files that each process scanned."""
    seen: list[str] = []

    def counted(task: batch.Task) -> batch.Result:
        seen.append(task[0])
        return scan_one(task)

    scan_one = batch.scan_one
    with mock.patch.object(batch, "scan_one", counted), mock.patch.object(workers, "scan_one", counted):
        agg = mpi.open(str(folder), root, **how)
    return agg, [len(set(paths)) for paths in agree(root.section, lambda: seen)]


def check_scanning(root: ProcessGroup) -> None:
    """All processes scan files, and the result equals that of one process."""
    with shared_folder(root) as folder:
        if root.rank == 0:
            _write_archive(folder)
        agree(root.section, lambda: None)
        steps: list[tuple[int, int]] = []
        agg, counts = scanned_by(root, folder, progress=lambda done, total, what: steps.append((done, total)))
        check_equal(aa.open(str(folder), processes=1), agg, values=False)
        assert len(agg.skipped) == 1
        assert steps == ([] if root.rank else [(n + 1, FILES + 1) for n in range(FILES + 1)])
        assert sum(counts) == FILES + 1 and (root.size > 8 or all(counts))
        _, counts = scanned_by(root, folder, processes=2)
        assert sum(counts) == FILES + 1 and not any(counts[2:])
        trusting = aa.Rules(trust="assume")
        agg, _ = scanned_by(root, folder, rules=trusting)
        check_equal(aa.open(str(folder), rules=trusting, processes=1), agg, values=False)
        agg, counts = scanned_by(root, folder / "0[0-3]*.nc")
        assert counts == [40, *[0] * (root.size - 1)] and sum(a.shape[0] for a in agg) == 40


def check_executors_of_ranks(root: ProcessGroup) -> None:
    """An executor of process 0 scans instead of the processes."""
    with shared_folder(root) as folder:
        if root.rank == 0:
            _write_archive(folder)
        agree(root.section, lambda: None)
        with ThreadPoolExecutor(2) as pool:
            agg, counts = scanned_by(root, folder, executor=None if root.rank else pool)
        assert counts[0] == FILES + 1 and not any(counts[1:]) and len(agg.skipped) == 1


class _ForeignError(Exception):
    """Error whose pickle cannot be loaded."""

    def __init__(self, what: str, code: int) -> None:
        super().__init__(f"{what} {code}")


def check_failing_scans(root: ProcessGroup) -> None:
    """Errors during a scan are raised on all processes, which then go on."""
    with shared_folder(root) as folder:
        if root.rank == 0:
            _write_archive(folder)
        agree(root.section, lambda: None)

        def progress(done: int, total: int, what: str) -> None:
            if done == FILES // 2:
                raise aa.AggregationError("enough")

        with pytest.raises(aa.AggregationError, match="enough"):
            mpi.open(str(folder), root, progress=progress)
        with pytest.raises(aa.AggregationError, match="processes=0 is invalid"):
            mpi.open(str(folder), root, processes=0)
        fail = mock.patch.object(batch, "scan_one", side_effect=MemoryError(f"process {os.getpid()}"))
        if root.size > 1:
            with fail, pytest.raises(AggarrayError, match="its scan fails in every worker"):
                mpi.open(str(folder / "0[0-6]*.nc"), root)
            foreign = mock.patch.object(batch, "scan_one", side_effect=_ForeignError("damaged", 3))
            with foreign, pytest.raises(AggarrayError, match="its scan fails in every worker"):
                mpi.open(str(folder / "0[0-6]*.nc"), root)
        mpi.open(str(folder), root)


def check_fixes(root: ProcessGroup) -> None:
    """All processes have the arrays of one that applies the fixes, and read the same values."""
    fixes = [
        aa.Fix(variable="tas", set={"units": "degC"}, where="[0-2].nc"),
        aa.Fix(shift_time=(12, "hours")),
        aa.Fix(rename={"lat": "y"}),
    ]
    with shared_folder(root) as folder:
        for number in range(4) if root.rank == 0 else ():
            write(folder / f"{number}.nc", cube([number]))
        agree(root.section, lambda: None)
        expected, agg = aa.open(folder, fixes=fixes, processes=1), mpi.open(str(folder), root, fixes=fixes)
        check_equal(expected, agg)
        assert agg.fixes == expected.fixes and agg["tas"].dimensions == ("time", "y", "lon")
        local = mpi.local(agg["tas"], Distribution.regular(agg["tas"].shape, "bbb", (root.size, 1, 1)), root)
        np.testing.assert_array_equal(local.buffer, expected["tas"][:][local.global_indices[0]])


SCAN_CHECKS = (check_scanning, check_executors_of_ranks, check_failing_scans, check_fixes)
