"""Reads of which all that they take of a file must be of one version, where libraries ask for the parts one by one."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from aggarray.storage.remote import changed

#: What files were like when this read met them first, by path.
_met: ContextVar[dict[str, Any] | None] = ContextVar("aggarray_met", default=None)


@contextmanager
def one_version() -> Iterator[None]:
    """Let all that is read of a file inside a block be of one version, or `check_version` raise ChangedFileError."""
    token = _met.set({}) if _met.get() is None else None
    try:
        yield
    finally:
        if token is not None:
            _met.reset(token)


def check_version(path: str, state: Any) -> None:
    """Raise ChangedFileError for a file that is not what it was when this read met it first."""
    met = _met.get()
    if met is not None and met.setdefault(path, state) != state:
        raise changed(path)
