"""How does an array come into a Zarr store that many processes write? One of them makes it; then each puts its block."""

import json
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from aggarray.errors import ExchangeError
from aggarray.mpi.about import About, about_array

#: Shape, shape of a chunk, dtype.
Layout = tuple[tuple[int, ...], tuple[int, ...], np.dtype[Any]]


class _Coordinate(NamedTuple):
    """What is written of a coordinate."""

    dimensions: tuple[str, ...]
    values: np.ndarray
    attributes: dict[str, Any]


class Store:
    """A Zarr store (version 3) at a path, and an array that is added to it under a name."""

    def __init__(self, path: str, name: str, known: About) -> None:
        self._path, self._name, self._known = path, name, known
        self._made: list[str] = []

    def _open(self, mode: str) -> Any:
        import zarr

        # What is consolidated knows nothing of what is being added.
        return zarr.open_group(self._path, mode=mode, zarr_format=3, use_consolidated=False)  # type: ignore[arg-type]

    @contextmanager
    def _unwritten(self) -> Iterator[None]:
        """Make what the system says inside a block an ExchangeError that names the store."""
        try:
            yield
        except OSError as error:
            why = str(error) if error.errno is None else os.strerror(error.errno)
            text = (
                f"{self._path}: array {self._name!r} cannot be written: {why}; check the folder, its permissions and its space"
            )
            raise ExchangeError(text) from error

    def create(self, layout: Layout, labels: Sequence[np.ndarray | None]) -> None:
        """Make the store, unless it is there, the array, without values, and its coordinates.

        ``labels``: for each dimension which of its positions there are, None for all. ExchangeError for a path that is no
        such store, and where the store has other things of these names.
        """
        self._check_path()
        with self._unwritten():
            self._create(layout, labels)

    def _create(self, layout: Layout, labels: Sequence[np.ndarray | None]) -> None:
        store = self._open("a")
        if self._name in store:
            raise ExchangeError(f"{self._path}: there is an array {self._name!r} already: give another name, or remove it")
        known, chosen = self._known, dict(zip(self._known.dimensions, labels, strict=True))
        coords = {
            key: _Coordinate(c.dimensions, c[tuple(_all(chosen.get(d)) for d in c.dimensions)], about_array(c).attributes())
            for key, c in known.coords.items()
            if key != self._name
        }
        self._check_dimensions(store, dict(zip(known.dimensions, layout[0], strict=True)))
        new = {key: one for key, one in coords.items() if not self._is_there(store, key, one)}
        try:
            self._create_array(store, layout)
            for key, one in new.items():
                store.create_array(key, data=one.values, dimension_names=one.dimensions, attributes=_plain(one.attributes))
                self._made.append(key)
        except Exception:
            self.remove()
            raise

    def _check_path(self) -> None:
        path = self._path
        there = os.path.isdir(path) and os.path.exists(os.path.join(path, "zarr.json"))
        if os.path.exists(path) and not there and (os.path.isfile(path) or os.listdir(path)):
            raise ExchangeError(f"{path}: there is something that is no Zarr store: give another path")
        if there and _node(path) != "group":
            raise ExchangeError(f"{path}: there is a Zarr array that is no store of several: give another path")

    def _check_dimensions(self, store: Any, sizes: Mapping[str, int]) -> None:
        """Raise ExchangeError where an array of the store has a dimension of another size: nobody could read both."""
        for key, array in store.arrays():
            for name, size in zip(array.metadata.dimension_names or (), array.shape, strict=False):
                if name in sizes and sizes[name] != size:
                    raise ExchangeError(
                        f"{self._path}: dimension {name!r} of {self._name!r} has size {sizes[name]}, that of {key!r} {size}: "
                        "give another path"
                    )

    def _is_there(self, store: Any, key: str, wanted: "_Coordinate") -> bool:
        """Tell whether the store has a coordinate; ExchangeError where it has another one of that name."""
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
        self._made.append(self._name)

    def put(self, region: tuple[slice, ...] | None, values: np.ndarray) -> None:
        """Write a block of values; None: this process has none."""
        if region is not None and values.size:
            with self._unwritten():
                self._open("r+")[self._name][region or ...] = values

    def remove(self) -> None:
        """Remove what `create` has made."""
        store = self._open("r+")
        while self._made:
            del store[self._made.pop()]

    def finish(self) -> None:
        """Put all metadata into one place, where xarray looks first."""
        import zarr

        with self._unwritten(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Consolidated metadata is currently not part")
            zarr.consolidate_metadata(self._path, zarr_format=3)


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
    """Return attributes as JSON has them."""
    found = {}
    for name, value in attributes.items():
        item = value.tolist() if isinstance(value, np.ndarray | np.generic) else value
        found[name] = item.decode() if isinstance(item, bytes) else item
    return found
