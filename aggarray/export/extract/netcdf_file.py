"""How does one netCDF-4 file come of chunks that are encoded already?

netCDF-C lays out the file and writes what is small; the chunks are then put into it as they are. Always in one order, so that
the same chunks give the same bytes.
"""

import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

from aggarray.errors import AggregationError
from aggarray.export.extract.layout import ExtractLayout, Variable
from aggarray.export.extract.pieces import Pieces, places
from aggarray.formats.base import LIBRARY_LOCK, h5py_file
from aggarray.index.netcdf import created, updated

#: Kinds of data types that netCDF has.
KINDS = "iufT"
_LEVEL = 4
#: The filters as HDF5 numbers them, and the flag that HDF5 gives both: optional.
_SHUFFLE, _DEFLATE, _OPTIONAL = 2, 1, 1


def encode(values: np.ndarray) -> bytes:
    """Encode a chunk as HDF5's filters shuffle and deflate do."""
    import deflate

    planes = values.reshape(-1, 1).view(np.uint8).reshape(-1, values.dtype.itemsize).T
    return bytes(deflate.zlib_compress(np.ascontiguousarray(planes), _LEVEL))


def write_file(layout: ExtractLayout, pieces: Pieces, path: str) -> None:
    """Write a file of all variables, whose chunks are there."""
    # Read before the lock is taken: some are read by threads that need it.
    whole = {v.name: v.values(...) for v in layout.variables if v.chunks is None and v.source.size}
    _declare_file(layout, whole, path)
    if _odd(layout, path) is not None:
        _declare_file(layout, whole, path)
        odd = _odd(layout, path)
        if odd is not None:
            raise AggregationError(f"{path}: {odd}; install another netCDF4, or write to .zarr")
    # promise: extract-resume-identical
    _even_flags(layout, path)
    with updated(path) as file:
        for variable in layout.variables:
            for place in places(variable) if variable.chunks is not None else ():
                corner = tuple(n * side for n, side in zip(place, variable.chunks or (), strict=True))
                with open(pieces.path(variable, place), "rb") as chunk:
                    file[variable.name].id.write_direct_chunk(corner, chunk.read())


def _declare_file(layout: ExtractLayout, whole: Mapping[str, np.ndarray], path: str) -> None:
    """Write a file with all but the chunks."""
    with created(path) as dataset:
        dataset.setncatts(layout.attributes)
        for name, size in layout.dimensions.items():
            dataset.createDimension(name, size)
        # Values last: what is declared later would move them.
        made = [(v, _declared(dataset, v)) for v in layout.variables]
        for variable, target in made:
            if variable.name in whole:
                _write_whole(whole[variable.name], target)


def _odd(layout: ExtractLayout, path: str) -> str | None:
    """Say which variable was declared with other filters than those that its chunks are encoded by."""
    with LIBRARY_LOCK, h5py_file(path, "r") as file:
        for variable in layout.variables:
            if variable.chunks is not None:
                plist = file[variable.name].id.get_create_plist()
                # Not their flags: chunks are the same whether a filter is optional or not.
                # promise: extract-resume-filter-flags
                found = [plist.get_filter(n)[:3:2] for n in range(plist.get_nfilters())]
                wanted = [(_SHUFFLE, (variable.dtype.itemsize,)), (_DEFLATE, (_LEVEL,))]
                if found != wanted:
                    return f"variable {variable.name!r} has got the filters {found}, not {wanted}"
    return None


def _even_flags(layout: ExtractLayout, path: str) -> None:
    """Make all filters optional, as most versions of the libraries do: the same chunks give the same bytes by any of them."""
    odd: list[tuple[int, int]] = []
    with LIBRARY_LOCK, h5py_file(path, "r") as file:
        import h5py

        for variable in layout.variables:
            if variable.chunks is not None:
                dataset = file[variable.name].id
                plist = dataset.get_create_plist()
                if any(plist.get_filter(n)[1] != _OPTIONAL for n in range(plist.get_nfilters())):
                    odd.append((h5py.h5o.get_info(dataset).addr, variable.dtype.itemsize))
    if odd:
        with open(path, "r+b") as disk:
            for address, size in odd:
                disk.seek(address)
                block = _evened(disk.read(1 << 16), size)
                disk.seek(address)
                disk.write(block)


def _evened(block: bytes, size: int) -> bytes:
    """Return the first block of an object header (version 2 of the format) with the flags of its filters set, or no bytes."""
    from numcodecs.jenkins import jenkins_lookup3

    flags, width = block[5], 1 << (block[5] & 3)
    start = 6 + (16 if flags & 32 else 0) + (4 if flags & 16 else 0) + width
    end = start + int.from_bytes(block[start - width : start], "little")
    header, stated = block[:end], _filters(_OPTIONAL, _OPTIONAL, size)
    others = [_filters(*flags, size) for flags in ((0, 0), (0, _OPTIONAL), (_OPTIONAL, 0))]
    if block[:5] != b"OHDR\2" or sum(map(header.count, others)) != 1:
        return b""  # laid out in another way: it stays what it is
    for other in others:
        header = header.replace(other, stated)
    return header + int(jenkins_lookup3(header)).to_bytes(4, "little")


def _filters(shuffle: int, deflate: int, size: int) -> bytes:
    """Return the message of an object header that states the filters, with these flags (version 2)."""
    return struct.pack("<BBHHHIHHHI", 2, 2, _SHUFFLE, shuffle, 1, size, _DEFLATE, deflate, 1, _LEVEL)


def _declared(dataset: Any, variable: Variable) -> Any:
    """Declare a variable with its attributes."""
    how: dict[str, Any] = {} if variable.fill is None else {"fill_value": variable.fill}
    if variable.chunks is not None:
        how.update(chunksizes=variable.chunks, compression="zlib", complevel=_LEVEL, shuffle=True)
    dtype = str if variable.dtype.kind == "T" else variable.dtype.newbyteorder("=")
    made = dataset.createVariable(variable.name, dtype, variable.dimensions, **how)
    made.set_auto_maskandscale(False)
    made.setncatts({name: value for name, value in variable.attributes.items() if name != "_FillValue"})
    return made


def _write_whole(values: np.ndarray, target: Any) -> None:
    values = values.astype(object) if values.dtype.kind == "T" else values
    target[...] = values if values.ndim else values.item()
