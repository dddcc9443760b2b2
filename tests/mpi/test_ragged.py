"""Movements of rows and text over threads and a single process.

`test_mpiexec` runs the same checks under MPI.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from aggarray.mpi import ProcessGroup
from tests.mpi.checks_ragged import RAGGED_CHECKS, check_reading_rows, make_rows
from tests.support.thread_link import run


@pytest.mark.parametrize("size", [1, 2, 4, 7])
@pytest.mark.parametrize("check", RAGGED_CHECKS, ids=lambda c: c.__name__)
def test_rows_and_text_move(check: Callable[[ProcessGroup], None], size: int) -> None:
    run(size, check)


@pytest.mark.parametrize("texts", [12, 20_000])
@pytest.mark.parametrize("size", [1, 3])
def test_rows_and_text_are_read(size: int, texts: int, tmp_path: Path) -> None:
    make_rows(tmp_path, texts)
    run(size, partial(check_reading_rows, folder=tmp_path))
