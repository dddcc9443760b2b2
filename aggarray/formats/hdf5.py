"""What does a netCDF-4 or plain HDF5 file hold, and what are the values of a box?

Ordinary netCDF-4 files are scanned without any library (`aggarray.formats._h5`), in a fraction of the time and without a
lock. The others are scanned by netCDF4, the authority on their dimensions; files that it does not see whole (plain HDF5,
unknown types) by h5py. Values are read by h5py in all cases. Every call into either library holds `LIBRARY_LOCK`.
"""

import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from aggarray.errors import FormatError, NotFoundError
from aggarray.formats._h5 import netcdf
from aggarray.formats._hdf5_chunks import describe, is_stored_plainly, lies_in_one_piece, offset_of
from aggarray.formats._hdf5_glimpse import glimpse_at
from aggarray.formats._hdf5_scan import NOT_COORDINATE, plain_dtype, refusal, scan_structure
from aggarray.formats.base import (
    LIBRARY_ERRORS,
    LIBRARY_LOCK,
    Box,
    Chunks,
    Handle,
    Structure,
    Variable,
    blaming,
    counts,
    has_coordinate,
    is_characters,
    stored_values,
    stored_variable,
    whole,
    with_values,
)
from aggarray.formats.glimpses import Glimpse, Wanted

_SIGNATURE = b"\x89HDF\r\n\x1a\n"


class _HDF5:
    """netCDF-4 and plain HDF5."""

    name = "HDF5"

    def recognises(self, path: str, head: bytes) -> bool:
        """Tell whether the signature lies at the beginning or, after a user block, at 512, 1024, 2048, ... bytes."""
        if head.startswith(_SIGNATURE):
            return True
        # A folder; and netCDF-3, which no user block passes itself off as: not worth another look into the file.
        if not head or head.startswith(b"CDF"):
            return False
        with open(path, "rb", buffering=0) as file:
            size, at = os.fstat(file.fileno()).st_size, 512
            while at + len(_SIGNATURE) <= size:
                if os.pread(file.fileno(), len(_SIGNATURE), at) == _SIGNATURE:
                    return True
                at *= 2
        return False

    def scan(self, path: str) -> Structure:
        """Read structure, attributes and coordinate values."""
        direct = netcdf.scan(path)
        if direct is not None:
            return direct
        with LIBRARY_LOCK:
            found = _scan_netcdf(path)
            if isinstance(found, Structure):
                return found
            with blaming(path), opened(path) as file:
                return scan_structure(path, file, found, lambda v: _File(path, file).values(v.name, whole(v.shape)))

    def glimpse(self, path: str, wanted: Wanted) -> Glimpse | None:
        """Read the coordinates wanted by h5py, which opens nothing else."""
        with LIBRARY_LOCK:
            return glimpse_at(path, wanted)

    def open(self, path: str) -> Handle:
        """Open for reading values."""
        with blaming(path), LIBRARY_LOCK:
            return _File(path, _open(path))


# netCDF-4 through netCDF4


def _scan_netcdf(path: str) -> Structure | str:
    """Scan with netCDF4; where it does not see all of the file, return the name of the format instead."""
    import netCDF4

    try:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            dataset = netCDF4.Dataset(path, "r")
    except LIBRARY_ERRORS:
        return "HDF5"
    try:
        dataset.set_auto_maskandscale(False)
        dataset.set_auto_chartostring(False)
        groups = dict(_netcdf_groups(dataset, ""))
        dimensions = [name for group in groups.values() for name in group.dimensions]
        if any(name.startswith("phony_dim_") for name in dimensions):
            return "HDF5"
        if not _written_by_netcdf(dataset):
            if not dimensions:
                return "HDF5"
            if _unseen(path, groups):
                return "netCDF4"
        if any(issubclass(warning.category, UserWarning) for warning in warned):
            # It warns of variables that it leaves out (opaque types): h5py names them.
            return "netCDF4"
        return _netcdf_structure(path, groups)
    except (*LIBRARY_ERRORS, Warning):
        # h5py either manages or names the variable at fault.
        return "netCDF4"
    finally:
        dataset.close()


