"""Climatology of each month on a cluster of dask: python examples/dask_climatology.py

The workers scan the files, and read and average the chunks. The program sends them the address of an index.

    dask_climatology.py [SOURCE [VARIABLE [OUTPUT [SCHEDULER]]]]

OUTPUT is a netCDF file; its index is saved beside it. SCHEDULER is the address of a cluster that sees the same files; without
it, two worker processes of this machine do the work.
"""

import sys
from pathlib import Path

from distributed import Client, LocalCluster

import aggarray as aa


def climatology(client: Client, source: str, variable: str, output: Path) -> None:
    """Scan, read, average, write."""
    with client.get_executor() as workers:
        archive = aa.open(source, executor=workers, variables=[variable])
    index = output.with_suffix(".nca").absolute()
    archive.save(index)

    # Chunks follow files and stored chunks: no worker decodes a stored chunk that another one needs.
    array = aa.open(index)[variable]
    chunks = dict(zip(array.dimensions, array.chunks_for(50_000_000), strict=True))
    values = array.to_xarray(chunks)
    months = values.groupby("time.month")
    result = months.mean().to_dataset(name=f"{variable}_mean").assign({f"{variable}_std": months.std()})
    result.to_netcdf(output)
    count = len(client.scheduler_info()["workers"])
    print(f"{variable}: {len(values)} steps in {values.data.npartitions} chunks on {count} workers; climatology in {output}")


def main(
    source: str = "sample_data/archive", variable: str = "tas", output: str = "climatology.nc", scheduler: str | None = None
) -> None:
    """Connect to a cluster, or start one."""
    if scheduler is not None:
        with Client(scheduler) as client:
            climatology(client, source, variable, Path(output))
        return
    here = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0", "silence_logs": 50}
    with LocalCluster(n_workers=2, threads_per_worker=1, **here) as cluster, Client(cluster) as client:
        climatology(client, source, variable, Path(output))


if __name__ == "__main__":
    main(*sys.argv[1:])
