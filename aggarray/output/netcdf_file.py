"""NetCDF-4 file of encoded chunks.

netCDF-C lays out the file and writes the small variables. The chunks are then written directly. Dimensions of time are
unlimited.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from aggarray.errors import AggregationError
from aggarray.formats.base import LIBRARY_LOCK, h5py_file
from aggarray.index.netcdf import created
from aggarray.output.chunks import Position
from aggarray.output.compression import BLOSC, NONE, Compression
from aggarray.output.layout import ExtractLayout, StoredForm, Variable, appendable_piece, unlimited_dimensions

#: Kinds of data types that netCDF has.
KINDS = "iufT"
#: Identifiers of the filters in HDF5, and the flag of an optional filter.
_SHUFFLE, _DEFLATE, _ZSTD, _BLOSC, _OPTIONAL = 2, 1, 32015, 32001, 1
#: Codes of the compressors in Blosc.
_BLOSC_CODES = {"blosclz": 0, "lz4": 1, "lz4hc": 2, "zlib": 4, "zstd": 5}


def encode(values: np.ndarray, compression: Compression) -> bytes:
    """Encode a chunk with the HDF5 filters of a compression."""
    if compression.name == "zstd":
        from numcodecs.zstd import Zstd

        return bytes(Zstd(compression.level).encode(values))
    if compression.name in BLOSC:
        from numcodecs.blosc import Blosc

        return bytes(Blosc(BLOSC[compression.name], compression.level, Blosc.SHUFFLE).encode(values))
    if not compression.level:
        return values.tobytes()
    import deflate

    planes = values.reshape(-1, 1).view(np.uint8).reshape(-1, values.dtype.itemsize).T
    return bytes(deflate.zlib_compress(np.ascontiguousarray(planes), compression.level))


def _filters(compression: Compression, variable: Variable) -> list[tuple[int, tuple[int, ...]]]:
    """Return the filters of `encode`, with their parameters."""
    itemsize = variable.dtype.itemsize
    if compression.name == "zstd":  # netCDF4 declares no shuffle before zstd
        return [(_ZSTD, (compression.level,))]
    if compression.name in BLOSC:
        code = _BLOSC_CODES[BLOSC[compression.name]]
        return [(_BLOSC, (0, 0, itemsize, prod(variable.chunks or ()) * itemsize, compression.level, 1, code))]
    return [(_SHUFFLE, (itemsize,)), (_DEFLATE, (compression.level,))] if compression.level else []


def stored_forms(path: str) -> dict[str, StoredForm]:
    """Return how variables are stored; AggregationError for other filters."""
    forms = {}
    with LIBRARY_LOCK, h5py_file(path, "r") as file:
        for name, dataset in file.items():
            if not hasattr(dataset, "chunks"):
                continue  # a group
            plist = dataset.id.get_create_plist()
            filters = [plist.get_filter(n)[:3:2] for n in range(plist.get_nfilters())]
            compression = _compression_of(filters)
            if compression is None:
                raise AggregationError(f"has other filters than an extract ({filters})", path=path, variable=name)
            fill = dataset.attrs.get("_FillValue")
            fill = None if fill is None else np.asarray(fill).ravel()[0]
            forms[name] = StoredForm(dataset.chunks, None, compression, fill)
    return forms


def _compression_of(filters: Sequence[tuple[int, Sequence[int]]]) -> Compression | None:
    """Return the compression of the filters of `_filters`, None for others."""
    codes, values = tuple(code for code, _ in filters), filters[-1][1] if filters else ()
    if codes == (_BLOSC,):
        name = next((n for n, cname in BLOSC.items() if _BLOSC_CODES[cname] == values[-1]), None)
        return None if name is None else Compression(name, values[4])
    names = {(_SHUFFLE, _DEFLATE): "zlib", (_ZSTD,): "zstd"}
    return Compression(NONE, 0) if not codes else Compression(names[codes], values[0]) if codes in names else None


def check_compression(compression: Compression, path: str) -> None:
    """Raise AggregationError if netCDF-C lacks the filter of a compression."""
    family = compression.name.partition("_")[0]
    if family in ("zstd", "blosc"):
        import netCDF4

        with LIBRARY_LOCK, netCDF4.Dataset("unwritten.nc", "w", diskless=True, persist=False) as dataset:
            if not getattr(dataset, f"has_{family}_filter")():
                raise AggregationError(f"this netCDF4 has no {family}", path=path, hint="give zlib, or write to .zarr")


def create_file(layout: ExtractLayout, path: str, compression: Compression, extend: bool = False) -> None:
    """Create a file of all variables, whose chunks are then placed.

    ``extend``: add them to the file at the path, whose dimensions of the same names have the same sizes.
    """
    # Read before the lock is acquired: threads that read some of them need it.
    unchunked = {v.name: v.values(...) for v in layout.variables if v.chunks is None and v.source.size}
    for is_last in (extend, True):
        _declare_file(layout, unchunked, compression, extend, path)
        problem = _check_filters(layout, path, compression)
        if problem is None:
            break
        if is_last:
            raise AggregationError(problem, path=path, hint="install another netCDF4, or write to .zarr")
    if compression.name == "zlib":
        # promise: extract-resume-identical
        _make_filters_optional(layout, path, compression)


def chunk_placer(file: Any, variable: Variable) -> Callable[..., None]:
    """Return a function that writes encoded chunks of a variable.

    It takes the position, the bytes and the mask of the filters that they do not have (0: all were used). ``file``: the
    writable ``h5py.File``; the lock of the library must be held.
    """
    target, sides = file[variable.name].id, variable.chunks or ()
    target.set_extent(variable.shape)  # unlimited dimensions begin empty

    def place(position: Position, chunk: bytes, left_out: int = 0) -> None:
        target.write_direct_chunk(tuple(n * side for n, side in zip(position, sides, strict=True)), chunk, left_out)

    return place


def _declare_file(
    layout: ExtractLayout, unchunked: Mapping[str, np.ndarray], compression: Compression, extend: bool, path: str
) -> None:
    unlimited = unlimited_dimensions(layout)
    with created(path, extend) as dataset:
        unlimited |= {name for name, dimension in dataset.dimensions.items() if dimension.isunlimited()}
        dataset.setncatts(layout.attributes)
        for name, size in layout.dimensions.items():
            if name not in dataset.dimensions:
                group, _, own = name.rpartition("/")
                (dataset.createGroup(group) if group else dataset).createDimension(own, None if name in unlimited else size)
        # Values last: a later declaration would move them.
        targets = []
        for variable in layout.variables:
            options: dict[str, Any] = {} if variable.fill is None else {"fill_value": variable.fill}
            if variable.chunks is not None:
                options["chunksizes"] = variable.chunks
                if compression.level:
                    name = "blosc_zstd" if compression.name == "blosc" else compression.name
                    options |= {"compression": name, "complevel": compression.level, "shuffle": True}
            elif not unlimited.isdisjoint(variable.dimensions):
                leads = variable.dimensions[0] in unlimited
                options["chunksizes"] = appendable_piece(variable.shape) if leads else variable.shape
            dtype = str if variable.dtype.kind == "T" else variable.dtype.newbyteorder("=")
            target = dataset.createVariable(variable.name, dtype, variable.dimensions, **options)
            target.set_auto_maskandscale(False)
            target.setncatts({name: value for name, value in variable.attributes.items() if name != "_FillValue"})
            targets.append(target)
        for variable, target in zip(layout.variables, targets, strict=True):
            if variable.name in unchunked:
                values = unchunked[variable.name]
                values = values.astype(object) if values.dtype.kind == "T" else values
                target[tuple(map(slice, values.shape)) or ...] = values if values.ndim else values.item()


def _check_filters(layout: ExtractLayout, path: str, compression: Compression) -> str | None:
    """Return which variable does not have the filters of its chunks, if any."""
    with LIBRARY_LOCK, h5py_file(path, "r") as file:
        for variable in layout.variables:
            if variable.chunks is not None:
                plist = file[variable.name].id.get_create_plist()
                # The flags do not matter: an optional filter encodes chunks in the same way.
                # promise: extract-resume-filter-flags
                filters = [plist.get_filter(n)[:3:2] for n in range(plist.get_nfilters())]
                expected = _filters(compression, variable)
                if filters != expected:
                    return f"netCDF-C gave variable {variable.name!r} the filters {filters}, not {expected}"
    return None


def _make_filters_optional(layout: ExtractLayout, path: str, compression: Compression) -> None:
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
                block = _optional_filters(disk.read(1 << 16), size, compression.level)
                disk.seek(address)
                disk.write(block)


def _optional_filters(block: bytes, size: int, level: int) -> bytes:
    """Return an object header (version 2) with optional filters, or b""."""
    from numcodecs.jenkins import jenkins_lookup3

    flags, width = block[5], 1 << (block[5] & 3)
    start = 6 + (16 if flags & 32 else 0) + (4 if flags & 16 else 0) + width
    end = start + int.from_bytes(block[start - width : start], "little")
    header, message = block[:end], _filter_message(_OPTIONAL, _OPTIONAL, size, level)
    others = [_filter_message(*flags, size, level) for flags in ((0, 0), (0, _OPTIONAL), (_OPTIONAL, 0))]
    if block[:5] != b"OHDR\2" or sum(map(header.count, others)) != 1:
        return b""
    for other in others:
        header = header.replace(other, message)
    return header + int(jenkins_lookup3(header)).to_bytes(4, "little")


def _filter_message(shuffle: int, deflate: int, size: int, level: int) -> bytes:
    """Return the header message of the filters with these flags (version 2)."""
    return struct.pack("<BBHHHIHHHI", 2, 2, _SHUFFLE, shuffle, 1, size, _DEFLATE, deflate, 1, level)
