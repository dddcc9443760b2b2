"""Collective reading, reducing and writing with a single process.

`test_mpiexec` runs the same checks under MPI.
"""

import json
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import zarr

from aggarray import mpi
from aggarray.dap import Distribution
from aggarray.mpi import ProcessGroup
from tests.mpi.checks_files import FILE_CHECKS
from tests.mpi.checks_mistakes import MISTAKE_CHECKS
from tests.mpi.checks_netcdf import NETCDF_CHECKS
from tests.mpi.checks_reduce import REDUCE_CHECKS
from tests.mpi.checks_scan import SCAN_CHECKS
from tests.mpi.checks_shared import SHARED_CHECKS
from tests.mpi.checks_start import START_CHECKS
from tests.support.examples import heavy

CHECKS = (*FILE_CHECKS, *NETCDF_CHECKS, *REDUCE_CHECKS, *SCAN_CHECKS, *START_CHECKS, *SHARED_CHECKS, *MISTAKE_CHECKS)


@pytest.mark.parametrize("check", heavy(CHECKS, but=[*CHECKS][::2]), ids=lambda c: c.__name__)
def test_one_process_without_mpi(check: Callable[[ProcessGroup], None]) -> None:
    with ProcessGroup.serial() as root:
        check(root)


def test_consolidated_metadata_is_that_of_zarr(tmp_path: Path, sample_archive: Path) -> None:
    with ProcessGroup.serial() as root:
        tas = mpi.open(str(sample_archive), root)["tas"]
        mpi.write(mpi.local(tas, Distribution.regular(tas.shape, "bbb", (1, 1, 1)), root), root, tmp_path / "out.zarr")
    own = json.loads((tmp_path / "out.zarr/zarr.json").read_text(encoding="utf-8"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        zarr.consolidate_metadata(tmp_path / "out.zarr", zarr_format=3)
    assert own == json.loads((tmp_path / "out.zarr/zarr.json").read_text(encoding="utf-8"))
    assert {"tas", "time", "lat"} <= own["consolidated_metadata"]["metadata"].keys()
