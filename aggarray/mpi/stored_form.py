"""Form in which the values of a distributed array are stored."""

from __future__ import annotations

from typing import Any

import numpy as np

from aggarray.arrays.local import LocalArray
from aggarray.arrays.master import MasterArray
from aggarray.dataclass import NamedTuple
from aggarray.errors import ExchangeError
from aggarray.mpi.metadata import ArrayMetadata
from aggarray.output.layout import fill_of, stored_chunk

#: Units of CF for those of datetime64.
_UNITS = {"D": "days", "h": "hours", "m": "minutes", "s": "seconds", "ms": "milliseconds", "us": "microseconds"}
_UNITS |= {"ns": "nanoseconds"}


class StoredForm(NamedTuple):
    """How values are stored.

    ``dtype``: of the stored values, which are those of ``read_as`` or its memory; ``fill``: the stored missing value, None if
    there is none; ``chunk``: the chunk shape of the source, None: chunks as large as possible; ``attributes``: additional ones.
    """

    dtype: np.dtype[Any]
    read_as: np.dtype[Any]
    fill: Any = None
    chunk: tuple[int, ...] | None = None
    attributes: dict[str, Any] = {}  # noqa: RUF012 - never changed

    def convert(self, values: np.ndarray) -> np.ndarray:
        """Return the values as they are stored, in C order.

        >>> times = np.array(["1970-01-02"], "M8[D]")
        >>> StoredForm(np.dtype("i8"), times.dtype).convert(times).tolist()
        [1]
        """
        own: np.ndarray = np.asarray(values, self.read_as, order="C")
        if self.read_as != self.dtype:
            return own.view(self.dtype)
        if own.dtype.kind == "f" and self.fill is not None and not np.isnan(self.fill):
            return np.where(np.isnan(own), self.fill, own)
        return own


def zarr_form(section: LocalArray, metadata: ArrayMetadata) -> StoredForm:
    """Return the form of a section in Zarr: the values themselves."""
    native = section.dtype.newbyteorder("=")
    fill = metadata.fill_value if metadata.fill_value is not None else (np.nan if native.kind == "f" else None)
    return StoredForm(native, native, None if fill is None else native.type(fill))


def netcdf_form(section: LocalArray, metadata: ArrayMetadata) -> StoredForm:
    """Return the form of a section in netCDF-4.

    Chunks and the missing value are those of the source, if there is one. Times become integers since 1970; flags become
    integers with an attribute ``dtype``, as xarray writes and reads them.
    """
    native, source = section.dtype.newbyteorder("="), section.source
    chunk = stored_chunk(source) if isinstance(source, MasterArray) else tuple(m.size for m in section.distribution.maps)
    if native.kind == "b":
        return StoredForm(np.dtype(np.int8), native, None, chunk, {"dtype": "bool"})
    if native.kind == "M":
        unit = np.datetime_data(native)[0]
        unit = "D" if unit in ("Y", "M", "W") else unit
        if unit not in _UNITS:
            raise ExchangeError(f"values of {native} have no units in netCDF", hint="convert them to datetime64[ns]")
        attributes = {"units": f"{_UNITS[unit]} since 1970-01-01", "calendar": "proleptic_gregorian"}
        return StoredForm(np.dtype(np.int64), np.dtype(f"M8[{unit}]"), np.iinfo(np.int64).min, chunk, attributes)
    if isinstance(source, MasterArray) and source.dtype == native:
        fill = fill_of(source)
    else:
        fill = metadata.fill_value if native.kind != "f" else np.nan
    return StoredForm(native, native, None if fill is None else native.type(fill), chunk)


class StoredArray(NamedTuple):
    """Shape and chunk shape of an array that is written, and its form."""

    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    form: StoredForm

    @property
    def grid(self) -> tuple[int, ...]:
        """Number of chunks along each dimension."""
        return tuple(-(-size // side) for size, side in zip(self.shape, self.chunks, strict=True))
