"""Executors, archives with a file that kills its reader, and comparison of aggregations."""

import os
import pkgutil
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aggarray as aa
from aggarray.memory import Ragged

_FATAL = """
import os, signal
from aggarray.formats.base import Structure

class Format:
    name = "fatal"
    def recognises(self, path, head):
        return head.startswith(b"FATAL")
    def scan(self, path):
        if os.getpid() == {pid}:
            raise AssertionError("scanned in the process of the caller")
        os.kill(os.getpid(), signal.SIGKILL)
    def open(self, path):
        raise OSError

FORMAT = Format()
"""


@contextmanager
def fatal_format(place: Path) -> Iterator[None]:
    """Install a format in processes that start in this block; the scan of its files kills the process.

    ``place``: a folder for the package.
    """
    from aggarray.formats import _foreign_formats

    (place / "fatal-1.0.dist-info").mkdir(parents=True)
    (place / "fatal.py").write_text(textwrap.dedent(_FATAL.format(pid=os.getpid())))
    (place / "fatal-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: fatal\nVersion: 1.0\n")
    (place / "fatal-1.0.dist-info" / "entry_points.txt").write_text("[aggarray.formats]\nfatal = fatal:FORMAT\n")
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.syspath_prepend(place)
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(place), os.environ.get("PYTHONPATH", "")])))
        _foreign_formats.cache_clear()
        yield
    _foreign_formats.cache_clear()


def write_fatal(path: Path) -> str:
    """Write a file whose scan kills the process; see `fatal_format`."""
    path.write_bytes(b"FATAL")
    return str(path)


class Future:
    """A future with ``result`` alone, not even hashable."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work

    def result(self) -> Any:
        return self._work()


class Executor:
    """An executor with ``submit`` alone, which runs each call when its result is requested.

    ``before``: called with the number of the batch before it is scanned; it may raise. ``version``: that of its workers.
    """

    def __init__(self, before: Callable[[int], None] = lambda number: None, version: str = aa.__version__) -> None:
        self.version = version
        self.before, self.count, self.waiting, self.most_waiting = before, 0, 0, 0

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future:
        if function is pkgutil.resolve_name:
            return Future(lambda: self.version)
        number, self.count, self.waiting = self.count, self.count + 1, self.waiting + 1
        self.most_waiting = max(self.most_waiting, self.waiting)

        def work() -> Any:
            self.waiting -= 1
            self.before(number)
            return function(*arguments)

        return Future(work)


@contextmanager
def dask_client(workers: int = 2, **more: Any) -> Iterator[Any]:
    """Provide a client of dask with worker processes on this machine."""
    distributed = pytest.importorskip("distributed", reason="no distributed: the extra 'xarray'")
    import dask

    # A cluster gives up workers that are not back in time.
    patience = dask.config.set({"distributed.deploy.lost-worker-timeout": "120s"})
    how: dict[str, Any] = {
        "host": "127.0.0.1",
        "dashboard_address": "127.0.0.1:0",
        "worker_dashboard_address": "127.0.0.1:0",
        "processes": True,
    }
    with (
        patience,
        distributed.LocalCluster(n_workers=workers, threads_per_worker=1, silence_logs=50, **how, **more) as cluster,
        distributed.Client(cluster, timeout="60s") as client,
    ):
        if workers:
            client.wait_for_workers(workers, timeout=60)
        yield client


def check_equal(one: aa.Aggregation, other: aa.Aggregation, values: bool = True) -> None:
    """Compare two aggregations in everything; ``values``: those of the arrays too."""
    assert one.refusals == other.refusals and one.skipped == other.skipped and one.duplicates == other.duplicates
    assert one.names == other.names and len(one) == len(other)
    for a, b in zip(one, other, strict=True):
        check_same_array(a, b, values)
        assert list(a.coords) == list(b.coords)
        for name in a.coords:
            check_same_array(a.coords[name], b.coords[name], values)


def check_same_array(a: aa.MasterArray, b: aa.MasterArray, values: bool) -> None:
    """Compare two arrays without their coordinates."""
    for name in ("name", "dtype", "units", "calendar", "dimensions", "shape", "directions", "pmshape"):
        assert getattr(a, name) == getattr(b, name), (a.name, name)
    assert repr(a.attrs) == repr(b.attrs) and repr(a.file_attrs) == repr(b.file_attrs)
    pieces = [[(p.location, p.data and p.data.uri, repr(p.part)) for p in array.partitions] for array in (a, b)]
    assert pieces[0] == pieces[1]
    if values and a.dtype.kind in "iufb":
        one, other = a[...], b[...]
        if isinstance(one, Ragged):
            assert np.array_equal(one.offsets, other.offsets)
            one, other = one.flat, other.flat
        assert np.array_equal(one, other, equal_nan=a.dtype.kind == "f"), a.name
