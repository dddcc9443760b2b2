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
from aggarray.storage.locks import Lock, LockError

#: Shape, chunk shape, dtype.
Layout = tuple[tuple[int, ...], tuple[int, ...], np.dtype[Any]]


class _Coordinate(NamedTuple):
    dimensions: tuple[str, ...]
    values: np.ndarray
    attributes: dict[str, Any]


class Store:
    """Zarr store (version 3) at a path, and an array to add under a name.

    A context manager that removes unfinished work. ``work``: the folder of the unfinished array, which process 0 creates.
    """

    def __init__(self, path: str, name: str, metadata: ArrayMetadata) -> None:
        self._path, self._name, self._metadata = path, name, metadata
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
    def _convert_errors(self) -> Iterator[None]:
        try:
            yield
        except LockError as error:
            what = f"cannot be written: {error.what}"
            raise ExchangeError(what, path=self._path, variable=self._name, hint=error.hint) from error
        except OSError as error:
            # promise: mpi-store-error-path
            why = str(error) if error.errno is None else os.strerror(error.errno)
            hint = "check the folder, its permissions and its space"
            raise ExchangeError(f"cannot be written: {why}", path=self._path, variable=self._name, hint=hint) from error

    def create(self, layout: Layout, labels: Sequence[np.ndarray | None]) -> str:
        """Create the array without values, and its coordinates; return the folder.

        ``labels``: for each dimension its existing positions, None for all. Other writers of the store wait. Raises
        ExchangeError for a path that is not such a store, or conflicting names in the store.
        """
        with self._convert_errors():
            path = self._path
            is_store = os.path.isdir(path) and os.path.exists(os.path.join(path, "zarr.json"))
            if os.path.exists(path) and not is_store and (os.path.isfile(path) or os.listdir(path)):
                raise ExchangeError("exists and is not a Zarr store", path=path, hint="give another path")
            if is_store and _node_type(path) != "group":
                raise ExchangeError("is a Zarr array, not a Zarr group", path=path, hint="give another path")
            if os.path.ismount(path):
                raise ExchangeError("is a mount point", path=path, hint="give a path in it")
            os.makedirs(os.path.dirname(self._real), exist_ok=True)
            # promise: mpi-store-atomic
            self.work, self._lock = self._stack.enter_context(temporary_for(self._real))
            self._create(layout, labels)
        return self.work

    def _create(self, layout: Layout, labels: Sequence[np.ndarray | None]) -> None:
        import zarr

        if os.path.lexists(os.path.join(self._real, self._name)):
            raise ExchangeError(
                "already exists", path=self._path, variable=self._name, hint="give another name, or remove the array"
            )
        metadata, labels_by_name = self._metadata, dict(zip(self._metadata.dimensions, labels, strict=True))
        coords = {}
        for key, c in metadata.coords.items():
            if key != self._name:
                index = (labels_by_name.get(d) for d in c.dimensions)
                values = c[tuple(slice(None) if one is None else one for one in index)]
                coords[key] = _Coordinate(c.dimensions, values, metadata_of_array(c).attributes())
        if not self._is_new:
            # Consolidated metadata may be incomplete.
            store = zarr.open_group(self._real, mode="r", zarr_format=3, use_consolidated=False)
            self._check_dimensions(store, dict(zip(metadata.dimensions, layout[0], strict=True)))
            coords = {key: c for key, c in coords.items() if not self._has_coordinate(store, key, c)}
        self._coords = list(coords)

        def create_arrays() -> None:
            group = zarr.open_group(self.work, mode="w-", zarr_format=3)
            self._create_array(group, layout)
            for key, c in coords.items():
                group.create_array(key, data=c.values, dimension_names=c.dimensions, attributes=_to_json(c.attributes))

        _run_in_thread(create_arrays)

    def _check_dimensions(self, store: Any, sizes: Mapping[str, int]) -> None:
        """Raise ExchangeError for a dimension of another size."""
        for key, array in store.arrays():
            for name, size in zip(array.metadata.dimension_names or (), array.shape, strict=False):
                if name in sizes and sizes[name] != size:
                    reason = f"dimension {name!r} has size {sizes[name]}, that of {key!r} has size {size}"
                    raise ExchangeError(reason, path=self._path, variable=self._name, hint="give another path")

    def _has_coordinate(self, store: Any, key: str, coordinate: _Coordinate) -> bool:
        """Return whether a coordinate is stored; ExchangeError if it differs."""
        if key not in store:
            return False
        stored = store[key]
        same_shape = stored.shape == coordinate.values.shape
        same_dimensions = tuple(stored.metadata.dimension_names or ()) == coordinate.dimensions
        same_units = all(stored.attrs.get(name) == coordinate.attributes.get(name) for name in ("units", "calendar"))
        has_nan = stored.dtype.kind in "fc" and coordinate.values.dtype.kind in "fc"
        same_values = same_shape and np.array_equal(stored[...], coordinate.values, equal_nan=has_nan)
        if not (same_values and same_dimensions and same_units):
            reason = f"the stored coordinate {key!r} differs"
            raise ExchangeError(reason, path=self._path, variable=self._name, hint="give another path")
        return True

    def _create_array(self, store: Any, layout: Layout) -> None:
        metadata, (shape, chunks, dtype) = self._metadata, layout
        attributes = _to_json(metadata.attributes())
        if others := [c for c in metadata.coords if c not in metadata.dimensions]:
            attributes["coordinates"] = " ".join(others)
        if metadata.fill_value is not None:
            attributes |= _to_json({"_FillValue": metadata.fill_value})
        fill = metadata.fill_value if metadata.fill_value is not None else (np.nan if dtype.kind == "f" else None)
        more = {} if fill is None else {"fill_value": dtype.type(fill)}
        names = metadata.dimensions
        store.create_array(
            self._name, shape=shape, chunks=chunks, dtype=dtype, dimension_names=names, attributes=attributes, **more
        )

    def put(self, region: tuple[slice, ...] | None, values: np.ndarray) -> None:
        """Write a block of values; None: this process has none."""
        if region is not None and values.size:
            with self._convert_errors():
                # A separate event loop ends after all writes have ended, even after an error.
                # promise: mpi-store-error-after-writes
                _run_in_thread(lambda: asyncio.run(self._put(region, values)))

    async def _put(self, region: tuple[slice, ...], values: np.ndarray) -> None:
        from zarr.api.asynchronous import open_array

        array = await open_array(store=self.work, path=self._name, mode="r+", zarr_format=3)
        await array.setitem(region or ..., values)

    def finish(self) -> None:
        """Rename the complete array and consolidate the metadata of the store."""
        with self._convert_errors():
            if self._is_new:
                _run_in_thread(lambda: _consolidate(self.work))
                self._lock.check()
                os.rename(self.work, self._real)
            else:
                self._add()

    def _add(self) -> None:
        # promise: mpi-store-consolidated
        _copy_metadata(self._real, self.work)
        _run_in_thread(lambda: _consolidate(self.work))
        self._lock.check()
        with ExitStack() as undo:
            for key in (*self._coords, self._name):
                source, target = os.path.join(self.work, key), os.path.join(self._real, key)
                undo.callback(_undo_rename, target, source)
                os.rename(source, target)
            undo.pop_all()
        os.replace(os.path.join(self.work, "zarr.json"), os.path.join(self._real, "zarr.json"))


