"""A program of a user, which uses every public name. Type checkers read it; it is not executed."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, assert_type

import numpy as np

import aggarray as aa
from aggarray import dap, exchange, memory, mpi, report, serve


def opening(folder: Path) -> aa.MasterArray:
    rules = aa.Rules(along=["time"], tolerance=1e-6, overlap="first", units={"tas": "K"})
    fix = aa.Fix(where="*.nc", variable="tas", set={"units": "K"}, shift_time=(1, "days"))
    agg = aa.open([folder, "b*.nc"], rules=rules, variables=["tas"], progress=True, fixes=[fix], roots=[folder], processes=2)
    assert_type(agg, aa.Aggregation)
    assert_type(agg.names, tuple[str, ...])
    assert_type(agg.refusals, tuple[aa.Refusal, ...])
    assert_type(agg.skipped, tuple[aa.Skipped, ...])
    assert_type(agg.duplicates, tuple[aa.Duplicate, ...])
    assert_type(agg.fixes, tuple[aa.Fix, ...])
    assert_type([array for array in agg], list[aa.MasterArray])
    assert_type(agg.select("tas", experiment_id="ssp585"), aa.Aggregation)
    assert_type(agg.append(folder / "new.nc"), aa.Aggregation)
    result = agg.check(checksum=True)
    assert_type(result, aa.Report)
    assert_type(result.ok, bool)
    assert_type(result.problems, tuple[aa.Problem, ...])
    assert_type(agg.save(folder / "tas.nca", convention="CF-1.13"), aa.Report)
    assert_type(agg.check_layout("cloud"), aa.Report)
    assert_type(agg.to_kerchunk(), dict[str, Any])
    assert_type(report.page(agg), str)
    assert_type(report.write(report.page(agg), folder / "page.html"), bool)
    assert_type(serve.app("tas.nca", agg, chunks={"time": 30}).debug, bool)
    with aa.open("tas.nca", relocate={"/old": "/new"}, missing="fill") as again, aa.set_options(threads=2):
        return again["tas"]


def reading(tas: aa.MasterArray) -> Iterator[float]:
    assert_type(tas.shape, tuple[int, ...])
    assert_type(tas.dimensions, tuple[str, ...])
    assert_type(tas.units, str | None)
    assert_type(tas.dtype, np.dtype[Any])
    assert_type(tas.coords["lat"], aa.MasterArray)
    assert_type(tas[0, ::2, [1, 5]], np.ndarray)
    assert_type(tas.read(np.s_[:5], threads=2), np.ndarray)
    assert_type(tas.values, np.ndarray)
    assert_type(tas.read(masked=True), "np.ma.MaskedArray[Any, Any]")
    assert_type(tas.datetimes(), np.ndarray)
    assert_type(np.asarray(tas), np.ndarray)
    lazy = tas.lazy[:10].transpose("lon", "lat", "time").flip("lat").to_units("degC").astype("f4")
    assert_type(lazy, aa.MasterArray)
    assert_type(tas.sel(time="2001-07", lat=slice(-30, 30)), aa.MasterArray)
    assert_type(tas.isel(time=0).forecast("best"), aa.MasterArray)
    assert_type(tas.mean("time", by="month"), aa.MasterArray)
    assert_type(tas.reduce("max", ["lat", "lon"], weights="area", skipna=False), aa.MasterArray)
    assert_type(tas.climatology().quantile([0.1, 0.9], "time"), aa.MasterArray)
    assert_type(tas.chunks_for(100 << 20), tuple[tuple[int, ...], ...])
    for source in tas.sources(0):
        assert_type(source, aa.Source)
    for row in tas:
        yield float(row.sum())


def building() -> aa.MasterArray:
    stored = aa.SubArray.from_file("a.nc", "tas")
    in_memory = aa.SubArray.from_array([[1.0, 2.0]], dimensions=("y", "x"), units="K")
    assert_type(stored.read(copy=False), np.ndarray)
    assert_type(stored.read(masked=True), "np.ma.MaskedArray[Any, Any]")
    array = aa.MasterArray.from_subarrays([([(0, 1), (0, 2)], in_memory)], dimensions=("y", "x"))
    matrix = array.partitions
    assert_type(matrix, aa.PartitionMatrix)
    cell = matrix[0, 1]
    assert_type(cell, aa.Partition)
    assert_type(cell.data, aa.SubArray | None)
    return aa.concat([array, array], "y")


def catching() -> str | None:
    every = (aa.AccessError, aa.AggregationError, aa.ExchangeError, aa.ForbiddenPathError, aa.FormatError, aa.IndexFileError)
    more = (aa.MemoryAccessError, aa.MissingFileError, aa.NotFoundError, aa.ProtocolError, aa.SelectionError, aa.UnitsError)
    try:
        building()
    except (*every, *more) as error:
        assert_type(error.hint, str | None)
    except aa.AggarrayError as error:
        return error.path
    return None


def distributing(tas: aa.MasterArray) -> None:
    block: dap.Map = dap.Block([0, 3, 10], padding=(1, 1))
    assert_type(dap.Block.even(10, 4), dap.Block)
    cyclic, indices = dap.Cyclic(10, 4, block_size=2), dap.Unstructured(4, [np.array([0, 3]), np.array([1, 2])])
    assert_type(block.indices(0), np.ndarray)
    assert_type(cyclic.dim_dict(0), dict[str, Any])
    distribution = dap.Distribution([block, cyclic, indices])
    assert_type(dap.Distribution.regular(tas.shape, "bcb", grid=(2, 2, 1)), dap.Distribution)
    local = tas.local(distribution, rank=3)
    assert_type(local, dap.LocalArray)
    assert_type(local.buffer, np.ndarray)
    export = local.__distarray__()
    dap.validate(export)
    dap.validate_all([export])
    assert_type(dap.num_owned_indices(export["dim_data"][0]), int)
    dap.convert(export["dim_data"], "0.9.0")
    dap.picture(distribution)


def exchanging(tas: aa.MasterArray, comm: Any) -> None:
    with mpi.ProcessGroup(comm) as group:
        grid = group.include([0, 1]).grid((1, 2))
        assert_type(grid, mpi.ProcessGrid)
        distribution = dap.Distribution.regular(tas.shape, "b", grid=(2,))
        moves = (mpi.Broadcast(grid, group), mpi.SumReduce(group, grid), mpi.AllSumReduce(grid))
        for move in (*moves, mpi.Repartition(grid, grid, distribution, distribution), mpi.HaloExchange(grid, distribution)):
            move.adjoint(move(np.zeros(3)))
        ragged = mpi.RaggedRepartition(grid, grid, distribution, distribution)
        assert_type(ragged(memory.Ragged([1.0], [0, 1])), memory.Ragged)
        assert_type(mpi.open("tas.nca", comm), aa.Aggregation)
        local = mpi.local(tas, distribution, comm)
        assert_type(mpi.reduce(local, "mean", ["time"], comm), dap.LocalArray)
        mpi.write(local, comm, "out.nc", name="tas")
    assert_type(exchange.halo_widths(10, 2, 3), list[tuple[int, int]])
    exchange.broadcast_groups([0], (1,), [0, 1], (2,))


def viewing(values: np.ndarray) -> memory.Array:
    array = memory.view(values)
    assert_type(array.type, memory.Type)
    assert_type(array.access, memory.Access)
    assert_type(array.block, memory.Block)
    assert_type(memory.type_string(values) + memory.debug_repr(array), str)
    assert_type(memory.parse_type("3 * int32"), memory.Type)
    return memory.asarray(memory.array(values))[1:]


def mistaken(tas: aa.MasterArray) -> None:
    """Contain mistakes: a checker that accepts one of these lines reports its comment as unused."""
    aa.opne("a.nc")  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    dap.Blok(3)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    memory.veiw(3)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    mpi.opne(3)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    tas.means("time")  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    _ = tas + 1  # type: ignore[operator]  # pyright: ignore[reportOperatorIssue, reportUnknownVariableType]
    aa.open("a.nc", rule=aa.Rules())  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    aa.Rules(tolerance="small")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
