"""Zarr store that many processes write: one creates it, each puts a block.

The array is written in a folder beside the store. The complete folder is renamed to a new store; in an existing store the
coordinates are renamed into place, then the array.
"""

from __future__ import annotations

import json
import os
import shutil
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np

from aggarray.arrays.local import LocalArray
from aggarray.dataclass import NamedTuple
from aggarray.errors import ExchangeError
from aggarray.mpi.metadata import ArrayMetadata, metadata_of_array
from aggarray.mpi.ordered_tasks import OrderedTasks
from aggarray.mpi.stored_form import StoredArray, StoredForm, zarr_form
from aggarray.mpi.transport.base import Link
from aggarray.mpi.write_errors import convert_write_errors
from aggarray.options import get_options
from aggarray.output.chunks import Position, chunk_in, full_chunk, positions_in
from aggarray.output.compression import Compression
from aggarray.output.source_files import list_columns, long_name, stored_list
from aggarray.output.zarr_codecs import CodecMetadata, compressors_of, encode
from aggarray.scan.roles import SOURCE_FILE, SOURCE_FILES
from aggarray.storage.atomic import temporary_for
from aggarray.storage.locks import Lock

#: How files of chunks are opened.
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
#: What zarr-python uses by default: the default level of Zstandard.
_DEFAULT: Sequence[CodecMetadata] = ({"name": "zstd", "configuration": {"level": 0, "checksum": False}},)


class _Coordinate(NamedTuple):
    dimensions: tuple[str, ...]
    values: np.ndarray
    attributes: dict[str, Any]


