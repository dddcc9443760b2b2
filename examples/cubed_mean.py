"""Mean over time with cubed, in bounded memory: python examples/cubed_mean.py

Worker processes of this machine run the tasks. cubed plans the memory of each task before it starts, and raises an error for a
plan that needs more than MEMORY (default 1GB) per worker.

    cubed_mean.py [SOURCE [VARIABLE [OUTPUT [MEMORY]]]]
"""

import sys
import tempfile

import cubed
import xarray as xr
from cubed.runtime.create import create_executor


def main(source: str = "sample_data/archive", variable: str = "tas", output: str = "mean.nc", memory: str = "1GB") -> None:
    """Open with chunks of equal size, reduce, write."""
    executor = create_executor("processes", {"max_workers": 2})
    reserved = cubed.measure_reserved_mem(executor)
    with tempfile.TemporaryDirectory() as folder:
        spec = cubed.Spec(work_dir=folder, allowed_mem=memory, reserved_mem=reserved, executor=executor)
        # A task needs about four times the bytes of its chunk.
        nbytes = max(1, (spec.allowed_mem - reserved) // 8)
        ds = xr.open_dataset(
            source,
            engine="aggarray",
            variables=[variable],
            chunks={},
            regular_chunks=nbytes,
            chunked_array_type="cubed",
            from_array_kwargs={"spec": spec},
        )
        mean = ds[variable].mean("time")
        mean.compute().to_netcdf(output)
    print(f"{variable}: chunks of {ds[variable].data.chunksize}, mean in {output}")


if __name__ == "__main__":
    main(*sys.argv[1:])
