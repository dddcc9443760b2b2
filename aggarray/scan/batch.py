"""Batches of scan tasks, which executors and MPI ranks run.

Tasks and results travel as bytes, each distinct part once. `scan_batch` is found by its name in other processes; it uses no
options and no import path of the caller.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from typing import Any

from aggarray.dataclass import replace
from aggarray.errors import AggarrayError
from aggarray.formats import scan_one
from aggarray.formats.partial_scan import Result, Task
from aggarray.scan.pickling import Receiver, Sender
from aggarray.storage import relocated
from aggarray.storage.credentials import access_in_force, in_threads, with_access
from aggarray.storage.files import prefetch_states
from aggarray.storage.urls import is_remote


def installed_version() -> str:
    """Return the version of this package."""
    version: str = sys.modules["aggarray"].__version__
    return version


def scan_batch(version: str, submission: str, request: bytes) -> bytes:
    """Scan the tasks of a request; return the results as bytes.

    ``version``: of the caller; ImportError if it is another one. ``submission``: distinguishes submissions of equal requests
    for schedulers that compute equal calls once.
    """
    if version != installed_version():
        raise ImportError(f"aggarray {installed_version()} scans for aggarray {version}")
    (access, tasks) = _unpacked(request, 1)[0]
    with with_access(access):
        return _packed_results(_scan(tasks))


def pack_request(tasks: Sequence[Task]) -> bytes:
    """Return tasks as bytes, with the access to remote files in force here."""
    return _packed([(access_in_force.get(), list(tasks))])


def unpack_results(content: bytes, count: int) -> list[Result | None]:
    """Return the results of `scan_batch`; None for one that does not pickle."""
    return _unpacked(content, count)


def _scan(tasks: Sequence[Task]) -> list[Result]:
    """Return the results of tasks, with the names that the caller gave."""
    names = [relocated(path) for path, _ in tasks]
    results = _scan_here([(name, request) for name, (_, request) in zip(names, tasks, strict=True)])
    moved = ((result, name, path) for result, name, (path, _) in zip(results, names, tasks, strict=True))
    return [result if name == path else _renamed(result, name, path) for result, name, path in moved]


def _renamed(result: Result, name: str, path: str) -> Result:
    if isinstance(result, AggarrayError):
        result.path = path if result.path == name else result.path
        return result
    return replace(result, uri=path)


def _scan_here(tasks: Sequence[Task]) -> list[Result]:
    """Return the results of tasks; remote files are scanned by threads."""
    remote = [task for task in tasks if is_remote(task[0])]
    prefetch_states(path for path, _ in remote)
    fetched = in_threads(scan_one, remote)
    return [next(fetched) if is_remote(task[0]) else scan_one(task) for task in tasks]


def _packed_results(results: Sequence[Result]) -> bytes:
    try:
        return _packed(results)
    except Exception:  # pickling runs foreign code
        # Attributes of plugin formats may not pickle; the caller scans such a file itself.
        return _packed([result if _pickles(result) else None for result in results])


def _pickles(result: Result) -> bool:
    try:
        return bool(_packed([result]))
    except Exception:
        return False


def _packed(items: Sequence[Any]) -> bytes:
    stream = io.BytesIO()
    sender = Sender(stream)
    for item in items:
        sender.send(item)
    return stream.getvalue()


def _unpacked(content: bytes, count: int) -> list[Any]:
    receiver = Receiver(io.BytesIO(content))
    return [receiver.receive() for _ in range(count)]
