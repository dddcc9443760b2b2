"""Fixtures of remote files."""

from collections.abc import Iterator

import pytest

from aggarray.read import close_files
from tests.support.servers import free_of_proxies


@pytest.fixture(autouse=True)
def _nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let each test begin and end without open files and cached objects, past any proxy."""
    for name, value in free_of_proxies().items():
        monkeypatch.setenv(name, value)
    close_files()
    yield
    close_files()
