"""Collective writing of one array to a netCDF-4 file or a Zarr store."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from aggarray.arrays.local import LocalArray
from aggarray.errors import ExchangeError
from aggarray.maps import Block, Distribution, Unstructured
from aggarray.maps.fields import short_repr
from aggarray.mpi.groups import convert_errors
from aggarray.mpi.metadata import metadata_of
from aggarray.mpi.reading import group_over
from aggarray.mpi.schedule.chunk_grid import chunk_layout
from aggarray.mpi.schedule.overlap import plan_receives, plan_sends
from aggarray.mpi.sections import import_sections
from aggarray.mpi.stored_form import StoredArray, StoredForm
from aggarray.mpi.transport.agreement import agree, call_on_root
from aggarray.mpi.transport.base import Link
from aggarray.mpi.transport.moving import bind_messages, move
from aggarray.output.compression import parse_compression

if TYPE_CHECKING:
    from aggarray.mpi.netcdf_file import NetCDFFile
    from aggarray.mpi.zarr_store import Store

#: Kinds of dtypes that are written: those of netCDF, which has no complex numbers, and of Zarr.
_KINDS = {".nc": "biufM", ".zarr": "biufcM"}


def write(local: Any, comm: Any, path: str | os.PathLike[str], name: str | None = None, *, compress: str | None = None) -> None:
    """Write a distributed array to a netCDF-4 file or a Zarr store.

    ``local``: the section of this process, a LocalArray or an exporter with ``__distarray__``. ``path``: a netCDF-4 file if it
    ends with .nc or .nc4, else a Zarr store (version 3). ``name``: None for the name of the array. Coordinates and attributes
    are written too, and the group ``source_files`` lists the files that the values come from. ``compress``: "zlib:4" or another
    level, "zstd:3", "blosc:5", "none". None: "zlib:4" for netCDF, "zstd" for Zarr.

    Each process encodes whole chunks; where the blocks are not cut between chunks, sections are redistributed first. Elements
    held by several processes come from the lowest rank. Each process writes its chunks of a Zarr store. In a netCDF-4 file
    process 0 places the encoded chunks of all processes, and times are numbers since 1970. An existing store or file is
    extended. The array is written beside the result and renamed at the end: a failed write leaves nothing, and a killed one
    leaves hidden files that the next write removes. Collective over ``comm``; raises ExchangeError on all processes if the
    result has an array of that name or different coordinates of the same names, or if an argument is invalid.
    """
    with group_over(comm) as group:
        link = group.section
        section, holders = import_sections(link, local, "write")
        writers = [same[0] for same in holders]
        metadata = metadata_of(section)
        target_name = metadata.name if name is None else name
        described = (short_repr(path), short_repr(target_name), short_repr(compress))
        source, labels = _renumber(section.distribution)
        targets: list[NetCDFFile | Store] = []

        def choose_form() -> Any:
            targets.append(_target(section, path, target_name, compress))
            return None if link.rank else targets[0].form(section)

        form: StoredForm = agree(link, choose_form, ("write", *described))[0]
        with targets[0] as target:
            chunks, blocks = chunk_layout(source, max(form.dtype.itemsize, 1), form.chunk)
            stored = StoredArray(blocks.shape, chunks, form)
            target.work = call_on_root(link, lambda: target.create(stored, labels))
            region, values = _own_block(link, section, source, blocks, writers)
            agree(link, lambda: target.put(link, region, values, stored))
            call_on_root(link, target.finish)


def _target(section: LocalArray, path: Any, name: Any, compress: Any) -> NetCDFFile | Store:
    """Return the target of a section; ExchangeError for invalid arguments."""
    path = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(path, str) or not path or "://" in path:
        raise ExchangeError(f"invalid path {short_repr(path)}", hint="give the path of a local file or folder")
    suffix = ".nc" if path.lower().endswith((".nc", ".nc4")) else ".zarr"
    if not isinstance(name, str) or not name or "/" in name:
        raise ExchangeError(f"invalid name {short_repr(name)}", hint="give the array a name without '/'")
    dtype = section.dtype
    if dtype.kind not in _KINDS[suffix] or dtype.itemsize > (16 if dtype.kind == "c" else 8):
        raise ExchangeError(
            f"values of {dtype} cannot be written in parallel", hint="give numbers of at most 8 bytes, or times"
        )
    section.buffer  # noqa: B018 (read errors are raised before anything is written)
    compression = convert_errors(lambda: parse_compression(compress, suffix))
    if suffix == ".nc":
        from aggarray.mpi.netcdf_file import NetCDFFile

        return NetCDFFile(path, name, metadata_of(section), compression)
    from aggarray.mpi.zarr_store import Store

    return Store(path, name, metadata_of(section), None if compress is None else compression)


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
    bounds = [map_.bounds for map_ in blocks.maps if isinstance(map_, Block)]
    region = tuple(slice(int(cuts[p]), int(cuts[p + 1])) for cuts, p in zip(bounds, blocks.coords(rank), strict=True))
    if _are_owned(source, blocks):
        return region, section.owned
    values = np.empty(blocks.local_shape(rank), dtype)
    sends = bind_messages(plan_sends(source, rank, blocks), section.buffer, "source", writers)
    move(link, sends, bind_messages(plan_receives(source, blocks, rank), values, "target", writers), dtype)
    return region, values


def _are_owned(source: Distribution, blocks: Distribution) -> bool:
    """Return whether every process owns its block."""
    pairs = zip(source.maps, blocks.maps, strict=True)
    return all(
        isinstance(map_, Block) and all(np.array_equal(map_.owned(p), block.indices(p)) for p in range(map_.nprocs))
        for map_, block in pairs
    )
