"""One version per file in reads through libraries, which fetch the parts of a file one by one."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from aggarray.storage.remote import changed

#: States of files when this read first met them, by path.
_first_states: ContextVar[dict[str, Any] | None] = ContextVar("aggarray_met", default=None)


@contextmanager
def one_version() -> Iterator[None]:
    """Require one version of each file read inside a block; `check_version` raises ChangedFileError otherwise."""
    token = _first_states.set({}) if _first_states.get() is None else None
    try:
        yield
    finally:
        if token is not None:
            _first_states.reset(token)


def check_version(path: str, state: Any) -> None:
    """Raise ChangedFileError for a file that has changed since this read first met it."""
    met = _first_states.get()
    if met is not None and met.setdefault(path, state) != state:
        raise changed(path)