class Store:
    """Zarr store (version 3) at a path, and an array to add under a name.

    A context manager that removes unfinished work. ``work``: the folder of the unfinished array, which process 0 creates.
    """

    def __init__(self, path: str, name: str, metadata: ArrayMetadata, compression: Compression | None = None) -> None:
        self._path, self._name, self._metadata, self._compression = path, name, metadata, compression
        self.work = ""
        self._lock = Lock()
        self._real = os.path.realpath(path)
        #: Coordinates that an existing store does not have.
        self._coords: list[str] = []
        #: Columns of the list of files, where it changes.
        self._files: Mapping[str, np.ndarray] = {}
        self._read_coordinates: Callable[[], dict[str, _Coordinate]] = dict
        self._stack = ExitStack()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    @property
    def _is_new(self) -> bool:
        return not os.path.exists(os.path.join(self._real, "zarr.json"))

    def form(self, section: LocalArray) -> StoredForm:
        """Return the form in which the values of a section are stored."""
        return zarr_form(section, self._metadata)

    def _codecs(self, stored: StoredArray) -> Sequence[CodecMetadata]:
        if self._compression is None:
            return _DEFAULT
        return compressors_of(self._compression, stored.form.dtype.itemsize)

    def create(self, stored: StoredArray, labels: Sequence[np.ndarray | None]) -> str:
        """Create the array without values; return the folder.

        ``labels``: for each dimension its existing positions, None for all. Other writers of the store wait. Raises
        ExchangeError for a path that is not such a store, or conflicting names in the store.
        """
        with convert_write_errors(self._path, self._name):
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
            self._create(stored, labels)
        return self.work

    def _create(self, stored: StoredArray, labels: Sequence[np.ndarray | None]) -> None:
        import zarr

        if os.path.lexists(os.path.join(self._real, self._name)):
            raise ExchangeError(
                "already exists", path=self._path, variable=self._name, hint="give another name, or remove the array"
            )
        if self._is_new:
            self._read_coordinates = partial(self._coordinates, labels)
        else:
            # Consolidated metadata may be incomplete.
            store = zarr.open_group(self._real, mode="r", zarr_format=3, use_consolidated=False)
            self._check_dimensions(store, dict(zip(self._metadata.dimensions, stored.shape, strict=True)))
            coords = self._coordinates(labels)
            coords = {key: c for key, c in coords.items() if not self._has_coordinate(store, key, c)}
            self._coords, self._read_coordinates = list(coords), lambda: coords
        earlier = [] if self._is_new else stored_list(self._real, _names(self._real)) or []
        files = [*earlier, *self._metadata.source_files()]
        if {*files} > {*earlier}:
            self._files = list_columns(files)
        _run_in_thread(lambda: self._create_array(zarr.create_group(self.work, zarr_format=3), stored))

    def _coordinates(self, labels: Sequence[np.ndarray | None]) -> dict[str, _Coordinate]:
        """Return the coordinates at the existing positions of each dimension."""
        index_by_name = {
            name: slice(None) if index is None else index for name, index in zip(self._metadata.dimensions, labels, strict=True)
        }
        return {
            key: _Coordinate(
                c.dimensions,
                c[tuple(index_by_name.get(name, slice(None)) for name in c.dimensions)],
                metadata_of_array(c).attributes(),
            )
            for key, c in self._metadata.coords.items()
            if key != self._name
        }

    def _create_coordinates(self) -> None:
        import zarr

        group = zarr.open_group(self.work, mode="r+", zarr_format=3, use_consolidated=False)
        for key, c in self._read_coordinates().items():
            group.create_array(key, data=c.values, dimension_names=c.dimensions, attributes=_to_json(c.attributes))
        for name, texts in self._files.items():
            attributes = _to_json({"long_name": long_name(name)})
            group.require_group(SOURCE_FILES).create_array(
                name, data=texts, dimension_names=(SOURCE_FILE,), attributes=attributes
            )

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

    def _create_array(self, group: Any, stored: StoredArray) -> None:
        metadata, form = self._metadata, stored.form
        attributes = _to_json(metadata.attributes())
        if others := [c for c in metadata.coords if c not in metadata.dimensions]:
            attributes["coordinates"] = " ".join(others)
        if metadata.fill_value is not None:
            attributes |= _to_json({"_FillValue": metadata.fill_value})
        more = {} if form.fill is None else {"fill_value": form.fill}
        group.create_array(
            self._name,
            shape=stored.shape,
            chunks=stored.chunks,
            dtype=form.dtype,
            dimension_names=metadata.dimensions,
            attributes=attributes,
            compressors=[dict(codec) for codec in self._codecs(stored)] or None,
            **more,
        )

    def put(self, link: Link, region: tuple[slice, ...] | None, values: np.ndarray, stored: StoredArray) -> None:
        """Write the chunks of a block; ``region`` None: this process has none.

        Process 0 also writes the coordinates, while the others write chunks.
        """
        if not link.rank:
            with convert_write_errors(self._path, self._name):
                _run_in_thread(self._create_coordinates)
        if region is None or not values.size:
            return
        codecs = self._codecs(stored)

        def write(position: Position) -> None:
            own = stored.form.convert(chunk_in(values, region, position, stored.chunks))
            if not _is_empty(own, stored.form.fill):
                content = encode(full_chunk(own, stored.chunks, stored.form.fill), codecs)
                _write_file(os.path.join(self.work, self._name, "c", *map(str, position)), content)

        calls = (partial(write, position) for position in positions_in(region, stored.chunks))
        threads = get_options().threads if codecs else 1  # memory limits copies to the system
        with convert_write_errors(self._path, self._name), OrderedTasks(calls, threads) as tasks:
            tasks.run()

    def finish(self) -> None:
        """Rename the complete array and consolidate the metadata of the store."""
        with convert_write_errors(self._path, self._name):
            if self._is_new:
                _consolidate_arrays(self.work)
                self._lock.check()
                os.rename(self.work, self._real)
            else:
                self._add()

    def _add(self) -> None:
        moved = [*self._coords, *([SOURCE_FILES] if self._files else []), self._name]
        # promise: mpi-store-consolidated
        _copy_metadata(self._real, self.work, moved)
        _run_in_thread(lambda: _consolidate(self.work))
        self._lock.check()
        with ExitStack() as undo:
            for key in moved:
                source, target = os.path.join(self.work, key), os.path.join(self._real, key)
                if os.path.exists(target):  # the list of files
                    undo.callback(_undo_rename, f"{source}.earlier", target)
                    os.rename(target, f"{source}.earlier")
                undo.callback(_undo_rename, target, source)
                os.rename(source, target)
            undo.pop_all()
        os.replace(os.path.join(self.work, "zarr.json"), os.path.join(self._real, "zarr.json"))


