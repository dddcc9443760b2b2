"""What does a netCDF-4 or plain HDF5 file hold, and what are the values of a box?

Ordinary netCDF-4 files are scanned without any library (`aggarray.formats._h5`), in a fraction of the time and without a
lock. The others are scanned by netCDF4, the authority on their dimensions; files that it does not see whole (plain HDF5,
unknown types) by h5py. Where values are stored is told in the same way: without a library, or else by h5py, which also reads
them where that is not told (`aggarray.formats._hdf5_file`). Every call into either library holds `LIBRARY_LOCK`.
"""

import warnings
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from aggarray.formats import _hdf5_apart as apart
from aggarray.formats._h5 import glimpses, netcdf
from aggarray.formats._h5.data import LEFT, is_doubtful, refuse
from aggarray.formats._h5.file import H5File
from aggarray.formats._h5.survey import contradicts_itself
from aggarray.formats._hdf5_file import HDF5File, Library, opened
from aggarray.formats._hdf5_glimpse import glimpse_at
from aggarray.formats._hdf5_links import is_plain
from aggarray.formats._hdf5_scan import NOT_COORDINATE, refusal, scan_structure, stored_attribute
from aggarray.formats._hdf5_swelling import check_swelling
from aggarray.formats.base import (
    LIBRARY_ERRORS,
    LIBRARY_LOCK,
    Handle,
    Structure,
    Variable,
    blaming,
    has_coordinate,
    is_characters,
    stored_values,
    stored_variable,
    with_values,
)
from aggarray.formats.claims import scannable
from aggarray.formats.glimpses import Glimpse, Wanted
from aggarray.formats.places import File, make_ready
from aggarray.remote import is_remote

__all__ = ["FORMAT", "holds_group", "opened"]

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
        with File(path) as file:
            at = 512
            while at + len(_SIGNATURE) <= file.size:
                if file.pread(len(_SIGNATURE), at) == _SIGNATURE:
                    return True
                at *= 2
        return False

    def scan(self, path: str) -> Structure:
        """Read structure, attributes and coordinate values."""
        try:
            return netcdf.scan(path)
        except LEFT as error:
            refuse(error, path)
            doubtful = is_doubtful(error) or contradicts_itself(path)
        if doubtful and not is_remote(path) and apart.possible():
            found: Structure = apart.ask(path, "scan")
            return found
        return scan_by_libraries(path)

    def glimpse(self, path: str, wanted: Wanted) -> Glimpse | None:
        """Read the coordinates wanted, and open nothing else, by h5py where need be."""
        try:
            return glimpses.glimpse(path, wanted)
        except LEFT as error:
            if is_doubtful(error) or is_remote(path) or contradicts_itself(path):
                return None
        with LIBRARY_LOCK:
            return glimpse_at(path, wanted)

    def open(self, path: str) -> Handle:
        """Open for reading values."""
        return HDF5File(path)


def scan_by_libraries(path: str) -> Structure:
    """Return what netCDF4 sees of a file, h5py where that is not all of it."""
    make_ready(path)
    with LIBRARY_LOCK:
        # netCDF-C reads no files of Python.
        found = "netCDF4" if is_remote(path) else _doubted(path) or _scan_netcdf(path)
        if isinstance(found, Structure):
            return found
        with blaming(path), opened(path) as file:
            return scan_structure(path, file, found, Library(path, file).scanned)


def holds_group(path: str, name: str) -> bool:
    """Tell whether a file may have a group at its top; of other files than HDF5 a few bytes are read."""
    with File(path) as file:
        # Of what the system makes up some has no size, and no end: reading it would wait.
        if not file.size or not FORMAT.recognises(path, file.pread(len(_SIGNATURE), 0)):
            return False
    try:
        direct = H5File(path)
    except LEFT as error:
        if is_doubtful(error) and not is_remote(path) and apart.possible():
            return bool(apart.ask(path, "holds", None, name))
        return True  # whoever opens it finds out
    try:
        return direct.holds(name)
    finally:
        direct.close()


def _doubted(path: str) -> str:
    """Return the name of the format of a file that netCDF-C could not bear or would read others for; else nothing."""
    with blaming(path), opened(path) as file:
        if is_plain(file):
            _check_attributes(file)
            return ""
        return "netCDF4" if "_NCProperties" in file.attrs else "HDF5"


def _check_attributes(file: Any) -> None:
    """Raise OSError for damaged attributes: netCDF-C damages the memory of this process over texts in a damaged heap."""
    for item in (file, *_items_of(file)):
        for name in item.attrs:
            stored_attribute(item, name)


def _items_of(file: Any) -> list[Any]:
    found: list[Any] = []
    file.visititems(lambda name, item: found.append(item))
    return found


# netCDF-4 through netCDF4


def _scan_netcdf(path: str) -> Structure | str:
    """Scan with netCDF4; where it does not see all of the file, return the name of the format instead."""
    try:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            dataset = _open_dataset(path)
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
        if any(_has_rows(source) for group in groups.values() for source in group.variables.values()):
            return "netCDF4"  # h5py tells the sizes of rows without reading them
        return _netcdf_structure(path, groups)
    except (*LIBRARY_ERRORS, Warning):
        # h5py either manages or names the variable at fault.
        return "netCDF4"
    finally:
        dataset.close()


def _open_dataset(path: str) -> Any:
    """Open a file by netCDF4. One that opens halfway is closed here: the garbage collector closes without the lock."""
    import netCDF4

    dataset: Any = netCDF4.Dataset.__new__(netCDF4.Dataset)
    try:
        dataset.__init__(path, "r")
    except BaseException:
        if dataset.isopen():
            with suppress(*LIBRARY_ERRORS):
                dataset.close()
        raise
    return dataset


def _netcdf_groups(group: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    """Yield a group and those in it, each with the beginning of the paths of what is in it."""
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
        """Take down the name of a dataset."""
        if info.type == h5py.h5o.TYPE_DATASET:
            names.append(name.decode("utf-8", "replace"))

    with opened(path) as file:
        h5py.h5o.visit(file.id, note, info=True)
    return not {name.replace(NOT_COORDINATE, "") for name in names} <= seen


def _netcdf_structure(path: str, groups: Mapping[str, Any]) -> Structure:
    """Return what netCDF4 shows of its groups, given by path."""
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

    def read(variable: Variable) -> np.ndarray | None:
        """Return the values of a variable, None where a scan takes no such number of bytes."""
        source = sources[variable.name]
        if not scannable(source.shape, source.dtype.itemsize if source.dtype is not str else 16):
            return None
        if source.ndim > 1 and sum(d.isunlimited() for d in source.get_dims()) > 1:
            # netCDF-C hands out uninitialised memory where two dimensions were lengthened by other variables.
            raise ValueError("two unlimited dimensions: left to h5py")
        with opened(path) as file:
            check_swelling(Library(path, file).dataset(variable.name)[0].id)
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


def _has_rows(source: Any) -> bool:
    """Tell whether a variable has rows of numbers, each of its own length."""
    import netCDF4

    return isinstance(source.datatype, netCDF4.VLType) and source.dtype is not str and source.ndim == 1


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
    """Return the attributes of a variable or a group."""
    found = {}
    for name in source.ncattrs():
        try:
            found[name] = source.getncattr(name)
        except LIBRARY_ERRORS:
            # An attribute of a type that netCDF4 does not read says nothing that CF knows.
            continue
    return found


FORMAT = _HDF5()
