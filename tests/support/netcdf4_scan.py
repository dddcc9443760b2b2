"""Scan of a netCDF-4 file by netCDF4, the oracle of scans without the library."""

import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from aggarray.errors import LIBRARY_ERRORS
from aggarray.formats.base import (
    Structure,
    Variable,
    has_coordinate,
    is_characters,
    stored_values,
    stored_variable,
    with_values,
)
from aggarray.formats.hdf5.h5py_files import open_file
from aggarray.formats.hdf5.refusals import refusal
from aggarray.formats.limits import is_scannable

NOT_COORDINATE = "_nc4_non_coord_"


def scan(path: str) -> Structure | str:
    """Return the scan by netCDF4, or the name of the format if netCDF4 does not read all of the file."""
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
            # netCDF4 warns of variables that it skips (opaque types); h5py reads them.
            return "netCDF4"
        if any(_has_rows(source) for group in groups.values() for source in group.variables.values()):
            return "netCDF4"  # h5py tells the sizes of rows without reading them
        return _netcdf_structure(path, groups)
    except (*LIBRARY_ERRORS, Warning):
        # h5py either reads the file or reports the variable.
        return "netCDF4"
    finally:
        dataset.close()


def _netcdf_groups(group: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    """Yield a group and its descendants, each with the path prefix of its contents."""
    yield prefix, group
    for name, child in group.groups.items():
        yield from _netcdf_groups(child, f"{prefix}{name}/")


def _written_by_netcdf(dataset: Any) -> bool:
    """Return whether the netCDF library wrote the file, so that it reads all of it."""
    try:
        return ",netcdf=" in dataset.getncattr("_NCProperties")
    except LIBRARY_ERRORS:
        return False


def _unseen(path: str, groups: Mapping[str, Any]) -> bool:
    """Return whether the file holds datasets that netCDF4 silently skips (references, opaque types)."""
    import h5py

    seen = {f"{prefix}{name}" for prefix, group in groups.items() for name in (*group.variables, *group.dimensions)}
    names: list[str] = []

    def note(name: bytes, info: Any) -> None:
        """Take down the name of a dataset."""
        if info.type == h5py.h5o.TYPE_DATASET:
            names.append(name.decode("utf-8", "replace"))

    with open_file(path) as file:
        h5py.h5o.visit(file.id, note, info=True)
    return not {name.replace(NOT_COORDINATE, "") for name in names} <= seen


def _netcdf_structure(path: str, groups: Mapping[str, Any]) -> Structure:
    """Return the structure that netCDF4 shows; ``groups``: by path."""
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
        attrs = {**_netcdf_attrs(source), **_flags(source, dtype)}
        variables.append(stored_variable(name, dtype, source.shape, spans[name], attrs, joined))
        sources[name] = source

    def read(variable: Variable) -> np.ndarray | None:
        """Return the values of a variable, None where a scan takes no such number of bytes."""
        source = sources[variable.name]
        if not is_scannable(source.shape, source.dtype.itemsize if source.dtype is not str else 16):
            return None
        if source.ndim > 1 and sum(d.isunlimited() for d in source.get_dims()) > 1:
            # netCDF-C returns uninitialised memory if other variables lengthened two dimensions.
            raise ValueError("two unlimited dimensions: left to h5py")
        try:
            values = np.asarray(source[...])
        except UnicodeDecodeError as error:
            raise ValueError("text that is not in its encoding: left to h5py") from error
        joined = len(variable.shape) < source.ndim
        return stored_values(values, variable.attrs, joined).astype(variable.dtype, copy=False)

    filled = with_values(variables, read)
    attrs = {prefix[:-1]: _netcdf_attrs(group) for prefix, group in groups.items()}
    sizes = {prefix + name: len(d) for prefix, group in groups.items() for name, d in group.dimensions.items()}
    return Structure(path, "netCDF4", attrs.pop(""), filled, attrs, tuple(skipped), sizes=sizes)


def _has_real_end(name: str, source: Any, spans: Mapping[str, tuple[str, ...]]) -> bool:
    """Return whether the last dimension of single characters is unlimited or has a coordinate: not a string length."""
    return bool(source.get_dims()[-1].isunlimited()) or has_coordinate(name, spans[name][-1], spans)


def _has_rows(source: Any) -> bool:
    """Return whether a variable has variable-length rows of numbers."""
    import netCDF4

    return isinstance(source.datatype, netCDF4.VLType) and source.dtype is not str and source.ndim == 1


def _netcdf_dtype(source: Any) -> np.dtype[Any] | str:
    """Return the stored dtype, or the reason why it cannot be read."""
    import netCDF4

    kind = source.datatype
    if isinstance(kind, netCDF4.EnumType):
        # Booleans of h5py.
        boolean = kind.enum_dict == {"FALSE": 0, "TRUE": 1} and kind.dtype == np.int8
        return np.dtype(bool) if boolean else np.dtype(kind.dtype)
    if isinstance(kind, netCDF4.CompoundType):
        return refusal("compound")
    if source.dtype is str:
        return np.dtypes.StringDType()
    return refusal("variable-length") if isinstance(kind, netCDF4.VLType) else np.dtype(source.dtype)


def _flags(source: Any, dtype: np.dtype[Any]) -> dict[str, Any]:
    """Return the members of an enumeration as flags of CF, {} for other types and for variables with flags."""
    import netCDF4

    kind = source.datatype
    if not isinstance(kind, netCDF4.EnumType) or dtype.kind == "b" or {"flag_values", "flag_meanings"} & set(source.ncattrs()):
        return {}
    members = sorted(kind.enum_dict.items(), key=lambda member: (member[1], member[0]))
    values = np.array([value for _, value in members], dtype)
    meanings = " ".join(name.replace(" ", "_") for name, _ in members)
    return {"flag_values": values if len(values) > 1 else values[0], "flag_meanings": meanings}


def _netcdf_attrs(source: Any) -> dict[str, Any]:
    """Return the attributes of a variable or a group."""
    result = {}
    for name in source.ncattrs():
        try:
            result[name] = source.getncattr(name)
            if "\ufffd" in str(result[name]):
                raise UnicodeError(f"attribute {name!r}: text that is not UTF-8, which h5py gives as it is")
        except UnicodeError:
            raise
        except LIBRARY_ERRORS:
            # Attributes of types that netCDF4 does not read have no meaning in CF.
            continue
    return result
