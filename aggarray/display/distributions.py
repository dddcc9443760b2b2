"""Facts of a distribution as plain data, for text or JSON."""

from __future__ import annotations

from typing import Any

from aggarray.arrays.master import MasterArray
from aggarray.arrays.ragged import RaggedMasterArray
from aggarray.arrays.ragged_local import sample_distribution
from aggarray.display.facts import listed
from aggarray.errors import ProtocolError
from aggarray.maps import Distribution


def make_distribution(
    array: MasterArray, grid: tuple[int, ...], dist: str | None, block_size: int | None, partitions: str | None
) -> Distribution:
    """Return a distribution of an array; ProtocolError if it does not fit.

    ``dist``: 'b' or 'c' for each dimension, None: blocks; ``partitions``: how to distribute whole partitions instead.
    Dimensions that ``grid`` and ``dist`` do not mention are not divided.
    """
    types = (dist or "").replace(",", "").replace(" ", "")
    if len(types) > array.ndim:
        what = f"dist {dist!r} has {len(types)} letters for {array.ndim} dimensions"
        raise ProtocolError(what, hint="give at most one letter per dimension")
    grid = (*grid, *[1] * array.ndim)[: array.ndim]
    # By default, rows of different lengths are balanced by samples.
    if partitions is not None or (isinstance(array, RaggedMasterArray) and dist is None and block_size is None):
        return Distribution.from_partitions(array, grid, balance=partitions or "contiguous")
    types = types.ljust(array.ndim, "b")
    cyclic = [d for d, letter in enumerate(types) if letter == "c"]
    if block_size and not cyclic:
        what = f"block_size {block_size} without a cyclic dimension"
        raise ProtocolError(what, hint="leave it out, or give a 'c' in dist")
    return Distribution.regular(array.shape, types, grid, dict.fromkeys(cyclic, block_size or 1))


def distribution_facts(array: MasterArray, distribution: Distribution, version: str) -> dict[str, Any]:
    """Return the data of `aggarray distribute` for a protocol version.

    ``samples``: the dim_data of the samples of a ragged array, which every rank exports.
    """
    samples = sample_distribution(distribution, array.offsets) if isinstance(array, RaggedMasterArray) else None
    ranks = [
        {
            "rank": rank,
            "coords": list(distribution.coords(rank)),
            "local_shape": list(distribution.local_shape(rank)),
            "dim_data": _dim_data(distribution, rank, version),
            **({} if samples is None else {"samples": _dim_data(samples, rank, version)}),
        }
        for rank in range(distribution.nprocs)
    ]
    head = {"name": array.name, "dimensions": list(array.dimensions), "shape": list(array.shape)}
    return {**head, "grid": list(distribution.grid), "version": version, "ranks": ranks}


def section_rows(facts: dict[str, Any]) -> list[list[str]]:
    """Return the section of each rank of `distribution_facts` as slices."""
    rows = []
    for rank in facts["ranks"]:
        entries = zip(rank["dim_data"], rank["local_shape"], strict=True)
        shape = " x ".join(map(str, rank["local_shape"])) or "scalar"
        samples = [_section(e, e.get("stop", e["size"]) - e.get("start", 0)) for e in rank.get("samples", ())]
        rows.append([str(rank["rank"]), *(_section(e, n) for e, n in entries), shape, *samples])
    return rows


def _dim_data(distribution: Distribution, rank: int, version: str) -> list[dict[str, Any]]:
    return [{k: listed(v) for k, v in entry.items()} for entry in distribution.dim_data(rank, version)]


def _section(entry: dict[str, Any], extent: int) -> str:
    """Return a dimension dictionary in the notation of slices."""
    dist_type = entry["dist_type"]
    if not extent:
        return f"{dist_type} nothing"
    if dist_type == "u":
        first = ", ".join(map(str, entry["indices"][:4]))
        return f"u {first}{', ...' if extent > 4 else ''}"
    if dist_type == "n":
        return f"n 0:{entry['size']}"
    if dist_type == "c":
        block = entry.get("block_size", 1)
        return f"c {entry['start']}::{entry['proc_grid_size'] * block}" + (f" in blocks of {block}" if block > 1 else "")
    return f"b {entry['start']}:{entry['stop']}"
