"""All checks under MPI, with mpiexec on 1 to 12 ranks."""

import time

import pytest

from tests.mpi.checks import CHECKS
from tests.mpi.checks_files import FILE_CHECKS
from tests.mpi.checks_mistakes import MISTAKE_CHECKS
from tests.mpi.checks_netcdf import NETCDF_CHECKS
from tests.mpi.checks_ragged import RAGGED_CHECKS
from tests.mpi.checks_reduce import REDUCE_CHECKS
from tests.mpi.checks_scan import SCAN_CHECKS
from tests.mpi.checks_shared import SHARED_CHECKS
from tests.mpi.checks_start import START_CHECKS
from tests.support.mpi import run_mpi

FILES = (*FILE_CHECKS, *NETCDF_CHECKS, *REDUCE_CHECKS, *SCAN_CHECKS, *START_CHECKS)


@pytest.mark.heavy
@pytest.mark.parametrize("ranks", [1, 2, 3, 12])
def test_movements(ranks: int) -> None:
    printed = run_mpi(ranks, "tests/mpi/program.py", seconds=200 + 40 * ranks)
    assert [line.split()[1] for line in printed.splitlines() if line.startswith("passed")] == [
        c.__name__ for c in (*CHECKS, *FILES, *SHARED_CHECKS, *MISTAKE_CHECKS, *RAGGED_CHECKS)
    ]


@pytest.mark.heavy
def test_hanging_run_times_out() -> None:
    start = time.monotonic()
    with pytest.raises(pytest.fail.Exception, match="takes more than"):
        run_mpi(2, "tests/mpi/program.py", "hang", seconds=3)
    assert time.monotonic() - start < 30
