"""Collective writing: each process writes its own chunks of a Zarr store."""

import os
from typing import Any

import numpy as np

from aggarray.arrays.local import LocalArray
from aggarray.errors import ExchangeError
from aggarray.maps import Block, Distribution, Unstructured
from aggarray.maps.fields import short_repr
from aggarray.mpi.metadata import metadata_of
from aggarray.mpi.reading import group_over
from aggarray.mpi.schedule.chunk_grid import chunk_layout
from aggarray.mpi.schedule.overlap import plan_receives, plan_sends
from aggarray.mpi.sections import import_sections
from aggarray.mpi.transport.agreement import agree, call_on_root
from aggarray.mpi.transport.base import Link
from aggarray.mpi.transport.moving import bind_messages, move
from aggarray.mpi.zarr_store import Store


def write(local: Any, comm: Any, path: str | os.PathLike[str], name: str | None = None) -> None:
    """Write a distributed array to a Zarr store (version 3).

    ``local``: the section of this process, a LocalArray or an exporter with ``__distarray__``. Coordinates and attributes are
    written too. Each process writes whole chunks, so that no two processes write one chunk; where the blocks are not cut
    between chunks, sections are redistributed first. Elements held by several processes come from the lowest rank. ``name``:
    None for the name of the array. An existing store is extended. The array is written beside the store and renamed at the end:
    a failed write leaves nothing, and a killed one leaves a hidden folder that the next write removes. Collective over
    ``comm``; raises ExchangeError on all processes if the store has an array of that name or different coordinates of the same
    names, or if an argument is invalid.
    """
    with group_over(comm) as group:
        link = group.section
        section, holders = import_sections(link, local, "write")
        metadata, writers = metadata_of(section), [same[0] for same in holders]
        target_name = metadata.name if name is None else name

        def check() -> None:
            os.fspath(path)
            if not isinstance(target_name, str) or not target_name or "/" in target_name:
                raise ExchangeError(f"invalid name {short_repr(target_name)}", hint="give the array a name without '/'")
            if section.dtype.kind not in "biufcM":
                raise ExchangeError(f"values of {section.dtype} cannot be written in parallel", hint="give numbers or times")
            section.buffer  # noqa: B018 (read errors are raised before anything is written)

        agree(link, check, ("write", short_repr(path), short_repr(target_name)))
        source, labels = _renumber(section.distribution)
        dtype = section.dtype.newbyteorder("=")
        chunks, blocks = chunk_layout(source, max(dtype.itemsize, 1))
        with Store(os.fspath(path), str(target_name), metadata) as store:
            store.work = call_on_root(link, lambda: store.create((blocks.shape, chunks, dtype), labels))
            region, values = _own_block(link, section, source, blocks, writers)
            agree(link, lambda: store.put(region, values))
            call_on_root(link, store.finish)


def _renumber(distribution: Distribution) -> tuple[Distribution, list[np.ndarray | None]]:
    """Return a distribution from 0, and its labels where they differ."""
    maps = list(distribution.maps)
    labels: list[np.ndarray | None] = [None] * len(maps)
    for d, map_ in enumerate(maps):
        if isinstance(map_, Unstructured):
            lists = [map_.indices(p) for p in range(map_.nprocs)]
            distinct = np.unique(np.concatenate(lists))
            if not np.array_equal(distinct, np.arange(len(distinct))):
                maps[d] = Unstructured(len(distinct), [np.searchsorted(distinct, one) for one in lists], map_.one_to_one)
                labels[d] = distinct
    return Distribution(tuple(maps)), labels


def _own_block(
    link: Link, section: LocalArray, source: Distribution, blocks: Distribution, writers: list[int]
) -> tuple[tuple[slice, ...] | None, np.ndarray]:
    """Return the region that this process writes (None: none), and values."""
    rank, dtype = section.rank, section.dtype.newbyteorder("=")
    if writers[rank] != link.rank:
        return None, np.empty(0, dtype)
    values = np.empty(blocks.local_shape(rank), dtype)
    sends = bind_messages(plan_sends(source, rank, blocks), section.buffer, "source", writers)
    move(link, sends, bind_messages(plan_receives(source, blocks, rank), values, "target", writers), dtype)
    bounds = [map_.bounds for map_ in blocks.maps if isinstance(map_, Block)]
    return tuple(slice(int(cuts[p]), int(cuts[p + 1])) for cuts, p in zip(bounds, blocks.coords(rank), strict=True)), values
