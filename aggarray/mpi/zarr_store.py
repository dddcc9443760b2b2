"""Zarr store that many processes write: one creates it, each puts a block.

The array is written in a folder beside the store. The complete folder is renamed to a new store; in an existing store the
coordinates are renamed into place, then the array.
"""

import asyncio
import json
import os
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import numpy as np

from aggarray.errors import ExchangeError
from aggarray.mpi.metadata import ArrayMetadata, metadata_of_array
from aggarray.storage.atomic import temporary_for
from aggarray.storage.locks import Lock

#: Shape, chunk shape, dtype.
Layout = tuple[tuple[int, ...], tuple[int, ...], np.dtype[Any]]


class _Coordinate(NamedTuple):
    """The content of a coordinate to write."""

    dimensions: tuple[str, ...]
    values: np.ndarray
    attributes: dict[str, Any]


class Store:
    """Zarr store (version 3) at a path, and an array to add under a name.

    A context manager that removes unfinished work. ``work``: the folder of the unfinished array, sent by process 0 to the
    others.
    """

    def __init__(self, path: str, name: str, known: ArrayMetadata) -> None:
        self._path, self._name, self._known = path, name, known
        self.work = ""
        self._lock = Lock()
        self._real = os.path.realpath(path)
        self._coords: list[str] = []
        self._stack = ExitStack()

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    @property
    def _is_new(self) -> bool:
        return not os.path.exists(os.path.join(self._real, "zarr.json"))

    @contextmanager
    def _unwritten(self) -> Iterator[None]:
        """Convert an OSError of the block to an ExchangeError with the path."""
        try:
            yield
        except OSError as error:
            # promise: mpi-store-error-path
            why = str(error) if error.errno is None else os.strerror(error.errno)
            text = (
                f"{self._path}: array {self._name!r} cannot be written: {why}; check the folder, its permissions and its space"
            )
            raise ExchangeError(text) from error

    def create(self, layout: Layout, labels: Sequence[np.ndarray | None]) -> str:
        """Create the array without values, and its coordinates; return the folder.

        ``labels``: for each dimension its existing positions, None for all. Other writers of the store wait. Raises
        ExchangeError for a path that is not such a store, or conflicting names in the store.
        """
        with self._unwritten():
            self._check_path()
            os.makedirs(os.path.dirname(self._real), exist_ok=True)
            # promise: mpi-store-atomic
            self.work, self._lock = self._stack.enter_context(temporary_for(self._real))
            self._create(layout, labels)
        return self.work

    def _create(self, layout: Layout, labels: Sequence[np.ndarray | None]) -> None:
        import zarr

        if os.path.lexists(os.path.join(self._real, self._name)):
            raise ExchangeError(f"{self._path}: there is an array {self._name!r} already: give another name, or remove it")
        known, chosen = self._known, dict(zip(self._known.dimensions, labels, strict=True))
        coords = {
            key: _Coordinate(
                c.dimensions, c[tuple(_all(chosen.get(d)) for d in c.dimensions)], metadata_of_array(c).attributes()
            )
            for key, c in known.coords.items()
            if key != self._name
        }
        if not self._is_new:
            # Consolidated metadata may be incomplete.
            store = zarr.open_group(self._real, mode="r", zarr_format=3, use_consolidated=False)
            self._check_dimensions(store, dict(zip(known.dimensions, layout[0], strict=True)))
            coords = {key: one for key, one in coords.items() if not self._is_there(store, key, one)}
        self._coords = list(coords)
        _uninterrupted(lambda: self._make(layout, coords))

    def _make(self, layout: Layout, coords: Mapping[str, _Coordinate]) -> None:
        import zarr

        made = zarr.open_group(self.work, mode="w-", zarr_format=3)
        self._create_array(made, layout)
        for key, one in coords.items():
            made.create_array(key, data=one.values, dimension_names=one.dimensions, attributes=_plain(one.attributes))

    def _check_path(self) -> None:
        path = self._path
        there = os.path.isdir(path) and os.path.exists(os.path.join(path, "zarr.json"))
        if os.path.exists(path) and not there and (os.path.isfile(path) or os.listdir(path)):
            raise ExchangeError(f"{path}: there is something that is no Zarr store: give another path")
        if there and _node(path) != "group":
            raise ExchangeError(f"{path}: there is a Zarr array that is no store of several: give another path")
        if os.path.ismount(path):
            raise ExchangeError(f"{path}: is a disk of its own: give a path in it")

    def _check_dimensions(self, store: Any, sizes: Mapping[str, int]) -> None:
        """Raise ExchangeError for a dimension of another size in the store.

        Readers such as xarray reject a store with both.
        """
        for key, array in store.arrays():
            for name, size in zip(array.metadata.dimension_names or (), array.shape, strict=False):
                if name in sizes and sizes[name] != size:
                    raise ExchangeError(
                        f"{self._path}: dimension {name!r} of {self._name!r} has size {sizes[name]}, that of {key!r} {size}: "
                        "give another path"
                    )

    def _is_there(self, store: Any, key: str, wanted: "_Coordinate") -> bool:
        """Return whether the store has a coordinate.

        Raises ExchangeError for another coordinate of that name.
        """
        if key not in store:
            return False
        found = store[key]
        same = found.shape == wanted.values.shape and tuple(found.metadata.dimension_names or ()) == wanted.dimensions
        measured = all(found.attrs.get(key) == wanted.attributes.get(key) for key in ("units", "calendar"))
        if not same or not measured or not _equal(found[...], wanted.values):
            raise ExchangeError(f"{self._path}: coordinate {key!r} there is not that of {self._name!r}: give another path")
        return True

    def _create_array(self, store: Any, layout: Layout) -> None:
        known, (shape, chunks, dtype) = self._known, layout
        attributes = _plain(known.attributes())
        if others := [c for c in known.coords if c not in known.dimensions]:
            attributes["coordinates"] = " ".join(others)
        if known.fill_value is not None:
            attributes |= _plain({"_FillValue": known.fill_value})
        fill = known.fill_value if known.fill_value is not None else (np.nan if dtype.kind == "f" else None)
        more = {} if fill is None else {"fill_value": dtype.type(fill)}
        names = known.dimensions
        store.create_array(
            self._name, shape=shape, chunks=chunks, dtype=dtype, dimension_names=names, attributes=attributes, **more
        )

    def put(self, region: tuple[slice, ...] | None, values: np.ndarray) -> None:
        """Write a block of values; None: this process has none."""
        if region is not None and values.size:
            with self._unwritten():
                # A separate event loop ends after all writes have ended, even after an error.
                # promise: mpi-store-error-after-writes
                _uninterrupted(lambda: asyncio.run(self._put(region, values)))

    async def _put(self, region: tuple[slice, ...], values: np.ndarray) -> None:
        from zarr.api.asynchronous import open_array

        array = await open_array(store=self.work, path=self._name, mode="r+", zarr_format=3)
        await array.setitem(region or ..., values)

    def finish(self) -> None:
        """Rename the complete array and consolidate the metadata of the store."""
        with self._unwritten():
            if self._is_new:
                _uninterrupted(lambda: _consolidate(self.work))
                self._lock.check()
                os.rename(self.work, self._real)
            else:
                self._add()

    def _add(self) -> None:
        # promise: mpi-store-consolidated
        _copy_metadata(self._real, self.work)
        _uninterrupted(lambda: _consolidate(self.work))
        self._lock.check()
        with ExitStack() as undo:
            for key in (*self._coords, self._name):
                made, there = os.path.join(self.work, key), os.path.join(self._real, key)
                undo.callback(_back, there, made)
                os.rename(made, there)
            undo.pop_all()
        os.replace(os.path.join(self.work, "zarr.json"), os.path.join(self._real, "zarr.json"))


