"""What does a netCDF-3 file hold, and where are the bytes of a box?

Classic (CDF-1), 64-bit offset (CDF-2) and 64-bit data (CDF-5) files are read without a library: the header
(`aggarray.formats.netcdf3.header`) says where every variable begins, the record variables interleave, and a box is read by
offsets (`aggarray.storage.files`). No lock, no shared position. The layout is that of the "NetCDF classic format
specification".
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import closing

import numpy as np

from aggarray.errors import NotFoundError
from aggarray.formats.base import (
    Box,
    ChunkIndex,
    Handle,
    Structure,
    Variable,
    counts,
    naming_errors,
    needs_chunk_index,
    one_chunk,
    stored_values,
    whole,
    with_values,
)
from aggarray.formats.limits import is_scannable
from aggarray.formats.netcdf3.header import VariableLocation, header_of, span_of
from aggarray.formats.partial_scan import PartialScan, PartialScanRequest, select_partial
from aggarray.memory.creation import mapped
from aggarray.storage.byte_source import ByteSource, open_source
from aggarray.storage.remote import is_remote

#: A sparse box is read in spans of at most this many bytes, gaps included.
_SPAN = 1 << 22
#: A file with holes may claim texts of any length.
_LONGEST_TEXT = 1 << 24


def _chunks(place: VariableLocation) -> ChunkIndex | None:
    """Describe where the values lie: in one piece, or a record at a time between those of other variables."""
    shape, dtype = place.shape, place.stored
    fill = dtype.newbyteorder("=").type(0)
    if dtype.kind == "S":
        return None
    size = math.prod(shape[1:]) * dtype.itemsize
    if 0 in shape or not shape or place.strides[0] == size:
        return one_chunk(shape, dtype, fill, place.begin)
    # A file with holes may claim any number of records.
    if not needs_chunk_index(shape[:1], 0):
        return None
    offsets = place.begin + np.arange(shape[0], dtype=np.int64) * place.strides[0]
    return ChunkIndex(shape, (1, *shape[1:]), dtype, (), fill, offsets, np.full(shape[0], size, np.int64))


def _read_box(file: ByteSource, place: VariableLocation, box: Box) -> np.ndarray:
    """Return the values of a box, native, in the stored shape."""
    out = np.empty(counts(box), place.stored.newbyteorder("="))
    if out.size:
        for part, target in _pieces(place, box, out):
            _read_span(file, place, part, target)
    return out


def _pieces(place: VariableLocation, box: Box, out: np.ndarray) -> Iterator[tuple[Box, np.ndarray]]:
    """Cut a sparse box into boxes of short spans, each with its part of ``out``."""
    wanted = out.nbytes
    span = span_of(place, out.shape, [s.step or 1 for s in box])
    axis = next((i for i, n in enumerate(out.shape) if n > 1), None)
    if axis is None or span <= max(_SPAN, 2 * wanted):
        yield box, out
        return
    chosen = box[axis]
    step = chosen.step or 1
    several = max(1, _SPAN // (step * place.strides[axis]))
    for first in range(0, out.shape[axis], several):
        last = min(first + several, out.shape[axis])
        part = slice(chosen.start + first * step, chosen.start + (last - 1) * step + 1, step)
        target = out[(slice(None),) * axis + (slice(first, last),)]
        yield from _pieces(place, (*box[:axis], part, *box[axis + 1 :]), target)


def _read_span(file: ByteSource, place: VariableLocation, box: Box, out: np.ndarray) -> None:
    """Read the span of a box at once and pick its elements into ``out``."""
    steps = [s.step or 1 for s in box]
    offset = place.begin + sum(s.start * stride for s, stride in zip(box, place.strides, strict=True))
    span = span_of(place, out.shape, steps)
    if span == out.nbytes and out.flags.c_contiguous:
        # The wanted bytes are all there is in between: straight into place.
        file.read_into(offset, out)
        if place.stored.byteorder == ">" and not np.dtype(">i4").isnative:
            out.byteswap(inplace=True)
        return
    data = np.empty(span, np.uint8)
    file.read_into(offset, data)
    strides = [step * stride for step, stride in zip(steps, place.strides, strict=True)]
    out[...] = np.ndarray(out.shape, place.stored, data, strides=strides)


class _NetCDF3File:
    """An open netCDF-3 file."""

    lasting = True

    def __init__(self, path: str):
        self._path, self._file = path, open_source(path)
        try:
            self.header = header_of(path, self._file)
        except BaseException:
            self.close()
            raise
        self._places = {place.variable.name: place for place in self.header.places}

    def _place(self, variable: str) -> VariableLocation:
        try:
            return self._places[variable]
        except KeyError:
            raise NotFoundError(f"{self._path}: no variable {variable!r}; it holds {', '.join(self._places)}") from None

    def values(self, variable: str, box: Box) -> np.ndarray:
        """Return the values of a box as they are, errors too."""
        place = self._place(variable)
        # Joined text is stored with its length as the last dimension.
        text = whole(place.shape[len(box) :])
        if text and text[0].stop > _LONGEST_TEXT:
            raise ValueError(f"texts of {text[0].stop} characters, more than {_LONGEST_TEXT}; write the file anew")
        values = _read_box(self._file, place, (*box, *text))
        return stored_values(values, place.variable.attrs, bool(text), f"{self._path}, variable {variable!r}")

    def whole(self, variable: Variable) -> np.ndarray | None:
        """Return all values of a variable as they are, None where a scan takes no such number of bytes."""
        place = self._place(variable.name)
        if not is_scannable(place.shape, place.stored.itemsize):
            return None
        return self.values(variable.name, whole(variable.shape))

    def read(self, variable: str, box: Box) -> np.ndarray:
        """Return the stored values of a box."""
        with naming_errors(self._path, variable):
            return self.values(variable, box)

    def elsewhere(self, variable: str) -> Sequence[str]:
        """Return nothing: the format knows no other files."""
        return ()

    def mapped(self, variable: str) -> np.ndarray | None:
        """Return the whole variable as a read-only view of the mapped file, big-endian, records strided."""
        place = self._place(variable)
        if place.stored.kind == "S" or 0 in place.shape or is_remote(self._path):
            return None
        with naming_errors(self._path, variable):
            return mapped(self._path, place.begin, place.stored, place.shape, place.strides).numpy()

    def chunks(self, variable: str) -> ChunkIndex | None:
        """Return where the values are stored, None for text; records without a gap between them are one chunk."""
        with naming_errors(self._path, variable):
            return _chunks(self._place(variable))

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class _NetCDF3:
    """The format netCDF-3 in its three versions."""

    name = "netCDF3"

    def recognises(self, path: str, head: bytes) -> bool:
        """Tell whether the first bytes are ``CDF`` and a known version."""
        return head[:3] == b"CDF" and head[3:4] in (b"\x01", b"\x02", b"\x05")

    def scan(self, path: str) -> Structure:
        """Read the header and the coordinates."""
        with closing(_NetCDF3File(path)) as file:
            variables = with_values([place.variable for place in file.header.places], file.whole)
            return Structure(path, self.name, file.header.attrs, variables, {}, sizes=file.header.sizes)

    def scan_partially(self, path: str, wanted: PartialScanRequest) -> PartialScan | None:
        """Read the header and the coordinates wanted."""
        with closing(_NetCDF3File(path)) as file:
            return select_partial(path, file.header.attrs, [p.variable for p in file.header.places], wanted, file.whole)

    def open(self, path: str) -> Handle:
        """Open for reading values."""
        return _NetCDF3File(path)


FORMAT = _NetCDF3()
