"""Name, dimensions, attributes and coordinates of a distributed array."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from aggarray.arrays.local import LocalArray
from aggarray.arrays.master import MasterArray
from aggarray.arrays.ragged_local import Samples
from aggarray.dataclass import dataclass, field, fields, replace
from aggarray.errors import ExchangeError
from aggarray.maps import Distribution
from aggarray.maps.fields import as_integer, short_repr
from aggarray.mpi.groups import as_list


@dataclass(frozen=True, slots=True)
class ArrayMetadata:
    """Metadata of a distributed array.

    ``fill_value``: the value of missing elements; None if none are missing, or missing ones are NaN. ``source``: the array
    whose files the values come from, None if it is not known; never pickled.
    """

    name: str | None
    dimensions: tuple[str, ...]
    units: str | None = None
    calendar: str | None = None
    fill_value: Any = None
    attrs: Mapping[str, Any] = field(default_factory=dict)
    coords: Mapping[str, MasterArray] = field(default_factory=dict)
    file_attrs: Mapping[str, Any] = field(default_factory=dict)
    source: MasterArray | None = None

    def __getstate__(self) -> list[Any]:
        return [getattr(self, f.name) for f in fields(self) if f.name != "source"]

    def __setstate__(self, state: list[Any]) -> None:
        # Pickles of earlier releases have no `file_attrs`.
        values = [*state, {}][: len(fields(self)) - 1]
        for f, value in zip(fields(self), [*values, None], strict=True):
            object.__setattr__(self, f.name, value)

    def source_files(self) -> list[tuple[str, str]]:
        """Return address and `tracking_id` of each source file."""
        from aggarray.output.source_files import TRACKING_ID, attributes_of, files_in, source_list

        files = files_in([] if self.source is None else [self.source])
        return source_list(files, attributes_of(files, [TRACKING_ID]))

    @property
    def summary(self) -> str:
        """Name, dimensions and units in one line, to compare processes."""
        return f"{self.name} ({', '.join(self.dimensions)}) in {self.units}"

    def attributes(self) -> dict[str, Any]:
        """Return the attributes, including units and calendar."""
        own = {"units": self.units, "calendar": self.calendar}
        return {**self.attrs, **{name: value for name, value in own.items() if value is not None}}


def metadata_of_array(array: MasterArray) -> ArrayMetadata:
    """Return the metadata of a master array."""
    fill = array.fill_value if array.dtype.kind in "iu" else None
    described = array.name, array.dimensions, array.units, array.calendar
    return ArrayMetadata(*described, fill, array.attrs, array.coords, array.file_attrs, array)


class ReducedArray(LocalArray):
    """Section of a computed array: a `LocalArray` with metadata."""

    __slots__ = ("metadata",)
    metadata: ArrayMetadata

    @classmethod
    def of(cls, values: np.ndarray, distribution: Distribution, rank: int, metadata: ArrayMetadata) -> ReducedArray:
        """Return a section that holds its values."""
        local = cls.holding(values, distribution, rank)
        local.metadata = metadata
        return local

    def __reduce__(self) -> tuple[Any, ...]:
        return ReducedArray.of, (self.buffer, self.distribution, self.rank, self.metadata)


def metadata_of(local: LocalArray) -> ArrayMetadata:
    """Return the metadata of a section.

    Dimensions without names are dim_0, dim_1, ...
    """
    if isinstance(local, ReducedArray):
        return local.metadata
    source = local.source
    if isinstance(source, MasterArray):
        return metadata_of_array(source)
    if isinstance(source, Samples):
        # Coordinates follow the order of the samples in files.
        return replace(metadata_of_array(source.source), dimensions=source.dimensions, coords={})
    return ArrayMetadata(None, tuple(f"dim_{d}" for d in range(len(local.distribution.maps))))


def axes_of(dimensions: Any, metadata: ArrayMetadata) -> tuple[int, ...]:
    """Return the numbers of dimensions given by name or number, in this order.

    None: all dimensions. Raises ExchangeError for unknown and repeated ones.
    """
    if dimensions is None:
        return tuple(range(len(metadata.dimensions)))
    is_single = isinstance(dimensions, str) or as_integer(dimensions) is not None
    requested = [dimensions] if is_single else as_list(dimensions, "dimensions")
    axes = []
    for dimension in requested:
        number = metadata.dimensions.index(dimension) if dimension in metadata.dimensions else as_integer(dimension)
        if number is None or not -len(metadata.dimensions) <= number < len(metadata.dimensions):
            names = ", ".join(metadata.dimensions) or "no dimensions"
            raise ExchangeError(f"unknown dimension {short_repr(dimension)}", hint=f"the array has {names}")
        axes.append(number % len(metadata.dimensions))
    if len(set(axes)) < len(axes):
        raise ExchangeError(f"dimensions {short_repr(dimensions)} repeat", hint="give each once")
    return tuple(axes)