def _undo_rename(target: str, source: str) -> None:
    if not os.path.exists(source):
        os.rename(target, source)


def _run_in_thread(write: Callable[[], object]) -> None:
    """Run a call to its end even if interrupted, to remove files after it."""
    with ThreadPoolExecutor(1) as pool:
        # promise: mpi-store-interrupt
        pool.submit(write).result()


def _copy_metadata(store: str, to: str) -> None:
    os.makedirs(to, exist_ok=True)
    shutil.copyfile(os.path.join(store, "zarr.json"), os.path.join(to, "zarr.json"))
    if _node_type(store) == "group":
        for name in os.listdir(store):
            if os.path.exists(os.path.join(store, name, "zarr.json")):
                _copy_metadata(os.path.join(store, name), os.path.join(to, name))


def _consolidate(path: str) -> None:
    import zarr

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Consolidated metadata is currently not part")
        zarr.consolidate_metadata(path, zarr_format=3)


def _node_type(path: str) -> Any:
    with open(os.path.join(path, "zarr.json"), encoding="utf-8") as file:
        metadata = json.load(file)
    return metadata.get("node_type") if isinstance(metadata, dict) else None


def _to_json(attributes: Mapping[str, Any]) -> dict[str, Any]:
    result = {}
    for name, value in attributes.items():
        item = value.tolist() if isinstance(value, np.ndarray | np.generic) else value
        result[name] = item.decode() if isinstance(item, bytes) else item
    return result
