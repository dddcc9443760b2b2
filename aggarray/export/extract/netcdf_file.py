"""One netCDF-4 file assembled from encoded chunks.

netCDF-C lays out the file and writes the small variables. The chunks are then written directly, always in the same order, so
that the same chunks give the same bytes.
"""

import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

from aggarray.errors import AggregationError
from aggarray.export.extract.layout import ExtractLayout
from aggarray.export.extract.pieces import Pieces, chunk_positions
from aggarray.formats.base import LIBRARY_LOCK, h5py_file
from aggarray.index.netcdf import created, updated

#: Kinds of data types that netCDF has.
KINDS = "iufT"
_LEVEL = 4
#: Identifiers of the filters in HDF5, and the flag of an optional filter.
_SHUFFLE, _DEFLATE, _OPTIONAL = 2, 1, 1


def encode(values: np.ndarray) -> bytes:
    """Encode a chunk with the HDF5 filters shuffle and deflate."""
    import deflate

    planes = values.reshape(-1, 1).view(np.uint8).reshape(-1, values.dtype.itemsize).T
    return bytes(deflate.zlib_compress(np.ascontiguousarray(planes), _LEVEL))


def write_file(layout: ExtractLayout, pieces: Pieces, path: str) -> None:
    """Write a file of all variables; their chunks must exist."""
    # Read before the lock is acquired: threads that read some of them need it.
    unchunked = {v.name: v.values(...) for v in layout.variables if v.chunks is None and v.source.size}
    _declare_file(layout, unchunked, path)
    if _check_filters(layout, path) is not None:
        _declare_file(layout, unchunked, path)
        problem = _check_filters(layout, path)
        if problem is not None:
            raise AggregationError(problem, path=path, hint="install another netCDF4, or write to .zarr")
    # promise: extract-resume-identical
    _make_filters_optional(layout, path)
    with updated(path) as file:
        for variable in layout.variables:
            for position in chunk_positions(variable) if variable.chunks is not None else ():
                corner = tuple(n * side for n, side in zip(position, variable.chunks or (), strict=True))
                with open(pieces.path(variable, position), "rb") as chunk:
                    file[variable.name].id.write_direct_chunk(corner, chunk.read())


def _declare_file(layout: ExtractLayout, unchunked: Mapping[str, np.ndarray], path: str) -> None:
    with created(path) as dataset:
        dataset.setncatts(layout.attributes)
        for name, size in layout.dimensions.items():
            dataset.createDimension(name, size)
        # Values last: a later declaration would move them.
        targets = []
        for variable in layout.variables:
            options: dict[str, Any] = {} if variable.fill is None else {"fill_value": variable.fill}
            if variable.chunks is not None:
                options.update(chunksizes=variable.chunks, compression="zlib", complevel=_LEVEL, shuffle=True)
            dtype = str if variable.dtype.kind == "T" else variable.dtype.newbyteorder("=")
            target = dataset.createVariable(variable.name, dtype, variable.dimensions, **options)
            target.set_auto_maskandscale(False)
            target.setncatts({name: value for name, value in variable.attributes.items() if name != "_FillValue"})
            targets.append(target)
        for variable, target in zip(layout.variables, targets, strict=True):
            if variable.name in unchunked:
                values = unchunked[variable.name]
                values = values.astype(object) if values.dtype.kind == "T" else values
                target[...] = values if values.ndim else values.item()


def _check_filters(layout: ExtractLayout, path: str) -> str | None:
    """Return which variable does not have the filters of its chunks, if any."""
    with LIBRARY_LOCK, h5py_file(path, "r") as file:
        for variable in layout.variables:
            if variable.chunks is not None:
                plist = file[variable.name].id.get_create_plist()
                # The flags do not matter: an optional filter encodes chunks in the same way.
                # promise: extract-resume-filter-flags
                filters = [plist.get_filter(n)[:3:2] for n in range(plist.get_nfilters())]
                expected = [(_SHUFFLE, (variable.dtype.itemsize,)), (_DEFLATE, (_LEVEL,))]
                if filters != expected:
                    return f"netCDF-C gave variable {variable.name!r} the filters {filters}, not {expected}"
    return None


def _make_filters_optional(layout: ExtractLayout, path: str) -> None:
    """Make filters optional, so that all library versions write the same."""
    headers: list[tuple[int, int]] = []
    with LIBRARY_LOCK, h5py_file(path, "r") as file:
        import h5py

        for variable in layout.variables:
            if variable.chunks is not None:
                dataset = file[variable.name].id
                plist = dataset.get_create_plist()
                if any(plist.get_filter(n)[1] != _OPTIONAL for n in range(plist.get_nfilters())):
                    headers.append((h5py.h5o.get_info(dataset).addr, variable.dtype.itemsize))
    if headers:
        with open(path, "r+b") as disk:
            for address, size in headers:
                disk.seek(address)
                block = _optional_filters(disk.read(1 << 16), size)
                disk.seek(address)
                disk.write(block)


def _optional_filters(block: bytes, size: int) -> bytes:
    """Return an object header (version 2) with optional filters, or b""."""
    from numcodecs.jenkins import jenkins_lookup3

    flags, width = block[5], 1 << (block[5] & 3)
    start = 6 + (16 if flags & 32 else 0) + (4 if flags & 16 else 0) + width
    end = start + int.from_bytes(block[start - width : start], "little")
    header, message = block[:end], _filter_message(_OPTIONAL, _OPTIONAL, size)
    others = [_filter_message(*flags, size) for flags in ((0, 0), (0, _OPTIONAL), (_OPTIONAL, 0))]
    if block[:5] != b"OHDR\2" or sum(map(header.count, others)) != 1:
        return b""
    for other in others:
        header = header.replace(other, message)
    return header + int(jenkins_lookup3(header)).to_bytes(4, "little")


def _filter_message(shuffle: int, deflate: int, size: int) -> bytes:
    """Return the header message of the filters with these flags (version 2)."""
    return struct.pack("<BBHHHIHHHI", 2, 2, _SHUFFLE, shuffle, 1, size, _DEFLATE, deflate, 1, _LEVEL)
