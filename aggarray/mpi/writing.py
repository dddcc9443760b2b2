"""How do many processes write one array? Each its own chunks of one Zarr store, after neighbours have evened out borders."""

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from aggarray.errors import ExchangeError, ProtocolError
from aggarray.exchange import incoming, outgoing
from aggarray.exchange.chunks import chunk_layout
from aggarray.local import LocalArray
from aggarray.maps import Distribution, Map, Unstructured
from aggarray.maps.fields import brief
from aggarray.master import MasterArray
from aggarray.mpi.about import About, about, about_array, holders
from aggarray.mpi.reading import group_over
from aggarray.transport import Link, Parcel, Part, move, shared, together


def write(local: Any, comm: Any, path: str | os.PathLike[str], name: str | None = None) -> None:
    """Write a distributed array to a Zarr store (version 3), with coordinates and attributes. Collective over ``comm``.

    ``local``: this process's section, a LocalArray or any exporter with ``__distarray__``. Every process writes whole chunks,
    so that no two touch one; where the distribution is not cut at chunks, sections move between processes first.
    Elements that several hold are the lowest rank's. ``name``: None is the array's own. A store that is there is added to;
    ExchangeError on all processes where it has an array of that name, or for what does not fit.
    """
    with group_over(comm) as group:
        link = group.section
        section, writers = _taken_in(link, local)
        known, target_name = about(section), name or about(section).name
        source, labels = _numbered(section.distribution)
        dtype = section.dtype.newbyteorder("=")
        chunks, blocks = chunk_layout(source, max(dtype.itemsize, 1))

        def create() -> None:
            _create(os.fspath(path), target_name, known, (blocks.shape, chunks, dtype))
            _write_coordinates(os.fspath(path), target_name, known, labels)

        together(link, lambda: _check(target_name, dtype), ("write", str(path), target_name, dtype.str))
        shared(link, create)
        values = _at_home(link, section, source, blocks, writers)
        together(link, lambda: _write_block(os.fspath(path), str(target_name), blocks, values, _place(link, section, writers)))


def _check(name: Any, dtype: np.dtype[Any]) -> None:
    if not isinstance(name, str) or not name or "/" in name:
        raise ExchangeError(f"name {brief(name)}: give the array a name to be stored under, without '/'")
    if dtype.kind not in "biufcM":
        raise ExchangeError(f"values of {dtype} cannot be written together: give numbers or times")


def _taken_in(link: Link, local: Any) -> tuple[LocalArray, list[int]]:
    """Return the section of this process, of a distribution that all agree on, and who writes for each rank of it."""
    if all(together(link, lambda: (isinstance(local, LocalArray) and local.source is not None) or _is_result(local))):
        return local, [held[0] for held in holders(link, local, "write")]
    return _imported(link, local), list(range(link.size))


def _is_result(local: Any) -> bool:
    return isinstance(local, LocalArray) and hasattr(local, "about")


def _imported(link: Link, local: Any) -> LocalArray:
    """Return the section of an exporter: what all processes say makes the distribution."""

    def say() -> tuple[Any, ...]:
        if not hasattr(local, "__distarray__"):
            raise ExchangeError(f"{type(local).__name__} does not export by __distarray__: give a LocalArray, or an exporter")
        export = local.__distarray__()
        buffer = LocalArray.from_distarray(export).buffer
        sections.append(buffer)
        return export["__version__"], export["dim_data"], buffer.shape, buffer.dtype.str[1:]

    sections: list[np.ndarray] = []
    found = together(link, say)
    versions, dim_data, shapes, dtypes = zip(*found, strict=True)
    if len(set(dtypes)) > 1 or len(set(versions)) > 1:
        raise ExchangeError(
            f"write: dtypes {', '.join(sorted(set(dtypes)))}, versions {', '.join(sorted(set(versions)))}: give one"
        )
    try:
        distribution = Distribution.from_dim_data(dim_data, versions[0], shapes)
    except ProtocolError as error:
        raise ExchangeError(f"write: {error}") from error
    return LocalArray.holding(sections[0], distribution, link.rank)


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
            given.append(Parcel(writers[m.peer], tuple(Part(section.buffer, b.source, b.shape) for b in m.boxes)))
        for m in incoming(source, blocks, rank):
            taken.append(Parcel(writers[m.peer], tuple(Part(result, b.target, b.shape) for b in m.boxes)))
    move(link, given, taken, dtype)
    return result


def _create(path: str, name: Any, known: About, layout: tuple[tuple[int, ...], tuple[int, ...], np.dtype[Any]]) -> None:
    """Make the store, unless it is there, and an array in it that has no values yet."""
    import zarr

    if (
        os.path.exists(path)
        and not os.path.exists(os.path.join(path, "zarr.json"))
        and (os.path.isfile(path) or os.listdir(path))
    ):
        raise ExchangeError(f"{path}: there is something that is no Zarr store: give another path")
    store = zarr.open_group(path, mode="a", zarr_format=3)
    if name in store:
        raise ExchangeError(f"{path}: there is an array {name!r} already: give another name, or remove it")
    shape, chunks, dtype = layout
    attributes = _plain(known.attributes())
    others = [c for c in known.coords if c not in known.dimensions]
    if others:
        attributes["coordinates"] = " ".join(others)
    if known.fill_value is not None:
        attributes["_FillValue"] = _plain({"": known.fill_value})[""]
    fill = known.fill_value if known.fill_value is not None else (np.nan if dtype.kind == "f" else None)
    more = {} if fill is None else {"fill_value": dtype.type(fill)}
    store.create_array(
        name, shape=shape, chunks=chunks, dtype=dtype, dimension_names=known.dimensions, attributes=attributes, **more
    )


def _write_coordinates(path: str, name: Any, known: About, labels: list[np.ndarray | None]) -> None:
    """Write the coordinates; those that the store has already stay."""
    import zarr

    store = zarr.open_group(path, mode="r+", zarr_format=3)
    chosen = {d: found for d, found in zip(known.dimensions, labels, strict=True) if found is not None}
    for key, coordinate in known.coords.items():
        if key in store or key == name:
            continue
        values = _selected(coordinate, chosen)
        if values.dtype.kind in "OT":
            values = values.astype(np.str_)
        attributes = _plain(about_array(coordinate).attributes())
        store.create_array(key, data=values, dimension_names=coordinate.dimensions, attributes=attributes)


def _selected(coordinate: MasterArray, chosen: Mapping[str, np.ndarray]) -> np.ndarray:
    return coordinate[tuple(chosen.get(d, slice(None)) for d in coordinate.dimensions)]


def _plain(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return attributes as JSON has them."""
    found = {}
    for name, value in attributes.items():
        item = value.tolist() if isinstance(value, np.ndarray | np.generic) else value
        found[name] = item.decode() if isinstance(item, bytes) else item
    return found


def _write_block(path: str, name: str, blocks: Distribution, values: np.ndarray, rank: int | None) -> None:
    """Write the block of a process."""
    import zarr

    if rank is None or not values.size:
        return
    bounds = [one.owned(place) for one, place in zip(blocks.maps, blocks.coords(rank), strict=True)]
    region = tuple(slice(int(b[0]), int(b[-1]) + 1) for b in bounds)
    array: Any = zarr.open_group(path, mode="r+", zarr_format=3)[name]
    array[region or ...] = values
