"""A cluster that the tests of this folder share."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.clusters import local_client


@pytest.fixture(scope="package")
def client() -> Iterator[Any]:
    """A client of two worker processes on this machine."""
    pytest.importorskip("distributed", reason="tasks run in other processes: install the extra 'xarray'")
    with local_client() as client:
        yield client
