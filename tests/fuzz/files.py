"""Fuzz targets: any bytes of a netCDF-3 file, or metadata of an HDF5 file, are read or refused.

netCDF4 is the oracle of netCDF-3 files that it accepts. Only the built-in HDF5 reader is fuzzed: neither h5py nor netCDF4 is
called. Checksums of HDF5 metadata are not verified, since mutations would not get past them.
"""

import importlib
import pkgutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from math import prod
from pathlib import Path
from typing import Any
from unittest import mock

import h5py
import netCDF4
import numpy as np

from aggarray import formats
from aggarray.arrays.subarray import SubArray
from aggarray.codecs import decode, known
from aggarray.formats.base import Structure, full_box
from aggarray.formats.hdf5 import metadata
from aggarray.formats.hdf5.metadata import chunk_index, scan
from aggarray.formats.hdf5.metadata.data import UNREADABLE
from aggarray.formats.hdf5.metadata.lookup import H5File
from aggarray.formats.partial_scan import PartialScanRequest
from aggarray.partition.chunk_index import ChunkIndex
from tests.fuzz.target import MOST_READ, Target, check, read_some, refusing, written

# netCDF-3


def run_netcdf3(data: bytes) -> bool:
    """Scan a file and read all of its variables."""
    if data[:3] != b"CDF" or data[3:4] not in (b"\x01", b"\x02", b"\x05"):
        data = b"CDF\x01" + data[4:]
    with written(data, ".nc") as path, refusing() as refused:
        structure = formats.scan(path)
        result = {}
        for variable in structure.variables:
            with refusing():
                if prod(variable.shape) <= MOST_READ:
                    result[variable.name] = _read(path, variable.name, variable.shape)
        for variable in structure.variables[:2]:
            with refusing():
                read_some(SubArray.from_file(path, variable.name))
        check(len({v.name for v in structure.variables}) == len(structure.variables), "names that are there twice")
        _compare(path, structure, result)
    return not refused


def _read(path: str, name: str, shape: tuple[int, ...]) -> np.ndarray:
    handle = formats.open_file(path)
    try:
        with refusing():
            mapped = handle.mapped(name)
            if mapped is not None:
                check(mapped.shape == shape, f"{name!r} mapped as {mapped.shape}, not {shape}")
                np.array(mapped)
        return handle.read(name, full_box(shape))
    finally:
        handle.close()


def _compare(path: str, structure: Structure, found: Mapping[str, np.ndarray]) -> None:
    """Compare values with those of netCDF4, if it accepts the file and finds the same structure."""
    try:
        dataset = netCDF4.Dataset(path)
    except (OSError, RuntimeError, ValueError, MemoryError):
        return
    with dataset:
        dataset.set_auto_maskandscale(False)
        dataset.set_auto_chartostring(False)
        for name, values in found.items():
            if values.dtype.kind == "T" or name not in dataset.variables or dataset[name].shape != values.shape:
                continue
            try:
                expected = np.asarray(dataset[name][...])
            except (RuntimeError, IndexError, ValueError):
                continue
            check(
                expected.tobytes() == values.tobytes(), f"{name!r} is {values.ravel()[:4]}, {expected.ravel()[:4]} to netCDF4"
            )


def _made(format: str) -> Iterator[tuple[str, bytes]]:
    """Yield small files in one of netCDF4's formats."""
    for unlimited in (False, True):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "a.nc"
            with netCDF4.Dataset(path, "w", format=format) as file:
                file.createDimension("t", None if unlimited else 3)
                file.createDimension("x", 2)
                file.setncatts({"title": "a", "n": np.int16([1, 2])})
                time = file.createVariable("t", "f8", ("t",))
                time.units, time[:] = "days since 2000-01-01", np.arange(3)
                packed = file.createVariable("v", "i2", ("t", "x"), fill_value=-9)
                packed.set_auto_maskandscale(False)
                packed.setncatts(
                    {"scale_factor": np.float32(0.5), "add_offset": np.float32(1), "units": "K", "coordinates": "s"}
                )
                packed[:] = np.arange(6).reshape(3, 2)
                file.createVariable("s", "S1", ("x",))[:] = np.array([b"a", b"b"])
                file.createVariable("e", "i4", ())[...] = 7
                file.createVariable("b", "i1", ("t",))[:] = [1, 2, 3]
            yield f"{format.lower()}_{'records' if unlimited else 'fixed'}", path.read_bytes()


def seeds_netcdf3() -> dict[str, bytes]:
    """Return small files in the three versions, with and without records."""
    formats_ = ("NETCDF3_CLASSIC", "NETCDF3_64BIT_OFFSET", "NETCDF3_64BIT_DATA")
    result = {name: data for format in formats_ for name, data in _made(format)}
    classic = result["netcdf3_classic_records"]
    return {**result, "streamed": classic[:4] + b"\xff\xff\xff\xff" + classic[8:]}


