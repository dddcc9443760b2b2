"""Clusters of dask on this machine."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def local_client(n_workers: int = 2, **options: Any) -> Iterator[Any]:
    """Yield a client of workers on this machine: processes of one thread unless ``options`` differ."""
    from distributed import Client, LocalCluster

    defaults = {"threads_per_worker": 1, "processes": True, "silence_logs": 60}
    addresses = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0", "worker_dashboard_address": None}
    with (
        LocalCluster(n_workers=n_workers, **{**defaults, **addresses, **options}) as cluster,
        Client(cluster, timeout="60s") as client,
    ):
        client.wait_for_workers(n_workers, timeout=60)
        yield client
