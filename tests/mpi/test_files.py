"""Collective reading, reducing and writing with a single process.

`test_mpiexec` runs the same checks under MPI.
"""

from collections.abc import Callable

import pytest

from aggarray.mpi import ProcessGroup
from tests.mpi.checks_files import FILE_CHECKS
from tests.mpi.checks_mistakes import MISTAKE_CHECKS
from tests.mpi.checks_netcdf import NETCDF_CHECKS
from tests.mpi.checks_scan import SCAN_CHECKS
from tests.mpi.checks_shared import SHARED_CHECKS
from tests.mpi.checks_start import START_CHECKS

CHECKS = (*FILE_CHECKS, *NETCDF_CHECKS, *SCAN_CHECKS, *START_CHECKS, *SHARED_CHECKS, *MISTAKE_CHECKS)


@pytest.mark.parametrize("check", CHECKS, ids=lambda c: c.__name__)
def test_one_process_without_mpi(check: Callable[[ProcessGroup], None]) -> None:
    with ProcessGroup.serial() as root:
        check(root)
