"""What do the tests of faults share: a stage, and the files that are read."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from staging import Stage, staged
from works import make_data


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    """A process that carries out works, disturbed."""
    with staged() as made:
        yield made


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with three files in ``data``, of one step of time each."""
    made = tmp_path_factory.mktemp("works")
    make_data(made)
    return made