# HDF5


@contextmanager
def _unverified() -> Iterator[None]:
    """Accept every checksum of metadata, and cache no parsed metadata."""
    patches = []
    for info in pkgutil.iter_modules(metadata.__path__):
        module = importlib.import_module(f"{metadata.__name__}.{info.name}")
        if hasattr(module, "verify"):
            patches.append(mock.patch.object(module, "verify", lambda block: None))
    for patch in patches:
        patch.start()
    try:
        yield
    finally:
        for patch in patches:
            patch.stop()


def run_hdf5(data: bytes) -> bool:
    """Scan a file and locate the stored values of its variables."""
    with written(data, ".nc") as path, _unverified(), refusing():
        structure = _scanned(path)
        for variable in () if structure is None else structure.variables:
            if variable.values is not None:
                check(variable.values.shape == variable.shape, f"{variable.name!r} has {variable.values.shape}")
        names = ["v", "t", "g/w"] if structure is None else [v.name for v in structure.variables]
        coordinates = tuple(names[:3])
        with suppress(*UNREADABLE):
            scan.scan_partially(path, PartialScanRequest(("title",), coordinates))
        _find(path, names)
        return structure is not None
    return False


def _scanned(path: str) -> Structure | None:
    """Return the structure of a file; None if it is left to the libraries."""
    try:
        return scan.scan(path)
    except UNREADABLE:
        return None


def _find(path: str, names: list[str]) -> None:
    try:
        file = H5File(path)
    except UNREADABLE:
        return
    try:
        for name in names:
            try:
                chunk_index.contiguous_of(file, name)
                result = chunk_index.chunk_index_of(file, name)
            except UNREADABLE:
                continue
            if result is not None:
                _check_table(result, Path(path).read_bytes())
    finally:
        file.close()


def _check_table(found: ChunkIndex, content: bytes) -> None:
    """Check the consistency of a chunk index and decode a few of its chunks."""
    count = prod(found.grid)
    check(len(found.offsets) == len(found.sizes) == count, f"{len(found.offsets)} chunks of {count}")
    check(len(found.chunk) == len(found.shape) and 0 not in found.chunk, f"chunks {found.chunk} of {found.shape}")
    size = prod(found.chunk) * found.dtype.itemsize
    if size > 1 << 20 or not known(found.filters):
        return
    for number in np.flatnonzero(found.offsets >= 0)[:4].tolist():
        at, stored = int(found.offsets[number]), int(found.sizes[number])
        mask = 0 if found.masks is None else int(found.masks[number])
        try:
            decode(found.filters, content[at : at + stored], size, mask)
        except ValueError:
            continue


def seeds_hdf5() -> dict[str, bytes]:
    """Return small files of netCDF-4 and h5py, with old and new versions of HDF5 structures."""
    result = dict(_made("NETCDF4"))
    for version in ("earliest", "latest"):
        for kind in ("plain", "many"):
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "a.h5"
                with h5py.File(path, "w", libver=version, track_order=True) as file:
                    _fill(file, kind)
                result[f"h5py_{version}_{kind}"] = path.read_bytes()
    return result


def _fill(file: Any, kind: str) -> None:
    file.attrs["title"] = np.bytes_(b"a")
    scale = file.create_dataset("t", data=np.arange(4.0))
    scale.make_scale("t")
    made = file.create_dataset("v", data=np.arange(8, dtype="i4").reshape(4, 2), chunks=(2, 1), compression=1, shuffle=True)
    across = file.create_dataset("x", data=np.arange(2.0))
    across.make_scale("x")
    made.dims[0].attach_scale(scale)
    made.dims[1].attach_scale(across)
    group = file.create_group("g", track_order=True)
    growing = group.create_dataset("w", (4,), "f4", maxshape=(None,), chunks=(1,), fletcher32=True)
    growing.dims[0].attach_scale(scale)
    growing[...] = 1
    if kind == "many":
        for number in range(12):
            group.attrs[f"a{number}"] = number
        square = file.create_dataset("u", (4, 4), "i2", maxshape=(None, None), chunks=(2, 2))
        square[...] = 5
        text = file.create_dataset("text", data=["a", "bc"], dtype=h5py.string_dtype())
        text.dims[0].attach_scale(across)
        for axis in range(2):
            square.dims[axis].attach_scale(scale)


TARGETS = (
    Target("netcdf3", run_netcdf3, seeds_netcdf3, longest=2048),
    Target("hdf5", run_hdf5, seeds_hdf5, longest=1 << 15),
)
