"""Who may call into HDF5 or netCDF-C? One thread at a time: neither library is safe under threads."""

import contextlib
import os
import threading
from functools import cache
from typing import Any

#: Held around every call into HDF5 or netCDF-C.
LIBRARY_LOCK = threading.RLock()


def _let_go() -> None:
    # Whoever was about to fork when this was registered has not taken it for this.
    with contextlib.suppress(RuntimeError):
        LIBRARY_LOCK.release()


def _hold_in_forks() -> None:
    """Have the lock taken before each fork: a child would wait for ever for a thread that was inside a library."""
    if hasattr(os, "register_at_fork"):
        with LIBRARY_LOCK:
            os.register_at_fork(before=LIBRARY_LOCK.acquire, after_in_parent=_let_go, after_in_child=_let_go)


_hold_in_forks()


@cache
def _with_h5py() -> Any:
    """Return h5py, which has a lock of its own that it takes before a fork.

    What was registered last is taken first: ours has to be, as readers take ours first. Else each would wait for the other.
    """
    import h5py

    # promise: h5py-fork
    _hold_in_forks()
    return h5py


def h5py_file(file: Any, mode: str, **options: Any) -> Any:
    """Return an ``h5py.File``; the lock must be held. No other is opened in this package."""
    return _with_h5py().File(file, mode, **options)