def _back(there: str, made: str) -> None:
    """Undo a renaming that took place."""
    if not os.path.exists(made):
        os.rename(there, made)


def _uninterrupted(write: Callable[[], object]) -> None:
    """Run a call of zarr in a thread, to its end even if interrupted.

    An interrupted caller can then remove all files.
    """
    with ThreadPoolExecutor(1) as pool:
        # promise: mpi-store-interrupt
        pool.submit(write).result()


def _copy_metadata(store: str, to: str) -> None:
    """Copy the metadata of the groups and arrays of a store."""
    os.makedirs(to, exist_ok=True)
    shutil.copyfile(os.path.join(store, "zarr.json"), os.path.join(to, "zarr.json"))
    if _node(store) == "group":
        for name in os.listdir(store):
            if os.path.exists(os.path.join(store, name, "zarr.json")):
                _copy_metadata(os.path.join(store, name), os.path.join(to, name))


def _consolidate(path: str) -> None:
    import zarr

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Consolidated metadata is currently not part")
        zarr.consolidate_metadata(path, zarr_format=3)


def _node(path: str) -> Any:
    with open(os.path.join(path, "zarr.json"), encoding="utf-8") as file:
        found = json.load(file)
    return found.get("node_type") if isinstance(found, dict) else None


def _all(labels: np.ndarray | None) -> slice | np.ndarray:
    return slice(None) if labels is None else labels


def _equal(found: Any, values: np.ndarray) -> bool:
    if found.dtype.kind in "fc" and values.dtype.kind in "fc":
        return np.array_equal(found, values, equal_nan=True)
    return np.array_equal(found, values)


def _plain(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return attributes as JSON values."""
    found = {}
    for name, value in attributes.items():
        item = value.tolist() if isinstance(value, np.ndarray | np.generic) else value
        found[name] = item.decode() if isinstance(item, bytes) else item
    return found
