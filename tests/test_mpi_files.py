"""Do many workers read, reduce and write as one would? Here by a single process; `test_mpi_run` has MPI."""

from collections.abc import Callable

import pytest
from mpi_files import FILE_CHECKS
from mpi_mixups import MIXUP_CHECKS

from aggarray.mpi import ProcessGroup


@pytest.mark.parametrize("check", (*FILE_CHECKS, *MIXUP_CHECKS), ids=lambda c: c.__name__)
def test_one_process_without_mpi(check: Callable[[ProcessGroup], None]) -> None:
    with ProcessGroup.serial() as root:
        check(root)
