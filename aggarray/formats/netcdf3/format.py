"""Reader of netCDF-3 files, without a library.

It reads classic (CDF-1), 64-bit offset (CDF-2) and 64-bit data (CDF-5) files, as the "NetCDF classic format specification"
describes them. The header (`aggarray.formats.netcdf3.header`) gives the offset of each variable. Record variables interleave.
A box is read by offsets (`aggarray.storage.files`), without a lock or a shared file position.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import closing

import numpy as np

from aggarray.errors import NotFoundError
from aggarray.formats.base import Box, Structure, Variable, counts, full_box, naming_errors, stored_values, with_values
from aggarray.formats.limits import is_scannable
from aggarray.formats.netcdf3.header import VariableLocation, header_of, span_of
from aggarray.formats.partial_scan import PartialScan, PartialScanRequest, select_partial
from aggarray.partition.chunk_index import ChunkIndex, needs_chunk_index, one_chunk
from aggarray.storage.byte_source import ByteSource, open_source

#: Largest span of a read of a sparse box in bytes, gaps included.
_SPAN = 1 << 22
#: Largest length of a text. A sparse file may declare any length.
_LONGEST_TEXT = 1 << 24


def _read_box(file: ByteSource, location: VariableLocation, box: Box, out: np.ndarray) -> None:
    """Read a nonempty box into ``out``, in parts if it is sparse."""
    steps = [s.step or 1 for s in box]
    span = span_of(location, out.shape, steps)
    axis = next((i for i, n in enumerate(out.shape) if n > 1), None)
    if axis is not None and span > max(_SPAN, 2 * out.nbytes):
        selection, step = box[axis], steps[axis]
        count = max(1, _SPAN // (step * location.strides[axis]))
        for first in range(0, out.shape[axis], count):
            last = min(first + count, out.shape[axis])
            part = slice(selection.start + first * step, selection.start + (last - 1) * step + 1, step)
            target = out[(slice(None),) * axis + (slice(first, last),)]
            _read_box(file, location, (*box[:axis], part, *box[axis + 1 :]), target)
        return
    offset = location.begin + sum(s.start * stride for s, stride in zip(box, location.strides, strict=True))
    if span == out.nbytes and out.flags.c_contiguous:
        # The span has no gaps: read it in place.
        file.read_into(offset, out)
        if location.stored.byteorder == ">" and not np.dtype(">i4").isnative:
            out.byteswap(inplace=True)
        return
    data = np.empty(span, np.uint8)
    file.read_into(offset, data)
    strides = [step * stride for step, stride in zip(steps, location.strides, strict=True)]
    out[...] = np.ndarray(out.shape, location.stored, data, strides=strides)


class NetCDF3File:
    """An open netCDF-3 file."""

    lasting = True

    def __init__(self, path: str):
        self._path, self._file = path, open_source(path)
        try:
            self.header = header_of(path, self._file)
        except BaseException:
            self.close()
            raise
        self._locations = {location.variable.name: location for location in self.header.locations}

    @property
    def nbytes(self) -> int:
        """Bytes of the file."""
        return self._file.size

    def _location(self, variable: str) -> VariableLocation:
        try:
            return self._locations[variable]
        except KeyError:
            hint = f"it holds {', '.join(self._locations)}"
            raise NotFoundError(f"no variable {variable!r}", path=self._path, variable=variable, hint=hint) from None

    def values(self, variable: str, box: Box) -> np.ndarray:
        """Return the stored values of a box; errors are not converted."""
        location = self._location(variable)
        # Joined text is stored with its length as the last dimension.
        text = full_box(location.shape[len(box) :])
        if text and text[0].stop > _LONGEST_TEXT:
            raise ValueError(f"texts of {text[0].stop} characters exceed the limit of {_LONGEST_TEXT}; write the file again")
        box = (*box, *text)
        out = np.empty(counts(box), location.stored.newbyteorder("="))
        if out.size:
            _read_box(self._file, location, box, out)
        return stored_values(out, location.variable.attrs, bool(text), f"{self._path}, variable {variable!r}")

    def all_values(self, variable: Variable) -> np.ndarray | None:
        """Return the values of a variable, None if it is too large for a scan."""
        location = self._location(variable.name)
        scannable = is_scannable(location.shape, location.stored.itemsize)
        return self.values(variable.name, full_box(variable.shape)) if scannable else None

    def read(self, variable: str, box: Box) -> np.ndarray:
        """Return the stored values of a box."""
        with naming_errors(self._path, variable):
            return self.values(variable, box)

    def external_files(self, variable: str) -> Sequence[str]:
        """Return nothing: all values lie in the file."""
        return ()

    def mapped(self, variable: str) -> np.ndarray | None:
        """Return a read-only view of the mapped file, None if not contiguous."""
        location = self._location(variable)
        if location.stored.kind == "S" or 0 in location.shape or self._file.distant:
            return None
        with naming_errors(self._path, variable):
            from aggarray.memory.creation import mapped

            return mapped(self._path, location.begin, location.stored, location.shape, location.strides).numpy()

    def chunks(self, variable: str) -> ChunkIndex | None:
        """Return the chunk index: one chunk, or one per record; None for text."""
        location = self._location(variable)
        shape, dtype, begin = location.shape, location.stored, location.begin
        if dtype.kind == "S":
            return None
        fill = dtype.newbyteorder("=").type(0)
        size = math.prod(shape[1:]) * dtype.itemsize
        if 0 in shape or not shape or location.strides[0] == size:
            return one_chunk(shape, dtype, fill, begin)
        # A sparse file may declare any number of records.
        if not needs_chunk_index(shape[:1], 0):
            return None
        offsets = begin + np.arange(shape[0], dtype=np.int64) * location.strides[0]
        return ChunkIndex(shape, (1, *shape[1:]), dtype, (), fill, offsets, np.full(shape[0], size, np.int64))

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def scan(path: str) -> Structure:
    """Return structure, attributes and coordinates; open the file once."""
    with closing(NetCDF3File(path)) as file:
        variables = with_values([location.variable for location in file.header.locations], file.all_values)
        return Structure(path, "netCDF3", file.header.attrs, variables, {}, sizes=file.header.sizes)


def scan_partially(path: str, request: PartialScanRequest) -> PartialScan | None:
    """Return the requested part of a file."""
    with closing(NetCDF3File(path)) as file:
        variables = [location.variable for location in file.header.locations]
        return select_partial(path, file.header.attrs, variables, request, file.all_values)
