"""Lock around calls into HDF5 and netCDF-C, which are not thread-safe."""

from __future__ import annotations

import contextlib
import os
from _thread import RLock
from functools import cache
from typing import Any

#: Held around every call into HDF5 or netCDF-C.
LIBRARY_LOCK = RLock()


def _release() -> None:
    # A thread that was already forking when this was registered has not acquired the lock.
    with contextlib.suppress(RuntimeError):
        LIBRARY_LOCK.release()


def _acquire_before_forks() -> None:
    """Acquire the lock before forks: another holder would deadlock a child."""
    if hasattr(os, "register_at_fork"):
        with LIBRARY_LOCK:
            os.register_at_fork(before=LIBRARY_LOCK.acquire, after_in_parent=_release, after_in_child=_release)


_acquire_before_forks()


@cache
def _import_h5py() -> Any:
    """Return h5py, which acquires a lock of its own before a fork.

    Handlers that are registered last run first. Readers acquire `LIBRARY_LOCK` before h5py's lock, so its handler is registered
    again after h5py's: the opposite order would deadlock.
    """
    import h5py

    # promise: h5py-fork
    _acquire_before_forks()
    return h5py


def h5py_file(file: Any, mode: str, **options: Any) -> Any:
    """Return an ``h5py.File``, opened only here while the lock is held."""
    return _import_h5py().File(file, mode, **options)