def _is_empty(values: np.ndarray, fill: Any) -> bool:
    """Return whether all values are the fill value: Zarr stores no such chunk.

    ``fill``: None for that of zarr-python, 0.
    """
    if values.dtype.kind == "M":
        return False
    empty = values.dtype.type(0) if fill is None else fill
    # A sample decides for most chunks.
    flat = values.reshape(-1)
    samples = (flat[:: max(1, flat.size >> 10)], flat)
    return all(bool((np.isnan(some) if empty != empty else some == empty).all()) for some in samples)


def _write_file(path: str, content: Any) -> None:
    """Write the bytes of a chunk to a new file."""
    try:
        descriptor = os.open(path, _NEW)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        descriptor = os.open(path, _NEW)
    try:
        remaining = memoryview(content)
        while len(remaining):
            remaining = remaining[os.write(descriptor, remaining) :]
    finally:
        os.close(descriptor)


def _undo_rename(target: str, source: str) -> None:
    if not os.path.exists(source):
        os.rename(target, source)


def _run_in_thread(write: Callable[[], object]) -> None:
    """Run a call to its end even if interrupted, to remove files after it."""
    with ThreadPoolExecutor(1) as pool:
        # promise: mpi-store-interrupt
        pool.submit(write).result()


def _copy_metadata(store: str, to: str, without: Sequence[str] = ()) -> None:
    os.makedirs(to, exist_ok=True)
    shutil.copyfile(os.path.join(store, "zarr.json"), os.path.join(to, "zarr.json"))
    if _node_type(store) == "group":
        for name in os.listdir(store):
            if name not in without and os.path.exists(os.path.join(store, name, "zarr.json")):
                _copy_metadata(os.path.join(store, name), os.path.join(to, name))


def _names(path: str, prefix: str = "") -> list[str]:
    """Return the names of the groups and arrays of a group, with slashes."""
    found = []
    for name in sorted(os.listdir(os.path.join(path, prefix))):
        own = f"{prefix}{name}"
        if os.path.exists(os.path.join(path, own, "zarr.json")):
            found += [own, *(_names(path, f"{own}/") if _node_type(os.path.join(path, own)) == "group" else [])]
    return found


def _consolidate_arrays(path: str) -> None:
    """Consolidate the metadata of a group, as zarr-python does."""
    names = sorted(_names(path), key=lambda name: (name.count("/"), name))
    metadata = {name: _read_metadata(os.path.join(path, name)) for name in names}
    # Those of subgroups are in the metadata of the group.
    metadata = {name: own | _consolidated({}) if own["node_type"] == "group" else own for name, own in metadata.items()}
    group = _read_metadata(path) | _consolidated(metadata)
    with open(os.path.join(path, "zarr.json"), "w", encoding="utf-8") as file:
        json.dump(group, file, indent=2)


def _consolidated(metadata: Mapping[str, Any]) -> dict[str, Any]:
    return {"consolidated_metadata": {"kind": "inline", "must_understand": False, "metadata": metadata}}


def _consolidate(path: str) -> None:
    import zarr

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Consolidated metadata is currently not part")
        zarr.consolidate_metadata(path, zarr_format=3)


def _read_metadata(path: str) -> Any:
    with open(os.path.join(path, "zarr.json"), encoding="utf-8") as file:
        return json.load(file)


def _node_type(path: str) -> Any:
    metadata = _read_metadata(path)
    return metadata.get("node_type") if isinstance(metadata, dict) else None


def _to_json(attributes: Mapping[str, Any]) -> dict[str, Any]:
    result = {}
    for name, value in attributes.items():
        item = value.tolist() if isinstance(value, np.ndarray | np.generic) else value
        result[name] = item.decode() if isinstance(item, bytes) else item
    return result
