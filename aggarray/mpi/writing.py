"""How do many processes write one array? Each its own chunks of one Zarr store, after neighbours have evened out borders."""

import os
from typing import Any

import numpy as np

from aggarray.arrays.local import LocalArray
from aggarray.errors import ExchangeError
from aggarray.maps import Block, Distribution, Map, Unstructured
from aggarray.maps.fields import brief
from aggarray.mpi.metadata import metadata_of
from aggarray.mpi.reading import group_over
from aggarray.mpi.schedule import incoming, outgoing
from aggarray.mpi.schedule.chunk_grid import chunk_layout
from aggarray.mpi.sections import import_sections
from aggarray.mpi.transport import Link, Message, Part, agree, move, shared
from aggarray.mpi.zarr_store import Store


def write(local: Any, comm: Any, path: str | os.PathLike[str], name: str | None = None) -> None:
    """Write a distributed array to a Zarr store (version 3), with coordinates and attributes. Collective over ``comm``.

    ``local``: this process's section, a LocalArray or any exporter with ``__distarray__``. Every process writes whole chunks,
    so that no two touch one; where the distribution is not cut at chunks, sections move between processes first.
    Elements that several hold are the lowest rank's. ``name``: None is the array's own. A store that is there is added to;
    ExchangeError on all processes where it has an array of that name, or other coordinates of the same names, or for what
    does not fit. It is made beside the store, and comes into it when it is whole: nothing is left of an array that could not be
    written, and who is killed meanwhile leaves a hidden folder that goes away with the next write.
    """
    with group_over(comm) as group:
        link = group.section
        section, held = import_sections(link, local, "write")
        known, writers = metadata_of(section), [same[0] for same in held]
        target_name = known.name if name is None else name

        def check() -> None:
            os.fspath(path)
            _check(target_name, section.dtype)
            section.buffer  # noqa: B018 (what cannot be read is not begun to be written)

        agree(link, check, ("write", brief(path), brief(target_name)))
        source, labels = _numbered(section.distribution)
        dtype = section.dtype.newbyteorder("=")
        chunks, blocks = chunk_layout(source, max(dtype.itemsize, 1))
        with Store(os.fspath(path), str(target_name), known) as store:
            store.work = shared(link, lambda: store.create((blocks.shape, chunks, dtype), labels))
            values = _at_home(link, section, source, blocks, writers)
            agree(link, lambda: store.put(_block(blocks, _place(link, section, writers)), values))
            shared(link, store.finish)


def _check(name: Any, dtype: np.dtype[Any]) -> None:
    if not isinstance(name, str) or not name or "/" in name:
        raise ExchangeError(f"name {brief(name)}: give the array a name to be stored under, without '/'")
    if dtype.kind not in "biufcM":
        raise ExchangeError(f"values of {dtype} cannot be written together: give numbers or times")


def _numbered(distribution: Distribution) -> tuple[Distribution, list[np.ndarray | None]]:
    """Return a distribution whose indices count from 0, and per dimension the labels that they stand for (None: the same)."""
    maps: list[Map] = []
    labels: list[np.ndarray | None] = []
    for one in distribution.maps:
        found = (
            np.unique(np.concatenate([one.indices(p) for p in range(one.nprocs)])) if isinstance(one, Unstructured) else None
        )
        if found is None or np.array_equal(found, np.arange(len(found))):
            maps.append(one)
            labels.append(None)
            continue
        lists = [np.searchsorted(found, one.indices(p)) for p in range(one.nprocs)]
        maps.append(Unstructured(len(found), lists, one.one_to_one if isinstance(one, Unstructured) else False))
        labels.append(found)
    return Distribution(tuple(maps)), labels


def _place(link: Link, section: LocalArray, writers: list[int]) -> int | None:
    """Return which block this process writes; None where another does that."""
    return section.rank if writers[section.rank] == link.rank else None


def _at_home(link: Link, section: LocalArray, source: Distribution, blocks: Distribution, writers: list[int]) -> np.ndarray:
    """Return what a process writes, moved from where it was."""
    rank = _place(link, section, writers)
    dtype = section.dtype.newbyteorder("=")
    result = np.empty((0,) if rank is None else blocks.local_shape(rank), dtype)
    given, taken = [], []
    if rank is not None:
        for m in outgoing(source, rank, blocks):
            given.append(Message(writers[m.peer], tuple(Part(section.buffer, b.source, b.shape) for b in m.boxes)))
        for m in incoming(source, blocks, rank):
            taken.append(Message(writers[m.peer], tuple(Part(result, b.target, b.shape) for b in m.boxes)))
    move(link, given, taken, dtype)
    return result


def _block(blocks: Distribution, rank: int | None) -> tuple[slice, ...] | None:
    """Return where the block of a process lies, None where it has none."""
    if rank is None:
        return None
    bounds = [one.bounds for one in blocks.maps if isinstance(one, Block)]
    return tuple(slice(int(cuts[p]), int(cuts[p + 1])) for cuts, p in zip(bounds, blocks.coords(rank), strict=True))