def _netcdf_groups(group: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    yield prefix, group
    for name, child in group.groups.items():
        yield from _netcdf_groups(child, f"{prefix}{name}/")


def _written_by_netcdf(dataset: Any) -> bool:
    """Tell whether the netCDF library itself wrote the file, so that it overlooks nothing in it."""
    try:
        return ",netcdf=" in dataset.getncattr("_NCProperties")
    except LIBRARY_ERRORS:
        return False


def _unseen(path: str, groups: Mapping[str, Any]) -> bool:
    """Tell whether the file holds datasets that netCDF4 left out without a word (references, opaque types)."""
    import h5py

    seen = {f"{prefix}{name}" for prefix, group in groups.items() for name in (*group.variables, *group.dimensions)}
    names: list[str] = []

    def note(name: bytes, info: Any) -> None:
        if info.type == h5py.h5o.TYPE_DATASET:
            names.append(name.decode("utf-8", "replace"))

    with opened(path) as file:
        h5py.h5o.visit(file.id, note, info=True)
    return not {name.replace(NOT_COORDINATE, "") for name in names} <= seen


def _netcdf_structure(path: str, groups: Mapping[str, Any]) -> Structure:
    variables: list[Variable] = []
    sources: dict[str, Any] = {}
    skipped = []
    every = {prefix + name: source for prefix, group in groups.items() for name, source in group.variables.items()}
    spans = {name: source.dimensions for name, source in every.items()}
    for name, source in every.items():
        dtype = _netcdf_dtype(source)
        if isinstance(dtype, str):
            skipped.append((name, dtype))
            continue
        joined = not (is_characters(dtype, source.ndim) and _has_real_end(name, source, spans))
        variables.append(stored_variable(name, dtype, source.shape, spans[name], _netcdf_attrs(source), joined))
        sources[name] = source

    def read(variable: Variable) -> np.ndarray:
        source = sources[variable.name]
        if source.ndim > 1 and sum(d.isunlimited() for d in source.get_dims()) > 1:
            # netCDF-C hands out uninitialised memory where two dimensions were lengthened by other variables.
            raise ValueError("two unlimited dimensions: left to h5py")
        values = np.asarray(source[...])
        joined = len(variable.shape) < source.ndim
        return stored_values(values, variable.attrs, joined).astype(variable.dtype, copy=False)

    filled = with_values(variables, read)
    attrs = {prefix[:-1]: _netcdf_attrs(group) for prefix, group in groups.items()}
    sizes = {prefix + name: len(d) for prefix, group in groups.items() for name, d in group.dimensions.items()}
    return Structure(path, "netCDF4", attrs.pop(""), filled, attrs, tuple(skipped), sizes=sizes)


def _has_real_end(name: str, source: Any, spans: Mapping[str, tuple[str, ...]]) -> bool:
    """Tell whether the last dimension of single characters is no string length: it can grow or has a coordinate."""
    return bool(source.get_dims()[-1].isunlimited()) or has_coordinate(name, spans[name][-1], spans)


def _netcdf_dtype(source: Any) -> np.dtype[Any] | str:
    """Return the stored dtype, or why it cannot be read."""
    import netCDF4

    kind = source.datatype
    if isinstance(kind, netCDF4.EnumType):
        # h5py's booleans, which it also reads as such.
        boolean = kind.enum_dict == {"FALSE": 0, "TRUE": 1} and kind.dtype == np.int8
        return np.dtype(bool) if boolean else np.dtype(kind.dtype)
    if isinstance(kind, netCDF4.CompoundType):
        return refusal("compound")
    if source.dtype is str:
        return np.dtypes.StringDType()
    return refusal("variable-length") if isinstance(kind, netCDF4.VLType) else np.dtype(source.dtype)


def _netcdf_attrs(source: Any) -> dict[str, Any]:
    found = {}
    for name in source.ncattrs():
        try:
            found[name] = source.getncattr(name)
        except LIBRARY_ERRORS:
            # An attribute of a type that netCDF4 does not read says nothing that CF knows.
            continue
    return found


# Values through h5py


def _open(path: str) -> Any:
    import h5py

    try:
        # Files on read-only or network file systems often cannot be locked, and reading needs no lock.
        return h5py.File(path, "r", locking=False)
    except OSError:
        # Another part of this process has the file open with locking: the two must agree.
        return h5py.File(path, "r")


@contextmanager
def opened(path: str) -> Iterator[Any]:
    file = _open(path)
    try:
        yield file
    finally:
        file.close()


class _File:
    """An open netCDF-4 or HDF5 file; datasets are looked up once.

    It is not kept between reads: HDF5 lets nobody else in this process open a file that is open with other locking flags.
    """

    lasting = False

    def __init__(self, path: str, file: Any):
        self._path, self._file = path, file
        self._datasets: dict[str, tuple[Any, np.dtype[Any], dict[str, Any]]] = {}

    def _dataset(self, variable: str) -> tuple[Any, np.dtype[Any], dict[str, Any]]:
        """Return a variable's dataset, its stored dtype and its text encoding as an attribute."""
        import h5py

        known = self._datasets.get(variable)
        if known is not None:
            return known
        parent, _, base = variable.rpartition("/")
        # The first name is that of a variable named like a dimension which it does not stand for.
        paths = (f"{parent}/{NOT_COORDINATE}{base}", variable) if base and not _leads_outside(self._file, variable) else ()
        # A name that is there but does not open is damage, which h5py's own error tells.
        there = (self._file[p] for p in paths if self._file.get(p, getlink=True) is not None)
        dataset = next((item for item in there if isinstance(item, h5py.Dataset)), None)
        if dataset is None:
            raise NotFoundError(f"{self._path}: no variable {variable!r}; at its top are {', '.join(self._file)}")
        dtype = plain_dtype(dataset)
        if isinstance(dtype, str):
            raise FormatError(f"{self._path}, variable {variable!r}: {dtype}")
        encoding = dataset.attrs.get("_Encoding")
        encoding = encoding.decode("ascii", "replace") if isinstance(encoding, bytes) else encoding
        self._datasets[variable] = known = (dataset, dtype, {} if encoding is None else {"_Encoding": encoding})
        return known

    def values(self, variable: str, box: Box) -> np.ndarray:
        """Return the values of a box as they are, errors too; the lock must be held."""
        dataset, dtype, encoding = self._dataset(variable)
        if dataset.shape is None:
            # A dataset without a dataspace holds nothing.
            return stored_values(np.empty(counts(box), dtype), {})
        joined = len(box) < len(dataset.shape)
        if joined:
            box = (*box, slice(0, dataset.shape[-1], 1))
        values = _read_box(dataset, box)
        return stored_values(values if dtype.kind in "SOT" else values.astype(dtype, copy=False), encoding, joined)

    def read(self, variable: str, box: Box) -> np.ndarray:
        """Return the stored values of a box."""
        with blaming(self._path, variable), LIBRARY_LOCK:
            return self.values(variable, box)

    def mapped(self, variable: str) -> np.ndarray | None:
        """Return the whole variable as a read-only view of the mapped file, or None unless it lies there in one piece."""
        with blaming(self._path, variable), LIBRARY_LOCK:
            dataset, dtype, _ = self._dataset(variable)
            offset = _position(dataset, dtype)
            if offset is None or offset + dataset.nbytes > os.path.getsize(self._path):
                return None
            return np.memmap(self._path, dtype, "r", offset, dataset.shape)

    def chunks(self, variable: str) -> Chunks | None:
        """Return where the values are stored, or None where that cannot be told as `Chunks`."""
        with blaming(self._path, variable), LIBRARY_LOCK:
            dataset, dtype, _ = self._dataset(variable)
            return describe(self._path, dataset, dtype)

    def elsewhere(self, variable: str) -> Sequence[str]:
        """Return the files of external and of virtual storage, resolved as HDF5 does: against the folder of this file."""
        with blaming(self._path, variable), LIBRARY_LOCK:
            dataset = self._dataset(variable)[0]
            names = [os.fsdecode(name) for name, _, _ in dataset.external or ()]
            names += (
                [source.file_name for source in dataset.virtual_sources() if source.file_name != "."]
                if dataset.is_virtual
                else []
            )
            folder = os.path.dirname(os.path.abspath(self._path))
            # External files are looked for in the working directory, sources of virtual ones beside the file: both count.
            return [p for name in names for p in (os.path.join(folder, name), os.path.abspath(name))]

    def close(self) -> None:
        """Close the file."""
        with LIBRARY_LOCK:
            # No dataset is open any more: h5py need not look for any, which is most of what its own close does.
            self._datasets.clear()
            self._file.id.close()


def _leads_outside(file: Any, path: str) -> bool:
    """Tell whether a path runs through a link into another file, which nobody named."""
    import h5py

    parts = path.split("/")
    starts = ("/".join(parts[:n]) for n in range(1, len(parts) + 1))
    return any(isinstance(file.get(start, getlink=True), h5py.ExternalLink) for start in starts if start)


def _read_box(dataset: Any, box: Box) -> np.ndarray:
    """Read a box; what lies beyond the end along an unlimited dimension has not been written and is fill value."""
    inner = tuple(slice(min(s.start, n), min(s.stop, n), s.step) for s, n in zip(box, dataset.shape, strict=True))
    if inner == box:
        return np.asarray(dataset[box])
    for chosen, n, most in zip(box, dataset.shape, dataset.maxshape, strict=True):
        if chosen.stop > n and most is not None:
            raise ValueError(f"only {n} of the wanted {chosen.stop} elements are there; the file has changed, open it again")
    # netCDF-4 lets one variable lengthen a dimension without touching the others that have it.
    out = np.full(counts(box), dataset.fillvalue, dataset.dtype)
    written = tuple(slice(0, n) for n in counts(inner))
    out[written] = dataset[inner]
    return out


def _position(dataset: Any, dtype: np.dtype[Any]) -> int | None:
    """Return where in the file the values lie as they are, or None where they do not."""
    if not dataset.size or not lies_in_one_piece(dataset) or not is_stored_plainly(dataset, dtype):
        return None
    return offset_of(dataset)


FORMAT = _HDF5()
