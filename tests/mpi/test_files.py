"""Do many workers read, reduce and write as one would? Here by a single process; `test_mpi_run` has MPI."""

from collections.abc import Callable

import pytest

from aggarray.mpi import ProcessGroup
from tests.mpi.checks_files import FILE_CHECKS
from tests.mpi.checks_mistakes import MIXUP_CHECKS


@pytest.mark.parametrize("check", (*FILE_CHECKS, *MIXUP_CHECKS), ids=lambda c: c.__name__)
def test_one_process_without_mpi(check: Callable[[ProcessGroup], None]) -> None:
    with ProcessGroup.serial() as root:
        check(root)
