"""Errors of the file system while an array is written."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from aggarray.errors import ExchangeError
from aggarray.storage.locks import LockError


@contextmanager
def convert_write_errors(path: str, name: str) -> Iterator[None]:
    """Raise errors of the operating system as ExchangeErrors with the path."""
    try:
        yield
    except LockError as error:
        raise ExchangeError(f"cannot be written: {error.what}", path=path, variable=name, hint=error.hint) from error
    except OSError as error:
        # promise: mpi-store-error-path
        why = str(error) if error.errno is None else os.strerror(error.errno)
        hint = "check the folder, its permissions and its space"
        raise ExchangeError(f"cannot be written: {why}", path=path, variable=name, hint=hint) from error
